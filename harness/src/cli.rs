//! The command line, and which verb does what.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::bed::{self, Bed};
use crate::cache::Cache;
use crate::check::{self, Selection};
use crate::cloud::approver;
use crate::cloud::azure::{self, Azure};
use crate::cloud::faulty::{self, Faulty};
use crate::deps;
use crate::given;
use crate::host::supervisor::{self, Inner};
use crate::host::{self, Host};
use crate::{bench, boot, logs, progress, run, ship, suite, up};

/// Names the Kubernetes programs for every verb that needs them.
const KUBE: &str = "AKS_FLEX_NODE_HARNESS_KUBE";

/// The test bed of aks-flex-node: hosts that play Azure Container Linux, a registry and a real cluster.
#[derive(Parser)]
#[command(name = "cargo harness", bin_name = "cargo harness")]
pub(crate) struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install the Debian packages that the bed needs and that are missing.
    Deps,
    /// Make a bed: image, network, registry, cluster, and a host that joins and runs a pod.
    ///
    /// The agent's image takes minutes to build the first time; AKS_FLEX_NODE_HARNESS_PROFILE=quick builds a larger one faster.
    Up(Up),
    /// Boot one more host in a bed: as the bed's own, from inputs of yours, or from your Ignition config.
    Boot(Boot),
    /// Run checks: all of them, those named, or those of a group.
    Check(Check),
    /// Remove a bed and everything it made, or one host of it.
    Down(Down),
    /// Run a command in a host of a bed: `exec HOST -- CMD…`.
    Exec(Exec),
    /// Run kubectl against a bed's cluster: `kubectl -- ARGS…`.
    Kubectl(Kubectl),
    /// Show the logs of a bed: a host's journal, or a server of the cloud.
    Logs(Logs),
    /// Build the agent's OCI image and print its reference; also: push it, into a bed too.
    Image(ship::Options),
    /// Measure, and write docs/performance.md.
    Bench(Bench),
    /// Formatting, lints, unit tests, checks: what CI runs.
    Test(Check),
    /// Decides on agents' certificates in a bed's cluster: a server of the bed, not for people.
    #[command(hide = true)]
    CsrApprover(Name),
    /// A registry that goes wrong as checks want: a server of a bed, not for people.
    #[command(hide = true)]
    FaultyRegistry(Name),
    /// What gives Azure's tokens: a server of a bed, not for people.
    #[command(hide = true)]
    Azure(Name),
    /// What this program asks itself to do, in namespaces of its own.
    #[command(hide = true, subcommand)]
    Inner(Inner),
}

/// Which run is meant.
#[derive(Args, Clone)]
pub(crate) struct Name {
    /// The run, by name; several stand side by side.
    #[arg(long, default_value = "bed", value_parser = run::plain)]
    pub(crate) run: String,
}

#[derive(Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) bed: Name,
    /// An agent image (OCI layout, or its archive) to use instead of building one.
    #[arg(long, value_name = "DIR|FILE.tar", value_parser = given::image)]
    pub(crate) image: Option<PathBuf>,
    /// A folder or archive that has the Kubernetes programs.
    #[arg(long, env = KUBE, value_name = "DIR|FILE", value_parser = given::kube)]
    pub(crate) kube: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Boot {
    #[command(flatten)]
    pub(crate) bed: Name,
    /// The host's name, and its node's: a letter and up to eight letters or digits, all small.
    #[arg(value_parser = host::plain)]
    pub(crate) host: String,
    /// A folder as docs/ignition.md has it: what is in it takes the place of the bed's own input.
    #[arg(long, value_name = "DIR", value_parser = given::folder, conflicts_with = "ignition")]
    pub(crate) inputs: Option<PathBuf>,
    /// An Ignition config (JSON, up to 3.3.0), taken as it is.
    #[arg(long, value_name = "FILE")]
    pub(crate) ignition: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Check {
    /// Checks by name, such as `join.first-boot`.
    pub(crate) names: Vec<String>,
    /// Checks of a group: what stands before the first dot of the name.
    #[arg(long)]
    pub(crate) group: Vec<String>,
    /// The documented depth instead of the short one: it may take hours, and each check ten times its limit.
    #[arg(long)]
    pub(crate) full: bool,
    /// How often what is repeated is repeated.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) n: Option<u32>,
    /// The seed of what is drawn by chance.
    #[arg(long)]
    pub(crate) seed: Option<u64>,
    /// An agent image (OCI layout, or its archive) to check instead of building one.
    #[arg(long, value_name = "DIR|FILE.tar", value_parser = given::image)]
    pub(crate) image: Option<PathBuf>,
    /// A folder or archive that has the Kubernetes programs.
    #[arg(long, env = KUBE, value_name = "DIR|FILE", value_parser = given::kube)]
    pub(crate) kube: Option<PathBuf>,
    /// Print the checks with their limits, and end.
    #[arg(long)]
    pub(crate) list: bool,
    /// How many checks run side by side. A computer's 128 inotify instances are enough for five hosts, of which a check may have two.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) jobs: u16,
    /// Where to write the report (JSON).
    #[arg(long, value_name = "FILE", value_parser = given::new_file)]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Down {
    #[command(flatten)]
    pub(crate) bed: Name,
    /// Remove every run, whoever made it.
    #[arg(long)]
    pub(crate) all: bool,
    /// Remove that host alone.
    #[arg(long, conflicts_with = "all")]
    pub(crate) host: Option<String>,
}

#[derive(Args)]
pub(crate) struct Exec {
    #[command(flatten)]
    pub(crate) bed: Name,
    /// The host's name.
    pub(crate) host: String,
    /// The command and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct Kubectl {
    #[command(flatten)]
    pub(crate) bed: Name,
    /// kubectl's arguments.
    #[arg(last = true, required = true)]
    pub(crate) args: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct Logs {
    #[command(flatten)]
    pub(crate) bed: Name,
    /// A host, or a server of the cloud; without it, what there is.
    pub(crate) of: Option<String>,
    /// More arguments for the host's journalctl.
    #[arg(last = true)]
    pub(crate) args: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct Bench {
    /// An agent image (OCI layout, or its archive) to measure instead of building one.
    #[arg(long, value_name = "DIR|FILE.tar", value_parser = given::image)]
    pub(crate) image: Option<PathBuf>,
    /// A folder or archive that has the Kubernetes programs.
    #[arg(long, env = KUBE, value_name = "DIR|FILE", value_parser = given::kube)]
    pub(crate) kube: Option<PathBuf>,
    /// Where to write the page, instead of docs/performance.md.
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
}

/// Does what the command line asks for.
///
/// # Errors
/// What the verb met.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    if let Verb::Inner(inner) = cli.verb {
        supervisor::inner(inner)?;
        return Ok(ExitCode::SUCCESS);
    }
    // One thread: what takes time here is other programs.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = tokio::task::LocalSet::new().block_on(&runtime, verb(cli.verb));
    // A lost child or a blocked lock must not hold us.
    runtime.shutdown_background();
    ended
}

async fn verb(verb: Verb) -> Result<ExitCode> {
    // What looks at a bed or removes it. What makes one asks for more.
    if matches!(verb, Verb::Down(_) | Verb::Exec(_) | Verb::Kubectl(_) | Verb::Logs(_)) {
        deps::root()?;
    }
    let good = match verb {
        Verb::Deps => {
            let installed = deps::ensure().await?;
            let said = if installed.is_empty() {
                "everything is there\n".to_owned()
            } else {
                format!("installed: {}\n", installed.join(" "))
            };
            progress::result(&said)?;
            true
        }
        Verb::Image(options) => ship::ship(options).await.map(|()| true)?,
        Verb::Check(options) | Verb::Test(options) if options.list => {
            let selection = Selection::of(&options.names, &options.group)?;
            progress::result(&check::list(&selection, suite::LEFT))?;
            true
        }
        Verb::Check(options) => {
            let selection = Selection::of(&options.names, &options.group)?;
            deps::ensure().await?;
            check::run(selection, &options).await?
        }
        Verb::CsrApprover(bed) => {
            let bed = Bed::open(&Cache::open()?, &bed.run)?;
            approver::serve(&bed.cloud()?.cluster).await.map(|()| true)?
        }
        Verb::FaultyRegistry(bed) => {
            let bed = Bed::open(&Cache::open()?, &bed.run)?;
            faulty::serve(&Faulty::of(&bed.run, &bed.net)).await.map(|()| true)?
        }
        Verb::Azure(bed) => {
            let bed = Bed::open(&Cache::open()?, &bed.run)?;
            azure::serve(&Azure::of(&bed.run, &bed.net)).await.map(|()| true)?
        }
        Verb::Boot(options) => {
            deps::ensure().await?;
            boot::boot(&options).await.map(|()| true)?
        }
        Verb::Down(options) => {
            let cache = Cache::open()?;
            match &options.host {
                Some(host) => bed::down_host(&cache, &options.bed.run, host).await?,
                None => bed::down(&cache, &options.bed.run, options.all).await?,
            }
            true
        }
        Verb::Exec(options) => {
            let bed = Bed::open(&Cache::open()?, &options.bed.run)?;
            let code = Host::open(&bed.run, &options.host)?
                .command(&options.command)?
                .show()
                .await?;
            return Ok(exit(code));
        }
        Verb::Up(options) => {
            deps::ensure().await?;
            up::up(&options).await.map(|()| true)?
        }
        Verb::Kubectl(options) => {
            let bed = Bed::open(&Cache::open()?, &options.bed.run)?;
            let kubectl = bed.cloud()?.cluster.plane().kubectl();
            return Ok(exit(kubectl.args(&options.args).show().await?));
        }
        Verb::Logs(options) => {
            let bed = Bed::open(&Cache::open()?, &options.bed.run)?;
            return Ok(exit(logs::show(&bed, options.of.as_deref(), &options.args).await?));
        }
        Verb::Test(options) => suite::test(&options).await?,
        Verb::Bench(options) => {
            deps::ensure().await?;
            bench::bench(&options).await.map(|()| true)?
        }
        Verb::Inner(_) => unreachable!("done before the runtime"),
    };
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A program's exit code as ours; a signal's end is a failure.
fn exit(code: Option<i32>) -> ExitCode {
    code.and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from)
}
