//! What is in the agent's image. It stands here once: the layout and the folder for `image/Containerfile` are both made of it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, bail};
use image::layout::{Compression, Content, Entry, Image, Layer};

use super::programs::Programs;
use super::{Profile, Variant};

/// The version of all crates of the workspace.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

const AGENT: &str = "/usr/bin/aks-flex-node";
const HOST_EXEC: &str = "/usr/bin/host-exec";
/// Links to `HOST_EXEC`, named after the host's tools.
const LINKS: &str = "/usr/libexec/host-exec";
const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Set by the image alone: what the containers' units and the host set comes on top.
const ENV: &[&str] = &[
    "AKS_FLEX_NODE_CONTAINERIZED=true",
    "PATH=/usr/libexec/host-exec:/usr/bin",
];

const LABELS: &[(&str, &str)] = &[
    ("org.opencontainers.image.licenses", "MIT"),
    ("org.opencontainers.image.title", "aks-flex-node"),
    ("org.opencontainers.image.version", VERSION),
];

/// Where the units mount the host, and what every container is given by runc.
const FOLDERS: &[(&str, u32)] = &[
    ("/dev", 0o755),
    ("/host", 0o755),
    ("/proc", 0o755),
    ("/run", 0o755),
    ("/sys", 0o755),
    ("/tmp", 0o1777),
];

/// So that user 0 has a name and a home. Nobody logs in: there is no shell.
const FILES: &[(&str, &str)] = &[
    ("/etc/group", "root:x:0:\n"),
    ("/etc/passwd", "root:x:0:0:root:/:/usr/sbin/nologin\n"),
];

/// Certificates of Debian's package ca-certificates, one a file. Not `/etc/ssl/certs/ca-certificates.crt`: what an administrator
/// of the building machine added there must not be trusted by everyone, nor change the digest.
const CERTIFICATES: &str = "/usr/share/ca-certificates/mozilla";

/// All files, links and folders, given what was built and the bundle of certificates.
pub(super) fn entries(programs: &Programs, bundle: &[u8], variant: Variant) -> Vec<Entry> {
    let mut entries = vec![
        Entry::bytes(HOST_EXEC, 0o755, programs.host_exec.as_slice()),
        Entry::bytes(CA_BUNDLE, 0o644, bundle),
    ];
    entries.extend(FOLDERS.iter().map(|(path, mode)| Entry::folder(*path, *mode)));
    entries.extend(FILES.iter().map(|(path, text)| Entry::bytes(*path, 0o644, *text)));
    let tools = programs.tools.iter();
    entries.extend(tools.map(|tool| Entry::link(format!("{LINKS}/{tool}"), HOST_EXEC)));
    if let Some(agent) = &programs.agent {
        entries.push(Entry::bytes(AGENT, 0o755, agent.as_slice()));
    }
    if let Some(way) = variant.misbehaviour() {
        entries.push(Entry::bytes("/etc/misbehave", 0o644, format!("{way}\n")));
    }
    entries
}

/// The image of these entries, with what its configuration says.
pub(super) fn image(entries: Vec<Entry>, variant: Variant, profile: Profile) -> Image {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    let mut labels: BTreeMap<_, _> = LABELS.iter().map(owned).collect();
    if variant != Variant::Good {
        labels.insert("aks-flex-node.harness.variant".to_owned(), variant.to_string());
    }
    Image {
        layers: vec![Layer::Entries(entries)],
        architecture: Some(variant.architecture().to_owned()),
        env: ENV.iter().map(ToString::to_string).collect(),
        entrypoint: vec![AGENT.to_owned()],
        labels,
        annotations: BTreeMap::new(),
        compression: match profile {
            Profile::Image => Compression::Zstd,
            // Packed in a tenth of the time; hosts meet both.
            Profile::Quick => Compression::Gzip,
        },
    }
}

/// The bundle of certificates: those of one version of the package are always the same bytes.
///
/// # Errors
/// The package is not installed.
pub(super) fn bundle() -> Result<Vec<u8>> {
    let listed = fs::read_dir(CERTIFICATES)
        .with_context(|| format!("{CERTIFICATES}: the package ca-certificates of Debian is needed"))?;
    let mut paths = listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|end| end == "crt"));
    paths.sort();
    let mut bundle = Vec::new();
    for path in paths {
        bundle.extend(fs::read(&path).with_context(|| path.display().to_string())?);
        if bundle.last() != Some(&b'\n') {
            bundle.push(b'\n');
        }
    }
    if bundle.is_empty() {
        bail!("{CERTIFICATES} holds no certificate");
    }
    Ok(bundle)
}

/// Writes the image's files into a folder that is new or empty, for `image/Containerfile`.
///
/// # Errors
/// The folder holds something, or can't be written; it is not whole then.
pub(super) fn write_rootfs(entries: &[Entry], root: &Path) -> Result<()> {
    if root.exists() && fs::read_dir(root)?.next().is_some() {
        bail!("{}: the folder is not empty", root.display());
    }
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by(|one, other| one.path.cmp(&other.path));
    for entry in sorted {
        let path = root.join(entry.path.trim_start_matches('/'));
        write(entry, &path).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn write(entry: &Entry, path: &Path) -> Result<()> {
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let above: Vec<_> = path.ancestors().skip(1).take_while(|above| !above.exists()).collect();
    for above in above.into_iter().rev() {
        fs::create_dir(above)?;
        mode(above, 0o755)?;
    }
    match &entry.content {
        Content::Folder => fs::create_dir_all(path)?,
        Content::Bytes(bytes) => fs::write(path, bytes)?,
        Content::File(from) => fs::copy(from, path).map(drop)?,
        Content::Link(to) => return Ok(symlink(to, path)?),
    }
    Ok(mode(path, entry.mode)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::layout::Layout;
    use serde_json::{Value, json};

    fn programs() -> Programs {
        Programs {
            agent: Some(b"agent".to_vec()),
            host_exec: b"host-exec".to_vec(),
            tools: vec!["ctr".to_owned(), "systemctl".to_owned()],
        }
    }

    fn good() -> Vec<Entry> {
        entries(&programs(), b"certificates\n", Variant::Good)
    }

    /// A line a thing: path, mode, and what is in it.
    type Tree = BTreeMap<String, (u32, String)>;

    fn tree_of(folder: &Path, below: &Path, tree: &mut Tree) {
        for entry in fs::read_dir(folder.join(below)).unwrap() {
            let name = below.join(entry.unwrap().file_name());
            let path = folder.join(&name);
            let found = fs::symlink_metadata(&path).unwrap();
            let content = if found.is_symlink() {
                format!("link to {}", fs::read_link(&path).unwrap().display())
            } else if found.is_dir() {
                tree_of(folder, &name, tree);
                "folder".to_owned()
            } else {
                fs::read_to_string(&path).unwrap()
            };
            tree.insert(
                name.display().to_string(),
                (found.permissions().mode() & 0o7777, content),
            );
        }
    }

    fn layer_of(image: &Image) -> (Tree, Value) {
        let layout = Layout::of(image, None).unwrap();
        let blob = |digest: &Value| &layout.blobs()[&digest.as_str().unwrap().parse().unwrap()];
        let manifest: Value = serde_json::from_slice(&layout.blobs()[&layout.roots()[0].digest]).unwrap();
        let mut layer = tar::Archive::new(blob(&manifest["layers"][0]["digest"]).as_slice());
        let mut tree = Tree::new();
        for entry in layer.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let content = match entry.link_name().unwrap() {
                Some(to) => format!("link to {}", to.display()),
                None if entry.header().entry_type().is_dir() => "folder".to_owned(),
                None => std::io::read_to_string(&mut entry).unwrap(),
            };
            let mode = entry.header().mode().unwrap();
            tree.insert(path.trim_end_matches('/').to_owned(), (mode, content));
        }
        let config = serde_json::from_slice(blob(&manifest["config"]["digest"])).unwrap();
        (tree, config)
    }

    /// The settings of a Containerfile, in the form of an image's configuration.
    fn settings(file: &str) -> Value {
        let mut settings = json!({ "Env": [], "Labels": {} });
        let lines = file.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        for (number, line) in lines.enumerate() {
            let (word, rest) = line.split_once(' ').unwrap();
            match (number, word, rest) {
                (0, "FROM", "scratch") | (1, "COPY", "rootfs/ /") => {}
                (_, "ENV", set) => settings["Env"].as_array_mut().unwrap().push(set.into()),
                (_, "LABEL", set) => {
                    let (name, value) = set.split_once('=').unwrap();
                    settings["Labels"][name] = value.into();
                }
                (_, "ENTRYPOINT", line) => settings["Entrypoint"] = serde_json::from_str(line).unwrap(),
                other => panic!("{other:?} has no place in the Containerfile"),
            }
        }
        settings
    }

    #[test]
    fn the_containerfile_and_its_rootfs_are_the_same_image() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("rootfs");
        write_rootfs(&good(), &root).unwrap();
        let mut written = Tree::new();
        tree_of(&root, Path::new(""), &mut written);

        let mut image = image(good(), Variant::Good, Profile::Image);
        image.compression = Compression::Plain;
        let (mut layer, config) = layer_of(&image);
        for (_, (mode, content)) in layer.iter_mut().chain(&mut written) {
            if content.starts_with("link to ") {
                *mode = 0; // a link has none
            }
        }
        assert_eq!(written, layer);
        assert_eq!(settings(include_str!("../../../image/Containerfile")), config["config"]);
    }

    #[test]
    fn the_image_holds_the_programs_the_links_and_what_a_container_needs_and_no_more() {
        let mut paths: Vec<_> = good().into_iter().map(|entry| entry.path).collect();
        paths.sort();
        let expected = [
            "/dev",
            "/etc/group",
            "/etc/passwd",
            "/etc/ssl/certs/ca-certificates.crt",
            "/host",
            "/proc",
            "/run",
            "/sys",
            "/tmp",
            "/usr/bin/aks-flex-node",
            "/usr/bin/host-exec",
            "/usr/libexec/host-exec/ctr",
            "/usr/libexec/host-exec/systemctl",
        ];
        assert_eq!(paths, expected);
    }

    #[test]
    fn a_rootfs_is_not_mixed_with_what_lies_there() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("other"), "").unwrap();
        let error = write_rootfs(&good(), folder.path()).unwrap_err();
        assert!(error.to_string().ends_with("the folder is not empty"), "{error}");
    }

    #[test]
    fn every_variant_is_an_image_of_its_own() {
        use clap::ValueEnum;
        let mut digests = Vec::new();
        for variant in Variant::value_variants() {
            let mut image = image(
                entries(&programs(), b"certificates\n", *variant),
                *variant,
                Profile::Image,
            );
            image.compression = Compression::Plain;
            digests.push(Layout::of(&image, None).unwrap().roots()[0].digest.clone());
        }
        digests.sort();
        digests.dedup();
        assert_eq!(digests.len(), Variant::value_variants().len());
    }
}
