//! The Butane that is understood: variant `flatcar`; users, files, folders, links, units. Any other key is an error.

use serde::Deserialize;

use crate::Error;

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

/// A mode as people write it: octal, with a zero before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "serde_yaml_ng::Value")]
pub(crate) struct Mode(pub(crate) u32);

impl TryFrom<serde_yaml_ng::Value> for Mode {
    type Error = &'static str;

    /// YAML 1.2 takes `0600` for a text and `600` for six hundred, Butane's YAML takes them for 384 and 600.
    fn try_from(value: serde_yaml_ng::Value) -> Result<Self, Self::Error> {
        let bad = "a mode is octal with a zero before it: write 0600, not 600 or 384";
        let text = value.as_str().and_then(|text| text.strip_prefix('0')).ok_or(bad)?;
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
    let bu: Bu = serde_yaml_ng::from_slice(bytes).map_err(|why| Error::file(file, told(&why)))?;
    if bu.variant != "flatcar" {
        return Err(Error::key("variant", file, "write flatcar"));
    }
    if bu.version != "1.0.0" && bu.version != "1.1.0" {
        return Err(Error::key("version", file, "write 1.1.0"));
    }
    Ok(bu)
}

/// What the parser says, without what stood in the file: it repeats values of a wrong type.
fn told(why: &serde_yaml_ng::Error) -> String {
    let text = why.to_string();
    let place = why
        .location()
        .map(|at| format!(" (line {}, column {})", at.line(), at.column()))
        .unwrap_or_default();
    let about = ["unknown field", "missing field", "duplicate", "a mode is octal"];
    match about.iter().find_map(|start| text.find(start).map(|at| &text[at..])) {
        Some(known) => format!("{}{place}", known.split(" at line").next().unwrap_or(known)),
        None => format!("it is not the Butane that is understood{place}"),
    }
}
