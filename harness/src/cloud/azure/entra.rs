//! Entra ID's token endpoint, for applications. Source: Microsoft identity platform, "OAuth 2.0 client credentials flow", "Application
//! authentication certificate credentials", error codes.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::SignatureScheme;
use tokio_rustls::rustls::crypto::ring;

use super::page::Principal;
use super::serve::{Answer, Asked, Server, value};
use super::tokens::now;

const LIFE: u64 = 3599;

pub(super) fn answer(server: &Server, asked: &Asked<'_>) -> Result<Answer> {
    let form = |name| value(asked.body, name).unwrap_or_default();
    let tenant = asked
        .path
        .strip_suffix("/oauth2/v2.0/token")
        .and_then(|path| path.strip_prefix('/'));
    let Some(tenant) = tenant else {
        return Ok(refusal(404, "invalid_request", 900_144, "no such endpoint"));
    };
    let page = server.book.page(asked.from);
    let known = page.principal.filter(|known| known.tenant == tenant);
    let Some(known) = known else {
        return Ok(refusal(400, "invalid_request", 90_002, "Tenant not found"));
    };
    if known.client != form("client_id") {
        return Ok(refusal(
            400,
            "unauthorized_client",
            700_016,
            "Application was not found in the directory",
        ));
    }
    if form("grant_type") != "client_credentials" {
        return Ok(refusal(
            400,
            "unsupported_grant_type",
            70_003,
            "The grant type is not supported",
        ));
    }
    let proved = match form("client_assertion") {
        none if none.is_empty() => known
            .secret
            .as_ref()
            .is_some_and(|secret| *secret == form("client_secret")),
        assertion => signed(&known, &assertion).is_ok(),
    };
    if !proved {
        let number = if known.secret.is_some() { 7_000_215 } else { 700_027 };
        return Ok(refusal(
            401,
            "invalid_client",
            number,
            "Invalid client secret or assertion provided",
        ));
    }
    let scope = form("scope");
    let Some(audience) = scope.strip_suffix("/.default") else {
        return Ok(refusal(400, "invalid_scope", 70_011, "The scope is not valid"));
    };
    let life = page.life_seconds.unwrap_or(LIFE);
    let token = server.tokens.give(&known.client, audience, Duration::from_secs(life))?;
    Ok(Answer::good(json!({
        "token_type": "Bearer",
        "expires_in": life,
        "ext_expires_in": life,
        "access_token": token,
    })))
}

/// With a trace, as the real one's: whoever repeats it whole repeats this.
fn refusal(status: u16, error: &str, number: u32, words: &str) -> Answer {
    let mut answer = Answer::refusal(
        status,
        error,
        &format!("AADSTS{number}: {words}. Trace ID: 7a1c Correlation ID: canary-trace-5tq1"),
    );
    answer.body["error_codes"] = json!([number]);
    answer
}

/// Whether a JWT was signed now by the key of the application's certificate.
fn signed(known: &Principal, assertion: &str) -> Result<()> {
    let certificate = known.certificate.as_ref().context("it has no certificate")?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes())?;
    let parsed = pem.parse_x509()?;
    let (message, signature) = assertion.rsplit_once('.').context("no signature")?;
    let (header, claims) = message.split_once('.').context("no claims")?;
    let part = |text: &str| -> Result<Value> { Ok(serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(text)?)?) };
    let (header, claims) = (part(header)?, part(claims)?);
    let thumbprint = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(&pem.contents));
    let audience = format!("https://login.microsoftonline.com/{}/oauth2/v2.0/token", known.tenant);
    anyhow::ensure!(header["alg"] == "PS256" && header["x5t#S256"] == thumbprint.as_str());
    anyhow::ensure!(claims["aud"] == audience.as_str() && claims["iss"] == known.client.as_str());
    anyhow::ensure!(claims["sub"] == claims["iss"] && claims["exp"].as_u64() > Some(now()));
    let algorithms = ring::default_provider().signature_verification_algorithms;
    let algorithm = algorithms
        .mapping
        .iter()
        .find(|(scheme, _)| *scheme == SignatureScheme::RSA_PSS_SHA256)
        .context("no such algorithm")?;
    let signature = BASE64_URL_SAFE_NO_PAD.decode(signature)?;
    let key = &parsed.public_key().subject_public_key.data;
    algorithm.1[0]
        .verify_signature(key, message.as_bytes(), &signature)
        .map_err(|_| anyhow::anyhow!("another key"))
}
