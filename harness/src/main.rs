//! The test bed: boots hosts that play Azure Container Linux, gives them a cloud (network, registry, cluster), and drives the product
//! through its commands, files and cluster, never through its code.
//!
//!     cli ─▶ verb ─▶ check/ (runner, report, one file a group)
//!                      └▶ host/ (a booted machine)   cloud/ (registry, names, downloads, cluster)
//!                            └▶ base, run, net, cache, command ◀──┘

mod agent;
mod agent_image;
mod base;
mod bed;
mod bench;
mod boot;
mod ca;
mod cache;
mod cargo;
mod chance;
mod check;
mod cli;
mod cloud;
mod command;
mod debian;
mod deps;
mod field_cases;
mod given;
mod host;
mod logs;
mod machine_image;
mod net;
mod node;
mod process;
mod product;
mod progress;
mod run;
mod ship;
mod suite;
mod up;
mod wait;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    match cli::run(cli::Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            progress::say(format_args!("harness: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
