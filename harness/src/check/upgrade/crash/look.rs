//! What must hold after whatever died: looked at all at once, and named one by one.

use std::fmt;

use anyhow::{Context as _, Result};

use crate::agent::{CONTAINER, SELECTION, UNIT};
use crate::check::upgrade::state::LAST_GOOD;
use crate::cloud::cluster::Operation;
use crate::host::Host;
use crate::wait::Stop;

/// The recovery unit's container.
const RECOVERY: &str = "aks-flex-node-agent-recovery";

/// One line each of what is so on the host: a kind and what it is.
const SCRIPT: &str = r#"
    ctr() { command ctr --namespace aks-flex-node --connect-timeout 2s --timeout 10s "$@"; }
    for unit in "$UNIT" containerd.service; do
        echo "state $unit $(systemctl show --value --property=ActiveState "$unit")"
    done
    systemctl list-jobs --no-legend --no-pager | sed 's/^ */job /'
    ctr containers list | awk 'NR > 1 { print "container", $1, $2 }'
    ctr tasks list | awk 'NR > 1 { print "task", $1, $2, $3 }'
    ctr snapshots list | awk '$NF == "Active" { print "snapshot", $1 }'
    # One of ctr's own, whose containerd died while it started a container, ends by itself after a day.
    ctr leases list | awk 'NR > 1 && !($1 ~ /^[0-9]+-/ && /containerd.io\/gc.expire/) { print "lease", $1 }'
    ctr content active | awk 'NR > 1 { print "blob", $1 }'
    # A process that is about to become a tool of the host is still called as its parent is.
    daemons=" $(pgrep --full --exact '/usr/bin/aks-flex-node daemon( .*)?' | tr '\n' ' ' || true)"
    for pid in $daemons; do
        parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2> /dev/null) || continue
        case "$daemons" in *" $parent "*) ;; *) echo "daemon $pid" ;; esac
    done
    pgrep --exact kubelet | sed 's/^/kubelet /' || true
    # In its first seconds after a boot it may end and start again by itself.
    pgrep --exact --older 30 kubelet | sed 's/^/old-kubelet /' || true
    image() { [ ! -e "$2" ] || sed -n "s/^AKS_FLEX_NODE_AGENT_IMAGE=/$1 /p" "$2"; }
    image selected "$SELECTION"
    image last-good "$LAST_GOOD"
    image settings /etc/aks-flex-node-agent.env
    find /etc/aks-flex-node -name 'agent-upgrade-signal.json*' | sed 's/^/journal /'
    [ ! -e /etc/aks-flex-node/agent-upgrade-failures.json ] || tr -d '\n' < /etc/aks-flex-node/agent-upgrade-failures.json | sed 's/^/blamed /'
    echo
    find /etc/aks-flex-node -name '.aks-flex-node-tmp-*' | sed 's/^/temporary /'
"#;

/// What is so on a host.
#[derive(Clone, Debug)]
pub(super) struct Look {
    lines: Vec<(String, String)>,
}

/// One thing that must hold, and what is so instead, if it does not.
pub(super) struct Rule {
    pub(super) name: &'static str,
    pub(super) instead: Option<String>,
}

/// Which agent runs after an upgrade that somebody died in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Agent {
    /// What was asked for.
    New,
    /// What ran before.
    Old,
}

/// How such an upgrade ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) on: Agent,
    /// The first line of what the operation says.
    pub(super) says: String,
}

impl fmt::Display for Ended {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let agent = match self.on {
            Agent::New => "the new agent",
            Agent::Old => "the old agent",
        };
        write!(to, "ended on {agent}: {}", self.says)
    }
}

impl Look {
    /// What is so now.
    ///
    /// # Errors
    /// The host can't be looked at, or containerd does not answer.
    pub(super) async fn of(host: &Host) -> Result<Self> {
        let script = format!("UNIT={UNIT} SELECTION={SELECTION} LAST_GOOD={LAST_GOOD}\n{SCRIPT}");
        let said = host.sh(&script).await?;
        let lines = said.lines().filter_map(|line| line.split_once(' '));
        Ok(Self {
            lines: lines.map(|(kind, what)| (kind.to_owned(), what.to_owned())).collect(),
        })
    }

    fn all(&self, kind: &str) -> Vec<&str> {
        let lines = self.lines.iter().filter(|(of, _)| of == kind);
        lines.map(|(_, what)| what.as_str()).collect()
    }

    /// The image that the agent's container was made of.
    ///
    /// # Errors
    /// There is no such container.
    pub(super) fn image(&self) -> Result<&str> {
        let containers = self.all("container");
        let mut own = containers.iter().filter_map(|line| line.split_once(' '));
        let found = own.find(|(id, _)| *id == CONTAINER);
        found.map(|(_, image)| image).context("the agent has no container")
    }

    /// What recovery would run.
    pub(super) fn last_good(&self) -> Option<&str> {
        self.all("last-good").first().copied()
    }

    /// The daemon's process, by the host's number, if there is one.
    pub(super) fn daemon(&self) -> Option<&str> {
        self.all("daemon").first().copied()
    }

    /// Whether this image is remembered as one that failed by its own fault.
    pub(super) fn blames(&self, image: &str) -> bool {
        let digest = image.rsplit_once('@').map_or(image, |(_, digest)| digest);
        self.all("blamed").iter().any(|record| record.contains(digest))
    }

    /// As `kubelet`, if it has been running for half a minute.
    pub(super) fn old_kubelet(&self) -> Option<&str> {
        self.all("old-kubelet").first().copied()
    }

    /// The machine's kubelet, by the host's number, once it has started.
    pub(super) fn kubelet(&self) -> Option<&str> {
        self.all("kubelet").first().copied()
    }

    /// All that must hold, once everything has settled. `from` ran before, `to` was asked for.
    ///
    /// # Errors
    /// There are two agents, which must never be, not even for a moment.
    pub(super) fn rules(&self, operation: &Operation, from: &str, to: &str) -> Result<Vec<Rule>> {
        let daemons = self.all("daemon");
        if daemons.len() > 1 {
            return Err(Stop(format!("{} agents at once: {:?}", daemons.len(), self.lines)).into());
        }
        let image = self.image().unwrap_or("none");
        let selected = self.all("selected").first().copied();
        let selected = selected
            .or_else(|| self.all("settings").first().copied())
            .unwrap_or("none");
        let task = self.all("task");
        let expected = daemons.first().map(|pid| format!("{CONTAINER} {pid} RUNNING"));
        let one = daemons.len() == 1 && task.len() == 1 && expected.as_deref() == task.first().copied();
        let active = |unit: &str| self.all("state").contains(&format!("{unit} active").as_str());
        let (phase, message) = (operation.phase(), operation.message());
        let truth = match phase {
            "Complete" => image == to,
            "Failed" => image == from,
            _ => false,
        };
        // What a recovery that died leaves, its next start removes before it runs.
        let known = |id: &str| [CONTAINER, RECOVERY].contains(&id);
        let id = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
        let others: Vec<&str> = self
            .all("container")
            .into_iter()
            .filter(|line| !known(&id(line)))
            .collect();
        let snapshots: Vec<&str> = self.all("snapshot").into_iter().filter(|key| !known(key)).collect();
        let none = |what: &[&str]| (!what.is_empty()).then(|| what.join(", "));
        let unless = |holds: bool, instead: String| (!holds).then_some(instead);
        Ok(vec![
            rule("one agent", unless(one, format!("daemons {daemons:?}, tasks {task:?}"))),
            rule(
                "its unit is active",
                unless(active(UNIT), format!("{:?}", self.all("state"))),
            ),
            rule(
                "containerd is active",
                unless(active("containerd.service"), format!("{:?}", self.all("state"))),
            ),
            rule("no job waits", none(&self.all("job"))),
            rule(
                "what is selected runs",
                unless(selected == image, format!("{image} runs, {selected} is selected")),
            ),
            rule(
                "it is the old one or the new one",
                unless([from, to].contains(&image), image.to_owned()),
            ),
            rule(
                "the operation is over",
                unless(matches!(phase, "Complete" | "Failed"), format!("{phase}: {message}")),
            ),
            rule(
                "its end is true",
                unless(truth, format!("{phase}, and {image} runs: {message}")),
            ),
            rule(
                "its message names what runs",
                unless(message.contains(image), message.to_owned()),
            ),
            rule("no journal", none(&self.all("journal"))),
            rule("no other container", none(&others)),
            rule("no other snapshot in use", none(&snapshots)),
            rule("no lease", none(&self.all("lease"))),
            rule("no half-done blob", none(&self.all("blob"))),
            rule("no temporary file", none(&self.all("temporary"))),
        ])
    }
}

fn rule(name: &'static str, instead: Option<String>) -> Rule {
    Rule { name, instead }
}
