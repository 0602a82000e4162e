//! The Butane that is understood: variant `flatcar`; users, files, folders, links, units. Any other key is an error.

use serde::Deserialize;

use crate::{Error, weight};

/// A parsed Butane file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bu {
    variant: String,
    version: String,
    #[serde(default)]
    pub(crate) passwd: Passwd,
    #[serde(default)]
    pub(crate) storage: Storage,
    #[serde(default)]
    pub(crate) systemd: Systemd,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Passwd {
    pub(crate) users: Vec<User>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct User {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) ssh_authorized_keys: Vec<String>,
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    pub(crate) password_hash: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Storage {
    pub(crate) files: Vec<File>,
    pub(crate) directories: Vec<Directory>,
    pub(crate) links: Vec<Link>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) mode: Option<Mode>,
    pub(crate) overwrite: Option<bool>,
    pub(crate) contents: Contents,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contents {
    pub(crate) inline: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Directory {
    pub(crate) path: String,
    pub(crate) mode: Option<Mode>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    pub(crate) path: String,
    pub(crate) target: String,
    pub(crate) overwrite: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Systemd {
    pub(crate) units: Vec<Unit>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unit {
    pub(crate) name: String,
    pub(crate) enabled: Option<bool>,
    pub(crate) mask: Option<bool>,
    pub(crate) contents: Option<String>,
    #[serde(default)]
    pub(crate) dropins: Vec<DropIn>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DropIn {
    pub(crate) name: String,
    pub(crate) contents: String,
}

const MODE: &str = "a mode is octal with a zero before it: write 0600, not 600 or 384";

/// A mode as people write it: octal, with a zero before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "serde_yaml_ng::Value")]
pub(crate) struct Mode(pub(crate) u32);

impl TryFrom<serde_yaml_ng::Value> for Mode {
    type Error = &'static str;

    /// YAML 1.2 takes `0600` for a text and `600` for six hundred, Butane's YAML takes them for 384 and 600.
    fn try_from(value: serde_yaml_ng::Value) -> Result<Self, Self::Error> {
        let bad = MODE;
        let text = value.as_str().and_then(|text| text.strip_prefix('0')).ok_or(bad)?;
        // The parser of numbers takes a sign.
        if !text.bytes().all(|digit| (b'0'..=b'7').contains(&digit)) {
            return Err(bad);
        }
        match u32::from_str_radix(text, 8) {
            Ok(mode) if (3..=4).contains(&text.len()) => Ok(Self(mode)),
            _ => Err(bad),
        }
    }
}

/// Reads a Butane file; `file` is its name in errors.
///
/// # Errors
/// Not the variant or version that is understood, or a key or value outside of the subset, named with its place.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Bu, Error> {
    weight::judge(bytes).map_err(|why| match why {
        weight::Heavy::Text(problem) => Error::file(file, problem),
        weight::Heavy::Yaml(why) => Error::file(file, told(&why)),
    })?;
    let bu: Bu = serde_yaml_ng::from_slice(bytes).map_err(|why| Error::file(file, told(&why)))?;
    if bu.variant != "flatcar" {
        return Err(Error::key("variant", file, "write flatcar"));
    }
    if bu.version != "1.0.0" && bu.version != "1.1.0" {
        return Err(Error::key("version", file, "write 1.1.0"));
    }
    Ok(bu)
}

/// What the parser says, without what stood in the file: it repeats keys, and values of a wrong type.
fn told(why: &serde_yaml_ng::Error) -> String {
    let place = why
        .location()
        .map(|at| format!(" (line {}, column {})", at.line(), at.column()))
        .unwrap_or_default();
    let text = why.to_string();
    // Before what is wrong it says where, by keys that may be anything.
    let says = |start: &str| {
        let at = text
            .split_once(": ")
            .filter(|(path, _)| !path.contains([' ', '`', '"']));
        [Some(text.as_str()), at.map(|(_, said)| said)]
            .into_iter()
            .flatten()
            .find_map(|said| said.strip_prefix(start))
            .map(|rest| rest.split(" at line ").next().unwrap_or(rest).to_owned())
    };
    let ours = |start: &str| says(start).map(|rest| format!("{start}{rest}"));
    if let Some((key, expected)) = says("unknown field `")
        .as_deref()
        .and_then(|rest| rest.rsplit_once("`, expected "))
    {
        let key = if is_key(key) {
            format!("`{key}`")
        } else {
            "a key".to_owned()
        };
        return format!("{key} is not understood: write {expected}{place}");
    }
    // The name is that of a field here.
    match ours("missing field `").or_else(|| ours("duplicate field `")) {
        Some(said) => format!("{said}{place}"),
        None if says(MODE).is_some() => format!("{MODE}{place}"),
        None => format!("it is not the Butane that is understood{place}"),
    }
}

/// Whether a key may be repeated: it is like one of Butane's, and not a line of whatever the file really is.
fn is_key(key: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    key.len() <= 64 && key.starts_with(|c: char| c.is_ascii_alphabetic()) && key.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> String {
        parse("x.bu", text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn a_key_is_repeated_only_if_it_is_like_one() {
        let head = "variant: flatcar\nversion: 1.1.0\n";
        let known = "expected one of `variant`, `version`, `passwd`, `storage`, `systemd`";
        let write = known.replace("expected", "write");
        let write = write.strip_prefix("write ").unwrap();
        assert_eq!(
            said(&format!("{head}kernel_arguments: {{}}\n")),
            format!("x.bu: `kernel_arguments` is not understood: write {write} (line 3, column 1)")
        );
        for key in [
            "root:*:20228:0:99999:7:::",
            "\"a canary\"",
            "\"canary`, expected x\"",
            "\"unknown field `canary`, expected \"",
            &"canary".repeat(20),
            "0canary",
        ] {
            let said = said(&format!("{head}{key}: {{}}\n"));
            assert!(
                said.starts_with("x.bu: a key is not understood: write one of `variant`"),
                "{said}"
            );
            assert!(said.ends_with("(line 3, column 1)"), "{said}");
        }
        // A link to another file, by mistake.
        let said = said("root:*:20228:0:99999:7:::\ncanary:!:1::::::\n");
        assert!(
            said.starts_with("x.bu: a key is not understood: ") && said.ends_with("(line 1, column 1)"),
            "{said}"
        );
    }

    #[test]
    fn a_value_that_reads_like_an_error_is_not_repeated() {
        let head = "variant: flatcar\nversion: 1.1.0\n";
        for body in [
            "storage: 'unknown field `canary`, expected x'",
            "storage: {files: 'missing field `canary`'}",
            "storage: {files: [{path: /x, contents: {inline: x}, mode: {canary: 1, canary: 2}}]}",
            "'x: missing field `canary`': 1",
        ] {
            let said = said(&format!("{head}{body}\n"));
            assert!(!said.contains("canary"), "{said}");
        }
    }

    #[test]
    fn a_mode_has_only_octal_digits() {
        let mode = |text: &str| Mode::try_from(serde_yaml_ng::Value::from(text));
        assert_eq!((mode("0644"), mode("01777")), (Ok(Mode(0o644)), Ok(Mode(0o1777))));
        for bad in ["0+77", "0-77", "0 77", "077 ", "0888", "00", "0", "", "0xff", "0٧٧٧"] {
            assert!(mode(bad).is_err(), "{bad}");
        }
    }
}
