//! The program: parse, log, run, end.

use std::{
    io::{self, Write as _},
    process::ExitCode,
};

use agent::{
    cli,
    log::Log,
    model::{Mode, chain},
    verb::{self, Surroundings},
};

fn main() -> ExitCode {
    let mode = Mode::of(std::env::var(Mode::VARIABLE).ok().as_deref());
    let ended = cli::parse().and_then(|command| {
        let here = Surroundings::new(mode, Log::start(command.sink()));
        verb::keep_secrets_in_memory();
        verb::block_on(command.run(&here))
    });
    let exit = ended.unwrap_or_else(|failure| {
        // Whoever listened may be gone; how it ended is told all the same.
        let _ = writeln!(io::stderr(), "aks-flex-node: the command failed: {}", chain(&failure));
        failure.exit()
    });
    exit.into()
}
