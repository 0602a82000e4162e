//! A service principal's certificate, and what its key signs. Source: Microsoft identity platform, "Application
//! authentication certificate credentials"; RFC 7515, RFC 7519.

use std::{fmt, sync::Arc};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use rustls::SignatureScheme;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use rustls::sign::SigningKey;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::model::Secret;

/// How long a signature is good for. Source: as above: "5-10 minutes after nbf at most".
const LIFE: i64 = 600;

/// A certificate with its RSA key.
#[derive(Clone)]
pub struct Certificate {
    /// Of the leaf: what the application's registration knows it by.
    thumbprint: String,
    key: Arc<dyn SigningKey>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificate(***)")
    }
}

/// Why a file is no certificate with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCertificate {
    /// The file was not to be read.
    #[error("names a file that can't be read: look at preflight")]
    Unread,
    /// It is of a form that is not read.
    #[error("is PKCS#12, which is not read: make it PEM with `openssl pkcs12 -in FILE.pfx -out FILE.pem -nodes`")]
    Pkcs12,
    /// It has no certificate.
    #[error("holds no certificate: write a PEM with the certificate, leaf first, and its key")]
    NoCertificate,
    /// It has no key that can sign, or one that is locked.
    #[error(
        "holds no key that can be read: write a PEM with the certificate and its unencrypted RSA key \
         (BEGIN PRIVATE KEY)"
    )]
    NoKey,
    /// Its key is of another kind.
    #[error("has a key that is not RSA: Entra ID takes RSA keys alone")]
    NotRsa,
    /// Two that don't belong together.
    #[error("has a key that is not its certificate's")]
    Stranger,
}

impl Certificate {
    /// Reads a PEM with a certificate and its key.
    ///
    /// # Errors
    /// It is none; nothing of it is repeated.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadCertificate> {
        if is_pkcs12(bytes) {
            return Err(BadCertificate::Pkcs12);
        }
        let leaf = CertificateDer::pem_slice_iter(bytes).next().and_then(Result::ok);
        let leaf = leaf.ok_or(BadCertificate::NoCertificate)?;
        let key = PrivateKeyDer::from_pem_slice(bytes).map_err(|_| BadCertificate::NoKey)?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|_| BadCertificate::NoKey)?;
        if key.choose_scheme(&[SCHEME]).is_none() {
            return Err(BadCertificate::NotRsa);
        }
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).map_err(|_| BadCertificate::NoCertificate)?;
        let own = key.public_key();
        if own.is_some_and(|own| own.as_ref() != parsed.public_key().raw) {
            return Err(BadCertificate::Stranger);
        }
        Ok(Self {
            thumbprint: URL_SAFE_NO_PAD.encode(Sha256::digest(&leaf)),
            key,
        })
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.key.choose_scheme(&[SCHEME])?.sign(message).ok()
    }
}

/// What JWT calls PS256.
const SCHEME: SignatureScheme = SignatureScheme::RSA_PSS_SHA256;

/// PKCS#12 is DER: a sequence whose length takes two bytes or more.
fn is_pkcs12(bytes: &[u8]) -> bool {
    matches!(bytes, [0x30, 0x80..=0x84, ..])
}

/// A JWT that says `client` asks at `url` now. `id` is used once.
pub(super) fn render(certificate: &Certificate, url: &str, client: &str, now: Timestamp, id: &str) -> Secret<String> {
    let now = now.as_second();
    let header = json!({ "alg": "PS256", "typ": "JWT", "x5t#S256": certificate.thumbprint });
    let claims =
        json!({ "aud": url, "iss": client, "sub": client, "jti": id, "nbf": now, "iat": now, "exp": now + LIFE });
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let message = format!("{}.{}", part(&header), part(&claims));
    let signature = certificate.sign(message.as_bytes());
    let signature = signature.expect("an RSA key that has signed nothing else can sign");
    Secret::new(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEM: &[u8] = include_bytes!("../../tests/fixtures/principal.pem");

    #[test]
    fn what_the_key_signs_names_its_certificate_and_is_good_for_ten_minutes() {
        let certificate = Certificate::parse(PEM).unwrap();
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let signed = render(&certificate, "https://a/t/oauth2/v2.0/token", "c", now, "id");
        let parts: Vec<_> = signed.reveal().split('.').collect();
        let [header, claims, signature] = parts[..] else {
            panic!("{} parts", parts.len())
        };
        let part =
            |text| -> serde_json::Value { serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text).unwrap()).unwrap() };
        let leaf = CertificateDer::pem_slice_iter(PEM).next().unwrap().unwrap();
        assert_eq!(
            part(header),
            json!({"alg": "PS256", "typ": "JWT", "x5t#S256": URL_SAFE_NO_PAD.encode(Sha256::digest(&leaf))})
        );
        assert_eq!(
            part(claims),
            json!({"aud": "https://a/t/oauth2/v2.0/token", "iss": "c", "sub": "c", "jti": "id",
                "nbf": 1_800_000_000, "iat": 1_800_000_000, "exp": 1_800_000_600})
        );
        let (_, parsed) = x509_parser::parse_x509_certificate(&leaf).unwrap();
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let (_, algorithm) = algorithms.mapping.iter().find(|(scheme, _)| *scheme == SCHEME).unwrap();
        let message = format!("{header}.{claims}");
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let key = &parsed.public_key().subject_public_key.data;
        algorithm[0]
            .verify_signature(key, message.as_bytes(), &signature)
            .expect("the certificate's key has signed it");
    }

    #[test]
    fn a_file_that_is_no_certificate_with_its_key_is_told_what_it_is() {
        let halves = std::str::from_utf8(PEM).unwrap();
        let (certificate, key) = halves.split_at(halves.find("-----BEGIN PRIVATE").unwrap());
        for (bytes, error) in [
            (&b"secret"[..], BadCertificate::NoCertificate),
            (key.as_bytes(), BadCertificate::NoCertificate),
            (certificate.as_bytes(), BadCertificate::NoKey),
            (
                include_bytes!("../../tests/fixtures/principal.pfx"),
                BadCertificate::Pkcs12,
            ),
            (
                include_bytes!("../../tests/fixtures/stranger.pem"),
                BadCertificate::Stranger,
            ),
            (include_bytes!("../../tests/fixtures/ec.pem"), BadCertificate::NotRsa),
        ] {
            assert_eq!(Certificate::parse(bytes).map(|_| ()), Err(error));
        }
        assert!(!format!("{:?}", Certificate::parse(PEM)).contains("BEGIN"));
    }
}
