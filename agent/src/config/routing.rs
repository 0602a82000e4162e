//! `hostRouting`: routes of the host. What is wrong in it is told when a node is started, not when its configuration is read: a daemon
//! serves a node whose routes have been set. Source: node-agent specification, 2.3.5.

use std::net::Ipv4Addr;

use units::host::{Network, Overlap, Route};

use super::{Mistake, file, value::given};

/// The host's routes, as meant.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// Routes that are set before the machine starts.
    pub routes: Vec<Route>,
    /// Networks that are reached by the default route's device, as far as the cluster is concerned.
    pub expected: Vec<Network>,
    /// What happens when one of them is not.
    pub overlap: Overlap,
}

/// Reads the section; what is wrong in it is left out, and told beside it.
pub(super) fn parse(file: &file::HostRouting) -> (Routing, Vec<Mistake>) {
    let mut bad = Vec::new();
    let asked = &file.static_routes;
    if !asked.enabled && !asked.routes.is_empty() {
        bad.push(Mistake::new(
            "hostRouting.staticRoutes.enabled",
            "is false though there are routes",
            "write true, or leave the routes out",
        ));
    }
    let mut take = |parsed| match parsed {
        Ok(value) => Some(value),
        Err(mistakes) => {
            bad.extend::<Vec<_>>(mistakes);
            None
        }
    };
    let routes = asked.routes.iter().enumerate();
    let routes = routes
        .filter_map(|(index, written)| take(route(index, written)))
        .collect();
    let expected = file.route_overlap.expected_cidrs.iter().enumerate();
    let expected = expected
        .filter_map(|(index, text)| {
            network(format!("hostRouting.routeOverlap.expectedCidrs[{index}]"), text)
                .map_err(|mistake| bad.push(mistake))
                .ok()
        })
        .collect();
    let overlap = match &file.route_overlap.mode.trim().to_ascii_uppercase()[..] {
        "" | "WARN" => Overlap::Warn,
        "STRICT" => Overlap::Strict,
        _ => {
            bad.push(Mistake::new(
                "hostRouting.routeOverlap.mode",
                "is no mode",
                "write WARN or STRICT",
            ));
            Overlap::Warn
        }
    };
    let routing = Routing {
        routes,
        expected,
        overlap,
    };
    (routing, bad)
}

fn route(index: usize, written: &file::Route) -> Result<Route, Vec<Mistake>> {
    let key = |name: &str| format!("hostRouting.staticRoutes.routes[{index}].{name}");
    let mut bad = Vec::new();
    let mut keep = |mistake| bad.push(mistake);
    let destination = network(key("destination"), &written.destination)
        .map_err(&mut keep)
        .ok();
    let gateway: Option<Ipv4Addr> = given(&written.gateway).and_then(|text| {
        text.parse()
            .map_err(|_| {
                keep(Mistake::new(
                    key("gateway"),
                    "is no IPv4 address",
                    "write one such as 10.0.0.1, or leave it out",
                ));
            })
            .ok()
    });
    let device = given(&written.dev);
    if device.is_some_and(|name| !is_device(name)) {
        keep(Mistake::new(
            key("dev"),
            "is no name of a network device",
            "write 1 to 15 letters, digits, `_`, `.` and `-`, not a dash first, or leave it out",
        ));
    }
    let route = destination.map(|destination| Route {
        destination,
        gateway,
        device: device.map(str::to_owned),
        metric: (written.metric > 0).then_some(written.metric),
    });
    match route {
        Some(route) if bad.is_empty() => Ok(route),
        Some(_) | None => Err(bad),
    }
}

fn network(key: String, text: &str) -> Result<Network, Mistake> {
    text.trim().parse().map_err(|_| {
        Mistake::new(
            key,
            "is no IPv4 network",
            "write its first address and its length, such as 10.1.0.0/16",
        )
    })
}

/// A dash first would be an option to `ip`.
fn is_device(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    name.len() <= 15 && !name.starts_with('-') && ![".", ".."].contains(&name) && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(section: Value) -> (Routing, Vec<String>) {
        let (routing, bad) = parse(&serde_json::from_value(section).unwrap());
        (routing, bad.iter().map(|mistake| mistake.key.to_string()).collect())
    }

    #[test]
    fn what_is_left_out_is_taken_from_the_default_route() {
        let (routing, bad) = read(json!({
            "staticRoutes": {"enabled": true, "routes": [
                {"destination": " 10.1.0.0/16 "},
                {"destination": "192.0.2.7/32", "gateway": "10.0.0.1", "dev": "eth1.7", "metric": 50},
            ]},
            "routeOverlap": {"expectedCidrs": ["10.224.0.0/12"], "mode": "strict"},
        }));
        assert!(bad.is_empty(), "{bad:?}");
        assert_eq!(
            (routing.routes[0].gateway, routing.routes[0].device.as_deref()),
            (None, None)
        );
        assert_eq!(
            (routing.routes[1].device.as_deref(), routing.routes[1].metric),
            (Some("eth1.7"), Some(50))
        );
        assert_eq!((routing.expected.len(), routing.overlap), (1, Overlap::Strict));
    }

    #[test]
    fn every_mistake_is_told_with_its_route() {
        let (routing, bad) = read(json!({
            "staticRoutes": {"routes": [
                {"destination": "10.1.0.1/16", "gateway": "x", "dev": "-h"},
                {"destination": "10.1.0.0/16", "dev": "a$(id)"},
                {"destination": "10.1.0.0/16", "dev": "sixteen-letters-"},
                {"destination": "10.1.0.0/16\nroute 0.0.0.0/0", "gateway": "fe80::1"},
            ]},
            "routeOverlap": {"expectedCidrs": ["10.0.0.0/8", "fd00::/8"], "mode": "maybe"},
        }));
        let at = |index, name| format!("hostRouting.staticRoutes.routes[{index}].{name}");
        assert_eq!(
            bad,
            [
                "hostRouting.staticRoutes.enabled".to_owned(),
                at(0, "destination"),
                at(0, "gateway"),
                at(0, "dev"),
                at(1, "dev"),
                at(2, "dev"),
                at(3, "destination"),
                at(3, "gateway"),
                "hostRouting.routeOverlap.expectedCidrs[1]".to_owned(),
                "hostRouting.routeOverlap.mode".to_owned(),
            ]
        );
        assert!(routing.routes.is_empty());
    }
}
