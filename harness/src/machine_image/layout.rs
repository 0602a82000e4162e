//! An OCI layout of one layer, from a folder.
//!
//! Not the `image` crate's assembly: that makes the agent's image byte for byte from what it is given; this packs any Debian tree.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use image::Digest;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// How a layer is compressed.
#[derive(Clone, Copy)]
pub(crate) enum Compression {
    /// What every containerd takes.
    Gzip,
    /// Unpacked several times as fast.
    Zstd,
}

/// Packs the folder `root` as an image of one layer into the layout `layout`.
///
/// # Errors
/// tar's, or a file can't be written. The layout is not whole then.
pub(crate) fn pack(root: &Path, layout: &Path, compression: Compression, config: &Value) -> Result<()> {
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let (layer, content) = layer(root, &blobs, compression)?;
    let layer_type = match compression {
        Compression::Gzip => "application/vnd.oci.image.layer.v1.tar+gzip",
        Compression::Zstd => "application/vnd.oci.image.layer.v1.tar+zstd",
    };
    let image = json!({
        "architecture": "amd64",
        "os": "linux",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [content] },
        "history": [{ "created_by": "cargo harness" }],
    });
    let config = blob(
        &blobs,
        "application/vnd.oci.image.config.v1+json",
        image.to_string().as_bytes(),
    )?;
    let size = fs::metadata(blobs.join(layer.hex()))?.len();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config,
        "layers": [{ "mediaType": layer_type, "digest": layer, "size": size }],
    });
    let manifest = blob(
        &blobs,
        "application/vnd.oci.image.manifest.v1+json",
        manifest.to_string().as_bytes(),
    )?;
    fs::write(
        layout.join("index.json"),
        json!({ "schemaVersion": 2, "manifests": [manifest] }).to_string(),
    )?;
    Ok(fs::write(
        layout.join("oci-layout"),
        r#"{"imageLayoutVersion":"1.0.0"}"#,
    )?)
}

/// Writes a blob and describes it.
fn blob(blobs: &Path, media_type: &str, bytes: &[u8]) -> Result<Value> {
    let digest = Digest::of(bytes);
    fs::write(blobs.join(digest.hex()), bytes)?;
    Ok(json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() }))
}

/// Writes the layer, and returns its digest and that of the tar in it.
fn layer(root: &Path, blobs: &Path, compression: Compression) -> Result<(Digest, Digest)> {
    let mut tar = Command::new("tar")
        .args([
            "--create",
            "--sort=name",
            "--numeric-owner",
            "--mtime=@0",
            "--hard-dereference",
            "--directory",
        ])
        .arg(root)
        .arg(".")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting tar")?;
    let mut stream = tar.stdout.take().context("tar has a standard output")?;
    let new = blobs.join("new");
    let mut compressed = Hashed {
        to: fs::File::create(&new)?,
        hash: Sha256::new(),
    };
    let content = match compression {
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(&mut compressed, flate2::Compression::default());
            let content = copy(&mut stream, &mut encoder)?;
            encoder.finish()?;
            content
        }
        Compression::Zstd => {
            let mut encoder = zstd::Encoder::new(&mut compressed, 6)?;
            let content = copy(&mut stream, &mut encoder)?;
            encoder.finish()?;
            content
        }
    };
    let status = tar.wait()?;
    if !status.success() {
        bail!("tar of {}: {status}", root.display());
    }
    let digest = Digest::from_hash(compressed.hash);
    fs::rename(&new, blobs.join(digest.hex()))?;
    Ok((digest, content))
}

fn copy(from: &mut impl Read, to: &mut impl Write) -> Result<Digest> {
    let mut hashed = Hashed {
        to,
        hash: Sha256::new(),
    };
    std::io::copy(from, &mut hashed)?;
    Ok(Digest::from_hash(hashed.hash))
}

/// Hashes what passes through it.
struct Hashed<W> {
    to: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_names_its_blobs_truly_and_the_same_tree_is_the_same_image() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::write(root.join("bin/tool"), "x").unwrap();
        let pack = |name: &str, compression| {
            let layout = folder.path().join(name);
            pack(&root, &layout, compression, &json!({ "Cmd": ["/bin/tool"] })).unwrap();
            for blob in fs::read_dir(layout.join("blobs/sha256")).unwrap() {
                let blob = blob.unwrap();
                let bytes = fs::read(blob.path()).unwrap();
                assert_eq!(Digest::of(&bytes).hex(), blob.file_name().to_string_lossy());
            }
            fs::read_to_string(layout.join("index.json")).unwrap()
        };
        assert_eq!(pack("one", Compression::Zstd), pack("two", Compression::Zstd));
        assert_ne!(pack("three", Compression::Gzip), pack("four", Compression::Zstd));
    }
}
