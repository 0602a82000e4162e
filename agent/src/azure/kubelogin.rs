//! What kubelet says to its credential plugin, and what it is told; pure. Source: node-agent specification, 2.7, 3.5; Kubernetes,
//! "client-go credential plugins".

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::{Account, Authority, Certificate, Principal, Proof, Token};
use crate::model::Secret;

/// Why a call can never work. No text repeats a value.
#[derive(Debug, thiserror::Error)]
pub enum BadCall {
    /// A variable.
    #[error("{name} {wrong}: {write}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        wrong: &'static str,
        /// What to write instead.
        write: &'static str,
    },
    /// An option.
    #[error("proof-of-possession tokens are not supported: leave out --pop-enabled and --pop-claims")]
    Pop,
    /// A certificate's file.
    #[error("--client-certificate-file {0}")]
    Certificate(#[source] super::BadCertificate),
    /// A certificate's file.
    #[error("--client-certificate-file {0}")]
    File(&'static str),
}

const INFO: &str = "KUBERNETES_EXEC_INFO";
const METHOD: &str = "AAD_LOGIN_METHOD";
const CLIENT: &str = "AAD_SERVICE_PRINCIPAL_CLIENT_ID";
const SECRET: &str = "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET";
const TENANT: &str = "AZURE_TENANT_ID";
const MANAGED: &str = "AZURE_CLIENT_ID";
/// Of clouds that are not the public one. Source: Azure SDKs, "Environment variables".
const AUTHORITY: &str = "AZURE_AUTHORITY_HOST";

/// What is asked of the plugin.
#[derive(Debug)]
pub struct Asked {
    /// Who the token is to be of.
    pub account: Account,
    /// The version of the answer.
    pub version: Version,
}

/// A version of the answer's form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// `v1`.
    V1,
    /// `v1beta1`, of kubelets before 1.22.
    V1Beta1,
}

impl Version {
    const fn name(self) -> &'static str {
        match self {
            Self::V1 => "client.authentication.k8s.io/v1",
            Self::V1Beta1 => "client.authentication.k8s.io/v1beta1",
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Info {
    api_version: String,
    kind: String,
}

impl Asked {
    /// What the variables ask for; an empty one is none.
    ///
    /// # Errors
    /// They can't work.
    pub fn parse(
        variable: impl Fn(&'static str) -> Option<String>,
        certificate: Option<Certificate>,
    ) -> Result<Self, BadCall> {
        let given = |name| variable(name).filter(|value| !value.trim().is_empty());
        let version = version(given(INFO).as_deref())?;
        let needed = |name| {
            given(name).ok_or(BadCall::Variable {
                name,
                wrong: "is missing",
                write: "set it in the kubeconfig's exec.env",
            })
        };
        let account = match given(METHOD).as_deref() {
            Some("msi") => Account::Managed {
                client_id: given(MANAGED),
            },
            Some("spn") => Account::Principal(Principal {
                authority: Authority::parse(&given(AUTHORITY).unwrap_or_default()).ok_or(BadCall::Variable {
                    name: AUTHORITY,
                    wrong: "is no authority",
                    write: "write one such as https://login.microsoftonline.com, or leave it out",
                })?,
                tenant: needed(TENANT)?,
                client: needed(CLIENT)?,
                proof: match (certificate, given(SECRET)) {
                    (Some(certificate), None) => Proof::Certificate(certificate),
                    (None, _) => Proof::Secret(Secret::new(needed(SECRET)?)),
                    (Some(_), Some(_)) => {
                        return Err(BadCall::Variable {
                            name: SECRET,
                            wrong: "stands beside --client-certificate-file",
                            write: "write one of them",
                        });
                    }
                },
            }),
            _ => {
                return Err(BadCall::Variable {
                    name: METHOD,
                    wrong: "is no way to log in that is supported",
                    write: "write spn or msi",
                });
            }
        };
        Ok(Self { account, version })
    }
}

fn version(info: Option<&str>) -> Result<Version, BadCall> {
    let Some(info) = info else { return Ok(Version::V1) };
    let bad = |wrong| BadCall::Variable {
        name: INFO,
        wrong,
        write: "write an ExecCredential of client.authentication.k8s.io/v1 or v1beta1, or leave it out",
    };
    let info: Info = serde_json::from_str(info).map_err(|_| bad("is no ExecCredential"))?;
    if info.kind != "ExecCredential" {
        return Err(bad("is of another kind"));
    }
    [Version::V1, Version::V1Beta1]
        .into_iter()
        .find(|version| version.name() == info.api_version)
        .ok_or_else(|| bad("is of another version"))
}

/// What kubelet is told.
#[must_use]
pub fn render(version: Version, token: &Token) -> Secret<String> {
    let until = token.usable_until();
    let credential = json!({
        "kind": "ExecCredential",
        "apiVersion": version.name(),
        "spec": { "interactive": false },
        "status": {
            // Whole seconds, as metav1.Time has them.
            "expirationTimestamp": Timestamp::from_second(until.as_second()).unwrap_or(until).to_string(),
            "token": token.value().reveal(),
        },
    });
    Secret::new(format!("{credential:#}\n"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn parse(variables: &[(&str, &str)]) -> Result<Asked, BadCall> {
        let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Asked::parse(|name| value(name).map(|(_, value)| (*value).to_owned()), None)
    }

    #[test]
    fn both_ways_to_log_in_are_understood() {
        let managed = parse(&[(METHOD, "msi"), (MANAGED, "c"), (INFO, "")]).unwrap();
        assert!(matches!(managed.account, Account::Managed { client_id: Some(id) } if id == "c"));
        assert_eq!(managed.version, Version::V1);
        let any = parse(&[(METHOD, "msi"), (MANAGED, "")]).unwrap();
        assert!(matches!(any.account, Account::Managed { client_id: None }));
        let principal = parse(&[(METHOD, "spn"), (CLIENT, "c"), (SECRET, "canary"), (TENANT, "t")]).unwrap();
        assert!(!format!("{principal:?}").contains("canary"));
        let Account::Principal(principal) = principal.account else {
            panic!("another account")
        };
        assert_eq!((principal.tenant.as_str(), principal.client.as_str()), ("t", "c"));
        assert_eq!(Some(principal.authority), Authority::parse(""));
    }

    #[test]
    fn a_call_that_cannot_work_is_told_which_variable_and_no_value() {
        for (variables, words) in [
            (&[][..], "AAD_LOGIN_METHOD is no way"),
            (&[(METHOD, "canary")], "AAD_LOGIN_METHOD is no way"),
            (&[(METHOD, "spn")], "AZURE_TENANT_ID is missing"),
            (
                &[(METHOD, "spn"), (TENANT, "canary"), (CLIENT, "canary")],
                "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET is missing",
            ),
            (
                &[(METHOD, "spn"), (AUTHORITY, "http://canary")],
                "AZURE_AUTHORITY_HOST is no authority",
            ),
            (
                &[(METHOD, "msi"), (INFO, "canary")],
                "KUBERNETES_EXEC_INFO is no ExecCredential",
            ),
            (
                &[(METHOD, "msi"), (INFO, r#"{"apiVersion": "v1", "kind": "Canary"}"#)],
                "KUBERNETES_EXEC_INFO is of another kind",
            ),
            (
                &[
                    (METHOD, "msi"),
                    (
                        INFO,
                        r#"{"apiVersion": "client.authentication.k8s.io/v1alpha1", "kind": "ExecCredential"}"#,
                    ),
                ],
                "KUBERNETES_EXEC_INFO is of another version",
            ),
        ] {
            let error = parse(variables).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(error.to_string().starts_with(words), "{error}");
            assert!(!text.to_lowercase().contains("canary"), "{text}");
        }
    }

    #[test]
    fn the_answer_has_the_version_that_was_asked_for() {
        let info = r#"{"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "spec": {"interactive": false}}"#;
        let asked = parse(&[(METHOD, "msi"), (INFO, info)]).unwrap();
        let token = Token::new("t".into(), Timestamp::UNIX_EPOCH, Duration::from_secs(3600));
        let printed = render(asked.version, &token);
        insta::assert_snapshot!(printed.reveal(), @r#"
        {
          "kind": "ExecCredential",
          "apiVersion": "client.authentication.k8s.io/v1beta1",
          "spec": {
            "interactive": false
          },
          "status": {
            "expirationTimestamp": "1970-01-01T00:59:00Z",
            "token": "t"
          }
        }
        "#);
    }
}
