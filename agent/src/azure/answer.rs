//! What an answer means; pure.

use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::remedy::{self, Meaning};
use super::{Error, Token, Whom};

/// An answer as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub(super) status: u16,
    pub(super) retry_after: Option<&'a str>,
    pub(super) body: &'a [u8],
}

/// An end of one try.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) error: Error,
    /// How long to wait at least, where the answer says so.
    pub(super) wait: Option<Duration>,
}

/// What both give out. Times are numbers here and strings there.
#[derive(Deserialize)]
struct Given {
    access_token: String,
    token_type: Option<String>,
    expires_in: Option<Value>,
    expires_on: Option<Value>,
}

/// What both refuse with. Source: RFC 6749, 5.2.
#[derive(Deserialize)]
struct Refusal {
    error: String,
    #[serde(default)]
    error_description: String,
    #[serde(default)]
    error_codes: Vec<u32>,
}

/// The longest life that is believed: a managed identity's token has a day.
const LONGEST: u64 = 7 * 24 * 3600;

/// Reads the answer to a request that went out at `asked`.
pub(super) fn token(whom: Whom, answer: &Answer<'_>, asked: Timestamp) -> Result<Token, Failure> {
    match answer.status {
        200 => given(answer.body, asked).map_err(|what| stranger(whom, what.to_owned())),
        status => Err(refused(whom, status, answer)),
    }
}

fn given(body: &[u8], asked: Timestamp) -> Result<Token, &'static str> {
    let given: Given = serde_json::from_slice(body).map_err(|_| "its answer holds no token")?;
    // It becomes a header, and a line of JSON that kubelet reads.
    let value = given.access_token;
    if value.is_empty() || !value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("its answer holds no token");
    }
    if given
        .token_type
        .is_some_and(|kind| !kind.eq_ignore_ascii_case("bearer"))
    {
        return Err("its token is not a bearer's");
    }
    // The distance before the time: it holds also where the host's clock is wrong.
    let life = match (given.expires_in.as_ref().and_then(number), given.expires_on.as_ref()) {
        (Some(life), _) => Some(life),
        (None, Some(end)) => number(end).map(|end| end.saturating_sub(asked.as_second().unsigned_abs())),
        (None, None) => None,
    };
    match life {
        None => Err("its answer does not say when the token ends"),
        Some(0) => Err("its token has ended already, or the host's clock is wrong"),
        Some(life) => Ok(Token::new(value, asked, Duration::from_secs(life.min(LONGEST)))),
    }
}

fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn refused(whom: Whom, status: u16, answer: &Answer<'_>) -> Failure {
    const AGAIN: &str = "it is asked again";
    let wait = wait(answer);
    let said: Option<Refusal> = serde_json::from_slice(answer.body).ok();
    let busy = |remedy| Failure {
        error: Error::Busy {
            whom,
            code: code(status, said.as_ref()),
            remedy,
        },
        wait,
    };
    match (whom, status) {
        (_, 429) => return busy("it is asked too often; it is asked again"),
        (_, 408 | 500..) => return busy(AGAIN),
        (Whom::Metadata, 404 | 410) => return busy("it is being updated, for 70 s at most; it is asked again"),
        // Its challenge was answered.
        (Whom::Arc, 401 | 403) => return busy(remedy::ARC),
        (Whom::Metadata | Whom::Entra | Whom::Manager | Whom::Arc, _) => {}
    }
    // Only what speaks as they do can say no for good.
    let Some(said) = &said else {
        return stranger(whom, format!("HTTP status {status}"));
    };
    let meaning = match whom {
        Whom::Metadata => remedy::of_metadata(&said.error, &said.error_description),
        Whom::Arc => remedy::of_arc(&said.error, &said.error_description),
        Whom::Entra | Whom::Manager => remedy::of_entra(aadsts(said), &said.error),
    };
    match meaning {
        Meaning::Passing(remedy) => busy(remedy),
        Meaning::Final(remedy) => Failure {
            error: Error::Refused {
                whom,
                code: code(status, Some(said)),
                remedy,
            },
            wait: None,
        },
    }
}

/// How long it asks to be left alone, in seconds. A date is one more clock to differ with.
pub(super) fn wait(answer: &Answer<'_>) -> Option<Duration> {
    let seconds = answer.retry_after?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

pub(super) fn stranger(whom: Whom, what: String) -> Failure {
    Failure {
        error: Error::Stranger { whom, what },
        wait: None,
    }
}

/// `HTTP status 401, invalid_client, AADSTS7000215`: as much of it as was said in the form that is documented.
fn code(status: u16, said: Option<&Refusal>) -> String {
    let mut code = format!("HTTP status {status}");
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if let Some(said) = said {
        if !said.error.is_empty() && said.error.len() <= 40 && said.error.bytes().all(plain) {
            code.push_str(&format!(", {}", said.error));
        }
        if let Some(number) = aadsts(said) {
            code.push_str(&format!(", AADSTS{number}"));
        }
    }
    code
}

/// Entra ID's own number for it; the metadata service repeats it in words alone.
fn aadsts(said: &Refusal) -> Option<u32> {
    let written = || {
        let (_, after) = said.error_description.split_once("AADSTS")?;
        let end = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        after[..end].parse().ok()
    };
    said.error_codes.first().copied().or_else(written)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn answer(whom: Whom, status: u16, retry_after: Option<&str>, body: &str) -> Result<Token, Failure> {
        let answer = Answer {
            status,
            retry_after,
            body: body.as_bytes(),
        };
        token(whom, &answer, Timestamp::from_second(NOW).unwrap())
    }

    fn failure(whom: Whom, status: u16, body: &Value) -> Failure {
        answer(whom, status, Some("7"), &body.to_string()).unwrap_err()
    }

    #[test]
    fn times_are_numbers_or_strings_and_a_distance_counts_before_a_date() {
        for (times, end) in [
            (json!({"expires_in": "3599", "expires_on": "1"}), NOW + 3599),
            (json!({"expires_in": 600}), NOW + 600),
            (json!({"expires_on": (NOW + 100).to_string()}), NOW + 100),
            (json!({"expires_on": NOW + 100}), NOW + 100),
            (json!({"expires_in": u64::MAX}), NOW + 7 * 24 * 3600),
        ] {
            let mut body = json!({"access_token": "a.b-c_d", "token_type": "Bearer", "resource": "x"});
            body.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
            let token = answer(Whom::Metadata, 200, None, &body.to_string()).unwrap();
            assert_eq!(token.value().reveal(), "a.b-c_d");
            let margin = 60.min((end - NOW) / 10);
            assert_eq!(token.usable_until().as_second(), end - margin, "{times}");
        }
    }

    #[test]
    fn an_answer_that_is_none_is_another_ones_and_may_pass() {
        for body in [
            "",
            "<html>canary</html>",
            "{}",
            r#"{"access_token": 5, "expires_in": 5}"#,
            r#"{"access_token": "", "expires_in": 5}"#,
            r#"{"access_token": "can ary", "expires_in": 5}"#,
            r#"{"access_token": "canary\n", "expires_in": 5}"#,
            r#"{"access_token": "canary"}"#,
            r#"{"access_token": "canary", "expires_in": "soon"}"#,
            r#"{"access_token": "canary", "expires_in": 0}"#,
            r#"{"access_token": "canary", "expires_on": 5}"#,
            r#"{"access_token": "canary", "expires_in": 5, "token_type": "pop"}"#,
        ] {
            let failure = answer(Whom::Entra, 200, None, body).unwrap_err();
            assert!(matches!(failure.error, Error::Stranger { .. }) && failure.error.may_pass());
            assert!(!format!("{failure:?} {}", failure.error).contains("canary"), "{body}");
        }
        for status in [302, 401, 403, 407] {
            let failure = answer(Whom::Metadata, status, None, "canary").unwrap_err();
            assert!(matches!(failure.error, Error::Stranger { .. }), "{status}");
        }
    }

    #[test]
    fn what_passes_says_how_long_to_wait() {
        let nothing = json!({});
        for (whom, status) in [
            (Whom::Metadata, 404),
            (Whom::Metadata, 410),
            (Whom::Metadata, 429),
            (Whom::Metadata, 500),
            (Whom::Entra, 429),
            (Whom::Entra, 503),
            (Whom::Entra, 504),
        ] {
            let failure = failure(whom, status, &nothing);
            assert!(matches!(failure.error, Error::Busy { .. }), "{whom} {status}");
            assert_eq!(failure.wait, Some(Duration::from_secs(7)));
        }
        let dated = answer(Whom::Entra, 429, Some("Fri, 31 Dec 1999 23:59:59 GMT"), "").unwrap_err();
        assert_eq!(dated.wait, None);
    }

    #[test]
    fn a_refusal_has_its_code_its_number_and_a_remedy_and_nothing_else_of_what_was_said() {
        for (number, error, words) in [
            (7_000_215, "invalid_client", "clientSecret"),
            (7_000_222, "invalid_client", "expired"),
            (700_016, "unauthorized_client", "clientId"),
            (90_002, "invalid_request", "tenantId"),
            (700_027, "invalid_client", "registration"),
            (53_003, "access_denied", "Conditional Access"),
            (999_999, "invalid_scope", "https://login.microsoftonline.com/error"),
        ] {
            let said = json!({
                "error": error, "error_codes": [number], "correlation_id": "canary",
                "error_description": format!("AADSTS{number}: canary. Trace ID: canary"),
            });
            let failure = failure(Whom::Entra, 401, &said);
            let text = failure.error.to_string();
            assert!(!failure.error.may_pass() && failure.wait.is_none(), "{text}");
            assert!(
                text.contains(&format!("(HTTP status 401, {error}, AADSTS{number})")),
                "{text}"
            );
            assert!(text.contains(words) && !text.contains("canary"), "{text}");
        }
    }

    #[test]
    fn a_clock_or_a_busy_directory_may_be_better_later() {
        for (number, error) in [
            (700_024, "invalid_client"),
            (90_033, "invalid_request"),
            (0, "temporarily_unavailable"),
        ] {
            let said = json!({"error": error, "error_description": "", "error_codes": [number]});
            assert!(failure(Whom::Entra, 400, &said).error.may_pass(), "{number}");
        }
    }

    #[test]
    fn the_metadata_service_is_understood_by_its_words() {
        for (error, description, words) in [
            ("invalid_request", "Identity not found", "assign it"),
            (
                "invalid_request",
                "Multiple user assigned identities exist, please specify the clientId",
                "choose one",
            ),
            ("invalid_resource", "AADSTS50001: canary", "AADSTS50001"),
            (
                "bad_request_102",
                "Required metadata header not specified",
                "azure.managedIdentity",
            ),
        ] {
            let failure = failure(
                Whom::Metadata,
                400,
                &json!({"error": error, "error_description": description}),
            );
            let text = failure.error.to_string();
            assert!(!failure.error.may_pass() && text.contains(words), "{text}");
            assert!(text.contains(error) && !text.contains("canary"), "{text}");
        }
    }

    #[test]
    fn a_code_in_another_form_than_a_codes_is_not_repeated() {
        for error in ["", "Can ary", "canary!", &"c".repeat(41)] {
            let failure = failure(Whom::Entra, 400, &json!({"error": error}));
            assert!(
                failure.error.to_string().contains("(HTTP status 400)"),
                "{}",
                failure.error
            );
        }
    }
}
