//! Files, links and folders of the host and of a machine.

use std::{
    fs,
    io::{self, Read as _},
    ops::Deref,
};

use hostexec::{Dir, Host, HostPath, Written};
use image::Digest;
use sha2::{Digest as _, Sha256};

use super::{Context, Error};
use crate::{
    model::MachineName,
    step::{Entry, File, Place},
};

/// The agent's program in a machine.
const AGENT: HostPath = HostPath::fixed("/usr/local/bin/aks-flex-node");
/// The longest an agent's program may be.
const AGENT_BYTES: u64 = 256 << 20;

/// Where a daemon replaces files of the host.
const SWEPT: [HostPath; 3] = [
    HostPath::fixed("/etc/aks-flex-node"),
    HostPath::fixed("/etc/aks-flex-node/daemon-credentials"),
    HostPath::fixed(units::name::UNIT_DIR),
];

/// A file system whose links lead nowhere outside it.
pub(super) struct Inside {
    // Never moved out: its path leads through the descriptor beside it.
    files: Host,
    _dir: Dir,
}

impl Deref for Inside {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.files
    }
}

/// The folder of machines.
pub(super) const MACHINES: HostPath = HostPath::fixed("/var/lib/machines");

/// The folder of a machine's file system.
pub(super) fn folder(machine: MachineName) -> HostPath {
    MACHINES.join(machine.as_str()).expect("a machine's name is plain")
}

/// The machine's file system, met as the machine itself would: an absolute link in an image leads into the image.
pub(super) fn inside(host: &Host, machine: MachineName) -> io::Result<Inside> {
    let dir = host.open_dir(&folder(machine))?;
    Ok(Inside {
        files: Host::rooted(dir.path()),
        _dir: dir,
    })
}

/// Removes what an agent left that was killed while it replaced a file, from the folders in which a daemon does so.
///
/// # Errors
/// One of them could not be swept; those before it are.
pub fn sweep(host: &Host, machine: Option<MachineName>) -> io::Result<()> {
    for folder in SWEPT {
        host.sweep(&folder)?;
    }
    let Some(machine) = machine else { return Ok(()) };
    match inside(host, machine) {
        Ok(machine) => AGENT.parent().map_or(Ok(()), |folder| machine.sweep(&folder)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Makes each entry as it is written; an entry that is so already is left alone.
pub(super) fn write(host: &Host, files: &[File]) -> Result<Written, Error> {
    let mut changed = Written::Same;
    for file in files {
        let written = match file.place {
            Place::Host => write_one(host, file),
            Place::Machine(machine) => inside(host, machine).and_then(|machine| write_one(&machine, file)),
        };
        if written.map_err(Error::File)? == Written::Changed {
            changed = Written::Changed;
        }
    }
    Ok(changed)
}

fn write_one(files: &Host, file: &File) -> io::Result<Written> {
    match &file.entry {
        Entry::File { mode, content } => files.write_if_changed(&file.path, content.bytes(), *mode),
        Entry::Folder { mode } => files.create_dir(&file.path, *mode).map(|()| Written::Same),
        Entry::Absent => files.remove(&file.path).map(|()| Written::Same),
        Entry::Link { target } => {
            if files.read_link(&file.path).is_ok_and(|found| found == *target) {
                return Ok(Written::Same);
            }
            files.link(target, &file.path).map(|()| Written::Changed)
        }
    }
}

/// One digest of all files a unit reads; one that is missing counts as such.
pub(super) fn digest(files: &Host, reads: &[HostPath]) -> io::Result<Digest> {
    let mut all = Sha256::new();
    for path in reads {
        let content = if files.exists(path)? {
            Some(hash(files.open(path)?)?)
        } else {
            None
        };
        all.update(path.as_str());
        all.update(content.as_ref().map_or("absent", Digest::as_str));
    }
    Ok(Digest::from_hash(all))
}

/// Copies the running agent's program into the machine, where kubelet calls it for credentials.
pub(super) async fn copy_agent(context: &Context, machine: MachineName) -> Result<(), Error> {
    let (host, program) = (context.host.clone(), context.program.clone());
    blocking(move || {
        let files = inside(&host, machine)?;
        let ours = hash(fs::File::open(&program)?)?;
        if files.open(&AGENT).and_then(hash).is_ok_and(|theirs| theirs == ours) && is_program(&files, &AGENT)? {
            return Ok(());
        }
        let mut new = files.replace(&AGENT, 0o755)?;
        let copied = io::copy(&mut fs::File::open(&program)?.take(AGENT_BYTES + 1), new.file())?;
        if copied > AGENT_BYTES {
            return Err(io::Error::other(format!(
                "the agent's program is longer than {AGENT_BYTES} bytes"
            )));
        }
        new.commit()
    })
    .await
}

/// Whether the file may be run by all.
pub(super) fn is_program(files: &Host, path: &HostPath) -> io::Result<bool> {
    is_file(files, path, 0o755)
}

/// Whether it is a regular file with just these permissions.
pub(super) fn is_file(files: &Host, path: &HostPath, mode: u32) -> io::Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    let found = files.metadata(path)?;
    Ok(found.is_file() && found.permissions().mode() & 0o7777 == mode)
}

/// The digest of all that `reader` gives.
pub(super) fn hash(mut reader: impl io::Read) -> io::Result<Digest> {
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(Digest::from_hash(hash)),
            length => hash.update(&buffer[..length]),
        }
    }
}

/// Runs long work on files beside the runtime. It goes on to its end when nobody waits for it any more.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome.map_err(Error::File),
        Err(ended) => Err(ended.try_into_panic().map_or_else(
            |ended| Error::Panic(ended.to_string()),
            |panic| Error::panicked(&*panic),
        )),
    }
}
