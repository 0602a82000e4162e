//! The program `host-exec`: enters the host and becomes one of its tools.
//!
//! It execs, so process, streams, signals and exit code are the tool's own. It reads no setting: the host's root is
//! `/host`. Nothing here is asynchronous, and a start costs a fraction of a millisecond.

use crate::{Tool, Way, environment, host::ROOT};
use nix::{
    errno::Errno,
    sched::{CloneFlags, setns},
    sys::signal::{SigHandler, SigSet, Signal, signal},
};
use std::{
    ffi::{CString, OsStr, OsString},
    fmt::Display,
    fs::{self, File},
    io::{self, Write},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::PermissionsExt,
    },
    path::{Path, PathBuf},
    process::ExitCode,
};

/// Entering the host failed. This and the next two: what `chroot(1)` and the shell use for the same.
const NO_HOST: u8 = 125;
/// Not a tool of the table, or one that cannot be executed.
const REFUSED: u8 = 126;
/// The host does not have the tool.
const MISSING: u8 = 127;

const USAGE: &str = "usage: host-exec TOOL [ARGUMENT...], or host-exec --list";

/// Runs the tool that the first argument (the name of the link), or else the second, names. Returns only on failure, or
/// after `--list`, which prints the names of the table for those who make the links.
#[must_use]
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let called = args.next().unwrap_or_default();
    let mut name = Path::new(&called).file_name().unwrap_or_default().to_owned();
    if name == "host-exec" {
        match args.next() {
            Some(tool) if tool == "--list" => return list(),
            Some(tool) => name = tool,
            None => return fail(REFUSED, USAGE),
        }
    }
    match name.to_str().and_then(Tool::named) {
        Some(tool) => run(tool, args),
        None => fail(
            REFUSED,
            format_args!("{} is not a tool of the host that may be run", shown(&name)),
        ),
    }
}

/// A name as a terminal or a log may be shown it: without what would steer them, and not at any length.
fn shown(name: &OsStr) -> String {
    const LONG: usize = 100;
    let name = name.to_string_lossy();
    let mut shown = String::new();
    for c in name.chars().take(LONG) {
        if c.is_ascii_graphic() || c == ' ' || c.is_alphanumeric() {
            shown.push(c);
        } else {
            shown.extend(c.escape_unicode());
        }
    }
    if name.chars().nth(LONG).is_some() {
        shown.push('…');
    }
    shown
}

fn run(tool: Tool, args: impl Iterator<Item = OsString>) -> ExitCode {
    if let Err((what, error)) = enter(tool.way()) {
        let hint = if error.kind() == io::ErrorKind::NotFound {
            "is the host's root mounted at /host?"
        } else if error.kind() == io::ErrorKind::NotADirectory {
            "/host is a file: mount the host's root there"
        } else {
            "the container lacks a privilege it needs"
        };
        return fail(NO_HOST, format_args!("{}: {what}: {error}; {hint}", tool.name()));
    }
    let program = match find(tool) {
        Found::Program(program) => program,
        Found::Other(path) => {
            let path = path.display();
            return fail(
                REFUSED,
                format_args!("{} is not executable on the host ({path})", tool.name()),
            );
        }
        Found::Nothing if !Path::new("/usr").exists() => {
            return fail(
                NO_HOST,
                format_args!("{}: the host's root is not mounted at {ROOT}", tool.name()),
            );
        }
        Found::Nothing => {
            let looked = environment::SEARCH.join(", ");
            return fail(
                MISSING,
                format_args!("{} is not on the host (looked in {looked})", tool.name()),
            );
        }
    };
    let error = become_program(tool, &program, args);
    let why = if error == Errno::ENOENT {
        "its interpreter is missing on the host".to_owned()
    } else if error == Errno::ENOEXEC {
        "it is no program: empty, damaged, of another machine's kind, or without `#!`".to_owned()
    } else {
        io::Error::from(error).to_string()
    };
    fail(REFUSED, format_args!("{}: {why}", program.display()))
}

/// Becomes the program; what comes back is why it did not.
///
/// By `execve` itself: `execvp`, which the standard library uses, gives to `/bin/sh` what the kernel does not take for a
/// program, and an empty file then succeeds.
fn become_program(tool: Tool, program: &Path, args: impl Iterator<Item = OsString>) -> Errno {
    let text = |bytes: Vec<u8>| CString::new(bytes).map_err(|_| Errno::EINVAL);
    let become_it = || {
        let path = text(program.as_os_str().as_bytes().to_vec())?;
        let args = std::iter::once(tool.name().into()).chain(args);
        let args = args
            .map(|arg: OsString| text(arg.into_vec()))
            .collect::<Result<Vec<_>, _>>()?;
        let kept = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(environment::passes));
        let ours = [("PATH", environment::PATH), ("HOME", environment::HOME)];
        let variables = kept
            .chain(ours.map(|(name, value)| (name.into(), value.into())))
            .map(|(name, value)| text([name.as_bytes(), b"=", value.as_bytes()].concat()))
            .collect::<Result<Vec<_>, _>>()?;
        // A mask is inherited, and so is that Rust ignores SIGPIPE.
        SigSet::empty().thread_set_mask()?;
        pipes_kill()?;
        nix::unistd::execve(&path, &args, &variables)
    };
    let Err(error) = become_it();
    error
}

/// Lets SIGPIPE end this process, as it ends any but one of Rust's.
fn pipes_kill() -> nix::Result<()> {
    #[expect(
        unsafe_code,
        reason = "no safe function sets what a signal does, and `execve` does not reset it"
    )]
    // SAFETY: the default is no function, so none can be run in a signal's context.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.map(drop)
}

/// Makes the host's root ours, and its `/` where we stand.
fn enter(way: Way) -> Result<(), (&'static str, io::Error)> {
    match way {
        Way::Root => nix::unistd::chroot(ROOT).map_err(|error| ("enter /host", error.into()))?,
        Way::Mounts => {
            let mounts = File::open(Path::new(ROOT).join("proc/1/ns/mnt"))
                .map_err(|error| ("open the host's mount namespace, /host/proc/1/ns/mnt", error))?;
            setns(mounts, CloneFlags::CLONE_NEWNS)
                .map_err(|error| ("join the host's mount namespace", error.into()))?;
        }
    }
    std::env::set_current_dir("/").map_err(|error| ("enter the host's root", error))
}

/// What bears a tool's name.
enum Found {
    Program(PathBuf),
    /// A folder, or a file that is not executable; and no program in any of the other folders.
    Other(PathBuf),
    /// Nothing, or links that lead nowhere.
    Nothing,
}

fn find(tool: Tool) -> Found {
    let mut other = None;
    for folder in environment::SEARCH {
        let path = Path::new(folder).join(tool.name());
        match fs::metadata(&path) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => return Found::Program(path),
            Ok(_) => other = other.or(Some(path)),
            Err(_) => {}
        }
    }
    other.map_or(Found::Nothing, Found::Other)
}

fn list() -> ExitCode {
    let names: String = Tool::ALL.iter().map(|tool| format!("{}\n", tool.name())).collect();
    match io::stdout().write_all(names.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, error),
    }
}

fn fail(code: u8, why: impl Display) -> ExitCode {
    // In one write, so that no other's line gets between. With stderr gone there is nobody to tell but by the code.
    let _ = io::stderr().write_all(format!("host-exec: {why}\n").as_bytes());
    ExitCode::from(code)
}
