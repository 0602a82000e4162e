//! A look at the API server: one request without a credential over a connection whose certificate is judged and not insisted on, so that an
//! answer's `Date` is had also where a wrong clock makes the certificate look wrong. The token is only ever shown over a connection that is
//! trusted.

use std::{
    error::Error,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use reqwest::{Url, header, redirect};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _},
};
use tokio::{net::lookup_host, time::timeout};

use super::Subject;
use crate::{
    config::Settings,
    fetch,
    preflight::judge::{Answer, Reached, Tls, Token, words},
};

/// How long its name may take. Together with the two below: what all looks together may take.
const NAME: Duration = Duration::from_secs(4);
/// How long it may take for an answer.
const ANSWER: Duration = Duration::from_secs(8);
/// How long it may take without TLS, where it gives no answer with it.
const UNTRUSTED: Duration = Duration::from_secs(3);
const PLAIN: &str = "it speaks plain HTTP where TLS is expected";
/// How long it may take to judge a token.
const TOKEN: Duration = Duration::from_secs(4);

/// What was seen of it.
pub(super) struct Server {
    pub(super) reached: Reached,
    /// Whether it goes by a name.
    pub(super) named: bool,
    pub(super) token: Token,
}

/// Asks it.
pub(super) async fn look(subject: &Subject) -> Server {
    let settings = &subject.settings;
    let url = settings.api_server().and_then(|url| Url::parse(url).ok());
    let Some(url) = url.filter(Url::has_host) else {
        return Server {
            reached: Reached::NoUrl,
            named: false,
            token: withheld(settings),
        };
    };
    let host = url.host_str().unwrap_or_default();
    let named = host.trim_matches(['[', ']']).parse::<IpAddr>().is_err();
    if named && !resolves(host, url.port_or_known_default().unwrap_or(443), NAME).await {
        return Server {
            reached: Reached::Unnamed,
            named,
            token: withheld(settings),
        };
    }
    let roots = roots(subject);
    let reached = reach(&url, roots.clone()).await;
    let token = token(&url, settings, &roots, &reached).await;
    Server { reached, named, token }
}

/// Whether a name has an address, by the resolver that every client of the agent goes by.
pub(super) async fn resolves(host: &str, port: u16, limit: Duration) -> bool {
    let found = timeout(limit, lookup_host((host, port))).await;
    found.is_ok_and(|found| found.is_ok_and(|mut addresses| addresses.next().is_some()))
}

fn withheld(settings: &Settings) -> Token {
    match settings.auth().token() {
        Some(_) => Token::Withheld,
        None => Token::None,
    }
}

/// Whom kubelet and the agent will trust: the configuration's authority alone. Without one: whom downloads trust.
fn roots(subject: &Subject) -> Arc<RootCertStore> {
    Arc::new(match subject.settings.certificate_authority() {
        Some(pem) => {
            let mut store = RootCertStore::empty();
            store.add_parsable_certificates(CertificateDer::pem_slice_iter(pem).filter_map(Result::ok));
            store
        }
        None => fetch::roots(&subject.host),
    })
}

async fn reach(url: &Url, roots: Arc<RootCertStore>) -> Reached {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build();
    let Ok(verifier) = verifier else {
        return Reached::NoAuthority;
    };
    let judge = Arc::new(Judge {
        verifier,
        provider: provider.clone(),
        shown: Mutex::default(),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|builder| {
            builder
                .dangerous()
                .with_custom_certificate_verifier(judge.clone())
                .with_no_client_auth()
        });
    let Some(client) = config.ok().and_then(client) else {
        return Reached::Failed("TLS can't be set up");
    };
    let failed = match timeout(ANSWER, client.get(at(url, "/readyz")).send()).await {
        Err(_) => Err(Reached::Late(ANSWER)),
        Ok(Err(error)) if error.is_timeout() => Err(Reached::Late(ANSWER)),
        Ok(Err(error)) => Err(Reached::Failed(words(&said(&error)))),
        Ok(Ok(response)) => Ok(response),
    };
    let response = match failed {
        Ok(response) => response,
        Err(_) if judge.at(Timestamp::now()).is_none() && is_plain(&client, url).await => {
            return Reached::Failed(PLAIN);
        }
        Err(failed) => return failed,
    };
    let now = Timestamp::now();
    let date = response
        .headers()
        .get(header::DATE)
        .and_then(|date| jiff::fmt::rfc2822::parse(date.to_str().ok()?).ok())
        .map(|date| date.timestamp());
    let Some(tls) = judge.at(now) else {
        return Reached::Failed(PLAIN);
    };
    Reached::Answered(Answer {
        status: response.status().as_u16(),
        ahead: date.map(|date| date.as_second() - now.as_second()),
        tls,
        by_its_clock: date.and_then(|date| judge.at(date)),
    })
}

/// Whether it answers without TLS. Many a server waits in silence for the rest of what looks to it like a request; one of TLS that is
/// spoken to so says 400.
async fn is_plain(client: &reqwest::Client, url: &Url) -> bool {
    let mut plain = at(url, "/readyz");
    let port = plain.port_or_known_default();
    if plain.set_scheme("http").is_err() || plain.set_port(port).is_err() {
        return false;
    }
    let answer = timeout(UNTRUSTED, client.get(plain).send()).await;
    answer.is_ok_and(|answer| answer.is_ok_and(|answer| answer.status() != reqwest::StatusCode::BAD_REQUEST))
}

/// What the API server says to the token.
async fn token(url: &Url, settings: &Settings, roots: &Arc<RootCertStore>, reached: &Reached) -> Token {
    let Some(token) = settings.auth().token() else {
        return Token::None;
    };
    if !matches!(reached, Reached::Answered(Answer { tls: Tls::Trusted, .. })) {
        return Token::Withheld;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_root_certificates(roots.clone()).with_no_client_auth());
    let Some(client) = config.ok().and_then(client) else {
        return Token::Unclear;
    };
    let request = client.get(at(url, "/api")).bearer_auth(token.reveal());
    match timeout(TOKEN, request.send()).await {
        Ok(Ok(response)) => match response.status().as_u16() {
            401 => Token::Unknown,
            status @ (200 | 403) => Token::Taken(status),
            _ => Token::Unclear,
        },
        Ok(Err(_)) | Err(_) => Token::Unclear,
    }
}

/// As the clients of the cluster: no proxy, and led nowhere.
fn client(config: ClientConfig) -> Option<reqwest::Client> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(config)
        .no_proxy()
        .redirect(redirect::Policy::none())
        .user_agent(concat!("aks-flex-node/", env!("CARGO_PKG_VERSION")))
        .build()
        .ok()
}

fn at(url: &Url, path: &str) -> Url {
    let mut at = url.clone();
    at.set_path(&format!("{}{path}", url.path().trim_end_matches('/')));
    at.set_query(None);
    at
}

/// Everything that an error and what caused it says.
pub(super) fn said(error: &dyn Error) -> String {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        said.push_str(": ");
        said.push_str(&error.to_string());
        // An error in an I/O error is passed over by `source`.
        if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            said.push_str(&format!(": {inner}"));
        }
        cause = error.source();
    }
    said
}

/// Takes every certificate, and keeps it so that it can be judged.
#[derive(Debug)]
struct Judge {
    verifier: Arc<WebPkiServerVerifier>,
    provider: Arc<CryptoProvider>,
    shown: Mutex<Option<Shown>>,
}

#[derive(Clone, Debug)]
struct Shown {
    chain: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
}

impl Judge {
    /// What the certificate that was shown comes to at this time; none if none was shown.
    fn at(&self, time: Timestamp) -> Option<Tls> {
        let shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let (first, rest) = shown.chain.split_first()?;
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        Some(
            match self.verifier.verify_server_cert(first, rest, &shown.name, &[], time) {
                Ok(_) => Tls::Trusted,
                Err(rustls::Error::InvalidCertificate(error)) => of(&error),
                Err(_) => Tls::Unusable,
            },
        )
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "the list is not ours, and grows")]
fn of(error: &CertificateError) -> Tls {
    use CertificateError as E;
    match error {
        E::NotValidYet | E::NotValidYetContext { .. } => Tls::NotYetValid,
        E::Expired | E::ExpiredContext { .. } => Tls::Expired,
        // Authorities of the same name: each cluster of kubeadm's has `kubernetes`.
        E::UnknownIssuer | E::BadSignature => Tls::UnknownAuthority,
        E::NotValidForName | E::NotValidForNameContext { .. } => Tls::WrongName,
        _ => Tls::Unusable,
    }
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        first: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let chain = [first]
            .into_iter()
            .chain(rest)
            .map(|der| der.clone().into_owned())
            .collect();
        let shown = Shown {
            chain,
            name: name.to_owned(),
        };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests;
