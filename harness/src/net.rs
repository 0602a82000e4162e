//! The network of a run: a namespace of its own with one bridge, on which the hosts and the cloud's servers meet. Nothing of the
//! machine's own network is touched.
//!
//! A process holds the namespace, not a file below `/run/netns`: such a file is a mount that everybody shares, and was seen to lose its
//! namespace when somebody else took a tree apart that held a copy of it.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::Command;
use crate::process::Daemon;
use crate::run::Run;
use crate::wait;

/// The bridge in the namespace.
pub(crate) const BRIDGE: &str = "br0";

/// The bridge's own address, which it keeps. Left to the kernel it would be the lowest of its ports', and change whenever a host comes or
/// goes: every other host then speaks for half a minute to a gateway that is not there.
pub(crate) const ADDRESS: &str = "02:61:66:6e:00:01";

/// The process that holds the namespace, among the run's servers.
pub(crate) const HOLDER: &str = "network";

/// A run's network.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    /// What the run is called where names are the machine's: its control group.
    pub(crate) name: String,
    run: Run,
}

impl Net {
    /// The network of that run, made or not.
    pub(crate) fn of(run: &Run) -> Self {
        Self {
            name: format!("afn-{}", run.id),
            run: run.clone(),
        }
    }

    /// The bridge's own address: the hosts' gateway, resolver, registry and API server.
    pub(crate) fn gateway(&self) -> String {
        self.address(1)
    }

    /// The address with that last number.
    pub(crate) fn address(&self, last: u8) -> String {
        format!("10.88.{}.{last}", self.run.number)
    }

    /// The namespace as a file; none if nobody holds it.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let holder = Daemon::find(&self.run, HOLDER)?;
        Some(PathBuf::from(format!("/proc/{}/ns/net", holder.process.pid)))
    }

    /// As `file`; when nobody holds the namespace, a path that leads nowhere, so that who uses it says so.
    fn path(&self) -> PathBuf {
        self.file().unwrap_or_else(|| self.run.pids().join(HOLDER).join("gone"))
    }

    /// Makes the namespace and the bridge.
    ///
    /// # Errors
    /// One of them can't be made.
    pub(crate) async fn up(&self) -> Result<()> {
        Daemon::spawn(
            &self.run,
            HOLDER,
            Command::line(&["unshare", "--net", "sleep", "infinity"]),
        )?;
        let own = fs::read_link("/proc/self/ns/net")?;
        wait::until_true("a network of our own", Duration::from_secs(20), async || {
            let file = self.file().context("its holder ended")?;
            Ok(fs::read_link(file)? != own)
        })
        .await?;
        self.ip("link set lo up").await?;
        self.ip(&format!("link add {BRIDGE} address {ADDRESS} type bridge"))
            .await?;
        self.ip(&format!("addr add {}/24 dev {BRIDGE}", self.gateway())).await?;
        self.ip(&format!("link set {BRIDGE} up")).await
    }

    /// `ip` in the namespace.
    ///
    /// # Errors
    /// As `ip` says.
    pub(crate) async fn ip(&self, words: &str) -> Result<()> {
        self.command("ip").args(words.split_whitespace()).run().await
    }

    /// A program to be run in the namespace.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        Command::new("nsenter")
            .arg(format!("--net={}", self.path().display()))
            .arg(program)
    }
}
