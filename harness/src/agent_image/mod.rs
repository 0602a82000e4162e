//! The agent's OCI image: its programs built from the workspace, the image assembled by the `image` crate, written and pushed.
//!
//!     workspace ─cargo─▶ Programs ─content─▶ entries ─image crate─▶ Built ──▶ layout folder, archive, rootfs, registry
//!
//! No container engine has a part in it. The same sources, Rust, C compiler and ca-certificates give the same digest in any folder.

mod content;
mod programs;
mod reproducible;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use image::layout::{self, Compression, Entry, Layer, Layout};
use image::{Digest, ImageRef, Repository};
use tokio::sync::Mutex;

use crate::chance::Chance;
use crate::command::Command;
use crate::progress::step;
use programs::{Programs, Workspace};

pub(crate) use reproducible::{Twice, reproducible};

/// Where releases are published.
pub(crate) const REPOSITORY: &str = "ghcr.io/azure/aks-flex-node-agent";

/// The environment's word on the profile, for the inner loop.
pub(crate) const PROFILE: &str = "AKS_FLEX_NODE_HARNESS_PROFILE";

/// The Cargo profile of the programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Profile {
    /// What ships: small, minutes to build.
    #[default]
    Image,
    /// For the inner loop: larger, seconds to build again.
    Quick,
}

impl Profile {
    fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Quick => "quick",
        }
    }

    /// The one that the environment names, or what ships.
    ///
    /// # Errors
    /// The environment names another.
    pub(crate) fn of_environment() -> Result<Self> {
        let Some(named) = std::env::var_os(PROFILE) else {
            return Ok(Self::default());
        };
        let known = named.to_str().and_then(|named| Self::from_str(named, false).ok());
        known.with_context(|| format!("{PROFILE} is `image` or `quick`"))
    }
}

/// Which image it is: the agent's own, or one that a host must survive being asked to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Variant {
    /// The agent's image.
    #[default]
    Good,
    /// The same with a label more, and so another digest.
    Second,
    /// Likewise: an upgrade from the second to it leaves the second one without use.
    Third,
    /// Its daemon says three lines and exits with 1 at once.
    Exits,
    /// The same after ten seconds without a word.
    ExitsAfter10,
    /// The same after forty.
    ExitsAfter40,
    /// Its daemon runs and never says that it is ready.
    Mute,
    /// Its daemon is ready, feeds the watchdog, and ignores SIGTERM.
    Stubborn,
    /// It has no agent.
    NoAgent,
    /// It says that it is for another architecture.
    Foreign,
}

impl Variant {
    /// What `/etc/misbehave` says, where `misbehave` stands in the agent's place.
    fn misbehaviour(self) -> Option<&'static str> {
        match self {
            Self::Exits => Some("exits after 0 s"),
            Self::ExitsAfter10 => Some("exits after 10 s"),
            Self::ExitsAfter40 => Some("exits after 40 s"),
            Self::Mute => Some("mute"),
            Self::Stubborn => Some("stubborn"),
            Self::Good | Self::Second | Self::Third | Self::NoAgent | Self::Foreign => None,
        }
    }

    /// The architecture that the image says it is for, in Go's words.
    fn architecture(self) -> &'static str {
        match (std::env::consts::ARCH == "aarch64", self == Self::Foreign) {
            (true, false) | (false, true) => "arm64",
            (true, true) | (false, false) => "amd64",
        }
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.to_possible_value().expect("no variant is hidden");
        to.write_str(named.get_name())
    }
}

/// An image that is built.
pub(crate) struct Built {
    /// Its manifest's.
    pub(crate) digest: Digest,
    layout: Layout,
    entries: Vec<Entry>,
}

/// What this process has built, so that several who ask have it built once.
static PROGRAMS: Mutex<BTreeMap<Profile, Arc<Programs>>> = Mutex::const_new(BTreeMap::new());
static IMAGES: Mutex<BTreeMap<(Profile, Variant), Arc<Built>>> = Mutex::const_new(BTreeMap::new());

/// Builds the image of a variant; within a process once, however many ask.
///
/// # Errors
/// Cargo's, or Debian's ca-certificates are missing.
pub(crate) async fn build(profile: Profile, variant: Variant) -> Result<Arc<Built>> {
    let mut images = IMAGES.lock().await;
    if let Some(built) = images.get(&(profile, variant)) {
        return Ok(built.clone());
    }
    let mut programs = own_programs(profile).await?.as_ref().clone();
    if variant.misbehaviour().is_some() {
        programs.agent = Some(Workspace::here().await?.small("misbehave").await?);
    } else if variant == Variant::NoAgent {
        programs.agent = None;
    }
    let name = format!("pack the agent's image ({variant})");
    let built = Arc::new(step(&name, pack(programs, variant, profile)).await?);
    images.insert((profile, variant), built.clone());
    Ok(built)
}

/// What `heavy` has beyond the agent's image, in bytes.
pub(crate) const BALLAST: usize = 20 << 20;

/// The agent's image with a layer more, which has to be pulled in full: bytes that don't pack, other ones for each number.
///
/// # Errors
/// As `build`.
pub(crate) async fn heavy(profile: Profile, number: u64) -> Result<Built> {
    let programs = own_programs(profile).await?;
    let pack = move || {
        let entries = content::entries(&programs, &content::bundle()?, Variant::Good);
        let mut image = content::image(entries.clone(), Variant::Good, profile);
        // What does not pack would be tried in vain for long.
        image.compression = Compression::Gzip;
        let ballast = Entry::bytes("/usr/share/ballast", 0o644, Chance::of(number).bytes(BALLAST));
        image.layers.push(Layer::Entries(vec![ballast]));
        Built::of(entries, &image, None)
    };
    tokio::task::spawn_blocking(pack).await?
}

/// A small program of the bed's own (`src/bin/NAME.rs`), static: it runs in hosts and in containers.
///
/// # Errors
/// What rustc said.
pub(crate) async fn small_program(name: &str) -> Result<Vec<u8>> {
    Workspace::here().await?.small(name).await
}

/// The agent's image with a file more in its only layer: as large as the agent's own, and nothing of it is on any host.
///
/// # Errors
/// As `build`.
pub(crate) async fn fresh(profile: Profile, number: u64) -> Result<Built> {
    let programs = own_programs(profile).await?;
    let pack = move || {
        let mut entries = content::entries(&programs, &content::bundle()?, Variant::Good);
        entries.push(Entry::bytes("/usr/share/number", 0o644, number.to_string()));
        let image = content::image(entries.clone(), Variant::Good, profile);
        Built::of(entries, &image, None)
    };
    tokio::task::spawn_blocking(pack).await?
}

async fn own_programs(profile: Profile) -> Result<Arc<Programs>> {
    let mut all = PROGRAMS.lock().await;
    if let Some(programs) = all.get(&profile) {
        return Ok(programs.clone());
    }
    let build = async { Workspace::here().await?.build(profile).await };
    let name = format!("build the agent (profile {})", profile.name());
    let programs = Arc::new(step(&name, build).await?);
    all.insert(profile, programs.clone());
    Ok(programs)
}

/// Assembles the image, in a thread of its own: packing keeps a processor busy for seconds.
async fn pack(programs: Programs, variant: Variant, profile: Profile) -> Result<Built> {
    let pack = move || {
        let entries = content::entries(&programs, &content::bundle()?, variant);
        let image = content::image(entries.clone(), variant, profile);
        let tag = if variant == Variant::Good {
            content::VERSION.to_owned()
        } else {
            format!("{}-{variant}", content::VERSION)
        };
        Built::of(entries, &image, Some(&format!("{REPOSITORY}:{tag}")))
    };
    tokio::task::spawn_blocking(pack).await?
}

impl Built {
    /// The layout of an image of these entries, under a name if it has one.
    fn of(entries: Vec<Entry>, image: &layout::Image, name: Option<&str>) -> Result<Self> {
        let layout = Layout::of(image, name)?;
        let digest = layout.roots()[0].digest.clone();
        Ok(Self {
            digest,
            layout,
            entries,
        })
    }

    /// What a registry keeps and a host pulls, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.layout.blobs().values().map(Vec::len).sum()
    }

    /// Writes the OCI layout into a folder that is new, empty, or holds an older layout.
    ///
    /// # Errors
    /// It holds something else, or can't be written; it is not whole then.
    pub(crate) fn write_folder(&self, folder: &Path) -> Result<()> {
        if folder.join("oci-layout").exists() {
            fs::remove_dir_all(folder.join("blobs"))?;
        } else if folder.exists() && fs::read_dir(folder)?.next().is_some() {
            bail!("{}: the folder holds something that is no OCI layout", folder.display());
        }
        Ok(self.layout.write_folder(folder)?)
    }

    /// Writes the archive that `ctr images import` takes; whole, or not at all.
    ///
    /// # Errors
    /// The file can't be written.
    pub(crate) fn write_archive(&self, path: &Path) -> Result<()> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new("."));
        fs::create_dir_all(folder)?;
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        let mut out = BufWriter::new(file.as_file_mut());
        self.layout.write_archive(&mut out)?;
        out.flush()?;
        drop(out);
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?;
        file.persist(path)
            .map(drop)
            .with_context(|| format!("writing {}", path.display()))
    }

    /// Writes the files themselves into a new or empty folder, for `image/Containerfile`.
    ///
    /// # Errors
    /// As `content::write_rootfs`.
    pub(crate) fn write_rootfs(&self, folder: &Path) -> Result<()> {
        content::write_rootfs(&self.entries, folder)
    }

    /// Pushes it by its digest, without a tag, to a registry that the machine trusts.
    ///
    /// # Errors
    /// skopeo's.
    pub(crate) async fn push(&self, to: &Repository) -> Result<ImageRef> {
        let folder = tempfile::tempdir()?;
        self.layout.write_folder(folder.path())?;
        let image = to.at(self.digest.clone());
        Command::line(&["skopeo", "copy", "--quiet", "--preserve-digests", "--insecure-policy"])
            // As containerd and others have it: a registry on this machine may do without TLS.
            .arg(format!("--dest-tls-verify={}", !is_local(to)))
            .arg(format!("oci:{}", folder.path().display()))
            .arg(format!("docker://{image}"))
            .limit(Duration::from_secs(300))
            .run()
            .await?;
        Ok(image)
    }
}

fn is_local(repository: &Repository) -> bool {
    let registry = repository.registry();
    registry.split(':').next() == Some("localhost") || registry.starts_with("127.") || registry.starts_with("[::1]")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn built() -> Built {
        let image = image::layout::Image::default();
        let layout = Layout::of(&image, None).unwrap();
        Built {
            digest: layout.roots()[0].digest.clone(),
            layout,
            entries: Vec::new(),
        }
    }

    #[test]
    fn a_layout_takes_an_older_ones_place_and_nothing_elses() {
        let folder = tempfile::tempdir().unwrap();
        let layout = folder.path().join("layout");
        built().write_folder(&layout).unwrap();
        fs::write(layout.join("blobs/sha256/old"), "").unwrap();
        built().write_folder(&layout).unwrap();
        assert!(!layout.join("blobs/sha256/old").exists());
        assert!(layout.join("index.json").exists());

        fs::write(folder.path().join("letter"), "").unwrap();
        let error = built().write_folder(folder.path()).unwrap_err();
        assert!(error.to_string().ends_with("that is no OCI layout"), "{error}");
    }

    #[test]
    fn an_archive_is_written_whole_with_the_folders_above_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/agent.tar");
        built().write_archive(&path).unwrap();
        let mut archive = tar::Archive::new(fs::File::open(&path).unwrap());
        let paths = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().into_owned());
        assert!(paths.collect::<Vec<_>>().contains(&PathBuf::from("oci-layout")));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn only_registries_of_this_machine_may_do_without_tls() {
        let local = |text: &str| is_local(&text.parse().unwrap());
        assert!(local("localhost:5000/a") && local("127.0.0.1:5000/a") && local("[::1]:5000/a"));
        assert!(!local("localhost.example/a") && !local("ghcr.io/a"));
    }
}
