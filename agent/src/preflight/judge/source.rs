//! Where the machine's file system and programs come from.

use crate::preflight::{Check, Finding, Remedy, Seen};

/// What came of asking for one source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is there.
    Reachable,
    /// It comes out of an archive that was not opened.
    Packed,
    /// Its server's name can't be resolved.
    Unnamed,
    /// It can't be had, in our words.
    Away(String),
}

/// What came of opening the bundle of offline artifacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offline {
    /// The settings name none.
    NotAsked,
    /// It has all its files.
    Whole,
    /// It is an archive, which is there and was not opened.
    Packed,
    /// It can't be used: why, in our words.
    Unusable(String),
}

/// `offline-artifacts`
#[must_use]
pub fn offline(seen: &Offline) -> Finding {
    const BUNDLE: Remedy = Remedy::new(
        "put a whole bundle for this processor where bootstrap.offlineArtifacts.source says, with a manifest.json at its root and every file that \
         it names, or leave the setting out",
    );
    let check = Check::OfflineArtifacts;
    match seen {
        Offline::NotAsked => check.ok("no offline source is asked for"),
        Offline::Whole => check.ok("the offline bundle has all its files"),
        Offline::Packed => check.ok("the archive of the offline bundle is there; `start` proves and opens it"),
        Offline::Unusable(why) => check.fail(why.clone(), BUNDLE).on("bootstrap.offlineArtifacts.source"),
    }
}

const NETWORK: Remedy = Remedy::new(
    "let this host reach the server, through a mirror or a proxy if it must, and see that the configured version has been released",
);

const BUNDLE_NPD: Remedy = Remedy::new(
    "add the node problem detector's archive to the bundle, and its version to manifest.json as versions.npd, unless the node is to go without",
);

/// The check that a component of the plan belongs to.
fn check_of(component: &str) -> Check {
    match component {
        "kubelet" | "kubectl" | "kube-proxy" => Check::KubernetesArtifacts,
        "containerd" | "runc" | "crictl" => Check::CriArtifacts,
        "cni" => Check::CniArtifacts,
        _ => Check::NpdArtifact,
    }
}

/// `kubernetes-artifacts`, `cri-artifacts`, `cni-artifacts`, `npd-artifact`: each component of the plan, and what came of it.
#[must_use]
pub fn sources(components: &[(&'static str, Seen<Source>)]) -> Vec<Finding> {
    let mut found: Vec<Finding> = components
        .iter()
        .map(|(component, seen)| {
            let check = check_of(component);
            match seen {
                Ok(Source::Reachable) => check.ok("it can be had"),
                Ok(Source::Packed) => check.skip("it comes out of the offline archive, which `start` opens"),
                Ok(Source::Unnamed) => check.skip("its server's name can't be resolved: see the check dns"),
                Ok(Source::Away(why)) => check.fail(format!("it can't be had: {why}"), NETWORK),
                Err(why) => check.fail(format!("it can't be had: {why}"), NETWORK),
            }
            .on(*component)
        })
        .collect();
    let planned = !found.is_empty();
    for check in [
        Check::KubernetesArtifacts,
        Check::CriArtifacts,
        Check::CniArtifacts,
        Check::NpdArtifact,
    ] {
        if found.iter().any(|finding| finding.check == check) {
            continue;
        }
        found.push(match (check, planned) {
            // Every plan has one, but that of a bundle without.
            (Check::NpdArtifact, true) => {
                check.warn("the offline bundle has none, and the node goes without", BUNDLE_NPD)
            }
            (_, _) => check.skip("the plan fetches none"),
        });
    }
    found
}

/// `oci-image`: the machine's file system.
#[must_use]
pub fn oci_image(seen: &Seen<Source>) -> Finding {
    const REGISTRY: Remedy = Remedy::new(
        "see that bootstrap.ociImage names an image that its registry has for this processor, and that this host reaches the registry, with the \
         mirror and the credentials of its registries' settings",
    );
    let check = Check::OciImage;
    match seen {
        Ok(Source::Reachable | Source::Packed) => check.ok("the machine's image can be had"),
        Ok(Source::Unnamed) => check.skip("its registry's name can't be resolved: see the check dns"),
        Ok(Source::Away(why)) => check.fail(format!("the machine's image can't be had: {why}"), REGISTRY),
        Err(why) => check.fail(format!("the machine's image can't be had: {why}"), REGISTRY),
    }
}
