//! Each judge, with what real hosts and servers say.

use std::collections::BTreeSet;

use hostexec::Tool;

use super::*;
use crate::{
    config::Mistake,
    facts::OsRelease,
    model::Mode,
    preflight::{
        Check, Finding, Verdict, judge,
        tests::{answer, failed},
    },
};

fn verdict(finding: &Finding) -> &'static str {
    match finding.verdict {
        Verdict::Ok => "ok",
        Verdict::Skipped => "skipped",
        Verdict::Warning(_) => "warning",
        Verdict::Error(_) => "error",
    }
}

#[test]
fn fc_k5_failures_of_tls_are_told_apart() {
    let mut said = BTreeSet::new();
    for (tls, part) in [
        (Tls::NotYetValid, "not valid yet"),
        (Tls::Expired, "expired"),
        (Tls::UnknownAuthority, "not signed by"),
        (Tls::WrongName, "another name"),
        (Tls::Unusable, "can't be used"),
    ] {
        let finding = judge::api_server(&answer(200, 2, tls, tls));
        assert!(
            verdict(&finding) == "error" && finding.message.contains(part),
            "{finding:?}"
        );
        said.insert(finding.message);
    }
    let plain = judge::api_server(&Reached::Failed(judge::words(
        "client error (Connect): received corrupt message of type InvalidContentType",
    )));
    assert!(plain.message.contains("plain HTTP"), "{plain:?}");
    said.insert(plain.message);
    assert_eq!(said.len(), 6);
}

#[test]
fn fc_k4_a_wrong_clock_is_told_as_a_clock_and_not_as_a_certificate() {
    let behind = answer(200, 3600, Tls::NotYetValid, Tls::Trusted);
    let clock = judge::clock(&behind);
    assert_eq!(verdict(&clock), "error");
    assert!(clock.message.contains("about 60 min behind"), "{clock:?}");
    assert_eq!(verdict(&judge::api_server(&behind)), "skipped");
    assert!(
        judge::clock(&answer(200, -7200 * 3, Tls::Trusted, Tls::Trusted))
            .message
            .contains("6 h ahead")
    );
    for (ahead, expected) in [
        (0, "ok"),
        (-29, "ok"),
        (60, "warning"),
        (-300, "warning"),
        (301, "error"),
    ] {
        let found = judge::clock(&answer(200, ahead, Tls::Trusted, Tls::Trusted));
        assert_eq!(verdict(&found), expected, "{ahead}");
    }
    // A clock that is right excuses no certificate.
    assert_eq!(
        verdict(&judge::api_server(&answer(200, 10, Tls::Expired, Tls::Trusted))),
        "error"
    );
}

#[test]
fn fc_k1_an_unknown_token_says_how_to_get_another() {
    let Verdict::Error(remedy) = judge::token(Token::Unknown).verdict else {
        panic!("no error")
    };
    assert!(remedy.as_str().contains("make a new bootstrap token"));
}

#[test]
fn fc_h2_a_private_mount_names_the_way_out() {
    let info = |optional: &str| {
        format!(
            "20 1 0:5 / / rw shared:1 - overlay o rw\n30 20 8:1 / /host rw,relatime{optional} - ext4 /dev/a rw\n31 30 8:2 / /host/var rw shared:9 - ext4 /dev/b rw\n"
        )
    };
    for (optional, expected) in [
        (" master:1", "ok"),
        (" shared:4", "ok"),
        ("", "error"),
        (" unbindable", "error"),
    ] {
        let found = judge::propagation(&Ok(info(optional)));
        assert_eq!(verdict(&found), expected, "{optional}");
        if let Verdict::Error(remedy) = found.verdict {
            assert!(remedy.as_str().contains("rslave (or rshared)"));
        }
    }
    // Mounted over: what lies on top counts.
    let over = info(" master:1") + "40 20 8:1 / /host rw - ext4 /dev/a rw\n";
    assert_eq!(verdict(&judge::propagation(&Ok(over))), "error");
}

#[test]
fn fc_l1_enforcing_without_an_answer_names_the_rule() {
    let found = judge::selinux(&Ok(Enforcement::Enforcing), &failed());
    let Verdict::Error(remedy) = found.verdict else {
        panic!("{found:?}")
    };
    assert!(remedy.as_str().contains("allow spc_t kernel_t:dbus send_msg;"));
    assert_eq!(verdict(&judge::selinux(&Ok(Enforcement::Enforcing), &Ok(()))), "ok");
}

#[test]
fn what_is_not_done_yet_is_refused_by_its_key() {
    let mistake = |key| Mistake::new(key, "asks for what is not part of this release yet", "leave it out");
    let found = judge::settings(
        &[
            "networking.localDNS",
            "azure.bootstrapToken",
            "hostRouting.staticRoutes",
        ]
        .map(mistake),
    );
    let errors: Vec<_> = found
        .iter()
        .filter(|finding| verdict(finding) == "error")
        .map(|finding| (finding.check, finding.target.as_deref().unwrap()))
        .collect();
    assert_eq!(
        errors,
        [
            (Check::LocalDns, "networking.localDNS"),
            (Check::ClusterCredentials, "azure.bootstrapToken"),
            (Check::AgentConfig, "hostRouting.staticRoutes"),
        ]
    );
}

#[test]
fn a_listener_is_found_by_its_port_and_state() {
    let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
         0: 00000000:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1\n\
         1: 0100007F:2811 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 778 1\n";
    assert_eq!(judge::listener(table, 10250), Some(777));
    assert_eq!(judge::listener(table, 10257), None);
    assert_eq!(judge::listener("", 10250), None);
}

#[test]
fn a_firewall_that_drops_by_policy_is_seen_of_both_kinds() {
    let targets = |text: &str| {
        let found = judge::firewall(&Ok(vec![text.to_owned()]), &[]);
        let warned = found.iter().filter(|finding| verdict(finding) == "warning");
        warned
            .map(|finding| finding.target.clone().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        targets("-P INPUT DROP\n-P FORWARD DROP\n-P OUTPUT DROP\n-A INPUT -j ACCEPT\n"),
        ["policy of forward", "policy of input"]
    );
    assert_eq!(targets("-P INPUT ACCEPT\n-P FORWARD ACCEPT\n"), [""; 0]);
    assert_eq!(
        targets("table inet f {\n\tchain a {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n"),
        ["policy of forward"]
    );
    assert_eq!(
        targets(
            "\t\ttype filter hook input priority 0; policy accept;\n\t\ttype nat hook input priority 0; policy drop;\n"
        ),
        [""; 0]
    );
}

#[test]
fn a_firewall_that_start_opens_is_no_hindrance_and_another_is() {
    let iptables =
        "table ip filter {\n\tchain FORWARD {\n\t\ttype filter hook forward priority filter; policy drop;\n\t}\n}\n";
    let others = iptables.replace("FORWARD", "mine");
    let opened = [units::host::Family::V4];
    let verdicts = |text: &str| {
        judge::firewall(&Ok(vec![text.to_owned()]), &opened)
            .iter()
            .map(verdict)
            .collect::<Vec<_>>()
    };
    assert_eq!(verdicts(iptables), ["ok"]);
    assert_eq!(verdicts("-P FORWARD DROP\n"), ["ok"]);
    assert_eq!(verdicts(&others), ["warning"]);
    assert_eq!(verdicts(&format!("{iptables}{others}")), ["warning"]);
}

#[test]
fn what_a_transport_says_is_told_without_its_names() {
    for (said, part) in [
        ("invalid peer certificate: UnknownIssuer", "signed"),
        (
            "invalid peer certificate: certificate not valid for name \"canary.test\"; certificate is only valid for DnsName(\"a\")",
            "another name",
        ),
        (
            "invalid peer certificate: certificate expired: verification time 1 (UNIX)",
            "expired",
        ),
        ("tcp connect error: Connection refused (os error 111)", "refused"),
        ("something canary new", "failed"),
    ] {
        let words = judge::words(said);
        assert!(words.contains(part) && !words.contains("canary"), "{said}: {words}");
    }
}

#[test]
fn containerds_configuration_is_where_its_unit_says() {
    let config = judge::containerd_config;
    assert_eq!(
        config("Environment=CONTAINERD_CONFIG=/run/containerd/acl-config.toml\nExecStart="),
        "/run/containerd/acl-config.toml"
    );
    assert_eq!(
        config(
            "Environment=\nExecStart={ path=/usr/bin/containerd ; argv[]=/usr/bin/containerd --config /usr/share/containerd/config.toml ; }"
        ),
        "/usr/share/containerd/config.toml"
    );
    assert_eq!(
        config("Environment=\nExecStart={ argv[]=/usr/bin/containerd ; }"),
        "/etc/containerd/config.toml"
    );
}

#[test]
fn the_three_images_are_told_apart() {
    let acl = OsRelease::parse("ID=azurelinux\nVARIANT_ID=azurecontainerlinux\nVERSION_ID=3.0.20260809\n");
    let said = |containerd_extension, aks_extension| {
        let traits = ImageTraits {
            containerd_extension,
            aks_extension,
        };
        judge::host_image(&acl, &Ok(traits)).message
    };
    assert!(said(true, false).contains("gallery"));
    assert!(said(true, true).contains("AKS"));
    assert!(said(false, false).contains("flattened"));
}

#[test]
fn tools_that_are_missing_are_named_with_what_to_do() {
    let found = judge::runtime(
        &|tool| tool != Tool::SystemdNspawn && tool != Tool::Machinectl,
        &Ok(true),
        Mode::Container,
    );
    let targets: Vec<_> = found.iter().map(|finding| finding.target.as_deref().unwrap()).collect();
    assert_eq!(targets, ["machinectl", "systemd-nspawn"]);
    assert!(found.iter().all(|finding| verdict(finding) == "error"), "{found:?}");
    assert!(
        judge::tools(&|tool| tool != Tool::Ctr)
            .iter()
            .any(|finding| verdict(finding) == "error")
    );
    assert!(
        judge::tools(&|tool| tool != Tool::Swapoff)
            .iter()
            .all(|finding| verdict(finding) == "warning")
    );
}

#[test]
fn states_of_units_are_read_by_their_blocks() {
    let units = judge::units("Id=docker.service\nActiveState=inactive\n\nActiveState=active\nId=kubelet.service\n");
    let state = |active: &str| UnitState { active: active.into() };
    assert_eq!(units["docker.service"], state("inactive"));
    assert_eq!(units["kubelet.service"], state("active"));
}
