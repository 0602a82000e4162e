//! The server itself: connections, what they ask for, and what they get.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::answer::{self, Answer};
use super::book::Book;
use super::fault::{At, Door, How, Kind, Redirect, SIGNATURE};
use super::request::Request;
use super::wire::Wire;
use super::{DOORS, Faulty, PLAIN_PORT, PORT, certificates, registry};
use crate::cloud::http::{self, Head};
use crate::cloud::log;

/// What is sent at once.
const PIECE: usize = 64 << 10;
/// How often a connection that is slow or held looks whether it was healed.
const LOOK: Duration = Duration::from_millis(50);
/// The looks of a second.
const LOOKS: u64 = 20;
/// How many bytes an endless body has a second: whoever gathers it must not fill the machine's memory before a check sees it.
const ENDLESS: u64 = 4 << 20;
/// The largest document that is read here.
const DOCUMENT: u64 = 4 << 20;

struct Server {
    book: Book,
    /// Digests that some manifest has called its config.
    configs: RefCell<BTreeSet<String>>,
    doors: Vec<(Door, TlsAcceptor)>,
    registry: SocketAddr,
    connector: TlsConnector,
}

/// Serves until it is asked to stop.
///
/// # Errors
/// A port is taken, or a certificate was not made.
pub(crate) async fn serve(faulty: &Faulty) -> Result<()> {
    let folder = faulty.folder();
    let mut doors = Vec::new();
    for door in DOORS {
        doors.push((door, TlsAcceptor::from(certificates::config(&folder, door)?)));
    }
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(folder.join("ca.crt"))?)?;
    let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address = |port| format!("{}:{port}", faulty.net.gateway());
    let server = Rc::new(Server {
        book: Book::of(faulty.faults()),
        configs: RefCell::default(),
        doors,
        registry: address(registry::PORT).parse()?,
        connector: TlsConnector::from(Arc::new(client)),
    });
    let plain = TcpListener::bind(address(PLAIN_PORT)).await?;
    let tls = TcpListener::bind(address(PORT)).await?;
    let mut stop = signal(SignalKind::terminate())?;
    loop {
        // Cancelled, an accept loses no connection.
        tokio::select! {
            Ok((stream, peer)) = tls.accept() => {
                let server = server.clone();
                tokio::task::spawn_local(async move { server.enter(stream, peer.ip().to_string()).await });
            }
            Ok((stream, peer)) = plain.accept() => {
                let server = server.clone();
                tokio::task::spawn_local(async move {
                    server.requests(Wire::Plain(stream), peer.ip().to_string()).await;
                });
            }
            _ = stop.recv() => return Ok(()),
        }
    }
}

/// What somebody wants.
struct Asked {
    head: Head,
    kind: Kind,
    query: String,
    /// The fault that was set when it came: it is healed when another one is, or none.
    set: Option<String>,
    /// As it is to be logged; filled in as it goes.
    request: Request,
}

/// How a connection is after an answer.
enum Then {
    /// Another request may come.
    Next(Wire),
    /// It is over.
    Over,
}

/// How a wait ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Held {
    Healed,
    Gone,
}

impl Server {
    /// A connection from its beginning.
    async fn enter(&self, stream: TcpStream, from: String) {
        let door = self.book.door(&from);
        let mut request = Request {
            from: from.clone(),
            ..Request::default()
        };
        let acceptor = self.doors.iter().find(|(known, _)| *known == door);
        let Some((_, acceptor)) = acceptor else {
            request.held = true;
            log::write(&request);
            return self.mute(Wire::Plain(stream), &from).await;
        };
        match acceptor.accept(stream).await {
            Ok(stream) => self.requests(Wire::Tls(Box::new(stream)), from).await,
            Err(error) => {
                request.error = Some(error.to_string());
                log::write(&request);
            }
        }
    }

    /// Takes what is said, says nothing, and hangs up when it is healed.
    async fn mute(&self, mut wire: Wire, from: &str) {
        let set = self.book.number(from);
        while self.book.number(from) == set {
            // Cancelled, it has read nothing.
            tokio::select! {
                gone = wire.gone() => if gone { return },
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    async fn requests(&self, mut wire: Wire, from: String) {
        while let Some(head) = wire.head().await {
            let mut asked = self.asked(head, &from, wire.is_plain());
            let then = self.answer(wire, &mut asked).await;
            if let Err(error) = &then {
                asked.request.error = Some(format!("{error:#}"));
            }
            asked.request.held = false;
            log::write(&asked.request);
            match then {
                Ok(Then::Next(next)) => wire = next,
                Ok(Then::Over) | Err(_) => return,
            }
        }
    }

    fn asked(&self, head: Head, from: &str, plain: bool) -> Asked {
        let target = head.words()[1].to_owned();
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let blob = path.rsplit_once("/blobs/").map(|(_, digest)| digest);
        let kind = match blob {
            _ if query.contains(SIGNATURE) => Kind::Signed,
            Some(digest) if self.configs.borrow().contains(digest) => Kind::Config,
            Some(_) => Kind::Layer,
            None if path.contains("/manifests/") => Kind::Manifest,
            None if path == "/token" => Kind::Token,
            None => Kind::Greeting,
        };
        let request = Request {
            from: from.to_owned(),
            path: path.to_owned(),
            kind: Some(kind),
            plain,
            ..Request::default()
        };
        Asked {
            query: query.to_owned(),
            head,
            kind,
            set: self.book.number(from),
            request,
        }
    }

    async fn answer(&self, mut wire: Wire, asked: &mut Asked) -> Result<Then> {
        let from = asked.request.from.clone();
        let open = matches!(asked.kind, Kind::Token | Kind::Signed);
        if !open && self.book.guard(&from).is_some() && !self.may(&from, &asked.head) {
            let answer = answer::challenge(&asked.request.path);
            return say(wire, asked, answer).await;
        }
        let mut how = if asked.query.contains("hop=") && asked.set.is_some() {
            Some(How::Redirect(Redirect::Loop))
        } else {
            self.book.how(&from, asked.kind)
        };
        asked.request.how = how;
        match how {
            Some(How::Status(status)) => return say(wire, asked, answer::refusal(status)).await,
            Some(How::Redirect(to)) => {
                let answer = answer::redirect(to, &asked.request.path, &asked.query);
                return say(wire, asked, answer).await;
            }
            Some(How::Hold(At::Byte(0) | At::Percent(0))) => {
                if self.hold(&mut wire, asked).await == Held::Gone {
                    return Ok(Then::Over);
                }
                how = None;
            }
            Some(How::Reset(At::Byte(0) | At::Percent(0))) => {
                wire.reset().await;
                return Ok(Then::Over);
            }
            Some(
                How::Reset(_)
                | How::Hold(_)
                | How::Slow(_)
                | How::Short(_)
                | How::Flip(_)
                | How::Longer(_)
                | How::Endless,
            )
            | None => {}
        }
        if asked.kind == Kind::Token {
            let answer = self.token(&from, &asked.head);
            return say(wire, asked, answer).await;
        }
        self.forward(wire, asked, how).await
    }

    /// Whether a request bears a token that is good.
    fn may(&self, from: &str, head: &Head) -> bool {
        let token = head
            .header("authorization")
            .and_then(|value| value.strip_prefix("Bearer "));
        token.is_some_and(|token| self.book.is_good(from, token))
    }

    /// A token for who logs in as the guard wants it.
    fn token(&self, from: &str, head: &Head) -> Answer {
        let login = self.book.guard(from).map(|guard| guard.login);
        let login = login.map(|login| format!("Basic {}", BASE64_STANDARD.encode(login)));
        match self.book.token(from) {
            Some(token) if head.header("authorization") == login.as_deref() => answer::token(&token),
            Some(_) | None => answer::refusal(401),
        }
    }

    fn is_healed(&self, asked: &Asked) -> bool {
        self.book.number(&asked.request.from) != asked.set
    }

    /// Keeps somebody waiting until they are gone or it is healed.
    async fn hold(&self, wire: &mut Wire, asked: &mut Asked) -> Held {
        asked.request.held = true;
        log::write(&asked.request);
        while !self.is_healed(asked) {
            // Cancelled, it has read nothing.
            tokio::select! {
                _ = wire.gone() => return Held::Gone,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        Held::Healed
    }

    /// Asks the registry, and hands on what it says, or something like it.
    async fn forward(&self, mut wire: Wire, asked: &mut Asked, how: Option<How>) -> Result<Then> {
        let [method, ..] = asked.head.words();
        let stream = TcpStream::connect(self.registry)
            .await
            .context("the registry is away")?;
        let name = ServerName::try_from(registry::HOST)?;
        let mut stream = self.connector.connect(name, stream).await?;
        // 1.0: a body in one piece, and the connection's end after it.
        let mut ask = Head::new(format!("{method} {} HTTP/1.0", asked.request.path))
            .with("Host", format!("{}:{}", registry::HOST, registry::PORT));
        for name in ["Accept", "Range"] {
            if let Some(value) = asked.head.header(name) {
                ask = ask.with(name, value);
            }
        }
        stream.write_all(&ask.bytes()).await?;
        let (head, rest) = http::read(&mut stream).await.context("the registry said nothing")?;
        asked.request.status = head.words()[1].parse()?;
        if method == "HEAD" {
            wire.send(&answer::handed_on(head).bytes()).await?;
            return Ok(Then::Next(wire));
        }
        let mut body = rest.as_slice().chain(stream);
        match head.header("content-length").map(str::parse).transpose()? {
            Some(length) if asked.kind != Kind::Manifest => {
                self.hand_on(wire, asked, how, Part::of(head, length), &mut body).await
            }
            Some(_) | None => {
                let mut document = Vec::new();
                ends(body.take(DOCUMENT).read_to_end(&mut document).await)?;
                self.learn(&document);
                let part = Part::of(head, document.len() as u64);
                self.hand_on(wire, asked, how, part, document.as_slice()).await
            }
        }
    }

    /// Remembers which blob is a config.
    fn learn(&self, document: &[u8]) {
        let document: Value = serde_json::from_slice(document).unwrap_or_default();
        if let Some(digest) = document["config"]["digest"].as_str() {
            self.configs.borrow_mut().insert(digest.to_owned());
        }
    }

    async fn hand_on(
        &self,
        mut wire: Wire,
        asked: &mut Asked,
        mut how: Option<How>,
        part: Part,
        mut body: impl AsyncRead + Unpin,
    ) -> Result<Then> {
        wire.send(&part.head(how).bytes()).await?;
        let mut at = part.start;
        let mut piece = vec![0; PIECE];
        loop {
            if matches!(how, Some(How::Slow(_))) && self.is_healed(asked) {
                how = None;
            }
            let stop = match how {
                Some(How::Reset(point) | How::Hold(point) | How::Short(point)) => Some(point.of(part.total)),
                Some(_) | None => None,
            };
            let left = stop.map_or(u64::MAX, |stop| stop.saturating_sub(at));
            if left == 0 {
                match how {
                    Some(How::Hold(_)) if self.hold(&mut wire, asked).await == Held::Healed => {
                        how = None;
                        continue;
                    }
                    Some(How::Reset(_)) => wire.reset().await,
                    Some(_) | None => wire.close().await,
                }
                return Ok(Then::Over);
            }
            let most = match how {
                Some(How::Slow(rate)) => left.min((rate / LOOKS).max(1)),
                Some(_) | None => left,
            };
            let most = usize::try_from(most).unwrap_or(PIECE).min(PIECE);
            let got = ends(body.read(&mut piece[..most]).await)?;
            if got == 0 {
                break;
            }
            let bytes = &mut piece[..got];
            match how {
                Some(How::Flip(point)) => flip(bytes, at, point.of(part.total)),
                Some(How::Slow(_)) => tokio::time::sleep(LOOK).await,
                Some(_) | None => {}
            }
            match how {
                Some(How::Endless) => wire.send(&answer::chunk(bytes)).await?,
                Some(_) | None => wire.send(bytes).await?,
            }
            at += got as u64;
            asked.request.sent += got as u64;
        }
        match how {
            Some(How::Longer(more)) => wire.send(&vec![0; usize::try_from(more)?]).await?,
            Some(How::Endless) => self.for_ever(&mut wire, asked).await?,
            Some(_) | None => {}
        }
        Ok(Then::Next(wire))
    }

    /// Bytes until it is healed.
    async fn for_ever(&self, wire: &mut Wire, asked: &mut Asked) -> Result<()> {
        let some = vec![0; usize::try_from(ENDLESS / LOOKS)?];
        while !self.is_healed(asked) {
            wire.send(&answer::chunk(&some)).await?;
            asked.request.sent += some.len() as u64;
            tokio::time::sleep(LOOK).await;
        }
        Ok(wire.send(&answer::chunk(&[])).await?)
    }
}

/// What the registry hands out: all of something, or a part of it.
struct Part {
    head: Head,
    start: u64,
    length: u64,
    /// Of the whole.
    total: u64,
}

impl Part {
    fn of(head: Head, length: u64) -> Self {
        let (start, total) = answer::range(&head).unwrap_or((0, length));
        Self {
            head,
            start,
            length,
            total,
        }
    }

    fn head(&self, how: Option<How>) -> Head {
        let head = answer::handed_on(self.head.clone()).without("content-length");
        match how {
            Some(How::Endless) => head.with("Transfer-Encoding", "chunked"),
            Some(How::Longer(more)) => head.with("Content-Length", self.length + more),
            Some(_) | None => head.with("Content-Length", self.length),
        }
    }
}

/// Changes the byte of the whole at `point`, if it is among these, which begin at `at`.
fn flip(bytes: &mut [u8], at: u64, point: u64) {
    let place = point.checked_sub(at).and_then(|place| usize::try_from(place).ok());
    if let Some(byte) = place.and_then(|place| bytes.get_mut(place)) {
        *byte ^= 1;
    }
}

/// Says what is in memory.
async fn say(mut wire: Wire, asked: &mut Asked, answer: Answer) -> Result<Then> {
    asked.request.status = answer.head.words()[1].parse()?;
    let head = answer.head.with("Content-Type", "application/json");
    let head = head.with("Content-Length", answer.body.len()).bytes();
    let body = match asked.head.words()[0] {
        "HEAD" => Vec::new(),
        _ => answer.body,
    };
    wire.send(&[head, body].concat()).await?;
    Ok(Then::Next(wire))
}

/// A TLS connection that just ends has ended.
fn ends(read: io::Result<usize>) -> io::Result<usize> {
    match read {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
        other => other,
    }
}
