//! The certificates that the server shows at its doors: of the bed's authority, and valid or not.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, date_time_ymd};
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::fault::Door;
use super::{DOORS, HOST};
use crate::ca::{self, Ca};
use crate::run::secret;

/// Makes `DOOR.crt` and `DOOR.key` for each door of that folder.
///
/// # Errors
/// The authority's key can't be read, or a file not be written.
pub(super) fn make(folder: &Path, ca: &Ca) -> Result<()> {
    let key = fs::read_to_string(ca.key())?;
    let mut authority = CertificateParams::default();
    // Only its name goes into what it signs.
    authority.distinguished_name = name(ca::NAME);
    let authority = Issuer::new(authority, KeyPair::from_pem(&key).context("the authority's key")?);
    let mut nobody = CertificateParams::default();
    nobody.distinguished_name = name("an authority that nobody knows");
    let nobody = Issuer::new(nobody, KeyPair::generate()?);
    for door in DOORS {
        let named = if door == Door::OtherName { "other.test" } else { HOST };
        let mut params = CertificateParams::new([named.to_owned()])?;
        params.distinguished_name = name(named);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        match door {
            Door::Early => params.not_before = date_time_ymd(2120, 1, 1),
            Door::Late => params.not_after = date_time_ymd(2020, 1, 1),
            Door::Good | Door::Stranger | Door::OtherName | Door::Mute => {}
        }
        let issuer = if door == Door::Stranger { &nobody } else { &authority };
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, issuer)?;
        secret(&folder.join(format!("{door:?}.key")), key.serialize_pem().as_bytes())?;
        fs::write(folder.join(format!("{door:?}.crt")), certificate.pem())?;
    }
    Ok(())
}

fn name(common: &str) -> rcgen::DistinguishedName {
    let mut name = rcgen::DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

/// What a server needs to show a door's certificate.
///
/// # Errors
/// It was not made.
pub(super) fn config(folder: &Path, door: Door) -> Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_file(folder.join(format!("{door:?}.crt")))?;
    let key = PrivateKeyDer::from_pem_file(folder.join(format!("{door:?}.key")))?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)?;
    Ok(Arc::new(config))
}
