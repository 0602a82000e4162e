//! Whom outgoing TLS trusts: the authorities of the agent's image and those of the host.

use hostexec::{Host, HostPath};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};

/// Where bundles lie: Debian's place, which is the image's too, and that of the RPM family.
const BUNDLES: [&str; 2] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

/// Neither the image nor the host trusts anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no CA certificates in the image or on the host (looked for {} and {} there)", BUNDLES[0], BUNDLES[1])]
pub struct NoRoots;

/// The authorities of the image and of the host, read anew, so that one added to the host counts.
///
/// # Errors
/// There are none at all.
pub fn roots(host: &Host) -> Result<RootCertStore, NoRoots> {
    let own = std::fs::read(BUNDLES[0]).ok();
    let hosts = BUNDLES.iter().filter_map(|path| host.read(&HostPath::fixed(path)).ok());
    let mut store = RootCertStore::empty();
    for bundle in own.into_iter().chain(hosts) {
        store.add_parsable_certificates(CertificateDer::pem_slice_iter(&bundle).filter_map(Result::ok));
    }
    if store.is_empty() { Err(NoRoots) } else { Ok(store) }
}
