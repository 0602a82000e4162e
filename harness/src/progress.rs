//! One line a step on standard error, with the time it took; standard output stays for results.

use std::time::Instant;

use anyhow::Result;

/// Says what begins, does it, and says how long it took.
///
/// # Errors
/// What `work` met, with the step's name before it.
pub(crate) async fn step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let start = Instant::now();
    eprintln!("  …      {name}");
    let done = work.await;
    let mark = if done.is_ok() { "ok" } else { "FAILED" };
    eprintln!("{:>6.1} s {name}: {mark}", start.elapsed().as_secs_f32());
    done.map_err(|error| error.context(name.to_owned()))
}

/// One line about something that is no step.
pub(crate) fn note(line: &str) {
    eprintln!("         {line}");
}
