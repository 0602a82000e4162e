//! What was asked of the server: a line of its log.

use serde::{Deserialize, Serialize};

use super::fault::{How, Kind};

/// One request, or one connection that never came to one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// The address of who asked.
    pub(crate) from: String,
    /// Without the query. Empty if it never came to a request.
    pub(crate) path: String,
    pub(crate) kind: Option<Kind>,
    /// Whether it came without TLS.
    pub(crate) plain: bool,
    /// 0 if nothing was answered.
    pub(crate) status: u16,
    /// Bytes of the body.
    pub(crate) sent: u64,
    /// How it was answered wrongly, if it was.
    pub(crate) how: Option<How>,
    /// Whether it is held back; another line follows when it is over.
    pub(crate) held: bool,
    /// What the server could not do.
    pub(crate) error: Option<String>,
}
