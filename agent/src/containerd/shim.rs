//! The process between containerd and a container, for when it hangs: containerd asks it everything, and waits.

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill as signal};
use nix::unistd::Pid;
use tokio::time::sleep;

use super::link::{Link, NAMESPACE};

/// How often, and how long after one another, it is looked whether a shim that has nothing more to do has ended.
const LOOKS: (u32, Duration) = (20, Duration::from_millis(100));

/// What a process of the shim's program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// It stands between containerd and the container, or is about to.
    Serves,
    /// containerd's own, for one that is gone: killed, it leaves what is in the next one's way for good.
    Removes,
}

impl Link {
    /// Kills the shims of a container of ours, found among the host's processes.
    pub(super) fn kill_shims(&self, id: &str) {
        for (pid, _) in self.shims(id).into_iter().filter(|(_, role)| *role == Role::Serves) {
            if let Err(errno) = signal(pid, Signal::SIGKILL) {
                tracing::warn!(%errno, %pid, "a shim can't be killed");
            }
        }
    }

    /// Waits a little until a container without a task has no shim, and kills what is left. One that hung before it had a task is known
    /// to nobody, and what it was begun with is in the next one's way.
    pub(super) async fn end_shims(&self, id: &str) {
        for _ in 0..LOOKS.0 {
            if self.shims(id).is_empty() {
                return;
            }
            sleep(LOOKS.1).await;
        }
        tracing::warn!(id, "a shim without a task is killed");
        self.kill_shims(id);
        for _ in 0..LOOKS.0 {
            if self.shims(id).is_empty() {
                // containerd begins to remove what it was begun with.
                sleep(LOOKS.1).await;
                return;
            }
            sleep(LOOKS.1).await;
        }
    }

    fn shims(&self, id: &str) -> Vec<(Pid, Role)> {
        let Ok(entries) = std::fs::read_dir("/proc") else {
            return Vec::new();
        };
        // Where containerd's socket lies, seen from here: below the host's root.
        let folder = std::fs::read_link(self.folder.path()).unwrap_or_default();
        let mut pids = Vec::new();
        for entry in entries.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // One that has just ended has no line.
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if let Some(role) = role(&line, id, &folder) {
                pids.push((Pid::from_raw(pid), role));
            }
        }
        pids
    }
}

/// What a process with this line, its words ended by zeros, does for that container, and for the containerd in that folder; none if it is
/// no shim of theirs. Source: containerd, `runtime/v2/README.md`, "Command Line": `-namespace`, `-id`, `-address`, `delete`.
fn role(line: &[u8], id: &str, folder: &Path) -> Option<Role> {
    let words: Vec<&str> = line
        .split(|byte| *byte == 0)
        .filter_map(|word| str::from_utf8(word).ok())
        .collect();
    let value = |flag: &str| words.windows(2).find(|pair| pair[0] == flag).map(|pair| pair[1]);
    let program = words.first().and_then(|program| program.rsplit('/').next());
    // As the host names it: the end of the path that leads there from here.
    let theirs = value("-address").and_then(|address| Some(PathBuf::from(address).parent()?.to_str()?.to_owned()));
    let is_ours = program.is_some_and(|program| program.starts_with("containerd-shim-"))
        && value("-namespace") == Some(NAMESPACE)
        && value("-id") == Some(id)
        && theirs.is_some_and(|theirs| folder.to_str().is_some_and(|ours| ours.ends_with(&theirs)));
    let removes = words.contains(&"delete");
    is_ours.then_some(if removes { Role::Removes } else { Role::Serves })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fc_c4_only_a_shim_of_that_container_and_containerd_is_one() {
        let line = |text: &str| text.replace(' ', "\0").into_bytes();
        let shim =
            "/usr/bin/containerd-shim-runc-v2 -namespace aks-flex-node -id a -address /run/containerd/containerd.sock ";
        for folder in ["/run/containerd", "/host/run/containerd"] {
            assert_eq!(
                role(&line(shim), "a", Path::new(folder)),
                Some(Role::Serves),
                "{folder}"
            );
        }
        let removes = format!("{shim}-bundle /run/x/a delete ");
        let folder = Path::new("/run/containerd");
        assert_eq!(role(&line(&removes), "a", folder), Some(Role::Removes));
        let folder = Path::new("/host/run/containerd");
        for other in [
            shim.replace("-id a", "-id ab"),
            shim.replace("-namespace aks-flex-node", "-namespace k8s.io"),
            shim.replace("containerd-shim-runc-v2", "ctr"),
            shim.replace("/run/containerd/", "/tmp/run/containerd/"),
            "sh -c containerd-shim-runc-v2 -namespace aks-flex-node -id a ".to_owned(),
            String::new(),
        ] {
            assert_eq!(role(&line(&other), "a", folder), None, "{other}");
        }
    }
}
