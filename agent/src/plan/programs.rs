//! What is installed in a machine: versions, and whether they come from their publishers or out of a bundle.

use super::Unfit;
use crate::{
    config::{Mistake, Settings},
    offline::{Bundle, Manifest},
};

/// Versions, each without a leading `v`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// kubelet, kubectl, kube-proxy.
    pub kubernetes: String,
    /// crictl, which follows Kubernetes.
    pub crictl: String,
    /// containerd.
    pub containerd: String,
    /// runc.
    pub runc: String,
    /// CNI plugins.
    pub cni: String,
    /// The node problem detector; none: the bundle has none, and the node goes without.
    pub npd: Option<String>,
}

impl Versions {
    /// What is installed where the settings name none. Source: node-agent specification, 5.4.2.
    const CONTAINERD: &str = "2.1.8";
    const RUNC: &str = "1.1.12";
    const CNI: &str = "1.5.1";
    const NPD: &str = "1.35.1";

    /// Those that the settings name, and otherwise the usual ones.
    fn of(settings: &Settings) -> Result<Self, Mistake> {
        let kubernetes = kubernetes(settings)?;
        let crictl = minor_release(kubernetes)
            .ok_or_else(|| Mistake::new(KUBERNETES, "is no version of Kubernetes", "write MAJOR.MINOR.PATCH"))?;
        let or = |version: Option<&str>, default: &str| version.unwrap_or(default).to_owned();
        Ok(Self {
            kubernetes: kubernetes.to_owned(),
            crictl,
            containerd: or(settings.containerd(), Self::CONTAINERD),
            runc: or(settings.runc(), Self::RUNC),
            cni: or(settings.cni(), Self::CNI),
            npd: Some(or(settings.npd(), Self::NPD)),
        })
    }

    /// Those of a bundle, which the settings may name too, but not contradict.
    fn bundled(settings: &Settings, manifest: &Manifest) -> Result<Self, Mistake> {
        let same = |given: Option<&str>, bundled: &str| given.is_none_or(|given| given == bundled);
        let npd = manifest.npd.as_deref();
        for (key, same) in [
            (KUBERNETES, same(Some(kubernetes(settings)?), &manifest.kubernetes)),
            (
                "components.containerd",
                same(settings.containerd(), &manifest.containerd),
            ),
            ("components.runc", same(settings.runc(), &manifest.runc)),
            ("networking.cniVersion", same(settings.cni(), &manifest.cni)),
            ("npd.version", npd.is_none_or(|bundled| same(settings.npd(), bundled))),
        ] {
            if !same {
                let wrong = "is another version than the offline bundle has";
                return Err(Mistake::new(
                    key,
                    wrong,
                    "write the bundle's version, or name another bundle",
                ));
            }
        }
        Ok(Self {
            kubernetes: manifest.kubernetes.clone(),
            crictl: manifest.crictl.clone(),
            containerd: manifest.containerd.clone(),
            runc: manifest.runc.clone(),
            cni: manifest.cni.clone(),
            npd: manifest.npd.clone(),
        })
    }
}

const KUBERNETES: &str = "components.kubernetes";

fn kubernetes(settings: &Settings) -> Result<&str, Mistake> {
    let write = "write the version of the cluster, such as 1.34.0";
    settings
        .kubernetes()
        .ok_or_else(|| Mistake::new(KUBERNETES, "is missing", write))
}

/// What is installed in a machine, and where it comes from.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The versions.
    pub versions: Versions,
    /// None: each from its publisher.
    pub bundle: Option<Bundle>,
}

impl Programs {
    /// What the settings ask for, out of a bundle if they name one.
    ///
    /// # Errors
    /// The settings name no version, or another one than the bundle has.
    pub fn of(settings: &Settings, bundle: Option<Bundle>) -> Result<Self, Unfit> {
        let versions = match &bundle {
            None => Versions::of(settings),
            Some(bundle) => Versions::bundled(settings, &bundle.manifest),
        };
        Ok(Self {
            versions: versions.map_err(Unfit::Setting)?,
            bundle,
        })
    }
}

/// `MAJOR.MINOR.0`: how crictl numbers the releases that go with a Kubernetes version.
fn minor_release(version: &str) -> Option<String> {
    let mut parts = version.split('.');
    let mut number = || {
        parts
            .next()
            .filter(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let (major, minor) = (number()?, number()?);
    parts.next()?;
    Some(format!("{major}.{minor}.0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crictl_follows_kubernetes() {
        for (version, crictl) in [
            ("1.34.2", Some("1.34.0")),
            ("1.20.2-rc.1", Some("1.20.0")),
            ("1.34", None),
            ("1.x.2", None),
            ("1..2", None),
        ] {
            assert_eq!(minor_release(version).as_deref(), crictl, "{version}");
        }
    }
}
