//! How much a parser would make of a Butane file, judged before it does: brackets within brackets take it time that grows
//! with the square of their depth, and an alias repeats what it stands for.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// The most bytes of a file.
const SIZE: usize = 1 << 20;
/// The most brackets and braces that may be open at once, those of texts included.
const OPEN: usize = 64;
/// The most bytes that may come of it, each value counted as a few of its own.
const MADE: usize = 16 << 20;
const VALUE: usize = 16;

/// Why a file is not parsed.
pub(crate) enum Heavy {
    /// What is wrong, and what to write instead.
    Text(&'static str),
    /// It is no YAML.
    Yaml(serde_yaml_ng::Error),
}

/// Judges the bytes of a file.
///
/// # Errors
/// It is too large, too deep, or no YAML.
pub(crate) fn judge(bytes: &[u8]) -> Result<(), Heavy> {
    if bytes.len() > SIZE {
        return Err(Heavy::Text("it has more than 1 MiB: write several, or less inline"));
    }
    if depth(bytes) > OPEN {
        return Err(Heavy::Text(
            "it has more than 64 brackets one in another: close them, or write lines with `- `",
        ));
    }
    let made = Made { left: Cell::new(MADE) };
    match made.deserialize(serde_yaml_ng::Deserializer::from_slice(bytes)) {
        Ok(()) => Ok(()),
        Err(_) if made.left.get() == 0 => Err(Heavy::Text(
            "its aliases make more than 16 MiB of it: write fewer `*name`",
        )),
        Err(why) => Err(Heavy::Yaml(why)),
    }
}

/// The most brackets and braces that are open at once. What stands in quotes and comments is none of them; of the text of
/// a block, what looks like the beginning of a list or map is one: more is counted than there is, and not less.
fn depth(bytes: &[u8]) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    // The last byte that is no blank, an end of line where none is open; and the first of the word that it is in.
    let (mut before, mut word) = (b'\n', b'\n');
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let tagged = matches!(word, b'&' | b'!');
        let within = open > 0 && matches!(before, b'[' | b'{' | b',');
        let starts = within || tagged || matches!(before, b'\n' | b'-' | b':' | b'?');
        let blank = |at: usize| bytes.get(at).is_none_or(u8::is_ascii_whitespace);
        let begins = at == 0 || blank(at - 1);
        match byte {
            b'#' if begins => {
                at += bytes[at..].iter().take_while(|byte| **byte != b'\n').count();
                continue;
            }
            b'"' | b'\'' if starts => at = end_of_quoted(bytes, at),
            b'[' | b'{' if open > 0 || starts => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' => open = open.saturating_sub(1),
            _ => {}
        }
        if byte == b'\n' && open == 0 {
            (before, word) = (byte, byte);
        } else if !byte.is_ascii_whitespace() {
            before = byte;
            if begins || !tagged {
                word = byte;
            }
        }
        at += 1;
    }
    deepest
}

/// Where the quote closes that opens here, or the end.
fn end_of_quoted(bytes: &[u8], open: usize) -> usize {
    let quote = bytes[open];
    let mut at = open + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'\\' if quote == b'"' => at += 1,
            _ if byte == quote => break,
            _ => {}
        }
        at += 1;
    }
    at
}

/// Walks a file as the parser would, and keeps nothing.
struct Made {
    left: Cell<usize>,
}

impl Made {
    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().saturating_sub(VALUE + bytes);
        self.left.set(left);
        if left == 0 { Err(E::custom("too large")) } else { Ok(()) }
    }
}

impl<'de> DeserializeSeed<'de> for &Made {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for &Made {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("YAML")
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.take(0)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.take(0)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.take(0)
    }

    fn visit_i128<E: Error>(self, _: i128) -> Result<(), E> {
        self.take(0)
    }

    fn visit_u128<E: Error>(self, _: u128) -> Result<(), E> {
        self.take(0)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.take(0)
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.take(0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.take(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        self.take(0)?;
        while list.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        self.take(0)?;
        while map.next_key_seed(self)?.is_some() {
            map.next_value_seed(self)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    /// What is said, which must not take long.
    fn said(text: &str) -> Option<&'static str> {
        let began = Instant::now();
        let judged = judge(text.as_bytes());
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        match judged {
            Ok(()) => None,
            Err(Heavy::Text(said)) => Some(said),
            Err(Heavy::Yaml(_)) => Some("no YAML"),
        }
    }

    #[test]
    fn what_nests_too_deeply_is_refused_at_once() {
        for piece in [
            "[", "{", "[ ", "{a: ", "[\"]\",", "[ ']', ", "[it's, ", "[\n", "[ # ]\n", "[&a ", "[!a ", "[!!seq ",
            "- [", "{? ",
        ] {
            for head in ["", "a: ", "- ", "a: &b ", "a: !!seq ", "\"a\": "] {
                let text = format!("{head}{}", piece.repeat(200_000 / piece.len()));
                assert_eq!(
                    said(&text).and_then(|said| said.split(':').next()),
                    Some("it has more than 64 brackets one in another"),
                    "{head}{piece}"
                );
            }
        }
    }

    #[test]
    fn what_nests_a_little_or_in_texts_alone_is_not() {
        let deep = "[".repeat(64) + &"]".repeat(64);
        assert_eq!(said(&format!("a: {deep}")), None);
        let colours = "  echo \\033[31m {x \"[[\" # [[[\n".repeat(1000);
        assert_eq!(said(&format!("a: |\n{colours}")), None);
        let json = "  {\"a\": [{\"]\": \"[\"}], 'b': {}}\n".repeat(1000);
        assert_eq!(said(&format!("a: |\n{json}b: 'it''s ['\n# [[[\n")), None);
        assert_eq!(said(&"- [a, it's, \"b]\"]\n".repeat(10_000)), None);
    }

    #[test]
    fn what_is_large_or_made_large_by_aliases_is_refused_at_once() {
        let start = |text: &str| said(text).and_then(|said| said.split(':').next());
        assert_eq!(start(&" ".repeat(SIZE + 1)), Some("it has more than 1 MiB"));
        let aliases = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a, ".repeat(100_000));
        assert_eq!(start(&aliases), Some("its aliases make more than 16 MiB of it"));
        let mut laughs = "a0: &a0 [x, x]\n".to_owned();
        for level in 1..40 {
            let below = level - 1;
            laughs += &format!("a{level}: &a{level} [*a{below}, *a{below}]\n");
        }
        assert!(said(&laughs).is_some());
        for slow in [
            "- ", "? ", "a: ", "&a ", "!a ", "\"", "'", "a:\n ", "*a ", "- \n", "|\n ",
        ] {
            let _ = said(&slow.repeat(SIZE / slow.len()));
        }
        assert_eq!(said(&format!("a: {}", "x".repeat(SIZE - 3))), None);
    }
}
