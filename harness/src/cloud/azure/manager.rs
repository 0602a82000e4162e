//! The resource manager, as far as agents ask it: a pool's bootstrap data.

use super::serve::{Answer, Asked, Server};

/// Whom its tokens are for.
const AUDIENCES: [&str; 2] = ["https://management.azure.com", "https://management.azure.com/"];

pub(super) fn answer(server: &Server, asked: &Asked<'_>) -> Answer {
    let refusal = |status, code: &str| Answer {
        status,
        body: serde_json::json!({ "error": { "code": code, "message": "by the bed: canary-arm-8wm3" } }),
    };
    let token = asked
        .head
        .header("authorization")
        .and_then(|value| value.strip_prefix("Bearer "));
    let known = token.and_then(|token| server.tokens.read(token));
    if !known.is_some_and(|claims| AUDIENCES.contains(&claims.audience.as_str())) {
        return refusal(401, "InvalidAuthenticationToken");
    }
    let lower = asked.path.to_lowercase();
    if asked.head.words()[0] != "POST" || !lower.ends_with("/listbootstrapdata") {
        return refusal(404, "NotFound");
    }
    match server.book.page(asked.from).bootstrap_data {
        Some(data) => Answer::good(data),
        None => refusal(403, "AuthorizationFailed"),
    }
}
