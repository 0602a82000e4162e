use std::collections::BTreeSet;

use super::{
    judge::{
        Answer, Enforcement, Folder, Hierarchy, Holder, ImageTraits, Offline, Reached, Room, Setting, Source, Tls,
        Token,
    },
    *,
};
use crate::{
    config::Mistake,
    facts::{Gpu, OsRelease},
    model::Mode,
};

const MODES: [Mode; 2] = [Mode::Container, Mode::Binary];

pub(super) fn failed<T>() -> Seen<T> {
    Err(Unseen::Failed("read /x: it is gone".into()))
}

pub(super) fn answer(status: u16, ahead: i64, tls: Tls, by_its_clock: Tls) -> Reached {
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
    for seen in [Offline::NotAsked, Offline::Whole, Offline::Unusable("x".into())] {
        all.push(judge::offline(&seen));
    }
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
    for needed in [judge::Use::Join, judge::Use::Manage] {
        let remedy = "give it a role";
        for given in [
            judge::Given::NotAsked,
            judge::Given::Token,
            judge::Given::Unread,
            judge::Given::Unproved("holds no certificate".into()),
            judge::Given::Refused {
                said: "x".into(),
                remedy,
            },
            judge::Given::Busy {
                said: "x".into(),
                remedy,
            },
            judge::Given::Stranger { whom: "x".into() },
            judge::Given::Away {
                whom: "x".into(),
                why: "x".into(),
                remedy,
            },
        ] {
            all.push(judge::identity(needed, &given));
        }
    }
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
