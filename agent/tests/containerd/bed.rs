//! What the tests stand on: a registry, images in it, a folder that plays the host.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use agent::containerd::{Limits, Registries};
use hostexec::{Host, HostPath};
use image::layout::{Entry, Image, Layer, Layout};

pub(crate) const LIMITS: Limits = Limits {
    overall: Duration::from_secs(30),
    idle: Duration::from_secs(5),
};

/// A child that ends with the test.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub(crate) fn start(program: &str, package: &str, args: &[&str], log: &Path) -> Self {
        let log = std::fs::File::create(log).unwrap();
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .spawn();
        Self(
            child.unwrap_or_else(|error| {
                panic!("`{program}` can't be started ({error}): install the package {package}")
            }),
        )
    }
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < Duration::from_secs(10), "{what} did not come to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A folder with a registry beside it.
pub(crate) struct Bed {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) port: u16,
    _registry: Running,
}

impl Bed {
    pub(crate) fn new() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let dir = tempfile::tempdir().unwrap();
        let port = free_port();
        let config = format!(
            "version: 0.1\nlog: {{accesslog: {{disabled: false}}}}\nstorage: {{filesystem: {{rootdirectory: {}/registry}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n",
            dir.path().display()
        );
        std::fs::write(dir.path().join("registry.yml"), config).unwrap();
        let config = dir.path().join("registry.yml");
        let args = ["serve", config.to_str().unwrap()];
        let registry = Running::start(
            "docker-registry",
            "docker-registry",
            &args,
            &dir.path().join("registry.log"),
        );
        until("the registry", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        std::fs::create_dir_all(dir.path().join("host/etc")).unwrap();
        Self {
            dir,
            port,
            _registry: registry,
        }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.dir.path().join(below)
    }

    pub(crate) fn host(&self) -> Host {
        Host::rooted(&self.path("host"))
    }

    pub(crate) fn registries(&self) -> Registries {
        Registries::load(&self.host(), None).unwrap()
    }

    /// What the registry was asked, a line each.
    pub(crate) fn requests(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.path("registry.log")).unwrap();
        log.lines()
            .filter(|line| line.contains("HTTP/1.1\""))
            .map(str::to_owned)
            .collect()
    }

    pub(crate) fn repository(&self, path: &str) -> String {
        format!("127.0.0.1:{}/{path}", self.port)
    }

    /// Writes `hosts.toml` of a registry, and gives the folder to be named in the settings.
    pub(crate) fn hosts_toml(&self, registry: &str, text: &str, mode: u32) -> HostPath {
        let dir = HostPath::fixed("/etc/registries");
        let file = dir.join(registry).unwrap().join("hosts.toml").unwrap();
        self.host().write(&file, text.as_bytes(), mode).unwrap();
        dir
    }

    /// Pushes all of a layout; the roots also under `tag`.
    pub(crate) async fn push(&self, layout: &Layout, path: &str, tag: &str) {
        let client = reqwest::Client::new();
        let base = format!("http://127.0.0.1:{}/v2/{path}", self.port);
        let manifests = |bytes: &[u8]| image::oci::Document::parse(bytes).is_ok();
        for (digest, bytes) in layout.blobs().iter().filter(|(_, bytes)| !manifests(bytes)) {
            let begun = client.post(format!("{base}/blobs/uploads/")).send().await.unwrap();
            let at = begun.headers()["location"].to_str().unwrap().to_owned();
            let put = client
                .put(at)
                .query(&[("digest", digest.as_str())])
                .body(bytes.clone())
                .send()
                .await
                .unwrap();
            assert_eq!(put.status(), 201, "{put:?}");
        }
        // Manifests before the index that names them.
        let mut documents: Vec<_> = layout.blobs().iter().filter(|(_, bytes)| manifests(bytes)).collect();
        documents.sort_by_key(|(_, bytes)| bytes.windows(11).any(|w| w == b"\"manifests\""));
        for (digest, bytes) in documents {
            let root = layout.roots().iter().any(|root| root.digest == *digest);
            let json: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            for name in std::iter::once(digest.as_str()).chain(root.then_some(tag)) {
                let put = client
                    .put(format!("{base}/manifests/{name}"))
                    .header("content-type", json["mediaType"].as_str().unwrap())
                    .body(bytes.clone());
                let put = put.send().await.unwrap();
                assert_eq!(put.status(), 201, "{:?}", put.text().await);
            }
        }
    }
}

/// An image of two layers, the second of which takes a file of the first away.
pub(crate) fn two_layers() -> Image {
    Image {
        layers: vec![
            Layer::Entries(vec![
                Entry::bytes("etc/os-release", 0o644, *b"ID=test\n"),
                Entry::bytes("gone", 0o644, *b"x"),
                Entry::bytes("usr/bin/tool", 0o755, vec![7; 300_000]),
                Entry::link("bin", "usr/bin"),
            ]),
            Layer::Entries(vec![
                Entry::bytes(".wh.gone", 0o644, *b""),
                Entry::bytes("usr/bin/second", 0o755, *b"2"),
            ]),
        ],
        ..Image::default()
    }
}
