//! Release archives and bundles: packed tars of which only plain files count.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;
use tar::Archive;

/// Why an archive isn't taken.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// It can't be read to its end.
    #[error("not a whole tar, packed by gzip or zstd")]
    Broken(#[source] io::Error),
    /// A member has a name that could lead elsewhere.
    #[error("the archive has a member whose name is not a plain relative path")]
    Name,
    /// A member is no file.
    #[error("the archive has a member that is neither a file nor a folder: {0}")]
    Kind(String),
    /// It unpacks to more than it may.
    #[error("it unpacks to more than {limit} bytes")]
    Large {
        /// In bytes.
        limit: u64,
    },
    /// It has more members than it may.
    #[error("it has more than {limit} members")]
    Many {
        /// How many.
        limit: u64,
    },
    /// A member could not be put in its place.
    #[error("can't put {name} in its place")]
    Place {
        /// The member.
        name: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// How much an archive may come to.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Unpacked, in bytes, headers and all.
    pub bytes: u64,
    /// Members of any kind.
    pub members: u64,
}

impl Bounds {
    /// Of a release: the largest, of CNI plugins, unpacks to some 100 MB.
    const RELEASE: Self = Self {
        bytes: 4 << 30,
        members: 10_000,
    };
}

/// Hands each regular file of a gzipped tar to `take`, with its plain name.
///
/// # Errors
/// The first thing that isn't as it must be. What `take` has taken by then stays with it.
pub fn regular_files(
    archive: impl Read,
    take: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<(), Refused> {
    files(MultiGzDecoder::new(archive), Bounds::RELEASE, take)
}

/// The same, of a tar that gzip or zstd has packed.
///
/// # Errors
/// As [`regular_files`].
pub fn bounded_files(
    mut archive: impl Read,
    bounds: Bounds,
    take: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<(), Refused> {
    let mut begin = [0; 4];
    archive.read_exact(&mut begin).map_err(Refused::Broken)?;
    let whole = io::Cursor::new(begin).chain(archive);
    if begin == ZSTD {
        files(zstd::Decoder::new(whole).map_err(Refused::Broken)?, bounds, take)
    } else {
        files(MultiGzDecoder::new(whole), bounds, take)
    }
}

/// How a frame of zstd begins. Source: RFC 8878, 3.1.1.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A reader that fails behind so many bytes, and does not end there as if nothing followed.
struct Bounded<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .saturating_add(1)
            .min(into.len());
        let read = self.inner.read(&mut into[..length])?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(too_large)?;
        Ok(read)
    }
}

fn too_large() -> io::Error {
    io::ErrorKind::FileTooLarge.into()
}

/// Told from other breaks of a stream.
fn broken(source: io::Error, bounds: Bounds) -> Refused {
    if source.kind() == io::ErrorKind::FileTooLarge {
        Refused::Large { limit: bounds.bytes }
    } else {
        Refused::Broken(source)
    }
}

fn files(
    unpacked: impl Read,
    bounds: Bounds,
    mut take: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
) -> Result<(), Refused> {
    let mut unpacked = Bounded {
        inner: unpacked,
        left: bounds.bytes,
    };
    let mut members = 0;
    let mut archive = Archive::new(&mut unpacked);
    let failed = |source| broken(source, bounds);
    for entry in archive.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        members += 1;
        if members > bounds.members {
            return Err(Refused::Many { limit: bounds.members });
        }
        let name = plain(&entry.path_bytes()).ok_or(Refused::Name)?;
        let kind = entry.header().entry_type();
        if kind.is_file() || kind.is_contiguous() {
            let mut content = Content {
                inner: &mut entry,
                broke: None,
            };
            let taken = take(&name, &mut content);
            // What broke is the archive, and not its place.
            match (content.broke, taken) {
                (Some(source), _) => return Err(failed(source)),
                (None, Err(source)) => return Err(Refused::Place { name, source }),
                (None, Ok(())) => {}
            }
        } else if !kind.is_dir() && !kind.is_pax_global_extensions() {
            return Err(Refused::Kind(name));
        }
    }
    // The checksum lies behind the last member.
    io::copy(&mut unpacked, &mut io::sink()).map(drop).map_err(failed)
}

/// A member's bytes, and what kept them from coming.
struct Content<'a> {
    inner: &'a mut dyn Read,
    broke: Option<io::Error>,
}

impl Read for Content<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.inner.read(into).map_err(|error| {
            let told = io::Error::new(error.kind(), "the archive broke");
            self.broke = Some(error);
            told
        })
    }
}

/// The name without `./` in front and `/` at its end, where it leads down and nowhere else.
fn plain(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok()?;
    if name == "." || name == "./" {
        return Some(String::new());
    }
    let name = name.strip_prefix("./").unwrap_or(name);
    let name = name.strip_suffix('/').unwrap_or(name);
    let clean = !name.contains(['\\', '\0']) && name.split('/').all(|part| !["", ".", ".."].contains(&part));
    clean.then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use tar::EntryType;

    use super::*;

    fn archive(entries: &[(&str, EntryType)]) -> Vec<u8> {
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
        for (name, kind) in entries {
            let mut header = tar::Header::new_gnu();
            // `set_path` would refuse what an attacker writes.
            header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_entry_type(*kind);
            header.set_size(if *kind == EntryType::Regular { 3 } else { 0 });
            header.set_mode(0o755);
            if *kind == EntryType::Symlink {
                header.set_link_name("/etc").unwrap();
            }
            header.set_cksum();
            tar.append(&header, &b"abc"[..if *kind == EntryType::Regular { 3 } else { 0 }])
                .unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap()
    }

    fn names(bytes: &[u8]) -> Result<Vec<String>, Refused> {
        let mut names = Vec::new();
        regular_files(bytes, |name, content| {
            assert_eq!(io::read_to_string(content)?, "abc");
            names.push(name.to_owned());
            Ok(())
        })?;
        Ok(names)
    }

    #[test]
    fn files_are_handed_over_by_their_plain_names() {
        use EntryType::{Directory, Regular};
        let bytes = archive(&[
            ("./", Directory),
            ("./bridge", Regular),
            ("bin/", Directory),
            ("bin/ctr", Regular),
        ]);
        assert_eq!(names(&bytes).unwrap(), ["bridge", "bin/ctr"]);
    }

    #[test]
    fn names_that_lead_elsewhere_and_links_are_refused() {
        for name in ["../x", "a/../../x", "/etc/passwd", "a//b", "a\\b", "a/./b"] {
            let error = names(&archive(&[(name, EntryType::Regular)])).unwrap_err();
            assert!(matches!(error, Refused::Name), "{name}: {error}");
        }
        let error = names(&archive(&[("link", EntryType::Symlink)])).unwrap_err();
        assert!(matches!(&error, Refused::Kind(name) if name == "link"), "{error}");
    }

    #[test]
    fn a_truncated_archive_is_broken_not_short() {
        let bytes = archive(&[("a", EntryType::Regular), ("b", EntryType::Regular)]);
        for end in [5, 10, bytes.len() / 2, bytes.len() - 1] {
            let error = names(&bytes[..end]).unwrap_err();
            assert!(matches!(error, Refused::Broken(_)), "{end}: {error}");
        }
    }
}
