//! The authorities of one cluster and what they issue. (What the hosts trust for registry and downloads is `crate::ca`.)
//!
//! Every certificate is valid for ages on purpose: the clock of the machine may be stepped while a bed stands.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};

use crate::run::secret;

/// What a certificate may be used for.
#[derive(Clone, Copy)]
pub(crate) enum Usage {
    /// By a server.
    Server,
    /// By a client.
    Client,
    /// By both ends: etcd calls itself with its own certificate.
    Both,
}

/// A certificate authority kept as two files, `NAME.crt` and `NAME.key`.
pub(crate) struct Authority {
    folder: PathBuf,
    name: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// The authority `name` of a folder, made when it isn't there yet.
    pub(crate) fn open(folder: &Path, name: &str) -> Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        let (certificate, key_file) = (folder.join(format!("{name}.crt")), folder.join(format!("{name}.key")));
        let key = if certificate.exists() {
            let pem = std::fs::read_to_string(&key_file).with_context(|| format!("reading {}", key_file.display()))?;
            KeyPair::from_pem(&pem).with_context(|| format!("reading the key {}", key_file.display()))?
        } else {
            let key = KeyPair::generate()?;
            secret(&key_file, key.serialize_pem().as_bytes())?;
            secret(&certificate, params.self_signed(&key)?.pem().as_bytes())?;
            key
        };
        Ok(Self {
            folder: folder.into(),
            name: name.into(),
            issuer: Issuer::new(params, key),
        })
    }

    /// The file with its certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.join(format!("{}.crt", self.name))
    }

    /// Issues `NAME.crt` and `NAME.key` in `folder` unless they are there. `names` are DNS names or addresses.
    pub(crate) fn issue(&self, folder: &Path, subject: &Subject<'_>, usage: Usage, names: &[&str]) -> Result<Issued> {
        let issued = Issued::in_folder(folder, subject.file);
        if issued.certificate.exists() {
            return Ok(issued);
        }
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, subject.common_name);
        if let Some(organization) = subject.organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        for name in names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*name).try_into()?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.extended_key_usages = match usage {
            Usage::Server => vec![ExtendedKeyUsagePurpose::ServerAuth],
            Usage::Client => vec![ExtendedKeyUsagePurpose::ClientAuth],
            Usage::Both => vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        };
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?;
        secret(&issued.key, key.serialize_pem().as_bytes())?;
        secret(&issued.certificate, certificate.pem().as_bytes())?;
        Ok(issued)
    }
}

/// Whom a certificate is for, and what its files are called.
pub(crate) struct Subject<'a> {
    /// Name of the files, without `.crt` and `.key`.
    pub(crate) file: &'a str,
    /// The common name, a user's name for Kubernetes.
    pub(crate) common_name: &'a str,
    /// The organization, a group for Kubernetes.
    pub(crate) organization: Option<&'a str>,
}

/// The two files of an issued certificate.
#[derive(Clone)]
pub(crate) struct Issued {
    /// The certificate in PEM.
    pub(crate) certificate: PathBuf,
    /// Its key in PEM, `0600`.
    pub(crate) key: PathBuf,
}

impl Issued {
    /// Where `issue` puts the certificate of that file name.
    pub(crate) fn in_folder(folder: &Path, file: &str) -> Self {
        Self {
            certificate: folder.join(format!("{file}.crt")),
            key: folder.join(format!("{file}.key")),
        }
    }
}

/// Makes a key pair without a certificate, `NAME.key` and `NAME.pub`: what ServiceAccount tokens are signed with.
pub(crate) fn signing_pair(folder: &Path, name: &str) -> Result<(PathBuf, PathBuf)> {
    let (private, public) = (folder.join(format!("{name}.key")), folder.join(format!("{name}.pub")));
    if !public.exists() {
        let key = KeyPair::generate()?;
        secret(&private, key.serialize_pem().as_bytes())?;
        secret(&public, key.public_key_pem().as_bytes())?;
    }
    Ok((private, public))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn na_r28_keys_are_private_and_an_authority_opened_again_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let subject = Subject {
            file: "web",
            common_name: "web",
            organization: None,
        };
        let first = Authority::open(folder.path(), "ca").unwrap();
        let issued = first
            .issue(folder.path(), &subject, Usage::Server, &["registry.test", "10.88.0.1"])
            .unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&issued.key), 0o600);
        assert_eq!(mode(&folder.path().join("ca.key")), 0o600);

        let before = std::fs::read(first.certificate()).unwrap();
        let second = Authority::open(folder.path(), "ca").unwrap();
        assert_eq!(std::fs::read(second.certificate()).unwrap(), before);
        let later = Subject {
            file: "later",
            common_name: "later",
            organization: Some("system:masters"),
        };
        second.issue(folder.path(), &later, Usage::Client, &[]).unwrap();
        assert!(folder.path().join("later.crt").exists());
    }
}
