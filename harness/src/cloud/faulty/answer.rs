//! Answers and parts of them, as they go over the wire; pure.

use serde_json::json;

use super::fault::{Redirect, SIGNATURE};
use super::{HOST, PLAIN_PORT, PORT};
use crate::cloud::http::Head;

/// An answer that is in memory.
pub(super) struct Answer {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

/// A refusal. Its body says more than may be repeated. Source: distribution-spec, "Error Codes".
pub(super) fn refusal(status: u16) -> Answer {
    let code = match status {
        401 => "UNAUTHORIZED",
        403 => "DENIED",
        404 => "MANIFEST_UNKNOWN",
        429 => "TOOMANYREQUESTS",
        _ => "UNKNOWN",
    };
    let body = json!({ "errors": [{ "code": code, "message": format!("see https://{HOST}/?{SIGNATURE}") }] });
    let head = Head::new(format!("HTTP/1.1 {status} As The Bed Wants It"));
    Answer {
        head: if status == 429 {
            head.with("Retry-After", 1)
        } else {
            head
        },
        body: body.to_string().into_bytes(),
    }
}

/// What one hears who comes without a token. Source: distribution, "Token Authentication Specification".
pub(super) fn challenge(path: &str) -> Answer {
    let answer = refusal(401);
    let repository = path.strip_prefix("/v2/").unwrap_or_default();
    let repository = repository.split("/manifests/").next().unwrap_or_default();
    let repository = repository.split("/blobs/").next().unwrap_or_default();
    let scope = match repository {
        "" => String::new(),
        name => format!(",scope=\"repository:{name}:pull\""),
    };
    let realm = format!("Bearer realm=\"https://{HOST}:{PORT}/token\",service=\"{HOST}\"{scope}");
    Answer {
        head: answer.head.with("WWW-Authenticate", realm),
        ..answer
    }
}

pub(super) fn token(token: &str) -> Answer {
    let body = json!({ "token": token, "access_token": token, "expires_in": 300 });
    Answer {
        head: Head::new("HTTP/1.1 200 OK"),
        body: body.to_string().into_bytes(),
    }
}

/// Leads somebody who asked for that path and query to another address.
pub(super) fn redirect(to: Redirect, path: &str, query: &str) -> Answer {
    let location = match to {
        Redirect::Loop => {
            let hop = query.rsplit("hop=").next().and_then(|hop| hop.parse().ok());
            format!(
                "https://{HOST}:{PORT}{path}?signature={SIGNATURE}&hop={}",
                hop.unwrap_or(0_u32) + 1
            )
        }
        Redirect::Plain => format!("http://{HOST}:{PLAIN_PORT}{path}?signature={SIGNATURE}"),
        Redirect::Signed => format!("https://{HOST}:{PORT}{path}?signature={SIGNATURE}"),
    };
    Answer {
        head: Head::new("HTTP/1.1 307 Temporary Redirect").with("Location", location),
        body: Vec::new(),
    }
}

/// The registry's head as ours: another version, and no word on the connection.
pub(super) fn handed_on(mut head: Head) -> Head {
    let [_, status, reason] = head.words();
    head.line = format!("HTTP/1.1 {status} {reason}");
    head.without("connection")
}

/// Where a part of something begins, and the size of the whole. Source: RFC 9110, 14.4: `bytes FIRST-LAST/ALL`.
pub(super) fn range(head: &Head) -> Option<(u64, u64)> {
    let (range, all) = head.header("content-range")?.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, all.parse().ok()?))
}

/// A piece of a body without a length. Source: RFC 9112, 7.1.
pub(super) fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_names_the_token_service_and_what_the_token_is_for() {
        let head = challenge("/v2/a/agent/manifests/sha256:00").head;
        assert_eq!(
            head.header("www-authenticate").unwrap(),
            "Bearer realm=\"https://faulty.test:5001/token\",service=\"faulty.test\",scope=\"repository:a/agent:pull\""
        );
        assert!(
            !challenge("/v2/")
                .head
                .header("www-authenticate")
                .unwrap()
                .contains("scope")
        );
    }

    #[test]
    fn every_hop_of_a_loop_is_another_address() {
        let first = redirect(Redirect::Loop, "/v2/a", "").head;
        let (_, query) = first.header("location").unwrap().split_once('?').unwrap();
        assert!(query.ends_with("hop=1"));
        let second = redirect(Redirect::Loop, "/v2/a", query).head;
        assert!(second.header("location").unwrap().ends_with("hop=2"));
    }

    #[test]
    fn a_part_says_where_it_begins() {
        let part = Head::new("HTTP/1.0 206 Partial Content").with("Content-Range", "bytes 5-9/10");
        assert_eq!(range(&part), Some((5, 10)));
        assert_eq!(range(&handed_on(Head::new("HTTP/1.0 200 OK"))), None);
        assert_eq!(chunk(b"ab"), b"2\r\nab\r\n");
    }
}
