//! Ignition, the real one, on a root before its first boot.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::cache::private_dir;
use crate::command::PATH;
use crate::run;

/// Where Debian keeps it: in the initramfs module, not in the path.
const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";

/// Applies a config to the root, in the network namespace we are in. `dir` keeps its log.
///
/// # Errors
/// Ignition refuses the config or fails; the end of its log is in the error.
pub(super) fn apply(dir: &Path, config: &str, root: &Path) -> Result<()> {
    private_dir(dir)?;
    let input = dir.join("config.ign");
    run::secret(&input, config.as_bytes())?;
    // Debian builds Ignition with relabelling on. The image's is built without: a program that does nothing stands for it.
    let tools = dir.join("bin");
    private_dir(&tools)?;
    std::os::unix::fs::symlink("/usr/bin/true", tools.join("setfiles"))?;
    let path = format!("{}:{}", tools.display(), PATH);
    for stage in ["fetch", "files"] {
        let log = dir.join(format!("{stage}.log"));
        let out = fs::File::create(&log)?;
        let status = Command::new(IGNITION)
            .args(["--platform=file", "--log-to-stdout"])
            .arg(format!("--stage={stage}"))
            .arg(format!("--root={}", root.display()))
            .arg(format!("--config-cache={}", dir.join("cache.json").display()))
            .arg(format!("--state-file={}", dir.join("state").display()))
            .arg(format!("--neednet={}", dir.join("neednet").display()))
            .env("IGNITION_CONFIG_FILE", &input)
            .env("PATH", &path)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .status()
            .context("could not start Ignition")?;
        if !status.success() {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let end: Vec<_> = said.lines().rev().take(4).collect();
            bail!(
                "Ignition failed in its stage {stage}: {}",
                end.into_iter().rev().collect::<Vec<_>>().join(" | ")
            );
        }
    }
    Ok(())
}
