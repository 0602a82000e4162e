//! The server itself: three doors, one request a connection, and who answers it.

use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::page::{Book, How, Who};
use super::request::Request;
use super::tokens::Tokens;
use super::{Azure, MANAGER, METADATA, REVIEW, entra, manager, metadata, review};
use crate::cloud::http::{self, Head};
use crate::cloud::log;

/// The longest body that is read.
const LONGEST: usize = 256 << 10;

/// What an answerer is handed.
pub(super) struct Asked<'a> {
    pub(super) from: &'a str,
    pub(super) head: &'a Head,
    pub(super) path: &'a str,
    pub(super) query: &'a str,
    pub(super) body: &'a [u8],
}

/// An answer.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Answer {
    pub(super) fn good(body: Value) -> Self {
        Self { status: 200, body }
    }

    /// As RFC 6749 has it, 5.2.
    pub(super) fn refusal(status: u16, error: &str, description: &str) -> Self {
        Self {
            status,
            body: json!({ "error": error, "error_description": description }),
        }
    }
}

pub(super) struct Server {
    pub(super) book: Book,
    pub(super) tokens: Tokens,
}

/// Serves until it is asked to stop.
///
/// # Errors
/// A port is taken, or its certificate was not made.
pub(crate) async fn serve(azure: &Azure) -> Result<()> {
    let folder = azure.folder();
    let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_file(folder.join("tls.crt"))?],
            PrivateKeyDer::from_pem_file(folder.join("tls.key"))?,
        )?;
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let server = Rc::new(Server {
        book: Book::of(azure.pages()),
        tokens: Tokens::default(),
    });
    let names = TcpListener::bind(format!("{}:443", Azure::address(&azure.net))).await?;
    let metadata = TcpListener::bind(METADATA).await?;
    let review = TcpListener::bind(REVIEW).await?;
    let mut stop = signal(SignalKind::terminate())?;
    loop {
        let server = server.clone();
        // Cancelled, an accept loses no connection.
        tokio::select! {
            Ok((stream, peer)) = metadata.accept() => {
                tokio::task::spawn_local(async move {
                    told(server.answer(stream, &peer.ip().to_string(), Some(Who::Metadata)).await);
                });
            }
            Ok((stream, peer)) = names.accept() => {
                let acceptor = acceptor.clone();
                tokio::task::spawn_local(async move {
                    told(server.enter(stream, acceptor, &peer.ip().to_string()).await);
                });
            }
            Ok((stream, _)) = review.accept() => {
                tokio::task::spawn_local(async move { told(server.review(stream).await) });
            }
            _ = stop.recv() => return Ok(()),
        }
    }
}

fn told(ended: Result<()>) {
    if let Err(error) = ended {
        eprintln!("{error:#}");
    }
}

impl Server {
    async fn enter(&self, stream: TcpStream, acceptor: TlsAcceptor, from: &str) -> Result<()> {
        let stream = acceptor
            .accept(stream)
            .await
            .with_context(|| format!("TLS with {from}"))?;
        self.answer(stream, from, None).await
    }

    /// Answers one request; `None` is who the request says.
    async fn answer(&self, mut stream: impl AsyncRead + AsyncWrite + Unpin, from: &str, of: Option<Who>) -> Result<()> {
        let Some((head, body)) = read(&mut stream).await? else {
            return Ok(());
        };
        let target = head.words()[1].to_owned();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let host = head.header("host").unwrap_or_default();
        let of = of.unwrap_or(if host == MANAGER { Who::Manager } else { Who::Entra });
        let asked = Asked {
            from,
            head: &head,
            path,
            query,
            body: &body,
        };
        let mut log = Request {
            from: from.to_owned(),
            of,
            path: path.to_owned(),
            status: 0,
        };
        let (answer, wait) = match self.book.how(from, of) {
            Some(How::Silence) => {
                log::write(&log);
                // It ends when the other end has had enough.
                let _ = stream.read(&mut [0]).await;
                return Ok(());
            }
            Some(How::Stranger) => {
                let page = "<html><body>Sign in to the network</body></html>";
                log.status = 200;
                log::write(&log);
                return send(&mut stream, 200, "text/html", None, page).await;
            }
            Some(How::Status(status, wait)) => (Answer::refusal(status, "temporarily_unavailable", "by the bed"), wait),
            Some(How::Refusal(status, error, description)) => (Answer::refusal(status, &error, &description), None),
            None => {
                let answer = match of {
                    Who::Metadata => metadata::answer(self, &asked)?,
                    Who::Entra => entra::answer(self, &asked)?,
                    Who::Manager => manager::answer(self, &asked),
                };
                (answer, None)
            }
        };
        log.status = answer.status;
        log::write(&log);
        send(
            &mut stream,
            answer.status,
            "application/json",
            wait,
            &answer.body.to_string(),
        )
        .await
    }

    async fn review(&self, mut stream: TcpStream) -> Result<()> {
        let Some((_, body)) = read(&mut stream).await? else {
            return Ok(());
        };
        let answer = review::answer(&self.tokens, &body);
        send(&mut stream, 200, "application/json", None, &answer.to_string()).await
    }
}

/// A request with its body; none when the other end has gone.
async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<(Head, Vec<u8>)>> {
    let Some((head, mut body)) = http::read(stream).await else {
        return Ok(None);
    };
    let length = head.header("content-length").map_or(Ok(0), str::parse::<usize>)?;
    while body.len() < length.min(LONGEST) {
        if stream.read_buf(&mut body).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some((head, body)))
}

async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    status: u16,
    kind: &str,
    wait: Option<u32>,
    body: &str,
) -> Result<()> {
    let mut head = Head::new(format!("HTTP/1.1 {status} Bed"))
        .with("Content-Type", kind)
        .with("Content-Length", body.len())
        .with("Connection", "close");
    if let Some(seconds) = wait {
        head = head.with("Retry-After", seconds);
    }
    stream.write_all(&[&head.bytes(), body.as_bytes()].concat()).await?;
    stream.flush().await?;
    Ok(stream.shutdown().await?)
}

/// A value of a form or a query.
pub(super) fn value(form: &[u8], name: &str) -> Option<String> {
    let mut pairs = url::form_urlencoded::parse(form);
    pairs
        .find(|(known, _)| known == name)
        .map(|(_, value)| value.into_owned())
}
