//! Layers as other tools make them unpack to the trees that `umoci unpack` makes of them.
//!
//! Needs root, and umoci, skopeo and GNU tar of Debian.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: scratch files, and other tools as judges"
)]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use image::{Digest, unpack};
use rustix::fs::{Mode, XattrFlags};
use serde_json::Value;
use sha2::Digest as _;

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program} can't be run, install it: {error}"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What an entry is, as far as a machine could tell two trees apart. Hard links share the path of their first name.
fn entry(path: &Path, first: &mut BTreeMap<u64, String>, shown: &str, which: Attributes) -> String {
    let meta = fs::symlink_metadata(path).unwrap();
    let kind = meta.file_type();
    let what = if kind.is_symlink() {
        format!("-> {:?}", fs::read_link(path).unwrap())
    } else if kind.is_file() {
        let hash = Digest::from_hash(sha2::Sha256::new_with_prefix(fs::read(path).unwrap()));
        format!("{} bytes, {hash}", meta.len())
    } else if kind.is_char_device() || kind.is_block_device() {
        format!("device {}", meta.rdev())
    } else {
        String::new()
    };
    let same = first.entry(meta.ino()).or_insert_with(|| shown.to_owned()).clone();
    let mut names = vec![0; 4096];
    let length = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let attributes: Vec<String> = names[..length]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty() && which == Attributes::Count)
        // The tree's own, when the computer labels files.
        .filter(|name| *name != b"security.selinux")
        .map(|name| {
            let mut value = vec![0; 4096];
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
            format!("{}={:?}", String::from_utf8_lossy(name), &value[..length])
        })
        .collect();
    format!(
        "{:o} {}:{} {} {what} {same} {attributes:?}",
        meta.mode(),
        meta.uid(),
        meta.gid(),
        meta.mtime()
    )
}

/// Whether extended attributes count: not every form of archive has them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attributes {
    Count,
    DoNot,
}

fn tree(root: &Path, attributes: Attributes) -> BTreeMap<String, String> {
    fn walk(at: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            found.push(path.clone());
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                walk(&path, found);
            }
        }
    }
    let mut paths = Vec::new();
    walk(root, &mut paths);
    paths.sort();
    let mut first = BTreeMap::new();
    let shown = |path: &Path| format!("{:?}", path.strip_prefix(root).unwrap());
    paths
        .iter()
        .map(|path| (shown(path), entry(path, &mut first, &shown(path), attributes)))
        .collect()
}

fn json(layout: &Path, digest: &str) -> Value {
    let path = layout.join("blobs").join(digest.replace(':', "/"));
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Unpacks the image of that tag with our own code.
fn ours(layout: &Path, tag: &str, into: &Path) {
    fs::create_dir(into).unwrap();
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json")).unwrap()).unwrap();
    let named = |one: &&Value| one["annotations"]["org.opencontainers.image.ref.name"] == tag;
    let found = index["manifests"].as_array().unwrap().iter().find(named).unwrap();
    let manifest = json(layout, found["digest"].as_str().unwrap());
    let config = json(layout, manifest["config"]["digest"].as_str().unwrap());
    let layers = manifest["layers"].as_array().unwrap().iter();
    for (layer, diff_id) in layers.zip(config["rootfs"]["diff_ids"].as_array().unwrap()) {
        let digest = layer["digest"].as_str().unwrap();
        let described = unpack::Layer {
            digest: digest.parse::<Digest>().unwrap(),
            size: layer["size"].as_u64().unwrap(),
            diff_id: diff_id.as_str().unwrap().parse().unwrap(),
        };
        let blob = fs::File::open(layout.join("blobs").join(digest.replace(':', "/"))).unwrap();
        unpack::apply(into, blob, &described).unwrap();
    }
}

/// Both ways, compared entry by entry.
fn unpacks_alike(layout: &Path, tag: &str, scratch: &Path) {
    let (mine, bundle) = (
        scratch.join(format!("ours-{tag}")),
        scratch.join(format!("umoci-{tag}")),
    );
    ours(layout, tag, &mine);
    run(
        "umoci",
        &["unpack", "--image", &format!("{}:{tag}", text(layout)), text(&bundle)],
    );
    let tree = |root: &Path| tree(root, Attributes::Count);
    is_alike(&tree(&mine), &tree(&bundle.join("rootfs")), tag);
}

fn is_alike(ours: &BTreeMap<String, String>, theirs: &BTreeMap<String, String>, tag: &str) {
    assert!(theirs.len() > 20, "{tag}: {} entries", theirs.len());
    let missing: Vec<_> = theirs.keys().filter(|path| !ours.contains_key(*path)).collect();
    let more: Vec<_> = ours.keys().filter(|path| !theirs.contains_key(*path)).collect();
    assert!(
        missing.is_empty() && more.is_empty(),
        "{tag}: missing {missing:?}, more {more:?}"
    );
    let differing: Vec<_> = theirs
        .iter()
        .filter(|(path, entry)| ours[*path] != **entry)
        .map(|(path, entry)| format!("{path}\n  ours   {}\n  theirs {entry}", ours[path]))
        .collect();
    assert!(differing.is_empty(), "{tag}:\n{}", differing.join("\n"));
}

/// A file with this text.
fn file(path: PathBuf, content: &str) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    path
}

/// What a machine's tree has, and what few trees have.
fn furnish(root: &Path) {
    let at = |name: &str| root.join(name);
    file(at("etc/passwd"), "root:x:0:0::/root:/bin/sh\n");
    file(at("etc/old"), "goes\n");
    file(at("opt/gone/deep/file"), "goes with its folder\n");
    file(at("opt/becomes-a-file/inner"), "x\n");
    file(at("opt/refilled/old"), "x\n");
    file(at("srv/a name with\ttabs, \u{fc}ml\u{e4}uts and 'quotes'"), "x\n");
    file(root.join(OsStr::from_bytes(b"srv/not-utf-8-\xff\xfe")), "x\n");
    file(at(&format!("srv/{}", "n".repeat(250))), "x\n");
    file(
        at(&format!("srv/{}/deep", ["d".repeat(90), "e".repeat(90)].join("/"))),
        "x\n",
    );
    file(at("srv/.wh"), "no whiteout\n");
    let program = file(at("usr/bin/program"), "#!/bin/sh\n");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::hard_link(&program, at("usr/bin/second-name")).unwrap();
    fs::create_dir_all(at("var/tmp")).unwrap();
    fs::set_permissions(at("var/tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::create_dir_all(at("var/closed")).unwrap();
    fs::set_permissions(at("var/closed"), fs::Permissions::from_mode(0o0)).unwrap();
    for (target, name) in [
        ("usr/bin", "bin"),
        ("/etc/passwd", "etc/absolute"),
        ("../../../../../../etc/shadow", "etc/outward"),
        ("nowhere", "etc/dangling"),
        ("dangling", "etc/chained"),
    ] {
        symlink(target, at(name)).unwrap();
    }
    let owned = file(at("srv/owned"), "x\n");
    std::os::unix::fs::chown(&owned, Some(1234), Some(5678)).unwrap();
    std::os::unix::fs::lchown(at("etc/dangling"), Some(1), Some(2)).unwrap();
    rustix::fs::setxattr(&owned, "user.note", b"kept \0 whole", XattrFlags::empty()).unwrap();
    // cap_net_raw=ep, as setcap writes it.
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    rustix::fs::setxattr(
        at("usr/bin/program"),
        "security.capability",
        &capability,
        XattrFlags::empty(),
    )
    .unwrap();
    for (name, kind, number) in [
        ("srv/pipe", rustix::fs::FileType::Fifo, 0),
        (
            "srv/null",
            rustix::fs::FileType::CharacterDevice,
            rustix::fs::makedev(1, 3),
        ),
        ("srv/loop", rustix::fs::FileType::BlockDevice, rustix::fs::makedev(7, 0)),
    ] {
        rustix::fs::mknodat(rustix::fs::CWD, at(name), kind, Mode::from_raw_mode(0o640), number).unwrap();
    }
    let sparse = fs::File::create(at("srv/sparse")).unwrap();
    sparse.set_len(8 << 20).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"in the middle", 5 << 20).unwrap();
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(86_400);
    fs::File::open(at("etc/passwd"))
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
}

/// What a second layer may do to a first one.
fn change(root: &Path) {
    let at = |name: &str| root.join(name);
    fs::remove_file(at("etc/old")).unwrap();
    fs::remove_dir_all(at("opt/gone")).unwrap();
    fs::remove_dir_all(at("opt/becomes-a-file")).unwrap();
    file(at("opt/becomes-a-file"), "a file now\n");
    fs::remove_dir_all(at("opt/refilled")).unwrap();
    file(at("opt/refilled/new"), "x\n");
    fs::remove_file(at("etc/passwd")).unwrap();
    symlink("../usr/share/passwd", at("etc/passwd")).unwrap();
    file(at("usr/share/passwd"), "new\n");
    fs::set_permissions(at("srv/owned"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::remove_file(at("usr/bin/second-name")).unwrap();
    fs::hard_link(at("srv/owned"), at("usr/bin/second-name")).unwrap();
    fs::remove_file(at("srv/pipe")).unwrap();
    fs::create_dir(at("srv/pipe")).unwrap();
}

/// An image of two layers by umoci, under the tag `made`.
fn made_by_umoci(scratch: &Path) -> PathBuf {
    let (layout, bundle) = (scratch.join("layout"), scratch.join("bundle"));
    let image = format!("{}:made", text(&layout));
    run("umoci", &["init", "--layout", text(&layout)]);
    run("umoci", &["new", "--image", &image]);
    run("umoci", &["unpack", "--image", &image, text(&bundle)]);
    furnish(&bundle.join("rootfs"));
    run(
        "umoci",
        &["repack", "--refresh-bundle", "--image", &image, text(&bundle)],
    );
    change(&bundle.join("rootfs"));
    run("umoci", &["repack", "--image", &image, text(&bundle)]);
    layout
}

#[test]
fn layers_of_umoci() {
    let scratch = tempfile::tempdir().unwrap();
    let layout = made_by_umoci(scratch.path());
    unpacks_alike(&layout, "made", scratch.path());
}

/// umoci of Debian takes no zstd: the same image in the form it takes is the judge.
#[test]
fn layers_that_skopeo_packed_with_zstd() {
    let scratch = tempfile::tempdir().unwrap();
    let layout = made_by_umoci(scratch.path());
    let packed = scratch.path().join("packed");
    let from = format!("oci:{}:made", text(&layout));
    let to = format!("oci:{}:made", text(&packed));
    run(
        "skopeo",
        &[
            "copy",
            "--quiet",
            "--insecure-policy",
            "--dest-compress-format",
            "zstd",
            "--dest-compress",
            &from,
            &to,
        ],
    );
    let (mine, bundle) = (scratch.path().join("ours"), scratch.path().join("theirs"));
    ours(&packed, "made", &mine);
    run(
        "umoci",
        &["unpack", "--image", &format!("{}:made", text(&layout)), text(&bundle)],
    );
    let tree = |root: &Path| tree(root, Attributes::Count);
    is_alike(&tree(&mine), &tree(&bundle.join("rootfs")), "zstd");
}

/// GNU tar in each of its formats: other ways to write long names, times, attributes and holes. The judge is what was packed: umoci does
/// not take them all.
#[test]
fn layers_of_gnu_tar() {
    let scratch = tempfile::tempdir().unwrap();
    let root = scratch.path().join("tree");
    fs::create_dir(&root).unwrap();
    furnish(&root);
    let layout = scratch.path().join("layout");
    run("umoci", &["init", "--layout", text(&layout)]);
    for (tag, attributes, format) in [
        ("gnu", Attributes::DoNot, &["--format=gnu"][..]),
        ("gnu-sparse", Attributes::DoNot, &["--format=gnu", "--sparse"]),
        (
            "pax",
            Attributes::Count,
            &["--format=pax", "--xattrs", "--xattrs-include=*"],
        ),
        ("pax-sparse-1.0", Attributes::DoNot, &["--format=pax", "--sparse"]),
        (
            "pax-sparse-0.1",
            Attributes::DoNot,
            &["--format=pax", "--sparse-version=0.1", "--sparse"],
        ),
        (
            "pax-sparse-0.0",
            Attributes::DoNot,
            &["--format=pax", "--sparse-version=0.0", "--sparse"],
        ),
    ] {
        let archive = scratch.path().join("layer.tar");
        let args = [format, &["-C", text(&root), "--sort=name", "-cf", text(&archive), "."]].concat();
        run("tar", &args);
        let image = format!("{}:{tag}", text(&layout));
        run("umoci", &["new", "--image", &image]);
        run("umoci", &["raw", "add-layer", "--image", &image, text(&archive)]);
        let mine = scratch.path().join(format!("ours-{tag}"));
        ours(&layout, tag, &mine);
        is_alike(&tree(&mine, attributes), &tree(&root, attributes), tag);
    }
}
