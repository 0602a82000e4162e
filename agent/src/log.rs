//! Logs as `level=INFO msg=… key=value`, one line a record.
//!
//! They go to journald's own socket, because the pipe of a container whose launcher died blocks its writer; to stderr
//! where a person looks on or no journal is; and for `start` and `daemon` to a file of the host as well.
//!
//! Deliberately absent: records of other crates below a warning. They are not ours to keep secrets out of.

use std::{
    fmt::{self, Write as _},
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Write as _},
    os::unix::{fs::OpenOptionsExt, net::UnixDatagram},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use hostexec::{Host, HostPath};
use tracing::{Event, Level, Metadata, Subscriber, field::Field};
use tracing_subscriber::{Layer, layer::Context, layer::SubscriberExt};

use crate::config::LogLevel;

/// journald's socket. Source: systemd, "Native Journal Protocol".
const JOURNAL: &str = "/run/systemd/journal/socket";

/// The most of one record that is sent: longer datagrams would need a file of their own.
const RECORD_LIMIT: usize = 48 << 10;

/// The log file's name in `agent.logDir`.
const FILE: &str = "aks-flex-node.log";

/// Where a command's records go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    /// The journal, where there is one and no terminal.
    Journal,
    /// stderr.
    Stderr,
}

/// The running log; dropping it changes nothing.
#[derive(Clone)]
pub struct Log(Arc<Shared>);

struct Shared {
    level: AtomicU8,
    journal: Option<UnixDatagram>,
    times: bool,
    file: Mutex<Option<File>>,
}

impl Log {
    /// Begins to log, at `info`.
    #[must_use]
    pub fn start(sink: Sink) -> Self {
        let journal = (sink == Sink::Journal && !io::stderr().is_terminal())
            .then(journal)
            .flatten();
        let times = std::env::var_os("JOURNAL_STREAM").is_none();
        let log = Self::new(journal, times);
        let subscriber = tracing_subscriber::registry().with(Records(log.clone()));
        // Fails only where a subscriber is there already, which then keeps its place.
        let _ = tracing::subscriber::set_global_default(subscriber);
        log
    }

    fn new(journal: Option<UnixDatagram>, times: bool) -> Self {
        let level = AtomicU8::new(rank(Level::INFO));
        Self(Arc::new(Shared {
            level,
            journal,
            times,
            file: Mutex::new(None),
        }))
    }

    /// A log that no record reaches.
    #[cfg(test)]
    pub(crate) fn silent() -> Self {
        Self::new(None, false)
    }

    /// Sets how much is logged from now on.
    pub fn set_level(&self, level: LogLevel) {
        let level = match level {
            LogLevel::Debug => Level::DEBUG,
            LogLevel::Info => Level::INFO,
            LogLevel::Warning => Level::WARN,
            LogLevel::Error => Level::ERROR,
        };
        self.0.level.store(rank(level), Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }

    /// The file in that folder that a log goes into.
    #[must_use]
    pub fn file(dir: &HostPath) -> HostPath {
        dir.join(FILE).expect("the file's name is plain")
    }

    /// Logs to a file of the host as well. A log without its file is still a log: a failure only warns.
    pub fn add_file(&self, host: &Host, dir: &HostPath) {
        match open(host, dir) {
            Ok(file) => *self.0.file.lock().unwrap_or_else(PoisonError::into_inner) = Some(file),
            Err(error) => tracing::warn!(%dir, %error, "no log file"),
        }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        let own = ["agent", "hostexec", "image", "units", "butane", "aks_flex_node"]
            .contains(&metadata.target().split("::").next().unwrap_or_default());
        let level = self.0.level.load(Ordering::Relaxed);
        // Nobody vouches for the words of others: kube's warning of an answer that it can't read is the whole answer.
        own && rank(*metadata.level()) <= level
    }

    fn write(&self, level: Level, fields: &str) {
        let line = format!("level={level} {fields}");
        let timed = || format!("time={} {line}\n", jiff::Timestamp::now());
        let sent = self
            .0
            .journal
            .as_ref()
            .is_some_and(|journal| send(journal, level, &line).is_ok());
        if !sent {
            let line = if self.0.times { timed() } else { format!("{line}\n") };
            let _ = io::stderr().write_all(line.as_bytes());
        }
        if let Some(file) = self.0.file.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            let _ = file.write_all(timed().as_bytes());
        }
    }
}

/// More is less: an error comes first.
fn rank(level: Level) -> u8 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

fn journal() -> Option<UnixDatagram> {
    let socket = UnixDatagram::unbound().ok()?;
    // A journal that doesn't read must not stop the agent.
    socket.set_write_timeout(Some(Duration::from_secs(1))).ok()?;
    Path::new(JOURNAL).exists().then_some(socket)
}

fn send(socket: &UnixDatagram, level: Level, line: &str) -> io::Result<()> {
    socket.send_to(&record(level, line), JOURNAL).map(drop)
}

/// One record in journald's own protocol: the message by its length, so that nothing in it can be a field.
fn record(level: Level, line: &str) -> Vec<u8> {
    let priority = match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    };
    let line = &line.as_bytes()[..line.len().min(RECORD_LIMIT)];
    let mut record = format!("PRIORITY={priority}\nSYSLOG_IDENTIFIER=aks-flex-node\nMESSAGE\n").into_bytes();
    record.extend_from_slice(&(line.len() as u64).to_le_bytes());
    record.extend_from_slice(line);
    record.push(b'\n');
    record
}

fn open(host: &Host, dir: &HostPath) -> io::Result<File> {
    if !host.exists(dir)? {
        host.create_dir(dir, 0o750)?;
    }
    let dir = host.open_dir(dir)?;
    // A pipe that nobody reads would hold the agent up for ever.
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK)
        .open(dir.path().join(FILE))?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::other("it is no regular file"))
    }
}

struct Records(Log);

impl<S: Subscriber> Layer<S> for Records {
    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.0.wants(metadata)
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        self.0.write(*event.metadata().level(), &line.0);
    }
}

/// The fields of a record, the message first.
#[derive(Default)]
struct Line(String);

impl Line {
    fn add(&mut self, name: &str, value: &str) {
        let bare = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '"' | '=');
        let mut pair = String::new();
        let _ = if !value.is_empty() && value.chars().all(bare) {
            write!(pair, "{name}={value}")
        } else {
            write!(pair, "{name}={value:?}")
        };
        if self.0.is_empty() {
            self.0 = pair;
        } else if name == "msg" {
            self.0.insert_str(0, &format!("{pair} "));
        } else {
            let _ = write!(self.0, " {pair}");
        }
    }
}

impl tracing::field::Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let name = if field.name() == "message" { "msg" } else { field.name() };
        self.add(name, value);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn records_are_one_line_of_pairs_in_a_file_for_root_alone() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        let log = Log::new(None, false);
        log.add_file(&host, &HostPath::fixed("/var/log/x"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(Records(log.clone())), || {
            tracing::info!(target: "agent::x", task = "a b", n = 3, "it\nworks");
            tracing::debug!(target: "agent::x", "not yet");
            log.set_level(LogLevel::Debug);
            tracing::debug!(target: "agent::x", empty = "", "now");
            tracing::error!(target: "kube_client::client", "never");
            log.set_level(LogLevel::Error);
            tracing::warn!(target: "agent::x", "no more");
        });
        let path = dir.path().join("var/log/x").join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        let records = text
            .lines()
            .map(|line| line.split_once(' ').unwrap().1)
            .collect::<Vec<_>>();
        assert_eq!(
            records,
            [
                r#"level=INFO msg="it\nworks" task="a b" n=3"#,
                r#"level=DEBUG msg=now empty="""#
            ]
        );
        assert!(text.lines().all(|line| line.starts_with("time=20")));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let dir = std::fs::metadata(path.parent().unwrap()).unwrap();
        assert_eq!(dir.permissions().mode() & 0o777, 0o750);
    }

    #[test]
    fn a_message_with_a_field_in_it_is_still_one_message() {
        let line = "a\nPRIORITY=0";
        let expected = [
            b"PRIORITY=4\nSYSLOG_IDENTIFIER=aks-flex-node\nMESSAGE\n".as_slice(),
            &[12, 0, 0, 0, 0, 0, 0, 0],
            b"a\nPRIORITY=0\n",
        ];
        assert_eq!(record(Level::WARN, line), expected.concat());
        assert!(record(Level::INFO, &"x".repeat(1 << 20)).len() < 50 << 10);
    }

    #[test]
    fn a_log_file_that_cannot_be_is_no_failure() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        host.write(&HostPath::fixed("/var/log"), b"a file", 0o600).unwrap();
        let log = Log::new(None, false);
        log.add_file(&host, &HostPath::fixed("/var/log/x"));
        assert!(log.0.file.lock().unwrap().is_none());
        // A pipe that somebody reads can be opened, and is no file all the same.
        let pipe = dir.path().join("pipe");
        std::fs::create_dir(&pipe).unwrap();
        nix::unistd::mkfifo(&pipe.join(FILE), nix::sys::stat::Mode::S_IRWXU).unwrap();
        log.add_file(&host, &HostPath::fixed("/pipe"));
        let _reader = OpenOptions::new()
            .read(true)
            .custom_flags(nix::libc::O_NONBLOCK)
            .open(pipe.join(FILE))
            .unwrap();
        log.add_file(&host, &HostPath::fixed("/pipe"));
        assert!(log.0.file.lock().unwrap().is_none());
    }
}
