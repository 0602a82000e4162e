//! Layers of every kind, good and ill-meant, into a folder beside which a victim lies.
#![expect(clippy::disallowed_methods, reason = "plain files of a test's own folder")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use proptest::prelude::*;
use tar::EntryType;

use super::*;
use crate::layout::{self, Compression, Content, Entry, Image, Layout};
use crate::oci::{Config, Document, media};

/// `(type, path, content or link target)`.
type Line<'a> = (EntryType, &'a str, &'a str);
const FILE: EntryType = EntryType::Regular;
const DIR: EntryType = EntryType::Directory;
const LINK: EntryType = EntryType::Symlink;
const HARD: EntryType = EntryType::Link;

/// A tar archive that holds even what `tar::Builder` refuses.
fn archive(lines: &[Line<'_>]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (kind, path, content) in lines {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(*kind);
        header.set_mode(if *kind == DIR { 0o755 } else { 0o640 });
        header.set_uid(rustix::process::geteuid().as_raw().into());
        header.set_gid(rustix::process::getegid().as_raw().into());
        header.set_mtime(1_000_000);
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_device_major(1).unwrap();
        header.set_device_minor(3).unwrap();
        let mut body = content.as_bytes();
        if matches!(*kind, LINK | HARD) {
            header.as_old_mut().linkname[..content.len()].copy_from_slice(body);
            body = &[];
        }
        header.set_size(body.len() as u64);
        header.set_cksum();
        tar.append(&header, body).unwrap();
    }
    tar.into_inner().unwrap()
}

fn named(packed: &[u8], plain: &[u8]) -> Layer {
    Layer {
        digest: Digest::of(packed),
        size: packed.len() as u64,
        diff_id: Digest::of(plain),
    }
}

struct Bed {
    dir: tempfile::TempDir,
}

impl Bed {
    /// `root` to unpack into, `victim/secret` outside of it.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        fs::create_dir(dir.path().join("victim")).unwrap();
        fs::write(dir.path().join("victim/secret"), "untouched").unwrap();
        Self { dir }
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn apply(&self, lines: &[Line<'_>]) -> Result<(), UnpackError> {
        let tar = archive(lines);
        let result = apply(&self.root(), tar.as_slice(), &named(&tar, &tar));
        assert_eq!(
            fs::read_to_string(self.dir.path().join("victim/secret")).unwrap(),
            "untouched"
        );
        assert_eq!(fs::read_dir(self.dir.path().join("victim")).unwrap().count(), 1);
        assert_eq!(fs::read_dir(self.dir.path()).unwrap().count(), 2);
        result
    }

    /// Everything in the root: `path`, `path/`, `path -> target`, `path=content`, in order.
    fn tree(&self) -> Vec<String> {
        let mut found = Vec::new();
        walk(&self.root(), Path::new(""), &mut |path, metadata, full| {
            found.push(if metadata.is_dir() {
                format!("{path}/")
            } else if metadata.is_symlink() {
                format!("{path} -> {}", fs::read_link(full).unwrap().display())
            } else {
                format!("{path}={}", String::from_utf8_lossy(&fs::read(full).unwrap()))
            });
        });
        found.sort();
        found
    }
}

fn walk(root: &Path, below: &Path, see: &mut dyn FnMut(&str, &fs::Metadata, &Path)) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let path = below.join(entry.unwrap().file_name());
        let full = root.join(&path);
        let metadata = fs::symlink_metadata(&full).unwrap();
        see(path.to_str().unwrap(), &metadata, &full);
        if metadata.is_dir() {
            walk(root, &path, see);
        }
    }
}

/// An image unpacks to the same tree whenever that is done.
#[test]
fn a_folder_that_a_layer_changes_without_naming_it_keeps_its_time() {
    let bed = Bed::new();
    bed.apply(&[
        (DIR, "a", ""),
        (DIR, "a/b", ""),
        (DIR, "a/b/c", ""),
        (FILE, "a/b/c/1", "low"),
    ])
    .unwrap();
    bed.apply(&[
        (FILE, "a/b/c/.wh.1", ""),
        (FILE, "a/b/2", "high"),
        (FILE, "a/new/3", "high"),
    ])
    .unwrap();
    for path in ["a", "a/b", "a/b/c"] {
        let time = fs::metadata(bed.dir.path().join("root").join(path)).unwrap().mtime();
        assert_eq!(time, 1_000_000, "{path}");
    }
}

#[test]
fn whiteouts_take_away_what_lower_layers_had_and_nothing_of_their_own() {
    let bed = Bed::new();
    bed.apply(&[
        (DIR, "a/", ""),
        (FILE, "a/1", "low"),
        (FILE, "a/2", "low"),
        (DIR, "b", ""),
        (DIR, "b/deep", ""),
        (FILE, "b/deep/1", "low"),
        (FILE, "c", "low"),
        (DIR, "d/", ""),
        (FILE, "d/old", "low"),
    ])
    .unwrap();
    bed.apply(&[
        (FILE, "a/.wh.1", ""),
        (FILE, ".wh.c", ""),
        (FILE, "b/new", "high"),
        (FILE, "b/deep/2", "high"),
        (FILE, "b/.wh..wh..opq", ""),
        (FILE, "d/new", "high"),
        (FILE, ".wh.d", ""),
        (FILE, "none/.wh.x", ""),
        (FILE, ".wh..wh.plnk", ""),
    ])
    .unwrap();
    assert_eq!(
        bed.tree(),
        [
            "a/",
            "a/2=low",
            "b/",
            "b/deep/",
            "b/deep/2=high",
            "b/new=high",
            "d/",
            "d/new=high"
        ]
    );
}

#[test]
fn what_is_there_is_replaced_and_folders_are_kept() {
    let bed = Bed::new();
    bed.apply(&[
        (DIR, "a", ""),
        (FILE, "a/x", "1"),
        (FILE, "f", "1"),
        (LINK, "l", "f"),
        (DIR, "d", ""),
        (FILE, "d/x", "1"),
    ])
    .unwrap();
    bed.apply(&[
        (DIR, "a", ""),
        (DIR, "f", ""),
        (FILE, "l", "now a file"),
        (LINK, "d", "a"),
    ])
    .unwrap();
    assert_eq!(bed.tree(), ["a/", "a/x=1", "d -> a", "f/", "l=now a file"]);
}

#[test]
fn links_of_a_layer_are_resolved_inside_the_folder() {
    let bed = Bed::new();
    let victim = bed.dir.path().join("victim");
    let victim = victim.to_str().unwrap();
    // As a merged /usr has it: an entry below a link lands where the link points, in the folder.
    bed.apply(&[
        (DIR, "usr/", ""),
        (DIR, "usr/lib/", ""),
        (LINK, "lib", "usr/lib"),
        (LINK, "abs", "/usr/lib"),
    ])
    .unwrap();
    bed.apply(&[(FILE, "lib/one", "1"), (FILE, "abs/two", "2")]).unwrap();
    assert!(bed.tree().contains(&"usr/lib/one=1".to_owned()) && bed.tree().contains(&"usr/lib/two=2".to_owned()));
    // Out of the folder, by every kind of link.
    for (link, target) in [
        ("up", "../victim"),
        ("out", victim),
        ("updeep", "../../../../../../../victim"),
    ] {
        bed.apply(&[(LINK, link, target)]).unwrap();
        for inside in ["secret", "new", ".wh.secret", ".wh..wh..opq"] {
            let _ = bed.apply(&[(FILE, &format!("{link}/{inside}"), "evil")]);
        }
        let _ = bed.apply(&[(DIR, &format!("{link}/sub/deep"), "")]);
        let _ = bed.apply(&[(HARD, &format!("hard-{link}"), &format!("{link}/secret"))]);
        bed.apply(&[(DIR, link, "")]).unwrap();
    }
    // A hard link to a symbolic link is a second name for the link.
    bed.apply(&[
        (LINK, "sym", &format!("{victim}/secret")),
        (HARD, "sym2", "sym"),
        (FILE, "sym2", "evil"),
    ])
    .unwrap();
    assert!(bed.tree().contains(&"sym2=evil".to_owned()));
}

#[test]
fn paths_that_leave_the_folder_are_refused() {
    for lines in [
        &[(FILE, "../victim/secret", "evil")] as &[Line<'_>],
        &[(FILE, "a/../../victim/secret", "evil")],
        &[(HARD, "h", "../victim/secret")],
        &[(FILE, ".wh...", "")],
        &[(FILE, "a/.wh..", "")],
        &[(HARD, "h", "")],
    ] {
        let bed = Bed::new();
        bed.apply(&[(DIR, "a", "")]).unwrap();
        assert!(matches!(bed.apply(lines), Err(UnpackError::Entry { .. })), "{lines:?}");
    }
    let bed = Bed::new();
    bed.apply(&[(FILE, "/abs", "in the folder"), (DIR, "./", ""), (FILE, "./dot", "1")])
        .unwrap();
    assert_eq!(bed.tree(), ["abs=in the folder", "dot=1"]);
}

#[test]
fn a_link_to_nowhere_in_the_way_is_an_error_not_a_way_out() {
    let bed = Bed::new();
    bed.apply(&[(LINK, "l", "nowhere")]).unwrap();
    assert!(matches!(
        bed.apply(&[(FILE, "l/x", "1")]),
        Err(UnpackError::Entry { .. })
    ));
}

#[test]
fn hard_links_times_and_modes_are_kept() {
    let bed = Bed::new();
    bed.apply(&[
        (DIR, "d/", ""),
        (FILE, "d/a", "1"),
        (HARD, "b", "d/a"),
        (LINK, "l", "d/a"),
    ])
    .unwrap();
    let stat = |path: &str| fs::symlink_metadata(bed.root().join(path)).unwrap();
    assert_eq!(stat("d/a").ino(), stat("b").ino());
    assert_eq!(stat("d/a").permissions().mode() & 0o7777, 0o640);
    for path in ["d", "d/a", "l"] {
        assert_eq!(stat(path).mtime(), 1_000_000, "{path}");
    }
}

#[test]
fn pipes_are_made_and_device_nodes_are_no_fault() {
    let bed = Bed::new();
    bed.apply(&[
        (EntryType::Fifo, "pipe", ""),
        (EntryType::Char, "null", ""),
        (FILE, "after", "1"),
    ])
    .unwrap();
    assert!(bed.root().join("after").exists() && bed.root().join("pipe").exists());
}

#[test]
fn attributes_of_a_layer_are_tolerated() {
    let bed = Bed::new();
    let mut tar = tar::Builder::new(Vec::new());
    let capability: &[u8] = &[1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    tar.append_pax_extensions([
        ("SCHILY.xattr.security.capability", capability),
        ("SCHILY.xattr.security.selinux", b"system_u:object_r:bin_t:s0\0"),
        ("SCHILY.xattr.nonsense", b"x"),
    ])
    .unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(4);
    header.set_mode(0o755);
    header.set_uid(rustix::process::geteuid().as_raw().into());
    header.set_gid(rustix::process::getegid().as_raw().into());
    tar.append_data(&mut header, "ping", b"ping".as_slice()).unwrap();
    let tar = tar.into_inner().unwrap();
    apply(&bed.root(), tar.as_slice(), &named(&tar, &tar)).unwrap();
    assert_eq!(bed.tree(), ["ping=ping"]);
    if rustix::process::geteuid().is_root() {
        let mut value = [0; 64];
        let length = rustix::fs::getxattr(bed.root().join("ping"), "security.capability", &mut value).unwrap();
        assert_eq!(&value[..length], capability);
    }
}

#[test]
fn what_came_is_held_to_what_was_named() {
    let tar = archive(&[(FILE, "a", "1")]);
    let bad = |change: &dyn Fn(&mut Layer), packed: &[u8]| {
        let mut layer = named(&tar, &tar);
        change(&mut layer);
        apply(&Bed::new().root(), packed, &layer).unwrap_err()
    };
    let other = archive(&[(FILE, "a", "2")]);
    assert!(matches!(bad(&|_| (), &other), UnpackError::Digest { .. }));
    assert!(matches!(bad(&|_| (), &tar[..tar.len() - 1]), UnpackError::Size { .. }));
    assert!(matches!(
        bad(&|_| (), &[tar.clone(), vec![0]].concat()),
        UnpackError::Size { .. }
    ));
    assert!(matches!(
        bad(&|l| l.diff_id = Digest::of(b""), &tar),
        UnpackError::DiffId { .. }
    ));
    let noise = vec![b'x'; tar.len()];
    assert!(
        matches!(bad(&|_| (), &noise), UnpackError::Digest { .. }),
        "a bad archive, but the digest says why"
    );
    let gone = apply(Path::new("/nonexistent"), tar.as_slice(), &named(&tar, &tar));
    assert!(matches!(gone, Err(UnpackError::Folder { .. })));

    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("connection reset"))
        }
    }
    let error = apply(&Bed::new().root(), tar[..700].chain(Broken), &named(&tar, &tar)).unwrap_err();
    let chain = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(chain.ends_with("connection reset"), "{chain}");
}

#[test]
fn an_existing_link_in_the_folder_is_replaced_not_followed() {
    let bed = Bed::new();
    symlink(bed.dir.path().join("victim/secret"), bed.root().join("f")).unwrap();
    bed.apply(&[(FILE, "f", "evil")]).unwrap();
    assert_eq!(bed.tree(), ["f=evil"]);
}

#[test]
fn a_link_longer_than_a_header_holds_is_kept_to_the_letter() {
    let to = format!("{}/./x//y/", "a/".repeat(60));
    let image = Image {
        layers: vec![layout::Layer::Entries(vec![Entry::link("l", to.as_str())])],
        ..Image::default()
    };
    let layout = Layout::of(&image, None).unwrap();
    let Document::Manifest(manifest) = Document::parse(&layout.blobs()[&layout.roots()[0].digest]).unwrap() else {
        panic!("no manifest")
    };
    let config = Config::parse(&layout.blobs()[&manifest.config.digest]).unwrap();
    let layer = &manifest.layers[0];
    let expected = Layer {
        digest: layer.digest.clone(),
        size: layer.size,
        diff_id: config.rootfs.diff_ids[0].clone(),
    };
    let dir = tempfile::tempdir().unwrap();
    apply(dir.path(), layout.blobs()[&layer.digest].as_slice(), &expected).unwrap();
    assert_eq!(fs::read_link(dir.path().join("l")).unwrap().as_os_str(), to.as_str());
}

/// What a tree of entries should look like once unpacked: path to kind, mode and content.
type Shape = BTreeMap<String, (char, u32, Vec<u8>)>;

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let name = "[ab]{1,2}(/[cd]{1,2}(/[ef]{60})?)?";
    let content = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..2000).prop_map(Content::Bytes),
        "[a-z/.]{1,120}".prop_map(Content::Link),
        Just(Content::Folder),
    ];
    let mode = prop_oneof![Just(0o644), Just(0o755), Just(0o4755), Just(0o1777), Just(0o700)];
    proptest::collection::btree_map(name, (mode, content), 0..12).prop_map(|all| {
        let files: Vec<String> = all
            .iter()
            .filter(|(_, (_, c))| !matches!(c, Content::Folder))
            .map(|(p, _)| format!("{p}/"))
            .collect();
        all.into_iter()
            .filter(|(path, _)| !files.iter().any(|file| path.starts_with(file.as_str())))
            .map(|(path, (mode, content))| Entry { path, mode, content })
            .collect()
    })
}

fn wanted(entries: &[Entry]) -> Shape {
    let mut shape = Shape::new();
    for Entry { path, mode, content } in entries {
        for (slash, _) in path.match_indices('/') {
            shape.entry(path[..slash].to_owned()).or_insert(('d', 0o755, vec![]));
        }
        let value = match content {
            Content::Folder => ('d', *mode, vec![]),
            Content::Bytes(bytes) => ('f', *mode, bytes.clone()),
            Content::Link(to) => ('l', 0o777, to.clone().into_bytes()),
            Content::File(_) => unreachable!("not generated"),
        };
        shape.insert(path.clone(), value);
    }
    shape
}

fn found(root: &Path) -> Shape {
    let mut shape = Shape::new();
    walk(root, Path::new(""), &mut |path, metadata, full| {
        let mode = metadata.permissions().mode() & 0o7777;
        let value = if metadata.is_dir() {
            ('d', mode, vec![])
        } else if metadata.is_symlink() {
            (
                'l',
                0o777,
                fs::read_link(full).unwrap().into_os_string().into_encoded_bytes(),
            )
        } else {
            ('f', mode, fs::read(full).unwrap())
        };
        shape.insert(path.to_owned(), value);
    });
    shape
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_assembled_unpacks_to_the_same_tree(entries in entries(), which in 0..3usize) {
        let compression = [Compression::Gzip, Compression::Zstd, Compression::Plain][which];
        let image = Image { layers: vec![layout::Layer::Entries(entries.clone())], compression, ..Image::default() };
        let layout = Layout::of(&image, None).unwrap();
        let again = Layout::of(&image, None).unwrap();
        prop_assert_eq!(layout.roots(), again.roots());
        let Document::Manifest(manifest) = Document::parse(&layout.blobs()[&layout.roots()[0].digest]).unwrap() else {
            panic!("no manifest")
        };
        let config = Config::parse(&layout.blobs()[&manifest.config.digest]).unwrap();
        let layer = &manifest.layers[0];
        prop_assert!(media::is_layer(&layer.media_type));
        let expected =
            Layer { digest: layer.digest.clone(), size: layer.size, diff_id: config.rootfs.diff_ids[0].clone() };
        let dir = tempfile::tempdir().unwrap();
        apply(dir.path(), layout.blobs()[&layer.digest].as_slice(), &expected).unwrap();
        prop_assert_eq!(found(dir.path()), wanted(&entries));
    }
}
