//! What Azure Resource Manager is asked for: a pool's bootstrap data; pure. Source: node-agent specification, 7.3, 7.7.

use std::time::Duration;

use serde::Deserialize;
use url::Url;

use super::answer::{Answer, Failure, stranger, wait};
use super::{Error, Whom};
use crate::config::{ClusterId, Settings};
use crate::model::Secret;

/// The version of the API that has bootstrap data. Source: node-agent specification, 7.3.
pub const API_VERSION: &str = "2026-05-02-preview";

/// A pool of FlexNodes, as the resource manager knows it.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Its cluster.
    pub cluster: ClusterId,
    /// Its name.
    pub name: String,
    /// The version of the API.
    pub api_version: String,
}

impl Pool {
    /// The pool of the settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        Self {
            cluster: settings.cluster().clone(),
            name: settings.pool().to_owned(),
            api_version: API_VERSION.to_owned(),
        }
    }

    /// Where its bootstrap data is had from; none: the resource manager's address is none.
    pub(super) fn bootstrap_data_url(&self, manager: &str) -> Option<Url> {
        let mut url = Url::parse(manager).ok()?;
        url.path_segments_mut()
            .ok()?
            .clear()
            .extend(self.cluster.as_str().split('/').filter(|part| !part.is_empty()))
            .extend(["agentPools", &self.name, "listBootstrapData"]);
        url.query_pairs_mut().append_pair("api-version", &self.api_version);
        Some(url)
    }
}

/// A pool's bootstrap data: a configuration, as the resource manager writes it, with a bootstrap token.
#[derive(Debug)]
pub struct BootstrapData(Secret<Vec<u8>>);

impl BootstrapData {
    /// Its bytes.
    #[must_use]
    pub const fn reveal(&self) -> &Secret<Vec<u8>> {
        &self.0
    }
}

/// As much of the data as has to be there.
#[derive(Deserialize)]
struct Needed {
    azure: NeededAzure,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NeededAzure {
    bootstrap_token: NeededToken,
}

#[derive(Deserialize)]
struct NeededToken {
    token: Secret<String>,
}

/// How the resource manager refuses. Source: Azure Resource Manager, "Common API error responses".
#[derive(Deserialize)]
struct Refusal {
    error: RefusalError,
}

#[derive(Deserialize)]
struct RefusalError {
    code: String,
}

/// Reads the answer to a question for bootstrap data.
pub(super) fn bootstrap_data(answer: &Answer<'_>) -> Result<BootstrapData, Failure> {
    let whom = Whom::Manager;
    if answer.status == 200 {
        return match serde_json::from_slice::<Needed>(answer.body) {
            Ok(needed) if crate::config::is_bootstrap_token(needed.azure.bootstrap_token.token.reveal()) => {
                Ok(BootstrapData(Secret::new(answer.body.to_vec())))
            }
            Ok(_) | Err(_) => Err(stranger(whom, "its answer holds no bootstrap token".to_owned())),
        };
    }
    let said: Option<Refusal> = serde_json::from_slice(answer.body).ok();
    let plain = |code: &String| code.len() <= 60 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let named = said.as_ref().map(|said| &said.error.code).filter(|code| plain(code));
    let code = match named {
        Some(code) => format!("HTTP status {}, {code}", answer.status),
        None => format!("HTTP status {}", answer.status),
    };
    let busy = |code, remedy, wait: Option<Duration>| Failure {
        error: Error::Busy { whom, code, remedy },
        wait,
    };
    let refused = |code, remedy| Failure {
        error: Error::Refused { whom, code, remedy },
        wait: None,
    };
    Err(match (answer.status, &said) {
        (408 | 409 | 429 | 500.., _) => busy(code, "it is asked again", wait(answer)),
        (_, None) => stranger(whom, code),
        // A role that was just given counts after minutes: longer than anybody waits here.
        (401 | 403, Some(_)) => busy(
            code,
            "this identity may not list the pool's bootstrap data: give it a role on the cluster that can",
            Some(Duration::MAX),
        ),
        (404, Some(_)) => refused(
            code,
            "there is no such cluster or pool: look at azure.targetCluster.resourceId (--cluster-resource-id) and \
             azure.targetAgentPoolName (--agent-pool-name)",
        ),
        (_, Some(_)) => refused(code, "look the code up in Azure Resource Manager's common errors"),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::config;

    fn answer(status: u16, body: &Value) -> Result<BootstrapData, Failure> {
        bootstrap_data(&Answer {
            status,
            retry_after: Some("3"),
            body: body.to_string().as_bytes(),
        })
    }

    #[test]
    fn a_pools_data_is_asked_for_below_its_cluster() {
        let pool = Pool {
            cluster: config::tests::sample().cluster().clone(),
            name: "a b".into(),
            api_version: API_VERSION.into(),
        };
        assert_eq!(
            pool.bootstrap_data_url("https://management.azure.com")
                .unwrap()
                .as_str(),
            "https://management.azure.com/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/\
             Microsoft.ContainerService/managedClusters/c1/agentPools/a%20b/listBootstrapData?api-version=2026-05-02-preview"
        );
    }

    #[test]
    fn data_without_a_token_is_none_and_nothing_of_it_is_shown() {
        let good = json!({"azure": {"bootstrapToken": {"token": "abcdef.0123456789abcdef"}}, "node": {}});
        let data = answer(200, &good).unwrap();
        assert_eq!(data.reveal().reveal(), good.to_string().as_bytes());
        assert!(!format!("{data:?}").contains("abcdef"));
        for bad in [
            json!({}),
            json!({"azure": {"bootstrapToken": {"token": "canary"}}}),
            json!("canary"),
        ] {
            let failure = answer(200, &bad).unwrap_err();
            assert!(!format!("{failure:?}").contains("canary"));
        }
    }

    #[test]
    fn refusals_are_told_by_their_code_and_what_passes_from_what_does_not() {
        for (status, code, passes, words) in [
            (403, "AuthorizationFailed", true, "give it a role"),
            (404, "ResourceNotFound", false, "--agent-pool-name"),
            (400, "InvalidApiVersionParameter", false, "common errors"),
            (429, "TooManyRequests", true, "asked again"),
            (503, "ServerBusy", true, "asked again"),
        ] {
            let failure = answer(status, &json!({"error": {"code": code, "message": "canary"}})).unwrap_err();
            let text = failure.error.to_string();
            assert_eq!(failure.error.may_pass(), passes, "{text}");
            assert!(text.contains(&format!("HTTP status {status}, {code}")), "{text}");
            assert!(text.contains(words) && !text.contains("canary"), "{text}");
        }
        let failure = answer(403, &json!("<html>canary")).unwrap_err();
        assert!(matches!(failure.error, Error::Stranger { .. }));
        let failure = answer(404, &json!({"error": {"code": "can ary"}})).unwrap_err();
        assert!(!failure.error.to_string().contains("ary"));
    }
}
