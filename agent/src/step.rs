//! Every change the agent knows of, as data: steps that name an end, and plans that are trees of steps.
//!
//! A step says what holds afterwards, not how it comes about, so that doing it twice does no harm. Files are rendered
//! inside their step: a printed plan shows the exact bytes, and `***` where they hold a secret.

mod text;

use hostexec::HostPath;
use image::oci::Descriptor;
use serde::{Serialize, Serializer};
use units::host::Family;

use crate::model::{MachineName, Secret, State};

/// What is to become true, in order or side by side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Plan {
    /// One after the other; the first error ends it.
    Serial(Vec<Plan>),
    /// Side by side; the first error cancels the others.
    Parallel(Vec<Plan>),
    /// One step, under the name the log has for it.
    Task(Task),
}

/// A step and its name in logs and errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Task {
    /// The name operators know: `start-kubelet`.
    pub name: &'static str,
    /// What holds afterwards.
    pub step: Step,
}

impl Plan {
    /// A plan of one step.
    #[must_use]
    pub const fn task(name: &'static str, step: Step) -> Self {
        Self::Task(Task { name, step })
    }

    /// Every task, in the order in which a plain reading meets it.
    #[must_use]
    pub fn tasks(&self) -> Vec<&Task> {
        match self {
            Self::Serial(plans) | Self::Parallel(plans) => plans.iter().flat_map(Self::tasks).collect(),
            Self::Task(task) => vec![task],
        }
    }
}

/// An end that can be reached again and again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// These files, links and folders are as written here.
    Files(Vec<File>),
    /// These files of the host are as written here, and systemd has read them if one wasn't.
    UnitFiles(Vec<File>),
    /// systemd has read its units since they last changed.
    Reload,
    /// The kernel of the host holds these values.
    Sysctls(Vec<Sysctl>),
    /// These units of the host don't run, and nobody starts them: they are masked, or, where the unit is a file of the host's own below
    /// `/etc`, disabled.
    UnitsOff(Vec<&'static str>),
    /// The host swaps to nothing, nor will after a boot, whatever makes its swap units.
    SwapOff,
    /// These firewalls of the host let through what a node needs; their other rules are as they were.
    FirewallsOpen(#[serde(serialize_with = "families")] Vec<Family>),
    /// A unit of the host is started at no boot; one that runs, runs on.
    UnitDisabled {
        /// The unit's name.
        unit: &'static str,
    },
    /// A unit of the host has run, since the boot, with what these files say.
    UnitCurrent {
        /// The unit's name.
        unit: &'static str,
        /// What it reads.
        #[serde(serialize_with = "texts")]
        reads: Vec<HostPath>,
    },
    /// The machine's folder holds the whole image.
    Rootfs {
        /// The machine.
        machine: MachineName,
        /// The image as the settings name it.
        image: String,
    },
    /// A release is installed in the machine's folder.
    Download(Download),
    /// These archives, and no others, are in a folder of the host.
    Archives {
        /// The folder.
        #[serde(serialize_with = "text")]
        folder: HostPath,
        /// The archives.
        archives: Vec<Archive>,
    },
    /// The machine's containerd has these images, out of the archives that the machine is shown.
    ImagesImported {
        /// The machine.
        machine: MachineName,
        /// An archive's file in the machine, and the name of the image in it.
        images: Vec<(String, String)>,
    },
    /// The running agent's own program is in the machine's folder.
    AgentBinary {
        /// The machine.
        machine: MachineName,
    },
    /// The machine is started at every boot.
    MachineEnabled {
        /// The machine.
        machine: MachineName,
    },
    /// The machine runs and answers.
    MachineRunning {
        /// The machine.
        machine: MachineName,
    },
    /// A service in the machine is enabled and runs with the files of this plan.
    ServiceRunning {
        /// The machine.
        machine: MachineName,
        /// The unit in the machine.
        unit: &'static str,
        /// What the service reads when it starts: where that has changed since, it is started anew.
        #[serde(serialize_with = "texts")]
        reads: Vec<HostPath>,
    },
    /// kubelet runs on: it is not one that ends and is started again and again.
    KubeletSteady {
        /// The machine.
        machine: MachineName,
    },
    /// kubelet is active and holds its credential.
    KubeletJoined {
        /// The machine.
        machine: MachineName,
        /// The file in the machine that kubelet writes last on the way to its credential.
        credential: &'static str,
    },
    /// The state file says this.
    StateSaved(State),
    /// A unit of the host runs; when it does not come up, that is the error.
    UnitRunning {
        /// The unit's name.
        unit: &'static str,
    },
    /// A unit of the host is started at every boot.
    UnitEnabled {
        /// The unit's name.
        unit: &'static str,
    },
}

/// Whose file system a path is meant in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The host's.
    Host,
    /// The machine's: links there lead nowhere outside it.
    Machine(MachineName),
}

/// One entry of a file system as it is to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct File {
    /// Whose file system.
    pub place: Place,
    /// Where in it.
    #[serde(serialize_with = "text")]
    pub path: HostPath,
    /// What is there.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What stands at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A regular file with exactly this content.
    File {
        /// Permissions.
        #[serde(serialize_with = "octal")]
        mode: u32,
        /// The bytes.
        content: Content,
    },
    /// A symbolic link.
    Link {
        /// What the link says.
        target: String,
    },
    /// A folder, whatever is in it.
    Folder {
        /// Permissions when it has to be made.
        #[serde(serialize_with = "octal")]
        mode: u32,
    },
    /// Nothing.
    Absent,
}

/// A file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// May be shown.
    Open(String),
    /// Must not be.
    Secret(Secret<String>),
}

impl Content {
    /// The bytes to write.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Open(text) => text.as_bytes(),
            Self::Secret(text) => text.reveal().as_bytes(),
        }
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Open(text) => serializer.serialize_str(text),
            Self::Secret(_) => serializer.serialize_str("***"),
        }
    }
}

impl File {
    /// A file that may be shown.
    pub fn open(place: Place, path: HostPath, mode: u32, text: impl Into<String>) -> Self {
        Self {
            place,
            path,
            entry: Entry::File {
                mode,
                content: Content::Open(text.into()),
            },
        }
    }

    /// A file only root reads, and no plan shows.
    pub fn secret(place: Place, path: HostPath, text: impl Into<String>) -> Self {
        let content = Content::Secret(Secret::new(text.into()));
        Self {
            place,
            path,
            entry: Entry::File { mode: 0o600, content },
        }
    }

    /// The host's own file with another content: no more open than it was, and not shown.
    #[must_use]
    pub fn like(path: HostPath, mode: u32, text: impl Into<String>) -> Self {
        let content = Content::Secret(Secret::new(text.into()));
        Self {
            place: Place::Host,
            path,
            entry: Entry::File { mode, content },
        }
    }

    /// A folder.
    #[must_use]
    pub const fn folder(place: Place, path: HostPath, mode: u32) -> Self {
        Self {
            place,
            path,
            entry: Entry::Folder { mode },
        }
    }

    /// A symbolic link.
    pub fn link(place: Place, path: HostPath, target: impl Into<String>) -> Self {
        Self {
            place,
            path,
            entry: Entry::Link { target: target.into() },
        }
    }

    /// Whether it has bytes.
    #[must_use]
    pub const fn is_file(&self) -> bool {
        matches!(self.entry, Entry::File { .. })
    }

    /// No file.
    #[must_use]
    pub const fn absent(place: Place, path: HostPath) -> Self {
        Self {
            place,
            path,
            entry: Entry::Absent,
        }
    }
}

/// A kernel setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Sysctl {
    /// Its dotted name.
    pub key: &'static str,
    /// Its value as text.
    pub value: &'static str,
}

impl Sysctl {
    /// Where the kernel shows it.
    #[must_use]
    pub fn path(&self) -> HostPath {
        Self::path_of(self.key).expect("the table's keys are plain")
    }

    /// The same for any name; none where it is no plain one.
    #[must_use]
    pub fn path_of(key: &str) -> Option<HostPath> {
        HostPath::new(format!("/proc/sys/{}", key.replace('.', "/"))).ok()
    }
}

/// A release of something, and what of it goes where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Download {
    /// The machine it goes to.
    pub machine: MachineName,
    /// The component's name.
    pub component: &'static str,
    /// The version, without a leading `v`.
    pub version: String,
    /// Where from.
    pub origin: Origin,
    /// What is taken out of it.
    pub unpack: Unpack,
}

/// Where bytes come from, and what proves them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Their publisher.
    Url {
        /// Holds no secret.
        url: String,
        /// How they are proved.
        proof: Proof,
    },
    /// A file of the host.
    File {
        /// The file.
        #[serde(serialize_with = "text")]
        path: HostPath,
        /// The file beside it that holds its SHA-256 digest in hex; none where a bundle has none.
        #[serde(serialize_with = "perhaps_text")]
        proof: Option<HostPath>,
    },
    /// A blob of a registry, which its name proves.
    Blob {
        /// The repository.
        repository: String,
        /// The blob.
        blob: Box<Descriptor>,
    },
}

/// An archive of a container image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Archive {
    /// Its file's name among the others.
    pub name: String,
    /// Where from.
    pub origin: Origin,
}

/// How a download is proved to be what was meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Proof {
    /// By the server's certificate alone: upstream publishes no digest at a fixed place.
    Tls,
    /// By a SHA-256 digest, in hex, at this URL.
    Sha256At(String),
}

/// What becomes of a download.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unpack {
    /// It is the program itself.
    Program {
        /// Where it goes.
        #[serde(serialize_with = "text")]
        to: HostPath,
    },
    /// It is a gzipped tar; these members are wanted, each to its place.
    Members(Vec<Member>),
    /// It is a gzipped tar; every regular file of it goes into this folder.
    All {
        /// Where they go.
        #[serde(serialize_with = "text")]
        into: HostPath,
        /// Without these it isn't what was meant.
        needed: Vec<&'static str>,
    },
}

/// A member of an archive and its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Member {
    /// Its name in the archive.
    pub name: &'static str,
    /// Where it goes.
    #[serde(serialize_with = "text")]
    pub to: HostPath,
    /// Permissions.
    #[serde(serialize_with = "octal")]
    pub mode: u32,
}

impl Unpack {
    /// The permissions of what goes there.
    #[must_use]
    pub fn mode(&self, to: &str) -> u32 {
        match self {
            Self::Members(members) => members
                .iter()
                .find(|member| member.to.as_str() == to)
                .map_or(PROGRAM, |member| member.mode),
            Self::Program { .. } | Self::All { .. } => PROGRAM,
        }
    }
}

/// The permissions of a program.
const PROGRAM: u32 = 0o755;

fn perhaps_text<S: Serializer>(path: &Option<HostPath>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(HostPath::as_str).serialize(serializer)
}

fn octal<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{mode:04o}"))
}

fn families<S: Serializer>(families: &[Family], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(families.iter().map(|family| family.program()))
}

fn texts<S: Serializer>(paths: &[HostPath], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(HostPath::as_str))
}

fn text<S: Serializer>(path: &HostPath, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(path.as_str())
}
