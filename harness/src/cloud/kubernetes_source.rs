//! Kubernetes from Debian bookworm's source package: offline, with Debian's own Go, nothing of it installed.
//!
//! About ten minutes of CPU and 3.5 GB of disk while it builds. It is taken from Debian because a bed has to stand where there is
//! no internet but a Debian mirror.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use super::kubernetes::{PROGRAMS, VERSION};
use crate::cache::Cache;
use crate::command::Command;

/// The suite that still has the whole source; later ones hold kubectl alone.
const SUITE: &str = "bookworm";

/// Unpacked, not installed: the compiler and the library that replaces a vendored one.
const PACKAGES: [&str; 3] = [
    "golang-1.19-go",
    "golang-1.19-src",
    "golang-github-modern-go-reflect2-dev",
];

/// Vendored at 1.0.1, which Go 1.18 and later break: kube-apiserver dies at the first custom resource. Debian has 1.0.2.
const REFLECT2: &str = "github.com/modern-go/reflect2";

/// What the build calls; installed, unlike the others.
const TOOLS: [&str; 6] = ["dpkg-dev", "gcc", "libc6-dev", "make", "patch", "rsync"];

const GOALS: &str = "cmd/kube-apiserver cmd/kube-controller-manager cmd/kubelet cmd/kubectl";

const LIMIT: Duration = Duration::from_secs(3600);

/// Builds it in the cache, unless that was done before.
///
/// # Errors
/// A tool is missing, the mirror has no source, or a step of the build fails.
pub(crate) async fn built(cache: &Cache) -> Result<PathBuf> {
    let recipe = format!("{SUITE} {PACKAGES:?} {GOALS}");
    cache
        .produce(&format!("kubernetes-{VERSION}-source"), &recipe, async |new| {
            let work = new.join("work");
            build(&work).await?;
            let made = work.join(format!("kubernetes-{VERSION}/_output/local/bin/linux/amd64"));
            for program in PROGRAMS {
                fs::copy(made.join(program), new.join(program))
                    .with_context(|| format!("the build made no {program}"))?;
            }
            crate::cache::remove_tree(&work)
        })
        .await
}

async fn build(work: &Path) -> Result<()> {
    for folder in ["lists/partial", "archives/partial", "root", "home"] {
        fs::create_dir_all(work.join(folder))?;
    }
    let apt = |line: &[&str]| {
        Command::line(line)
            .env("APT_CONFIG", work.join("apt.conf"))
            .dir(work)
            .limit(LIMIT)
    };
    let install = |line: &[&str]| {
        Command::line(line)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .limit(LIMIT)
    };
    install(&["apt-get", "-q", "update"]).run().await?;
    install(&["apt-get", "-q", "-y", "install", "--no-install-recommends"])
        .args(TOOLS)
        .run()
        .await?;
    fs::write(work.join("sources.list"), sources().await?)?;
    fs::write(work.join("apt.conf"), apt_conf(work))?;
    apt(&["apt-get", "-q", "update"]).run().await?;

    apt(&["apt-get", "-q", "download"]).args(PACKAGES).run().await?;
    for package in files(work, ".deb")? {
        Command::line(&["dpkg-deb", "--extract"])
            .arg(package)
            .arg(work.join("root"))
            .run()
            .await?;
    }
    apt(&[
        "apt-get",
        "-q",
        "source",
        "--only-source",
        "--download-only",
        "kubernetes",
    ])
    .run()
    .await?;
    for archive in [files(work, ".orig.tar.gz")?, files(work, ".debian.tar.xz")?].concat() {
        let debian = archive.to_string_lossy().contains(".debian.");
        let into = if debian {
            work.join(format!("kubernetes-{VERSION}"))
        } else {
            work.to_owned()
        };
        Command::line(&["tar", "--extract", "--no-same-owner", "--file"])
            .arg(archive)
            .arg("--directory")
            .arg(into)
            .run()
            .await?;
    }
    let tree = work.join(format!("kubernetes-{VERSION}"));
    patch(&tree).await?;
    replace_reflect2(work, &tree)?;
    make(work, &tree).await
}

/// Debian's patches, in the order of their list.
async fn patch(tree: &Path) -> Result<()> {
    let patches = tree.join("debian/patches");
    for name in fs::read_to_string(patches.join("series"))?
        .lines()
        .filter(|line| !line.trim().is_empty())
    {
        Command::line(&["patch", "--silent", "--strip=1", "--input"])
            .arg(patches.join(name))
            .dir(tree)
            .run()
            .await?;
    }
    Ok(())
}

fn replace_reflect2(work: &Path, tree: &Path) -> Result<()> {
    let vendored = tree.join("vendor").join(REFLECT2);
    for old in [files(&vendored, ".go")?, files(&vendored, ".s")?].concat() {
        fs::remove_file(old)?;
    }
    let debian = work.join("root/usr/share/gocode/src").join(REFLECT2);
    for new in [files(&debian, ".go")?, files(&debian, ".s")?].concat() {
        let name = new.file_name().unwrap_or_default().to_owned();
        if !name.to_string_lossy().ends_with("_test.go") {
            fs::copy(&new, vendored.join(name))?;
        }
    }
    Ok(())
}

async fn make(work: &Path, tree: &Path) -> Result<()> {
    // The build wants to lie at its import path below a GOPATH.
    let path = tree.join(".go/src/k8s.io");
    fs::create_dir_all(&path)?;
    symlink("../../..", path.join("kubernetes"))?;
    let go = work.join("root/usr/lib/go-1.19");
    let programs = std::env::var("PATH").unwrap_or_default();
    Command::tied("nice")
        .arg("make")
        .arg(format!("WHAT={GOALS}"))
        .env("PATH", format!("{}:{programs}", go.join("bin").display()))
        .env("GOROOT", &go)
        .env("GOPATH", tree.join(".go"))
        .env("HOME", work.join("home"))
        .env("GOFLAGS", "-mod=vendor")
        .env("GOPROXY", "off")
        .env("CGO_ENABLED", "0")
        .env("KUBE_GIT_VERSION", format!("v{VERSION}"))
        .env("KUBE_GIT_MAJOR", "1")
        .env("KUBE_GIT_MINOR", "20")
        .env("KUBE_GIT_COMMIT", "archive")
        .env("KUBE_GIT_TREE_STATE", "archive")
        .dir(tree)
        .limit(LIMIT)
        .run()
        .await
}

/// The mirror that this machine uses, for binaries and sources of the suite.
async fn sources() -> Result<String> {
    let mirror = crate::debian::mirror()?;
    Ok(format!("deb {mirror} {SUITE} main\ndeb-src {mirror} {SUITE} main\n"))
}

/// apt with lists and caches of its own: the machine's stay as they are.
fn apt_conf(work: &Path) -> String {
    let work = work.display();
    format!(
        "Dir::Etc::sourcelist \"{work}/sources.list\";\nDir::Etc::sourceparts \"/dev/null\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
         Dir::State::lists \"{work}/lists\";\nDir::Cache \"{work}\";\nDir::Cache::archives \"{work}/archives\";\n\
         APT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n"
    )
}

/// The files of a folder whose names end so.
fn files(folder: &Path, end: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(end) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
