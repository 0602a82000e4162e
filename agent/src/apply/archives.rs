//! Archives of container images: put on the host, and taken over by the machine's containerd.

use std::{io, time::Duration};

use hostexec::{Host, HostPath};

use super::{Context, Error, file, machine, origin};
use crate::{model::MachineName, step::Archive};

/// The longest that an import may take: some GB on a slow disk.
const IMPORT: Duration = Duration::from_secs(600);
const ASK: Duration = Duration::from_secs(30);

/// Has these archives in the folder, and no other entry: an archive that is there, and is what its origin promises, is left alone.
pub(super) async fn put(context: &Context, folder: &HostPath, archives: &[Archive]) -> Result<(), Error> {
    let host = &context.host;
    host.create_dir(folder, 0o755).map_err(Error::File)?;
    for entry in host.list(folder).map_err(Error::File)? {
        if !archives.iter().any(|archive| archive.name == entry) {
            let entry = folder
                .join(&entry)
                .map_err(|_| Error::File(io::ErrorKind::InvalidData.into()))?;
            let host = host.clone();
            file::blocking(move || host.remove_tree(&entry)).await?;
        }
    }
    for archive in archives {
        let path = folder.join(&archive.name).expect("an archive's name is plain");
        if is_there(host, &path, archive).await? {
            continue;
        }
        let (mut from, _) = origin::bytes(context, &archive.origin).await?;
        let host = host.clone();
        file::blocking(move || {
            let mut new = host.replace(&path, 0o644)?;
            io::copy(&mut from, new.file())?;
            new.commit()
        })
        .await?;
    }
    Ok(())
}

async fn is_there(host: &Host, path: &HostPath, archive: &Archive) -> Result<bool, Error> {
    let Some(promised) = origin::promised(host, &archive.origin)? else {
        return Ok(false);
    };
    let (host, path) = (host.clone(), path.clone());
    file::blocking(move || match host.exists(&path)? {
        true => Ok(file::hash(host.open(&path)?)?.hex() == promised),
        false => Ok(false),
    })
    .await
}

/// Has the machine's containerd hold the images. One that it has by its name is not imported again: a registry may have given a newer one.
pub(super) async fn import(context: &Context, machine: MachineName, images: &[(String, String)]) -> Result<(), Error> {
    const CTR: [&str; 3] = ["/usr/local/bin/ctr", "--namespace", "k8s.io"];
    let host = &context.host;
    let has = async |image: &str| {
        let name = format!("name==\"{image}\"");
        let listed = [&CTR[..], &["images", "ls", "--quiet", &name]].concat();
        let listed = machine::call(host, machine, &listed, ASK).await?;
        Ok::<_, Error>(listed.stdout.lines().any(|line| line.trim() == image))
    };
    for (archive, image) in images {
        if has(image).await? {
            continue;
        }
        machine::run(
            host,
            machine,
            &[&CTR[..], &["images", "import", archive]].concat(),
            IMPORT,
        )
        .await?;
        if !has(image).await? {
            return Err(Error::NoImage { image: image.clone() });
        }
    }
    Ok(())
}
