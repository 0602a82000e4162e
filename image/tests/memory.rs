//! A layer of 1 GB costs no more memory than a small one. Alone in its process, whose peak is what counts.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests: scratch files")]

use std::fs;
use std::io::{self, Read, Write};

use image::{Digest, unpack};
use sha2::{Digest as _, Sha256};

const GIGABYTE: u64 = 1 << 30;
/// What the whole agent may use meanwhile, in kB.
const BOUND: u64 = 64 << 10;

/// As many bytes as wanted, which don't pack to nothing.
struct Noise {
    left: u64,
    state: u64,
}

impl Read for Noise {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = buffer.len().min(usize::try_from(self.left).unwrap());
        for bytes in buffer[..length].chunks_mut(8) {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            bytes.copy_from_slice(&(self.state & 0x0f0f_0f0f_0f0f_0f0f).to_le_bytes()[..bytes.len()]);
        }
        self.left -= length as u64;
        Ok(length)
    }
}

/// A writer that hashes what passes.
struct Hashed<W>(W, Sha256);

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let written = self.0.write(buffer)?;
        self.1.update(&buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[test]
fn a_layer_of_a_gigabyte_is_unpacked_in_little_memory() {
    let scratch = tempfile::tempdir().unwrap();
    let packed = scratch.path().join("layer");
    let file = Hashed(fs::File::create(&packed).unwrap(), Sha256::new());
    let zstd = zstd::stream::write::Encoder::new(file, 1).unwrap();
    let mut archive = tar::Builder::new(Hashed(zstd, Sha256::new()));
    let mut header = tar::Header::new_gnu();
    header.set_size(GIGABYTE);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    let noise = Noise {
        left: GIGABYTE,
        state: 1,
    };
    archive.append_data(&mut header, "large", noise).unwrap();
    let Hashed(zstd, plain) = archive.into_inner().unwrap();
    let Hashed(_, hash) = zstd.finish().unwrap();
    let layer = unpack::Layer {
        digest: Digest::from_hash(hash),
        size: fs::metadata(&packed).unwrap().len(),
        diff_id: Digest::from_hash(plain),
    };

    let tree = scratch.path().join("tree");
    fs::create_dir(&tree).unwrap();
    unpack::apply(&tree, fs::File::open(&packed).unwrap(), &layer).unwrap();

    assert_eq!(fs::metadata(tree.join("large")).unwrap().len(), GIGABYTE);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < BOUND, "{peak} kB");
}
