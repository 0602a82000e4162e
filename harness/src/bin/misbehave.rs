//! Stands where the agent stands in the images that a node must survive (`cargo harness image --variant …`).
//!
//! Its own image says how it misbehaves, in `/etc/misbehave`. Of the crates it needs none, so that one call of rustc makes it.

use std::os::unix::net::UnixDatagram;
use std::process::ExitCode;
use std::time::Duration;
use std::{env, fs, io, thread};

/// Where the image says which of the ways it is.
const WAY: &str = "/etc/misbehave";

fn main() -> ExitCode {
    match env::args().nth(1).as_deref() {
        Some("version") => {
            println!("AKS Flex Node Agent\nVersion: misbehave\nGit Commit: unknown\nBuild Time: unknown");
            ExitCode::SUCCESS
        }
        Some("daemon" | "agent") => match daemon() {
            Ok(code) => code,
            Err(error) => fail(&error.to_string()),
        },
        verb => fail(&format!("{} is not done by this image", verb.unwrap_or("nothing"))),
    }
}

fn daemon() -> io::Result<ExitCode> {
    let way = fs::read_to_string(WAY)?;
    let way = way.trim();
    if let Some(after) = seconds(way, "exits after ", " s") {
        thread::sleep(after);
        for line in ["this daemon has come up", "it can't go on", "it ends"] {
            eprintln!("misbehave: {line}");
        }
        return Ok(ExitCode::FAILURE);
    }
    match way {
        "mute" => {
            eprintln!("misbehave: running, and never ready");
            loop {
                thread::park();
            }
        }
        "stubborn" => {
            ignore_termination();
            notify("READY=1")?;
            eprintln!("misbehave: ready, and deaf to SIGTERM");
            loop {
                thread::sleep(watchdog() / 2);
                notify("WATCHDOG=1")?;
            }
        }
        other => Err(io::Error::other(format!("{WAY}: {other} is no way to misbehave"))),
    }
}

/// The whole seconds that stand between two words.
fn seconds(way: &str, before: &str, after: &str) -> Option<Duration> {
    let number = way.strip_prefix(before)?.strip_suffix(after)?;
    number.parse().ok().map(Duration::from_secs)
}

/// Tells systemd, by the protocol of `sd_notify(3)`.
fn notify(what: &str) -> io::Result<()> {
    let socket = env::var_os("NOTIFY_SOCKET").ok_or_else(|| io::Error::other("NOTIFY_SOCKET is not set"))?;
    UnixDatagram::unbound()?.send_to(what.as_bytes(), socket).map(drop)
}

/// How often the watchdog wants to hear of us; a second if nobody says.
fn watchdog() -> Duration {
    let told = env::var("WATCHDOG_USEC").ok().and_then(|micros| micros.parse().ok());
    told.map_or(Duration::from_secs(1), Duration::from_micros)
}

/// From now on SIGTERM does nothing.
fn ignore_termination() {
    #[expect(
        unsafe_code,
        reason = "the standard library can't ignore a signal, and a crate would need Cargo"
    )]
    // SAFETY: SIG_IGN is no handler: nothing of ours runs in a signal's context.
    unsafe {
        // Source: signal(2) of glibc on Linux; SIGTERM is 15, SIG_IGN is 1.
        unsafe extern "C" {
            fn signal(number: i32, handler: usize) -> usize;
        }
        signal(15, 1);
    }
}

fn fail(why: &str) -> ExitCode {
    eprintln!("misbehave: {why}");
    ExitCode::FAILURE
}
