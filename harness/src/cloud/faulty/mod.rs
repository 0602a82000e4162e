//! The faulty registry of a run: a server in front of the registry, which hands through what is asked of it, unless a check wants it to go
//! wrong, for one host and one kind of request.
//!
//!     check ─set─▶ faults/ADDRESS ─read for each request─▶ server ─▶ registry
//!     host ◀──────what it asked for, or something wrong──────┘
//!
//! What it holds back while it is silent or slow it hands out when the fault is healed: a pull can be stopped at a byte, looked at, and let go.

mod answer;
mod book;
mod certificates;
mod fault;
mod request;
mod serve;
mod wire;

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use image::ImageRef;

use super::registry;
use super::server::{self, Socket};
use crate::ca::Ca;
use crate::cache;
use crate::cloud::log::{self, Mark};
use crate::host::Host;
use crate::net::Net;
use crate::run::Run;
use crate::wait;

pub(crate) use fault::{At, Door, Fault, Guard, How, Kind, Redirect, SIGNATURE};
pub(crate) use request::Request;
pub(crate) use serve::serve;

/// Its name for hosts.
pub(crate) const HOST: &str = "faulty.test";
pub(crate) const PORT: u16 = 5001;
/// Where it answers without TLS: nobody shall be led there.
pub(crate) const PLAIN_PORT: u16 = 5002;
/// The server's name in the run, and the verb that it is.
pub(crate) const SERVER: &str = "faulty-registry";

/// The doors that have a certificate.
const DOORS: [Door; 5] = [Door::Good, Door::Early, Door::Late, Door::Stranger, Door::OtherName];

/// The faulty registry of a run, which may run or not.
#[derive(Clone, Debug)]
pub(crate) struct Faulty {
    run: Run,
    net: Net,
}

impl Faulty {
    /// The faulty registry of a run.
    pub(crate) fn of(run: &Run, net: &Net) -> Self {
        Self {
            run: run.clone(),
            net: net.clone(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.run.cloud_dir().join("faulty")
    }

    fn faults(&self) -> PathBuf {
        self.folder().join("faults")
    }

    /// Makes its folder and certificates.
    ///
    /// # Errors
    /// A file can't be written.
    pub(crate) fn prepare(&self, ca: &Ca) -> Result<()> {
        cache::private_dir(&self.folder())?;
        cache::private_dir(&self.faults())?;
        std::fs::copy(ca.certificate(), self.folder().join("ca.crt"))?;
        certificates::make(&self.folder(), ca)
    }

    /// Starts it, unless it runs.
    ///
    /// # Errors
    /// It does not start or serve.
    pub(crate) async fn start(&self) -> Result<()> {
        let command = self
            .net
            .command(std::env::current_exe()?)
            .args([SERVER, "--run", &self.run.id]);
        let port = Socket::Tcp(SocketAddrV4::new(self.net.gateway().parse()?, PORT));
        server::start(&self.run, SERVER, command, async |process| {
            Ok(server::listens(process, port))
        })
        .await
    }

    /// How hosts name an image of the registry when they are to get it from here.
    ///
    /// # Errors
    /// It is not of the registry.
    pub(crate) fn image(&self, image: &ImageRef) -> Result<ImageRef> {
        let name = image.to_string();
        let path = name.strip_prefix(&format!("{}:{}/", registry::HOST, registry::PORT));
        let path = path.with_context(|| format!("{image} is not of the registry"))?;
        let name = format!("{HOST}:{PORT}/{path}");
        name.parse().ok().with_context(|| format!("{name} names no image"))
    }

    /// From now on this is wrong for a host, and nothing else; what was counted before is forgotten.
    ///
    /// # Errors
    /// The fault can't be written.
    pub(crate) fn set(&self, host: &Host, fault: Fault) -> Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let number = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        book::write(&self.faults(), host.address(), &book::Page { number, fault })
    }

    /// From now on nothing is wrong for a host; what was held back goes on.
    ///
    /// # Errors
    /// The fault can't be removed.
    pub(crate) fn heal(&self, host: &Host) -> Result<()> {
        cache::remove_file(&self.faults().join(host.address()))
    }

    /// The end of its log as it is now.
    pub(crate) fn mark(&self) -> Mark {
        Mark::end(&self.run.log(SERVER))
    }

    /// What a host has asked for since a mark. One is logged when it is over, and besides when it is held back.
    ///
    /// # Errors
    /// The log can't be read.
    pub(crate) fn requests(&self, host: &Host, since: Mark) -> Result<Vec<Request>> {
        let mut requests: Vec<Request> = log::read(&self.run.log(SERVER), since)?;
        requests.retain(|request| request.from == host.address());
        Ok(requests)
    }

    /// Waits until something of that kind is held back from a host: the bytes of it that went out.
    ///
    /// # Errors
    /// Nothing is, in time.
    pub(crate) async fn held(&self, host: &Host, kind: Kind, since: Mark, limit: Duration) -> Result<u64> {
        wait::until(&format!("a {kind:?} is held back"), limit, async || {
            let requests = self.requests(host, since)?;
            let mut held = requests
                .iter()
                .filter(|request| request.held && request.kind == Some(kind));
            Ok(held.next().map(|request| request.sent))
        })
        .await
    }
}
