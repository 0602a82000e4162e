//! The connection to the host's containerd, and its answers as our errors.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use containerd_client::Client;
use containerd_client::tonic::{Code, Request, Status, TimeoutExpired};
use hostexec::{Dir, Host, HostPath};

/// Ours alone; the machine's containerd is another one, and `k8s.io` is never touched.
pub(super) const NAMESPACE: &str = "aks-flex-node";
/// Where the socket lies on the host.
const FOLDER: HostPath = HostPath::fixed("/run/containerd");
const SOCKET: &str = "containerd.sock";
/// Limit of a call that only changes or reads records.
const CALL: Duration = Duration::from_secs(60);
/// Limit of a connection through a socket of this host.
const CONNECT: Duration = Duration::from_secs(10);
/// What the kernel says of a full disk, and of a full quota, as Go spells it. containerd has no code of its own for them.
/// Source: Go, syscall/zerrors_linux_amd64.go, ENOSPC and EDQUOT.
const FULL: [&str; 2] = ["no space left on device", "disk quota exceeded"];

/// Why containerd did not do its part.
#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    /// It can't be reached, or went away before it answered.
    #[error("containerd can't be reached at {FOLDER}/{SOCKET}: {what}")]
    Away {
        /// Why.
        what: String,
    },
    /// It answered with an error.
    #[error("containerd: {step}: {what}")]
    Refused {
        /// What it was asked for.
        step: &'static str,
        /// Its answer.
        what: String,
    },
    /// What it has is not what was asked for.
    #[error("containerd: {step}: {what}")]
    Wrong {
        /// What it was asked for.
        step: &'static str,
        /// What is wrong.
        what: String,
    },
    /// The disk that it keeps everything on is full.
    #[error("containerd: {step}: its disk is full: {what}")]
    Full {
        /// What it was asked for.
        step: &'static str,
        /// Its answer.
        what: String,
    },
    /// It did not answer.
    #[error("containerd: {step}: no answer within {} s", limit.as_secs())]
    Late {
        /// What it was asked for.
        step: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// A file on the host that a container needs.
    #[error("{step}")]
    Host {
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

impl ContainerdError {
    pub(super) fn wrong(step: &'static str, what: impl Into<String>) -> Self {
        Self::Wrong {
            step,
            what: what.into(),
        }
    }

    /// Whether asking again later may help.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Away { .. } | Self::Refused { .. } | Self::Late { .. } | Self::Host { .. } => true,
            Self::Wrong { .. } | Self::Full { .. } => false,
        }
    }
}

/// The host's containerd. It is connected to when it is asked for something, so it may come and go.
#[derive(Clone, Debug)]
pub struct Containerd {
    pub(super) host: Host,
}

impl Containerd {
    /// The containerd of this host; nothing is connected yet.
    #[must_use]
    pub fn connect(host: &Host) -> Self {
        Self { host: host.clone() }
    }

    pub(super) async fn link(&self) -> Result<Link, ContainerdError> {
        // A containerd that is stopped takes connections all the same, and answers none.
        let late = |_| ContainerdError::Late {
            step: "connect",
            limit: CONNECT,
        };
        tokio::time::timeout(CONNECT, self.connected()).await.map_err(late)?
    }

    async fn connected(&self) -> Result<Link, ContainerdError> {
        let away = |what: String| ContainerdError::Away { what };
        let folder = self.host.open_dir(&FOLDER).map_err(|error| away(error.to_string()))?;
        let socket = folder.path().join(SOCKET);
        // The transport's error alone says no more than "transport error".
        tokio::net::UnixStream::connect(&socket)
            .await
            .map_err(|error| away(error.to_string()))?;
        let client = Client::from_path(socket)
            .await
            .map_err(|error| away(error.to_string()))?;
        Ok(Link {
            client,
            lease: None,
            folder,
        })
    }
}

/// One connection, for one piece of work.
pub(super) struct Link {
    pub(super) client: Client,
    /// What protects the work's results from the garbage collection.
    pub(super) lease: Option<String>,
    /// Where the socket lies; held, since the path to it leads through here.
    pub(super) folder: Dir,
}

impl Link {
    /// A call that ends soon.
    pub(super) fn call<T>(&self, message: T) -> Request<T> {
        let mut request = self.long(message);
        request.set_timeout(CALL);
        request
    }

    /// A call that ends when it ends.
    pub(super) fn long<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert(
            "containerd-namespace",
            const { NAMESPACE }.parse().expect("the namespace is ASCII"),
        );
        if let Some(lease) = self.lease.as_ref().and_then(|lease| lease.parse().ok()) {
            metadata.insert("containerd-lease", lease);
        }
        request
    }
}

/// Names the step of a failed call. A status that has a source was made on this side: the connection broke.
pub(super) fn refused(step: &'static str) -> impl Fn(Status) -> ContainerdError {
    move |status| {
        let what = format!("{}: {}", status.code(), status.message());
        if status.source().is_some_and(|source| source.is::<TimeoutExpired>()) {
            ContainerdError::Late { step, limit: CALL }
        } else if status.source().is_some() {
            let what = format!("{step}: {}", status.message());
            ContainerdError::Away { what }
        } else if FULL.iter().any(|full| status.message().contains(full)) {
            ContainerdError::Full { step, what }
        } else {
            ContainerdError::Refused { step, what }
        }
    }
}

/// `None` for what is not there.
pub(super) fn found<T>(answer: Result<T, Status>) -> Result<Option<T>, Status> {
    unless(Code::NotFound, answer)
}

/// `None` for what is there already.
pub(super) fn created<T>(answer: Result<T, Status>) -> Result<Option<T>, Status> {
    unless(Code::AlreadyExists, answer)
}

fn unless<T>(code: Code, answer: Result<T, Status>) -> Result<Option<T>, Status> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == code => Ok(None),
        Err(status) => Err(status),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fc_u23_a_full_disk_is_named_and_another_try_does_not_help() {
        let full = Status::unknown("failed to extract layer: write /var/lib/x: no space left on device: unknown");
        let error = refused("unpack a layer")(full);
        assert!(!error.may_pass());
        let text = error.to_string();
        assert!(
            text.starts_with("containerd: unpack a layer: its disk is full: "),
            "{text}"
        );
        assert!(refused("unpack a layer")(Status::unknown("EOF")).may_pass());
    }

    #[test]
    fn what_did_not_answer_is_late_and_not_away() {
        let late = Status::from_error(Box::new(TimeoutExpired(())));
        assert!(matches!(
            refused("wait")(late),
            ContainerdError::Late { step: "wait", .. }
        ));
        let broken = Status::from_error(Box::new(io::Error::other("broken pipe")));
        assert!(matches!(refused("wait")(broken), ContainerdError::Away { .. }));
        assert!(matches!(
            refused("wait")(Status::unavailable("no shim")),
            ContainerdError::Refused { .. }
        ));
    }
}
