//! Times programs for `cargo harness bench`: `stopwatch TIMES -- PROGRAM ARG… [-- PROGRAM ARG…]…` runs each of them that often, in turn, and
//! prints for each a line of microseconds.
//!
//! In turn, so that what else the machine does falls on all alike. Static, so that it runs in the agent's container too.

use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut parts = words.split(|word| word == "--");
    let times = parts.next().and_then(|first| first.first()?.parse().ok());
    let lines: Vec<&[String]> = parts.filter(|line| !line.is_empty()).collect();
    let Some(times) = times else {
        eprintln!("stopwatch: write TIMES -- PROGRAM ARG… [-- PROGRAM ARG…]…");
        return ExitCode::FAILURE;
    };
    let mut micros: Vec<Vec<u128>> = vec![Vec::new(); lines.len()];
    for _ in 0..times {
        for (line, micros) in lines.iter().zip(&mut micros) {
            match time(line) {
                Ok(taken) => micros.push(taken),
                Err(error) => {
                    eprintln!("stopwatch: {}: {error}", line.join(" "));
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    for micros in micros {
        let line: Vec<String> = micros.iter().map(u128::to_string).collect();
        println!("{}", line.join(" "));
    }
    ExitCode::SUCCESS
}

fn time(line: &[String]) -> Result<u128, String> {
    let mut command = Command::new(&line[0]);
    command.args(&line[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let start = Instant::now();
    let status = command.status().map_err(|error| error.to_string())?;
    let taken = start.elapsed().as_micros();
    if status.success() {
        Ok(taken)
    } else {
        Err(status.to_string())
    }
}
