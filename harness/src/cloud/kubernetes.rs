//! Where the Kubernetes binaries come from: a folder or archive that was named, the cache, the official release, Debian's source.
//!
//! Each is asked only when those before it have nothing; what none can give is one error that says why for each.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha512};

use crate::cache::Cache;
use crate::command::Command;
use crate::progress::note;

/// The version that the bed speaks of everywhere, without a `v`.
pub(crate) const VERSION: &str = "1.20.2";

/// What the bed runs. kube-scheduler and kube-proxy are not among it: pods of tests name their node, and use no Service.
pub(super) const PROGRAMS: [&str; 4] = ["kube-apiserver", "kube-controller-manager", "kubelet", "kubectl"];

const RELEASE: &str = "https://dl.k8s.io/v1.20.2/kubernetes-server-linux-amd64.tar.gz";

/// Source: kubernetes/kubernetes, CHANGELOG/CHANGELOG-1.20.md, "Downloads for v1.20.2", server binaries.
const RELEASE_SHA512: &str = "65abf178782e43bc21e8455ffbfdadf6064dbeae3ff704ccf9e13e8acee18235c280b06778e5de4bd702f5507e1870fe38c561366d125ef4f821ed7aa46e9f45";

/// A folder with the programs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Kubernetes {
    folder: PathBuf,
}

impl Kubernetes {
    /// Finds the programs, or makes them. `named` is a folder with them, or an archive (`.tar.zst`, `.tar.gz`) that has them
    /// somewhere in it.
    ///
    /// # Errors
    /// What was named is not there or not whole; or no source has them.
    pub(crate) async fn find(cache: &Cache, named: Option<&Path>) -> Result<Self> {
        if let Some(named) = named {
            let name = || format!("Kubernetes was said to be in {}", named.display());
            let folder = if named.is_dir() {
                named.to_owned()
            } else {
                unpacked(cache, named).await.with_context(name)?
            };
            return Self::at(folder).with_context(name);
        }
        if let Some(cached) = cached(cache) {
            return Ok(cached);
        }
        note(&format!(
            "no Kubernetes {VERSION} was named or is in the cache: trying the official release"
        ));
        let release = match released(cache).await {
            Ok(folder) => return Self::at(folder),
            Err(error) => error,
        };
        note(&format!(
            "{release:#}; building it from Debian's source: 5 to 15 minutes"
        ));
        match super::kubernetes_source::built(cache).await {
            Ok(folder) => Self::at(folder),
            Err(build) => {
                bail!(
                    "no Kubernetes {VERSION}: name a folder or archive that has it. The release: {release:#}. A build: {build:#}"
                )
            }
        }
    }

    fn at(folder: PathBuf) -> Result<Self> {
        for program in PROGRAMS {
            let path = folder.join(program);
            let meta = fs::metadata(&path).with_context(|| format!("no {program} in {}", folder.display()))?;
            if meta.permissions().mode() & 0o100 == 0 {
                bail!("{} can't be executed", path.display());
            }
        }
        Ok(Self { folder })
    }

    /// The folder, which hosts bind to `/opt/kube`.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The path of a program.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// What some run before has put into the cache, whatever its source.
fn cached(cache: &Cache) -> Option<Kubernetes> {
    let parent = cache.path("x").parent()?.to_owned();
    let mut found: Vec<PathBuf> = fs::read_dir(parent)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    found.sort();
    let ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with(&format!("kubernetes-{VERSION}-")) && path.join("ok").exists()
    };
    found
        .into_iter()
        .filter(ours)
        .find_map(|path| Kubernetes::at(path).ok())
}

async fn unpacked(cache: &Cache, archive: &Path) -> Result<PathBuf> {
    let meta = fs::metadata(archive)?;
    // Its content decides; reading 60 MB for that at each run would cost more than it tells.
    let recipe = format!("{} {} {:?}", archive.display(), meta.len(), meta.modified()?);
    let archive = archive.to_owned();
    cache
        .produce(&format!("kubernetes-{VERSION}-named"), &recipe, async |new| {
            let new = new.to_owned();
            tokio::task::spawn_blocking(move || unpack(&archive, &new)).await?
        })
        .await
}

async fn released(cache: &Cache) -> Result<PathBuf> {
    cache
        .produce(&format!("kubernetes-{VERSION}-release"), RELEASE_SHA512, async |new| {
            let archive = new.join("release.tar.gz");
            Command::line(&[
                "curl",
                "--fail",
                "--silent",
                "--show-error",
                "--location",
                "--connect-timeout",
                "10",
            ])
            .args(["--retry", "2", "--output"])
            .arg(&archive)
            .arg(RELEASE)
            .limit(Duration::from_secs(1200))
            .run()
            .await?;
            let new = new.to_owned();
            tokio::task::spawn_blocking(move || {
                verify(&archive)?;
                unpack(&archive, &new)?;
                Ok(fs::remove_file(&archive)?)
            })
            .await?
        })
        .await
}

/// Whether a file is the release, whole and unchanged.
fn verify(archive: &Path) -> Result<()> {
    if sha512(archive)? != RELEASE_SHA512 {
        bail!("{RELEASE} is not the release: its SHA-512 differs from the published one");
    }
    Ok(())
}

fn sha512(path: &Path) -> Result<String> {
    let mut hash = Sha512::new();
    let mut file = fs::File::open(path)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Takes our programs out of an archive, wherever they lie in it.
fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let name = archive.to_string_lossy().into_owned();
    let file = fs::File::open(archive).with_context(|| format!("opening {name}"))?;
    let reader: Box<dyn Read> = if name.ends_with(".tar.zst") {
        Box::new(zstd::Decoder::new(file)?)
    } else if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
        Box::new(flate2::read::GzDecoder::new(std::io::BufReader::new(file)))
    } else {
        bail!("{name} is neither a folder nor a .tar.zst or .tar.gz");
    };
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries()? {
        let mut entry = entry.with_context(|| format!("reading {name}"))?;
        let program = entry
            .path()?
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if !entry.header().entry_type().is_file() || !PROGRAMS.contains(&program.as_str()) {
            continue;
        }
        let path = folder.join(&program);
        std::io::copy(&mut entry, &mut fs::File::create(&path)?)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn archive(folder: &Path, programs: &[&str]) -> PathBuf {
        let path = folder.join("kube.tar.gz");
        let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(
            fs::File::create(&path).unwrap(),
            flate2::Compression::fast(),
        ));
        for program in programs {
            let mut header = tar::Header::new_gnu();
            header.set_size(2);
            header.set_mode(0o644);
            tar.append_data(&mut header, format!("kubernetes/server/bin/{program}"), &b"x\n"[..])
                .unwrap();
        }
        tar.into_inner().unwrap().finish().unwrap();
        path
    }

    #[tokio::test]
    async fn programs_are_found_wherever_they_lie_in_an_archive() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache")).unwrap();
        let archive = archive(
            folder.path(),
            &[
                "kubelet",
                "kubectl",
                "kube-apiserver",
                "kube-controller-manager",
                "mounter",
            ],
        );
        let unpacked = unpacked(&cache, &archive).await.unwrap();
        let kubernetes = Kubernetes::at(unpacked).unwrap();
        assert_eq!(fs::read(kubernetes.program("kubelet")).unwrap(), b"x\n");
        assert!(!kubernetes.program("mounter").exists());
        assert_eq!(cached(&cache).unwrap().folder(), kubernetes.folder());
    }

    #[tokio::test]
    async fn an_archive_that_lacks_a_program_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::at(folder.path().join("cache")).unwrap();
        let archive = archive(folder.path(), &["kubelet"]);
        let error = Kubernetes::at(unpacked(&cache, &archive).await.unwrap()).unwrap_err();
        assert!(format!("{error:#}").starts_with("no kube-apiserver in "), "{error:#}");
    }

    #[test]
    fn na_r29_a_download_that_is_not_the_release_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let part = folder.path().join("release.tar.gz");
        fs::write(&part, "half of it").unwrap();
        assert!(
            verify(&part)
                .unwrap_err()
                .to_string()
                .ends_with("its SHA-512 differs from the published one")
        );
        assert!(
            sha512(&part)
                .unwrap()
                .starts_with(&format!("{:02x}", Sha512::digest(b"half of it")[0]))
        );
    }
}
