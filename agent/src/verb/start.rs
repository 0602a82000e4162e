//! `start`: joins the host to its cluster.

use super::{Surroundings, agent_unit};
use crate::{
    apply::{self, Context},
    azure::Account,
    bundle::{self, Purpose},
    config::Settings,
    containerd::Limits,
    exit::{Exit, Failure},
    facts::Gpu,
    model::{MachineName, Mode},
    observe,
    plan::{self, Goal, Programs, Unfit},
    step::Plan,
};

/// Joins the host, as the configuration says.
///
/// # Errors
/// What was done stays; the next try goes on from there.
pub async fn start(here: &Surroundings, path: &str) -> Result<Exit, Failure> {
    let settings = here.settings(path)?;
    here.log_to(settings.log_dir());
    join(here, &settings).await
}

/// Makes the plan of a first start true.
pub(super) async fn join(here: &Surroundings, settings: &Settings) -> Result<Exit, Failure> {
    let plan = plan(here, settings, Purpose::Use).await?;
    if settings.requires_machine_registration() {
        tracing::warn!("the node's AKS machine is not registered: that is not part of this release yet");
    }
    let context = Context::new(here.host.clone()).map_err(Failure::Tls)?;
    apply::run(&plan, &context).await?;
    println!(
        "\nThe node {} has joined, and its agent is running.\n\
         Status: systemctl status {unit}\nLogs:   journalctl -u {unit}\nStop:   systemctl stop {unit}",
        settings.node_name(),
        unit = units::name::AGENT,
    );
    Ok(Exit::Done)
}

/// What a first start does on the host as it is.
///
/// # Errors
/// This release can't do it, or not with these settings; the host can't be looked at; the offline bundle can't be used.
pub(super) async fn plan(here: &Surroundings, settings: &Settings, purpose: Purpose) -> Result<Plan, Failure> {
    settings.startable().map_err(Failure::Unfit)?;
    if here.mode == Mode::Binary {
        return Err(Failure::NotYet {
            command: "start",
            instead: "the agent starts a node from its image alone, through its bootstrap unit",
        });
    }
    // A certificate that can't prove anything is the settings' fault, and no fault of the network's later.
    Account::of(settings)?;
    let facts = observe::facts(&here.host)?;
    let on_bus = || {
        observe::gpu_on_bus(&here.host).unwrap_or_else(|error| {
            tracing::warn!(%error, "whether the host has a GPU can't be seen");
            false
        })
    };
    if facts.gpu == Gpu::Nvidia || on_bus() {
        return Err(Unfit::Gpu.into());
    }
    let goal = Goal::of(settings, &facts, MachineName::FIRST)?;
    let bundle = match settings.offline_artifacts() {
        Some(source) => Some(bundle::open(&here.host, source, facts.arch, Limits::AGENT, purpose).await?),
        None => None,
    };
    let programs = Programs::of(settings, bundle)?;
    if programs.versions.npd.is_none() {
        tracing::warn!("the offline bundle has no node problem detector: the node goes without");
    }
    let unit = agent_unit(settings);
    Ok(plan::start(&goal, &programs, &facts, settings.routing(), &unit)?)
}

#[cfg(test)]
mod tests {
    use hostexec::{Host, HostPath};

    use super::*;
    use crate::{config, log::Log, model::chain};

    #[tokio::test]
    async fn a_host_with_a_gpu_is_refused_before_anything_is_done() {
        for gpu in [
            vec![("/dev/nvidia0", "")],
            vec![
                ("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n"),
                ("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n"),
            ],
        ] {
            let dir = tempfile::tempdir().unwrap();
            let host = Host::rooted(dir.path());
            let usual = [("/etc/hostname", "edge-1\n"), ("/proc/cpuinfo", "processor\t: 0\n")];
            for (path, text) in usual.into_iter().chain(gpu) {
                host.write(&HostPath::fixed(path), text.as_bytes(), 0o644).unwrap();
            }
            let here = Surroundings {
                mode: Mode::Container,
                host,
                log: Log::silent(),
            };
            let failure = plan(&here, &config::tests::sample(), Purpose::Use).await.unwrap_err();
            assert_eq!(failure.exit(), Exit::Never);
            assert!(
                chain(&failure).contains("GPU of NVIDIA: use a host without"),
                "{}",
                chain(&failure)
            );
        }
    }
}
