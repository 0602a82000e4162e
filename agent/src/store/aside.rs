//! Putting aside what is in the way of a file of ours: it may be somebody's, so it is never removed.

use std::io;

use hostexec::{Host, HostPath};

/// As many names are tried.
const NAMES: u32 = 9;

/// Moves what is at `path` to `to`, or to that name with a number behind it where something is in the way.
///
/// # Errors
/// It could not be moved; it stands where it was.
pub(super) fn put(host: &Host, path: &HostPath, to: &HostPath) -> io::Result<()> {
    use io::ErrorKind as E;
    let mut moved = host.rename(path, to);
    for number in 2..=NAMES {
        match &moved {
            Err(error)
                if [
                    E::AlreadyExists,
                    E::IsADirectory,
                    E::NotADirectory,
                    E::DirectoryNotEmpty,
                ]
                .contains(&error.kind()) => {}
            Ok(()) | Err(_) => break,
        }
        let other = HostPath::new(format!("{to}.{number}")).map_err(io::Error::other)?;
        moved = host.rename(path, &other);
    }
    moved
}
