//! The certificate request of the daemon: a new key, and a PKCS#10 request that holds a subject and nothing else.
//!
//! Written out by hand since the subject has two organizations, and rcgen's names hold a field once.
//! Source: RFC 2986, 4; the subject: node-agent specification 6.3.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData as _, SigningKey as _};

use crate::model::{NodeName, Secret};

/// Organization of every node.
pub(super) const NODES: &str = "system:nodes";
/// Organization of the daemons.
pub(super) const DAEMONS: &str = "aks-flex-node-daemons";

/// A key and the request for its certificate.
pub(super) struct Request {
    /// The key, PEM.
    pub(super) key: Secret<String>,
    /// The request, PEM.
    pub(super) pem: String,
}

impl Request {
    /// Makes a key for `node` and signs the request with it.
    pub(super) fn new(node: &NodeName) -> Result<Self, rcgen::Error> {
        let key = KeyPair::generate()?;
        let subject = sequence(
            [
                attribute(ORGANIZATION, NODES),
                attribute(ORGANIZATION, DAEMONS),
                attribute(COMMON_NAME, &format!("system:node:{node}")),
            ]
            .concat(),
        );
        let info = sequence([VERSION_0, &subject, &key.subject_public_key_info(), NO_ATTRIBUTES].concat());
        let signature = key.sign(&info)?;
        let mut bits = vec![0];
        bits.extend(signature);
        let request = sequence([info, sequence(ECDSA_WITH_SHA256.to_vec()), tagged(BIT_STRING, bits)].concat());
        Ok(Self {
            pem: pem("CERTIFICATE REQUEST", &request),
            key: Secret::new(key.serialize_pem()),
        })
    }
}

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const BIT_STRING: u8 = 0x03;
const UTF8_STRING: u8 = 0x0c;
const VERSION_0: &[u8] = &[0x02, 0x01, 0x00];
/// `attributes [0] IMPLICIT`, empty.
const NO_ATTRIBUTES: &[u8] = &[0xa0, 0x00];
/// 2.5.4.10
const ORGANIZATION: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x0a];
/// 2.5.4.3
const COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];
/// 1.2.840.10045.4.3.2, what rcgen's keys sign with unless told otherwise.
const ECDSA_WITH_SHA256: &[u8] = &[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];

fn attribute(kind: &[u8], value: &str) -> Vec<u8> {
    let value = tagged(UTF8_STRING, value.as_bytes().to_vec());
    tagged(SET, sequence([kind, &value].concat()))
}

fn sequence(content: Vec<u8>) -> Vec<u8> {
    tagged(SEQUENCE, content)
}

fn tagged(tag: u8, content: Vec<u8>) -> Vec<u8> {
    let mut out = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short @ 0..0x80) => out.push(short),
        Ok(_) | Err(_) => {
            let length: Vec<u8> = content
                .len()
                .to_be_bytes()
                .into_iter()
                .skip_while(|byte| *byte == 0)
                .collect();
            out.push(0x80 | length.len() as u8);
            out.extend(length);
        }
    }
    out.extend(content);
    out
}

fn pem(label: &str, der: &[u8]) -> String {
    let mut text = format!("-----BEGIN {label}-----\n");
    let body = STANDARD.encode(der);
    for line in body.as_bytes().chunks(64) {
        text.extend(line.iter().map(|byte| char::from(*byte)));
        text.push('\n');
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::FromDer as _;

    #[test]
    fn na_t23_the_request_asks_for_the_daemons_subject_and_nothing_else() {
        let long = "n".repeat(63);
        for name in ["edge-1", &format!("{long}.{long}.example")] {
            let request = Request::new(&name.parse().unwrap()).unwrap();
            let (_, block) = x509_parser::pem::parse_x509_pem(request.pem.as_bytes()).unwrap();
            let (rest, parsed) =
                x509_parser::certification_request::X509CertificationRequest::from_der(&block.contents).unwrap();
            assert!(rest.is_empty());
            let info = &parsed.certification_request_info;
            assert_eq!(
                info.subject.to_string(),
                format!("O=system:nodes, O=aks-flex-node-daemons, CN=system:node:{name}")
            );
            assert!(parsed.requested_extensions().is_none());
            assert_eq!(info.attributes().len(), 0);
            assert!(request.key.reveal().contains("PRIVATE KEY"));
        }
    }
}
