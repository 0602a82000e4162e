//! The daemon's client certificate on the host (node-agent specification 6.3).
//!
//! ```text
//! daemon-credentials/ 0700
//!   daemon-controller-current.pem ─▶ daemon-controller-2026-11-29-10-00-00.pem   certificate and key in one file
//!   client.crt, client.key                                                       the same, for whoever wants two
//! ```
//!
//! The link decides: the pair of files beside it can be torn by a crash, the dated file can't.

use std::io;

use hostexec::{Host, HostPath};
use jiff::Timestamp;
use x509_parser::pem::Pem;

use crate::model::{NodeName, Secret};

const DIR: HostPath = HostPath::fixed("/etc/aks-flex-node/daemon-credentials");
const CURRENT: &str = "daemon-controller-current.pem";
const PREFIX: &str = "daemon-controller-";

/// A client certificate with its key.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate, PEM, leaf first.
    pub certificate: String,
    /// The key, PEM.
    pub key: Secret<String>,
    /// From when it is valid.
    pub not_before: Timestamp,
    /// Until when.
    pub not_after: Timestamp,
}

/// Why a pair is not to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// It is no certificate with a key.
    #[error("it holds no certificate with its key")]
    Malformed,
    /// It is another node's, or for something else.
    #[error("its subject is not that of this node's daemon")]
    Subject,
    /// Its time is over, or has not come.
    #[error("it is not valid now")]
    Time,
}

impl Pair {
    /// Takes what the API server issued for the key.
    ///
    /// # Errors
    /// When it can't be used by the daemon of `node` at `now`.
    pub fn new(certificate: String, key: Secret<String>, node: &NodeName, now: Timestamp) -> Result<Self, Unfit> {
        let leaf = Pem::iter_from_buffer(certificate.as_bytes())
            .next()
            .and_then(Result::ok)
            .filter(|block| block.label == "CERTIFICATE")
            .ok_or(Unfit::Malformed)?;
        let parsed = leaf.parse_x509().map_err(|_| Unfit::Malformed)?;
        if !key.reveal().contains("PRIVATE KEY-----") {
            return Err(Unfit::Malformed);
        }
        let subject = parsed.subject();
        let name = format!("system:node:{node}");
        let common: Vec<_> = subject
            .iter_common_name()
            .filter_map(|field| field.as_str().ok())
            .collect();
        if common != [name.as_str()] || subject.iter_organization().count() == 0 {
            return Err(Unfit::Subject);
        }
        let time = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp());
        let validity = parsed.validity();
        let (Ok(not_before), Ok(not_after)) = (time(validity.not_before), time(validity.not_after)) else {
            return Err(Unfit::Malformed);
        };
        if now >= not_after || now < not_before {
            return Err(Unfit::Time);
        }
        Ok(Self {
            certificate,
            key,
            not_before,
            not_after,
        })
    }

    /// When it should be renewed: `fraction` of the way from 70 % to 90 % of its life.
    #[must_use]
    pub fn renew_at(&self, fraction: f64) -> Timestamp {
        let life = self.not_after.duration_since(self.not_before).as_secs_f64();
        let at = life * (0.7 + 0.2 * fraction.clamp(0.0, 1.0));
        self.not_before
            .saturating_add(jiff::SignedDuration::from_secs_f64(at))
            .unwrap_or(self.not_after)
    }
}

/// The stored pair, if there is one that can be used; otherwise why not.
///
/// # Errors
/// When the files are there and can't be read.
pub fn load(host: &Host, node: &NodeName, now: Timestamp) -> io::Result<Option<Result<Pair, Unfit>>> {
    let text = |name: &str| match host.read(&at(name)) {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    if let Some(both) = text(CURRENT)? {
        let (certificate, key) = split(&both);
        return Ok(Some(Pair::new(certificate, Secret::new(key), node, now)));
    }
    match (text("client.crt")?, text("client.key")?) {
        (Some(certificate), Some(key)) => Ok(Some(Pair::new(certificate, Secret::new(key), node, now))),
        (None, _) | (_, None) => Ok(None),
    }
}

/// Stores the pair and removes those before it.
///
/// # Errors
/// When it could not be stored; the pair before it stands.
pub fn save(host: &Host, pair: &Pair, now: Timestamp) -> io::Result<()> {
    host.create_dir(&DIR, 0o700)?;
    let dated = format!("{PREFIX}{}.pem", now.strftime("%Y-%m-%d-%H-%M-%S"));
    let both = Secret::new(format!("{}\n{}", pair.certificate.trim_end(), pair.key.reveal()));
    host.write(&at(&dated), both.reveal().as_bytes(), 0o600)?;
    host.link(&dated, &at(CURRENT))?;
    host.write(&at("client.crt"), pair.certificate.as_bytes(), 0o600)?;
    host.write(&at("client.key"), pair.key.reveal().as_bytes(), 0o600)?;
    for name in host.list(&DIR)? {
        if name.starts_with(PREFIX) && name != CURRENT && name != dated {
            host.remove(&at(&name))?;
        }
    }
    Ok(())
}

fn at(name: &str) -> HostPath {
    DIR.join(name).expect("a file's name is a plain path")
}

/// Certificates and key of one file.
fn split(both: &str) -> (String, String) {
    let is_key = |(at, _): &(usize, &str)| {
        both[*at..]
            .lines()
            .next()
            .is_some_and(|line| line.contains("PRIVATE KEY"))
    };
    match both.match_indices("-----BEGIN ").find(is_key) {
        Some((key, _)) => (both[..key].to_owned(), both[key..].to_owned()),
        None => (both.to_owned(), String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn issue(common_name: &str, from: i32, until: i32) -> (String, Secret<String>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "system:nodes");
        parameters
            .distinguished_name
            .push(rcgen::DnType::CommonName, common_name);
        parameters.not_before = rcgen::date_time_ymd(from, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(until, 1, 1);
        let certificate = parameters.self_signed(&key).unwrap().pem();
        (certificate, Secret::new(key.serialize_pem()))
    }

    fn node() -> NodeName {
        "edge-1".parse().unwrap()
    }

    fn now() -> Timestamp {
        "2026-06-01T00:00:00Z".parse().unwrap()
    }

    fn pair() -> Pair {
        let (certificate, key) = issue("system:node:edge-1", 2026, 2027);
        Pair::new(certificate, key, &node(), now()).unwrap()
    }

    #[test]
    fn what_is_stored_reads_back_and_only_the_newest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        assert!(load(&host, &node(), now()).unwrap().is_none());
        let (first, second) = (pair(), pair());
        save(&host, &first, now()).unwrap();
        save(
            &host,
            &second,
            now().saturating_add(jiff::SignedDuration::from_secs(1)).unwrap(),
        )
        .unwrap();
        let read = load(&host, &node(), now()).unwrap().unwrap().unwrap();
        assert_eq!(read.certificate.trim(), second.certificate.trim());
        assert_eq!(read.key.reveal(), second.key.reveal());
        let folder = dir.path().join("etc/aks-flex-node/daemon-credentials");
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o777, 0o700);
        let names: Vec<_> = host.list(&DIR).unwrap();
        assert_eq!(
            names,
            [
                "client.crt",
                "client.key",
                "daemon-controller-2026-06-01-00-00-01.pem",
                CURRENT
            ]
        );
        for name in &names[..3] {
            let mode = std::fs::metadata(folder.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn the_pair_of_files_does_where_there_is_no_link() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        save(&host, &pair(), now()).unwrap();
        host.remove(&at(CURRENT)).unwrap();
        assert!(load(&host, &node(), now()).unwrap().unwrap().is_ok());
    }

    #[test]
    fn a_pair_that_can_not_be_used_says_why() {
        let fit = |(certificate, key): (String, Secret<String>), now: Timestamp| {
            Pair::new(certificate, key, &node(), now).map(drop)
        };
        assert_eq!(fit(issue("system:node:edge-2", 2026, 2027), now()), Err(Unfit::Subject));
        assert_eq!(fit(issue("system:node:edge-1", 2025, 2026), now()), Err(Unfit::Time));
        assert_eq!(fit(issue("system:node:edge-1", 2027, 2028), now()), Err(Unfit::Time));
        let (certificate, key) = issue("system:node:edge-1", 2026, 2027);
        assert_eq!(
            fit((certificate.clone(), Secret::new(String::new())), now()),
            Err(Unfit::Malformed)
        );
        assert_eq!(fit((String::from("-----BEGIN"), key), now()), Err(Unfit::Malformed));
    }

    #[test]
    fn renewal_falls_between_70_and_90_percent_of_a_life() {
        let pair = pair();
        let share = |fraction| {
            let life = pair.not_after.duration_since(pair.not_before).as_secs_f64();
            pair.renew_at(fraction).duration_since(pair.not_before).as_secs_f64() / life
        };
        assert!((share(0.0) - 0.7).abs() < 1e-6);
        assert!((share(1.0) - 0.9).abs() < 1e-6);
    }
}
