//! One short container, run to its end: the check of a candidate. And what is left of a container, taken away.
//!
//! ```text
//! cleanup ─▶ snapshot ─▶ container ─▶ task ─▶ wait ─▶ start ─▶ exit or limit ─▶ output's end ─▶ cleanup
//! ```
//!
//! It has no network and a root that can't be written, and no capabilities unless it is to see the host. There are no cpu or memory limits: runc fails on them where the host lacks their controllers.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use containerd_client::services::v1::container::Runtime;
use containerd_client::services::v1::containers_client::ContainersClient;
use containerd_client::services::v1::leases_client::LeasesClient;
use containerd_client::services::v1::snapshots::snapshots_client::SnapshotsClient;
use containerd_client::services::v1::snapshots::{PrepareSnapshotRequest, RemoveSnapshotRequest};
use containerd_client::services::v1::tasks_client::TasksClient;
use containerd_client::services::v1::{
    Container, CreateContainerRequest, CreateTaskRequest, DeleteContainerRequest, DeleteRequest, DeleteTaskRequest,
    KillRequest, StartRequest, WaitRequest,
};
use containerd_client::tonic::{Code, Status, transport::Channel};
use hostexec::HostPath;
use image::ImageRef;
use prost_types::Any;
use tokio::net::unix::pipe;
use tokio::time::timeout;

use super::images::{SNAPSHOTTER, Whole};
use super::link::{Containerd, ContainerdError, Link, found, refused};
use super::spec::{self, View};

/// The container that checks a candidate.
pub const CHECK: &str = "aks-flex-node-agent-check";
/// Where its output comes through.
const PIPE: HostPath = HostPath::fixed("/run/aks-flex-node-agent-check.pipe");
/// How much of the end of its output is kept, in bytes.
const TAIL: usize = 4096;
/// How long a killed container may take to be gone.
const DYING: Duration = Duration::from_secs(10);
const SIGKILL: u32 = 9;

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its exit code; 128 and the signal's number, if one ended it.
    pub code: u32,
    /// The end of what it wrote, standard output and error together.
    pub tail: String,
}

/// Why a check has no result.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The image is not here, or not whole.
    #[error("the image is not here or not whole")]
    NoImage,
    /// It did not end within the limit, and was killed.
    #[error("it did not end within {} s", limit.as_secs())]
    Limit {
        /// The limit.
        limit: Duration,
        /// The end of what it wrote till then.
        tail: String,
    },
    /// containerd did not do its part.
    #[error(transparent)]
    Containerd(#[from] ContainerdError),
}

impl Containerd {
    /// Runs the image's own program with these arguments (`argv[0]` is the program) in the cgroup named.
    ///
    /// # Errors
    /// Nothing of the container stays in any case.
    pub async fn run_check(
        &self,
        image: &ImageRef,
        argv: &[&str],
        view: View,
        cgroup: &str,
        limit: Duration,
    ) -> Result<Output, CheckError> {
        self.cleanup(CHECK).await?;
        let mut link = self.link().await?;
        let whole = link.whole(image).await?.ok_or(CheckError::NoImage)?;
        // Between its snapshot and its container nothing else holds the snapshot.
        let lease = link.lease(limit + DYING).await?;
        link.lease = Some(lease.clone());
        let ran = match spec::check(argv, &whole.env, view, cgroup) {
            Ok(spec) => self.run(&link, image, &whole, spec, limit).await,
            Err(error) => Err(error.into()),
        };
        link.lease = None;
        let ended = LeasesClient::new(link.client.channel())
            .delete(link.call(DeleteRequest { id: lease, sync: false }))
            .await;
        let cleaned = self.cleanup(CHECK).await;
        let output = ran?;
        cleaned?;
        found(ended).map_err(refused("end a lease"))?;
        Ok(output)
    }

    async fn run(
        &self,
        link: &Link,
        image: &ImageRef,
        whole: &Whole,
        spec: Any,
        limit: Duration,
    ) -> Result<Output, CheckError> {
        let prepare = PrepareSnapshotRequest {
            snapshotter: SNAPSHOTTER.to_owned(),
            key: CHECK.to_owned(),
            parent: whole.chain.to_string(),
            labels: HashMap::new(),
        };
        let mut snapshots = SnapshotsClient::new(link.client.channel());
        let mounts = snapshots
            .prepare(link.call(prepare))
            .await
            .map_err(refused("prepare the check's files"))?;
        let container = Container {
            id: CHECK.to_owned(),
            image: image.to_string(),
            runtime: Some(Runtime {
                name: "io.containerd.runc.v2".to_owned(),
                options: None,
            }),
            spec: Some(spec),
            snapshotter: SNAPSHOTTER.to_owned(),
            snapshot_key: CHECK.to_owned(),
            ..Container::default()
        };
        let create = CreateContainerRequest {
            container: Some(container),
        };
        let created = ContainersClient::new(link.client.channel())
            .create(link.call(create))
            .await;
        created.map_err(refused("create the check's container"))?;
        let mut tail = Tail {
            pipe: self.pipe()?,
            bytes: Vec::new(),
        };
        let create = CreateTaskRequest {
            container_id: CHECK.to_owned(),
            rootfs: mounts.into_inner().mounts,
            stdout: PIPE.to_string(),
            stderr: PIPE.to_string(),
            ..CreateTaskRequest::default()
        };
        let mut tasks = TasksClient::new(link.client.channel());
        create_task(&mut tasks, link, create).await?;
        let mut waiter = tasks.clone();
        let wait = waiter.wait(link.long(WaitRequest {
            container_id: CHECK.to_owned(),
            ..WaitRequest::default()
        }));
        let start = StartRequest {
            container_id: CHECK.to_owned(),
            ..StartRequest::default()
        };
        let running = async {
            // Waited for before it starts, or a quick end is missed.
            let (waited, started) = futures::future::join(wait, tasks.start(link.call(start))).await;
            started.map_err(refused("start the check"))?;
            waited.map_err(refused("wait for the check"))
        };
        let code = tokio::select! {
            // Both may be dropped: the kill and the rest of the output follow.
            ended = timeout(limit, running) => ended.ok(),
            never = tail.follow() => match never {},
        };
        let Some(code) = code else {
            self.kill(link).await?;
            tail.rest();
            return Err(CheckError::Limit {
                limit,
                tail: tail.text(),
            });
        };
        let code = code?.into_inner().exit_status;
        // The deletion waits until the shim has passed on all output.
        let delete = DeleteTaskRequest {
            container_id: CHECK.to_owned(),
        };
        found(tasks.delete(link.call(delete)).await).map_err(refused("delete the check's task"))?;
        tail.rest();
        Ok(Output {
            code,
            tail: tail.text(),
        })
    }

    fn pipe(&self) -> Result<pipe::Receiver, ContainerdError> {
        let fault = |source| ContainerdError::Host {
            step: "make the check's pipe",
            source,
        };
        self.host.remove(&PIPE).map_err(fault)?;
        let parent = PIPE.parent().unwrap_or(HostPath::ROOT);
        let folder = self.host.open_dir(&parent).map_err(fault)?;
        let path = folder.path().join(PIPE.name());
        let mode = nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR;
        nix::unistd::mkfifo(&path, mode).map_err(|errno| fault(errno.into()))?;
        // Open for writing too: otherwise it ends whenever no shim has it open.
        pipe::OpenOptions::new()
            .read_write(true)
            .open_receiver(path)
            .map_err(fault)
    }

    async fn kill(&self, link: &Link) -> Result<(), ContainerdError> {
        end_task(&mut TasksClient::new(link.client.channel()), link, CHECK).await
    }

    /// Takes away what is left of a container: its task, itself, its snapshot. What is not there is fine.
    ///
    /// # Errors
    /// containerd can't be reached or refuses; another call goes on where this one stopped.
    pub async fn cleanup(&self, id: &str) -> Result<(), ContainerdError> {
        let link = self.link().await?;
        let channel = link.client.channel();
        end_task(&mut TasksClient::new(channel.clone()), &link, id).await?;
        link.end_shims(id).await;
        let request = DeleteContainerRequest { id: id.to_owned() };
        found(ContainersClient::new(channel.clone()).delete(link.call(request)).await)
            .map_err(refused("delete a container"))?;
        let request = RemoveSnapshotRequest {
            snapshotter: SNAPSHOTTER.to_owned(),
            key: id.to_owned(),
        };
        found(SnapshotsClient::new(channel).remove(link.call(request)).await).map_err(refused("remove a snapshot"))?;
        if id == CHECK {
            let fault = |source| ContainerdError::Host {
                step: "remove the check's pipe",
                source,
            };
            self.host.remove(&PIPE).map_err(fault)?;
        }
        Ok(())
    }
}

/// Creates the check's task. What a daemon that was killed was just creating is in the way for a moment, though containerd
/// names no such task any more: its folder goes with its shim.
async fn create_task(
    tasks: &mut TasksClient<Channel>,
    link: &Link,
    create: CreateTaskRequest,
) -> Result<(), ContainerdError> {
    let deadline = tokio::time::Instant::now() + DYING;
    loop {
        match tasks.create(link.call(create.clone())).await {
            Ok(_) => return Ok(()),
            Err(status) if is_in_the_way(&status) && tokio::time::Instant::now() < deadline => {
                tracing::debug!(error = status.message(), "an earlier check is still in the way");
            }
            Err(status) => return Err(refused("create the check's task")(status)),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
        end_task(tasks, link, &create.container_id).await?;
    }
}

/// containerd has no code of its own for the folder. Source: containerd 1.7, runtime/v2/bundle.go, NewBundle.
fn is_in_the_way(status: &Status) -> bool {
    status.code() == Code::AlreadyExists || status.message().contains("file exists")
}

/// Kills a task, if there is one, and deletes it when it has died. A shim that hangs is killed too.
async fn end_task(tasks: &mut TasksClient<Channel>, link: &Link, id: &str) -> Result<(), ContainerdError> {
    if let Ok(ended) = timeout(DYING, kill_and_delete(tasks, link, id)).await {
        return ended;
    }
    tracing::warn!(id, "a task can't be ended: killing its shim");
    link.kill_shims(id);
    // Without its shim containerd ends the task itself.
    let still = |_| ContainerdError::wrong("end a task", "its shim was killed, and it is still there");
    timeout(DYING, kill_and_delete(tasks, link, id)).await.map_err(still)?
}

/// Tries until there is no such task, or no containerd.
async fn kill_and_delete(tasks: &mut TasksClient<Channel>, link: &Link, id: &str) -> Result<(), ContainerdError> {
    let pause = Duration::from_millis(50);
    loop {
        let kill = KillRequest {
            container_id: id.to_owned(),
            signal: SIGKILL,
            all: true,
            ..KillRequest::default()
        };
        match tasks.kill(link.call(kill)).await {
            Ok(_) => {}
            Err(status) if status.code() == Code::NotFound => {} // no task, or one that has ended
            Err(status) => tracing::debug!(error = status.message(), id, "a task can't be killed"),
        }
        let delete = DeleteTaskRequest {
            container_id: id.to_owned(),
        };
        match tasks.delete(link.call(delete)).await {
            Ok(_) => return Ok(()),
            Err(status) if status.code() == Code::NotFound => return Ok(()),
            Err(status) if status.code() == Code::Unavailable => return Err(refused("end a task")(status)),
            // It still dies; containerd has no code of its own for that.
            Err(status) => tracing::debug!(error = status.message(), id, "a task can't be deleted yet"),
        }
        tokio::time::sleep(pause).await;
    }
}

/// The end of what comes through the pipe.
struct Tail {
    pipe: pipe::Receiver,
    bytes: Vec<u8>,
}

impl Tail {
    /// Reads for as long as it is waited for: a full pipe would block the container.
    async fn follow(&mut self) -> std::convert::Infallible {
        loop {
            if self.pipe.readable().await.is_err() || self.take().is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// What is there already.
    fn rest(&mut self) {
        while matches!(self.take(), Ok(1..)) {}
    }

    fn take(&mut self) -> io::Result<usize> {
        let mut buffer = [0; TAIL];
        match self.pipe.try_read(&mut buffer) {
            Ok(read) => {
                self.bytes.extend_from_slice(&buffer[..read]);
                let over = self.bytes.len().saturating_sub(TAIL);
                self.bytes.drain(..over);
                Ok(read)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).trim().to_owned()
    }
}
