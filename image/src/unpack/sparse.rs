//! Files with holes, as GNU tar writes them into pax archives. Source: GNU tar manual, "Storing Sparse Files", formats 0.0, 0.1 and 1.0.
//! (The older format, with an entry type of its own, is the `tar` crate's.)
//!
//! ```text
//! 0.0, 0.1   the map is in the extensions; the data follow one another
//! 1.0        the data begin with the map: a number of pairs, then each offset and length, a line each, up to a full block
//! ```

use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};

/// A block of an archive, in bytes.
const BLOCK: u64 = 512;
/// The most pairs of a map: they are held in memory.
const PAIRS: u64 = 1 << 20;
/// The longest line of a map: a number of 64 bits.
const LINE: usize = 20;

/// A file with holes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Sparse {
    /// Its name, where the entry bears another.
    pub(super) name: Option<Vec<u8>>,
    size: Option<u64>,
    major: u64,
    /// Offsets and lengths, as far as they are in the extensions.
    pairs: Vec<(u64, u64)>,
    offset: Option<u64>,
    is_one: bool,
}

impl Sparse {
    /// Takes up one extension; those of others are passed over.
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let Some(key) = key.strip_prefix(b"GNU.sparse.") else {
            return Ok(());
        };
        self.is_one = true;
        match key {
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.size = Some(number(value)?),
            b"major" => self.major = number(value)?,
            b"offset" => self.offset = Some(number(value)?),
            b"numbytes" => {
                let offset = self.offset.take().ok_or_else(|| bad("a length without an offset"))?;
                self.pairs.push((offset, number(value)?));
            }
            b"map" => {
                let numbers: Vec<u64> = match value {
                    b"" => Vec::new(),
                    list => list.split(|byte| *byte == b',').map(number).collect::<Result<_, _>>()?,
                };
                if !numbers.len().is_multiple_of(2) {
                    return Err(bad("an offset without a length"));
                }
                self.pairs = numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            }
            // How many pairs there are, and the version's second number.
            _ => {}
        }
        Ok(())
    }

    /// Itself, if any extension said so.
    pub(super) fn if_one(self) -> Option<Self> {
        self.is_one.then_some(self)
    }

    /// Writes the file: what the map names, and holes between.
    pub(super) fn write(&self, mut from: impl Read, to: &mut File) -> io::Result<()> {
        let size = self.size.ok_or_else(|| bad("no size"))?;
        let pairs = match self.major {
            0 => self.pairs.clone(),
            1 => map(&mut from)?,
            _ => return Err(bad("a version that is not known")),
        };
        let mut end = 0;
        for (offset, length) in pairs {
            let next = offset.checked_add(length).filter(|next| offset >= end && *next <= size);
            end = next.ok_or_else(|| bad("a map that leads outside the file"))?;
            to.seek(SeekFrom::Start(offset))?;
            if io::copy(&mut (&mut from).take(length), to)? != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        to.set_len(size)
    }
}

/// The map at the beginning of the data.
fn map(from: &mut impl Read) -> io::Result<Vec<(u64, u64)>> {
    let mut read = 0;
    let mut line = || {
        let mut digits = Vec::new();
        loop {
            let mut byte = [0];
            from.read_exact(&mut byte)?;
            read += 1;
            match byte {
                [b'\n'] => return number(&digits),
                _ if digits.len() == LINE => return Err(bad("a line of its map that is too long")),
                [digit] => digits.push(digit),
            }
        }
    };
    let count = line()?;
    if count > PAIRS {
        return Err(bad("a map that is too long"));
    }
    let mut pairs = Vec::new();
    for _ in 0..count {
        pairs.push((line()?, line()?));
    }
    let rest = (BLOCK - read % BLOCK) % BLOCK;
    if io::copy(&mut from.take(rest), &mut io::sink())? != rest {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(pairs)
}

fn number(text: &[u8]) -> io::Result<u64> {
    let text = str::from_utf8(text).map_err(|_| bad("what is no number"))?;
    text.parse().map_err(|_| bad("what is no number"))
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("a file with holes has {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(extensions: &[(&str, &str)], data: &[u8]) -> io::Result<Vec<u8>> {
        let mut sparse = Sparse::default();
        for (key, value) in extensions {
            sparse.take(key.as_bytes(), value.as_bytes())?;
        }
        let mut file = tempfile::tempfile()?;
        sparse.write(data, &mut file)?;
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    const SIZE: (&str, &str) = ("GNU.sparse.realsize", "8");
    const ONE: (&str, &str) = ("GNU.sparse.major", "1");

    #[test]
    fn holes_are_empty_and_the_rest_is_in_its_place() {
        let expected = b"\0\0ab\0c\0\0";
        let pairs = [
            ("GNU.sparse.offset", "2"),
            ("GNU.sparse.numbytes", "2"),
            ("GNU.sparse.offset", "5"),
            ("GNU.sparse.numbytes", "1"),
        ];
        assert_eq!(made(&[&[SIZE], &pairs[..]].concat(), b"abc").unwrap(), expected);
        assert_eq!(made(&[SIZE, ("GNU.sparse.map", "2,2,5,1")], b"abc").unwrap(), expected);
        let mut data = b"2\n2\n2\n5\n1\n".to_vec();
        data.resize(512, 0);
        data.extend(b"abc");
        assert_eq!(made(&[SIZE, ONE], &data).unwrap(), expected);
        assert_eq!(made(&[SIZE, ("GNU.sparse.map", "")], b"").unwrap(), [0; 8]);
    }

    #[test]
    fn a_map_that_cannot_be_is_refused() {
        for map in ["7,2", "2,2,3,1", "1", "18446744073709551615,2", "x,1", "-1,2", "1,,2,3"] {
            assert!(made(&[SIZE, ("GNU.sparse.map", map)], &[0; 64]).is_err(), "{map}");
        }
        assert!(made(&[("GNU.sparse.map", "0,1")], b"a").is_err(), "no size");
        assert!(made(&[SIZE, ("GNU.sparse.map", "0,4")], b"abc").is_err(), "cut off");
        assert!(made(&[SIZE, ("GNU.sparse.major", "2")], b"").is_err());
        for data in [
            &b"1048577\n"[..],
            b"1\n0\n",
            b"111111111111111111111\n",
            b"1\n0\n1\nx",
            b"",
        ] {
            assert!(made(&[SIZE, ONE], data).is_err(), "{data:?}");
        }
    }
}
