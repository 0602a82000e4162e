//! `reset`: takes the node and its agent off this host. `plan reset` says what that would do.

use std::io::Write as _;

use hostexec::{Host, HostPath};

use super::{Output, Surroundings};
use crate::{
    daemon::reset as asked,
    exit::{Exit, Failure},
    model::chain,
    observe, plan,
    plan::reset::names,
    removal::{Removal, Scope},
    reset::Reset,
    store,
};

/// Held while a reset goes on.
const LOCK: HostPath = HostPath::fixed("/run/aks-flex-node-reset.lock");

/// Takes off this host all that is the agent's, and prints what became of it. Within the agent's own unit, which goes with it, the reset's
/// unit is started instead.
///
/// # Errors
/// Another one is at it, or the report can't be printed.
pub async fn reset(here: &Surroundings, output: Output) -> Result<Exit, Failure> {
    let host = &here.host;
    let failed = |what| move |source| Failure::Host { what, source };
    if is_in_agents_unit(host) {
        asked::hand_over(host).await?;
        let line = format!(
            "the reset goes on by itself: journalctl --follow --unit {}\n",
            units::name::RESET
        );
        print(&line)?;
        return Ok(Exit::Done);
    }
    // On a full disk, or where `/run` can't be written, it goes on without.
    let lock = host.try_lock(&LOCK);
    if let Ok(None) = &lock {
        return Err(Failure::Busy {
            what: "another reset is under way on this host: wait for it",
        });
    }
    if host.exists(&names::ETC).map_err(failed("look at the agent's folder"))?
        && let Err(error) = store::reset::save(host, &Reset::Leaving)
    {
        tracing::warn!(%error, "should this reset be cut short, nobody goes on with it by himself");
    }
    let report = asked::remove(host, Scope::All).await;
    // Whoever takes it from now on takes another one, and finds nothing to do.
    let _ = host.remove(&LOCK);
    match output {
        Output::Text => print(&report.to_string())?,
        Output::Json => print(&json(&report))?,
    }
    Ok(if report.is_done() { Exit::Done } else { Exit::Failed })
}

/// Prints what `reset` would do, and changes nothing.
///
/// # Errors
/// It can't be printed.
pub fn plan_reset(here: &Surroundings, output: Output) -> Result<Exit, Failure> {
    let host: &Host = &here.host;
    let ledger = store::ledger::load(host).unwrap_or_else(|error| {
        tracing::warn!(error = chain(&error), "by names alone");
        None
    });
    let found = observe::remains(host);
    let plan = plan::reset::reset(&found, ledger.as_ref(), Scope::All);
    match output {
        Output::Json => print(&json(&plan))?,
        Output::Text => {
            let mut text = String::from("In this order these would go, where they are there:\n");
            for removal in &plan {
                if !matches!(removal, Removal::Reload { .. }) {
                    text.push_str(&format!("  {}\n", removal.what()));
                }
            }
            for (what, why) in plan::reset::left_alone(&found, ledger.as_ref()) {
                text.push_str(&format!("and this stays: {what}: {why}\n"));
            }
            print(&text)?;
        }
    }
    Ok(Exit::Done)
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("texts are JSON") + "\n"
}

fn print(text: &str) -> Result<(), Failure> {
    let printed = std::io::stdout().write_all(text.as_bytes());
    printed.map_err(|source| Failure::Host {
        what: "print what was done",
        source,
    })
}

/// Whether this process ends with the agent's unit: by the host's control groups, for a container does not see its own. Its numbers of
/// processes are the host's.
fn is_in_agents_unit(host: &Host) -> bool {
    let unit = format!("/sys/fs/cgroup{}/{}", units::name::SLICE_CGROUP, units::name::AGENT);
    let mut groups: Vec<HostPath> = HostPath::new(unit).into_iter().collect();
    let pid = std::process::id().to_string();
    while let Some(group) = groups.pop() {
        for name in host.list(&group).unwrap_or_default() {
            let Ok(path) = group.join(&name) else { continue };
            if name == "cgroup.procs"
                && host
                    .read_text(&path)
                    .is_ok_and(|all| all.lines().any(|line| line == pid))
            {
                return true;
            }
            if host.is_dir(&path).unwrap_or(false) {
                groups.push(path);
            }
        }
    }
    false
}
