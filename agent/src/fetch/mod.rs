//! Gets bytes from the network: with limits, with another try where that can help, and without ever showing the part of
//! a URL that could hold a secret.

mod archive;
mod roots;

use std::{fmt, fs::File, future::Future, io, time::Duration};

use image::Digest;
use reqwest::{StatusCode, Url, redirect};
use sha2::{Digest as _, Sha256};

pub use archive::{Bounds, Refused, bounded_files, regular_files};
pub use roots::{roots, trusting};

/// How long and how much. Source: node-agent specification, appendix D.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For one try, from the request to the last byte.
    pub total: Duration,
    /// Without a byte.
    pub idle: Duration,
    /// Until the connection stands.
    pub connect: Duration,
    /// Bytes of one file.
    pub bytes: u64,
    /// Tries in all.
    pub tries: u32,
    /// Before the second try; doubled before each further one.
    pub pause: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            total: Duration::from_secs(600),
            idle: Duration::from_secs(60),
            connect: Duration::from_secs(15),
            bytes: 1 << 30,
            tries: 3,
            pause: Duration::from_secs(1),
        }
    }
}

/// A checksum file is a line.
pub(crate) const CHECKSUM_BYTES: u64 = 1024;

/// A URL as logs and errors may show it: without user info, query and fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown(String);

impl Shown {
    fn of(url: &Url) -> Self {
        let mut shown = format!("{}://{}", url.scheme(), url.host_str().unwrap_or_default());
        if let Some(port) = url.port() {
            shown.push_str(&format!(":{port}"));
        }
        shown.push_str(url.path());
        Self(shown)
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Why bytes could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was to be fetched from.
    #[error("not an https or http URL")]
    Url,
    /// No client could be made.
    #[error("can't set up TLS")]
    Tls(#[source] rustls::Error),
    /// No client could be made.
    #[error("can't set up the HTTP client")]
    Client(#[source] reqwest::Error),
    /// The server answered, and not with the file.
    #[error("{from}: the server answers {status}")]
    Status {
        /// Where from.
        from: Shown,
        /// The answer.
        status: StatusCode,
    },
    /// The server did not answer, or not to the end.
    #[error("can't get {from}")]
    Transport {
        /// Where from.
        from: Shown,
        /// Without its URL.
        #[source]
        source: reqwest::Error,
    },
    /// It took too long.
    #[error("{from}: not there after {} s", limit.as_secs())]
    Slow {
        /// Where from.
        from: Shown,
        /// The limit.
        limit: Duration,
    },
    /// It is too long.
    #[error("{from}: more than {limit} bytes")]
    Large {
        /// Where from.
        from: Shown,
        /// The limit.
        limit: u64,
    },
    /// It isn't what its publisher says it is.
    #[error("{from}: its SHA-256 is {got}, and its checksum file says {wanted}")]
    Mismatch {
        /// Where from.
        from: Shown,
        /// By the checksum file.
        wanted: String,
        /// By the bytes.
        got: String,
    },
    /// The checksum file holds none.
    #[error("{from}: no SHA-256 in it")]
    Checksum {
        /// Where from.
        from: Shown,
    },
    /// The bytes had no place.
    #[error("can't keep what {from} sends")]
    Keep {
        /// Where from.
        from: Shown,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Error {
    /// Whether the next try might end otherwise.
    fn passes(&self) -> bool {
        match self {
            Self::Transport { .. } | Self::Slow { .. } | Self::Mismatch { .. } => true,
            Self::Status { status, .. } => {
                status.is_server_error()
                    || [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS].contains(status)
            }
            Self::Url
            | Self::Tls(_)
            | Self::Client(_)
            | Self::Large { .. }
            | Self::Checksum { .. }
            | Self::Keep { .. } => false,
        }
    }
}

/// A client with its limits.
#[derive(Clone, Debug)]
pub struct Fetcher {
    client: reqwest::Client,
    limits: Limits,
}

impl Fetcher {
    /// A client that trusts `roots`.
    ///
    /// # Errors
    /// TLS can't be set up.
    pub fn new(roots: rustls::RootCertStore, limits: Limits) -> Result<Self, Error> {
        let mut tls = trusting(roots).map_err(Error::Tls)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let client = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            .connect_timeout(limits.connect)
            .read_timeout(limits.idle)
            .redirect(redirect::Policy::custom(follow))
            .user_agent(concat!("aks-flex-node/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(Error::Client)?;
        Ok(Self { client, limits })
    }

    /// Puts what `url` holds into `file`, from its start, and says its digest.
    ///
    /// # Errors
    /// Every try failed, or one in a way that another can't mend. The file then holds anything.
    pub async fn file(&self, url: &str, file: &mut File) -> Result<Digest, Error> {
        let url = parse(url)?;
        let mut tries = self.tries();
        loop {
            let error = match self.once(&url, self.limits.bytes, file).await {
                Ok(digest) => return Ok(digest),
                Err(error) => error,
            };
            tries.after(error).await?;
        }
    }

    /// Puts what `url` holds into `file`, proved by the checksum file at `proof`.
    ///
    /// # Errors
    /// As [`Fetcher::file`]; and the bytes aren't what the checksum file says, at each try.
    pub async fn proved_file(&self, url: &str, proof: &str, file: &mut File) -> Result<Digest, Error> {
        let (url, proof) = (parse(url)?, parse(proof)?);
        let mut tries = self.tries();
        loop {
            let error = match self.proved(&url, &proof, file).await {
                Ok(digest) => return Ok(digest),
                Err(error) => error,
            };
            tries.after(error).await?;
        }
    }

    async fn proved(&self, url: &Url, proof: &Url, file: &mut File) -> Result<Digest, Error> {
        let mut text = Vec::new();
        self.stream(proof, CHECKSUM_BYTES, &mut text).await?;
        let wanted = checksum(&text).ok_or_else(|| Error::Checksum { from: Shown::of(proof) })?;
        let digest = self.once(url, self.limits.bytes, file).await?;
        if digest.hex() == wanted {
            Ok(digest)
        } else {
            Err(Error::Mismatch {
                from: Shown::of(url),
                wanted,
                got: digest.hex().to_owned(),
            })
        }
    }

    /// Asks for what `url` holds, once, and takes none of it.
    ///
    /// # Errors
    /// It is not there, or the server can't be reached.
    pub async fn reaches(&self, url: &str) -> Result<(), Error> {
        let url = parse(url)?;
        let from = Shown::of(&url);
        within(&from, self.limits.total, async {
            let answer = self.client.get(url.clone()).send().await;
            let status = match answer {
                Ok(answer) => answer.status(),
                Err(source) => {
                    return Err(Error::Transport {
                        from: from.clone(),
                        source: source.without_url(),
                    });
                }
            };
            match status {
                StatusCode::OK => Ok(()),
                _ => Err(Error::Status {
                    from: from.clone(),
                    status,
                }),
            }
        })
        .await
    }

    fn tries(&self) -> Tries {
        Tries {
            left: self.limits.tries,
            pause: self.limits.pause,
        }
    }

    async fn once(&self, url: &Url, limit: u64, file: &mut File) -> Result<Digest, Error> {
        use io::Seek as _;
        let keep = |source| Error::Keep {
            from: Shown::of(url),
            source,
        };
        file.set_len(0).map_err(keep)?;
        file.rewind().map_err(keep)?;
        let mut sink = Hashing {
            file,
            hash: Sha256::new(),
        };
        self.stream(url, limit, &mut sink).await?;
        Ok(Digest::from_hash(sink.hash))
    }

    async fn stream(&self, url: &Url, limit: u64, sink: &mut impl io::Write) -> Result<(), Error> {
        let from = Shown::of(url);
        within(&from, self.limits.total, async {
            let failed = |source: reqwest::Error| Error::Transport {
                from: from.clone(),
                source: source.without_url(),
            };
            let mut answer = self.client.get(url.clone()).send().await.map_err(failed)?;
            if answer.status() != StatusCode::OK {
                return Err(Error::Status {
                    from: from.clone(),
                    status: answer.status(),
                });
            }
            let mut left = limit;
            while let Some(chunk) = answer.chunk().await.map_err(failed)? {
                left = left.checked_sub(chunk.len() as u64).ok_or_else(|| Error::Large {
                    from: from.clone(),
                    limit,
                })?;
                sink.write_all(&chunk).map_err(|source| Error::Keep {
                    from: from.clone(),
                    source,
                })?;
            }
            Ok(())
        })
        .await
    }
}

async fn within<T>(from: &Shown, limit: Duration, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Error::Slow {
            from: from.clone(),
            limit,
        })
    })
}

/// The tries that are left, and the pause before the next.
struct Tries {
    left: u32,
    pause: Duration,
}

impl Tries {
    /// Waits for the next try, or gives `error` back when there is none.
    async fn after(&mut self, error: Error) -> Result<(), Error> {
        self.left = self.left.saturating_sub(1);
        if self.left == 0 || !error.passes() {
            return Err(error);
        }
        tracing::warn!(error = &error as &dyn std::error::Error, pause = ?self.pause, "download failed, once more");
        tokio::time::sleep(self.pause).await;
        self.pause *= 2;
        Ok(())
    }
}

struct Hashing<'a> {
    file: &'a mut File,
    hash: Sha256,
}

impl io::Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::Write::write_all(self.file, bytes)?;
        self.hash.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::Write::flush(self.file)
    }
}

fn parse(url: &str) -> Result<Url, Error> {
    let url = Url::parse(url).map_err(|_| Error::Url)?;
    let known = ["https", "http"].contains(&url.scheme()) && url.has_host();
    known.then_some(url).ok_or(Error::Url)
}

/// Follows ten redirects, and none that leaves TLS.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let left_tls = attempt.url().scheme() != "https"
        && attempt
            .previous()
            .last()
            .is_some_and(|before| before.scheme() == "https");
    if left_tls {
        attempt.error("redirected from https to http")
    } else if attempt.previous().len() > 10 {
        attempt.error("redirected more than ten times")
    } else {
        attempt.follow()
    }
}

/// The digest in a checksum file: 64 hex digits, and perhaps a file's name.
pub(crate) fn checksum(bytes: &[u8]) -> Option<String> {
    let first = std::str::from_utf8(bytes).ok()?.split_whitespace().next()?;
    let hex = first.len() == 64 && first.bytes().all(|byte| byte.is_ascii_hexdigit());
    hex.then(|| first.to_ascii_lowercase())
}

#[cfg(test)]
pub(crate) mod tests;
