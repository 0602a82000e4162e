//! What the API server asks of a token that it does not know: as AKS has it asked. Source: Kubernetes, "Webhook Token Authentication".

use serde_json::{Value, json};

use super::tokens::{GROUP, Tokens};

/// Whom tokens for the cluster are for: the AKS server application.
const AUDIENCE: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";

pub(super) fn answer(tokens: &Tokens, body: &[u8]) -> Value {
    let asked: Value = serde_json::from_slice(body).unwrap_or_default();
    let token = asked["spec"]["token"].as_str().unwrap_or_default();
    let known = tokens.read(token).filter(|claims| claims.audience == AUDIENCE);
    let status = match known {
        Some(claims) => json!({ "authenticated": true, "user": { "username": claims.object, "groups": [GROUP] } }),
        None => json!({ "authenticated": false }),
    };
    json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "status": status })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_a_token_for_the_cluster_is_somebody() {
        let tokens = Tokens::default();
        let life = Duration::from_secs(60);
        let asked = |token: &str| answer(&tokens, json!({ "spec": { "token": token } }).to_string().as_bytes());
        let good = tokens.give("c", AUDIENCE, life).unwrap();
        assert_eq!(asked(&good)["status"]["user"]["groups"], json!([GROUP]));
        let other = tokens.give("c", "https://management.azure.com", life).unwrap();
        for bad in [other.as_str(), "abcdef.0123456789abcdef"] {
            assert_eq!(asked(bad)["status"], json!({ "authenticated": false }));
        }
    }
}
