//! `cargo harness test`: what CI runs, and a person too.

use anyhow::{Result, bail};

use crate::cargo::cargo;
use crate::check::{self, Selection};
use crate::cli;
use crate::deps;
use crate::progress::{self, step};

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

/// Checks that are left to `cargo harness check`: each takes minutes, since it strikes at moments that it has to meet. What they find is
/// read by a person; a suite that now and then misses a moment would help nobody.
pub(crate) const LEFT: &[&str] = &[
    "agent.adoption",
    "upgrade.containerd",
    "upgrade.crash-matrix",
    "upgrade.random-cuts",
];

/// Runs all of it, to the first that fails. True if nothing did.
///
/// # Errors
/// A part could not be run.
pub(crate) async fn test(options: &cli::Check) -> Result<bool> {
    // The tests need some of the packages too.
    deps::ensure().await?;
    let mut selection = Selection::of(&options.names, &options.group)?;
    let left = if options.names.is_empty() {
        selection.without(LEFT)
    } else {
        Vec::new()
    };
    for (name, args) in CARGO {
        step(name, told(args)).await?;
    }
    let good = check::run(selection, options).await?;
    if !left.is_empty() {
        progress::result(&format!("left to `cargo harness check`: {}\n", left.join(", ")))?;
    }
    Ok(good)
}

/// What Cargo says is for people to see.
async fn told(args: &[&str]) -> Result<()> {
    match cargo().args(args).show().await? {
        Some(0) => Ok(()),
        _ => bail!("cargo {} failed", args.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_there_and_can_be_asked_for() {
        let all = || Selection::of(&[], &[]).unwrap();
        assert_eq!(all().without(LEFT), LEFT);
        let asked = [LEFT[0].to_owned()];
        assert!(Selection::of(&asked, &[]).unwrap().without(LEFT).is_empty());
    }
}
