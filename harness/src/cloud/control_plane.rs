//! The cluster's own servers: etcd, kube-apiserver and kube-controller-manager, without a scheduler: pods of tests name their node.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use anyhow::Result;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::azure;
use super::kubernetes::Kubernetes;
use super::pki::{Authority, Issued, Subject, Usage, signing_pair};
use super::server::{self, Socket};
use crate::cache::private_dir;
use crate::net::Net;
use crate::run::{Run, secret};

/// The API server's name for hosts.
pub(crate) const NAME: &str = "api.test";
/// Its port.
pub(crate) const PORT: u16 = 6443;
/// Where Services would get their addresses from; the first is the API server's own.
const SERVICES: &str = "10.0.0.0/16";
const FIRST_SERVICE: &str = "10.0.0.1";
const ETCD: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 2379);
const ETCD_PEER: &str = "http://127.0.0.1:2380";
const CONTROLLERS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 10257);

/// A control plane that may run or not.
#[derive(Clone, Debug)]
pub(crate) struct ControlPlane {
    run: Run,
    net: Net,
    kubernetes: Kubernetes,
}

impl ControlPlane {
    /// The control plane of a run.
    pub(crate) fn of(run: &Run, net: &Net, kubernetes: &Kubernetes) -> Self {
        Self {
            run: run.clone(),
            net: net.clone(),
            kubernetes: kubernetes.clone(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.run.cloud_dir().join("cluster")
    }

    fn pki(&self) -> PathBuf {
        self.folder().join("pki")
    }

    /// The API server's address, as a URL.
    pub(crate) fn url(&self) -> String {
        format!("https://{}:{PORT}", self.net.gateway())
    }

    /// The cluster's authority, in PEM.
    ///
    /// # Errors
    /// The cluster isn't prepared.
    pub(crate) fn certificate(&self) -> Result<Vec<u8>> {
        Ok(fs::read(self.pki().join("ca.crt"))?)
    }

    /// The file by which an administrator enters.
    pub(crate) fn admin(&self) -> PathBuf {
        self.folder().join("admin.kubeconfig")
    }

    fn webhook(&self) -> PathBuf {
        self.folder().join("webhook.kubeconfig")
    }

    /// Makes the cluster's keys, certificates and client files.
    ///
    /// # Errors
    /// One can't be made.
    pub(crate) fn prepare(&self) -> Result<()> {
        let pki = self.pki();
        private_dir(&pki)?;
        let cluster = Authority::open(&pki, "ca")?;
        let etcd = Authority::open(&pki, "etcd-ca")?;
        let front = Authority::open(&pki, "front-proxy-ca")?;
        let address = self.net.gateway();
        let plain = |name| Subject {
            file: name,
            common_name: name,
            organization: None,
        };
        let master = |file, common_name| Subject {
            file,
            common_name,
            organization: Some("system:masters"),
        };
        etcd.issue(&pki, &plain("etcd"), Usage::Both, &["localhost", "127.0.0.1"])?;
        etcd.issue(&pki, &plain("apiserver-etcd"), Usage::Client, &[])?;
        front.issue(&pki, &plain("front-proxy"), Usage::Client, &[])?;
        let names = [
            NAME,
            "kubernetes",
            "kubernetes.default.svc",
            "localhost",
            "127.0.0.1",
            FIRST_SERVICE,
            &address,
        ];
        cluster.issue(&pki, &plain("apiserver"), Usage::Server, &names)?;
        cluster.issue(
            &pki,
            &master("apiserver-kubelet", "kube-apiserver-kubelet-client"),
            Usage::Client,
            &[],
        )?;
        signing_pair(&pki, "service-accounts")?;
        if !self.webhook().exists() {
            secret(&self.webhook(), azure::webhook().as_bytes())?;
        }
        for (file, user) in [
            ("admin", "kubernetes-admin"),
            ("controllers", "system:kube-controller-manager"),
        ] {
            let issued = cluster.issue(&pki, &master(file, user), Usage::Client, &[])?;
            let kubeconfig = self.folder().join(format!("{file}.kubeconfig"));
            if !kubeconfig.exists() {
                secret(
                    &kubeconfig,
                    client_file(&self.url(), &cluster.certificate(), &issued)?.as_bytes(),
                )?;
            }
        }
        Ok(())
    }

    /// Starts what does not run, each when the one before serves.
    ///
    /// # Errors
    /// One does not start or serve.
    pub(crate) async fn start(&self) -> Result<()> {
        self.start_etcd().await?;
        self.start_apiserver().await?;
        self.start_controllers().await
    }

    async fn start_etcd(&self) -> Result<()> {
        let pki = self.pki();
        let url = format!("https://{ETCD}");
        let command = self
            .net
            .command("etcd")
            .args([
                "--name",
                "default",
                "--unsafe-no-fsync",
                "--client-cert-auth",
                "--log-level",
                "warn",
            ])
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args([
                "--listen-peer-urls",
                ETCD_PEER,
                "--initial-advertise-peer-urls",
                ETCD_PEER,
            ])
            .args(["--initial-cluster", &format!("default={ETCD_PEER}")])
            .arg("--data-dir")
            .arg(self.folder().join("etcd"))
            .args([
                flag("cert-file", &pki.join("etcd.crt")),
                flag("key-file", &pki.join("etcd.key")),
            ])
            .arg(flag("trusted-ca-file", &pki.join("etcd-ca.crt")));
        server::start(&self.run, "etcd", command, async |process| {
            Ok(server::listens(process, Socket::Tcp(ETCD)))
        })
        .await
    }

    /// Starts the API server, when etcd runs.
    ///
    /// # Errors
    /// It does not start or serve.
    pub(crate) async fn start_apiserver(&self) -> Result<()> {
        let pki = |name: &str| self.pki().join(name);
        let address = self.net.gateway();
        let command = self
            .net
            .command(self.kubernetes.program("kube-apiserver"))
            .args([
                format!("--bind-address={address}"),
                format!("--advertise-address={address}"),
            ])
            .args([
                format!("--secure-port={PORT}"),
                format!("--etcd-servers=https://{ETCD}"),
            ])
            .args([
                flag("etcd-cafile", &pki("etcd-ca.crt")),
                flag("etcd-certfile", &pki("apiserver-etcd.crt")),
                flag("etcd-keyfile", &pki("apiserver-etcd.key")),
                flag("tls-cert-file", &pki("apiserver.crt")),
                flag("tls-private-key-file", &pki("apiserver.key")),
                flag("client-ca-file", &pki("ca.crt")),
                flag("kubelet-client-certificate", &pki("apiserver-kubelet.crt")),
                flag("kubelet-client-key", &pki("apiserver-kubelet.key")),
                flag("service-account-signing-key-file", &pki("service-accounts.key")),
                flag("service-account-key-file", &pki("service-accounts.pub")),
                flag("requestheader-client-ca-file", &pki("front-proxy-ca.crt")),
                flag("proxy-client-cert-file", &pki("front-proxy.crt")),
                flag("proxy-client-key-file", &pki("front-proxy.key")),
                flag("authentication-token-webhook-config-file", &self.webhook()),
            ])
            .args([
                "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
                "--requestheader-allowed-names=front-proxy",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--enable-bootstrap-token-auth=true",
                "--authentication-token-webhook-version=v1",
                // A token that has ended shall not be good for two minutes more.
                "--authentication-token-webhook-cache-ttl=5s",
                "--allow-privileged=true",
                // Node names are in no resolver: logs and exec would look for them there.
                "--kubelet-preferred-address-types=InternalIP",
            ])
            .arg(format!("--service-cluster-ip-range={SERVICES}"));
        server::start(&self.run, "kube-apiserver", command, async |_| {
            let asked = self.kubectl().args(["get", "--raw=/readyz"]).output().await?;
            Ok(asked.ok())
        })
        .await
    }

    async fn start_controllers(&self) -> Result<()> {
        let pki = |name: &str| self.pki().join(name);
        let client = self.folder().join("controllers.kubeconfig");
        let command = self
            .net
            .command(self.kubernetes.program("kube-controller-manager"))
            .args([
                flag("kubeconfig", &client),
                flag("authentication-kubeconfig", &client),
                flag("authorization-kubeconfig", &client),
                flag("root-ca-file", &pki("ca.crt")),
                flag("service-account-private-key-file", &pki("service-accounts.key")),
                flag("cluster-signing-cert-file", &pki("ca.crt")),
                flag("cluster-signing-key-file", &pki("ca.key")),
                flag("requestheader-client-ca-file", &pki("front-proxy-ca.crt")),
            ])
            .args([
                format!("--bind-address={}", CONTROLLERS.ip()),
                format!("--secure-port={}", CONTROLLERS.port()),
            ])
            .args([
                "--port=0",
                "--leader-elect=false",
                "--controllers=*,bootstrapsigner,tokencleaner",
                // The controller of node addresses holds most others back by 10 s at the start.
                "--allocate-node-cidrs=false",
            ]);
        let port = Socket::Tcp(CONTROLLERS);
        server::start(&self.run, "kube-controller-manager", command, async |process| {
            Ok(server::listens(process, port))
        })
        .await
    }

    /// kubectl as an administrator, in the cloud's network.
    pub(crate) fn kubectl(&self) -> crate::command::Command {
        self.net
            .command(self.kubernetes.program("kubectl"))
            .arg(flag("kubeconfig", &self.admin()))
            .arg(flag("cache-dir", &self.folder().join("kubectl-cache")))
    }
}

fn flag(name: &str, value: &Path) -> String {
    format!("--{name}={}", value.display())
}

/// A kubeconfig that needs no other file. (JSON is YAML.)
fn client_file(server: &str, authority: &Path, client: &Issued) -> Result<String> {
    let data = |path: &Path| -> Result<String> { Ok(BASE64_STANDARD.encode(fs::read(path)?)) };
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "bed", "cluster": { "server": server, "certificate-authority-data": data(authority)? } }],
        "users": [{ "name": "bed", "user": {
            "client-certificate-data": data(&client.certificate)?,
            "client-key-data": data(&client.key)?,
        } }],
        "contexts": [{ "name": "bed", "context": { "cluster": "bed", "user": "bed" } }],
        "current-context": "bed",
    });
    Ok(config.to_string())
}
