//! The names that units, containers and their files bear on a host: each stands here once.
//!
//! Source: design.md, section 3.

/// The unit that joins a host at its first boot; written by Ignition.
pub const BOOTSTRAP: &str = "aks-flex-node-bootstrap.service";
/// The unit by which an operator takes the agent's work off the host; written by Ignition.
pub const RESET: &str = "aks-flex-node-reset.service";
/// The unit of the long-lived agent; written by the agent.
pub const AGENT: &str = "aks-flex-node-agent.service";
/// The unit that `OnFailure=` of the agent's unit starts; written by the agent.
pub const AGENT_RECOVERY: &str = "aks-flex-node-agent-recovery.service";
/// The template of the unit that a machine wants before it starts; written by the agent.
pub const NSPAWN_PRE_START: &str = "aks-flex-node-nspawn-pre-start@.service";
/// The template of the unit that a machine starts once it is up; written by the agent.
pub const NSPAWN_POST_START: &str = "aks-flex-node-nspawn-post-start@.service";
/// The link that says that the agent's unit is enabled; the bootstrap unit's condition reads it.
pub const AGENT_WANTED: &str = "/etc/systemd/system/multi-user.target.wants/aks-flex-node-agent.service";
/// The link that enables the bootstrap unit.
pub const BOOTSTRAP_WANTED: &str = "/etc/systemd/system/multi-user.target.wants/aks-flex-node-bootstrap.service";

/// The slice that holds every unit of ours.
pub const SLICE: &str = "system-aksflex.slice";
/// The cgroup of [`SLICE`], from the root of the hierarchy.
pub const SLICE_CGROUP: &str = "/system.slice/system-aksflex.slice";
/// The group below a unit's own in which systemd puts `ctr`.
pub const SUPERVISOR_GROUP: &str = "supervisor";
/// The group below a unit's own in which the container lives.
pub const PAYLOAD_GROUP: &str = "payload";

/// Our namespace in the host's containerd; never that of Kubernetes.
pub const CONTAINERD_NAMESPACE: &str = "aks-flex-node";
/// The snapshotter of our containers, named since a host's default may be another.
pub const SNAPSHOTTER: &str = "overlayfs";
/// The unit of the host's containerd.
pub const CONTAINERD: &str = "containerd.service";
/// The address of the host's containerd.
pub const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// The container of [`AGENT`].
pub const AGENT_ID: &str = "aks-flex-node-agent";
/// The container of [`AGENT_RECOVERY`].
pub const AGENT_RECOVERY_ID: &str = "aks-flex-node-agent-recovery";
/// The container of [`BOOTSTRAP`].
pub const BOOTSTRAP_ID: &str = "aks-flex-node-bootstrap";
/// The container of [`RESET`].
pub const RESET_ID: &str = "aks-flex-node-reset";
/// The container in which an AgentUpgrade checks its candidate.
pub const AGENT_CHECK_ID: &str = "aks-flex-node-agent-check";

/// The folder of units that belong to this host.
pub const UNIT_DIR: &str = "/etc/systemd/system";
/// The folder of systemd-nspawn's trusted settings.
pub const NSPAWN_DIR: &str = "/etc/systemd/nspawn";
/// The folder of everything of the agent's that reset takes away.
pub const ETC_DIR: &str = "/etc/aks-flex-node";
/// The install's settings, outside [`ETC_DIR`] so that they outlive a reset.
pub const SETTINGS_ENV: &str = "/etc/aks-flex-node-agent.env";
/// The image that an AgentUpgrade, recovery or an operator selected; goes before the settings.
pub const AGENT_IMAGE_ENV: &str = "/etc/aks-flex-node/agent-image.env";
/// The image that recovery runs.
pub const AGENT_IMAGE_LAST_GOOD_ENV: &str = "/etc/aks-flex-node/agent-image-last-good.env";
/// The inputs of `bootstrap`, gone after success.
pub const BOOTSTRAP_ENV: &str = "/etc/aks-flex-node/bootstrap.env";
/// The agent's configuration.
pub const CONFIG: &str = "/etc/aks-flex-node/config.json";

/// The key of an image in the three files of images: `<repository>@sha256:<hex>`.
pub const IMAGE_KEY: &str = "AKS_FLEX_NODE_AGENT_IMAGE";
/// The settings' key of an image archive on the host.
pub const ARCHIVE_KEY: &str = "AKS_FLEX_NODE_AGENT_ARCHIVE";
/// The settings' key of a folder of registry settings, as `ctr images pull --hosts-dir` takes it.
pub const HOSTS_DIR_KEY: &str = "AKS_FLEX_NODE_AGENT_HOSTS_DIR";

/// The status of a process whose settings can never work; final for [`BOOTSTRAP`] alone.
pub const NEVER_STATUS: u8 = 78;
