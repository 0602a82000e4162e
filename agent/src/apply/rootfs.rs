//! A machine's file system, out of an OCI image.
//!
//! ```text
//!  absent ─▶ unpack beside it ─▶ judge ─▶ mark ─▶ rename: whole
//! ```
//!
//! What lies under the machine's own name is whole or somebody else's, wherever the agent is ended.

use std::{
    fs,
    io::{self, ErrorKind},
    path::Path,
};

use hostexec::{Host, HostPath};
use image::{Select, oci::Platform, on_disk::OnDisk, unpack};

use super::{Context, Error, file, machine::is_registered};
use crate::{
    config,
    containerd::{Limits, PullError, Registries, unpack_image},
    facts::Rootfs,
    model::MachineName,
    observe,
    store::selection::hosts_dir,
};

/// Puts the image into the machine's folder, unless it is there.
pub(super) async fn unpack(context: &Context, machine: MachineName, image: &str) -> Result<(), Error> {
    let host = &context.host;
    let folder = file::folder(machine);
    let in_use = || Error::InUse {
        folder: folder.to_string(),
    };
    let found = observe::rootfs(host, machine).map_err(Error::Look)?;
    match found {
        Rootfs::Whole { image: there } if there == image => return Ok(()),
        Rootfs::Whole { .. } if is_registered(host, machine).await => return Err(in_use()),
        Rootfs::Foreign => {
            return Err(Error::Foreign {
                folder: folder.to_string(),
            });
        }
        Rootfs::Whole { .. } | Rootfs::Absent => {}
    }
    // machined passes over names that begin with a dot.
    let fresh =
        HostPath::new(format!("/var/lib/machines/.{machine}.aks-flex-node")).expect("a machine's name is plain");
    remove(host, &fresh).await?;
    host.create_dir(&fresh, 0o755).map_err(Error::File)?;
    let outcome = fill(context, &fresh, image).await;
    if outcome.is_err() {
        // A disk that is full of it would keep the node from anything else.
        remove(host, &fresh).await?;
        return outcome;
    }
    if found != Rootfs::Absent {
        remove(host, &folder).await?;
    }
    host.rename(&fresh, &folder).map_err(Error::File)
}

async fn fill(context: &Context, fresh: &HostPath, image: &str) -> Result<(), Error> {
    let dir = context.host.open_dir(fresh).map_err(Error::File)?;
    match config::on_host(image) {
        Some((layout, select)) => unpack_layout(&context.host, &layout, select.as_ref(), dir.path()).await?,
        None => pull(context, image, dir.path()).await?,
    }
    let inside = Host::rooted(dir.path());
    if !is_system(&inside).map_err(Error::File)? {
        return Err(Error::NoSystem);
    }
    inside
        .write(&observe::ROOTFS_MARK, format!("{image}\n").as_bytes(), 0o644)
        .map_err(Error::File)
}

async fn pull(context: &Context, image: &str, into: &Path) -> Result<(), Error> {
    let registries = hosts_dir(&context.host).map_err(|error| match error.kind() == ErrorKind::InvalidInput {
        true => Error::Setting(error),
        false => Error::File(error),
    })?;
    let registries = Registries::load(&context.host, registries.as_ref()).map_err(PullError::from)?;
    unpack_image(image, &registries, Limits::AGENT, into).await?;
    Ok(())
}

async fn unpack_layout(host: &Host, folder: &HostPath, select: Option<&Select>, into: &Path) -> Result<(), Error> {
    let dir = host.open_dir(folder).map_err(Error::File)?;
    let (select, into) = (select.cloned(), into.to_owned());
    file::blocking(move || {
        let unpacked = || {
            let layout = OnDisk::open(dir.path())?;
            for layer in layout.find(select.as_ref(), &Platform::here())?.layers {
                tracing::info!(layer = %layer.digest, bytes = layer.size, "unpacking a layer");
                unpack::apply(&into, layout.blob(&layer.digest)?, &layer).map_err(PullError::Unpack)?;
            }
            Ok(())
        };
        match unpacked() {
            Ok(()) => nix::unistd::syncfs(fs::File::open(&into)?)
                .map(Ok)
                .map_err(io::Error::from),
            failed @ Err(_) => Ok(failed),
        }
    })
    .await?
}

/// As systemd-nspawn judges it, which would refuse it later. Source: systemd-nspawn(1), "-D".
fn is_system(files: &Host) -> std::io::Result<bool> {
    let is_there = |path| files.exists(&HostPath::fixed(path));
    Ok(is_there("/usr")? && (is_there("/etc/os-release")? || is_there("/usr/lib/os-release")?))
}

async fn remove(host: &Host, folder: &HostPath) -> Result<(), Error> {
    let (host, folder) = (host.clone(), folder.clone());
    file::blocking(move || host.remove_tree(&folder)).await
}
