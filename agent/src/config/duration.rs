//! Durations as Go writes them, because the file's other readers are written in Go.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, de};

/// A duration of the file: a string such as `1h30m`, or a whole number of nanoseconds. Never negative.
/// Source: Go's `time.ParseDuration`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct GoDuration(pub(super) Duration);

/// What a duration has to look like.
const EXPECTED: &str = "expected a duration such as \"10m\" or \"1h30m\", zero or more";

/// Reads `text` as Go's `time.ParseDuration` does; a negative one is none of ours.
fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    if rest.is_empty() {
        return None;
    }
    let mut nanoseconds: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit: u128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        nanoseconds = nanoseconds.checked_add(whole.checked_mul(unit)?)?;
        // More than 18 digits of a fraction are below a nanosecond of any unit.
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
            nanoseconds = nanoseconds.checked_add(fraction.parse::<u128>().ok()? * unit / scale)?;
        }
        rest = after;
    }
    // Go's durations are 64-bit, about 292 years.
    i64::try_from(nanoseconds)
        .ok()
        .and_then(|nanoseconds| u64::try_from(nanoseconds).ok())
        .map(Duration::from_nanos)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

struct Visitor;

impl de::Visitor<'_> for Visitor {
    type Value = GoDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration such as \"10m\" or \"1h30m\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<GoDuration, E> {
        if text.is_empty() {
            return Ok(GoDuration::default());
        }
        parse(text).map(GoDuration).ok_or_else(|| E::custom(EXPECTED))
    }

    fn visit_u64<E: de::Error>(self, nanoseconds: u64) -> Result<GoDuration, E> {
        match i64::try_from(nanoseconds) {
            Ok(_) => Ok(GoDuration(Duration::from_nanos(nanoseconds))),
            Err(_) => Err(E::custom(EXPECTED)),
        }
    }

    fn visit_i64<E: de::Error>(self, nanoseconds: i64) -> Result<GoDuration, E> {
        u64::try_from(nanoseconds)
            .map(|nanoseconds| GoDuration(Duration::from_nanos(nanoseconds)))
            .map_err(|_| E::custom(EXPECTED))
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_in_go() {
        for (text, milliseconds) in [
            ("0", 0),
            ("10m", 600_000),
            ("+5s", 5_000),
            ("1h30m", 5_400_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("300ms", 300),
            ("2000us", 2),
            ("1000µs", 1),
            ("1h1h", 7_200_000),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(parse("1ns"), Some(Duration::from_nanos(1)));
    }

    #[test]
    fn other_texts_are_no_durations() {
        for text in [
            "",
            "10",
            "-5s",
            "m",
            "10 m",
            "1d",
            ".",
            ".s",
            "1.2.3s",
            "9999999999h",
            "10M",
            "1e3s",
        ] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
