//! What was asked of the server, one line each, in a form that is read again. No line has a token or a secret.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
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
    let text = fs::read(log).context("reading Azure's log")?;
    let start = usize::try_from(since.0)?.min(text.len());
    let text = String::from_utf8_lossy(&text[start..]);
    let requests = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    Ok(requests.filter(|request: &Request| request.from == from).collect())
}
