//! The names by which a host's files, units and interfaces are known as the agent's. Source: node-agent specification, appendix A, 12.2.

use hostexec::HostPath;
use image::Digest;
use units::{host, name};

use crate::{ledger, ledger::Ledger, model::MachineName};

/// The agent's own folder.
pub const ETC: HostPath = HostPath::fixed(name::ETC_DIR);
/// The agent's log, unless the settings name another folder.
pub const LOGS: HostPath = HostPath::fixed("/var/log/aks-flex-node");
/// Where files of one boot lie.
pub const RUN: HostPath = HostPath::fixed("/run");
/// What says that there is a node.
pub const STATE: HostPath = HostPath::fixed("/etc/aks-flex-node/daemon-state.json");
/// The ledger.
pub const LEDGER: HostPath = HostPath::fixed("/etc/aks-flex-node/ledger.json");
/// Copies of files of the host, as they were.
pub const BEFORE: HostPath = HostPath::fixed("/etc/aks-flex-node/before");
/// The reset under way.
pub const RECORD: HostPath = HostPath::fixed("/etc/aks-flex-node/reset.json");
/// The unit of a reset, where the install did not bring it.
pub const RESET_FOR_THIS_BOOT: HostPath = HostPath::fixed("/run/systemd/system/aks-flex-node-reset.service");
/// What goes last: what another reset goes by.
pub const LAST: [HostPath; 3] = [BEFORE, RECORD, LEDGER];
/// With these a host joins at its next boot.
pub const INPUTS: [HostPath; 1] = [HostPath::fixed(name::BOOTSTRAP_ENV)];
/// The link that has the agent started at each boot.
pub const AGENT_WANTED: HostPath = HostPath::fixed(name::AGENT_WANTED);
/// The folder of machines.
pub const MACHINES: HostPath = HostPath::fixed("/var/lib/machines");
/// Where the host's journal lies, and links to those of machines.
pub const JOURNALS: HostPath = HostPath::fixed("/var/log/journal");
const UNITS: HostPath = HostPath::fixed(name::UNIT_DIR);
const NSPAWN: HostPath = HostPath::fixed(name::NSPAWN_DIR);
/// Written by the agent whole, wherever its content is from.
const UNBOUNDED: [HostPath; 2] = [HostPath::fixed("/etc/unbounded"), HostPath::fixed("/var/lib/unbounded")];

/// Files and folders that are the agent's whatever is in them.
pub const FIXED: [HostPath; 6] = [
    HostPath::fixed("/etc/unbounded/kube/nftables-clear.nft"),
    HostPath::fixed("/var/lib/unbounded/container-images/current"),
    HostPath::fixed("/var/lib/unbounded/container-images/staged"),
    HostPath::fixed("/var/lib/unbounded/offline-artifacts"),
    HostPath::fixed("/var/log/aks-flex-node/aks-flex-node.log"),
    RESET_FOR_THIS_BOOT,
];
/// Folders of the agent's around its machines, which go when they are empty.
pub const AROUND_FOLDERS: [HostPath; 1] = [HostPath::fixed("/run/bpffs")];
/// The same, of what was made of the host; what lies deeper comes first.
pub const HOST_FOLDERS: [HostPath; 4] = [
    HostPath::fixed("/etc/unbounded/kube"),
    HostPath::fixed("/etc/unbounded"),
    HostPath::fixed("/var/lib/unbounded/container-images"),
    HostPath::fixed("/var/lib/unbounded"),
];
/// What the agent's files of others' names have in them.
pub const MARK: &str = "Written by aks-flex-node";

/// Kernel settings: the agent's where it is what the agent writes, byte for byte, or the ledger says so.
pub const SYSCTLS: HostPath = HostPath::fixed("/etc/sysctl.d/99-kubernetes.conf");
/// Files and folders in [`ETC`], but for those whose names begin with one of [`ETC_PREFIXES`].
const ETC_NAMES: [&str; 11] = [
    "config.json",
    "bootstrap.env",
    "base-config.json",
    "first-boot",
    "host-root-agents",
    "static-routes.sh",
    "check-route-overlap.sh",
    "azure",
    "reset.json",
    "ledger.json",
    "before",
];
/// Images, journals, states, credentials; and what a cut write left.
const ETC_PREFIXES: [&str; 6] = [
    "agent-",
    "daemon-",
    "node-",
    "ledger.json.",
    "reset.json.",
    ".aks-flex-node-tmp-",
];

/// Whether an entry of [`ETC`] is the agent's.
#[must_use]
pub fn is_in_etc(name: &str) -> bool {
    ETC_NAMES.contains(&name) || ETC_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether an entry of [`RUN`] is the agent's: not those of the reset itself, which are in use.
#[must_use]
pub fn is_in_run(name: &str) -> bool {
    name.starts_with("aks-flex-node") && !name.starts_with("aks-flex-node-reset")
}

/// A file of systemd's.
#[must_use]
pub fn unit(name: &str) -> HostPath {
    UNITS.join(name).expect("names of ours are plain")
}

/// A machine's folder.
#[must_use]
pub fn folder(machine: MachineName) -> HostPath {
    MACHINES.join(machine.as_str()).expect("a machine's name is plain")
}

/// Where a machine's image is unpacked.
#[must_use]
pub fn unpacking(machine: MachineName) -> HostPath {
    MACHINES
        .join(&format!(".{machine}.aks-flex-node"))
        .expect("a machine's name is plain")
}

/// What a systemd-nspawn that was killed leaves beside a machine's folder.
#[must_use]
pub fn lock(machine: MachineName) -> HostPath {
    MACHINES
        .join(&format!(".#{machine}.lck"))
        .expect("a machine's name is plain")
}

/// A machine's settings.
#[must_use]
pub fn settings(machine: MachineName) -> HostPath {
    NSPAWN
        .join(&format!("{machine}.nspawn"))
        .expect("a machine's name is plain")
}

/// A machine's file system for BPF.
#[must_use]
pub fn bpffs(machine: MachineName) -> HostPath {
    ledger::bpffs(machine)
}

/// What a machine has mounted on the host, or its systemd-nspawn that was killed.
#[must_use]
pub fn mounts(machine: MachineName) -> [(HostPath, &'static str); 2] {
    let export = format!("/run/systemd/nspawn/unix-export/{machine}");
    let export = HostPath::new(export).expect("a machine's name is plain");
    [(bpffs(machine), "bpf"), (export, "tmpfs")]
}

/// Where a copy is kept.
#[must_use]
pub fn copy(digest: &Digest) -> HostPath {
    BEFORE.join(digest.hex()).expect("a digest is plain")
}

/// Files of names that others might use, too: the agent's where [`MARK`] is in them.
#[must_use]
pub fn marked() -> Vec<HostPath> {
    let mut files: Vec<HostPath> = [host::NFTABLES_FLUSH, host::STATIC_ROUTES, host::ROUTE_OVERLAP]
        .map(unit)
        .into();
    files.extend(host::Family::ALL.map(|family| unit(&format!("{}.d/aks-flex-node.conf", family.unit()))));
    for machine in MachineName::ALL {
        files.push(settings(machine));
        for file in ["override.conf", "aks-flex-node-dependencies.conf"] {
            files.push(unit(&format!("systemd-nspawn@{machine}.service.d/{file}")));
        }
    }
    files
}

/// The units of the agent's own work, with the machines' hooks.
#[must_use]
pub fn running() -> Vec<String> {
    let mut all = vec![
        name::BOOTSTRAP.to_owned(),
        name::AGENT.to_owned(),
        name::AGENT_RECOVERY.to_owned(),
    ];
    for hook in [name::NSPAWN_PRE_START, name::NSPAWN_POST_START] {
        all.extend(MachineName::ALL.map(|machine| hook.replace('@', &format!("@{machine}"))));
    }
    all
}

/// The units that the agent adds to the host's.
#[must_use]
pub fn host_units() -> Vec<String> {
    [host::STATIC_ROUTES, host::ROUTE_OVERLAP, host::NFTABLES_FLUSH]
        .map(str::to_owned)
        .into()
}

/// The containers of these units, and the check of a candidate; not that of a reset.
#[must_use]
pub fn containers() -> Vec<String> {
    let units = running().into_iter();
    let mut all: Vec<String> = units
        .map(|unit| unit.trim_end_matches(".service").replace('@', "-"))
        .collect();
    all.push(name::AGENT_CHECK_ID.to_owned());
    all
}

/// Whether a link of this name in a `.wants` or `.requires` starts something of the agent's.
#[must_use]
pub fn is_link(name: &str) -> bool {
    let machine = |machine: MachineName| name == format!("systemd-nspawn@{machine}.service");
    is_unit(name) || host_units().iter().any(|unit| unit == name) || MachineName::ALL.into_iter().any(machine)
}

/// Whether a path is the agent's by its name or place alone: what stands there is never kept for the host.
#[must_use]
pub fn is_by_name(path: &HostPath) -> bool {
    [ETC, UNITS, NSPAWN, LOGS, RUN]
        .iter()
        .chain(&UNBOUNDED)
        .any(|folder| path.is_within(folder))
        || path.as_str().contains("aks-flex-node")
}

/// Whether the file or link belongs to a machine.
#[must_use]
pub fn is_around(path: &HostPath) -> bool {
    let text = path.as_str();
    let of_machine = MachineName::ALL
        .into_iter()
        .any(|machine| text.contains(&format!("systemd-nspawn@{machine}.service")));
    let lock = MachineName::ALL.into_iter().any(|machine| *path == lock(machine));
    lock || path.is_within(&NSPAWN) || path.is_within(&JOURNALS) || (path.is_within(&UNITS) && of_machine)
}

/// Whether the file or link was made of the host for its machines.
#[must_use]
pub fn is_of_the_host(path: &HostPath) -> bool {
    let unit = path.is_within(&UNITS) && !is_around(path) && !is_agents_unit(path);
    unit || *path == SYSCTLS || UNBOUNDED.iter().any(|folder| path.is_within(folder))
}

/// Whether a unit of this name is one of the agent's own: not those that the install brings.
#[must_use]
pub fn is_unit(unit: &str) -> bool {
    unit.starts_with("aks-flex-node-") && unit.ends_with(".service") && ![name::BOOTSTRAP, name::RESET].contains(&unit)
}

/// Whether it is a unit of the agent's own work, or its link.
#[must_use]
pub fn is_agents_unit(path: &HostPath) -> bool {
    path.is_within(&UNITS) && is_unit(path.name())
}

/// Whether a folder is there for what is in it: one of links, or of drop-ins.
#[must_use]
pub fn is_made_by_its_content(path: &HostPath) -> bool {
    path.is_within(&UNITS)
        && [".wants", ".requires", ".d"]
            .iter()
            .any(|end| path.name().ends_with(end))
}

/// Whether it is the folder of a machine's drop-ins.
#[must_use]
pub fn is_drop_in_folder(path: &HostPath) -> bool {
    path.is_within(&UNITS) && path.name().starts_with("systemd-nspawn@kube") && path.name().ends_with(".d")
}

/// Whether a network interface is one of a node's: by its name, and since it was not there before. The reference's for WireGuard are
/// others' usual names too: those are known by the ledger alone.
#[must_use]
pub fn is_interface(interface: &str, ledger: Option<&Ledger>) -> bool {
    if ledger.is_some_and(|ledger| ledger.interfaces.iter().any(|before| before == interface)) {
        return false;
    }
    let wireguard = interface
        .strip_prefix("wg")
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    ["cni0", "cbr0", "geneve0", "vxlan0", "ipip0", "unbounded0"].contains(&interface)
        || (wireguard && ledger.is_some_and(|ledger| !ledger.interfaces.is_empty()))
}
