//! What is done in a host and read from it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Host, own};
use crate::command::{Command, Output, PATH};

/// Joins the host's first group, then its namespaces, with no more capabilities than its first process has; nothing of our environment.
/// $1: the group's list of processes; $2: the first process; $3: the PATH; then the command.
const ENTER: &str = r#"echo $$ > "$1" || exit 125
leader=$2; path=$3; shift 3
exec nsenter -t "$leader" -m -u -i -n -p -C --root --wd -- setpriv --bounding-set=-sys_time,-sys_module \
    env -i HOME=/root LANG=C.UTF-8 TERM="${TERM:-dumb}" PATH="$path" "$@""#;

/// The limit of a command that was given none.
const LIMIT: Duration = Duration::from_secs(60);

impl Host {
    /// A command to be run in the host. It has no limit inside: a signal to it does not reach there.
    ///
    /// # Errors
    /// The host is off.
    pub(crate) fn command<S: AsRef<std::ffi::OsStr>>(&self, line: &[S]) -> Result<Command> {
        let off = || format!("host {} is off", self.plan.name);
        let supervisor = self.supervisor().with_context(off)?;
        let leader = self.leader().with_context(off)?;
        let group = format!(
            "/proc/{}/root/sys/fs/cgroup/{}/payload/init.scope/cgroup.procs",
            supervisor.pid, self.plan.group
        );
        Ok(Command::line(&["sh", "-c", ENTER, "sh", &group, &leader.pid.to_string(), PATH]).args(line))
    }

    /// Runs a command in the host, for a minute at most; whatever its exit code.
    ///
    /// # Errors
    /// The host is off, or it took too long.
    pub(crate) async fn exec(&self, line: &[&str]) -> Result<Output> {
        self.exec_within(LIMIT, line).await
    }

    /// As `exec`, with another limit.
    ///
    /// # Errors
    /// As `exec`.
    pub(crate) async fn exec_within(&self, limit: Duration, line: &[&str]) -> Result<Output> {
        let inside = limit.as_secs().max(1).to_string();
        let output = self
            .command(&[&["timeout", "--kill-after=5", &inside], line].concat())?
            .limit(limit + Duration::from_secs(10))
            .output()
            .await?;
        if output.code == Some(124) || output.code == Some(137) {
            bail!(
                "`{}` on host {}: not within {limit:?}: {}",
                line.join(" "),
                self.plan.name,
                output.stderr.trim()
            );
        }
        Ok(output)
    }

    /// Runs a command in the host that must succeed, and hands back what it wrote.
    ///
    /// # Errors
    /// As `exec`, and any exit code but 0.
    pub(crate) async fn exec_ok(&self, line: &[&str]) -> Result<String> {
        let output = self.exec(line).await?;
        if !output.ok() {
            let said = format!("{}{}", output.stdout, output.stderr);
            bail!(
                "`{}` on host {}: exit code {:?}: {}",
                line.join(" "),
                self.plan.name,
                output.code,
                said.trim()
            );
        }
        Ok(output.stdout)
    }

    /// Runs a line of shell in the host that must succeed.
    ///
    /// # Errors
    /// As `exec_ok`.
    pub(crate) async fn sh(&self, script: &str) -> Result<String> {
        self.exec_ok(&["bash", "-euo", "pipefail", "-c", script]).await
    }

    /// Runs a command that sees the host's files, whether the host is on or off.
    ///
    /// # Errors
    /// It can't be run, or fails.
    pub(crate) async fn peek(&self, line: &[&str]) -> Result<String> {
        if self.is_on() {
            self.exec_ok(line).await
        } else {
            own(&["offline"]).arg(&self.dir).arg("--").args(line).read().await
        }
    }

    /// A file of the host, on or off.
    ///
    /// # Errors
    /// There is none, or it can't be read.
    pub(crate) async fn read_file(&self, path: &str) -> Result<String> {
        self.peek(&["cat", "--", path]).await
    }

    /// Whether there is anything at that path of the host, on or off.
    ///
    /// # Errors
    /// The host can't be looked at.
    pub(crate) async fn exists(&self, path: &str) -> Result<bool> {
        let script = r#"[ -e "$1" ] || [ -L "$1" ] && echo yes || echo no"#;
        Ok(self.peek(&["sh", "-c", script, "sh", path]).await?.trim() == "yes")
    }

    /// Writes a file of the host, which must be on.
    ///
    /// # Errors
    /// It can't be written.
    pub(crate) async fn write_file(&self, path: &str, bytes: impl Into<Vec<u8>>, mode: u32) -> Result<()> {
        let script = r#"umask 077; mkdir -p "$(dirname "$1")"; cat > "$1"; chmod "$2" "$1""#;
        self.command(&["sh", "-c", script, "sh", path, &format!("{mode:o}")])?
            .stdin(bytes)
            .run()
            .await
    }

    /// The journal, all boots of it, on or off. `args` are journalctl's.
    ///
    /// # Errors
    /// journalctl fails.
    pub(crate) async fn journal(&self, args: &[&str]) -> Result<String> {
        self.peek(
            &[
                &["journalctl", "--directory=/var/log/journal", "--no-pager", "--quiet"],
                args,
            ]
            .concat(),
        )
        .await
    }

    /// What differs in `/etc` from the image: kind (`f`, `l`, `c` for a shipped file that was removed) and path, sorted.
    ///
    /// # Errors
    /// The host can't be looked at.
    pub(crate) async fn changed(&self) -> Result<String> {
        let list = r"cd etc && find . -mindepth 1 ! -type d -printf '%y %P\n' | sort -k2";
        if !self.is_on() {
            return own(&["offline", "--upper"])
                .arg(&self.dir)
                .args(["--", "sh", "-c", list])
                .read()
                .await;
        }
        // A plain bind of the root shows the upper half alone.
        let script = format!(r#"d=$(mktemp -d); mount --bind / "$d"; cd "$d"; {list}; cd /; umount "$d"; rmdir "$d""#);
        self.exec_ok(&["unshare", "--mount", "bash", "-euc", &script]).await
    }

    /// The host's own folder in the run: console, Ignition's log.
    pub(crate) fn folder(&self) -> PathBuf {
        self.dir.clone()
    }
}
