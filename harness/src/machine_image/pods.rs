//! What pods of the bed are made of: a sandbox that sleeps and reaps, and a busybox, both of Debian's static busybox.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use super::layout::{self, Compression};
use crate::cache::Cache;

const BUSYBOX: &str = "/bin/busybox";

/// Applets that pods of tests call.
const APPLETS: [&str; 22] = [
    "cat", "date", "echo", "env", "false", "hostname", "httpd", "id", "ip", "ls", "mount", "nc", "nslookup", "ping",
    "ps", "sh", "sleep", "test", "touch", "true", "wget", "kill",
];

/// The sandbox's only process: it leaves when asked to, and takes in the orphans of its pod.
const PAUSE: &str = "trap 'exit 0' TERM INT\nwhile :; do sleep 3600 & wait $!; done\n";

/// The layout of the sandbox image.
///
/// # Errors
/// Debian's busybox-static is not there, or a file can't be made.
pub(crate) async fn pause(cache: &Cache) -> Result<PathBuf> {
    let config = json!({ "Entrypoint": ["/bin/sh", "/pause"], "Env": ["PATH=/bin"] });
    build(cache, "pause", &["sh", "sleep"], PAUSE, &config).await
}

/// The layout of the busybox image.
///
/// # Errors
/// As `pause`.
pub(crate) async fn busybox(cache: &Cache) -> Result<PathBuf> {
    let config = json!({ "Cmd": ["/bin/sh"], "Env": ["PATH=/bin"] });
    build(cache, "busybox", &APPLETS, PAUSE, &config).await
}

async fn build(
    cache: &Cache,
    name: &str,
    applets: &[&str],
    pause: &str,
    config: &serde_json::Value,
) -> Result<PathBuf> {
    let size = fs::metadata(BUSYBOX)
        .with_context(|| format!("no {BUSYBOX}: Debian's busybox-static has it"))?
        .len();
    let recipe = format!("{size} {applets:?} {pause} {config}");
    let made = cache.produce(name, &recipe, async |new| {
        let root = new.join("root");
        tree(&root, applets, pause)?;
        layout::pack(&root, &new.join("layout"), Compression::Gzip, config)
    });
    Ok(made.await?.join("layout"))
}

fn tree(root: &Path, applets: &[&str], pause: &str) -> Result<()> {
    for (folder, mode) in [("bin", 0o755), ("etc", 0o755), ("tmp", 0o1777)] {
        let path = root.join(folder);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    fs::set_permissions(root, fs::Permissions::from_mode(0o755))?;
    fs::copy(BUSYBOX, root.join("bin/busybox"))?;
    for applet in applets {
        symlink("busybox", root.join("bin").join(applet))?;
    }
    fs::write(root.join("pause"), pause)?;
    Ok(fs::write(root.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?)
}
