//! Releases in a machine's file system, each with a record of what was installed.
//!
//! A program of the machine can't be asked for its version from outside: it wants the machine's libraries. So the record
//! says which version stands there, and the digests in it prove that the files are still what was installed.

use std::{collections::BTreeMap, fs::File, io};

use hostexec::{Host, HostPath};
use image::Digest;
use serde::{Deserialize, Serialize};

use super::{Context, Error, file, origin};
use crate::{
    fetch,
    plan::record,
    step::{Download, Unpack},
};

/// What was installed. Its file is written last.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    version: String,
    files: BTreeMap<String, Digest>,
}

/// Installs a release unless it is there already.
pub(super) async fn install(context: &Context, wanted: &Download) -> Result<(), Error> {
    let (host, looked_for) = (context.host.clone(), wanted.clone());
    if file::blocking(move || is_installed(&host, &looked_for)).await? {
        tracing::info!(
            component = wanted.component,
            version = wanted.version,
            "already installed"
        );
        return Ok(());
    }
    let (archive, _) = origin::bytes(context, &wanted.origin).await?;
    let (host, wanted) = (context.host.clone(), wanted.clone());
    file::blocking(move || Ok(unpack(&host, &wanted, archive))).await?
}

fn is_installed(host: &Host, wanted: &Download) -> io::Result<bool> {
    let files = file::inside(host, wanted.machine)?;
    let path = record(wanted.component);
    if !files.exists(&path)? {
        return Ok(false);
    }
    let Ok(record) = serde_json::from_slice::<Record>(&files.read(&path)?) else {
        return Ok(false);
    };
    if record.version != wanted.version || record.files.is_empty() {
        return Ok(false);
    }
    Ok(record.files.iter().all(|(path, digest)| {
        let Ok(path) = HostPath::new(path.as_str()) else {
            return false;
        };
        let there = files.open(&path).and_then(file::hash);
        there.is_ok_and(|there| there == *digest)
            && file::is_file(&files, &path, wanted.unpack.mode(path.as_str())).unwrap_or(false)
    }))
}

fn unpack(host: &Host, wanted: &Download, mut archive: File) -> Result<(), Error> {
    let files = file::inside(host, wanted.machine).map_err(Error::File)?;
    let mut installed = BTreeMap::new();
    // Whatever is half replaced from here on is not what an older record says.
    files.remove(&record(wanted.component)).map_err(Error::File)?;
    let mut place = |to: &HostPath, from: &mut dyn io::Read| -> io::Result<()> {
        let mut new = files.replace(to, wanted.unpack.mode(to.as_str()))?;
        io::copy(from, new.file())?;
        new.commit()?;
        installed.insert(to.as_str().to_owned(), file::hash(files.open(to)?)?);
        Ok(())
    };
    let component = wanted.component;
    let refused = |source| Error::Archive { component, source };
    let missing = match &wanted.unpack {
        Unpack::Program { to } => {
            place(to, &mut archive).map_err(Error::File)?;
            None
        }
        Unpack::Members(members) => {
            let mut left: Vec<&str> = members.iter().map(|member| member.name).collect();
            fetch::regular_files(archive, |name, content| {
                let Some(member) = members.iter().find(|member| member.name == name) else {
                    return Ok(());
                };
                left.retain(|left| *left != name);
                place(&member.to, content)
            })
            .map_err(refused)?;
            left.first().map(|name| (*name).to_owned())
        }
        Unpack::All { into, needed } => {
            let mut left = needed.clone();
            fetch::regular_files(archive, |name, content| {
                left.retain(|left| *left != name);
                place(&into.join(name).map_err(io::Error::other)?, content)
            })
            .map_err(refused)?;
            left.first().map(|name| (*name).to_owned())
        }
    };
    if let Some(member) = missing {
        return Err(Error::Member { component, member });
    }
    let written = Record {
        version: wanted.version.clone(),
        files: installed,
    };
    let mut text = serde_json::to_vec_pretty(&written).expect("a record has a JSON form");
    text.push(b'\n');
    files.write(&record(component), &text, 0o644).map_err(Error::File)
}
