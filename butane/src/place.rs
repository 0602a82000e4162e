//! Where on a host something may be put, and under which names: pure text, judged before any host is there.

use hostexec::HostPath;

/// The image's, and mounted read-only.
const READ_ONLY: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// The kernel's, or empty after each boot: what Ignition puts there is hidden or gone.
const ANEW: &[&str] = &["/proc", "/sys", "/dev", "/run", "/var/run", "/var/lock"];

/// Folders that the image makes as it needs them.
const OF_THE_SYSTEM: &[&str] = &[
    "/",
    "/boot",
    "/etc",
    "/etc/modprobe.d",
    "/etc/modules-load.d",
    "/etc/pam.d",
    "/etc/profile.d",
    "/etc/security",
    "/etc/selinux",
    "/etc/ssh",
    "/etc/ssl",
    "/etc/ssl/certs",
    "/etc/sudoers.d",
    "/etc/sysctl.d",
    "/etc/systemd",
    "/etc/systemd/network",
    "/etc/systemd/nspawn",
    "/etc/systemd/system",
    "/etc/systemd/system-preset",
    "/etc/systemd/system/multi-user.target.wants",
    "/etc/tmpfiles.d",
    "/etc/udev",
    "/etc/udev/rules.d",
    "/home",
    "/home/core",
    "/media",
    "/mnt",
    "/opt",
    "/root",
    "/srv",
    "/tmp",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/lib/containerd",
    "/var/lib/machines",
    "/var/lib/systemd",
    "/var/log",
    "/var/log/journal",
    "/var/spool",
    "/var/tmp",
];

/// Files that are not to be brought, and what to write instead.
const NEVER: &[(&str, &str)] = &[
    ("/etc/machine-id", "each host makes its own: leave it out"),
    (
        "/etc/systemd/system-preset/20-ignition.preset",
        "Ignition writes it: write enabled: at the unit",
    ),
    (
        "/etc/passwd",
        "it would take the system's users away: write passwd: users:",
    ),
    (
        "/etc/shadow",
        "it would take the system's users away: write passwd: users:",
    ),
    (
        "/etc/group",
        "it would take the system's groups away: write passwd: users:",
    ),
    (
        "/etc/gshadow",
        "it would take the system's groups away: write passwd: users:",
    ),
];

/// Whether the path is one of them or below it.
fn among(path: &HostPath, folders: &[&'static str]) -> bool {
    folders.iter().any(|folder| path.is_within(&HostPath::fixed(folder)))
}

/// A path at which a file, a folder or a link may be put.
///
/// # Errors
/// What is wrong with it, and what to write instead.
pub(crate) fn judge(text: &str) -> Result<HostPath, String> {
    // The kernel's, with the NUL: PATH_MAX and NAME_MAX.
    const LONG: usize = 4095;
    const NAME: usize = 255;
    let path = HostPath::new(text).map_err(|why| why.to_string())?;
    if text.chars().any(char::is_control) {
        return Err("it holds a control character: take it out".into());
    }
    if text.len() > LONG || text.split('/').any(|name| name.len() > NAME) {
        return Err(format!(
            "it is longer than a host takes: write at most {NAME} bytes between slashes and {LONG} in all"
        ));
    }
    if among(&path, READ_ONLY) {
        return Err("/usr is read-only on the host: write below /etc, /opt or /var".into());
    }
    if among(&path, ANEW) {
        return Err("each boot makes it anew: write below /etc, /opt or /var".into());
    }
    if OF_THE_SYSTEM.contains(&text) {
        return Err("it is a folder of the system: leave it out, or name something below it".into());
    }
    match NEVER.iter().find(|(never, _)| *never == text) {
        Some((_, instead)) => Err((*instead).into()),
        None => Ok(path),
    }
}

/// A path as errors show it: one that could be anything else (a secret in a wrong place) is not repeated.
pub(crate) fn shown<'a>(text: &'a str, instead: &'a str) -> &'a str {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-@:\\+".contains(c);
    let fits = text.len() <= 160 && text.starts_with('/') && text.chars().all(plain);
    if fits { text } else { instead }
}

/// Suffixes of the units that a configuration may bring.
const SUFFIXES: &[&str] = &[
    "service",
    "socket",
    "timer",
    "path",
    "mount",
    "automount",
    "swap",
    "target",
    "slice",
];

/// Whether systemd takes the text for a unit's name. Source: systemd.unit(5), "valid unit names".
pub(crate) fn is_unit(name: &str) -> bool {
    match name.rsplit_once('.') {
        Some((stem, suffix)) => {
            SUFFIXES.contains(&suffix) && name.len() <= 255 && !stem.starts_with('@') && is_stem(stem)
        }
        None => false,
    }
}

/// Whether systemd takes the text for a drop-in's name.
pub(crate) fn is_drop_in(name: &str) -> bool {
    name.strip_suffix(".conf")
        .is_some_and(|stem| name.len() <= 255 && !stem.starts_with('.') && is_stem(stem))
}

fn is_stem(stem: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || ":_.\\@-".contains(c);
    !stem.is_empty() && stem.chars().all(plain)
}

/// Whether useradd(8) takes the text for a name of a user or group.
pub(crate) fn is_user(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-".contains(c);
    name.len() <= 32 && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_') && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_the_systems_folders_may_be_put_there() {
        for good in [
            "/etc/motd",
            "/etc/systemd/system/x.service.d",
            "/opt/bin",
            "/home/core/.profile",
            "/var/lib/x",
            "/usrx",
            "/data",
            "/etc/hosts",
            "/ü b",
        ] {
            assert_eq!(judge(good).as_ref().map(HostPath::as_str), Ok(good));
        }
    }

    #[test]
    fn what_is_the_images_the_kernels_or_no_path_may_not() {
        let long = format!("/etc/{}", "x".repeat(256));
        let deep = "/x".repeat(2048);
        for (bad, why) in [
            ("/usr", "read-only"),
            ("/usr/local/x", "read-only"),
            ("/lib64", "read-only"),
            ("/proc/sys/x", "anew"),
            ("/run/x", "anew"),
            ("/var/run/x", "anew"),
            ("/", "folder of the system"),
            ("/etc", "folder of the system"),
            ("/tmp", "folder of the system"),
            ("/etc/systemd/system", "folder of the system"),
            ("/etc/machine-id", "each host makes its own"),
            ("/etc/shadow", "passwd: users:"),
            ("etc", "absolute"),
            ("/etc/../x", "plain"),
            ("/etc/a\nb", "control character"),
            (&long, "255 bytes"),
            (&deep, "4095 in all"),
        ] {
            let said = judge(bad).unwrap_err();
            assert!(said.contains(why), "{bad}: {said}");
        }
    }

    #[test]
    fn units_and_drop_ins_are_named_as_systemd_names_them() {
        for good in [
            "a.service",
            "a@b.service",
            "a@.timer",
            "dev-x\\x2dy.mount",
            "a.b_c:d.target",
        ] {
            assert!(is_unit(good), "{good}");
        }
        for bad in [
            ".service",
            "a",
            "service",
            "a b.service",
            "a%n.service",
            "@x.service",
            "a/b.service",
            "a.sh",
            "ü.service",
            "",
            "a.service\n",
        ] {
            assert!(!is_unit(bad), "{bad}");
        }
        assert!(!is_unit(&format!("{}.service", "a".repeat(248))));
        assert!(is_drop_in("10-x.conf"));
        for bad in [".conf", "a b.conf", "x", "../x.conf", "..conf"] {
            assert!(!is_drop_in(bad), "{bad}");
        }
        assert!(is_user("core") && is_user("_x-1") && is_user("systemd-network"));
        for bad in ["", "Core", "a b", "-x", "1x", "a:b", &"a".repeat(33)] {
            assert!(!is_user(bad), "{bad}");
        }
    }
}
