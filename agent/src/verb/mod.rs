//! A few lines of composition a command.

mod bootstrap;
mod daemon;
mod fetch_bootstrap_data;
mod ignition;
mod kubelogin;
mod names;
pub mod nspawn_lifecycle;
mod plan;
mod preflight;
mod recover;
mod reset;
mod self_check;
mod start;
mod version;

use std::path::Path;
use std::time::Duration;

use hostexec::{Call, Host, HostPath, Tool};
use nix::sys::resource::{Resource, setrlimit};
use tokio::signal::unix::{SignalKind, signal};
use units::AgentUnit;

use crate::{
    config::{self, Identity, Settings},
    exit::{Exit, Failure},
    ledger::Thing,
    log::Log,
    model::Mode,
    plan::reset::names::is_by_name,
    store,
};

pub use bootstrap::bootstrap;
pub use daemon::daemon;
pub use fetch_bootstrap_data::{Auth, Wanted, fetch_bootstrap_data};
pub use ignition::ignition;
pub use kubelogin::{Binding, Login, kubelogin};
pub use plan::plan_start;
pub use preflight::{Asked, preflight};
pub use recover::recover;
pub use reset::{plan_reset, reset};
pub use self_check::self_check;
pub use start::start;
pub use version::version;

/// How something is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// For a person.
    #[default]
    #[value(alias = "")]
    Text,
    /// For a program, and alone on stdout.
    Json,
}

/// What every command is handed: the one read of the install mode, the host, the log.
#[derive(Clone)]
pub struct Surroundings {
    /// The install.
    pub mode: Mode,
    /// The host.
    pub host: Host,
    /// The log.
    pub log: Log,
}

impl Surroundings {
    /// Those of a process with this install mode.
    #[must_use]
    pub fn new(mode: Mode, log: Log) -> Self {
        let host = match mode {
            Mode::Container => Host::container(),
            Mode::Binary => Host::rooted(Path::new("/")),
        };
        Self { mode, host, log }
    }

    /// Reads the configuration, and has the log follow it.
    ///
    /// # Errors
    /// There is none, or it can't work.
    pub fn settings(&self, path: &str) -> Result<Settings, Failure> {
        let settings = self.settings_as_they_are(path)?;
        config::guard(&self.host, path);
        Ok(settings)
    }

    /// The same, and leaves the file as it is.
    ///
    /// # Errors
    /// As [`Surroundings::settings`].
    pub fn settings_as_they_are(&self, path: &str) -> Result<Settings, Failure> {
        let name = self.host.host_name().unwrap_or_else(|error| {
            tracing::warn!(%error, "the host's name can't be read");
            String::new()
        });
        let loaded = config::load(&self.host, path, &name)?;
        self.log.set_level(loaded.settings.log_level());
        self.tell(&loaded);
        Ok(loaded.settings)
    }

    /// Has the log go into a file, too, which a reset knows again.
    pub fn log_to(&self, dir: &HostPath) {
        let file = Log::file(dir);
        if !is_by_name(&file)
            && let Err(error) = store::ledger::add(&self.host, vec![Thing::Log { path: file }])
        {
            tracing::warn!(%dir, %error, "no log file: it can't be recorded");
            return;
        }
        self.log.add_file(&self.host, dir);
    }

    /// Names what the configuration says without effect.
    fn tell(&self, loaded: &config::Loaded) {
        for key in &loaded.unknown {
            tracing::debug!(key, "the configuration has a key that this release does not know");
        }
        if self.mode == Mode::Container && loaded.settings.host_prefix().is_some() {
            tracing::warn!(
                key = "agent.hostPrefix",
                "without effect where the agent runs from its image"
            );
        }
    }

    /// Asks the host's machined for an answer. What runs in the container without it would fail half-way.
    ///
    /// # Errors
    /// It gives none.
    pub async fn machined(&self) -> Result<(), Failure> {
        self.machined_within(MACHINED).await
    }

    async fn machined_within(&self, limit: Duration) -> Result<(), Failure> {
        match self.mode {
            Mode::Binary => Ok(()),
            Mode::Container => {
                let call = Call::new(Tool::Machinectl, &["list", "--no-legend"]).limit(limit);
                self.host.call(call).await.map(drop).map_err(Failure::Machined)
            }
        }
    }

    /// The same for what must run without an answer too: it does what it can.
    pub async fn machined_or_warn(&self) {
        if let Err(failure) = self.machined_within(MACHINED_BRIEFLY).await {
            tracing::warn!(error = crate::model::chain(&failure), "going on without machined");
        }
    }
}

/// The agent's unit as these settings have it: a host of Azure Arc has its identity from another service.
#[must_use]
pub fn agent_unit(settings: &Settings) -> AgentUnit {
    let arc = (settings.auth().identity() == Some(&Identity::Arc)).then_some("himdsd.service");
    AgentUnit {
        also_after: arc.iter().filter_map(|name| name.parse().ok()).collect(),
        ..AgentUnit::default()
    }
}

/// How long machined may take for an answer.
const MACHINED: Duration = Duration::from_secs(20);
/// The same for whom it only earns a warning: a recovery has a minute for all it does.
const MACHINED_BRIEFLY: Duration = Duration::from_secs(4);

/// Runs a command until it ends or a stop is asked for. Dropping it half-way is what a crash does: every command
/// goes on from what is saved.
///
/// # Errors
/// The command failed.
async fn until_stopped(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    let listen = |kind| {
        signal(kind).map_err(|source| Failure::Host {
            what: "listen for signals",
            source,
        })
    };
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    tokio::select! {
        ended = command => ended,
        _ = interrupt.recv() => stopped("SIGINT"),
        _ = terminate.recv() => stopped("SIGTERM"),
    }
}

/// Keeps the process' memory, with its secrets, out of core dumps and from other processes' eyes.
pub fn keep_secrets_in_memory() {
    let limited = setrlimit(Resource::RLIMIT_CORE, 0, 0).and_then(|()| nix::sys::prctl::set_dumpable(false));
    if let Err(error) = limited {
        tracing::warn!(%error, "the process' memory may get into a core dump");
    }
}

/// Drives a command to its end, on this thread.
///
/// # Errors
/// The command failed, or can't be driven.
pub fn block_on(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    names::resolve_by_files_and_dns();
    // One provider of TLS for every client; an error says only that there is one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| Failure::Host {
        what: "start the runtime",
        source,
    })?;
    let ended = runtime.block_on(until_stopped(command));
    // Dropped, it would wait for a sync or an unpacking that nobody waits for any more.
    runtime.shutdown_background();
    ended
}

fn stopped(signal: &'static str) -> Result<Exit, Failure> {
    tracing::info!(signal, "stopping");
    Ok(Exit::Done)
}
