//! What was asked of the server, one line each, in a form that is read again.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
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

impl Request {
    pub(super) fn log(&self) {
        match serde_json::to_string(self) {
            Ok(line) => println!("{line}"),
            Err(error) => eprintln!("{error}"),
        }
    }
}

/// A place in the log.
#[derive(Clone, Copy)]
pub(crate) struct Mark(u64);

impl Mark {
    pub(super) fn of(log: &Path) -> Self {
        Self(fs::metadata(log).map_or(0, |meta| meta.len()))
    }
}

/// The requests of an address since a mark.
///
/// # Errors
/// The log can't be read.
pub(super) fn read(log: &Path, since: Mark, from: &str) -> Result<Vec<Request>> {
    let text = fs::read(log).context("reading the faulty registry's log")?;
    let start = usize::try_from(since.0)?.min(text.len());
    let text = String::from_utf8_lossy(&text[start..]);
    let requests = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    Ok(requests.filter(|request: &Request| request.from == from).collect())
}
