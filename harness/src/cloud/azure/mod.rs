//! The Azure of a run: what gives a host's accounts their tokens, and what the API server asks about them.
//!
//!     check ─set─▶ pages/ADDRESS: a host's identities, and what goes wrong ─read for each request─▶ server
//!     host ──▶ metadata service (169.254.169.254:80)   Entra ID, resource manager (their own names, TLS)
//!     API server ──▶ review of tokens: as AKS has its own authenticate by a webhook
//!
//! It answers as the real ones do, as far as agents ask, and knows no account but those that a check gave a host. Tokens are known as
//! long as it runs.

mod entra;
mod manager;
mod metadata;
mod page;
mod request;
mod review;
mod serve;
mod tokens;

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::server::{self, Socket};
use crate::ca::Ca;
use crate::cache;
use crate::cloud::log::{self, Mark};
use crate::host::Host;
use crate::net::{BRIDGE, Net};
use crate::run::Run;

pub(crate) use page::{How, Page, Principal, Who};
pub(crate) use request::Request;
pub(crate) use serve::serve;
pub(crate) use tokens::object_id;

/// The server's name in the run, and the verb that it is.
pub(crate) const SERVER: &str = "azure";
/// The names of its own that it goes by.
pub(crate) const NAMES: [&str; 2] = [ENTRA, MANAGER];
const ENTRA: &str = "login.microsoftonline.com";
const MANAGER: &str = "management.azure.com";
/// Source: Azure Instance Metadata Service.
const METADATA: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(169, 254, 169, 254), 80);
/// Where the API server asks.
const REVIEW: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8453);

/// By which the API server finds who reviews tokens.
pub(crate) fn webhook() -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "azure", "cluster": { "server": format!("http://{REVIEW}/review") } }],
        "users": [{ "name": "azure", "user": {} }],
        "contexts": [{ "name": "azure", "context": { "cluster": "azure", "user": "azure" } }],
        "current-context": "azure",
    })
    .to_string()
}

/// The Azure of a run, which may run or not.
#[derive(Clone, Debug)]
pub(crate) struct Azure {
    run: Run,
    net: Net,
}

impl Azure {
    /// The Azure of a run.
    pub(crate) fn of(run: &Run, net: &Net) -> Self {
        Self {
            run: run.clone(),
            net: net.clone(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.run.cloud_dir().join("azure")
    }

    fn pages(&self) -> PathBuf {
        self.folder().join("pages")
    }

    /// Where its names lead.
    pub(crate) fn address(net: &Net) -> String {
        net.address(2)
    }

    /// Makes its folder, certificate and addresses.
    ///
    /// # Errors
    /// A file can't be written, or an address is taken.
    pub(crate) async fn prepare(&self, ca: &Ca) -> Result<()> {
        cache::private_dir(&self.folder())?;
        cache::private_dir(&self.pages())?;
        let names: Vec<String> = NAMES.iter().map(|name| format!("DNS:{name}")).collect();
        ca.issue(&self.folder(), "tls", &names).await?;
        for address in [
            format!("{}/24", Self::address(&self.net)),
            format!("{}/32", METADATA.ip()),
        ] {
            self.net.ip(&format!("addr add {address} dev {BRIDGE}")).await?;
        }
        Ok(())
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
        server::start(&self.run, SERVER, command, async |process| {
            Ok(server::listens(process, Socket::Tcp(REVIEW)))
        })
        .await
    }

    /// From now on these are a host's accounts, and this goes wrong for it; what was counted before is forgotten.
    ///
    /// # Errors
    /// The page can't be written.
    pub(crate) fn set(&self, host: &Host, page: &Page) -> Result<()> {
        page::write(&self.pages(), host.address(), page)
    }

    /// From now on a host has no account, and nothing goes wrong for it.
    ///
    /// # Errors
    /// The page can't be removed.
    pub(crate) fn forget(&self, host: &Host) -> Result<()> {
        cache::remove_file(&self.pages().join(host.address()))
    }

    /// The end of its log as it is now.
    pub(crate) fn mark(&self) -> Mark {
        Mark::end(&self.run.log(SERVER))
    }

    /// What a host has asked for since a mark.
    ///
    /// # Errors
    /// The log can't be read.
    pub(crate) fn requests(&self, host: &Host, since: Mark) -> Result<Vec<Request>> {
        let mut requests: Vec<Request> = log::read(&self.run.log(SERVER), since)?;
        requests.retain(|request| request.from == host.address());
        Ok(requests)
    }
}
