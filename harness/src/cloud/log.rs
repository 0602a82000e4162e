//! The log of a server of the bed: one line of JSON a request, which is read again.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes a line, to where the server's log is.
pub(super) fn write(request: &impl Serialize) {
    match serde_json::to_string(request) {
        Ok(line) => println!("{line}"),
        Err(error) => eprintln!("{error}"),
    }
}

/// A place in a log.
#[derive(Clone, Copy)]
pub(crate) struct Mark(u64);

impl Mark {
    /// The end of a log as it is now.
    pub(super) fn end(log: &Path) -> Self {
        Self(fs::metadata(log).map_or(0, |meta| meta.len()))
    }

    /// What came after it.
    ///
    /// # Errors
    /// The log can't be read.
    pub(super) fn rest(self, log: &Path) -> Result<String> {
        let text = fs::read(log).with_context(|| log.display().to_string())?;
        let start = usize::try_from(self.0)?.min(text.len());
        Ok(String::from_utf8_lossy(&text[start..]).into_owned())
    }
}

/// The requests since a mark.
///
/// # Errors
/// The log can't be read.
pub(super) fn read<T: DeserializeOwned>(log: &Path, since: Mark) -> Result<Vec<T>> {
    let lines = since.rest(log)?;
    Ok(lines
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect())
}
