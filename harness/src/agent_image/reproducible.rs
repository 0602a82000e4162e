//! Whether the same inputs give the same image.

use std::path::Path;

use anyhow::{Result, ensure};

use super::programs::{Programs, Workspace};
use super::{Built, Profile, Variant, own_programs, pack};

/// What is done twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Twice {
    /// The image is assembled, of the same programs.
    Assembled,
    /// The programs are built too: from nothing, in two folders. Some ten minutes on two cores.
    Built,
}

/// Makes the image twice and compares all its bytes.
///
/// # Errors
/// A build failed, or the two differ: the text says in what.
pub(crate) async fn reproducible(profile: Profile, twice: Twice) -> Result<()> {
    match twice {
        Twice::Assembled => {
            let programs = own_programs(profile).await?;
            compare(&programs, &programs, profile).await
        }
        Twice::Built => {
            let here = Workspace::here().await?;
            let (one, two) = (tempfile::tempdir()?, tempfile::tempdir()?);
            // Folders of unlike lengths; the second one's target lies outside of it.
            let inside = here.copy(one.path().join("w"), one.path().join("w/target"))?;
            let outside = here.copy(two.path().join("another-workspace"), two.path().join("built"))?;
            compare(&inside.build(profile).await?, &outside.build(profile).await?, profile).await
        }
    }
}

async fn compare(one: &Programs, two: &Programs, profile: Profile) -> Result<()> {
    ensure!(one.agent == two.agent, "the agent differs");
    ensure!(one.host_exec == two.host_exec, "host-exec differs");
    let one = pack(one.clone(), Variant::Good, profile).await?;
    let two = pack(two.clone(), Variant::Good, profile).await?;
    ensure!(one.digest == two.digest, "{} became {}", one.digest, two.digest);
    let folder = tempfile::tempdir()?;
    let archive = |built: &Built, name: &str| {
        let path = folder.path().join(name);
        built.write_archive(&path)?;
        read(&path)
    };
    ensure!(
        archive(&one, "one.tar")? == archive(&two, "two.tar")?,
        "the archives differ"
    );
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    Ok(std::fs::read(path)?)
}
