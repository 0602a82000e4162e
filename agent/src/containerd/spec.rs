//! The runtime's spec of a check: as little as a program needs that only says its version, or that looks at the host as
//! the agent does.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capabilities, Capability, Linux, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxNamespaceBuilder, LinuxNamespaceType,
    Mount, MountBuilder, Process, ProcessBuilder, RootBuilder, Spec,
};
use prost_types::Any;

use super::link::ContainerdError;

/// What containerd knows a spec by. Source: containerd, oci/spec.go, typeurl's registration.
const TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

/// What of the host a check sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// Nothing: the image alone.
    Image,
    /// The host as the agent's own container has it, but to read alone: its root at `/host`, its processes, and the
    /// privileges that `host-exec` needs.
    Host,
}

/// `chroot`, and `setns` into a mount namespace that is reached through `/proc/1`. Sources: setns(2), "Mount namespaces";
/// ptrace(2), "Ptrace access mode checking"; files of other owners are read as the agent would read them.
const HOST_EXEC: [Capability; 5] = [
    Capability::SysChroot,
    Capability::SysAdmin,
    Capability::SysPtrace,
    Capability::DacOverride,
    Capability::DacReadSearch,
];

/// The spec of a check, packed for containerd.
pub(super) fn check(argv: &[&str], env: &[String], view: View, cgroup: &str) -> Result<Any, ContainerdError> {
    let bad = |what: String| ContainerdError::wrong("describe the check's container", what);
    let spec = build(argv, env, view, cgroup).map_err(|error| bad(error.to_string()))?;
    let value = serde_json::to_vec(&spec).map_err(|error| bad(error.to_string()))?;
    Ok(Any {
        type_url: TYPE.to_owned(),
        value,
    })
}

/// The crate's defaults are a shell with capabilities on a host named "youki": all of them are replaced.
fn build(argv: &[&str], env: &[String], view: View, cgroup: &str) -> Result<Spec, OciSpecError> {
    let mut spec = Spec::default();
    spec.set_version("1.0.2".to_owned())
        .set_hostname(None)
        .set_annotations(None)
        .set_root(Some(RootBuilder::default().path("rootfs").readonly(true).build()?))
        .set_process(Some(process(argv, env, view)?))
        .set_mounts(Some(mounts(view)?))
        .set_linux(Some(linux(view, cgroup)?));
    Ok(spec)
}

fn process(argv: &[&str], env: &[String], view: View) -> Result<Process, OciSpecError> {
    let some = || match view {
        View::Image => Capabilities::new(),
        View::Host => Capabilities::from(HOST_EXEC),
    };
    // Root keeps them through `exec` by itself: nothing is inheritable or ambient.
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(some())
        .effective(some())
        .inheritable(Capabilities::new())
        .permitted(some())
        .ambient(Capabilities::new())
        .build()?;
    let argv: Vec<String> = argv.iter().map(|arg| (*arg).to_owned()).collect();
    let process = ProcessBuilder::default()
        .args(argv)
        .env(env.to_vec())
        .cwd("/")
        .capabilities(capabilities);
    process.no_new_privileges(true).rlimits(Vec::new()).build()
}

fn mounts(view: View) -> Result<Vec<Mount>, OciSpecError> {
    let mount_from = |source: &str, at: &str, kind: &str, options: &[&str]| {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        MountBuilder::default()
            .destination(at)
            .typ(kind)
            .source(source)
            .options(options)
            .build()
    };
    let mount = |at: &str, kind: &str, options: &[&str]| mount_from(kind, at, kind, options);
    let mut mounts = vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"])?,
        // With /dev/urandom in it, which the runtime makes.
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"])?,
        mount("/tmp", "tmpfs", &["nosuid", "nodev", "mode=1777", "size=65536k"])?,
    ];
    match view {
        View::Image => {}
        // `rro`, of runc 1.1 and later, reaches the mounts below; an older runc hands it to the kernel, which ignores it.
        View::Host => mounts.push(mount_from("/", "/host", "bind", &["rbind", "rslave", "ro", "rro"])?),
    }
    Ok(mounts)
}

fn linux(view: View, cgroup: &str) -> Result<Linux, OciSpecError> {
    use LinuxNamespaceType as N;
    let own = |kind| LinuxNamespaceBuilder::default().typ(kind).build();
    let processes = match view {
        View::Image => own(N::Pid)?,
        View::Host => LinuxNamespaceBuilder::default()
            .typ(N::Pid)
            .path("/proc/1/ns/pid")
            .build()?,
    };
    let namespaces = vec![processes, own(N::Ipc)?, own(N::Mount)?, own(N::Network)?];
    let mut linux = LinuxBuilder::default()
        .namespaces(namespaces)
        .cgroups_path(cgroup)
        .masked_paths(Vec::new())
        .build()?;
    linux.set_readonly_paths(Some(Vec::new())).set_resources(None);
    Ok(linux)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_has_no_capability_no_limit_and_nothing_of_the_crates_defaults() {
        let env = ["PATH=/usr/bin".to_owned()];
        let any = check(
            &["/usr/bin/aks-flex-node", "version"],
            &env,
            View::Image,
            "/system.slice/x/check",
        )
        .unwrap();
        let spec: serde_json::Value = serde_json::from_slice(&any.value).unwrap();
        assert_eq!(
            spec["process"]["args"],
            serde_json::json!(["/usr/bin/aks-flex-node", "version"])
        );
        assert_eq!(spec["process"]["env"], serde_json::json!(env));
        for set in ["bounding", "effective", "inheritable", "permitted", "ambient"] {
            assert_eq!(spec["process"]["capabilities"][set], serde_json::json!([]), "{set}");
        }
        assert_eq!(spec["linux"]["cgroupsPath"], "/system.slice/x/check");
        assert_eq!(spec["root"], serde_json::json!({"path": "rootfs", "readonly": true}));
        for absent in [
            "/hostname",
            "/linux/resources",
            "/linux/seccomp",
            "/process/rlimits/0",
            "/linux/maskedPaths/0",
        ] {
            assert_eq!(spec.pointer(absent), None, "{absent}");
        }
    }

    #[test]
    fn a_check_of_the_host_has_the_agents_view_and_only_what_host_exec_needs() {
        let any = check(&["x"], &[], View::Host, "/c").unwrap();
        let spec: serde_json::Value = serde_json::from_slice(&any.value).unwrap();
        let mounts = spec["mounts"].as_array().unwrap();
        assert_eq!(
            mounts.last().unwrap(),
            &serde_json::json!({"destination": "/host", "type": "bind", "source": "/", "options": ["rbind", "rslave", "ro", "rro"]})
        );
        assert_eq!(
            spec["linux"]["namespaces"][0],
            serde_json::json!({"type": "pid", "path": "/proc/1/ns/pid"})
        );
        let capabilities = &spec["process"]["capabilities"];
        assert_eq!(capabilities["bounding"].as_array().unwrap().len(), HOST_EXEC.len());
        assert_eq!(capabilities["ambient"], serde_json::json!([]));
        assert_eq!(spec["root"]["readonly"], true);
    }
}
