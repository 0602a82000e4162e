//! Units, scripts and drop-ins of the host that a node needs around its machine. Source: node-agent.md 5.2.3, 5.11; acl-facts.md,
//! "firewall".

use std::net::Ipv4Addr;

use hostexec::HostPath;

use crate::machine::HostFile;
use crate::name;
use crate::template::filled;

/// The unit that clears the packet filter before a machine starts.
pub const NFTABLES_FLUSH: &str = "nftables-flush.service";
/// The unit that sets routes of the settings.
pub const STATIC_ROUTES: &str = "static-routes.service";
/// The unit that looks whether routes hide a network of the cluster.
pub const ROUTE_OVERLAP: &str = "check-route-overlap.service";
/// By this the kernel knows the routes that were set, as those of nobody else: a number of `rt_protos` that no program has.
pub const ROUTE_PROTOCOL: &str = "173";
/// What it reads. Source: node-agent.md 5.2.3.
const CLEAR: &str = "/etc/unbounded/kube/nftables-clear.nft";
const ROUTES_SCRIPT: &str = "/etc/aks-flex-node/static-routes.sh";
const OVERLAP_SCRIPT: &str = "/etc/aks-flex-node/check-route-overlap.sh";
/// Where the overlap check leaves its result.
const RUN: &str = "/run/aks-flex-node";

/// A network of IPv4 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Network {
    /// Its first address.
    pub address: Ipv4Addr,
    /// How many bits all its addresses share: 0 to 32.
    pub bits: u8,
}

impl Network {
    /// An address in it that a host may have: the second one, or the only one.
    fn probe(self) -> Ipv4Addr {
        let first = u32::from(self.address);
        Ipv4Addr::from(if self.bits == 32 {
            first
        } else {
            first.saturating_add(1)
        })
    }
}

/// The text is no network: an IPv4 address, a slash and a number up to 32, without a bit set behind that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no IPv4 network: write its first address and its length, such as 10.1.0.0/16")]
pub struct NotANetwork;

impl std::str::FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, bits) = text.split_once('/').ok_or(NotANetwork)?;
        let address: Ipv4Addr = address.parse().map_err(|_| NotANetwork)?;
        let plain = bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits: u8 = bits
            .parse()
            .ok()
            .filter(|bits| plain && *bits <= 32)
            .ok_or(NotANetwork)?;
        let behind = u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
        // `ip route` takes none of which a part is another network.
        (u32::from(address) & behind == 0)
            .then_some(Self { address, bits })
            .ok_or(NotANetwork)
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A route of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Where to.
    pub destination: Network,
    /// By whom; none: as the device's default route.
    pub gateway: Option<Ipv4Addr>,
    /// Through which device, its name checked; none: that of the default route.
    pub device: Option<String>,
    /// Its place among routes to the same network; none: the kernel's default.
    pub metric: Option<u32>,
}

/// What the overlap check does when it finds something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overlap {
    /// It says so.
    #[default]
    Warn,
    /// It keeps the machine from its start.
    Strict,
}

/// A tool of the host's packet filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// `iptables`
    V4,
    /// `ip6tables`
    V6,
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// Its program.
    #[must_use]
    pub const fn program(self) -> &'static str {
        match self {
            Self::V4 => "iptables",
            Self::V6 => "ip6tables",
        }
    }

    /// The unit that sets the host's own rules.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::V4 => "iptables.service",
            Self::V6 => "ip6tables.service",
        }
    }
}

/// What a node needs to be let through. kubelet's port: node-agent.md 4.2.
const RULE: [&str; 7] = ["INPUT", "--protocol", "tcp", "--dport", "10250", "--jump", "ACCEPT"];

/// The arguments that let the traffic of pods through: nobody's but theirs is forwarded here.
pub const FORWARD: [&str; 4] = ["--wait", "--policy", "FORWARD", "ACCEPT"];
/// The arguments that ask whether kubelet's port is open by a rule of ours.
#[must_use]
pub fn kubelet_is_open() -> Vec<&'static str> {
    [&["--wait", "--check"], &RULE[..]].concat()
}
/// The arguments that open it.
#[must_use]
pub fn open_kubelet() -> Vec<&'static str> {
    [&["--wait", "--insert"], &RULE[..]].concat()
}

/// The drop-in by which a firewall's unit lets a node's traffic through each time it starts.
#[must_use]
pub fn firewall(family: Family) -> HostFile {
    let program = format!("/usr/sbin/{}", family.program());
    let line = |arguments: &[&str]| format!("{program} {}", arguments.join(" "));
    let commands = format!(
        "ExecStartPost=-{}\nExecStartPost=-/bin/sh -c '{} 2> /dev/null || {}'",
        line(&FORWARD),
        line(&kubelet_is_open()),
        line(&open_kubelet()),
    );
    unit(
        &format!("{}.d/aks-flex-node.conf", family.unit()),
        filled(include_str!("../files/firewall.conf.in"), &[("commands", &commands)]),
    )
}

/// The unit that clears the packet filter, and what it reads.
#[must_use]
pub fn nftables_flush() -> [HostFile; 2] {
    let values = [("machines", &*machines()), ("rules", CLEAR)];
    [
        HostFile {
            path: HostPath::fixed(CLEAR),
            text: "flush ruleset\n".to_owned(),
            mode: 0o600,
        },
        unit(
            NFTABLES_FLUSH,
            filled(include_str!("../files/nftables-flush.service.in"), &values),
        ),
    ]
}

/// The unit that sets these routes, and its script.
#[must_use]
pub fn static_routes(routes: &[Route]) -> [HostFile; 2] {
    let quoted = |text: Option<String>| format!("'{}'", text.unwrap_or_default());
    let lines: Vec<String> = routes
        .iter()
        .map(|route| {
            format!(
                "route {} {} {} {} || failed=1",
                route.destination,
                quoted(route.gateway.map(|address| address.to_string())),
                quoted(route.device.clone()),
                quoted(route.metric.map(|metric| metric.to_string())),
            )
        })
        .collect();
    let text = filled(
        include_str!("../files/static-routes.sh.in"),
        &[("protocol", ROUTE_PROTOCOL), ("routes", &lines.join("\n"))],
    );
    let values = [("machines", &*machines()), ("script", ROUTES_SCRIPT)];
    [
        script(ROUTES_SCRIPT, text),
        unit(
            STATIC_ROUTES,
            filled(include_str!("../files/static-routes.service.in"), &values),
        ),
    ]
}

/// The unit that looks whether these networks are hidden, and its script.
#[must_use]
pub fn route_overlap(networks: &[Network], overlap: Overlap) -> [HostFile; 2] {
    let lines: Vec<String> = networks
        .iter()
        .map(|network| format!("    check {network} {}", network.probe()))
        .collect();
    let status = match overlap {
        Overlap::Warn => "0",
        Overlap::Strict => "$hidden",
    };
    let values = [("run", RUN), ("checks", &*lines.join("\n")), ("status", status)];
    let text = filled(include_str!("../files/check-route-overlap.sh.in"), &values);
    let values = [("machines", &*machines()), ("script", OVERLAP_SCRIPT)];
    [
        script(OVERLAP_SCRIPT, text),
        unit(
            ROUTE_OVERLAP,
            filled(include_str!("../files/check-route-overlap.service.in"), &values),
        ),
    ]
}

/// The units of both machines that a node may have.
fn machines() -> String {
    ["kube1", "kube2"]
        .map(|machine| format!("systemd-nspawn@{machine}.service"))
        .join(" ")
}

/// A unit, or a drop-in of one.
fn unit(name: &str, text: String) -> HostFile {
    let path = HostPath::new(format!("{}/{name}", name::UNIT_DIR)).expect("names of ours are plain");
    HostFile {
        path,
        text,
        mode: 0o644,
    }
}

fn script(path: &'static str, text: String) -> HostFile {
    HostFile {
        path: HostPath::fixed(path),
        text,
        mode: 0o755,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn routes() -> Vec<Route> {
        vec![
            Route {
                destination: network("10.1.0.0/16"),
                gateway: None,
                device: None,
                metric: None,
            },
            Route {
                destination: network("192.0.2.7/32"),
                gateway: Some(Ipv4Addr::new(10, 0, 0, 1)),
                device: Some("eth1.7".into()),
                metric: Some(50),
            },
        ]
    }

    fn all() -> Vec<HostFile> {
        let networks = [network("10.224.0.0/12"), network("192.0.2.7/32")];
        let mut files: Vec<HostFile> = [
            nftables_flush(),
            static_routes(&routes()),
            route_overlap(&networks, Overlap::Strict),
        ]
        .into_iter()
        .flatten()
        .collect();
        files.extend(Family::ALL.map(firewall));
        files
    }

    #[test]
    fn the_files_around_a_machine_are_as_reviewed() {
        let shown: Vec<String> = all()
            .iter()
            .map(|file| format!("=== {}\n{}", file.path, file.text))
            .collect();
        insta::assert_snapshot!("host", shown.join("\n"));
    }

    #[test]
    fn a_check_that_only_warns_never_keeps_a_machine_from_its_start() {
        let [script, _] = route_overlap(&[network("10.0.0.0/8")], Overlap::Warn);
        assert!(script.text.ends_with("exit 0\n"), "{}", script.text);
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.3/32", "10.1.2.2/31"] {
            assert_eq!(network(text).to_string(), text);
        }
        for text in [
            "",
            "10.0.0.0",
            "10.0.0.0/",
            "10.0.0.0/33",
            "10.0.0.0/+8",
            "10.0.0.0/ 8",
            "10.1.0.0/8",
            "1.1.1.1/0",
            "::/0",
            "10.0.0.0/8\n",
            "10.0.0/8",
            "10.0.0.0/8;x",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NotANetwork), "{text:?}");
        }
    }

    #[test]
    fn the_last_network_of_all_has_an_address_too() {
        assert_eq!(network("255.255.255.254/31").probe(), Ipv4Addr::BROADCAST);
        assert_eq!(network("10.0.0.0/8").probe(), Ipv4Addr::new(10, 0, 0, 1));
    }
}
