//! Units and scripts of the host, as systemd and a shell read them.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: scratch files, with systemd-analyze and a shell as judges"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use units::host::{self, Network, Overlap, Route};
use units::machine::HostFile;

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

fn route(destination: &str, gateway: Option<&str>, device: Option<&str>, metric: Option<u32>) -> Route {
    Route {
        destination: network(destination),
        gateway: gateway.map(|text| text.parse().unwrap()),
        device: device.map(str::to_owned),
        metric,
    }
}

fn all() -> Vec<HostFile> {
    [
        host::nftables_flush(),
        host::static_routes(&[route("10.1.0.0/16", None, None, None)]),
        host::route_overlap(&[network("10.224.0.0/12")], Overlap::Warn),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn systemd_finds_nothing_to_say_of_any_of_them() {
    let dir = tempfile::tempdir().unwrap();
    // The machine's unit is systemd's own; the judge needs one of that name alone.
    fs::write(
        dir.path().join("systemd-nspawn@.service"),
        "[Service]\nExecStart=/bin/true\n",
    )
    .unwrap();
    for written in all() {
        let Some(name) = written.path.as_str().strip_prefix("/etc/systemd/system/") else {
            continue;
        };
        let path = dir.path().join(name);
        fs::write(&path, &written.text).unwrap();
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&path)
            .env("SYSTEMD_UNIT_PATH", format!("{}:", dir.path().display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        // The judge may be older than the host: RestartMode= is of 254. It need not have the filter's program.
        let wrong: Vec<&str> = said
            .lines()
            .filter(|line| {
                !line.contains("Unknown key 'RestartMode'") && !line.contains("/usr/sbin/nft is not executable")
            })
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    }
}

/// A folder with an `ip` that knows these default routes, logs what it is asked to change, and answers `route get` from a list.
fn with_ip(defaults: &str, gets: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::write(at("defaults"), defaults).unwrap();
    fs::write(at("gets"), gets).unwrap();
    let here = dir.path().display();
    let ip = format!(
        "#!/bin/sh\ncase \"$*\" in\n\
         '-4 route show default') cat {here}/defaults ;;\n\
         '-4 route show default dev '*) grep \" dev $6\\b\" {here}/defaults | sed 's/ dev [^ ]*//' ;;\n\
         '-4 route get '*) grep \"^$4 \" {here}/gets || exit 2 ;;\n\
         *) echo \"$*\" >> {here}/log ;;\nesac\n"
    );
    fs::write(at("ip"), ip).unwrap();
    fs::write(at("sleep"), "#!/bin/sh\n").unwrap();
    for program in ["ip", "sleep"] {
        fs::set_permissions(at(program), fs::Permissions::from_mode(0o755)).unwrap();
    }
    dir
}

fn run(dir: &Path, script: &str) -> (i32, String) {
    let path = format!("{}:/usr/bin:/bin", dir.display());
    let output = Command::new("/bin/sh")
        .args(["-c", script])
        .env("PATH", path)
        .output()
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

const DEFAULTS: &str =
    "default via 10.0.0.1 dev eth0 proto dhcp metric 100\ndefault via 10.9.0.1 dev eth1 metric 200\n";

#[test]
fn what_a_route_lacks_is_taken_from_the_default_route() {
    let dir = with_ip(DEFAULTS, "");
    let [script, _] = host::static_routes(&[
        route("10.1.0.0/16", None, None, None),
        route("10.2.0.0/16", None, Some("eth1"), Some(7)),
        route("10.3.0.0/16", Some("10.0.0.9"), None, None),
        route("10.4.0.0/16", Some("10.9.0.9"), Some("eth1"), None),
    ]);
    assert_eq!(run(dir.path(), &script.text), (0, String::new()));
    assert_eq!(
        fs::read_to_string(dir.path().join("log")).unwrap(),
        "-4 route replace 10.1.0.0/16 via 10.0.0.1 dev eth0 proto 173\n\
         -4 route replace 10.2.0.0/16 via 10.9.0.1 dev eth1 proto 173 metric 7\n\
         -4 route replace 10.3.0.0/16 via 10.0.0.9 dev eth0 proto 173\n\
         -4 route replace 10.4.0.0/16 via 10.9.0.9 dev eth1 proto 173\n"
    );
}

#[test]
fn a_route_that_cannot_be_set_fails_and_keeps_no_other_from_being_set() {
    let dir = with_ip("", "");
    let [script, _] = host::static_routes(&[
        route("10.1.0.0/16", None, None, None),
        route("10.2.0.0/16", None, Some("eth1"), None),
        route("10.4.0.0/16", Some("10.9.0.9"), Some("eth1"), None),
    ]);
    let (code, said) = run(dir.path(), &script.text);
    assert_eq!(
        (code, said.as_str()),
        (
            1,
            "no route to 10.1.0.0/16: there is no default route to take its device from\n\
             no route to 10.2.0.0/16: there is no default route to take its gateway from\n"
        )
    );
    assert_eq!(
        fs::read_to_string(dir.path().join("log")).unwrap(),
        "-4 route replace 10.4.0.0/16 via 10.9.0.9 dev eth1 proto 173\n"
    );
}

#[test]
fn a_network_that_another_device_takes_is_told_and_fails_only_where_it_must() {
    let gets =
        "10.224.0.1 via 10.0.0.1 dev eth0 src 10.0.0.4 uid 0\n10.32.0.1 via 10.9.0.1 dev eth1 src 10.9.0.4 uid 0\n";
    for (networks, overlap, defaults, code, found) in [
        (&["10.224.0.0/12"][..], Overlap::Strict, DEFAULTS, 0, None),
        (
            &["10.224.0.0/12", "10.32.0.0/16"],
            Overlap::Warn,
            DEFAULTS,
            0,
            Some("the network 10.32.0.0/16 is not reached by the default route's device eth0 but by eth1\n"),
        ),
        (
            &["10.32.0.0/16"],
            Overlap::Strict,
            DEFAULTS,
            1,
            Some("the network 10.32.0.0/16 is not reached by the default route's device eth0 but by eth1\n"),
        ),
        (
            &["10.99.0.0/16"],
            Overlap::Strict,
            DEFAULTS,
            1,
            Some("the network 10.99.0.0/16 is not reached by the default route's device eth0 but by none\n"),
        ),
        (
            &["10.224.0.0/12"],
            Overlap::Strict,
            "",
            1,
            Some("the host has no IPv4 default route\n"),
        ),
    ] {
        let dir = with_ip(defaults, gets);
        let networks: Vec<Network> = networks.iter().map(|text| network(text)).collect();
        let [script, _] = host::route_overlap(&networks, overlap);
        let out = dir.path().join("run");
        let text = script.text.replace("/run/aks-flex-node", &out.display().to_string());
        // What an earlier run found is forgotten.
        for name in ["route-overlap.ok", "route-overlap.detected"] {
            fs::create_dir_all(&out).unwrap();
            fs::write(out.join(name), "earlier\n").unwrap();
        }
        let (ended, said) = run(dir.path(), &text);
        assert_eq!(
            (ended, said.as_str()),
            (code, found.unwrap_or_default()),
            "{networks:?}"
        );
        let left = fs::read_to_string(out.join("route-overlap.detected")).ok();
        assert_eq!(left.as_deref(), found, "{networks:?}");
        assert_eq!(out.join("route-overlap.ok").exists(), found.is_none(), "{networks:?}");
    }
}
