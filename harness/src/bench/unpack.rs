//! The machine's layer made a tree, out of a file, beside the tools that do it.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result};
use image::unpack::{self, Layer};
use serde_json::Value;

use super::{Figure, seconds};
use crate::command::Command;

/// How often each of them unpacks, by turns; the median counts.
const TIMES: usize = 5;

/// An OCI layout that has one layer.
struct Layout {
    dir: PathBuf,
    layer: Layer,
}

impl Layout {
    fn of(dir: &Path) -> Result<Self> {
        let json = |path: &Path| Ok::<Value, anyhow::Error>(serde_json::from_slice(&fs::read(path)?)?);
        let named = |digest: &Value| digest.as_str().map(str::to_owned).context("the layout names no digest");
        let blob = |digest: &Value| Ok::<_, anyhow::Error>(blob(dir, &named(digest)?));
        let manifest = json(&blob(&json(&dir.join("index.json"))?["manifests"][0]["digest"])?)?;
        let config = json(&blob(&manifest["config"]["digest"])?)?;
        let layer = &manifest["layers"][0];
        Ok(Self {
            dir: dir.to_owned(),
            layer: Layer {
                digest: named(&layer["digest"])?.parse()?,
                size: layer["size"].as_u64().context("a layer has a size")?,
                diff_id: named(&config["rootfs"]["diff_ids"][0])?.parse()?,
            },
        })
    }

    fn path(&self) -> PathBuf {
        blob(&self.dir, self.layer.digest.as_str())
    }

    /// By our own code, digests and all.
    fn unpack(&self, into: &Path) -> Result<()> {
        fs::create_dir(into)?;
        Ok(unpack::apply(into, File::open(self.path())?, &self.layer)?)
    }
}

fn blob(layout: &Path, digest: &str) -> PathBuf {
    layout.join("blobs").join(digest.replace(':', "/"))
}

/// Unpacks the layer as the product has it, with zstd, and once more with gzip, for umoci takes no other.
///
/// # Errors
/// One of the tools fails, or is not there.
pub(super) async fn measure(machine: &Path) -> Result<Vec<Figure>> {
    let scratch = tempfile::tempdir()?;
    let packed = scratch.path().join("gzip");
    let from = format!("oci:{}", machine.display());
    let to = format!("oci:{}:machine", packed.display());
    Command::line(&[
        "skopeo",
        "copy",
        "--quiet",
        "--dest-compress-format",
        "gzip",
        &from,
        &to,
    ])
    .run()
    .await?;
    let (zstd, gzip) = (Layout::of(machine)?, Layout::of(&packed)?);
    let tree = scratch.path().join("tree");
    let (mut ours, mut tar, mut ours_gzip, mut umoci) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..TIMES {
        ours.push(timed(&tree, async || zstd.unpack(&tree)).await?);
        let plain = async || {
            fs::create_dir(&tree)?;
            let line = ["tar", "--zstd", "--xattrs", "--numeric-owner", "-xf"];
            Command::line(&line)
                .arg(zstd.path())
                .arg("-C")
                .arg(&tree)
                .run()
                .await
                .map(drop)
        };
        tar.push(timed(&tree, plain).await?);
        ours_gzip.push(timed(&tree, async || gzip.unpack(&tree)).await?);
        let image = format!("{}:machine", gzip.dir.display());
        let bundle = async || {
            let line = ["umoci", "raw", "unpack", "--image", &image];
            Command::line(&line).arg(&tree).run().await.map(drop)
        };
        umoci.push(timed(&tree, bundle).await?);
    }
    let figure = |what, ours, tool, tools| {
        let (ours, tools) = (super::median(ours), super::median(tools));
        Figure {
            what,
            value: seconds(ours),
            bound: "1.25 × the tool",
            beside: format!("{tool} {}: {:.2} ×", seconds(tools), ours / tools),
        }
    };
    Ok(vec![
        figure(
            "the machine's layer (zstd), from a file → a tree, digests checked",
            ours,
            "`tar --zstd -x`, which checks none,",
            tar,
        ),
        figure(
            "the same layer (gzip)",
            ours_gzip,
            "`umoci raw unpack`, which checks them,",
            umoci,
        ),
    ])
}

/// How long it takes to make the tree, which is not kept.
async fn timed(tree: &Path, make: impl AsyncFnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    make().await?;
    let took = start.elapsed().as_secs_f64();
    fs::remove_dir_all(tree)?;
    Ok(took)
}
