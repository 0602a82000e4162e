//! From inputs to the configuration's bytes.

use serde_json::{Map, Value, json};

use super::{
    Error, INSTALLED_AGENT, Inputs, Key,
    fetched::{IDENTITIES, fetch, telling},
};
use crate::{config, model::Mode};

/// Files of the host that the inputs name, and that must be root's own.
pub fn protected_files(inputs: &Inputs) -> impl Iterator<Item = (Key, &str)> {
    [
        Key::BaseConfigFile,
        Key::SpClientSecretFile,
        Key::SpClientCertificateFile,
    ]
    .into_iter()
    .filter_map(|key| inputs.value(key).map(|path| (key, path)))
}

/// What the inputs are laid over, lowest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Below<'a> {
    /// The file that the configuration starts from.
    pub base: Option<&'a [u8]>,
    /// What the resource manager says of the pool.
    pub fetched: Option<&'a [u8]>,
}

/// The configuration that the inputs make: overrides, then single inputs, the node's name, the identity, over what lies below.
///
/// # Errors
/// An input that can't work. Whether the configuration can is judged by [`config::parse`].
pub fn render(inputs: &Inputs, below: Below<'_>, mode: Mode, host_name: &str) -> Result<Vec<u8>, Error> {
    judge(inputs, mode)?;
    let base = match below.base {
        None => Map::new(),
        Some(bytes) => object(
            bytes,
            Key::BaseConfigFile,
            "names a file that is no JSON object",
            "write one",
        )?,
    };
    let mut made = laid_over(inputs, base.clone())?;
    if let Some(bytes) = below.fetched {
        let wrong = "was answered with what is no JSON object";
        let told = object(bytes, Key::FetchBootstrapData, wrong, "look at the pool in Azure")?;
        let mut base = base;
        merge(&mut base, telling(told, &made));
        made = laid_over(inputs, base)?;
    }
    name(&mut made, host_name)?;
    if let Some(identity) = identity(inputs)? {
        if let Some(Value::Object(azure)) = made.get_mut("azure") {
            for other in IDENTITIES {
                azure.remove(other);
            }
        }
        merge(&mut made, Map::from_iter([("azure".to_owned(), identity)]));
    }
    let mut bytes = serde_json::to_vec_pretty(&made).map_err(|error| Error::Host {
        what: "write the configuration as JSON",
        source: error.into(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}

fn object(bytes: &[u8], key: Key, wrong: &'static str, write: &'static str) -> Result<Map<String, Value>, Error> {
    serde_json::from_slice(bytes).map_err(|_| Error::mistake(key.name(), wrong, write))
}

/// Overrides and single inputs over what lies below.
fn laid_over(inputs: &Inputs, below: Map<String, Value>) -> Result<Map<String, Value>, Error> {
    let mut made = below;
    for text in inputs.overrides() {
        for part in serde_json::Deserializer::from_str(text).into_iter::<Map<String, Value>>() {
            let part = part.map_err(|_| {
                Error::mistake(
                    Key::ConfigOverrides.name(),
                    "is no JSON object",
                    "write one, or several one after the other",
                )
            })?;
            merge(&mut made, part);
        }
    }
    for (key, section, names) in [
        (Key::ClusterResourceId, "azure", &["targetCluster", "resourceId"][..]),
        (Key::AgentPoolName, "azure", &["targetAgentPoolName"]),
        (Key::BootstrapOciImage, "bootstrap", &["ociImage"]),
        (
            Key::BootstrapOfflineArtifactsSource,
            "bootstrap",
            &["offlineArtifacts", "source"],
        ),
    ] {
        if let Some(text) = inputs.value(key) {
            let value = names
                .iter()
                .rev()
                .fold(json!(text), |value, name| json!({*name: value}));
            merge(&mut made, Map::from_iter([(section.to_owned(), value)]));
        }
    }
    Ok(made)
}

/// Objects are laid over each other key by key; anything else replaces what was there.
fn merge(below: &mut Map<String, Value>, above: Map<String, Value>) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Object(below)), Value::Object(above)) => merge(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

/// Gives the node the host's name, lowercase, where the inputs give it none.
fn name(made: &mut Map<String, Value>, host: &str) -> Result<(), Error> {
    let given = made
        .get("agent")
        .and_then(|agent| agent.get("nodeName"))
        .unwrap_or(&Value::Null);
    let missing = given.is_null() || given.as_str().is_some_and(|name| name.trim().is_empty());
    if !missing {
        return Ok(());
    }
    let host = config::name_of_its_own(host).ok_or(Error::Nameless)?;
    merge(made, Map::from_iter([("agent".to_owned(), json!({"nodeName": host}))]));
    Ok(())
}

/// The Azure identity that `AUTH` chooses: it alone stays.
fn identity(inputs: &Inputs) -> Result<Option<Value>, Error> {
    let needed = |key: Key| {
        inputs
            .value(key)
            .ok_or_else(|| Error::mistake(key.name(), "is missing", "write it, or another AKS_FLEX_NODE_AUTH"))
    };
    Ok(Some(match inputs.value(Key::Auth) {
        None => return Ok(None),
        Some("arc") => json!({"arc": {"enabled": true}}),
        Some("msi") => match inputs.value(Key::MsiClientId) {
            Some(client) => json!({"managedIdentity": {"clientId": client}}),
            None => json!({"managedIdentity": {}}),
        },
        Some("service-principal") => {
            let mut principal = json!({"tenantId": needed(Key::SpTenantId)?, "clientId": needed(Key::SpClientId)?});
            let given = [
                Key::SpClientSecretFile,
                Key::SpClientCertificateFile,
                Key::SpClientSecret,
            ]
            .map(|key| inputs.value(key).map(|value| (key, value)));
            let mut given = given.into_iter().flatten();
            match (given.next(), given.next()) {
                (Some((Key::SpClientSecret, secret)), None) => principal["clientSecret"] = json!(secret),
                (Some((_, file)), None) => principal["clientSecretFile"] = json!(file),
                (None, _) => {
                    needed(Key::SpClientSecretFile)?;
                }
                (Some((key, _)), Some(_)) => {
                    return Err(Error::mistake(
                        key.name(),
                        "stands beside another credential",
                        "write one of them",
                    ));
                }
            }
            json!({"servicePrincipal": principal})
        }
        Some(_) => {
            return Err(Error::mistake(
                Key::Auth.name(),
                "is no way to authenticate",
                "write msi, service-principal or arc",
            ));
        }
    }))
}

/// Inputs that can't work whatever the configuration says.
fn judge(inputs: &Inputs, mode: Mode) -> Result<(), Error> {
    fetch(inputs)?;
    let agent = inputs.value(Key::InstalledAgent);
    if mode == Mode::Container && agent.is_some_and(|path| path != INSTALLED_AGENT) {
        return Err(Error::mistake(
            Key::InstalledAgent.name(),
            "is not the image's agent",
            "write /usr/bin/aks-flex-node, or leave it out",
        ));
    }
    if inputs
        .value(Key::ConfigPath)
        .is_some_and(|path| path != config::PATH.as_str())
    {
        return Err(Error::mistake(
            Key::ConfigPath.name(),
            "is not where the agent's units read the configuration",
            "write /etc/aks-flex-node/config.json, or leave it out",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::chain;

    fn made(text: &str) -> Result<Value, Error> {
        let bytes = render(
            &Inputs::parse(text.as_bytes())?,
            Below::default(),
            Mode::Container,
            "Host-1\n",
        )?;
        Ok(serde_json::from_slice(&bytes).unwrap())
    }

    fn base(bytes: &[u8]) -> Below<'_> {
        Below {
            base: Some(bytes),
            fetched: None,
        }
    }

    #[test]
    fn each_layer_lies_over_the_one_before() {
        let env = r#"
AKS_FLEX_NODE_CONFIG_OVERRIDES='{"azure": {"a": 1, "targetAgentPoolName": "x"}, "list": [1, 2]}
{"azure": {"b": null}, "list": [3]}'
AKS_FLEX_NODE_AGENT_POOL_NAME=pool
AKS_FLEX_NODE_CLUSTER_RESOURCE_ID=/id
AKS_FLEX_NODE_BOOTSTRAP_OCI_IMAGE=image
"#;
        let inputs = Inputs::parse(env.as_bytes()).unwrap();
        let inputs = inputs.with([(Key::ConfigOverrides, r#"{"node": {"maxPods": 7}}"#.to_owned())]);
        let below = base(br#"{"node": {"maxPods": 5, "kept": true}, "agent": {"nodeName": ""}}"#);
        let bytes = render(&inputs, below, Mode::Container, "Host-1\n").unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&bytes).unwrap(),
            json!({
                "node": {"maxPods": 7, "kept": true},
                "agent": {"nodeName": "host-1"},
                "azure": {"a": 1, "targetAgentPoolName": "pool", "b": null, "targetCluster": {"resourceId": "/id"}},
                "list": [3],
                "bootstrap": {"ociImage": "image"},
            })
        );
        assert_eq!(
            render(&inputs, below, Mode::Container, "Host-1").unwrap(),
            bytes,
            "the same inputs, the same bytes"
        );
    }

    #[test]
    fn the_chosen_identity_is_the_only_one() {
        let overrides = r#"AKS_FLEX_NODE_CONFIG_OVERRIDES='{"azure": {"managedIdentity": {"clientId": "old"}, "arc": {"enabled": true}, "bootstrapToken": {}}}'"#;
        for (auth, identity) in [
            ("AUTH=arc", json!({"bootstrapToken": {}, "arc": {"enabled": true}})),
            ("AUTH=msi", json!({"bootstrapToken": {}, "managedIdentity": {}})),
            (
                "AUTH=msi\nAKS_FLEX_NODE_MSI_CLIENT_ID=new",
                json!({"bootstrapToken": {}, "managedIdentity": {"clientId": "new"}}),
            ),
            (
                "AUTH=service-principal\nAKS_FLEX_NODE_SP_TENANT_ID=t\nAKS_FLEX_NODE_SP_CLIENT_ID=c\nAKS_FLEX_NODE_SP_CLIENT_SECRET_FILE=/s",
                json!({"bootstrapToken": {}, "servicePrincipal": {"tenantId": "t", "clientId": "c", "clientSecretFile": "/s"}}),
            ),
        ] {
            assert_eq!(
                made(&format!("{overrides}\nAKS_FLEX_NODE_{auth}\n")).unwrap()["azure"],
                identity,
                "{auth}"
            );
        }
    }

    #[test]
    fn an_input_that_cannot_work_is_named_and_never_shown() {
        for (text, message) in [
            (
                "AUTH=canary",
                "AKS_FLEX_NODE_AUTH is no way to authenticate: write msi, service-principal or arc",
            ),
            (
                "AUTH=service-principal",
                "AKS_FLEX_NODE_SP_TENANT_ID is missing: write it, or another AKS_FLEX_NODE_AUTH",
            ),
            (
                "AUTH=service-principal\nAKS_FLEX_NODE_SP_TENANT_ID=t\nAKS_FLEX_NODE_SP_CLIENT_ID=c",
                "AKS_FLEX_NODE_SP_CLIENT_SECRET_FILE is missing: write it, or another AKS_FLEX_NODE_AUTH",
            ),
            (
                "AUTH=service-principal\nAKS_FLEX_NODE_SP_TENANT_ID=t\nAKS_FLEX_NODE_SP_CLIENT_ID=c\nAKS_FLEX_NODE_SP_CLIENT_SECRET=canary\nAKS_FLEX_NODE_SP_CLIENT_SECRET_FILE=/canary",
                "AKS_FLEX_NODE_SP_CLIENT_SECRET_FILE stands beside another credential: write one of them",
            ),
            (
                "CONFIG_OVERRIDES={canary",
                "AKS_FLEX_NODE_CONFIG_OVERRIDES is no JSON object: write one, or several one after the other",
            ),
            (
                "CONFIG_OVERRIDES='[\"canary\"]'",
                "AKS_FLEX_NODE_CONFIG_OVERRIDES is no JSON object: write one, or several one after the other",
            ),
            (
                "FETCH_BOOTSTRAP_DATA=canary",
                "AKS_FLEX_NODE_FETCH_BOOTSTRAP_DATA is no yes or no: write true or false",
            ),
            (
                "INSTALLED_AGENT=/canary",
                "AKS_FLEX_NODE_INSTALLED_AGENT is not the image's agent: write /usr/bin/aks-flex-node, or leave it out",
            ),
            (
                "CONFIG_PATH=/canary",
                "AKS_FLEX_NODE_CONFIG_PATH is not where the agent's units read the configuration: write /etc/aks-flex-node/config.json, or leave it out",
            ),
        ] {
            let error = made(&format!("AKS_FLEX_NODE_{text}\n")).unwrap_err();
            assert_eq!(chain(&error), format!("the input can't work: {message}"));
            assert!(!error.may_pass() && !format!("{error:?}").contains("canary"), "{text}");
        }
    }

    #[test]
    fn a_host_without_a_name_may_get_one() {
        let inputs = Inputs::default();
        let error = render(&inputs, base(b"{}"), Mode::Container, "localhost\n").unwrap_err();
        assert!(matches!(error, Error::Nameless) && error.may_pass());
        assert!(
            render(
                &inputs,
                base(br#"{"agent": {"nodeName": "a"}}"#),
                Mode::Container,
                "localhost"
            )
            .is_ok()
        );
        let error = render(&inputs, base(b"[\"canary\"]"), Mode::Container, "h").unwrap_err();
        assert!(
            chain(&error).ends_with("AKS_FLEX_NODE_BASE_CONFIG_FILE names a file that is no JSON object: write one")
        );
    }
}
