use std::collections::BTreeSet;

use hostexec::Tool;

use super::{
    judge::{
        Answer, Enforcement, Folder, Hierarchy, Holder, ImageTraits, Reached, Room, Setting, Source, Tls, Token,
        UnitState,
    },
    *,
};
use crate::{
    config::Mistake,
    facts::{Gpu, OsRelease},
    model::Mode,
};

const MODES: [Mode; 2] = [Mode::Container, Mode::Binary];

fn failed<T>() -> Seen<T> {
    Err(Unseen::Failed("read /x: it is gone".into()))
}

fn answer(status: u16, ahead: i64, tls: Tls, by_its_clock: Tls) -> Reached {
    Reached::Answered(Answer {
        status,
        ahead: Some(ahead),
        tls,
        by_its_clock: Some(by_its_clock),
    })
}

/// Every answer of every judge, good and bad.
fn everything() -> Vec<Finding> {
    let mut all = vec![
        judge::user(0),
        judge::user(1000),
        judge::swap(&Ok("Filename\n".into())),
        judge::swap(&Ok("Filename Type\n/swapfile file 1 0 -2\n".into())),
        judge::swap(&failed()),
        judge::propagation(&failed()),
        judge::propagation(&Ok("1 1 0:1 / /host rw master:3 - ext4 x rw\n".into())),
        judge::propagation(&Ok("1 1 0:1 / /host rw - ext4 x rw\n".into())),
        judge::propagation(&Ok(String::new())),
        judge::systemd_version(&Ok("systemd 255 (255.4)\n".into())),
        judge::systemd_version(&Ok("systemd 252\n".into())),
        judge::systemd_version(&Ok("systemd 249\n".into())),
        judge::systemd_version(&Ok("no\n".into())),
        judge::systemd_version(&failed()),
        judge::containerd_sync(&Ok(None)),
        judge::containerd_sync(&Ok(Some("  image_pull_with_sync_fs = true\n".into()))),
        judge::containerd_sync(&failed()),
        judge::machined(&Ok(())),
        judge::machined(&Err(Unseen::Late(std::time::Duration::from_secs(4)))),
        judge::oci_image(&Ok(Source::Reachable)),
        judge::oci_image(&Ok(Source::Unnamed)),
        judge::oci_image(&Ok(Source::Away("x".into()))),
        judge::oci_image(&failed()),
    ];
    for seen in [
        Ok(Hierarchy::Absent),
        Ok(Hierarchy::Legacy),
        Ok(Hierarchy::Unified),
        failed(),
    ] {
        all.push(judge::cgroups(&seen));
    }
    for process in [None, Some("nc".to_owned())] {
        all.push(judge::kubelet_port(&Ok(Some(Holder { process }))));
    }
    all.extend([judge::kubelet_port(&Ok(None)), judge::metrics_port(&failed())]);
    for folder in [
        Ok(Folder::Writable),
        Ok(Folder::ReadOnly),
        Ok(Folder::NoFolder),
        failed(),
    ] {
        let folders = [("/etc/x".to_owned(), folder)];
        all.extend(judge::writable(Check::HostOsConfiguration, &folders));
        all.extend(judge::targets(&folders));
        all.extend(judge::provisioning(&folders));
    }
    for (bytes, files) in [
        (9 << 30, None),
        (1 << 30, Some(1)),
        (9 << 30, Some(1)),
        (9 << 30, Some(100_000)),
    ] {
        all.extend(judge::disk(&Ok(Room { bytes, files })));
    }
    all.extend(judge::disk(&failed()));
    for seen in [
        failed(),
        Ok(Enforcement::Off),
        Ok(Enforcement::Permissive),
        Ok(Enforcement::Enforcing),
    ] {
        all.push(judge::selinux(&seen, &Ok(())));
        all.push(judge::selinux(&seen, &failed()));
    }
    for state in [
        failed(),
        Ok(String::new()),
        Ok("Id=a.service\nActiveState=active\n\nId=b\nActiveState=inactive\n".to_owned()),
    ] {
        let units = state.map(|text| judge::units(&text));
        all.push(judge::unit(Check::DockerActive, "a.service", &units));
        all.push(judge::unit(Check::KubeletActive, "b", &units));
    }
    for (found, writable) in [
        (None, true),
        (Some("1\n".to_owned()), false),
        (Some("0\n".to_owned()), true),
        (Some("0\n".to_owned()), false),
    ] {
        let setting = Setting {
            key: "vm.a",
            wanted: "1",
            found,
            writable,
        };
        all.extend(judge::kernel_settings(&Ok(vec![setting])));
    }
    all.extend(judge::kernel_settings(&failed()));
    for text in [
        "",
        "-P INPUT DROP\n-P FORWARD DROP\n",
        "type filter hook forward priority filter; policy drop;",
    ] {
        all.extend(judge::firewall(&Ok(vec![text.to_owned()]), &[]));
    }
    all.extend(judge::firewall(&failed(), &[]));
    for mode in MODES {
        all.extend(judge::runtime(&|_| false, &Ok(false), mode));
        all.extend(judge::runtime(&|_| true, &failed(), mode));
        for gpu in [Gpu::None, Gpu::Nvidia] {
            all.extend([Ok(true), Ok(false), failed()].map(|bus| judge::gpu(gpu, &bus, mode)));
        }
        all.extend(
            [Ok(vec![]), Ok(vec!["/x".to_owned()]), failed()]
                .iter()
                .flat_map(|seen| judge::existing(seen, mode)),
        );
    }
    all.extend(judge::tools(&|_| false));
    all.extend(judge::tools(&|_| true));
    let acl = OsRelease::parse("ID=azurelinux\nVARIANT_ID=azurecontainerlinux\n");
    for os in [OsRelease::default(), acl] {
        for traits in [
            failed(),
            Ok(ImageTraits::default()),
            Ok(ImageTraits {
                aks_extension: true,
                ..ImageTraits::default()
            }),
        ] {
            all.push(judge::host_image(&os, &traits));
        }
    }
    all.extend(judge::settings(&[]));
    all.extend(judge::settings(&[Mistake::new(
        "networking.localDNS",
        "asks for too much",
        "leave it out",
    )]));
    all.extend(reaches().iter().flat_map(|reached| {
        let dns = judge::dns(reached, true, &["kubelet"])
            .into_iter()
            .chain(judge::dns(reached, false, &[]));
        dns.chain([judge::api_server(reached), judge::clock(reached)])
            .collect::<Vec<_>>()
    }));
    for token in [
        Token::None,
        Token::Withheld,
        Token::Taken(403),
        Token::Unknown,
        Token::Unclear,
    ] {
        all.push(judge::token(token));
    }
    for seen in [
        Ok(Source::Reachable),
        Ok(Source::Unnamed),
        Ok(Source::Away("x".into())),
        failed(),
    ] {
        all.extend(judge::sources(
            &["kubelet", "runc", "cni", "npd"].map(|name| (name, seen.clone())),
        ));
    }
    all.extend(judge::sources(&[]));
    all
}

fn reaches() -> Vec<Reached> {
    let mut all = vec![
        Reached::NoUrl,
        Reached::NoAuthority,
        Reached::Unnamed,
        Reached::Late(std::time::Duration::from_secs(8)),
        Reached::Failed(judge::words("received corrupt message of type InvalidContentType")),
        Reached::Failed(judge::words("Connection refused (os error 111)")),
        answer(503, 0, Tls::Trusted, Tls::Trusted),
    ];
    for tls in [
        Tls::Trusted,
        Tls::NotYetValid,
        Tls::Expired,
        Tls::UnknownAuthority,
        Tls::WrongName,
        Tls::Unusable,
    ] {
        for ahead in [0, -60, 3600] {
            all.push(answer(200, ahead, tls, tls));
            all.push(answer(200, ahead, tls, Tls::Trusted));
        }
    }
    all
}

#[test]
fn every_warning_and_error_says_what_to_do() {
    let remedies: Vec<_> = everything()
        .into_iter()
        .filter_map(|finding| match finding.verdict {
            Verdict::Ok | Verdict::Skipped => None,
            Verdict::Warning(remedy) | Verdict::Error(remedy) => Some((finding.check, remedy)),
        })
        .collect();
    assert!(remedies.len() > 80, "{}", remedies.len());
    for (check, remedy) in remedies {
        assert!(remedy.as_str().split(' ').count() > 2, "{check:?}: {remedy:?}");
        assert!(!remedy.as_str().ends_with('.'), "{check:?}: {remedy:?}");
    }
}

#[test]
fn every_check_is_judged_and_documented() {
    let judged: BTreeSet<_> = everything().into_iter().map(|finding| finding.check).collect();
    let page = include_str!("../../../docs/preflight.md");
    for check in Check::ALL {
        // No judge is written for what only the binary install has, or both of a table's services.
        let later = [Check::HostPackages, Check::HostRoot, Check::ContainerdActive].contains(check);
        assert!(judged.contains(check) || later, "{check:?}");
        assert!(
            page.contains(&format!("| `{}` |", check.name())),
            "{check:?} is not in docs/preflight.md"
        );
    }
}

#[test]
fn names_are_read_in_any_case_and_unknown_ones_are_refused() {
    for check in Check::ALL {
        assert_eq!(format!(" {} ", check.name().to_uppercase()).parse(), Ok(*check));
    }
    assert!(Ignored::parse(["swap-active, dns", "ALL"]).is_ok());
    assert!(Ignored::parse(["", ","]).is_ok());
    assert_eq!(Ignored::parse(["swap-active,canary"]), Err(UnknownCheck));
}

fn three() -> Vec<Finding> {
    vec![
        Check::Clock.skip("nobody says what time it is"),
        judge::disk(&Ok(Room {
            bytes: (3 << 30) / 2,
            files: None,
        }))
        .remove(0),
        judge::swap(&Ok("Filename\n/swapfile\n".into())),
        judge::user(0),
    ]
}

#[test]
fn a_report_is_in_order_as_text_and_as_json() {
    let report = Report::of(three(), &Ignored::default(), Strictness::Errors);
    assert_eq!(report.status(), Status::Failed);
    insta::assert_snapshot!(format!("{report}\n{}", report.json()));
}

#[test]
fn an_ignored_error_is_a_warning_and_warnings_fail_where_that_is_asked() {
    let status = |findings: Vec<Finding>, ignored: &str, strictness| {
        Report::of(findings, &Ignored::parse([ignored]).unwrap(), strictness).status()
    };
    use Strictness as S;
    assert_eq!(status(three(), "Disk-Space", S::Errors), Status::Ok);
    assert_eq!(status(three(), "all", S::Errors), Status::Ok);
    assert_eq!(status(three(), "dns", S::Errors), Status::Failed);
    assert_eq!(status(three(), "all", S::Warnings), Status::Failed);
    assert_eq!(status(vec![judge::user(0)], "", S::Warnings), Status::Ok);
    let ignored = Report::of(three(), &Ignored::parse(["all"]).unwrap(), S::Errors).json();
    assert!(
        ignored.contains("\"ignored\": true") && ignored.contains("\"warnings\": 2"),
        "{ignored}"
    );
}

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
fn na_r18_offline_sources_and_what_is_not_done_yet_are_refused_by_their_keys() {
    let mistake = |key| Mistake::new(key, "asks for what is not part of this release yet", "leave it out");
    let found = judge::settings(
        &[
            "bootstrap.offlineArtifacts.source",
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
            (Check::OfflineArtifacts, "bootstrap.offlineArtifacts.source"),
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
