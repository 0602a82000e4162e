//! Takes note of what a step is about to make or change, before it does: by this a reset knows whose something is.

use std::io;
use std::os::unix::fs::MetadataExt as _;

use hostexec::{Call, Host, HostPath, Tool};
use image::Digest;

use super::Error;
use crate::ledger::{Before, Ledger, Mark, Thing, UnitWas, made, touched};
use crate::plan::reset::names;
use crate::step::{Entry, File, Step};
use crate::store;

/// Takes note of all that a step makes. Where that is known already, nothing is written.
pub(super) async fn record(host: &Host, step: &Step) -> Result<(), Error> {
    let made = made(step);
    let mut marks = touched(step);
    marks.extend(made.iter().map(Mark::Known));
    note(host, &marks).await
}

/// The same for units of others that a step finds by itself.
pub(super) async fn record_units(host: &Host, units: &[String]) -> Result<(), Error> {
    let marks: Vec<Mark<'_>> = units.iter().map(|unit| Mark::Unit(unit)).collect();
    note(host, &marks).await
}

async fn note(host: &Host, marks: &[Mark<'_>]) -> Result<(), Error> {
    if marks.is_empty() {
        return Ok(());
    }
    // One that can't be read is put aside where it is added to.
    let known = store::ledger::load(host).ok().flatten();
    let mut things = Vec::new();
    for mark in marks {
        if known.as_ref().is_some_and(|ledger| ledger.has(mark)) {
            continue;
        }
        match mark {
            Mark::Entry(file) => things.extend(entry(host, file, known.as_ref()).map_err(Error::File)?),
            Mark::Known(thing) => things.push((*thing).clone()),
            Mark::Unit(unit) => things.push(Thing::Unit {
                unit: (*unit).to_owned(),
                was: look(host, unit).await,
            }),
            Mark::Sysctl(sysctl) => {
                if let Ok(was) = host.read_text(&sysctl.path()) {
                    things.push(Thing::Sysctl {
                        key: sysctl.key.to_owned(),
                        value: sysctl.value.to_owned(),
                        was: was.split_whitespace().collect::<Vec<_>>().join(" "),
                    });
                }
            }
        }
    }
    if things.is_empty() {
        return Ok(());
    }
    store::ledger::add(host, things).map_err(Error::File)
}

/// A file that is to be written, with what stands in its place, and the folders that it needs.
fn entry(host: &Host, file: &File, known: Option<&Ledger>) -> io::Result<Vec<Thing>> {
    let path = file.path.clone();
    let mut things = Vec::new();
    for above in std::iter::successors(path.parent(), HostPath::parent) {
        if host.exists(&above)? {
            break;
        }
        things.push(Thing::Parent { path: above });
    }
    things.push(match &file.entry {
        Entry::Absent => return Ok(Vec::new()),
        Entry::Folder { .. } => Thing::Folder { path },
        Entry::Link { .. } => Thing::File {
            path,
            written: Vec::new(),
            before: Before::Nothing,
        },
        Entry::File { content, .. } => Thing::File {
            before: before(host, &path, content.bytes(), known)?,
            path,
            written: vec![Digest::of(content.bytes())],
        },
    });
    Ok(things)
}

/// What stands in the place of a file that the agent writes for the first time, kept where it is the host's.
fn before(host: &Host, path: &HostPath, bytes: &[u8], known: Option<&Ledger>) -> io::Result<Before> {
    // What was there before is said already, or an agent that kept no ledger may have written it.
    let agents = match known {
        Some(ledger) => ledger.has_file(path),
        None => host.exists(&names::STATE)?,
    };
    if names::is_by_name(path) || agents {
        return Ok(Before::Nothing);
    }
    let found = match host.read(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Before::Nothing),
        Err(error) => return Err(error),
    };
    if found == bytes {
        return Ok(Before::Nothing);
    }
    let mode = host.metadata(path)?.mode() & 0o7777;
    store::ledger::keep(host, &found, mode).map(Before::File)
}

/// How a unit of others is. What can't be told is not put back.
async fn look(host: &Host, unit: &str) -> UnitWas {
    let line = ["show", "--property=UnitFileState", "--property=ActiveState", unit];
    let shown = host.call(Call::new(Tool::Systemctl, &line)).await;
    let shown = shown.map(|output| output.stdout).unwrap_or_default();
    let value = |key: &str| {
        let mut lines = shown.lines().filter_map(|line| line.split_once('='));
        lines
            .find(|(name, _)| *name == key)
            .map(|(_, value)| value.trim().to_owned())
    };
    UnitWas {
        state: value("UnitFileState").unwrap_or_default(),
        active: value("ActiveState").as_deref() == Some("active"),
    }
}
