//! The edge to Kubernetes: clients, wire types, watches and patches. Nothing else names `kube`.

mod client;
mod enrol;
pub mod jitter;
mod operations;
mod request;
mod watch;
mod wire;

pub use client::{Client, Credential, Endpoint};
pub use enrol::enrol;
pub use operations::{Ending, Standing};
pub use watch::{Seen, watch_node, watch_operations};

use std::time::Duration;

use crate::model::chain;

/// What a single call may take; a watch has its own end. Source: node-agent specification 6.3 (dial 30 s).
const CALL: Duration = Duration::from_secs(30);

/// What went wrong between the agent and the API server, and so what helps.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not answer, or not in time, or something in between does. Passes by itself.
    #[error("the API server is away: {0}")]
    Away(String),
    /// It does not take the credential.
    #[error("the API server does not take the agent's credential ({0})")]
    Unauthorized(String),
    /// It knows who we are and says no.
    #[error("the API server denies it: {0}; grant the daemons' group what docs/operations.md lists")]
    Denied(String),
    /// There is no such thing.
    #[error("the API server has no such thing: {0}")]
    Missing(String),
    /// Somebody else wrote first.
    #[error("somebody else changed it meanwhile: {0}")]
    Conflict(String),
    /// Any other refusal.
    #[error("the API server refuses: {0}")]
    Refused(String),
    /// The settings make no client.
    #[error("no client of the API server can be made: {0}")]
    Settings(String),
}

impl Error {
    fn of(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = &error {
            return Self::of_status(status);
        }
        if let kube::Error::SerdeError(error) = &error {
            // Its words may repeat what came.
            return Self::Refused(format!(
                "its answer can't be read (line {}, column {})",
                error.line(),
                error.column()
            ));
        }
        Self::Away(chain(&error))
    }

    fn of_status(status: &kube::core::Status) -> Self {
        let text = status.message.clone();
        match status.code {
            401 => Self::Unauthorized(text),
            403 => Self::Denied(text),
            404 => Self::Missing(text),
            409 => Self::Conflict(text),
            408 | 429 | 500.. => Self::Away(text),
            _ => Self::Refused(text),
        }
    }
}

/// A call with an end.
async fn limited<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, Error> {
    match tokio::time::timeout(CALL, call).await {
        Ok(result) => result.map_err(Error::of),
        Err(_) => Err(Error::Away(format!("no answer within {} s", CALL.as_secs()))),
    }
}
