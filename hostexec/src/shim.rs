//! The program `host-exec`: enters the host and becomes one of its tools.
//!
//! It execs, so process, streams, signals and exit code are the tool's own. It reads no setting: the host's root is
//! `/host`. Nothing here is asynchronous, and a start costs a fraction of a millisecond.

use crate::{Tool, Way, environment, host::ROOT};
use nix::{
    sched::{CloneFlags, setns},
    sys::signal::SigSet,
};
use std::{
    ffi::OsString,
    fmt::Display,
    fs::{self, File},
    io::{self, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// Entering the host failed. This and the next two: what `chroot(1)` and the shell use for the same.
const NO_HOST: u8 = 125;
/// Not a tool of the table, or one that cannot be executed.
const REFUSED: u8 = 126;
/// The host does not have the tool.
const MISSING: u8 = 127;

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
            None => return fail(REFUSED, "usage: host-exec TOOL [ARGUMENT...], or host-exec --list"),
        }
    }
    match name.to_str().and_then(Tool::named) {
        Some(tool) => run(tool, args),
        None => fail(
            REFUSED,
            format_args!("{} is not a tool of the host that may be run", name.display()),
        ),
    }
}

fn run(tool: Tool, args: impl Iterator<Item = OsString>) -> ExitCode {
    if let Err((what, error)) = enter(tool.way()) {
        let hint = if error.kind() == io::ErrorKind::NotFound {
            "is the host's root mounted at /host?"
        } else {
            "the container lacks a privilege it needs"
        };
        return fail(NO_HOST, format_args!("{}: {what}: {error}; {hint}", tool.name()));
    }
    let Some(program) = find(tool) else {
        if !Path::new("/usr").exists() {
            return fail(
                NO_HOST,
                format_args!("{}: the host's root is not mounted at {ROOT}", tool.name()),
            );
        }
        let looked = environment::SEARCH.join(", ");
        return fail(
            MISSING,
            format_args!("{} is not on the host (looked in {looked})", tool.name()),
        );
    };
    // A mask is inherited; SIGPIPE, which Rust ignores, `exec` resets by itself.
    if let Err(error) = SigSet::empty().thread_set_mask() {
        return fail(NO_HOST, format_args!("{}: clear the signal mask: {error}", tool.name()));
    }
    let kept = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(environment::passes));
    let error = Command::new(&program)
        .arg0(tool.name())
        .args(args)
        .env_clear()
        .envs(kept)
        .env("PATH", environment::PATH)
        .env("HOME", environment::HOME)
        .exec();
    fail(REFUSED, format_args!("{}: {error}", program.display()))
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

fn find(tool: Tool) -> Option<PathBuf> {
    environment::SEARCH
        .iter()
        .map(|folder| Path::new(folder).join(tool.name()))
        .find(|path| fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0))
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
