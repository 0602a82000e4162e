//! The product as the bed has it: the agent's image, given or built, and the program in it, which renders Ignition.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use image::{Digest, ImageRef};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::agent_image::{self, Built, Profile, Variant};
use crate::cache;
use crate::cloud::Cloud;
use crate::command::Command;

/// Where the agent's images lie in the bed's registry.
const REPOSITORY: &str = "aks-flex-node/agent";

/// The agent's images in a bed.
#[derive(Clone, Debug)]
pub(crate) struct Product {
    /// The agent that hosts start with.
    pub(crate) image: ImageRef,
    /// What a host pulls of it, in bytes.
    pub(crate) size: u64,
    profile: Profile,
    dir: PathBuf,
    pushed: Arc<Mutex<BTreeMap<Variant, ImageRef>>>,
    heavies: Arc<Mutex<BTreeMap<u64, ImageRef>>>,
}

/// What another process has to know of it.
#[derive(Serialize, Deserialize)]
struct File {
    image: ImageRef,
    size: u64,
}

/// Where that lies, in its folder.
const FILE: &str = "product.json";
/// A link to the layout of the agent's image.
const LAYOUT: &str = "layout";

impl Product {
    /// Builds the agent's image, or takes the OCI layout or archive `given`, and pushes it into the cloud's registry. `dir` keeps what is made on the way.
    ///
    /// # Errors
    /// Cargo's, or what was given is no OCI layout of an agent.
    pub(crate) async fn make(cloud: &Cloud, dir: &Path, given: Option<&Path>) -> Result<Self> {
        let profile = Profile::of_environment()?;
        cache::private_dir(dir)?;
        let layout = match given {
            Some(given) if given.is_dir() => given.to_owned(),
            Some(archive) => {
                let layout = dir.join("given");
                let file = fs::File::open(archive).with_context(|| archive.display().to_string())?;
                tar::Archive::new(file)
                    .unpack(&layout)
                    .with_context(|| format!("unpacking {}", archive.display()))?;
                layout
            }
            None => {
                let layout = dir.join(Variant::Good.to_string());
                agent_image::build(profile, Variant::Good)
                    .await?
                    .write_folder(&layout)?;
                layout
            }
        };
        let kept = dir.join(LAYOUT);
        let _ = fs::remove_file(&kept);
        std::os::unix::fs::symlink(fs::canonicalize(&layout)?, &kept)?;
        let bytes =
            program(&layout).with_context(|| format!("{} as the agent's image", given.unwrap_or(&layout).display()))?;
        let path = dir.join("aks-flex-node");
        fs::write(&path, bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let image = push(cloud, &layout, "good").await?;
        let file = File {
            image,
            size: size(&layout)?,
        };
        fs::write(dir.join(FILE), serde_json::to_vec(&file)?)?;
        Ok(Self::of(file, profile, dir))
    }

    /// What another process has made in that folder.
    ///
    /// # Errors
    /// None has.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let text = fs::read(&path).with_context(|| format!("the bed has no agent: no {}", path.display()))?;
        Ok(Self::of(
            serde_json::from_slice(&text)?,
            Profile::of_environment()?,
            dir,
        ))
    }

    fn of(file: File, profile: Profile, dir: &Path) -> Self {
        Self {
            image: file.image,
            size: file.size,
            profile,
            dir: dir.to_owned(),
            pushed: Arc::default(),
            heavies: Arc::default(),
        }
    }

    /// The OCI layout of the agent's image.
    pub(crate) fn layout(&self) -> PathBuf {
        self.dir.join(LAYOUT)
    }

    /// Another image than the one that hosts start with, in the registry.
    ///
    /// # Errors
    /// It can't be built or pushed.
    pub(crate) async fn variant(&self, cloud: &Cloud, variant: Variant) -> Result<ImageRef> {
        // Several checks may want the same one at once, and the registry does not bear two pushes of the same blobs.
        let mut pushed = self.pushed.lock().await;
        if let Some(image) = pushed.get(&variant) {
            return Ok(image.clone());
        }
        let built = agent_image::build(self.profile, variant).await?;
        let image = self.push(cloud, &built, &variant.to_string()).await?;
        pushed.insert(variant, image.clone());
        Ok(image)
    }

    /// An image that works as the one that hosts start with does, and has to be pulled in full (`agent_image::heavy`), in the registry.
    ///
    /// # Errors
    /// It can't be built or pushed.
    pub(crate) async fn heavy(&self, cloud: &Cloud, number: u64) -> Result<ImageRef> {
        let mut pushed = self.heavies.lock().await;
        if let Some(image) = pushed.get(&number) {
            return Ok(image.clone());
        }
        let built = agent_image::heavy(self.profile, number).await?;
        let image = self.push(cloud, &built, &format!("heavy-{number}")).await?;
        pushed.insert(number, image.clone());
        Ok(image)
    }

    /// An image that works as the one that hosts start with does, is as large, and of which nothing is on any host (`agent_image::fresh`), in
    /// the registry.
    ///
    /// # Errors
    /// It can't be built or pushed.
    pub(crate) async fn fresh(&self, cloud: &Cloud, number: u64) -> Result<ImageRef> {
        let built = agent_image::fresh(self.profile, number).await?;
        self.push(cloud, &built, &format!("fresh-{number}")).await
    }

    async fn push(&self, cloud: &Cloud, built: &Built, tag: &str) -> Result<ImageRef> {
        let folder = tempfile::tempdir_in(&self.dir)?;
        let layout = folder.path().join("layout");
        built.write_folder(&layout)?;
        push(cloud, &layout, tag).await
    }

    /// The Ignition config (3.3.0) that the agent makes of a folder of inputs.
    ///
    /// # Errors
    /// What the agent says of the folder.
    pub(crate) async fn ignition(&self, inputs: &Path) -> Result<String> {
        let program = self.dir.join("aks-flex-node");
        Command::new(program)
            .args(["ignition", "--spec=3.3.0"])
            .arg(inputs)
            .read()
            .await
    }
}

/// Pushes an image to where the agents of a bed lie.
///
/// # Errors
/// The registry's.
pub(crate) async fn push(cloud: &Cloud, layout: &Path, tag: &str) -> Result<ImageRef> {
    cloud.registry.push(layout, REPOSITORY, tag).await
}

/// The agent's program in an OCI layout.
fn program(layout: &Path) -> Result<Vec<u8>> {
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let manifest: Value = serde_json::from_slice(&blob(layout, &index["manifests"][0])?)?;
    let layers = manifest["layers"].as_array().context("its manifest has no layers")?;
    for layer in layers.iter().rev() {
        let packed = blob(layout, layer)?;
        let kind = layer["mediaType"].as_str().unwrap_or_default();
        let tar: Box<dyn Read> = match kind.rsplit_once('+') {
            Some((_, "gzip")) => Box::new(flate2::read::GzDecoder::new(Cursor::new(packed))),
            Some((_, "zstd")) => Box::new(zstd::Decoder::new(Cursor::new(packed))?),
            _ => Box::new(Cursor::new(packed)),
        };
        for entry in tar::Archive::new(tar).entries()? {
            let mut entry = entry?;
            if entry.path()?.ends_with("usr/bin/aks-flex-node") {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                return Ok(bytes);
            }
        }
    }
    bail!("it has no /usr/bin/aks-flex-node")
}

/// The blobs of an OCI layout, in bytes.
fn size(layout: &Path) -> Result<u64> {
    let blobs = fs::read_dir(layout.join("blobs/sha256"))?;
    blobs.map(|blob| Ok(blob?.metadata()?.len())).sum()
}

fn blob(layout: &Path, descriptor: &Value) -> Result<Vec<u8>> {
    let digest: Digest = descriptor["digest"]
        .as_str()
        .context("a descriptor has no digest")?
        .parse()?;
    let path = layout.join("blobs/sha256").join(digest.hex());
    fs::read(&path).with_context(|| format!("no blob {digest}"))
}
