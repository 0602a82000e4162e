//! What is in a host's tree: what Debian brings, what of it goes, and what of ours comes. All of it lies as files in `acl/`.

/// What `mmdebstrap` puts in besides the essential packages: what the image has, as far as the agent or a check may meet it.
pub(super) const PACKAGES: &str = "systemd,systemd-sysv,systemd-container,systemd-resolved,udev,dbus,libpam-systemd,libnss-myhostname,\
libnss-resolve,containerd,runc,iproute2,iptables,nftables,iputils-ping,procps,kmod,curl,ca-certificates,openssl,jq,less,netbase,\
util-linux,strace,socat,conntrack,ethtool";

/// A text of ours in the tree: its place, its mode, itself.
pub(super) struct File(pub(super) &'static str, pub(super) u32, pub(super) &'static str);

pub(super) const FILES: &[File] = &[
    File("usr/lib/os-release", 0o644, include_str!("../../acl/os-release")),
    File(
        "usr/lib/systemd/system.conf.d/10-acl.conf",
        0o644,
        include_str!("../../acl/limits.conf"),
    ),
    File(
        "usr/lib/systemd/journald.conf.d/10-test.conf",
        0o644,
        include_str!("../../acl/journald.conf"),
    ),
    File(
        "usr/lib/systemd/system/service.d/10-timeout-abort.conf",
        0o644,
        include_str!("../../acl/timeout-abort.conf"),
    ),
    File(
        "usr/lib/systemd/system/ensure-sysext.service",
        0o644,
        include_str!("../../acl/ensure-sysext.service"),
    ),
    File(
        "usr/lib/systemd/system/acl-sysupdate.service",
        0o644,
        include_str!("../../acl/acl-sysupdate.service"),
    ),
    File(
        "usr/lib/systemd/system/media.mount",
        0o644,
        include_str!("../../acl/media.mount"),
    ),
    File(
        "usr/lib/systemd/system/test-shield.service",
        0o644,
        include_str!("../../acl/test-shield.service"),
    ),
    File("usr/libexec/test-shield", 0o755, include_str!("../../acl/test-shield")),
    File(
        "usr/lib/systemd/system-preset/90-default.preset",
        0o644,
        include_str!("../../acl/default.preset"),
    ),
    File(
        "usr/lib/systemd/system-preset/99-default-disable.preset",
        0o644,
        include_str!("../../acl/disable.preset"),
    ),
    File(
        "usr/lib/systemd/network/20-unmanaged.network",
        0o644,
        include_str!("../../acl/default.network"),
    ),
    File(
        "usr/lib/sysctl.d/50-acl.conf",
        0o644,
        include_str!("../../acl/sysctl.conf"),
    ),
    File("usr/sbin/modprobe", 0o755, include_str!("../../acl/modprobe")),
    File("etc/fstab", 0o644, include_str!("../../acl/fstab")),
    File("etc/hosts", 0o644, include_str!("../../acl/hosts")),
    File("etc/selinux/config", 0o644, include_str!("../../acl/selinux-config")),
];

/// As `FILES`, below the extension.
pub(super) const SYSEXT_FILES: &[File] = &[
    File(
        "usr/lib/extension-release.d/extension-release.containerd",
        0o644,
        include_str!("../../acl/extension-release"),
    ),
    File(
        "usr/lib/systemd/system/containerd.service",
        0o644,
        include_str!("../../acl/containerd.service"),
    ),
    File(
        "usr/lib/systemd/system/containerd.service.d/10-acl.conf",
        0o644,
        include_str!("../../acl/containerd-acl.conf"),
    ),
    File(
        "usr/share/containerd/config.toml",
        0o644,
        include_str!("../../acl/containerd.toml"),
    ),
    File("usr/sbin/runc", 0o755, include_str!("../../acl/runc")),
];

/// What moves from the tree into the extension.
pub(super) const SYSEXT_MOVED: &[(&str, &str)] = &[
    ("usr/bin/containerd", "usr/bin/containerd"),
    ("usr/bin/containerd-shim-runc-v2", "usr/bin/containerd-shim-runc-v2"),
    ("usr/bin/ctr", "usr/bin/ctr"),
    ("usr/sbin/runc", "usr/libexec/runc.real"),
];

/// Links: place and target. What is on by default is on by a link on `/usr`, which no preset can take away.
pub(super) const LINKS: &[(&str, &str)] = &[
    // The older backend, which `nft` does not see. Source: acl-facts, "firewall".
    ("usr/sbin/iptables", "xtables-legacy-multi"),
    ("usr/sbin/iptables-save", "xtables-legacy-multi"),
    ("usr/sbin/iptables-restore", "xtables-legacy-multi"),
    ("usr/sbin/ip6tables", "xtables-legacy-multi"),
    ("usr/sbin/ip6tables-save", "xtables-legacy-multi"),
    ("usr/sbin/ip6tables-restore", "xtables-legacy-multi"),
    (
        "usr/lib/systemd/system/multi-user.target.wants/systemd-networkd.service",
        "../systemd-networkd.service",
    ),
    (
        "usr/lib/systemd/system/multi-user.target.wants/acl-sysupdate.service",
        "../acl-sysupdate.service",
    ),
    (
        "usr/lib/systemd/system/sockets.target.wants/systemd-networkd.socket",
        "../systemd-networkd.socket",
    ),
    (
        "usr/lib/systemd/system/network-online.target.wants/systemd-networkd-wait-online.service",
        "../systemd-networkd-wait-online.service",
    ),
    (
        "usr/lib/systemd/system/sysinit.target.wants/systemd-resolved.service",
        "../systemd-resolved.service",
    ),
    (
        "usr/lib/systemd/system/sysinit.target.wants/systemd-sysext.service",
        "../systemd-sysext.service",
    ),
    (
        "usr/lib/systemd/system/sysinit.target.wants/ensure-sysext.service",
        "../ensure-sysext.service",
    ),
    (
        "usr/lib/systemd/system/sysinit.target.wants/test-shield.service",
        "../test-shield.service",
    ),
    (
        "usr/lib/systemd/system/local-fs.target.wants/media.mount",
        "../media.mount",
    ),
    (
        "usr/lib/systemd/system/dbus-org.freedesktop.resolve1.service",
        "systemd-resolved.service",
    ),
    (
        "usr/lib/systemd/system/dbus-org.freedesktop.network1.service",
        "systemd-networkd.service",
    ),
    ("etc/extensions/containerd", "/usr/share/distro/sysext/containerd"),
    ("etc/resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
    ("etc/os-release", "../usr/lib/os-release"),
    ("etc/ssl/certs", "/etc/pki/tls/certs"),
    (
        "etc/pki/tls/certs/ca-bundle.crt",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    ),
];

/// What Debian has and the image has not: package management and scripting languages, Debian's own defaults.
pub(super) const ABSENT: &[&str] = &[
    "etc/alternatives",
    "etc/apt",
    "etc/cron.daily",
    "etc/debconf.conf",
    "etc/debian_version",
    "etc/dpkg",
    "etc/hostname",
    "etc/init.d",
    "etc/machine-id",
    "etc/resolv.conf",
    "etc/os-release",
    "etc/ssl/certs",
    "etc/systemd/system",
    "usr/bin/containerd-shim",
    "usr/bin/containerd-shim-runc-v1",
    "usr/bin/containerd-stress",
    "usr/bin/runc",
    "usr/lib/apt",
    "usr/lib/dpkg",
    "usr/lib/sysctl.d",
    "usr/lib/systemd/system-preset",
    "usr/lib/systemd/system/containerd.service",
    "usr/lib/systemd/system/sysinit.target.wants/systemd-firstboot.service",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/sbin/modprobe",
    "usr/share/perl5",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/cache/apt",
    "var/cache/debconf",
];

/// Programs of `usr/bin` and `usr/sbin` that the image has not, by how their names begin.
pub(super) const ABSENT_PROGRAMS: &[&str] = &[
    "apt",
    "dpkg",
    "deb-",
    "debconf",
    "perl",
    "python",
    "update-ca-cert",
    "update-alternatives",
];
