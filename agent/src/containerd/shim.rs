//! The process between containerd and a container, for when it hangs: containerd asks it everything, and waits.

use nix::sys::signal::{Signal, kill as signal};
use nix::unistd::Pid;

use super::link::NAMESPACE;

/// Kills the shims of a container of ours, found among the host's processes.
pub(super) fn kill(id: &str) {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return;
    };
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that has just ended is none.
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if is_of(&line, id)
            && let Err(errno) = signal(Pid::from_raw(pid), Signal::SIGKILL)
        {
            tracing::warn!(%errno, pid, "a shim can't be killed");
        }
    }
}

/// Whether a process with this line, its words ended by zeros, is a shim of that container.
/// Source: containerd, `runtime/v2/README.md`, "Command Line": `-namespace`, `-id`.
fn is_of(line: &[u8], id: &str) -> bool {
    let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
    let says = |flag: &str, value: &str| words.windows(2).any(|pair| pair == [flag.as_bytes(), value.as_bytes()]);
    let program = words
        .first()
        .and_then(|program| program.rsplit(|byte| *byte == b'/').next());
    program.is_some_and(|program| program.starts_with(b"containerd-shim-"))
        && says("-namespace", NAMESPACE)
        && says("-id", id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fc_c4_only_a_shim_of_that_container_is_one() {
        let line = |text: &str| text.replace(' ', "\0").into_bytes();
        let shim =
            "/usr/bin/containerd-shim-runc-v2 -namespace aks-flex-node -id a -address /run/containerd/containerd.sock ";
        assert!(is_of(&line(shim), "a"));
        for other in [
            shim.replace("-id a", "-id ab"),
            shim.replace("-namespace aks-flex-node", "-namespace k8s.io"),
            shim.replace("containerd-shim-runc-v2", "ctr"),
            "sh -c containerd-shim-runc-v2 -namespace aks-flex-node -id a ".to_owned(),
            String::new(),
        ] {
            assert!(!is_of(&line(&other), "a"), "{other}");
        }
    }
}
