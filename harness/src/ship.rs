//! `cargo harness image`: the agent's image for people, written and pushed as they ask, also into a bed that stands.

use std::path::PathBuf;

use anyhow::{Context, Result};
use image::{ImageRef, Repository};

use crate::agent_image::{self, Built, PROFILE, Profile, REPOSITORY, Variant};
use crate::bed::Bed;
use crate::cache::Cache;
use crate::cloud::cluster::upgrade_to;
use crate::deps;
use crate::given;
use crate::host::Host;
use crate::product;
use crate::progress::{note, result, say, step};
use crate::run;

/// What `cargo harness image` is asked for.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to write it: a folder for the OCI layout, or a file whose name ends in `.tar` for an archive.
    #[arg(long, value_name = "DIR|FILE.tar", value_parser = given::output)]
    output: Option<PathBuf>,
    /// Where to push it by digest.
    #[arg(long, value_name = "REGISTRY/REPOSITORY")]
    push: Option<String>,
    /// Push it into the registry of that run, and say how to upgrade a host to it.
    #[arg(long, value_parser = run::plain, conflicts_with = "push")]
    run: Option<String>,
    /// A new folder for the image's files, for `image/Containerfile`.
    #[arg(long, value_name = "DIR", value_parser = given::new_folder)]
    rootfs: Option<PathBuf>,
    /// Which image: the agent's own, or one that a host must survive.
    #[arg(long, value_enum, default_value_t)]
    variant: Variant,
    /// The Cargo profile of what is in it.
    #[arg(long, value_enum, default_value_t, env = PROFILE)]
    profile: Profile,
}

/// Builds the image, writes and pushes it as asked, and prints its reference.
///
/// # Errors
/// What the build, the disk or the registry answered.
pub(crate) async fn ship(options: Options) -> Result<()> {
    // Before the build, which takes minutes. The text may hold a password: it is not repeated.
    let to = options.push.as_deref().map(str::parse::<Repository>);
    let to = to.transpose().context("--push")?;
    let bed = match &options.run {
        Some(run) => {
            deps::root()?;
            Some(Bed::open(&Cache::open()?, run)?)
        }
        None => None,
    };
    let built = agent_image::build(options.profile, options.variant).await?;
    note(&format!("{} bytes compressed", built.size()));
    if let Some(path) = &options.output {
        if given::is_archive(path) {
            built.write_archive(path)?;
        } else {
            built.write_folder(path)?;
        }
    }
    if let Some(folder) = &options.rootfs {
        built.write_rootfs(folder)?;
    }
    let image = match (&to, &bed) {
        (Some(to), _) => step(&format!("push to {to}"), built.push(to)).await?,
        (None, Some(bed)) => {
            let name = format!("push into the registry of {}", bed.run.id);
            let image = step(&name, into(bed, &built, options.variant)).await?;
            if let Some(host) = Host::list(&bed.run).first() {
                say(format_args!("{}", ask(&bed.run.id, host.name(), &image)));
            }
            image
        }
        (None, None) => REPOSITORY.parse::<Repository>()?.at(built.digest.clone()),
    };
    Ok(result(&format!("{image}\n"))?)
}

/// Pushes it to where the agents of that bed lie.
async fn into(bed: &Bed, built: &Built, variant: Variant) -> Result<ImageRef> {
    let folder = tempfile::tempdir()?;
    let layout = folder.path().join("layout");
    built.write_folder(&layout)?;
    product::push(&bed.cloud()?, &layout, &variant.to_string()).await
}

/// How to ask a host of a bed for an upgrade, ready to be pasted.
fn ask(run: &str, host: &str, image: &ImageRef) -> String {
    let [(url, from), (sha256, digest)] = upgrade_to(image);
    format!(
        "\nTo upgrade {host} to it:\n\n\
         cargo harness kubectl --run {run} -- create -f - <<END\n\
         apiVersion: unbounded-cloud.io/v1alpha3\n\
         kind: MachineOperation\n\
         metadata: {{generateName: agent-upgrade-}}\n\
         spec:\n  machineRef: {host}\n  operationKind: AgentUpgrade\n  \
         parameters: {{{url}: \"{from}\", {sha256}: \"{digest}\"}}\n\
         END\n\
         cargo harness kubectl --run {run} -- get machineoperations --watch\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_an_upgrade_can_be_pasted() {
        let hex = "ab".repeat(32);
        let image = format!("registry.test:5000/a/b@sha256:{hex}").parse().unwrap();
        let said = ask("bed", "node1", &image);
        let yaml = said.split_once("<<END\n").unwrap().1.split_once("\nEND\n").unwrap().0;
        assert_eq!(
            yaml.lines().last().unwrap(),
            format!(r#"  parameters: {{downloadURL: "oci://registry.test:5000/a/b", sha256: "{hex}"}}"#)
        );
        assert!(
            yaml.lines().all(|line| line.starts_with("  ") || line.contains(':')),
            "{yaml}"
        );
    }
}
