//! The edge to Entra ID and Azure Resource Manager: who the host is there, as tokens.
//!
//! ```text
//!  account ─request (pure)─▶ HTTP ─answer (pure)─▶ token, or an end that says what to do
//!               ▲  (Azure Arc asks back first: `arc`)
//!               │                        └ passing: a pause (pure: `Patience`), then again
//! ```
//!
//! Deliberately absent: a cache on disk. kubelet keeps a token until it expires, the daemon holds its own, and a managed identity's
//! are cached by the metadata service; a file would be one more place for a secret.

mod account;
mod answer;
mod arc;
mod assertion;
mod client;
mod error;
mod fresh;
mod kubelogin;
mod manager;
mod patience;
mod remedy;
mod request;
mod token;

#[cfg(test)]
mod tests;

pub use account::{Account, Authority, Principal, Proof};
pub use arc::Keys;
pub use assertion::{BadCertificate, Certificate};
pub use client::Azure;
pub use error::{Error, Whom};
pub use fresh::refreshed;
pub use kubelogin::{Asked, BadCall, render};
pub use manager::{API_VERSION, BootstrapData, Pool};
pub use patience::Limits;
pub use request::Audience;
pub use token::Token;

/// The AKS server application. Source: node-agent specification, 2.4.
pub const AKS_SERVER: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";
