//! The edge against servers that answer as the real ones do, and as they shouldn't.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use url::Url;

use super::*;
use crate::model::Secret;

const TOKEN: &str = r#"{"access_token":"good","expires_in":"3600","token_type":"Bearer"}"#;

/// A server that gives the n-th request the n-th answer, and the last one from then on; `None` is silence.
struct Played {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Played {
    async fn new(answers: &'static [Option<(&'static str, &'static str)>]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = asked.clone();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 8192];
                let length = stream.read(&mut request).await.unwrap();
                let number = {
                    let mut heard = heard.lock().unwrap();
                    heard.push(String::from_utf8_lossy(&request[..length]).into_owned());
                    heard.len() - 1
                };
                match answers[number.min(answers.len() - 1)] {
                    Some((head, body)) => {
                        let length = body.len();
                        let answer =
                            format!("HTTP/1.1 {head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                    None => drop(tokio::spawn(async move {
                        let _held = stream;
                        std::future::pending::<()>().await;
                    })),
                }
            }
        });
        Self { url, asked }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    async fn token(&self, account: &Account) -> Result<Token, Error> {
        self.token_within(Duration::from_secs(20), account).await
    }

    async fn token_within(&self, total: Duration, account: &Account) -> Result<Token, Error> {
        let limits = Limits {
            total,
            one: total / 4,
            pause: Duration::from_millis(5),
            longest: Duration::from_millis(20),
            ..Limits::default()
        };
        let azure = Azure::played(rustls::RootCertStore::empty(), limits, Url::parse(&self.url).unwrap());
        azure.token(account, &Audience::of(AKS_SERVER)).await
    }

    fn principal(&self) -> Account {
        Account::Principal(Principal {
            authority: Authority::played(&self.url),
            tenant: "t".into(),
            client: "c".into(),
            proof: Proof::Secret(Secret::new("canary".into())),
        })
    }
}

#[tokio::test]
async fn azure_arc_gives_its_token_to_whoever_reads_the_answer_to_its_challenge() {
    let dir = tempfile::tempdir().unwrap();
    let host = hostexec::Host::rooted(dir.path());
    let account = Account::Arc(Keys::of(&host));
    const CHALLENGE: &str = "401 Unauthorized\r\nwww-authenticate: Basic realm=/var/opt/azcmagent/tokens/0a1b.key";
    let played = Played::new(&[Some((CHALLENGE, "")), Some(("200 OK", TOKEN))]).await;
    let key = hostexec::HostPath::fixed("/var/opt/azcmagent/tokens/0a1b.key");
    host.write(&key, b"canary-answer", 0o640).unwrap();
    let token = played.token(&account).await.unwrap();
    assert_eq!(token.value().reveal(), "good");
    let asked = played.asked();
    let path = "GET /metadata/identity/oauth2/token?api-version=2020-06-01&resource=6dae42f8-";
    assert!(
        asked.len() == 2 && asked.iter().all(|asked| asked.starts_with(path)),
        "{asked:?}"
    );
    let both: Vec<String> = asked.iter().map(|asked| asked.to_lowercase()).collect();
    assert!(both.iter().all(|asked| asked.contains("\r\nmetadata: true\r\n")));
    assert!(!both[0].contains("authorization") && both[1].contains("\r\nauthorization: basic canary-answer\r\n"));

    // Refused with its answer, or with a file elsewhere: it may pass, and nothing of it is shown.
    for (head, words) in [
        (CHALLENGE, "azcmagent show"),
        (
            "401 Unauthorized\r\nwww-authenticate: Basic realm=/etc/canary.key",
            "no file of its folder",
        ),
        ("401 Unauthorized", "no file of its folder"),
        ("404 Not Found", "HTTP status 404"),
    ] {
        let played = Played::new(Box::leak(Box::new([Some((head, ""))]))).await;
        let error = played.token_within(BRIEFLY, &account).await.unwrap_err();
        assert!(error.may_pass() && error.to_string().contains(words), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
    host.remove(&key).unwrap();
    let played = Played::new(&[Some((CHALLENGE, ""))]).await;
    let error = played.token_within(BRIEFLY, &account).await.unwrap_err();
    assert!(error.may_pass() && matches!(error, Error::Key(_)), "{error}");
}

const BRIEFLY: Duration = Duration::from_millis(400);
const MANAGED: Account = Account::Managed { client_id: None };

#[tokio::test]
async fn a_managed_identity_is_asked_for_with_the_header_that_no_redirect_carries() {
    let played = Played::new(&[Some(("200 OK", TOKEN))]).await;
    let token = played.token(&MANAGED).await.unwrap();
    assert_eq!(token.value().reveal(), "good");
    let asked = played.asked().remove(0);
    assert!(
        asked.starts_with("GET /metadata/identity/oauth2/token?api-version=2018-02-01&resource=6dae42f8-"),
        "{asked}"
    );
    assert!(asked.to_lowercase().contains("\r\nmetadata: true\r\n"), "{asked}");
}

#[tokio::test]
async fn a_principal_posts_its_form_to_its_tenant() {
    let played = Played::new(&[Some(("200 OK", TOKEN))]).await;
    played.token(&played.principal()).await.unwrap();
    let asked = played.asked().remove(0);
    assert!(asked.starts_with("POST /t/oauth2/v2.0/token HTTP/1.1\r\n"), "{asked}");
    assert!(asked.ends_with("&client_secret=canary"), "{asked}");
}

#[tokio::test]
async fn what_passes_is_asked_for_again_and_what_is_final_is_not() {
    let played = Played::new(&[
        Some(("429 Too Many Requests\r\nretry-after: 1", "")),
        Some(("503 Service Unavailable", "")),
        Some(("200 OK", "<html>")),
        Some(("200 OK", TOKEN)),
    ])
    .await;
    let begun = std::time::Instant::now();
    played.token(&MANAGED).await.unwrap();
    assert_eq!(played.asked().len(), 4);
    assert!(
        begun.elapsed() >= Duration::from_secs(1),
        "it did not wait as it was asked to"
    );

    let refused = r#"{"error":"invalid_request","error_description":"Identity not found"}"#;
    let played = Played::new(Box::leak(Box::new([Some(("400 Bad Request", refused))]))).await;
    let error = played.token(&MANAGED).await.unwrap_err();
    assert!(!error.may_pass() && error.to_string().contains("assign it"), "{error}");
    assert_eq!(played.asked().len(), 1);
}

#[tokio::test]
async fn a_wait_that_is_too_long_is_not_begun() {
    let played = Played::new(&[Some(("429 Too Many Requests\r\nretry-after: 60", ""))]).await;
    let begun = std::time::Instant::now();
    let error = played.token(&played.principal()).await.unwrap_err();
    assert!(error.may_pass() && begun.elapsed() < Duration::from_secs(1), "{error}");
    assert_eq!(played.asked().len(), 1);
}

#[tokio::test]
async fn nobody_is_followed_and_nothing_is_repeated() {
    let played = Played::new(&[Some(("302 Found\r\nlocation: /canary", "canary"))]).await;
    for account in [MANAGED, played.principal()] {
        let error = played.token_within(BRIEFLY, &account).await.unwrap_err();
        assert!(matches!(error, Error::Stranger { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains("canary"), "{error:?}");
    }
    assert!(played.asked().iter().all(|asked| !asked.contains("/canary")));
}

#[tokio::test]
async fn silence_ends_with_the_time_there_is() {
    let played = Played::new(&[None]).await;
    let begun = std::time::Instant::now();
    let error = played.token_within(BRIEFLY, &MANAGED).await.unwrap_err();
    assert!(error.to_string().contains("does not answer"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(played.asked().len() > 1);
}

#[tokio::test]
async fn where_nobody_is_the_remedy_names_what_else_there_is() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let nobody = Played {
        url,
        asked: Arc::default(),
    };
    let error = nobody.token_within(BRIEFLY, &MANAGED).await.unwrap_err();
    assert!(
        error.may_pass() && error.to_string().contains("azure.bootstrapToken"),
        "{error}"
    );
    let error = nobody.token_within(BRIEFLY, &nobody.principal()).await.unwrap_err();
    assert!(error.to_string().contains("name resolution"), "{error}");
    assert!(!format!("{error} {error:?}").contains(&nobody.url), "{error:?}");
}
