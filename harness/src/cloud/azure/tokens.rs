//! Tokens that were given out: of whom, for whom, until when.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest, Sha256};

/// The Entra group that every account of the bed is in: the cluster lets it join.
pub(super) const GROUP: &str = "0f5c1d3a-9a57-4a52-8d36-6f1c0e2b7a11";

/// The object ID of an account by its client ID: what AKS knows it by.
pub(crate) fn object_id(client: &str) -> String {
    let hex: String = Sha256::digest(client)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!(
        "{}-{}-4{}-8{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[13..16],
        &hex[17..20],
        &hex[20..32]
    )
}

/// What a token says.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    pub(super) audience: String,
    pub(super) object: String,
    until: Instant,
}

/// All that are good.
#[derive(Default)]
pub(super) struct Tokens(RefCell<BTreeMap<String, Claims>>);

impl Tokens {
    /// A new token, in the form of a JWT.
    ///
    /// # Errors
    /// There is no randomness.
    pub(super) fn give(&self, client: &str, audience: &str, life: Duration) -> Result<String> {
        let mut random = [0; 32];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let object = object_id(client);
        let part = |value: serde_json::Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let header = part(json!({ "typ": "JWT", "alg": "RS256", "kid": "bed" }));
        let claims = part(json!({ "aud": audience, "appid": client, "oid": object, "groups": [GROUP] }));
        let token = format!("{header}.{claims}.{}", BASE64_URL_SAFE_NO_PAD.encode(random));
        let claims = Claims {
            audience: audience.to_owned(),
            object,
            until: Instant::now() + life,
        };
        self.0.borrow_mut().insert(token.clone(), claims);
        Ok(token)
    }

    /// What a token says, if it is one and good.
    pub(super) fn read(&self, token: &str) -> Option<Claims> {
        let mut all = self.0.borrow_mut();
        let now = Instant::now();
        all.retain(|_, claims| claims.until > now);
        all.get(token).cloned()
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_until_its_end() {
        let tokens = Tokens::default();
        let token = tokens.give("c", "a", Duration::from_secs(60)).unwrap();
        let ended = tokens.give("c", "a", Duration::ZERO).unwrap();
        assert_eq!(tokens.read(&token).unwrap().object, object_id("c"));
        assert!(tokens.read(&ended).is_none() && tokens.read("x").is_none());
        assert_eq!(object_id("c").len(), 36);
    }
}
