//! Files, folders and mounts.

use std::io;
use std::time::Instant;

use hostexec::{Call, Host, HostPath, Left, Stays, Tool};
use image::Digest;
use tokio::task::spawn_blocking;

use super::TREE;
use crate::model::chain;
use crate::plan::reset::{self, names};
use crate::removal::End;

/// How long the end of a mount may take.
const UMOUNT: std::time::Duration = std::time::Duration::from_secs(10);

/// Removes what is there, but for what is mounted in it.
pub(super) async fn clear(host: &Host, path: &HostPath, last: Option<&'static str>) -> Vec<(String, End)> {
    let (files, from) = (host.clone(), path.clone());
    let work = spawn_blocking(move || {
        if !files.exists(&from)? {
            return Ok(None);
        }
        files.clear(&from, last, Instant::now() + TREE).map(Some)
    });
    let cleared = match work.await {
        Ok(cleared) => cleared,
        Err(panic) => Err(io::Error::other(panic.to_string())),
    };
    match cleared {
        Ok(None) => Vec::new(),
        Ok(Some(left)) if left.is_empty() => vec![(path.to_string(), End::Removed)],
        Ok(Some(left)) => left.into_iter().map(told).collect(),
        Err(error) => vec![(path.to_string(), End::CouldNot(error.to_string()))],
    }
}

fn told(left: Left) -> (String, End) {
    let end = match left.why {
        Stays::Mount(kind) if kind.is_empty() => {
            End::Kept("something is mounted there; nothing in it was touched".into())
        }
        Stays::Mount(kind) => End::Kept(format!(
            "something is mounted there ({kind}); nothing in it was touched"
        )),
        Stays::Refused(why) => End::CouldNot(why),
        Stays::Late => End::CouldNot(format!("not within {} s; another reset goes on", TREE.as_secs())),
    };
    (left.path, end)
}

/// Removes a folder that is empty. One that is the agent's and isn't, is told with what is in it; but for what another reset goes by.
pub(super) fn remove_empty(host: &Host, path: &HostPath, done: bool) -> End {
    match host.remove_empty_dir(path) {
        Ok(hostexec::Emptied::Removed) => End::Removed,
        Ok(hostexec::Emptied::Absent) => End::Absent,
        Ok(hostexec::Emptied::Mounted) => End::Kept("it is a mount".into()),
        Ok(hostexec::Emptied::Holds(_)) if reset::is_shared(path) => End::Absent,
        Ok(hostexec::Emptied::Holds(mut names)) => {
            if *path == names::ETC && !done {
                names.retain(|name| !names::is_in_etc(name));
            }
            if names.is_empty() {
                return End::Absent;
            }
            End::Kept(format!("in it is what the agent did not make: {}", names.join(", ")))
        }
        Err(error) => End::CouldNot(error.to_string()),
    }
}

/// Puts a file back that stands as the agent wrote it.
pub(super) fn put_back(host: &Host, path: &HostPath, written: &[Digest], copy: Option<&HostPath>) -> End {
    let put = || -> io::Result<End> {
        let now = match host.read(path) {
            Ok(bytes) => Some(Digest::of(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        let Some(copy) = copy else {
            return match now {
                None => Ok(End::Absent),
                Some(now) if written.is_empty() || written.contains(&now) => host.remove(path).map(|()| End::Removed),
                Some(_) => Ok(End::Kept("somebody has changed it since the agent wrote it".into())),
            };
        };
        if !host.exists(copy)? {
            // Put back already.
            return Ok(End::Absent);
        }
        let before = Digest::of(&host.read(copy)?);
        match now {
            Some(now) if now == before => host.remove(copy).map(|()| End::Absent),
            // A rename needs no room on a full disk.
            Some(now) if written.contains(&now) => host.rename(copy, path).map(|()| End::Removed),
            Some(_) | None => {
                let aside = HostPath::new(format!("{path}.before-aks-flex-node")).map_err(io::Error::other)?;
                host.rename(copy, &aside)?;
                Ok(End::Kept(format!(
                    "somebody has changed it since the agent wrote it; as it was before, it is in {aside}"
                )))
            }
        }
    };
    put().unwrap_or_else(|error| End::CouldNot(error.to_string()))
}

/// Ends a mount of the host.
pub(super) async fn unmount(host: &Host, path: &HostPath) -> End {
    match host.call(Call::new(Tool::Umount, &[path.as_str()]).limit(UMOUNT)).await {
        Ok(_) => End::Removed,
        // The machine's end has taken it along.
        Err(_) if !crate::observe::is_mounted(host, path) => End::Absent,
        Err(error) => End::CouldNot(chain(&error)),
    }
}
