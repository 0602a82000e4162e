//! `cargo harness logs`: what a host or a server of the bed has said.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result, bail};

use crate::bed::Bed;
use crate::host::Host;
use crate::net::HOLDER;
use crate::progress::result;

/// Shows the journal of a host, the log of a server, or what there is to be shown.
///
/// # Errors
/// There is no host and no server of that name, or more is asked of a server than its log.
pub(crate) async fn show(bed: &Bed, of: Option<&str>, args: &[OsString]) -> Result<Option<i32>> {
    let hosts = Host::list(&bed.run);
    let servers = servers(bed)?;
    let Some(of) = of else {
        result(&list(&hosts, &servers))?;
        return Ok(Some(0));
    };
    if servers.iter().any(|server| server == of) {
        if !args.is_empty() {
            bail!(
                "{of} is a server: its log is a file and shown whole; what stands after `--` is for a host's journalctl"
            );
        }
        let log = bed.run.log(of);
        result(&fs::read_to_string(&log).with_context(|| log.display().to_string())?)?;
        return Ok(Some(0));
    }
    let Some(host) = hosts.iter().find(|host| host.name() == of) else {
        let hosts: Vec<&str> = hosts.iter().map(Host::name).collect();
        bail!("{}", nobody(&bed.run.id, of, &hosts, &servers));
    };
    if host.is_on() {
        let line = ["journalctl", "--no-pager", "--merge"].map(OsString::from);
        return host.command(&[&line, args].concat())?.show().await;
    }
    let args: Vec<_> = args.iter().map(|arg| arg.to_string_lossy()).collect();
    let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
    result(&host.journal(&args).await?)?;
    Ok(Some(0))
}

fn list(hosts: &[Host], servers: &[String]) -> String {
    let mut text = String::new();
    for host in hosts {
        let state = if host.is_on() { "on" } else { "off" };
        text.push_str(&format!("{}   host, {}, {state}\n", host.name(), host.address()));
    }
    for server in servers {
        text.push_str(&format!("{server}   server\n"));
    }
    text
}

fn nobody(run: &str, name: &str, hosts: &[&str], servers: &[String]) -> String {
    format!(
        "run {run} has no host or server {name}; hosts: {}; servers: {}",
        hosts.join(", "),
        servers.join(", ")
    )
}

/// The servers that have something to say.
fn servers(bed: &Bed) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(bed.run.dir.join("logs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(
            name.strip_suffix(".log")
                .filter(|name| *name != HOLDER)
                .map(str::to_owned),
        );
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_has_is_answered_with_those_that_there_are() {
        let servers = ["etcd".to_owned(), "registry".to_owned()];
        assert_eq!(
            nobody("bed", "nosuch", &["node1"], &servers),
            "run bed has no host or server nosuch; hosts: node1; servers: etcd, registry"
        );
    }
}
