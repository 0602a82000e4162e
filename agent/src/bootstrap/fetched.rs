//! What the resource manager says of a pool, as a layer of the configuration: whether it is asked, and what of it counts.

use serde_json::{Map, Value};

use super::{Error, Inputs, Key};
use crate::config;

/// Whether the resource manager is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetch {
    /// It is.
    Yes,
    /// It is not.
    No,
}

/// Stands for what the resource manager will say, where it can't be asked, or not yet: as much as makes a configuration complete.
pub const SOME_DATA: &[u8] =
    br#"{"azure": {"bootstrapToken": {"token": "000000.0000000000000000"}}, "components": {"kubernetes": "1.0.0"},
"node": {"kubelet": {"clusterFQDN": "later.invalid", "caCertData": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="}}}"#;

/// Whether the inputs have the resource manager asked.
///
/// # Errors
/// They are no yes or no.
pub fn fetch(inputs: &Inputs) -> Result<Fetch, Error> {
    match inputs.value(Key::FetchBootstrapData) {
        None | Some("false" | "0" | "no") => Ok(Fetch::No),
        Some("true" | "1" | "yes") => Ok(Fetch::Yes),
        Some(_) => Err(Error::mistake(
            Key::FetchBootstrapData.name(),
            "is no yes or no",
            "write true or false",
        )),
    }
}

/// Whether there is somebody to ask the resource manager as.
///
/// # Errors
/// There is nobody.
pub fn identified(settings: &config::Settings) -> Result<(), Error> {
    match settings.auth().identity() {
        Some(_) => Ok(()),
        None => Err(Error::mistake(
            Key::FetchBootstrapData.name(),
            "has no Azure identity to ask with",
            "write AKS_FLEX_NODE_AUTH as msi, service-principal or arc, or false",
        )),
    }
}

/// The keys of identities: who the host is, is the operator's to say.
pub(super) const IDENTITIES: [&str; 3] = ["servicePrincipal", "managedIdentity", "arc"];

/// Of what the resource manager tells: what is given at all, no identity, and no version that an offline bundle names.
pub(super) fn telling(told: Map<String, Value>, made: &Map<String, Value>) -> Map<String, Value> {
    let Value::Object(mut told) = given(Value::Object(told)) else {
        return Map::new();
    };
    let mut forget = |section: &str, keys: &[&str]| {
        if let Some(Value::Object(section)) = told.get_mut(section) {
            for key in keys {
                section.remove(*key);
            }
        }
    };
    forget("azure", &IDENTITIES);
    let source = made
        .get("bootstrap")
        .and_then(|bootstrap| bootstrap.pointer("/offlineArtifacts/source"));
    if source
        .and_then(Value::as_str)
        .is_some_and(|source| !source.trim().is_empty())
    {
        forget("components", &["containerd", "runc"]);
        forget("networking", &["cniVersion"]);
    }
    told
}

/// Without empty texts and nulls, which stand for "not given", and would take the place of what is.
fn given(value: Value) -> Value {
    match value {
        Value::Object(all) => {
            let all = all.into_iter().filter(|(_, value)| !value.is_null() && value != "");
            Value::Object(all.map(|(key, value)| (key, given(value))).collect())
        }
        value @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::bootstrap::{Below, render};
    use crate::model::Mode;

    #[test]
    fn what_azure_says_lies_over_the_base_and_below_what_the_operator_says() {
        let base = br#"{"azure": {"bootstrapToken": {"token": "old"}, "servicePrincipal": {"tenantId": "t"}},
            "components": {"kubernetes": "old", "runc": "1.2.3"}, "networking": {"dnsServiceIP": "10.0.0.9"}}"#;
        let told = br#"{"azure": {"bootstrapToken": {"token": "fresh"}, "managedIdentity": {}, "arc": {"enabled": true}},
            "components": {"kubernetes": "1.35.6", "containerd": "2.1.8", "runc": ""},
            "networking": {"dnsServiceIP": null, "cniVersion": "1.5.1"}, "node": {"maxPods": 30, "labels": {"a": "b"}}}"#;
        let below = Below {
            base: Some(base),
            fetched: Some(told),
        };
        let made = |env: &str| -> Value {
            let inputs = Inputs::parse(env.as_bytes()).unwrap();
            let bytes = render(&inputs, below, Mode::Container, "Host-1\n").unwrap();
            serde_json::from_slice(&bytes).unwrap()
        };
        let env = "AKS_FLEX_NODE_CONFIG_OVERRIDES='{\"node\": {\"maxPods\": 7}}'\nAKS_FLEX_NODE_AGENT_POOL_NAME=pool\n";
        assert_eq!(
            made(env),
            json!({
                "azure": {
                    "bootstrapToken": {"token": "fresh"}, "servicePrincipal": {"tenantId": "t"}, "targetAgentPoolName": "pool",
                },
                "components": {"kubernetes": "1.35.6", "runc": "1.2.3", "containerd": "2.1.8"},
                "networking": {"dnsServiceIP": "10.0.0.9", "cniVersion": "1.5.1"},
                "node": {"maxPods": 7, "labels": {"a": "b"}},
                "agent": {"nodeName": "host-1"},
            })
        );
        let offline = made("AKS_FLEX_NODE_BOOTSTRAP_OFFLINE_ARTIFACTS_SOURCE=/opt/b\n");
        assert_eq!(offline["components"], json!({"kubernetes": "1.35.6", "runc": "1.2.3"}));
        assert_eq!(offline["networking"], json!({"dnsServiceIP": "10.0.0.9"}));
        let inputs = Inputs::parse(b"AKS_FLEX_NODE_FETCH_BOOTSTRAP_DATA=true\nAKS_FLEX_NODE_AUTH=msi\n").unwrap();
        assert_eq!(fetch(&inputs).unwrap(), Fetch::Yes);
        assert_eq!(fetch(&Inputs::default()).unwrap(), Fetch::No);
    }
}
