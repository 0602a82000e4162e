//! A host's connection, with TLS or without, which can be ended in more ways than one.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::cloud::http::{self, Head};

/// How long what was sent may take to arrive before a reset, which throws away what is on its way.
const ARRIVES: Duration = Duration::from_millis(200);

pub(super) enum Wire {
    Tls(Box<TlsStream<TcpStream>>),
    Plain(TcpStream),
}

impl Wire {
    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    /// The next request's head; `None` when there will be none.
    pub(super) async fn head(&mut self) -> Option<Head> {
        let read = match self {
            Self::Tls(stream) => http::read(stream).await,
            Self::Plain(stream) => http::read(stream).await,
        };
        read.map(|(head, _)| head)
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Tls(stream) => {
                stream.write_all(bytes).await?;
                stream.flush().await
            }
            Self::Plain(stream) => stream.write_all(bytes).await,
        }
    }

    /// Waits until the other end has gone or says something more, which is lost; whether it has gone.
    pub(super) async fn gone(&mut self) -> bool {
        let mut bytes = [0; 512];
        let read = match self {
            Self::Tls(stream) => stream.read(&mut bytes).await,
            Self::Plain(stream) => stream.read(&mut bytes).await,
        };
        matches!(read, Ok(0) | Err(_))
    }

    /// Ends it as it should be ended.
    pub(super) async fn close(mut self) {
        let _ = match &mut self {
            Self::Tls(stream) => stream.shutdown().await,
            Self::Plain(stream) => stream.shutdown().await,
        };
    }

    /// Ends it by a reset.
    pub(super) async fn reset(self) {
        tokio::time::sleep(ARRIVES).await;
        let stream = match &self {
            Self::Tls(stream) => stream.get_ref().0,
            Self::Plain(stream) => stream,
        };
        let _ = stream.set_zero_linger();
    }
}
