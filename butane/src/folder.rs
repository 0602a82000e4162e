//! The operator's folder: what is read of it is regular files, of a bounded size, and never waited for.

use std::cell::Cell;
use std::fs::{FileType, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

use crate::Error;

/// The most that one file may hold.
const FILE: u64 = 16 << 20;
/// The most that all files may hold together.
const ALL: u64 = 64 << 20;
/// The most names that all folders may hold together: a link may lead back to a folder above it.
const NAMES: usize = 10_000;

/// Who may read a file here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Anybody.
    All,
    /// Nobody but its owner: on the host it is root's alone.
    Owner,
}

/// The folder, and how much may still be read of it.
pub(crate) struct Folder<'a> {
    path: &'a Path,
    bytes: Cell<u64>,
    names: Cell<usize>,
}

impl<'a> Folder<'a> {
    /// The folder at the path, which must be one.
    pub(crate) fn new(path: &'a Path) -> Result<Self, Error> {
        let folder = Self {
            path,
            bytes: Cell::new(ALL),
            names: Cell::new(NAMES),
        };
        let what = format!("the folder {}", path.display());
        let found = std::fs::metadata(path).map_err(unreadable(&what))?;
        if !found.is_dir() {
            return Err(Error::file(&what, "it is no folder: name the folder of inputs"));
        }
        Ok(folder)
    }

    /// Whether the name leads to a folder.
    pub(crate) fn has_folder(&self, name: &str) -> Result<bool, Error> {
        let found = std::fs::metadata(self.path.join(name)).map_err(unreadable(name))?;
        Ok(found.is_dir())
    }

    /// The bytes of a file.
    pub(crate) fn read(&self, file: &str, readers: Readers) -> Result<Vec<u8>, Error> {
        let path = self.path.join(file);
        // Before it is opened, too: to open a device may do something.
        regular(file, std::fs::metadata(&path).map_err(unreadable(file))?.file_type())?;
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags((OFlag::O_NONBLOCK | OFlag::O_NOCTTY).bits())
            .open(&path)
            .map_err(unreadable(file))?;
        let found: Metadata = opened.metadata().map_err(unreadable(file))?;
        regular(file, found.file_type())?;
        if readers == Readers::Owner && found.permissions().mode() & 0o077 != 0 {
            return Err(Error::file(file, "others may read it: chmod 600"));
        }
        let mut bytes = Vec::new();
        let read = opened
            .take(FILE + 1)
            .read_to_end(&mut bytes)
            .map_err(unreadable(file))? as u64;
        if read > FILE {
            return Err(Error::file(
                file,
                "it has more than 16 MiB: write a smaller one, or bring it to the host another way",
            ));
        }
        let left = self.bytes.get().checked_sub(read).ok_or_else(|| {
            let problem = "with it the inputs have more than 64 MiB: write less, or bring it to the host another way";
            Error::file(file, problem)
        })?;
        self.bytes.set(left);
        Ok(bytes)
    }

    /// The names in the folder, or in one below it, sorted; a name that is no plain text is refused.
    pub(crate) fn list(&self, below: &str) -> Result<Vec<String>, Error> {
        let what = if below.is_empty() {
            "the folder of inputs"
        } else {
            below
        };
        if !self.has_folder(below)? {
            return Err(Error::file(what, "it is no folder: make it one, or take it out"));
        }
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path.join(below)).map_err(unreadable(what))? {
            let entry = entry.map_err(unreadable(what))?;
            let name = entry
                .file_name()
                .into_string()
                .map_err(|_| Error::file(what, "a name in it is not UTF-8"))?;
            if name.chars().any(char::is_control) {
                return Err(Error::file(what, "a name in it holds a control character"));
            }
            let left = self.names.get().checked_sub(1).ok_or_else(|| {
                let problem = "the inputs have more than 10000 names: write fewer, without links to a folder above";
                Error::file(what, problem)
            })?;
            self.names.set(left);
            names.push(name);
        }
        names.sort();
        Ok(names)
    }
}

fn regular(file: &str, found: FileType) -> Result<(), Error> {
    let is = if found.is_file() {
        return Ok(());
    } else if found.is_dir() {
        "a folder"
    } else {
        "a pipe, socket or device"
    };
    Err(Error::file(file, format!("it is {is}: put a regular file there")))
}

fn unreadable(file: &str) -> impl FnOnce(io::Error) -> Error {
    let file = file.to_owned();
    |source| Error::Read { file, source }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn said(folder: &Path, file: &str) -> String {
        let error = Folder::new(folder).unwrap().read(file, Readers::All).unwrap_err();
        assert!(!error.may_pass());
        error.to_string()
    }

    #[test]
    fn what_is_no_regular_file_is_refused_by_name_and_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink("/dev/zero", at("device")).unwrap();
        std::fs::create_dir(at("folder")).unwrap();
        for name in ["pipe", "socket", "device"] {
            let expected = format!("{name}: it is a pipe, socket or device: put a regular file there");
            assert_eq!(said(dir.path(), name), expected);
        }
        assert_eq!(
            said(dir.path(), "folder"),
            "folder: it is a folder: put a regular file there"
        );
    }

    #[test]
    fn more_than_the_limit_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let sparse = |name: &str, size| {
            let options = OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(dir.path().join(name));
            options.unwrap().set_len(size).unwrap();
        };
        sparse("large", FILE + 1);
        assert!(said(dir.path(), "large").starts_with("large: it has more than 16 MiB: "));
        for name in ["1", "2", "3", "4", "5"] {
            sparse(name, FILE);
        }
        let folder = Folder::new(dir.path()).unwrap();
        for name in ["1", "2", "3", "4"] {
            assert_eq!(folder.read(name, Readers::All).unwrap().len() as u64, FILE);
        }
        let error = folder.read("5", Readers::All).unwrap_err().to_string();
        assert!(
            error.starts_with("5: with it the inputs have more than 64 MiB: "),
            "{error}"
        );
    }

    #[test]
    fn a_file_in_place_of_a_folder_is_final() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::os::unix::fs::symlink("/dev/null", &file).unwrap();
        let error = Folder::new(&file).err().unwrap();
        assert!(!error.may_pass());
        assert!(
            error
                .to_string()
                .ends_with("it is no folder: name the folder of inputs"),
            "{error}"
        );
        let error = Folder::new(dir.path()).unwrap().list("file").unwrap_err();
        assert_eq!(error.to_string(), "file: it is no folder: make it one, or take it out");
        assert!(!error.may_pass());
        let error = Folder::new(dir.path()).unwrap().list("file/x").unwrap_err();
        assert!(!error.may_pass(), "{error}");
    }
}
