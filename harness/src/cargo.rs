//! Cargo, in the workspace that this program was built from.

use std::env;
use std::ffi::OsString;
use std::path::Path;

use crate::command::Command;

/// The Cargo that started us, or else the one at hand, as from a shell.
pub(crate) fn cargo() -> Command {
    cargo_by(Command::tied)
}

/// The same, with a command made of the program by `by`: one that runs it elsewhere.
///
/// What `cargo run` says in the environment of the package it runs must not go on to it: ring's build script takes that
/// for its own, and all that uses ring would be built anew.
pub(crate) fn cargo_by(by: impl FnOnce(OsString) -> Command) -> Command {
    let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let told = env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    told.fold(by(program), Command::without).dir(&workspace)
}
