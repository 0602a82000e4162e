//! The six units. Each is a template, the lines of its container, and a few values.

use std::time::Duration;

use crate::line::{Container, Directive, Lost};
use crate::name;
use crate::service::ServiceName;
use crate::template::fill;

/// A unit file, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// File name below [`name::UNIT_DIR`].
    pub name: &'static str,
    /// The whole file.
    pub text: String,
}

/// What may differ between agents' units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentUnit {
    /// Within this the agent must say that it lives. Whole seconds.
    pub watchdog: Duration,
    /// Within this a started agent must say that it is ready. Whole seconds, below a minute.
    pub start: Duration,
    /// Within this an agent told to stop must be gone. Whole seconds, below ACL's 45.
    pub stop: Duration,
    /// Units of the host to come after, such as `himdsd.service` where Azure Arc is in use.
    pub also_after: Vec<ServiceName>,
}

impl Default for AgentUnit {
    fn default() -> Self {
        Self {
            watchdog: Duration::from_secs(60),
            start: Duration::from_secs(45),
            stop: Duration::from_secs(30),
            also_after: Vec::new(),
        }
    }
}

/// Seconds in which containerd must answer, by whom it keeps waiting.
mod containerd_within {
    /// Nothing waits for the join or for the agent but the host itself.
    pub(super) const PATIENT: u64 = 300;
    /// A reset is watched by a person.
    pub(super) const WATCHED: u64 = 60;
    /// A machine waits for its hook.
    pub(super) const BRISK: u64 = 10;
}

fn render(name: &'static str, template: &str, container: &Container<'_>, values: &[(&str, &str)]) -> Unit {
    let lines = container.lines();
    let lines = lines
        .iter()
        .filter(|(line, _)| template.contains(&format!("{{{{{line}}}}}")));
    let mut all: Vec<(&str, &str)> = lines.map(|(line, text)| (*line, text.as_str())).collect();
    all.extend_from_slice(values);
    let text = fill(template, &all).expect("the templates' names and the values are those of the tests");
    Unit {
        name,
        text: text.trim_end().to_owned() + "\n",
    }
}

/// The unit that joins a host to its cluster at its first boot.
pub fn bootstrap() -> Unit {
    let container = Container {
        id: name::BOOTSTRAP_ID,
        verb: "bootstrap",
        env: "",
        prepare: Directive::Start,
        unfit: name::NEVER_STATUS,
        selection: name::AGENT_IMAGE_ENV,
        containerd: containerd_within::PATIENT,
        lost: Lost::Missed,
        extend: "",
        stop: 30,
    };
    let never = name::NEVER_STATUS.to_string();
    render(
        name::BOOTSTRAP,
        include_str!("../files/aks-flex-node-bootstrap.service.in"),
        &container,
        &[
            ("inputs", name::BOOTSTRAP_ENV),
            ("agent_wanted", name::AGENT_WANTED),
            ("never", &never),
        ],
    )
}

/// The unit with which an operator takes the node off the host.
pub fn reset() -> Unit {
    let container = Container {
        id: name::RESET_ID,
        verb: "reset",
        env: "",
        prepare: Directive::Start,
        unfit: name::NEVER_STATUS,
        selection: name::AGENT_IMAGE_ENV,
        containerd: containerd_within::WATCHED,
        lost: Lost::Fetched,
        extend: "",
        stop: 30,
    };
    render(
        name::RESET,
        include_str!("../files/aks-flex-node-reset.service.in"),
        &container,
        &[],
    )
}

/// The long-lived agent's unit.
pub fn agent(values: &AgentUnit) -> Unit {
    let verb = format!("daemon --config {}", name::CONFIG);
    let env = format!("--env WATCHDOG_USEC={} ", values.watchdog.as_micros());
    let patience = containerd_within::PATIENT;
    let extend = format!("systemd-notify EXTEND_TIMEOUT_USEC={}000000 || :;", patience + 15);
    let container = Container {
        id: name::AGENT_ID,
        verb: &verb,
        env: &env,
        prepare: Directive::StartPre,
        unfit: 1,
        selection: name::AGENT_IMAGE_ENV,
        containerd: patience,
        lost: Lost::Fetched,
        extend: &extend,
        stop: values.stop.as_secs(),
    };
    let also: String = values
        .also_after
        .iter()
        .map(|service| format!(" {}", service.escaped()))
        .collect();
    render(
        name::AGENT,
        include_str!("../files/aks-flex-node-agent.service.in"),
        &container,
        &[
            ("also", &also),
            ("recovery", name::AGENT_RECOVERY),
            ("watchdog", &values.watchdog.as_secs().to_string()),
            ("start", &values.start.as_secs().to_string()),
        ],
    )
}

/// The unit that puts the last good agent back when the selected one fails.
pub fn agent_recovery() -> Unit {
    let container = Container {
        id: name::AGENT_RECOVERY_ID,
        verb: "recover-agent-upgrade --message \"the agent's unit failed: ${MONITOR_SERVICE_RESULT} ${MONITOR_EXIT_CODE} ${MONITOR_EXIT_STATUS}\"",
        // By the environment, not as an argument: the image that runs may be older than this line.
        env: "--env MONITOR_INVOCATION_ID=${MONITOR_INVOCATION_ID} ",
        prepare: Directive::StartPre,
        unfit: 1,
        selection: name::AGENT_IMAGE_LAST_GOOD_ENV,
        containerd: containerd_within::BRISK,
        lost: Lost::Missed,
        extend: "",
        stop: 10,
    };
    render(
        name::AGENT_RECOVERY,
        include_str!("../files/aks-flex-node-agent-recovery.service.in"),
        &container,
        &[
            ("last_good", name::AGENT_IMAGE_LAST_GOOD_ENV),
            ("socket", name::CONTAINERD_SOCKET),
            ("agent", name::AGENT),
        ],
    )
}

fn hook(id: &'static str, verb: &'static str) -> Container<'static> {
    Container {
        id,
        verb,
        env: "",
        prepare: Directive::StartPre,
        unfit: 1,
        selection: name::AGENT_IMAGE_ENV,
        containerd: containerd_within::BRISK,
        lost: Lost::Missed,
        extend: "",
        stop: 5,
    }
}

/// The hook before a machine's start.
pub fn nspawn_pre_start() -> Unit {
    let container = hook("aks-flex-node-nspawn-pre-start-%i", "nspawn-lifecycle pre-start %i");
    render(
        name::NSPAWN_PRE_START,
        include_str!("../files/aks-flex-node-nspawn-pre-start@.service.in"),
        &container,
        &[],
    )
}

/// The hook after a machine's start.
pub fn nspawn_post_start() -> Unit {
    let container = hook("aks-flex-node-nspawn-post-start-%i", "nspawn-lifecycle post-start %i");
    render(
        name::NSPAWN_POST_START,
        include_str!("../files/aks-flex-node-nspawn-post-start@.service.in"),
        &container,
        &[],
    )
}

/// The units that the agent writes, in the order of writing: none refers to one that isn't there yet, and the agent's
/// comes last.
pub fn written_by_agent(values: &AgentUnit) -> [Unit; 4] {
    [nspawn_pre_start(), nspawn_post_start(), agent_recovery(), agent(values)]
}
