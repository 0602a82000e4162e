//! What the tests stand on: a registry, images in it, a folder that plays the host.

use std::net::TcpListener;
use std::os::fd::AsRawFd;
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

/// Enough for all attempts.
pub(crate) const PATIENT: Limits = Limits {
    overall: Duration::from_secs(120),
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
        assert!(begin.elapsed() < Duration::from_secs(30), "{what} did not come to be");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a registry over the bed's images; `http` goes on with that of its configuration, and `more` are lines of it.
fn serve(dir: &Path, name: &str, http: &str, more: &str) -> (Running, u16) {
    let port = free_port();
    let config = format!(
        "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {}/registry}}}}\nhttp: {{addr: 127.0.0.1:{port}{http}}}\n{more}",
        dir.display()
    );
    let file = dir.join(format!("{name}.yml"));
    std::fs::write(&file, config).unwrap();
    let args = ["serve", file.to_str().unwrap()];
    let log = dir.join(format!("{name}.log"));
    let registry = Running::start("docker-registry", "docker-registry", &args, &log);
    until("the registry", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    (registry, port)
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
        let (registry, port) = serve(dir.path(), "registry", "", "");
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

    /// The same images behind a password: `user`, `s3cret`.
    pub(crate) fn private(&self) -> (Running, u16) {
        let file = self.path("htpasswd");
        std::fs::write(
            &file,
            "user:$2b$05$abcdefghijklmnopqrstuuLK7U1u6pVRmL7L1BBM2aS35PSZnDXlK\n",
        )
        .unwrap();
        let auth = format!("auth: {{htpasswd: {{realm: test, path: {}}}}}\n", file.display());
        serve(self.dir.path(), "private", "", &auth)
    }

    /// The same images behind TLS, with blobs elsewhere.
    pub(crate) fn redirecting(&self, to: &str) -> (Running, u16) {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap();
        let (certificate_file, key_file) = (self.path("tls.crt"), self.path("tls.key"));
        std::fs::write(&certificate_file, certificate.pem()).unwrap();
        std::fs::write(&key_file, key.serialize_pem()).unwrap();
        let tls = format!(
            ", tls: {{certificate: {}, key: {}}}",
            certificate_file.display(),
            key_file.display()
        );
        let more = format!("middleware: {{storage: [{{name: redirect, options: {{baseurl: \"{to}\"}}}}]}}\n");
        serve(self.dir.path(), "redirecting", &tls, &more)
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

/// A bed with a containerd of its own.
pub(crate) struct Engine {
    pub(crate) bed: Bed,
    containerd: Running,
}

impl Drop for Engine {
    fn drop(&mut self) {
        let tasks = self.ctr_output(&["tasks", "ls", "-q"]);
        for id in String::from_utf8_lossy(&tasks.stdout).split_whitespace() {
            self.ctr_output(&["tasks", "rm", "--force", id]);
        }
    }
}

impl Engine {
    /// It has mounts of its own, in which `/run` is the host's: so paths mean the same to it as on a real host.
    pub(crate) fn new() -> Self {
        Self::on("", &[])
    }

    /// With a disk of this size, which the agent does not see: to it there is room.
    pub(crate) fn on_disk_of(size: &str) -> Self {
        Self::on(&format!("mount -t tmpfs -o size={size} none \"$1\" && "), &[])
    }

    /// With processes of its own, of which it is the first.
    pub(crate) fn first_process() -> Self {
        Self::on("", &["--pid", "--fork", "--kill-child", "--mount-proc"])
    }

    fn on(mount: &str, unshare: &[&str]) -> Self {
        let bed = Bed::new();
        let (run, state) = (bed.path("host/run"), bed.path("host/var/lib/containerd"));
        std::fs::create_dir_all(&run).unwrap();
        std::fs::create_dir_all(&state).unwrap();
        let config = format!(
            "version = 2\nroot = \"{}\"\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n",
            state.display(),
        );
        let file = bed.path("containerd.toml");
        std::fs::write(&file, config).unwrap();
        let start = format!(
            "{mount}mount --bind {} /run && exec containerd --config {}",
            run.display(),
            file.display()
        );
        let state = state.to_str().unwrap();
        let mut args = vec!["--mount", "--propagation", "private"];
        args.extend(unshare);
        args.extend(["sh", "-c", &start, "sh", state]);
        let containerd = Running::start("unshare", "util-linux", &args, &bed.path("containerd.log"));
        let engine = Self { bed, containerd };
        until("containerd (of the package containerd)", || {
            engine.ctr_output(&["version"]).status.success()
        });
        engine
    }

    pub(crate) fn containerd(&self) -> agent::containerd::Containerd {
        agent::containerd::Containerd::connect(&self.bed.host())
    }

    /// Kills containerd and starts another one in its mounts; what it ran lives on.
    pub(crate) fn restart(&mut self) {
        let mounts = std::fs::File::open(format!("/proc/{}/ns/mnt", self.containerd.0.id())).unwrap();
        let mounts = format!("--mount=/proc/{}/fd/{}", std::process::id(), mounts.as_raw_fd());
        self.containerd.0.kill().unwrap();
        self.containerd.0.wait().unwrap();
        let config = self.bed.path("containerd.toml");
        let args = [&mounts, "containerd", "--config", config.to_str().unwrap()];
        self.containerd = Running::start("nsenter", "util-linux", &args, &self.bed.path("containerd.log"));
        until("containerd again", || self.ctr_output(&["version"]).status.success());
    }

    /// A cgroup that no other test uses.
    pub(crate) fn cgroup(&self) -> String {
        format!("/aks-flex-node-test-{}", self.bed.port)
    }

    fn ctr_output(&self, args: &[&str]) -> std::process::Output {
        let mounts = format!("--mount=/proc/{}/ns/mnt", self.containerd.0.id());
        let mut ctr = Command::new("nsenter");
        ctr.args([&mounts, "ctr", "--namespace", "aks-flex-node"]).args(args);
        ctr.output()
            .unwrap_or_else(|error| panic!("`nsenter` can't be started: {error}"))
    }

    pub(crate) fn ctr(&self, args: &[&str]) -> String {
        let output = self.ctr_output(args);
        assert!(
            output.status.success(),
            "ctr {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    }

    /// Nothing is left in our namespace: no content, no half-done blob, no snapshot, no lease.
    #[track_caller]
    pub(crate) fn until_empty(&self) {
        let mut left = String::new();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(5) {
            left = [
                self.ctr(&["content", "ls", "-q"]),
                self.ctr(&["content", "active"]).lines().skip(1).collect(),
                self.ctr(&["snapshots", "ls"]).lines().skip(1).collect(),
                self.ctr(&["leases", "ls", "-q"]),
            ]
            .concat();
            if left.trim().is_empty() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = std::fs::read_to_string(self.bed.path("containerd.log")).unwrap();
        let log: Vec<_> = log
            .lines()
            .filter(|line| line.contains("level=err") || line.contains("level=warn"))
            .collect();
        panic!("left behind: {left}\n{}", log.join("\n"));
    }
}

/// A door to the registry through which bytes pass slowly.
pub(crate) struct SlowDoor {
    port: u16,
}

impl Bed {
    /// About 2 MB a second; it ends with the test's process.
    pub(crate) fn slow_door(&self) -> SlowDoor {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = SlowDoor {
            port: listener.local_addr().unwrap().port(),
        };
        let registry = self.port;
        std::thread::spawn(move || {
            for inside in listener.incoming().flatten() {
                let Ok(outside) = std::net::TcpStream::connect(("127.0.0.1", registry)) else {
                    continue;
                };
                let (mut from, mut to) = (inside.try_clone().unwrap(), outside.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                std::thread::spawn(move || slowly(outside, inside));
            }
        });
        door
    }
}

fn slowly(mut from: std::net::TcpStream, mut to: std::net::TcpStream) {
    use std::io::{Read, Write};
    let mut buffer = vec![0; 20_000];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Bed {
    /// A door to the registry that answers this many requests with 503, and then lets all through.
    pub(crate) fn failing_door(&self, failures: usize) -> SlowDoor {
        use std::io::{Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = SlowDoor {
            port: listener.local_addr().unwrap().port(),
        };
        let registry = self.port;
        std::thread::spawn(move || {
            for (count, inside) in listener.incoming().flatten().enumerate() {
                let mut inside = inside;
                if count < failures {
                    let _ = inside.read(&mut [0; 4096]);
                    let _ = inside.write_all(
                        b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
                    );
                    continue;
                }
                let outside = std::net::TcpStream::connect(("127.0.0.1", registry)).unwrap();
                let (mut from, mut to) = (inside.try_clone().unwrap(), outside.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                std::thread::spawn(move || std::io::copy(&mut { outside }, &mut { inside }));
            }
        });
        door
    }
}

impl SlowDoor {
    /// Settings that lead an image's registry through the door.
    pub(crate) fn registries(&self, bed: &Bed, image: &image::ImageRef) -> Registries {
        let text = format!("server = \"http://127.0.0.1:{}\"\n", self.port);
        let dir = bed.hosts_toml(image.repository.registry(), &text, 0o644);
        Registries::load(&bed.host(), Some(&dir)).unwrap()
    }
}
