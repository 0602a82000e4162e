//! A layer's archive on its way out of its packing: read once, by one thread, for several readers.

use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;

/// Bytes of a piece, and pieces that may wait for a reader: 2 MB for each.
const PIECE: usize = 256 << 10;
const WAITING: usize = 8;

/// A part of the archive; or why there is no more of it.
type Piece = io::Result<Arc<[u8]>>;

/// One reader's end.
pub(super) struct Plain {
    pieces: Receiver<Piece>,
    /// The piece that is being read, and how much of it was.
    piece: Arc<[u8]>,
    read: usize,
}

/// A way from the feeder to one reader.
pub(super) fn pipe() -> (SyncSender<Piece>, Plain) {
    let (send, pieces) = sync_channel(WAITING);
    let plain = Plain {
        pieces,
        piece: Arc::new([]),
        read: 0,
    };
    (send, plain)
}

/// Unpacks until the end, an error, or until the first of the readers has gone. Only that one is told of the error.
pub(super) fn feed(packed: impl Read, readers: &[SyncSender<Piece>]) {
    let tell = |error| readers.first().map(|reader| reader.send(Err(error)));
    let mut plain = match decoder(BufReader::with_capacity(64 << 10, packed)) {
        Ok(plain) => plain,
        Err(error) => return drop(tell(error)),
    };
    loop {
        let mut piece = Vec::with_capacity(PIECE);
        let outcome = plain.by_ref().take(PIECE as u64).read_to_end(&mut piece);
        // What came before the error is part of the archive.
        let piece: Arc<[u8]> = piece.into();
        if !piece.is_empty()
            && readers
                .iter()
                .any(|reader| reader.send(Ok(Arc::clone(&piece))).is_err())
        {
            return;
        }
        match outcome {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => return drop(tell(error)),
        }
    }
}

/// Media types lie now and then; the first bytes don't.
fn decoder<'a, R: BufRead + 'a>(mut packed: R) -> io::Result<Box<dyn Read + 'a>> {
    let head = packed.fill_buf()?;
    Ok(if head.starts_with(&[0x1f, 0x8b]) {
        Box::new(flate2::bufread::MultiGzDecoder::new(packed))
    } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(zstd::stream::read::Decoder::with_buffer(packed)?)
    } else {
        Box::new(packed)
    })
}

impl Plain {
    /// The digest of all that comes.
    pub(super) fn digest(self) -> Digest {
        let mut hash = Sha256::new();
        for piece in self.pieces.into_iter().flatten() {
            hash.update(&piece);
        }
        Digest::from_hash(hash)
    }
}

impl Read for Plain {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.read == self.piece.len() {
            match self.pieces.recv() {
                Ok(piece) => (self.piece, self.read) = (piece?, 0),
                Err(_) => return Ok(0),
            }
        }
        let length = (self.piece.len() - self.read).min(buffer.len());
        buffer[..length].copy_from_slice(&self.piece[self.read..self.read + length]);
        self.read += length;
        Ok(length)
    }
}
