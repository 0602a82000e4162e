//! The metadata service's part that gives tokens of managed identities. Source: "How to use managed identities on an Azure VM to acquire an access token".

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::serve::{Answer, Asked, Server, value};
use super::tokens::now;

/// A day: as long as the real ones are good for.
const LIFE: u64 = 24 * 3600 - 1;

pub(super) fn answer(server: &Server, asked: &Asked<'_>) -> Result<Answer> {
    let bad = |description| Ok(Answer::refusal(400, "invalid_request", description));
    if asked.head.header("metadata") != Some("true") || asked.head.header("x-forwarded-for").is_some() {
        return bad("Required metadata header not specified");
    }
    if asked.path != "/metadata/identity/oauth2/token" {
        return Ok(Answer::refusal(404, "not_found", "no such resource"));
    }
    let query = |name| value(asked.query.as_bytes(), name);
    if query("api-version").as_deref() != Some("2018-02-01") {
        return bad("Bad api-version");
    }
    let Some(resource) = query("resource") else {
        return bad("Required audience parameter not specified");
    };
    let page = server.book.page(asked.from);
    let client = match (query("client_id"), page.managed.as_slice()) {
        (Some(wanted), known) if known.contains(&wanted) => wanted,
        (None, [only]) => only.clone(),
        (None, [_, ..]) => {
            return bad(
                "Multiple user assigned identities exist, please specify the clientId / resourceId of the identity in the token request",
            );
        }
        (Some(_), _) | (None, []) => return bad("Identity not found"),
    };
    let life = page.life_seconds.unwrap_or(LIFE);
    let token = server.tokens.give(&client, &resource, Duration::from_secs(life))?;
    Ok(Answer::good(json!({
        "access_token": token,
        "client_id": client,
        "expires_in": life.to_string(),
        "expires_on": (now() + life).to_string(),
        "ext_expires_in": life.to_string(),
        "not_before": now().to_string(),
        "resource": resource,
        "token_type": "Bearer",
    })))
}
