//! The connection to the host's containerd, and its answers as our errors.

use std::io;
use std::time::Duration;

use containerd_client::Client;
use containerd_client::tonic::{Code, Request, Status};
use hostexec::{Dir, Host, HostPath};

/// Ours alone; the machine's containerd is another one, and `k8s.io` is never touched.
const NAMESPACE: &str = "aks-flex-node";
/// Where the socket lies on the host.
const FOLDER: HostPath = HostPath::fixed("/run/containerd");
const SOCKET: &str = "containerd.sock";
/// Limit of a call that only changes or reads records.
const CALL: Duration = Duration::from_secs(60);

/// Why containerd did not do its part.
#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    /// It can't be reached.
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
            _folder: folder,
        })
    }
}

/// One connection, for one piece of work.
pub(super) struct Link {
    pub(super) client: Client,
    /// What protects the work's results from the garbage collection.
    pub(super) lease: Option<String>,
    _folder: Dir,
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

/// Names the step of a failed call.
pub(super) fn refused(step: &'static str) -> impl Fn(Status) -> ContainerdError {
    move |status| ContainerdError::Refused {
        step,
        what: format!("{}: {}", status.code(), status.message()),
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
