//! `cargo harness logs`: what a host or a server of the bed has said.

use std::ffi::OsString;
use std::fs;

use anyhow::{Context, Result};

use crate::bed::Bed;
use crate::host::Host;

/// Shows the journal of a host, the log of a server, or what there is to be shown.
///
/// # Errors
/// There is no host and no server of that name.
pub(crate) async fn show(bed: &Bed, of: Option<&str>, args: &[OsString]) -> Result<Option<i32>> {
    let Some(of) = of else {
        for host in Host::list(&bed.run) {
            println!(
                "{}   host, {}, {}",
                host.name(),
                host.address(),
                if host.is_on() { "on" } else { "off" }
            );
        }
        for server in servers(bed)? {
            println!("{server}   server");
        }
        return Ok(Some(0));
    };
    if servers(bed)?.iter().any(|server| server == of) {
        let log = bed.run.log(of);
        print!(
            "{}",
            fs::read_to_string(&log).with_context(|| log.display().to_string())?
        );
        return Ok(Some(0));
    }
    let host = Host::open(&bed.run, of).context("no server has that name either")?;
    if host.is_on() {
        let line: Vec<OsString> = ["journalctl", "--no-pager", "--merge"]
            .iter()
            .map(OsString::from)
            .collect();
        return host.command(&[line, args.to_vec()].concat())?.show().await;
    }
    print!("{}", host.journal(&[]).await?);
    Ok(Some(0))
}

fn servers(bed: &Bed) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(bed.run.dir.join("logs"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".log").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}
