//! Makes steps true. The one place of a plan's effects on the host.
//!
//! Serial plans stop at the first error; of parallel ones the first error cancels the others, and a tool that runs for
//! them ends with them. Nothing is rolled back: a step names an end, and the next try goes on from what is there.

mod archives;
mod download;
mod error;
mod file;
mod filter;
mod ledger;
mod machine;
mod origin;
mod rootfs;
mod swap;
mod sysctl;
mod unit;
mod words;

use std::{
    path::PathBuf,
    pin::Pin,
    time::{Duration, Instant},
};

use futures::{FutureExt as _, future};
use hostexec::{Host, Written};

pub use error::{Error, Failed};
pub use file::sweep;

use crate::{
    fetch::{self, Fetcher, Limits},
    step::{Plan, Step, Task},
    store,
};

/// What steps are made true with.
#[derive(Debug)]
pub struct Context {
    /// The host.
    pub host: Host,
    /// The way to the network.
    pub fetcher: Fetcher,
    /// The agent's own program.
    pub program: PathBuf,
    /// How long to wait for what.
    pub waits: Waits,
}

impl Context {
    /// The agent's own surroundings on this host.
    ///
    /// # Errors
    /// TLS can't be set up at all.
    pub fn new(host: Host) -> Result<Self, fetch::Error> {
        let fetcher = Fetcher::new(fetch::roots(&host), Limits::default())?;
        Ok(Self {
            host,
            fetcher,
            program: "/proc/self/exe".into(),
            waits: Waits::default(),
        })
    }
}

/// How long a step waits. Source: node-agent specification, 5.9 and appendix D.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    /// For a machine's first answer.
    pub boot: Duration,
    /// Between two looks at a booting or ending machine.
    pub poll: Duration,
    /// For a stale registration to go.
    pub gone: Duration,
    /// For kubelet to be active.
    pub active: Duration,
    /// For kubelet to hold its credential.
    pub joined: Duration,
    /// For which a kubelet has to run on that says it is well.
    pub steady: Duration,
    /// For which one has to run that says nothing, its port being somebody else's. One that can't work ends some 6 s after its start (measured
    /// with 1.20).
    pub lasting: Duration,
    /// Between two looks at kubelet.
    pub kubelet_poll: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            boot: Duration::from_secs(30),
            poll: Duration::from_millis(500),
            gone: Duration::from_secs(15),
            active: Duration::from_secs(60),
            joined: Duration::from_secs(120),
            steady: Duration::from_secs(1),
            lasting: Duration::from_secs(20),
            kubelet_poll: Duration::from_secs(2),
        }
    }
}

/// Makes every step of `plan` true.
///
/// # Errors
/// The first step that can't be made true, by name. What was done before it stays.
pub async fn run(plan: &Plan, context: &Context) -> Result<(), Failed> {
    walk(plan, context).await
}

fn walk<'a>(plan: &'a Plan, context: &'a Context) -> Pin<Box<dyn Future<Output = Result<(), Failed>> + 'a>> {
    Box::pin(async move {
        match plan {
            Plan::Serial(plans) => {
                for plan in plans {
                    walk(plan, context).await?;
                }
                Ok(())
            }
            Plan::Parallel(plans) => future::try_join_all(plans.iter().map(|plan| walk(plan, context)))
                .await
                .map(drop),
            Plan::Task(task) => perform(task, context).await,
        }
    })
}

async fn perform(task: &Task, context: &Context) -> Result<(), Failed> {
    let started = Instant::now();
    tracing::info!(task = task.name, "started");
    // Save, then do.
    let noted = async {
        ledger::record(&context.host, &task.step).await?;
        make_true(&task.step, context).await
    };
    let outcome = std::panic::AssertUnwindSafe(noted)
        .catch_unwind()
        .await
        .unwrap_or_else(|panic| Err(Error::panicked(&*panic)));
    let milliseconds = started.elapsed().as_millis();
    match outcome {
        Ok(()) => {
            tracing::info!(task = task.name, milliseconds, "completed");
            Ok(())
        }
        Err(error) => {
            tracing::warn!(
                task = task.name,
                milliseconds,
                error = &error as &dyn std::error::Error,
                "failed"
            );
            Err(Failed {
                task: task.name,
                source: error,
            })
        }
    }
}

async fn make_true(step: &Step, context: &Context) -> Result<(), Error> {
    let on_disk = |outcome: Result<(), Error>| outcome.map_err(|error| error.on_disk(&context.host, &file::MACHINES));
    match step {
        Step::Files(files) => file::write(&context.host, files).map(drop),
        Step::UnitFiles(files) => match file::write(&context.host, files)? {
            Written::Changed => unit::reload(&context.host).await,
            Written::Same => Ok(()),
        },
        Step::Reload => unit::reload(&context.host).await,
        Step::Sysctls(wanted) => sysctl::set(&context.host, wanted).await,
        Step::UnitsOff(units) => unit::turn_off(&context.host, units).await,
        Step::SwapOff => swap::off(&context.host).await,
        Step::FirewallsOpen(families) => filter::open(&context.host, families).await,
        Step::UnitDisabled { unit } => unit::disable(&context.host, unit).await,
        Step::UnitCurrent { unit, reads } => unit::run_current(&context.host, unit, reads).await,
        Step::Rootfs { machine, image } => on_disk(rootfs::unpack(context, *machine, image).await),
        Step::Download(wanted) => on_disk(download::install(context, wanted).await),
        Step::Archives { folder, archives } => on_disk(archives::put(context, folder, archives).await),
        Step::ImagesImported { machine, images } => archives::import(context, *machine, images).await,
        Step::AgentBinary { machine } => file::copy_agent(context, *machine).await,
        Step::MachineEnabled { machine } => machine::enable(&context.host, *machine).await,
        Step::MachineRunning { machine } => machine::start(context, *machine).await,
        Step::ServiceRunning { machine, unit, reads } => machine::run_service(context, *machine, unit, reads).await,
        Step::KubeletJoined { machine, credential } => machine::wait_for_kubelet(context, *machine, credential).await,
        Step::KubeletSteady { machine } => machine::watch_kubelet(context, *machine).await,
        Step::StateSaved(state) => store::state::save(&context.host, state).map_err(Error::State),
        Step::UnitRunning { unit } => unit::start(&context.host, unit).await,
        Step::UnitEnabled { unit } => unit::enable(&context.host, unit).await,
    }
}

#[cfg(test)]
mod tests;
