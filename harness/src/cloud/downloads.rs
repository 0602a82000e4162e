//! The server of the official download URLs: nginx over TLS with a certificate for their names, on the port where they are looked for.
//!
//! What it serves is made once in the cache. The machine's real binaries are Debian's and lie in its image; what is downloaded are
//! the shims in `files/` that stand before them, and stand-ins for what can't be had: crictl and kube-proxy, which say their version, and to
//! everything else that they are stand-ins; and a node problem detector that finds no problem.

use std::fs;
use std::net::SocketAddrV4;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::kubernetes::VERSION as KUBERNETES;
use super::names::NAMES;
use super::server::{self, Socket};
use crate::ca::Ca;
use crate::net::Net;
use crate::run::Run;

/// containerd's version: Debian trixie's, whose CRI kubelet 1.20 still speaks.
pub(crate) const CONTAINERD: &str = "1.7.24";
/// runc's version: Debian trixie's.
pub(crate) const RUNC: &str = "1.1.15";
/// The CNI plugins' version: Debian's in bookworm and in trixie.
pub(crate) const CNI: &str = "1.1.1";
/// crictl's version: the Kubernetes version's, with a zero at its end.
pub(crate) const CRICTL: &str = "1.20.0";

/// The node problem detector's version: the agent's own choice.
pub(crate) const NPD: &str = "1.35.1";

/// Where Debian's containernetworking-plugins are.
const PLUGINS: &str = "/usr/lib/cni";
/// Those that the machine's network and its users need; each weighs 3 MB.
const PLUGIN_NAMES: [&str; 5] = ["bridge", "firewall", "host-local", "loopback", "portmap"];

const KUBELET_SHIM: &str = include_str!("files/kubelet");
const RUNC_SHIM: &str = include_str!("files/runc");
const DETECTOR: &str = include_str!("files/node-problem-detector");
const MONITOR: &str = include_str!("files/kernel-monitor.json");

/// The server's name in the run.
pub(crate) const SERVER: &str = "downloads";

/// The download server of a run.
#[derive(Clone, Debug)]
pub(crate) struct Downloads {
    run: Run,
    net: Net,
}

impl Downloads {
    /// The download server of a run.
    pub(crate) fn of(run: &Run, net: &Net) -> Self {
        Self {
            run: run.clone(),
            net: net.clone(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.run.cloud_dir().join("downloads")
    }

    /// Makes what it serves, its certificate and its configuration.
    ///
    /// # Errors
    /// A file can't be made, or Debian's plugins are not installed.
    pub(crate) async fn prepare(&self, ca: &Ca) -> Result<()> {
        let served = served(&self.run).await?;
        let folder = self.folder();
        crate::cache::private_dir(&folder)?;
        let names: Vec<String> = NAMES.iter().map(|name| format!("DNS:{name}")).collect();
        let pair = ca.issue(&folder, "tls", &names).await?;
        let address = self.net.gateway();
        let others: Vec<&str> = NAMES.into_iter().filter(|name| *name != "github.com").collect();
        let at = |name: &str| folder.join(name).display().to_string();
        let config = include_str!("files/nginx.conf.in")
            .replace("@ADDRESS@", &address)
            .replace("@OTHERS@", &others.join(" "))
            .replace("@SERVED@", &served.display().to_string())
            .replace("@CERTIFICATE@", &pair.certificate.display().to_string())
            .replace("@KEY@", &pair.key.display().to_string())
            .replace("@ACCESS_LOG@", &at("access.log"))
            .replace("@FOLDER@", &folder.display().to_string());
        Ok(fs::write(folder.join("nginx.conf"), config)?)
    }

    /// Starts it, unless it runs.
    ///
    /// # Errors
    /// It does not start or serve.
    pub(crate) async fn start(&self) -> Result<()> {
        let folder = self.folder();
        let command = self
            .net
            .command("nginx")
            .args(["-e", "stderr", "-p"])
            .arg(&folder)
            .arg("-c")
            .arg(folder.join("nginx.conf"));
        let port = Socket::Tcp(SocketAddrV4::new(self.net.gateway().parse()?, 443));
        server::start(&self.run, SERVER, command, async |process| {
            Ok(server::listens(process, port))
        })
        .await
    }
}

/// The served tree, `HOST/PATH`.
pub(super) async fn served(run: &Run) -> Result<PathBuf> {
    let recipe = format!(
        "{KUBERNETES} {CONTAINERD} {RUNC} {CNI} {CRICTL} {NPD} {PLUGIN_NAMES:?}\n{KUBELET_SHIM}\n{RUNC_SHIM}\n{DETECTOR}\n{MONITOR}\n{:?}",
        exec_shims()
    );
    run.cache.produce("downloads", &recipe, async |new| make(new)).await
}

/// Shims that only become another program.
fn exec_shims() -> Vec<(&'static str, String)> {
    let become_ = |path: &str| format!("#!/bin/sh\nexec {path} \"$@\"\n");
    let mut shims = vec![("kubectl", become_("/opt/kube/kubectl"))];
    for name in ["containerd", "ctr", "containerd-shim-runc-v2"] {
        shims.push((name, become_(&format!("/usr/bin/{name}"))));
    }
    shims.push((
        "containerd-stress",
        stand_in("containerd-stress", &format!("containerd-stress {CONTAINERD}")),
    ));
    shims.push(("crictl", stand_in("crictl", &format!("crictl version v{CRICTL}"))));
    shims.push((
        "kube-proxy",
        stand_in("kube-proxy", &format!("Kubernetes v{KUBERNETES}")),
    ));
    shims
}

/// A program that is not there: it knows its version, and fails at anything else.
fn stand_in(name: &str, version: &str) -> String {
    format!(
        "#!/bin/sh\n[ \"$1\" != --version ] || {{ echo '{version}'; exit; }}\necho '{name}: a stand-in of the test bed, which does nothing' >&2\nexit 1\n"
    )
}

fn make(tree: &Path) -> Result<()> {
    let shims = exec_shims();
    let shim = |name: &str| -> Result<&[u8]> {
        let found = shims
            .iter()
            .find(|(shim, _)| *shim == name)
            .with_context(|| format!("no shim {name}"))?;
        Ok(found.1.as_bytes())
    };
    let kubernetes = tree.join(format!("dl.k8s.io/v{KUBERNETES}/bin/linux/amd64"));
    for (name, bytes) in [
        ("kubelet", KUBELET_SHIM.as_bytes()),
        ("kubectl", shim("kubectl")?),
        ("kube-proxy", shim("kube-proxy")?),
    ] {
        place(&kubernetes.join(name), bytes)?;
        let sum: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        place(&kubernetes.join(format!("{name}.sha256")), sum.as_bytes())?;
    }
    // github.com answers with a redirect to the server that has the bytes, as it does in the world.
    let releases = tree.join("objects.githubusercontent.com");
    let release = |project: &str, version: &str, file: &str| {
        releases.join(format!("{project}/releases/download/v{version}/{file}"))
    };
    place(
        &release(
            "kubernetes-sigs/cri-tools",
            CRICTL,
            &format!("crictl-v{CRICTL}-linux-amd64.tar.gz"),
        ),
        &archive(&[("crictl", shim("crictl")?)])?,
    )?;
    let containerd = [
        "bin/containerd",
        "bin/ctr",
        "bin/containerd-shim-runc-v2",
        "bin/containerd-stress",
    ];
    let members: Result<Vec<(&str, &[u8])>> = containerd
        .iter()
        .map(|path| Ok((*path, shim(path.trim_start_matches("bin/"))?)))
        .collect();
    place(
        &release(
            "containerd/containerd",
            CONTAINERD,
            &format!("containerd-{CONTAINERD}-linux-amd64.tar.gz"),
        ),
        &archive(&members?)?,
    )?;
    place(
        &release("opencontainers/runc", RUNC, "runc.amd64"),
        RUNC_SHIM.as_bytes(),
    )?;
    let detector = DETECTOR.replace("@VERSION@", &format!("v{NPD}"));
    place(
        &release(
            "kubernetes/node-problem-detector",
            NPD,
            &format!("node-problem-detector-v{NPD}-linux_amd64.tar.gz"),
        ),
        &archive(&[
            ("bin/node-problem-detector", detector.as_bytes()),
            ("config/kernel-monitor.json", MONITOR.as_bytes()),
        ])?,
    )?;
    let mut plugins = Vec::new();
    for name in PLUGIN_NAMES {
        let path = Path::new(PLUGINS).join(name);
        plugins.push((
            name,
            fs::read(&path).with_context(|| format!("reading {}", path.display()))?,
        ));
    }
    let plugins: Vec<(&str, &[u8])> = plugins.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    place(
        &release(
            "containernetworking/plugins",
            CNI,
            &format!("cni-plugins-linux-amd64-v{CNI}.tgz"),
        ),
        &archive(&plugins)?,
    )
}

fn place(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().context("a served file lies in a folder")?;
    fs::create_dir_all(folder)?;
    fs::write(path, bytes)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o644))?)
}

fn archive(members: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, bytes) in members {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o755);
        tar.append_data(&mut header, path, *bytes)?;
    }
    Ok(tar.into_inner()?.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stand_in_says_its_version_and_fails_at_anything_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("crictl");
        place(&path, stand_in("crictl", "crictl version v1.20.0").as_bytes()).unwrap();
        let run = |arg: &str| std::process::Command::new("sh").arg(&path).arg(arg).output().unwrap();
        assert_eq!(run("--version").stdout, b"crictl version v1.20.0\n");
        assert_eq!(run("ps").status.code(), Some(1));
    }

    #[test]
    fn kubelet_gets_a_current_configuration_in_a_form_that_it_takes() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        place(&at("real"), b"echo \"$@\"\n").unwrap();
        place(
            &at("config.yaml"),
            b"cgroupDriver: systemd\nenforceNodeAllocatable:\n  - pods\ncontainerRuntimeEndpoint: unix:///run/c.sock\nkubeReserved:\n  cpu: 60m\n",
        )
        .unwrap();
        let shim = KUBELET_SHIM
            .replace("/opt/kube/kubelet", &at("real").display().to_string())
            .replace("exec \"$real\"", "exec sh \"$real\"")
            .replace("/run/kubelet-1.20.yaml", &at("fit.yaml").display().to_string());
        place(&at("kubelet"), shim.as_bytes()).unwrap();
        let config = format!("--config={}", at("config.yaml").display());
        let ran = std::process::Command::new("bash")
            .arg(at("kubelet"))
            .args([&config, "--node-ip=10.0.0.1"])
            .output()
            .unwrap();
        let said = String::from_utf8(ran.stdout).unwrap();
        assert!(said.starts_with("--node-ip=10.0.0.1 --config="), "{said}");
        assert!(
            said.ends_with("--container-runtime-endpoint=unix:///run/c.sock\n"),
            "{said}"
        );
        let fit = fs::read_to_string(at("fit.yaml")).unwrap();
        assert!(fit.starts_with("kubeReserved:\n  cpu: 60m\n"), "{fit}");
        assert!(
            fit.contains("cgroupsPerQOS: false\n") && !fit.contains("containerRuntimeEndpoint"),
            "{fit}"
        );
    }
}
