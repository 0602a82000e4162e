//! What goes wrong while a step is made true, and whether another start could help.

use std::{any::Any, io};

use hostexec::{Host, HostPath, ToolError};
use image::on_disk::OnDiskError;

use crate::{
    containerd::{self, PullError, RegistriesError},
    fetch, observe, store,
};

/// A step that could not be made true.
#[derive(Debug, thiserror::Error)]
#[error("{task} failed")]
pub struct Failed {
    /// The task's name.
    pub task: &'static str,
    /// Why.
    #[source]
    pub source: Error,
}

impl Failed {
    /// Whether no later start can end otherwise while the settings stay as they are.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.source.is_final()
    }
}

/// Why a step could not be made true.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the host or of a machine.
    #[error("a file can't be as it must be")]
    File(#[source] io::Error),
    /// A setting of the install.
    #[error("a setting can't work")]
    Setting(#[source] io::Error),
    /// A tool of the host.
    #[error("a tool of the host failed")]
    Tool(#[from] ToolError),
    /// A tool or unit failed, with what its journal says.
    #[error("{unit} does not run; the end of its journal: {journal}")]
    Unit {
        /// The unit.
        unit: String,
        /// Its last lines, on one line, without secrets.
        journal: String,
        /// What was tried.
        #[source]
        source: ToolError,
    },
    /// The kernel holds other values than a node needs.
    #[error("the kernel does not hold what a node needs: {0}; set it on the host, or find out what sets it back")]
    Sysctl(String),
    /// Something is swapped to whatever was done.
    #[error(
        "the host swaps though every unit of it is masked and `swapoff -a` went well: see /proc/swaps, and end what brings it"
    )]
    Swap,
    /// Bytes from the network.
    #[error("a download failed")]
    Fetch(#[from] fetch::Error),
    /// A file of an offline bundle is not what it should be.
    #[error("{path} has the SHA-256 {got}, and its checksum file says {wanted}: copy the bundle anew")]
    Proof {
        /// The file.
        path: String,
        /// By the checksum file.
        wanted: String,
        /// By the bytes.
        got: String,
    },
    /// A checksum file of an offline bundle holds none.
    #[error("{path} holds no SHA-256: copy the bundle anew")]
    NoProof {
        /// The checksum file.
        path: String,
    },
    /// The registry of an offline bundle.
    #[error("a file of the offline bundle can't be had, which bootstrap.offlineArtifacts.source names")]
    Bundle(#[source] containerd::PullError),
    /// An archive of images holds another one.
    #[error("the archive that the offline bundle has for {image} does not hold it: make the bundle anew")]
    NoImage {
        /// The image.
        image: String,
    },
    /// A release isn't what it should be.
    #[error("the release of {component} can't be installed")]
    Archive {
        /// What was to be installed.
        component: &'static str,
        /// Why not.
        #[source]
        source: fetch::Refused,
    },
    /// A release lacks a program.
    #[error("the release of {component} has no {member} in it")]
    Member {
        /// What was to be installed.
        component: &'static str,
        /// What is missing.
        member: String,
    },
    /// The state.
    #[error(transparent)]
    State(store::state::Error),
    /// The image of a machine's file system.
    #[error("the machine's image, which bootstrap.ociImage names, can't be had")]
    Image(#[from] containerd::PullError),
    /// The OCI layout on the host that is to hold it.
    #[error("the machine's image can't be had from the OCI layout, which bootstrap.ociImage names")]
    Layout(#[from] OnDiskError),
    /// It is the image of something else.
    #[error("bootstrap.ociImage: the image holds no operating system (no /usr, or no os-release): name another one")]
    NoSystem,
    /// The disk the machines lie on is full.
    #[error("no space is left on the disk of {folder}: {free} MiB are free there, and this step did not fit")]
    Full {
        /// The folder.
        folder: String,
        /// Free for root, in MiB.
        free: u64,
        /// What ran into it.
        #[source]
        source: Box<Error>,
    },
    /// The machines' folders.
    #[error(transparent)]
    Look(observe::Error),
    /// Something the agent did not put there stands in the way.
    #[error("{folder} holds something the agent did not put there: move it away, or remove it, and start again")]
    Foreign {
        /// The machine's folder.
        folder: String,
    },
    /// The machine runs another image than the one wanted.
    #[error(
        "{folder} holds another image, and the machine runs: write that image, or reset the host (`systemctl start aks-flex-node-reset`)"
    )]
    InUse {
        /// The machine's folder.
        folder: String,
    },
    /// The machine was started and can't be talked to.
    #[error("{machine} does not answer after {seconds} s; the end of its unit's journal: {journal}")]
    Mute {
        /// The machine.
        machine: &'static str,
        /// How long it had.
        seconds: u64,
        /// Its last lines, on one line, without secrets.
        journal: String,
    },
    /// kubelet runs and is no node's.
    #[error("kubelet {what} after {seconds} s{hint}; the end of its journal: {journal}")]
    Kubelet {
        /// What it isn't or has not.
        what: &'static str,
        /// How long it had.
        seconds: u64,
        /// What that most often means.
        hint: &'static str,
        /// Its last lines, on one line, without secrets.
        journal: String,
    },
    /// A bug.
    #[error("a bug: the step panicked: {0}")]
    Panic(String),
}

impl Error {
    pub(super) fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "without a message".to_owned());
        Self::Panic(text)
    }

    /// The same fault, with how much is free, when it is that of a full disk.
    pub(super) fn on_disk(self, host: &Host, folder: &HostPath) -> Self {
        let mut causes = std::iter::successors(Some(&self as &(dyn std::error::Error + 'static)), |error| {
            error.source()
        });
        let full = |error: &(dyn std::error::Error + 'static)| {
            error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::StorageFull)
        };
        if !causes.any(full) {
            return self;
        }
        let dir = host.open_dir(folder).ok();
        let space = dir.and_then(|dir| nix::sys::statvfs::statvfs(dir.path()).ok());
        let free = space.map_or(0, |space| space.blocks_free() * space.fragment_size() / (1 << 20));
        Self::Full {
            folder: folder.to_string(),
            free,
            source: Box::new(self),
        }
    }

    /// Whether no later start can end otherwise while settings and host stay as they are.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Foreign { .. } | Self::NoSystem | Self::Setting(_) => true,
            Self::Image(error) => matches!(
                error,
                PullError::Reference(_) | PullError::Image(_) | PullError::Registries(RegistriesError::Bad { .. })
            ),
            Self::File(_)
            | Self::Tool(_)
            | Self::Unit { .. }
            | Self::Sysctl(_)
            | Self::Swap
            | Self::Look(_)
            | Self::Full { .. }
            | Self::Fetch(_)
            | Self::Layout(_)
            | Self::Proof { .. }
            | Self::NoProof { .. }
            | Self::Bundle(_)
            | Self::NoImage { .. }
            | Self::Archive { .. }
            | Self::Member { .. }
            | Self::State(_)
            | Self::InUse { .. }
            | Self::Mute { .. }
            | Self::Kubelet { .. }
            | Self::Panic(_) => false,
        }
    }
}
