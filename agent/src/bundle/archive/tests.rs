//! Archives that are good, that are another, that are damaged, and that would do harm.

use std::collections::BTreeMap;
use std::io::Write as _;

use tar::{EntryType, Header};

use super::*;
use crate::model::chain;

const MANIFEST: &str =
    r#"{"versions": {"kubernetes": "1.34.0", "containerd": "2", "runc": "1", "cni": "1", "crictl": "1"}}"#;

/// The files of a whole bundle, with content that packs badly.
fn whole() -> BTreeMap<String, Vec<u8>> {
    let manifest = Manifest::parse(MANIFEST.as_bytes()).unwrap();
    let mut made = BTreeMap::from([(path::MANIFEST.to_owned(), MANIFEST.as_bytes().to_vec())]);
    let mut state = 1_u32;
    for (path, proved) in files(&manifest, Arch::Amd64) {
        let mut noise = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        made.insert(path.clone(), (0..200).map(|_| noise()).collect());
        if proved {
            made.insert(path::checksum(&path), b"0".repeat(64));
        }
    }
    made
}

#[derive(Clone, Copy, Debug)]
enum By {
    Gzip,
    /// With a checksum of its content, as the tool writes it.
    Zstd,
}

fn packed(by: By, tar: &[u8]) -> Vec<u8> {
    match by {
        By::Gzip => {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            packer.write_all(tar).unwrap();
            packer.finish().unwrap()
        }
        By::Zstd => {
            let mut packer = zstd::Encoder::new(Vec::new(), 3).unwrap();
            packer.include_checksum(true).unwrap();
            packer.write_all(tar).unwrap();
            packer.finish().unwrap()
        }
    }
}

/// A tar of entries whose names are written as they are.
fn tar(entries: &[(&str, EntryType, &[u8])]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, kind, content) in entries {
        let mut header = Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(*kind);
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        if matches!(kind, EntryType::Symlink | EntryType::Link) {
            header.set_link_name("/etc/passwd").unwrap();
        }
        header.set_cksum();
        tar.append(&header, *content).unwrap();
    }
    tar.into_inner().unwrap()
}

fn tar_of(files: &BTreeMap<String, Vec<u8>>) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, content.as_slice()).unwrap();
    }
    tar.into_inner().unwrap()
}

const SMALL: Bounds = Bounds {
    packed: 1 << 20,
    unpacked: fetch::Bounds {
        bytes: 1 << 20,
        members: 50,
    },
};

struct Bed {
    dir: tempfile::TempDir,
    host: Host,
}

impl Bed {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("var/lib")).unwrap();
        let host = Host::rooted(dir.path());
        Self { dir, host }
    }

    /// Opens these bytes under that digest.
    async fn open_as(&self, bytes: &[u8], digest: Digest, purpose: Purpose) -> Result<Bundle, Error> {
        let path = HostPath::fixed("/opt/bundle.tar.gz");
        self.host.write(&path, bytes, 0o644).unwrap();
        let at = At::Host(path);
        let wanted = OfflineArchive { at, digest };
        open(&self.host, &wanted, Arch::Amd64, purpose, SMALL).await
    }

    async fn open(&self, bytes: &[u8], purpose: Purpose) -> Result<Bundle, Error> {
        self.open_as(bytes, Digest::of(bytes), purpose).await
    }

    /// What is unpacked on the host, by its path below the one folder that there is; none where there is nothing at all.
    fn unpacked(&self) -> Option<BTreeMap<String, Vec<u8>>> {
        let entries = self.host.list(&FOLDER).unwrap_or_default();
        let folder = entries.iter().find(|name| !name.ends_with(".whole"))?;
        assert_eq!(entries.len(), 2, "{entries:?}");
        let root = self.dir.path().join(&FOLDER.as_str()[1..]).join(folder);
        let mut found = BTreeMap::new();
        let mut folders = vec![root.clone()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
                    found.insert(name, std::fs::read(path).unwrap());
                }
            }
        }
        Some(found)
    }

    fn is_empty(&self) -> bool {
        self.host.list(&FOLDER).unwrap_or_default().is_empty()
    }
}

#[tokio::test]
async fn na_r18_a_good_archive_is_unpacked_once_and_those_before_it_go() {
    let bed = Bed::new();
    let files = whole();
    for by in [By::Gzip, By::Zstd] {
        let bytes = packed(by, &tar_of(&files));
        let looked = bed.open(&bytes, Purpose::Look).await.unwrap();
        let before = bed.host.list(&FOLDER).unwrap_or_default();
        assert!(
            before.iter().all(|name| !name.starts_with(Digest::of(&bytes).hex())),
            "{before:?}"
        );
        let opened = bed.open(&bytes, Purpose::Use).await.unwrap();
        assert_eq!(bed.unpacked().unwrap(), files, "{by:?}");
        let runc = "runc/v1/runc.amd64";
        assert_eq!(looked.origin(runc), opened.origin(runc));
        // Its source is not looked for again.
        bed.host.remove(&HostPath::fixed("/opt/bundle.tar.gz")).unwrap();
        let at = At::Host(HostPath::fixed("/opt/bundle.tar.gz"));
        let digest = Digest::of(&bytes);
        let again = OfflineArchive { at, digest };
        assert!(is_unpacked(&bed.host, &again).unwrap());
        open(&bed.host, &again, Arch::Amd64, Purpose::Use, SMALL).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_cut_short_is_begun_anew() {
    let bed = Bed::new();
    let bytes = packed(By::Gzip, &tar_of(&whole()));
    let half = folder(&Digest::of(&bytes)).join("half").unwrap();
    bed.host.write(&half, b"x", 0o600).unwrap();
    bed.open(&bytes, Purpose::Use).await.unwrap();
    assert_eq!(bed.unpacked().unwrap(), whole());
}

/// Cut and changed at many places: another digest always, and where the digest is that of the damaged bytes, refused or of no matter.
#[tokio::test]
async fn a_damaged_archive_is_refused_wherever_it_is_damaged_and_leaves_nothing() {
    let files = whole();
    for by in [By::Gzip, By::Zstd] {
        let good = packed(by, &tar_of(&files));
        let bed = Bed::new();
        let mut damaged: Vec<(String, Vec<u8>)> = Vec::new();
        for at in (0..good.len())
            .step_by(good.len() / 90)
            .chain([good.len() - 1, good.len() - 5, 3])
        {
            damaged.push((format!("cut at {at}"), good[..at].to_vec()));
            for bit in [0x01, 0x80] {
                let mut bytes = good.clone();
                bytes[at] ^= bit;
                damaged.push((format!("{bit:#x} at {at}"), bytes));
            }
        }
        let (mut refused, all) = (0, damaged.len());
        for (number, (what, bytes)) in damaged.into_iter().enumerate() {
            let another = bed.open_as(&bytes, Digest::of(&good), Purpose::Use).await.unwrap_err();
            assert!(matches!(another, Error::Digest { .. }), "{by:?} {what}: {another}");
            assert!(bed.is_empty(), "{by:?} {what}");
            let looked = bed.open(&bytes, Purpose::Look).await;
            assert!(bed.is_empty(), "{by:?} {what}");
            // A disk that syncs takes its time: what is only looked at is read in the same way.
            if number % 5 != 0 && looked.is_err() {
                refused += 1;
                continue;
            }
            match bed.open(&bytes, Purpose::Use).await {
                Ok(_) => {
                    // A byte that means nothing, such as the time in a header of gzip.
                    assert!(!what.starts_with("cut") && looked.is_ok(), "{by:?} {what}");
                    assert_eq!(bed.unpacked().unwrap(), files, "{by:?} {what}");
                    clear(&bed.host);
                }
                Err(error) => {
                    refused += 1;
                    assert!(looked.is_err(), "{by:?} {what}: {error}");
                    assert!(bed.is_empty(), "{by:?} {what}: {error}");
                }
            }
        }
        assert!(refused + 20 > all, "only {refused} of {all} were refused");
    }
}

#[tokio::test]
async fn an_archive_that_would_do_harm_is_refused_and_leaves_nothing() {
    let good = tar_of(&whole());
    // Without the blocks that end it, so that more can follow.
    let good = &good[..good.len() - 1024];
    let large = vec![0; 2 << 20];
    let many: Vec<String> = (0..60).map(|number| format!("file-{number}")).collect();
    let many: Vec<(&str, EntryType, &[u8])> = many
        .iter()
        .map(|name| (name.as_str(), EntryType::Regular, &b"x"[..]))
        .collect();
    let one = |name, kind| tar(&[(name, kind, b"")]);
    for (what, more, said) in [
        ("up", one("../x", EntryType::Regular), "plain relative path"),
        ("up later", one("a/../../x", EntryType::Regular), "plain relative path"),
        ("absolute", one("/etc/x", EntryType::Regular), "plain relative path"),
        ("a link", one("l", EntryType::Symlink), "neither a file nor a folder: l"),
        ("a hard link", one("l", EntryType::Link), "neither a file nor a folder"),
        ("a device", one("d", EntryType::Char), "neither a file nor a folder"),
        ("a disk", one("d", EntryType::Block), "neither a file nor a folder"),
        ("a pipe", one("p", EntryType::Fifo), "neither a file nor a folder"),
        (
            "a bomb",
            tar(&[("b", EntryType::Regular, &large)]),
            "more than 1048576 bytes",
        ),
        ("too many", tar(&many), "more than 50 members"),
        (
            "a file where a folder is",
            tar(&[("runc", EntryType::Regular, b"x"), ("runc/y", EntryType::Regular, b"y")]),
            "can't put",
        ),
    ] {
        for by in [By::Gzip, By::Zstd] {
            let bed = Bed::new();
            let bytes = packed(by, &[good, &more].concat());
            let error = bed.open(&bytes, Purpose::Use).await.unwrap_err();
            let text = chain(&error);
            assert!(text.contains(said), "{what} {by:?}: {text}");
            assert!(bed.is_empty() && !bed.dir.path().join("x").exists(), "{what}");
        }
    }
    let bed = Bed::new();
    let huge = vec![7; (1 << 20) + 1];
    let error = bed.open(&huge, Purpose::Use).await.unwrap_err();
    assert!(matches!(error, Error::Large { .. }) && bed.is_empty(), "{error}");
    // Whole, and not a whole bundle.
    let mut files = whole();
    files.remove("runc/v1/runc.amd64");
    for purpose in [Purpose::Look, Purpose::Use] {
        let error = bed.open(&packed(By::Zstd, &tar_of(&files)), purpose).await.unwrap_err();
        assert!(
            matches!(&error, Error::Missing(missing) if *missing == ["runc/v1/runc.amd64"]),
            "{error}"
        );
        assert!(bed.is_empty());
    }
    files.remove(path::MANIFEST);
    for purpose in [Purpose::Look, Purpose::Use] {
        let error = bed.open(&packed(By::Gzip, &tar_of(&files)), purpose).await.unwrap_err();
        assert!(chain(&error).contains("manifest.json") && bed.is_empty(), "{error}");
    }
}

#[tokio::test]
async fn an_archive_comes_from_a_server_too() {
    use crate::fetch::tests::{Then, server};
    fn body() -> Vec<u8> {
        packed(By::Gzip, &tar_of(&whole()))
    }
    let server = server(|_, path| match path {
        "/b?sig=canary" => {
            let body = body();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            ([head.into_bytes(), body].concat(), Then::Close)
        }
        _ => (
            b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".to_vec(),
            Then::Close,
        ),
    })
    .await;
    let bed = Bed::new();
    let ask = async |path: &str, digest: Digest| {
        let at = At::Url(format!("{}{path}", server.url));
        let wanted = OfflineArchive { at, digest };
        open(&bed.host, &wanted, Arch::Amd64, Purpose::Use, SMALL).await
    };
    let error = ask("/b?sig=canary", Digest::of(b"another")).await.unwrap_err();
    assert!(matches!(error, Error::Digest { .. }) && bed.is_empty());
    let error = ask("/c?sig=canary", Digest::of(&body())).await.unwrap_err();
    assert!(chain(&error).contains("404") && !chain(&error).contains("canary") && bed.is_empty());
    ask("/b?sig=canary", Digest::of(&body())).await.unwrap();
    assert_eq!(bed.unpacked().unwrap(), whole());
}
