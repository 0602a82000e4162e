//! What was asked of the server: a line of its log. No line has a token or a secret.

use serde::{Deserialize, Serialize};

use super::page::Who;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The address of who asked.
    pub(crate) from: String,
    /// Who was asked.
    pub(crate) of: Who,
    /// Without the query.
    pub(crate) path: String,
    pub(crate) status: u16,
}
