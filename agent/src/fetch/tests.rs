//! Against a server that misbehaves on purpose.

use std::{
    io::{Read as _, Seek as _},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

/// In the parts of a URL that must not be shown.
const CANARY: &str = "sesame";

pub(crate) type Answer = fn(usize, &str) -> (Vec<u8>, Then);

pub(crate) enum Then {
    Close,
    Hang,
}

pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) asked: Arc<AtomicUsize>,
}

/// A server that answers the n-th request for a path with what `answer` says.
pub(crate) async fn server(answer: Answer) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let number = count.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default();
                let (bytes, then) = answer(number, path);
                stream.write_all(&bytes).await.unwrap();
                match then {
                    Then::Close => stream.shutdown().await.unwrap(),
                    Then::Hang => std::future::pending().await,
                }
            });
        }
    });
    Server { url, asked }
}

pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

fn status(line: &str) -> Vec<u8> {
    format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into_bytes()
}

pub(crate) fn fetcher() -> Fetcher {
    let quick = Limits {
        total: Duration::from_millis(600),
        idle: Duration::from_millis(300),
        bytes: 1000,
        pause: Duration::from_millis(5),
        ..Limits::default()
    };
    Fetcher::new(rustls::RootCertStore::empty(), quick).unwrap()
}

async fn get(url: &str) -> (Result<Digest, Error>, String) {
    let mut file = tempfile::tempfile().unwrap();
    let outcome = fetcher().file(url, &mut file).await;
    file.rewind().unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    (outcome, text)
}

/// The whole chain of an error, as it reaches the log.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    error
        .source()
        .map_or_else(|| error.to_string(), |source| format!("{error}: {}", chain(source)))
}

#[tokio::test]
async fn what_the_server_holds_is_in_the_file_with_its_digest() {
    let server = server(|_, _| (ok("kubelet"), Then::Close)).await;
    let (digest, text) = get(&server.url).await;
    assert_eq!((digest.unwrap(), text.as_str()), (Digest::of(b"kubelet"), "kubelet"));
}

#[tokio::test]
async fn a_server_that_is_back_at_the_second_try_is_good_enough_and_nothing_of_the_first_stays() {
    let server = server(|number, _| match number {
        0 => (
            b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\ntruncated, and longer".to_vec(),
            Then::Close,
        ),
        1 => (status("503 Service Unavailable"), Then::Close),
        _ => (ok("whole"), Then::Close),
    })
    .await;
    let (digest, text) = get(&server.url).await;
    assert_eq!((digest.unwrap(), text.as_str()), (Digest::of(b"whole"), "whole"));
}

#[tokio::test]
async fn what_is_not_there_is_asked_for_once() {
    let server = server(|_, _| (status("404 Not Found"), Then::Close)).await;
    let error = get(&server.url).await.0.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Status {
                status: StatusCode::NOT_FOUND,
                ..
            }
        ),
        "{error}"
    );
    assert_eq!(server.asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_truncated_file_is_an_error_after_every_try() {
    let server = server(|_, _| {
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart".to_vec(),
            Then::Close,
        )
    })
    .await;
    let error = get(&server.url).await.0.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error}");
    assert_eq!(server.asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn a_server_that_falls_silent_is_left_at_the_limit() {
    let server = server(|_, _| (b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\npart".to_vec(), Then::Hang)).await;
    let started = std::time::Instant::now();
    let error = get(&server.url).await.0.unwrap_err();
    assert!(matches!(error, Error::Transport { .. }), "{error}");
    assert!(started.elapsed() < Duration::from_secs(3));
}

#[tokio::test]
async fn a_file_that_never_ends_is_left_at_the_limit() {
    let server = server(|_, _| (ok(&"x".repeat(1001)), Then::Close)).await;
    let error = get(&server.url).await.0.unwrap_err();
    assert!(matches!(error, Error::Large { limit: 1000, .. }), "{error}");
}

#[tokio::test]
async fn a_redirect_is_followed() {
    let server = server(|_, path| match path {
        "/moved" => (ok("there"), Then::Close),
        _ => (
            b"HTTP/1.1 302 Found\r\nlocation: /moved\r\ncontent-length: 0\r\n\r\n".to_vec(),
            Then::Close,
        ),
    })
    .await;
    let (digest, text) = get(&server.url).await;
    assert_eq!((digest.is_ok(), text.as_str()), (true, "there"));
}

#[tokio::test]
async fn only_what_its_checksum_file_proves_is_taken() {
    let good = server(|_, path| match path {
        "/a.sha256" => (ok(&format!("{}  a\n", Digest::of(b"kubelet").hex())), Then::Close),
        _ => (ok("kubelet"), Then::Close),
    })
    .await;
    let bad = server(|_, path| match path {
        "/a.sha256" => (ok(&"0".repeat(64)), Then::Close),
        "/page.sha256" => (ok("<html>not found"), Then::Close),
        _ => (ok("kubelet"), Then::Close),
    })
    .await;
    let mut file = tempfile::tempfile().unwrap();
    let mut get = async |server: &Server, proof: &str| {
        fetcher()
            .proved_file(
                &format!("{}/a", server.url),
                &format!("{}{proof}", server.url),
                &mut file,
            )
            .await
    };
    assert_eq!(get(&good, "/a.sha256").await.unwrap(), Digest::of(b"kubelet"));
    assert!(matches!(
        get(&bad, "/a.sha256").await.unwrap_err(),
        Error::Mismatch { .. }
    ));
    assert!(matches!(
        get(&bad, "/page.sha256").await.unwrap_err(),
        Error::Checksum { .. }
    ));
}

#[tokio::test]
async fn na_r02_no_error_shows_user_info_query_or_fragment() {
    let server = server(|_, path| {
        let to = format!("http://user:{CANARY}@127.0.0.1:1/x?token={CANARY}");
        match path {
            path if path.starts_with("/moved") => (
                format!("HTTP/1.1 302 Found\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n").into_bytes(),
                Then::Close,
            ),
            _ => (status("403 Forbidden"), Then::Close),
        }
    })
    .await;
    let place = server.url.replace("http://", &format!("http://user:{CANARY}@"));
    for url in [
        format!("{place}/moved?sig={CANARY}#{CANARY}"),
        format!("{place}/refused?sig={CANARY}#{CANARY}"),
        format!("http://user:{CANARY}@127.0.0.1:1/closed?sig={CANARY}"),
        format!("ftp://{CANARY}"),
        format!("not a url {CANARY}"),
    ] {
        let error = get(&url).await.0.unwrap_err();
        assert!(
            !chain(&error).contains(CANARY) && !format!("{error:?}").contains(CANARY),
            "{error:?}"
        );
    }
}
