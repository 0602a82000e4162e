//! Steps on the host itself: its units, its swap, its firewall.

use super::*;

/// Of a unit that `$root/<unit>.load` and `.active` describe.
const SHOWN: &str = r#"case "$1" in
    show) case "$4" in LoadState) name=load ;; *) name=active ;; esac; cat "$root/$5.$name" ;;
    mask) echo masked > "$root/$2.load" ;;
    is-enabled) cat "$root/$2.enabled"; exit 1 ;;
    disable) echo disabled > "$root/$2.enabled" ;;
    stop) echo inactive > "$root/$2.active" ;;
    start|restart) echo active > "$root/$2.active" ;;
esac"#;

#[tokio::test]
async fn a_unit_is_masked_and_stopped_once() {
    let bed = Bed::new(&[("systemctl", SHOWN)]);
    for (unit, load, active) in [
        ("docker.socket", "loaded", "active"),
        ("docker.service", "not-found", "inactive"),
        ("kubelet.service", "loaded", "active"),
    ] {
        bed.put(&format!("{unit}.load"), load);
        bed.put(&format!("{unit}.active"), active);
    }
    // Where systemd makes no link.
    bed.context
        .host
        .create_dir(&HostPath::fixed("/etc/systemd/system"), 0o755)
        .unwrap();
    bed.put("etc/systemd/system/kubelet.service", "[Service]\n");
    bed.put("kubelet.service.enabled", "enabled\n");
    let step = || Step::UnitsOff(vec!["docker.socket", "docker.service", "kubelet.service"]);
    bed.make(step()).await.unwrap();
    let done = [
        "systemctl mask docker.socket",
        "systemctl stop docker.socket",
        "systemctl mask docker.service",
        "systemctl disable kubelet.service",
        "systemctl stop kubelet.service",
    ];
    assert_eq!(bed.changes(), done);
    bed.make(step()).await.unwrap();
    assert_eq!(bed.changes(), done);
}

#[tokio::test]
async fn na_r23_swap_is_off_once_and_one_that_stays_is_an_error() {
    let swapoff = r#"[ -e "$root/stubborn" ] || head -n 1 "$root/proc/swaps" > "$root/new"; mv "$root/new" "$root/proc/swaps" || :"#;
    let systemctl = r#"case "$1" in list-units) cat "$root/units" ;; esac"#;
    let bed = Bed::new(&[("systemctl", systemctl), ("swapoff", swapoff)]);
    bed.put("units", "swap.img.swap loaded active active /swap.img\n");
    bed.context.host.create_dir(&HostPath::fixed("/proc"), 0o755).unwrap();
    let table = "Filename\tType\tSize\tUsed\tPriority\n/swap.img file 1 0 -2\n";
    bed.put("proc/swaps", table);
    bed.make(Step::SwapOff).await.unwrap();
    assert_eq!(bed.calls()[2..], ["systemctl mask --now swap.img.swap", "swapoff -a"]);
    // A second time there is nothing to do.
    bed.put("units", "swap.img.swap masked inactive dead swap.img.swap\n");
    bed.make(Step::SwapOff).await.unwrap();
    assert_eq!(bed.calls().len(), 5);
    bed.put("proc/swaps", table);
    bed.put("stubborn", "");
    let error = bed.fails(Step::SwapOff).await;
    assert!(error.contains("see /proc/swaps"), "{error}");
}

#[tokio::test]
async fn kubelets_port_is_opened_where_it_is_not() {
    let systemctl = r#"cat "$root/$5.active""#;
    let iptables = r#"case "$2" in --check) [ -e "$root/open" ] ;; --insert) : > "$root/open" ;; esac"#;
    // ip6tables is not there, nor its firewall up.
    let bed = Bed::new(&[("iptables", iptables), ("systemctl", systemctl)]);
    bed.put("iptables.service.active", "active");
    bed.put("ip6tables.service.active", "inactive");
    let step = || Step::FirewallsOpen(vec![units::host::Family::V4, units::host::Family::V6]);
    bed.make(step()).await.unwrap();
    bed.make(step()).await.unwrap();
    let inserted = bed.calls().iter().filter(|call| call.contains("--insert")).count();
    assert_eq!(inserted, 1, "{:?}", bed.calls());
}

#[tokio::test]
async fn a_units_files_are_taken_up_once_since_the_boot() {
    let bed = Bed::new(&[("systemctl", SHOWN)]);
    let script = HostPath::fixed("/etc/aks-flex-node/static-routes.sh");
    let step = || Step::UnitCurrent {
        unit: "static-routes.service",
        reads: vec![script.clone()],
    };
    bed.put("static-routes.service.active", "inactive");
    for (text, expected) in [
        ("1", &["systemctl start static-routes.service"][..]),
        ("1", &[]),
        ("2", &["systemctl reload static-routes.service"]),
    ] {
        let before = bed.changes().len();
        bed.context.host.write(&script, text.as_bytes(), 0o755).unwrap();
        bed.make(step()).await.unwrap();
        assert_eq!(bed.changes()[before..], *expected, "{text}");
    }
}
