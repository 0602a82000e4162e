//! Starting a server of the cloud and waiting until it serves.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::Command;
use crate::process::{Daemon, Process};
use crate::run::Run;
use crate::wait::{self, Stop};

/// How long a server may take until it serves. kube-apiserver took 10 s on a loaded machine.
const LIMIT: Duration = Duration::from_secs(90);

/// Starts a server unless it runs, and waits until `ready` holds.
///
/// # Errors
/// It can't be started, ends, or isn't ready in time: with the end of its log.
pub(crate) async fn start(
    run: &Run,
    name: &str,
    command: Command,
    ready: impl AsyncFn(Process) -> Result<bool>,
) -> Result<()> {
    let process = match Daemon::find(run, name) {
        Some(daemon) => daemon.process,
        None => Daemon::spawn(run, name, command)?.process,
    };
    let what = format!("{name} serves");
    let wait = wait::until_true(&what, LIMIT, async || {
        if !process.alive() {
            return Err(Stop(format!("{name} ended")).into());
        }
        ready(process).await
    });
    wait.await
        .with_context(|| format!("{}:\n{}", run.log(name).display(), end_of_log(run, name)))
}

fn end_of_log(run: &Run, name: &str) -> String {
    let text = std::fs::read(run.log(name)).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}

/// What a process may listen on.
#[derive(Clone, Copy)]
pub(crate) enum Socket {
    /// A TCP port.
    Tcp(SocketAddrV4),
    /// A UDP port.
    Udp(SocketAddrV4),
}

/// Whether somebody listens there, in the network of that process.
pub(crate) fn listens(process: Process, socket: Socket) -> bool {
    let (table, address, state) = match socket {
        Socket::Tcp(address) => ("tcp", address, "0A"),
        Socket::Udp(address) => ("udp", address, "07"),
    };
    let table = std::fs::read_to_string(format!("/proc/{}/net/{table}", process.pid)).unwrap_or_default();
    holds(&table, address, state)
}

/// Source: proc_pid_net(5): `sl local_address rem_address st …`, the address as the machine's own u32, in hex.
fn holds(table: &str, address: SocketAddrV4, state: &str) -> bool {
    let wanted = |ip: Ipv4Addr| format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port());
    let wanted = [wanted(*address.ip()), wanted(Ipv4Addr::UNSPECIFIED)];
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let local = words.next().unwrap_or_default();
        wanted.iter().any(|wanted| wanted == local) && words.nth(1) == Some(state)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listening_socket_is_seen_by_address_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue\n   0: 0103580A:1388 00000000:0000 0A 00000000:00000000\n\
                     \x20  1: 0100007F:094B 00000000:0000 01 00000000:00000000\n";
        let at = |ip: [u8; 4], port| SocketAddrV4::new(ip.into(), port);
        assert!(holds(table, at([10, 88, 3, 1], 5000), "0A"));
        assert!(!holds(table, at([10, 88, 3, 1], 5001), "0A"));
        assert!(
            !holds(table, at([127, 0, 0, 1], 2379), "0A"),
            "an established connection listens on nothing"
        );
    }
}
