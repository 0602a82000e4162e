//! The hosts' resolver: it knows the names of the cloud and nothing else, and asks nobody.

use std::net::SocketAddrV4;

use anyhow::Result;

use super::azure::{self, Azure};
use super::server::{self, Socket};
use crate::net::Net;
use crate::run::Run;

/// Names that all lead to the cloud's first address.
pub(crate) const NAMES: [&str; 10] = [
    super::registry::HOST,
    super::faulty::HOST,
    super::control_plane::NAME,
    "dl.k8s.io",
    "cdn.dl.k8s.io",
    "github.com",
    "objects.githubusercontent.com",
    "release-assets.githubusercontent.com",
    "ghcr.io",
    "mcr.microsoft.com",
];

/// The server's name in the run.
pub(crate) const SERVER: &str = "names";

/// Starts the resolver.
///
/// # Errors
/// dnsmasq does not start or serve.
pub(crate) async fn start(run: &Run, net: &Net) -> Result<()> {
    let address = net.gateway();
    let azure = Azure::address(net);
    let ours = NAMES.into_iter().map(|name| (name, &address));
    let all = ours.chain(azure::NAMES.into_iter().map(|name| (name, &azure)));
    let records = all.map(|(name, address)| format!("--host-record={name},{address}"));
    let command = net
        .command("dnsmasq")
        .args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--pid-file=",
            "--user=root",
            "--group=root",
        ])
        .args([
            "--no-resolv",
            "--no-hosts",
            "--no-poll",
            "--bind-interfaces",
            "--log-facility=-",
            "--log-queries",
        ])
        .args([
            format!("--listen-address={address}"),
            "--except-interface=lo".to_owned(),
            "--address=/#/".to_owned(),
        ])
        .args(records);
    let port = Socket::Udp(SocketAddrV4::new(address.parse()?, 53));
    server::start(run, SERVER, command, async |process| Ok(server::listens(process, port))).await
}
