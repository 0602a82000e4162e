//! Whom downloads trust: the authorities of the agent's image and those of the host.

use std::sync::Arc;

use hostexec::Host;
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

use crate::containerd::host_certificates;

/// The image's bundle; in the binary install the host's own.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// TLS for a client that trusts `roots` and shows nothing of its own.
///
/// # Errors
/// TLS can't be set up at all.
pub fn trusting(roots: RootCertStore) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

/// The authorities of the image and of the host, read anew, so that one added to the host counts. Without any, downloads
/// fail with the reason TLS gives.
#[must_use]
pub fn roots(host: &Host) -> RootCertStore {
    let own = std::fs::read(BUNDLE).unwrap_or_default();
    let hosts = host_certificates(host).unwrap_or_else(|error| {
        tracing::warn!(%error, "the host's CA certificates can't be read");
        Vec::new()
    });
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(CertificateDer::pem_slice_iter(&own).filter_map(Result::ok).chain(hosts));
    store
}
