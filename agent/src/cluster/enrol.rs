//! From a credential to a client certificate of the daemon's own: a CertificateSigningRequest, and the wait for it.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::PostParams;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use super::request::Request;
use super::{Client, Error, limited};
use crate::model::{NodeName, Secret};

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const USAGES: [&str; 2] = ["digital signature", "client auth"];
/// 365 days.
const LIFETIME_SECONDS: i32 = 365 * 24 * 3600;
/// How often an approval is looked for, and for how long so. Source: node-agent specification 6.3.
const POLL: Duration = Duration::from_millis(500);
const PROMPT: Duration = Duration::from_secs(120);
/// How often afterwards: somebody must act, and may take hours.
const SLOW_POLL: Duration = Duration::from_secs(10);
/// How often the log says so.
const REMIND: Duration = Duration::from_secs(600);

/// Asks for a certificate as `client` and waits until it is issued. The caller may drop this at any time.
///
/// Returns the certificate and its key, both PEM.
///
/// # Errors
/// When the request can't be made, is denied, or is gone before it was approved. Nothing is stored.
pub async fn enrol(client: &Client, node: &NodeName) -> Result<(String, Secret<String>), Error> {
    let request = Request::new(node).map_err(|error| Error::Settings(error.to_string()))?;
    let api: Api<CertificateSigningRequest> = Api::all(client.0.clone());
    let object = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("aks-flex-node-daemon-".into()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(request.pem.into_bytes()),
            signer_name: SIGNER.into(),
            usages: Some(USAGES.map(Into::into).into()),
            expiration_seconds: Some(LIFETIME_SECONDS),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let made = limited(api.create(&PostParams::default(), &object)).await?;
    let name = made.metadata.name.unwrap_or_default();
    info!(request = name, "asked for the daemon's certificate");
    let certificate = issued(&api, &name).await?;
    Ok((certificate, request.key))
}

async fn issued(api: &Api<CertificateSigningRequest>, name: &str) -> Result<String, Error> {
    let prompt_until = Instant::now() + PROMPT;
    let mut remind_at = prompt_until;
    loop {
        let found = match limited(api.get(name)).await {
            Ok(found) => found,
            // Wait on: the request stands, whoever answers.
            Err(Error::Away(_)) => {
                sleep(SLOW_POLL).await;
                continue;
            }
            Err(error) => return Err(error),
        };
        let status = found.status.unwrap_or_default();
        for condition in status.conditions.unwrap_or_default() {
            if condition.type_ == "Denied" || condition.type_ == "Failed" {
                let said = condition.message.or(condition.reason).unwrap_or_default();
                let end = condition.type_.to_lowercase();
                return Err(Error::Refused(format!("certificate request {name} was {end}: {said}")));
            }
        }
        if let Some(ByteString(pem)) = status.certificate {
            return String::from_utf8(pem)
                .map_err(|_| Error::Refused(format!("the certificate of request {name} is no PEM")));
        }
        let now = Instant::now();
        if now >= remind_at {
            remind_at = now + REMIND;
            warn!(
                request = name,
                "nobody has approved the daemon's certificate request: `kubectl certificate approve {name}`"
            );
        }
        sleep(if now < prompt_until { POLL } else { SLOW_POLL }).await;
    }
}
