//! Whether an image has room on containerd's disk: numbers in, a verdict out.
//!
//! It is asked before a byte is pulled: a pull that stops half-way costs the node its disk until it is taken back, and one
//! that fits barely makes kubelet evict pods because of the agent.

use image::oci::{Descriptor, media};
use nix::sys::statvfs::Statvfs;

/// How much larger a compressed layer is when it is unpacked. Source: our own image, measured: 5.65 MB and 12.5 MB as
/// shipped (2.2 times), 8.65 MB and 25.0 MB in a build for tests (2.9 times); containerd keeps both.
const UNPACKED: u64 = 3;
/// Files of one layer. Source: our own image has one layer of 52 entries.
const FILES: u64 = 100;
/// Files and folders that containerd itself makes for a blob or a snapshot.
const OWN: u64 = 8;
/// Shares of free bytes, in percent, below which kubelet evicts pods: `imagefs.available`, then `nodefs.available`.
/// Source: kubernetes/kubernetes: pkg/kubelet/eviction/defaults_linux.go, `DefaultEvictionHard`.
const BYTES_KEPT: [u64; 2] = [15, 10];
/// The same for `nodefs.inodesFree` and `imagefs.inodesFree`. Source: as above.
const INODES_KEPT: [u64; 1] = [5];

/// What an image still needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    bytes: u64,
    inodes: u64,
}

/// What there is of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stock {
    all: u64,
    free: u64,
}

/// What a file system has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disk {
    bytes: Stock,
    /// None where files are not counted, as on btrfs.
    inodes: Option<Stock>,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoRoom {
    /// The disk is too full.
    #[error("it needs about {needed} {of}, and {free} are free")]
    Full {
        /// Bytes or inodes.
        of: Of,
        /// How many the image needs.
        needed: u64,
        /// How many there are.
        free: u64,
    },
    /// It would fit, and kubelet would evict pods then.
    #[error(
        "it needs about {needed} {of} and {free} are free: less than {percent} % of {all} would be left, and kubelet would evict pods"
    )]
    Pressure {
        /// Bytes or inodes.
        of: Of,
        /// How many the image needs.
        needed: u64,
        /// How many there are.
        free: u64,
        /// How many the disk has in all.
        all: u64,
        /// kubelet's threshold.
        percent: u64,
    },
}

/// What a disk can be short of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Room for contents.
    Bytes,
    /// Room for names.
    Inodes,
}

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bytes => "bytes",
            Self::Inodes => "inodes",
        })
    }
}

impl Need {
    /// A blob that is not here.
    pub(super) fn blob(&mut self, blob: &Descriptor) {
        self.bytes = self.bytes.saturating_add(blob.size);
        self.inodes += OWN;
    }

    /// A layer that is not unpacked.
    pub(super) fn unpacked(&mut self, layer: &Descriptor) {
        let plain = layer.media_type == media::LAYER_TAR;
        let bytes = layer.size.saturating_mul(if plain { 1 } else { UNPACKED });
        self.bytes = self.bytes.saturating_add(bytes);
        self.inodes += FILES + OWN;
    }

    /// Whether it fits, and leaves pods where they are. A disk that is below kubelet's threshold already is not the
    /// image's fault.
    pub(super) fn fits(self, disk: Disk) -> Result<(), NoRoom> {
        enough(Of::Bytes, self.bytes, disk.bytes, &BYTES_KEPT)?;
        match disk.inodes {
            Some(inodes) => enough(Of::Inodes, self.inodes, inodes, &INODES_KEPT),
            None => Ok(()),
        }
    }
}

fn enough(of: Of, needed: u64, stock: Stock, kept: &[u64]) -> Result<(), NoRoom> {
    let Stock { all, free } = stock;
    let Some(left) = free.checked_sub(needed) else {
        return Err(NoRoom::Full { of, needed, free });
    };
    if needed == 0 {
        return Ok(());
    }
    let below = |free: u64, percent: u64| u128::from(free) * 100 < u128::from(all) * u128::from(percent);
    match kept
        .iter()
        .find(|percent| below(left, **percent) && !below(free, **percent))
    {
        Some(percent) => Err(NoRoom::Pressure {
            of,
            needed,
            free,
            all,
            percent: *percent,
        }),
        None => Ok(()),
    }
}

impl From<Statvfs> for Disk {
    fn from(found: Statvfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        let inodes = Stock {
            all: found.files(),
            free: found.files_available(),
        };
        Self {
            bytes: Stock {
                all: bytes(found.blocks()),
                free: bytes(found.blocks_available()),
            },
            inodes: (inodes.all > 0).then_some(inodes),
        }
    }
}

#[cfg(test)]
mod tests {
    use image::Digest;

    use super::*;

    fn layer(media_type: &str, size: u64) -> Descriptor {
        Descriptor {
            media_type: media_type.to_owned(),
            digest: Digest::of(b"x"),
            size,
            platform: None,
            annotations: Default::default(),
        }
    }

    #[test]
    fn fc_u24_a_layer_needs_room_as_a_blob_and_unpacked_in_bytes_and_inodes() {
        let mut need = Need::default();
        need.blob(&layer(media::LAYER_GZIP, 100));
        need.unpacked(&layer(media::LAYER_GZIP, 100));
        assert_eq!(
            need,
            Need {
                bytes: 400,
                inodes: 116
            }
        );
        need.unpacked(&layer(media::LAYER_TAR, 1000));
        assert_eq!(need.bytes, 1400);
        need.blob(&layer(media::LAYER_GZIP, u64::MAX));
        assert_eq!(need.bytes, u64::MAX);
    }

    #[test]
    fn fc_u23_an_image_is_refused_where_it_does_not_fit_or_would_have_pods_evicted() {
        let stock = |all, free| Stock { all, free };
        let uncounted = |all, free| Disk {
            bytes: stock(all, free),
            inodes: None,
        };
        let counted = |all, free| Disk {
            bytes: stock(1_000_000, 900_000),
            inodes: Some(stock(all, free)),
        };
        let need = |bytes, inodes| Need { bytes, inodes };
        for (need, disk, verdict) in [
            (need(100, 10), uncounted(1000, 900), ""),
            (need(0, 0), uncounted(1000, 0), ""),
            (
                need(100, 10),
                uncounted(1000, 99),
                "it needs about 100 bytes, and 99 are free",
            ),
            (need(u64::MAX, 0), uncounted(u64::MAX, u64::MAX), "15 %"),
            // Just at a threshold, and just below.
            (need(100, 10), uncounted(1000, 250), ""),
            (
                need(101, 10),
                uncounted(1000, 250),
                "less than 15 % of 1000 would be left",
            ),
            // Below one already: only the next counts.
            (need(20, 10), uncounted(1000, 140), ""),
            (
                need(50, 10),
                uncounted(1000, 140),
                "less than 10 % of 1000 would be left",
            ),
            (need(50, 10), uncounted(1000, 90), ""),
            (need(1, 100), counted(1000, 900), ""),
            (
                need(1, 100),
                counted(1000, 99),
                "it needs about 100 inodes, and 99 are free",
            ),
            (
                need(1, 100),
                counted(1000, 149),
                "100 inodes and 149 are free: less than 5 % of 1000",
            ),
            (need(1, 10), counted(1000, 40), ""),
        ] {
            let said = need
                .fits(disk)
                .map_or_else(|error| error.to_string(), |()| String::new());
            assert!(
                said.contains(verdict) && said.is_empty() == verdict.is_empty(),
                "{need:?} {disk:?}: {said}"
            );
        }
    }
}
