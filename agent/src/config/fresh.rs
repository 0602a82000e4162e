//! Settings with what the resource manager says now: a token, and perhaps a CA. Source: node-agent specification, 7.7.

use serde::Deserialize;

use super::{
    Mistake, Settings,
    auth::{self, BootstrapToken},
    value,
};
use crate::model::Secret;

/// As much of a pool's bootstrap data as a node that is made anew takes over. The rest is the goal's to say.
#[derive(Deserialize)]
struct Data {
    azure: Azure,
    #[serde(default)]
    node: Node,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Azure {
    bootstrap_token: Token,
}

#[derive(Deserialize)]
struct Token {
    token: Secret<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Node {
    kubelet: Kubelet,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Kubelet {
    ca_cert_data: Option<String>,
}

impl Settings {
    /// The same, with the token and, where it has one, the CA of a pool's bootstrap data.
    ///
    /// # Errors
    /// The data has no token, or a CA that is none.
    pub fn refreshed(&self, data: &[u8]) -> Result<Self, Mistake> {
        let data: Data = serde_json::from_slice(data)
            .map_err(|_| Mistake::new(auth::TOKEN, "is missing", "look at the pool's bootstrap data"))?;
        let token = BootstrapToken::parse(data.azure.bootstrap_token.token.reveal().trim())?;
        let authority = value::certificate_authority(data.node.kubelet.ca_cert_data.as_deref().unwrap_or_default())?;
        let mut fresh = self.clone();
        fresh.auth.renew(token);
        if authority.is_some() {
            fresh.kubelet.certificate_authority = authority;
        }
        Ok(fresh)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::sample;

    #[test]
    fn a_fresh_token_and_ca_take_the_place_of_the_old_and_nothing_else_changes() {
        let old = sample();
        let data = |node| json!({"azure": {"bootstrapToken": {"token": "fresh1.0123456789abcdef"}}, "node": node});
        let fresh = |node| old.refreshed(data(node).to_string().as_bytes());
        let same = fresh(json!({"maxPods": 3})).unwrap();
        assert_eq!(same.auth().token().unwrap().reveal(), "fresh1.0123456789abcdef");
        assert_eq!(same.certificate_authority(), old.certificate_authority());
        assert_eq!(same.max_pods(), old.max_pods());
        let pem = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCm5ldwo=";
        let other = fresh(json!({"kubelet": {"caCertData": pem}})).unwrap();
        assert!(other.certificate_authority().unwrap().ends_with(b"new\n"));
        for bad in ["{}", r#"{"azure": {"bootstrapToken": {"token": "canary"}}}"#] {
            let mistake = old.refreshed(bad.as_bytes()).unwrap_err();
            assert!(!mistake.to_string().contains("canary"), "{mistake}");
        }
        assert!(fresh(json!({"kubelet": {"caCertData": "canary"}})).is_err());
    }
}
