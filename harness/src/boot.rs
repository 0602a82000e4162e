//! `cargo harness boot`: one more host in a bed that stands, made as the bed's own, from inputs laid over those, or from an Ignition config.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::bed::Bed;
use crate::cache::Cache;
use crate::cli;
use crate::cloud::Cloud;
use crate::host::{Host, Options};
use crate::node::Joining;
use crate::process::interrupted;
use crate::product::Product;
use crate::progress::{result, step};

/// What Debian's Ignition takes.
const SPECS: [&str; 4] = ["3.0.0", "3.1.0", "3.2.0", "3.3.0"];

/// What the host is made from.
enum From {
    /// The inputs of the bed's own host, with these files over them, by name.
    Inputs(Vec<(String, String)>),
    /// An Ignition config, taken as it is.
    Ignition(String),
}

impl From {
    fn of(options: &cli::Boot) -> Result<Self> {
        if let Some(path) = &options.ignition {
            return ignition(path).map(Self::Ignition);
        }
        let mut files = Vec::new();
        if let Some(folder) = &options.inputs {
            texts(folder, "", &mut files).with_context(|| format!("--inputs {}", folder.display()))?;
        }
        Ok(Self::Inputs(files))
    }
}

/// Boots the host and says how to look at it.
///
/// # Errors
/// What was given is no such thing, or the host does not boot: it stays then, to be looked at.
pub(crate) async fn boot(options: &cli::Boot) -> Result<()> {
    let from = From::of(options)?;
    let bed = Bed::open(&Cache::open()?, &options.bed.run)?;
    let (run, name) = (&bed.run.id, &options.host);
    let cloud = bed.cloud()?;
    if bed.run.host_dir(name).exists() {
        bail!("there is a host {name} in run {run} already: `cargo harness down --run {run} --host {name}` removes it");
    }
    let booted = tokio::select! {
        booted = booted(&bed, &cloud, name, from) => booted,
        signal = interrupted() => Err(signal),
    };
    match booted {
        Ok(host) => Ok(result(&guide(run, &host))?),
        Err(error) if bed.run.host_dir(name).exists() => Err(error.context(format!(
            "host {name} stays to be looked at: `cargo harness down --run {run} --host {name}` removes it"
        ))),
        Err(error) => Err(error),
    }
}

async fn booted(bed: &Bed, cloud: &Cloud, name: &str, from: From) -> Result<Host> {
    let make = async {
        match from {
            From::Ignition(config) => {
                let options = Options {
                    ignition: Some(config),
                    binds: cloud.binds(),
                    ..Options::default()
                };
                Host::create(&bed.run, name, options).await
            }
            From::Inputs(files) => {
                let product = Product::open(&bed.run.cloud_dir().join("agent"))?;
                let mut joining = Joining::of(cloud, &product, name).await?;
                joining.inputs = files;
                joining.create(&bed.run, &product).await
            }
        }
    };
    let host = step("host", make).await?;
    step("Ignition and boot", async {
        host.start().await?;
        host.wait_booted().await
    })
    .await?;
    Ok(host)
}

fn guide(run: &str, host: &Host) -> String {
    let name = host.name();
    format!(
        "\nHost {name} ({}) has booted. What it was given to do, such as its join, goes on by itself:\n\
         \n  cargo harness logs --run {run} {name} -- --unit 'aks-flex-node-*' --follow\n  \
         cargo harness kubectl --run {run} -- get nodes --watch\n  \
         cargo harness exec --run {run} {name} -- systemctl status\n  \
         cargo harness down --run {run} --host {name}      removes it\n",
        host.address()
    )
}

/// An Ignition config of a version that the bed's hosts take.
fn ignition(path: &Path) -> Result<String> {
    let name = || format!("--ignition {}", path.display());
    let text = fs::read_to_string(path).with_context(name)?;
    let config: Value = serde_json::from_str(&text).with_context(|| {
        format!(
            "{}: an Ignition config is JSON; Butane makes it of a `.bu` file",
            name()
        )
    })?;
    let version = config["ignition"]["version"].as_str().unwrap_or_default();
    ensure!(
        SPECS.contains(&version),
        "{}: its ignition.version is {version:?}; the bed's hosts take {} (`aks-flex-node ignition --spec 3.3.0`)",
        name(),
        SPECS.join(", ")
    );
    Ok(text)
}

/// The files of a folder, all of them text, by their names in it.
fn texts(folder: &Path, below: &str, into: &mut Vec<(String, String)>) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = format!("{below}{}", entry.file_name().to_string_lossy());
        if path.is_dir() {
            texts(&path, &format!("{name}/"), into)?;
        } else {
            let text = fs::read_to_string(&path).with_context(|| name.clone())?;
            into.push((name, text));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ignition_config_is_judged_by_its_version_and_named_by_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("host.ign");
        let judged = |text: &str| {
            fs::write(&path, text).unwrap();
            ignition(&path).map_err(|error| format!("{error:#}"))
        };
        assert!(judged(r#"{"ignition": {"version": "3.3.0"}}"#).is_ok());
        let later = judged(r#"{"ignition": {"version": "3.4.0"}}"#).unwrap_err();
        assert!(
            later.contains("host.ign: its ignition.version is \"3.4.0\"; the bed's hosts take 3.0.0, "),
            "{later}"
        );
        assert!(judged("variant: flatcar").unwrap_err().contains("Butane makes it"));
        let gone = ignition(&folder.path().join("gone")).unwrap_err();
        assert!(format!("{gone:#}").contains("gone: No such file"), "{gone:#}");
    }

    #[test]
    fn inputs_are_named_as_in_their_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("secrets")).unwrap();
        fs::write(folder.path().join("secrets/key"), "k").unwrap();
        fs::write(folder.path().join("mine.bu"), "b").unwrap();
        let mut files = Vec::new();
        texts(folder.path(), "", &mut files).unwrap();
        let named = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        assert_eq!(files, [named("mine.bu", "b"), named("secrets/key", "k")]);
    }
}
