//! The network of a run: a namespace of its own with one bridge, on which the hosts and the cloud's servers meet. Nothing of the
//! machine's own network is touched.

use std::ffi::OsStr;
use std::path::PathBuf;

use anyhow::Result;

use crate::command::Command;
use crate::run::Run;

/// The bridge in the namespace.
pub(crate) const BRIDGE: &str = "br0";

/// A run's network.
#[derive(Clone, Debug)]
pub(crate) struct Net {
    /// The namespace's name, as `ip netns` shows it.
    pub(crate) name: String,
    /// The first three numbers of its addresses.
    prefix: String,
}

impl Net {
    /// The network of that run, made or not.
    pub(crate) fn of(run: &Run) -> Self {
        Self {
            name: format!("afn-{}", run.id),
            prefix: format!("10.88.{}", run.number),
        }
    }

    /// The bridge's own address: the hosts' gateway, resolver, registry and API server.
    pub(crate) fn gateway(&self) -> String {
        self.address(1)
    }

    /// The address with that last number.
    pub(crate) fn address(&self, last: u8) -> String {
        format!("{}.{last}", self.prefix)
    }

    /// The namespace as a file.
    pub(crate) fn file(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// Makes the namespace and the bridge.
    ///
    /// # Errors
    /// One of them can't be made.
    pub(crate) async fn up(&self) -> Result<()> {
        let name = self.name.as_str();
        Command::line(&["ip", "netns", "add", name]).run().await?;
        self.ip("link set lo up").await?;
        self.ip(&format!("link add {BRIDGE} type bridge")).await?;
        self.ip(&format!("addr add {}/24 dev {BRIDGE}", self.gateway())).await?;
        self.ip(&format!("link set {BRIDGE} up")).await
    }

    /// Removes the namespace, and with it all that is in it; absent is fine.
    ///
    /// # Errors
    /// It is there and can't be removed.
    pub(crate) async fn down(&self) -> Result<()> {
        if !self.file().exists() {
            return Ok(());
        }
        Command::line(&["ip", "netns", "del", &self.name]).run().await
    }

    /// `ip` in the namespace.
    ///
    /// # Errors
    /// As `ip` says.
    pub(crate) async fn ip(&self, words: &str) -> Result<()> {
        Command::line(&["ip", "-n", &self.name])
            .args(words.split_whitespace())
            .run()
            .await
    }

    /// A program to be run in the namespace.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        Command::new("nsenter")
            .arg(format!("--net={}", self.file().display()))
            .arg(program)
    }
}
