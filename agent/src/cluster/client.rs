//! Who the API server is, who we are to it, and the client that follows from both.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::AuthInfo;

use super::Error;
use crate::model::{Secret, chain};

/// Where the API server is and whom it is trusted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// `https://host[:port]`.
    pub server: String,
    /// Its authorities, PEM.
    pub authorities: Vec<u8>,
}

/// What the agent shows the API server.
#[derive(Clone, Debug)]
pub enum Credential {
    /// Nothing: just to see whether it answers.
    None,
    /// A bootstrap token.
    Token(Secret<String>),
    /// A client certificate.
    Certificate {
        /// The certificate, PEM.
        certificate: String,
        /// Its key, PEM.
        key: Secret<String>,
    },
}

/// A client of one API server as one user. A new credential makes a new client, and so new connections.
#[derive(Clone)]
pub struct Client(pub(super) kube::Client);

impl Client {
    /// A client that has not connected yet.
    ///
    /// # Errors
    /// When the endpoint or the credential is none.
    pub fn new(endpoint: &Endpoint, credential: &Credential) -> Result<Self, Error> {
        let settings = |what: &str| Error::Settings(what.to_owned());
        let url = endpoint
            .server
            .parse()
            .map_err(|_| settings("the API server's address is no URL"))?;
        let mut config = kube::Config::new(url);
        config.root_cert = Some(certificates(&endpoint.authorities)?);
        match credential {
            Credential::None => {}
            Credential::Token(token) => {
                config.auth_info.token = Some(token.reveal().clone().into());
            }
            Credential::Certificate { certificate, key } => {
                config.auth_info = AuthInfo {
                    client_certificate_data: Some(STANDARD.encode(certificate)),
                    client_key_data: Some(STANDARD.encode(key.reveal()).into()),
                    ..AuthInfo::default()
                };
            }
        }
        let client = kube::Client::try_from(config).map_err(|error| Error::Settings(chain(&error)))?;
        Ok(Self(client))
    }

    /// Waits until the API server answers anything at all over a connection that is trusted.
    ///
    /// # Errors
    /// The last fault, when `limit` is over.
    pub async fn answers(&self, limit: std::time::Duration) -> Result<(), Error> {
        let end = tokio::time::Instant::now() + limit;
        loop {
            let probe = async { self.0.apiserver_version().await.map(drop) };
            let error = match tokio::time::timeout_at(end, super::limited(probe)).await {
                Ok(Err(error @ Error::Away(_))) => error,
                // Any answer, a refusal too, is one.
                Ok(Ok(()) | Err(_)) => return Ok(()),
                Err(_) => return Err(Error::Away(format!("no answer within {} s", limit.as_secs()))),
            };
            if tokio::time::Instant::now() + std::time::Duration::from_secs(1) >= end {
                return Err(error);
            }
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
    let all: Vec<_> = x509_parser::pem::Pem::iter_from_buffer(pem)
        .map(|block| block.map(|block| block.contents))
        .collect::<Result<_, _>>()
        .map_err(|_| Error::Settings("the API server's CA data is no PEM".into()))?;
    if all.is_empty() {
        return Err(Error::Settings("the API server's CA data holds no certificate".into()));
    }
    Ok(all)
}
