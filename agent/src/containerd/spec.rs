//! The runtime's spec of a check: as little as a program needs that only says its version.

use oci_spec::OciSpecError;
use oci_spec::runtime::{
    Capabilities, Linux, LinuxBuilder, LinuxCapabilitiesBuilder, LinuxNamespaceBuilder, LinuxNamespaceType, Mount,
    MountBuilder, Process, ProcessBuilder, RootBuilder, Spec,
};
use prost_types::Any;

use super::link::ContainerdError;

/// What containerd knows a spec by. Source: containerd, oci/spec.go, typeurl's registration.
const TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

/// The spec of a check, packed for containerd.
pub(super) fn check(argv: &[&str], env: &[String], cgroup: &str) -> Result<Any, ContainerdError> {
    let bad = |what: String| ContainerdError::wrong("describe the check's container", what);
    let spec = build(argv, env, cgroup).map_err(|error| bad(error.to_string()))?;
    let value = serde_json::to_vec(&spec).map_err(|error| bad(error.to_string()))?;
    Ok(Any {
        type_url: TYPE.to_owned(),
        value,
    })
}

/// The crate's defaults are a shell with capabilities on a host named "youki": all of them are replaced.
fn build(argv: &[&str], env: &[String], cgroup: &str) -> Result<Spec, OciSpecError> {
    let mut spec = Spec::default();
    spec.set_version("1.0.2".to_owned())
        .set_hostname(None)
        .set_annotations(None)
        .set_root(Some(RootBuilder::default().path("rootfs").readonly(true).build()?))
        .set_process(Some(process(argv, env)?))
        .set_mounts(Some(mounts()?))
        .set_linux(Some(linux(cgroup)?));
    Ok(spec)
}

fn process(argv: &[&str], env: &[String]) -> Result<Process, OciSpecError> {
    let none = Capabilities::new;
    let capabilities = LinuxCapabilitiesBuilder::default()
        .bounding(none())
        .effective(none())
        .inheritable(none())
        .permitted(none())
        .ambient(none())
        .build()?;
    let argv: Vec<String> = argv.iter().map(|arg| (*arg).to_owned()).collect();
    let process = ProcessBuilder::default()
        .args(argv)
        .env(env.to_vec())
        .cwd("/")
        .capabilities(capabilities);
    process.no_new_privileges(true).rlimits(Vec::new()).build()
}

fn mounts() -> Result<Vec<Mount>, OciSpecError> {
    let mount = |at: &str, kind: &str, options: &[&str]| {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        MountBuilder::default()
            .destination(at)
            .typ(kind)
            .source(kind)
            .options(options)
            .build()
    };
    Ok(vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"])?,
        // With /dev/urandom in it, which the runtime makes.
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"])?,
        mount("/tmp", "tmpfs", &["nosuid", "nodev", "mode=1777", "size=65536k"])?,
    ])
}

fn linux(cgroup: &str) -> Result<Linux, OciSpecError> {
    use LinuxNamespaceType as N;
    let namespaces =
        [N::Pid, N::Ipc, N::Mount, N::Network].map(|kind| LinuxNamespaceBuilder::default().typ(kind).build());
    let namespaces: Vec<_> = namespaces.into_iter().collect::<Result<_, _>>()?;
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
        let any = check(&["/usr/bin/aks-flex-node", "version"], &env, "/system.slice/x/check").unwrap();
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
}
