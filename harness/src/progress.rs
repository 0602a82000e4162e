//! One line a step on standard error, with the time it took; standard output stays for results.

use std::fmt;
use std::io::{self, Write};
use std::time::Instant;

use anyhow::Result;

/// Says what begins, does it, and says how long it took.
///
/// # Errors
/// What `work` met, with the step's name before it.
pub(crate) async fn step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let start = Instant::now();
    say(format_args!("  …      {name}"));
    let done = work.await;
    let mark = if done.is_ok() { "ok" } else { "FAILED" };
    say(format_args!("{:>6.1} s {name}: {mark}", start.elapsed().as_secs_f32()));
    done.map_err(|error| error.context(name.to_owned()))
}

/// One line about something that is no step.
pub(crate) fn note(line: &str) {
    say(format_args!("         {line}"));
}

/// One line on standard error, if anybody still reads it: what is made goes on.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// A result, on standard output. Who stopped reading (`| head`) has what they wanted; that is no fault.
///
/// # Errors
/// It can't be written for another reason.
pub(crate) fn result(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    quiet(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}

fn quiet(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reader_that_left_is_no_fault() {
        assert!(quiet(Err(io::ErrorKind::BrokenPipe.into())).is_ok());
        assert!(quiet(Err(io::ErrorKind::StorageFull.into())).is_err());
    }
}
