//! `cargo harness test`: what CI runs, and a person too.

use anyhow::{Result, bail};

use crate::cargo::cargo;
use crate::check::{self, Selection};
use crate::cli;
use crate::deps;
use crate::progress::step;

/// Cargo's part: formatting, lints, unit tests.
const CARGO: &[(&str, &[&str])] = &[
    ("formatting", &["fmt", "--all", "--check"]),
    (
        "lints",
        &[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "--deny",
            "warnings",
        ],
    ),
    ("unit tests", &["test", "--quiet", "--workspace", "--locked"]),
];

/// Runs all of it, to the first that fails. True if nothing did.
///
/// # Errors
/// A part could not be run.
pub(crate) async fn test(options: &cli::Check) -> Result<bool> {
    // The tests need some of the packages too.
    deps::ensure().await?;
    let selection = Selection::of(&options.names, &options.group)?;
    for (name, args) in CARGO {
        step(name, told(args)).await?;
    }
    check::run(selection, options).await
}

/// What Cargo says is for people to see.
async fn told(args: &[&str]) -> Result<()> {
    match cargo().args(args).show().await? {
        Some(0) => Ok(()),
        _ => bail!("cargo {} failed", args.join(" ")),
    }
}
