//! One call of a tool, what came of it, and what may go wrong.

use crate::{Tool, environment::SEARCH};
use std::{io, process::ExitStatus, time::Duration};

/// A call to be made by [`Host::call`](crate::Host::call). Secrets go by [`Call::stdin`] or a file, never by argument:
/// arguments are logged, and everybody on the host can read them.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Call<'a> {
    pub(crate) tool: Tool,
    pub(crate) args: &'a [&'a str],
    pub(crate) stdin: Option<&'a [u8]>,
    pub(crate) limit: Duration,
    pub(crate) ends: Ends,
}

/// Which ends of a tool count as success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    Zero,
    AnyCode,
}

impl<'a> Call<'a> {
    /// A call within the tool's time limit, with nothing to read, that succeeds with exit code 0.
    pub const fn new(tool: Tool, args: &'a [&'a str]) -> Self {
        Self {
            tool,
            args,
            stdin: None,
            limit: tool.limit(),
            ends: Ends::Zero,
        }
    }

    /// Gives the tool these bytes to read.
    pub const fn stdin(mut self, bytes: &'a [u8]) -> Self {
        self.stdin = Some(bytes);
        self
    }

    /// Gives the tool this long instead of its usual limit.
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Takes any exit code for an answer; death by a signal stays an error.
    pub const fn any_code(mut self) -> Self {
        self.ends = Ends::AnyCode;
        self
    }

    /// The line as a person would type it.
    pub(crate) fn line(&self) -> String {
        let mut line = self.tool.name().to_owned();
        for arg in self.args {
            line.push(' ');
            let plain = !arg.is_empty() && arg.chars().all(|c| c.is_ascii_graphic() && !r#"'"\$`"#.contains(c));
            if plain {
                line.push_str(arg)
            } else {
                line.push_str(&format!("{arg:?}"))
            }
        }
        line
    }
}

/// What a tool answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; none if a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// The end of what it complained about.
    pub stderr: String,
}

/// Why a tool gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The host does not have it. Nothing was run.
    #[error("{} is not on the host (looked in {})", .0.name(), SEARCH.join(", "))]
    Missing(Tool),
    /// It could not be started, or its streams failed.
    #[error("`{line}` could not be run")]
    Run {
        /// The line.
        line: String,
        /// What failed.
        source: io::Error,
    },
    /// It ended badly.
    #[error("`{line}` {status}: {stderr}")]
    Failed {
        /// The line.
        line: String,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it wrote to stderr, on one line.
        stderr: String,
    },
    /// It took longer than it may and was ended, with all it had started.
    #[error("`{line}` took longer than {limit:?}")]
    Slow {
        /// The line.
        line: String,
        /// How long it had.
        limit: Duration,
    },
    /// It printed more than anybody wants to keep, and was ended.
    #[error("`{line}` printed more than {limit} bytes")]
    Flood {
        /// The line.
        line: String,
        /// The most bytes that are kept.
        limit: usize,
    },
}

impl ToolError {
    /// The exit code the tool ended with, if that is what went wrong.
    #[must_use]
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Failed { status, .. } => status.code(),
            Self::Missing(_) | Self::Run { .. } | Self::Slow { .. } | Self::Flood { .. } => None,
        }
    }
}
