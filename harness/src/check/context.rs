//! What a check has in hand: the bed, its depth, and hosts of its own.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use image::ImageRef;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::agent_image::Variant;
use crate::bed::Bed;
use crate::cache;
use crate::cloud::Cloud;
use crate::cloud::cluster::Operation;
use crate::host::{Host, Options};
use crate::node::{Joining, READY};
use crate::product::Product;

/// How deep a check looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    Short,
    /// As documented.
    Full,
}

/// What checks that join share: one cloud, one product.
pub(crate) struct World {
    pub(crate) cloud: Cloud,
    pub(crate) product: Product,
    shared: Shared,
}

/// The joined host that checks use one after the other, once there is one.
type Shared = Arc<Mutex<Option<Host>>>;

impl World {
    pub(crate) fn new(cloud: Cloud, product: Product) -> Self {
        Self {
            cloud,
            product,
            shared: Shared::default(),
        }
    }
}

/// A check's surroundings.
pub(crate) struct Context {
    pub(crate) bed: Bed,
    world: Option<Rc<World>>,
    pub(crate) depth: Depth,
    /// How often what is repeated is repeated, if the command line says so.
    pub(crate) times: Option<u32>,
    /// The seed of what is drawn by chance.
    pub(crate) seed: u64,
    hosts: RefCell<Vec<Host>>,
    /// While it is this check's turn to use the shared host.
    turn: RefCell<Option<OwnedMutexGuard<Option<Host>>>>,
}

/// Hosts are numbered through the process, so that no two have the same name or node.
static NUMBER: AtomicU32 = AtomicU32::new(1);

impl Context {
    pub(crate) fn new(bed: Bed, world: Option<Rc<World>>, depth: Depth, times: Option<u32>, seed: u64) -> Self {
        Self {
            bed,
            world,
            depth,
            times,
            seed,
            hosts: RefCell::new(Vec::new()),
            turn: RefCell::new(None),
        }
    }

    fn world(&self) -> &World {
        self.world
            .as_deref()
            .expect("a check that needs the cloud says so in its row")
    }

    /// The cloud.
    pub(crate) fn cloud(&self) -> &Cloud {
        &self.world().cloud
    }

    /// The agent's images.
    pub(crate) fn product(&self) -> &Product {
        &self.world().product
    }

    /// An image other than the one that hosts start with, in the registry.
    ///
    /// # Errors
    /// As `Product::variant`.
    pub(crate) async fn variant(&self, variant: Variant) -> Result<ImageRef> {
        self.product().variant(self.cloud(), variant).await
    }

    /// What makes a host of a fresh name join; to be changed, and then given to `boot`.
    ///
    /// # Errors
    /// As `Joining::of`.
    pub(crate) async fn joining(&self) -> Result<Joining> {
        Joining::of(self.cloud(), self.product(), &self.name()).await
    }

    /// The host that is to join, off.
    ///
    /// # Errors
    /// As `Joining::create`.
    pub(crate) async fn provision(&self, joining: &Joining) -> Result<Host> {
        let host = joining.create(&self.bed.run, self.product()).await?;
        self.hosts.borrow_mut().push(host.clone());
        Ok(host)
    }

    /// The host that is to join, booted; its bootstrap is on its way.
    ///
    /// # Errors
    /// As `provision`, `Host::start` and `Host::wait_booted`.
    pub(crate) async fn boot(&self, joining: &Joining) -> Result<Host> {
        let host = self.provision(joining).await?;
        host.start().await?;
        host.wait_booted().await?;
        Ok(host)
    }

    /// A host that has joined: its node is Ready and its agent's unit active.
    ///
    /// # Errors
    /// It did not, in time.
    pub(crate) async fn joined(&self) -> Result<Host> {
        let host = self.boot(&self.joining().await?).await?;
        self.is_joined(&host).await?;
        Ok(host)
    }

    /// Waits until a host that was booted has joined, in this boot.
    ///
    /// # Errors
    /// It has not, in time.
    pub(crate) async fn is_joined(&self, host: &Host) -> Result<()> {
        let booted = host.booted().await?;
        self.cloud()
            .cluster
            .node_ready_since(host.name(), &booted, READY)
            .await?;
        host.wait_active(&["aks-flex-node-agent.service"], READY).await
    }

    /// A host that has joined, and that other checks use before and after this one: it has to be left as it was found. Waits for its turn;
    /// one that a check has failed on is not used again.
    ///
    /// # Errors
    /// As `joined`.
    pub(crate) async fn shared(&self) -> Result<Host> {
        let mut shared = self.world().shared.clone().lock_owned().await;
        let host = match shared.take() {
            Some(host) => {
                self.hosts.borrow_mut().push(host.clone());
                host
            }
            None => self.joined().await?,
        };
        self.turn.replace(Some(shared));
        Ok(host)
    }

    /// Keeps the shared host, if this check has it, for the next: it has passed.
    pub(crate) fn give_back(&self) {
        if let Some(mut shared) = self.turn.take() {
            // It was the check's first.
            *shared = self.hosts.borrow_mut().drain(..1).next();
        }
    }

    /// Upgrades a host's agent and waits until the operation is over.
    ///
    /// # Errors
    /// As `Cloud::upgrade`.
    pub(crate) async fn upgrade(&self, host: &Host, to: &ImageRef) -> Result<Operation> {
        self.cloud().upgrade(host.name(), to, READY).await
    }

    /// A name for a host that no other host of the bed has.
    pub(crate) fn name(&self) -> String {
        format!("h{}", NUMBER.fetch_add(1, Ordering::Relaxed))
    }

    /// A new host, off.
    ///
    /// # Errors
    /// As `Host::create`.
    pub(crate) async fn create(&self, name: &str, options: Options) -> Result<Host> {
        let host = Host::create(&self.bed.run, name, options).await?;
        self.hosts.borrow_mut().push(host.clone());
        Ok(host)
    }

    /// A new host of a fresh name, booted.
    ///
    /// # Errors
    /// As `Host::create`, `start` and `wait_booted`.
    pub(crate) async fn host(&self, options: Options) -> Result<Host> {
        let host = self.create(&self.name(), options).await?;
        host.start().await?;
        host.wait_booted().await?;
        Ok(host)
    }

    /// The check's hosts so far.
    pub(crate) fn hosts(&self) -> Vec<Host> {
        self.hosts.borrow().clone()
    }

    /// Keeps what explains a failure: of each host its console, journal, `/etc` diff and containers; of the cloud its servers' logs.
    ///
    /// # Errors
    /// The folder can't be written; what can't be had of a host is said in its file.
    pub(crate) async fn keep(&self, to: &Path) -> Result<()> {
        cache::private_dir(to)?;
        for host in self.hosts() {
            let dir = to.join(host.name());
            cache::private_dir(&dir)?;
            let _ = fs::copy(host.console(), dir.join("console"));
            for (file, line) in LOOKS {
                let said = if *file == "etc-diff" {
                    host.changed().await
                } else {
                    host.peek(line).await
                };
                fs::write(dir.join(file), said.unwrap_or_else(|error| format!("{error:#}\n")))?;
            }
            for log in ["supervisor.log", "ignition/files.log"] {
                let _ = fs::copy(host.folder().join(log), dir.join(log.replace('/', "-")));
            }
        }
        for entry in fs::read_dir(self.bed.run.dir.join("logs"))? {
            let entry = entry?;
            let _ = fs::copy(entry.path(), to.join(entry.file_name()));
        }
        Ok(())
    }

    /// Takes the check's hosts down.
    ///
    /// # Errors
    /// One of them can't be removed.
    pub(crate) async fn clear(&self) -> Result<()> {
        for host in self.hosts() {
            if let Some(world) = &self.world {
                // Another host may get its address.
                world.cloud.faulty.heal(&host)?;
                world.cloud.azure.forget(&host)?;
            }
            if host.folder().exists() {
                host.down().await?;
            }
        }
        Ok(())
    }

    /// Where the artifacts of that check go.
    pub(crate) fn artifacts(&self, check: &str) -> PathBuf {
        self.bed.run.cache.path("artifacts").join(&self.bed.run.id).join(check)
    }
}

/// What is looked at in a host after a failure: a file, and the command that fills it.
const LOOKS: &[(&str, &[&str])] = &[
    (
        "journal",
        &[
            "journalctl",
            "--directory=/var/log/journal",
            "--no-pager",
            "--merge",
            "--output=short-precise",
        ],
    ),
    ("etc-diff", &[]),
    (
        "units",
        &["systemctl", "--no-pager", "--failed", "--full", "list-units"],
    ),
    ("jobs", &["systemctl", "--no-pager", "list-jobs"]),
    (
        "ctr-containers",
        &["ctr", "--namespace", "aks-flex-node", "containers", "list"],
    ),
    ("ctr-tasks", &["ctr", "--namespace", "aks-flex-node", "tasks", "list"]),
    (
        "ctr-snapshots",
        &["ctr", "--namespace", "aks-flex-node", "snapshots", "list"],
    ),
    ("ctr-images", &["ctr", "--namespace", "aks-flex-node", "images", "list"]),
    ("machines", &["machinectl", "--no-pager", "--all", "list"]),
    (
        "etc-aks-flex-node",
        &[
            "ls",
            "-la",
            "/etc/aks-flex-node",
            "/etc/systemd/system",
            "/var/lib/machines",
        ],
    ),
    ("network", &["ip", "address"]),
];
