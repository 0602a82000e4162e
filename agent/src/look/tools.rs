//! Looks by the host's tools: only questions, and none that would start a service or load a module.

use std::{collections::BTreeMap, time::Duration};

use hostexec::{Call, Host, HostPath, Tool};
use tokio::time::timeout;
use units::name;

use super::{LIMIT, Look, Subject, a_look, blocking};
use crate::preflight::{
    Check, Finding, Seen, Unseen,
    judge::{self, Enforcement, UnitState},
};

/// The longest that one question takes; a look asks two at most, one after the other.
const ASK: Duration = Duration::from_millis(4500);

const MACHINED: &str = "systemd-machined.service";

pub(super) fn looks(subject: &Subject) -> Vec<Look<'_>> {
    let host = &subject.host;
    vec![
        a_look(&[Check::HostTools], async move {
            let has = has(host).await;
            judged(Check::HostTools, &has, |has| judge::tools(&|tool| has(tool)))
        }),
        a_look(
            &[
                Check::NspawnRuntime,
                Check::DockerActive,
                Check::ContainerdActive,
                Check::KubeletActive,
                Check::Selinux,
            ],
            by_systemd(subject),
        ),
        a_look(&[Check::SystemdVersion], async move {
            vec![judge::systemd_version(
                &ask(host, Tool::Systemctl, &["--version"]).await,
            )]
        }),
        a_look(&[Check::ContainerdSync], async move {
            let show = [
                "show",
                name::CONTAINERD,
                "--property=Environment",
                "--property=ExecStart",
            ];
            let seen = match ask(host, Tool::Systemctl, &show).await {
                Ok(unit) => {
                    let path = HostPath::new(judge::containerd_config(&unit));
                    blocking(host, move |host| match path {
                        Ok(path) if host.exists(&path)? => host.read_text(&path).map(Some),
                        Ok(_) | Err(_) => Ok(None),
                    })
                    .await
                }
                Err(why) => Err(why),
            };
            vec![judge::containerd_sync(&seen)]
        }),
        a_look(&[Check::Firewall], async move {
            judge::firewall(&rules(host).await, &subject.facts.firewalls)
        }),
    ]
}

/// Which tools the host has.
async fn has(host: &Host) -> Seen<impl Fn(Tool) -> bool + Send + Sync> {
    let found = blocking(host, |host| {
        let found = Tool::ALL.iter().copied().filter(|tool| host.find(*tool).is_some());
        Ok(found.collect::<Vec<_>>())
    });
    found.await.map(|found| move |tool| found.contains(&tool))
}

fn judged<T>(check: Check, seen: &Seen<T>, judge: impl FnOnce(&T) -> Vec<Finding>) -> Vec<Finding> {
    match seen {
        Ok(seen) => judge(seen),
        Err(why) => vec![check.unseen(why)],
    }
}

/// What a tool prints.
async fn ask(host: &Host, tool: Tool, args: &[&str]) -> Seen<String> {
    let call = host.call(Call::new(tool, args).limit(ASK));
    match timeout(LIMIT, call).await {
        Err(_) => Err(Unseen::Late(LIMIT)),
        Ok(Ok(output)) => Ok(output.stdout),
        Ok(Err(error)) => Err(Unseen::Failed(error.to_string())),
    }
}

/// Everything that one question to systemd answers.
async fn by_systemd(subject: &Subject) -> Vec<Finding> {
    let host = &subject.host;
    let (has, booted, enforcement) = tokio::join!(
        has(host),
        blocking(host, |host| host.is_dir(&HostPath::fixed("/run/systemd/system"))),
        blocking(host, enforcement),
    );
    let show = [
        "show",
        "docker.service",
        name::CONTAINERD,
        "kubelet.service",
        MACHINED,
        "--property=Id",
        "--property=ActiveState",
    ];
    let states: Seen<BTreeMap<String, UnitState>> =
        ask(host, Tool::Systemctl, &show).await.map(|text| judge::units(&text));
    let runs = |unit: &str| {
        let states = states.as_ref().ok();
        states
            .and_then(|states| states.get(unit))
            .is_some_and(|state| state.active == "active")
    };
    let answer = match &states {
        Err(why) => Err(why.clone()),
        // One that doesn't run is started by the first question.
        Ok(_) if runs(MACHINED) => ask(host, Tool::Machinectl, &["list", "--no-legend"]).await.map(drop),
        Ok(_) => Ok(()),
    };
    let runtime = judged(Check::NspawnRuntime, &has, |has| {
        let mut found = judge::runtime(&|tool| has(tool), &booted, subject.mode);
        if found.is_empty() {
            found.push(judge::machined(&answer));
        }
        found
    });
    let services = [
        (Check::DockerActive, "docker.service"),
        (Check::ContainerdActive, name::CONTAINERD),
        (Check::KubeletActive, "kubelet.service"),
    ];
    let services = services.map(|(check, unit)| judge::unit(check, unit, &states));
    let selinux = judge::selinux(&enforcement, &states.as_ref().map(drop).map_err(Clone::clone));
    runtime.into_iter().chain(services).chain([selinux]).collect()
}

/// Source: selinux(8); `/sys/fs/selinux/enforce`.
fn enforcement(host: &Host) -> std::io::Result<Enforcement> {
    let path = HostPath::fixed("/sys/fs/selinux/enforce");
    if !host.exists(&path)? {
        return Ok(Enforcement::Off);
    }
    Ok(match host.read_text(&path)?.trim() {
        "1" => Enforcement::Enforcing,
        _ => Enforcement::Permissive,
    })
}

/// What the kernel's packet filters do, asked only of those that are there: a question to another would load its module.
async fn rules(host: &Host) -> Seen<Vec<String>> {
    let loaded = blocking(host, |host| {
        let names = HostPath::fixed("/proc/1/net/ip_tables_names");
        let legacy = host.exists(&names)? && host.read_text(&names)?.lines().any(|table| table == "filter");
        let legacy = legacy && host.find(Tool::Iptables).is_some();
        Ok((legacy, nft(host)?.filter(|_| host.find(Tool::Nft).is_some())))
    });
    let (legacy, nft) = loaded.await?;
    let mut said = Vec::new();
    if legacy {
        said.push(ask(host, Tool::Iptables, &["-S"]).await?);
    }
    if let Some(nft) = nft {
        let answer = ask(host, Tool::Nft, &["list", "chains"]).await;
        match nft {
            Nft::Module => said.push(answer?),
            // A kernel without refuses the question.
            Nft::BuiltIn => said.extend(answer.ok()),
        }
    }
    Ok(said)
}

/// How the kernel has nftables.
#[derive(Clone, Copy)]
enum Nft {
    /// As a module that is loaded.
    Module,
    /// Without one, if at all.
    BuiltIn,
}

/// None where it is a module that isn't loaded.
fn nft(host: &Host) -> std::io::Result<Option<Nft>> {
    if host.exists(&HostPath::fixed("/sys/module/nf_tables"))? {
        return Ok(Some(Nft::Module));
    }
    let release = host
        .read_text(&HostPath::fixed("/proc/sys/kernel/osrelease"))
        .unwrap_or_default();
    let list = HostPath::new(format!("/lib/modules/{}/modules.dep", release.trim()));
    let list = list
        .map(|list| host.read_text(&list).unwrap_or_default())
        .unwrap_or_default();
    Ok((!list.contains("/nf_tables.ko")).then_some(Nft::BuiltIn))
}
