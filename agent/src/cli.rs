//! The command line. Deliberately absent: defaults, which are the rooms' own, and values of the environment but for
//! what systemd tells recovery.

mod args;

use std::io::{self, Write as _};

use clap::{
    CommandFactory, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::{
    daemon::recover::Cause,
    exit::{Exit, Failure},
    log::Sink,
    model::MachineName,
    verb::{self, Surroundings, nspawn_lifecycle},
};

pub use args::{
    Config, FetchBootstrapData, Ignition, Inputs, Kubelogin, Phase, PlanOf, Preflight, Printed, Spec, TokenOf,
};

/// The node agent of AKS Flex nodes.
#[derive(Parser)]
#[command(name = "aks-flex-node")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the agent can be asked to do.
#[derive(Subcommand)]
pub enum Command {
    /// Makes the configuration from a first boot's inputs, then does what `start` does.
    Bootstrap(Box<Inputs>),
    /// Joins the host to its cluster, and installs and starts the agent's unit.
    Start(Config),
    /// Prints what a command would do on this host, and changes nothing.
    Plan {
        /// The command.
        #[command(subcommand)]
        of: PlanOf,
    },
    /// Serves the node: the long-lived command of the agent's unit.
    #[command(alias = "agent")]
    Daemon(Config),
    /// Tells whether the host can become a node, and what to do where it can't. Changes nothing.
    Preflight(Preflight),
    /// Takes the node and its agent off this host, and tells what was removed, what stays, and what could not be removed.
    #[command(alias = "unbootstrap")]
    Reset(Printed),
    /// Prints the Ignition config made of a folder of inputs.
    Ignition(Ignition),
    /// Prints a token of the host's Azure identity.
    Token {
        /// In which form.
        #[command(subcommand)]
        of: TokenOf,
    },
    /// Writes what a host needs to join, from Azure Resource Manager, into a file of root's own.
    FetchBootstrapData(Box<FetchBootstrapData>),
    /// Prints the version.
    Version,
    /// Runs the last good agent's side of an upgrade that failed.
    #[command(hide = true)]
    RecoverAgentUpgrade {
        /// Why it is run.
        #[arg(long)]
        message: Option<String>,
        /// Which start of the agent's unit failed. Given by the environment: the last good agent, which may be older than
        /// the unit, must know every argument of its line.
        #[arg(long, env = "MONITOR_INVOCATION_ID", hide = true)]
        invocation: Option<String>,
    },
    /// Prints, in one line of JSON, what this agent finds on the host: the agent that runs asks the image of an upgrade so.
    /// It changes nothing.
    #[command(hide = true)]
    SelfCheck(Config),
    /// Runs a phase of a machine's life.
    #[command(hide = true)]
    NspawnLifecycle {
        /// The phase.
        phase: Phase,
        /// The machine.
        #[arg(value_parser = |text: &str| text.parse::<MachineName>())]
        machine: MachineName,
    },
}

impl Command {
    /// Where its records go.
    #[must_use]
    pub fn sink(&self) -> Sink {
        match self {
            Self::Ignition(_)
            | Self::Version
            | Self::SelfCheck(_)
            | Self::Plan { .. }
            | Self::Preflight(_)
            | Self::FetchBootstrapData(_)
            | Self::Token { .. } => Sink::Stderr,
            Self::Bootstrap(_)
            | Self::Start(_)
            | Self::Daemon(_)
            | Self::Reset(_)
            | Self::RecoverAgentUpgrade { .. }
            | Self::NspawnLifecycle { .. } => Sink::Journal,
        }
    }
}

/// Reads the command line; help is printed and is the end.
///
/// # Errors
/// It can't be read. The message names the option, and repeats nothing that was given to it.
pub fn parse() -> Result<Command, Failure> {
    Cli::try_parse().map(|cli| cli.command).map_err(|error| {
        if error.kind() == ErrorKind::DisplayHelp {
            error.exit()
        }
        Failure::Usage(usage(&error))
    })
}

fn usage(error: &clap::Error) -> String {
    let texts = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(", "),
        _ => String::new(),
    };
    // What was given stands behind a blank or an equals sign.
    let option = texts(ContextKind::InvalidArg);
    let option = option.split([' ', '=']).next().unwrap_or_default();
    let option = Some(option).filter(|option| option.starts_with("--"));
    let option = option.map(|option| format!(" ({option})")).unwrap_or_default();
    let values = texts(ContextKind::ValidValue);
    let kind = error.kind();
    use ErrorKind as E;
    let what = if [E::DisplayHelpOnMissingArgumentOrSubcommand, E::MissingSubcommand].contains(&kind) {
        format!("no verb is given: write one of {}", verbs())
    } else if kind == E::InvalidSubcommand {
        format!("there is no such verb: write one of {}", verbs())
    } else if kind == E::MissingRequiredArgument {
        // Names of our own, as `<DIR>`.
        format!("{} is missing", texts(ContextKind::InvalidArg))
    } else if kind == E::InvalidValue && !values.is_empty() {
        format!("a value can't be taken{option}: write one of {values}")
    } else {
        format!("{}{option}", kind.as_str().unwrap_or("it can't be read"))
    };
    format!("the command line can't work: {what}: see `aks-flex-node --help`, or `--help` behind the verb")
}

/// What can be asked for, without what units ask for.
fn verbs() -> String {
    let command = Cli::command();
    let verbs: Vec<_> = command
        .get_subcommands()
        .filter(|verb| !verb.is_hide_set())
        .map(clap::Command::get_name)
        .collect();
    verbs.join(", ")
}

impl Command {
    /// Does what is asked for.
    ///
    /// # Errors
    /// It failed.
    pub async fn run(self, here: &Surroundings) -> Result<Exit, Failure> {
        match &self {
            Self::Bootstrap(_) | Self::Start(_) | Self::Daemon(_) | Self::NspawnLifecycle { .. } => {
                here.machined().await?
            }
            Self::Reset(_) | Self::RecoverAgentUpgrade { .. } => here.machined_or_warn().await,
            // Preflight says itself what doesn't answer.
            Self::Ignition(_)
            | Self::Version
            | Self::SelfCheck(_)
            | Self::Plan { .. }
            | Self::Preflight(_)
            | Self::FetchBootstrapData(_)
            | Self::Token { .. } => {}
        }
        match self {
            Self::Bootstrap(inputs) => verb::bootstrap(here, inputs.given()).await,
            Self::Start(config) => verb::start(here, &config.path).await,
            Self::Plan {
                of: PlanOf::Start { config, output },
            } => verb::plan_start(here, &config.path, output).await,
            Self::Daemon(config) => verb::daemon(here, &config.path).await,
            Self::Plan {
                of: PlanOf::Reset(printed),
            } => verb::plan_reset(here, printed.output()),
            Self::Reset(printed) => verb::reset(here, printed.output()).await,
            Self::Ignition(Ignition { dir, spec }) => verb::ignition(here, &dir, spec.into()),
            Self::Version => {
                let printed = write!(io::stdout(), "{}", verb::version());
                printed.map_err(|source| Failure::Host {
                    what: "print the version",
                    source,
                })?;
                Ok(Exit::Done)
            }
            Self::FetchBootstrapData(asked) => verb::fetch_bootstrap_data(here, &(*asked).into()).await,
            Self::Token {
                of: TokenOf::Kubelogin(asked),
            } => verb::kubelogin(here, &asked.into()).await,
            Self::Preflight(asked) => verb::preflight(here, &asked.config.path.clone(), &asked.asked()).await,
            Self::SelfCheck(config) => verb::self_check(here, &config.path).await,
            Self::RecoverAgentUpgrade { message, invocation } => {
                let cause = Cause {
                    message: message.as_deref(),
                    invocation: invocation.as_deref(),
                };
                verb::recover(here, cause).await
            }
            Self::NspawnLifecycle { phase, machine } => match phase {
                Phase::PreStart => nspawn_lifecycle::pre_start(here, machine).await,
                Phase::PostStart => nspawn_lifecycle::post_start(here).await,
                Phase::Reconcile => nspawn_lifecycle::reconcile(here, machine).await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bootstrap::Key, log::Log, model::Mode};

    #[test]
    fn each_input_that_has_an_option_is_given_by_it() {
        Cli::command().debug_assert();
        let mut line = vec!["aks-flex-node".to_owned(), "bootstrap".to_owned()];
        let keys = Key::ALL
            .iter()
            .copied()
            .filter(|key| !key.option().is_empty())
            .collect::<Vec<_>>();
        for key in &keys {
            line.push(format!("--{}", key.option()));
            if *key != Key::FetchBootstrapData {
                line.push("x".to_owned());
            }
        }
        let Command::Bootstrap(inputs) = Cli::try_parse_from(line).unwrap().command else {
            panic!("another command")
        };
        let mut given = inputs.given().map(|(key, _)| key).collect::<Vec<_>>();
        given.sort();
        assert_eq!(given, keys);
    }

    #[test]
    fn commands_go_by_their_other_names_too() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.command);
        assert!(matches!(parse("x agent --config /c"), Ok(Command::Daemon(Config { path })) if path == "/c"));
        assert!(matches!(parse("x unbootstrap"), Ok(Command::Reset(_))));
        assert!(matches!(
            parse("x nspawn-lifecycle pre-start kube2"),
            Ok(Command::NspawnLifecycle {
                phase: Phase::PreStart,
                machine: MachineName::Kube2
            })
        ));
        assert!(parse("x nspawn-lifecycle pre-start kube3").is_err());
        assert!(parse("x nspawn-lifecycle stop kube1").is_err());
    }

    /// A container whose host has this machinectl.
    fn here(machinectl: &str) -> (tempfile::TempDir, Surroundings) {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let host = hostexec::Host::rooted(dir.path());
        let tool = hostexec::HostPath::fixed("/usr/bin/machinectl");
        host.write(&tool, format!("#!/bin/sh\n{machinectl}\n").as_bytes(), 0o755)
            .unwrap();
        assert_eq!(host.metadata(&tool).unwrap().permissions().mode() & 0o111, 0o111);
        (
            dir,
            Surroundings {
                mode: Mode::Container,
                host,
                log: Log::silent(),
            },
        )
    }

    #[tokio::test]
    async fn na_r15_without_an_answer_of_machinectl_only_what_must_run_runs() {
        let (_dir, here) = here("exit 1");
        let run = async |line: &str| Cli::try_parse_from(line.split(' ')).unwrap().command.run(&here).await;
        for line in [
            "x start --config /c",
            "x daemon --config /c",
            "x bootstrap",
            "x nspawn-lifecycle pre-start kube1",
        ] {
            let failure = run(line).await.unwrap_err();
            assert!(matches!(failure, Failure::Machined(_)), "{line}: {failure}");
            assert_eq!(failure.exit(), Exit::Failed);
        }
        // There is nothing on this host, and it says so.
        assert_eq!(run("x reset").await.unwrap(), Exit::Done);
        assert!(!matches!(
            run("x recover-agent-upgrade").await,
            Err(Failure::Machined(_))
        ));
        assert_eq!(run("x version").await.unwrap(), Exit::Done);
    }

    #[tokio::test]
    async fn a_machine_without_a_configuration_has_nothing_to_follow() {
        let (_dir, here) = here("exit 0");
        here.host
            .write(&hostexec::HostPath::fixed("/etc/hostname"), b"h\n", 0o644)
            .unwrap();
        let line = "x nspawn-lifecycle pre-start kube1";
        let ended = Cli::try_parse_from(line.split(' ')).unwrap().command.run(&here).await;
        assert_eq!(ended.unwrap(), Exit::Done);
    }
}
