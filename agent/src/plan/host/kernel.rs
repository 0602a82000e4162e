//! `configure-os`: what a node needs of its host's kernel.

use hostexec::HostPath;

use crate::step::{File, Place, Plan, Step, Sysctl};

/// Values kubelet compares (`protectKernelDefaults`) and pods' traffic needs; in the machine `/proc/sys` can only be read,
/// so the host must hold them. Source: node-agent specification, 5.2.2.
const SYSCTLS: [Sysctl; 13] = {
    const fn is(key: &'static str, value: &'static str) -> Sysctl {
        Sysctl { key, value }
    }
    [
        is("vm.overcommit_memory", "1"),
        is("vm.panic_on_oom", "0"),
        is("kernel.panic", "10"),
        is("kernel.panic_on_oops", "1"),
        is("kernel.keys.root_maxkeys", "1000000"),
        is("kernel.keys.root_maxbytes", "25000000"),
        is("net.bridge.bridge-nf-call-iptables", "1"),
        is("net.bridge.bridge-nf-call-ip6tables", "1"),
        is("net.ipv4.ip_forward", "1"),
        is("net.ipv4.conf.all.src_valid_mark", "1"),
        is("net.ipv4.conf.default.src_valid_mark", "1"),
        is("net.ipv4.conf.all.rp_filter", "0"),
        is("net.ipv4.conf.default.rp_filter", "0"),
    ]
};

/// What is written of them on the host.
pub(in crate::plan) fn file() -> File {
    let text: String = SYSCTLS
        .iter()
        .map(|sysctl| format!("{} = {}\n", sysctl.key, sysctl.value))
        .collect();
    File::open(
        Place::Host,
        HostPath::fixed("/etc/sysctl.d/99-kubernetes.conf"),
        0o644,
        text,
    )
}

/// The values now and at every boot.
pub(super) fn configure() -> Plan {
    Plan::Serial(vec![
        Plan::task("write-sysctls", Step::Files(vec![file()])),
        Plan::task("configure-os", Step::Sysctls(SYSCTLS.to_vec())),
    ])
}
