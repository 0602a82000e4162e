//! What a command line names, judged while it is read: before any step, and with the path in the message.

use std::fs;
use std::path::{Path, PathBuf};

/// What a judge says of an argument; clap puts the argument's name and value before it.
type Judged<T> = Result<T, String>;

/// Ends of names that only archives have which we don't write.
const PACKED: [&str; 6] = ["bz2", "gz", "tgz", "xz", "zip", "zst"];

/// An agent's image: the folder of an OCI layout, or the archive of one.
pub(crate) fn image(text: &str) -> Judged<PathBuf> {
    let path = PathBuf::from(text);
    let meta = fs::metadata(&path).map_err(|error| error.to_string())?;
    if meta.is_dir() && !path.join("index.json").is_file() {
        return Err("the folder is no OCI layout: it has no index.json".to_owned());
    }
    if !meta.is_dir() && !is_archive(&path) {
        return Err("neither a folder nor a file whose name ends in .tar".to_owned());
    }
    Ok(path)
}

/// A folder or archive that has the Kubernetes programs.
pub(crate) fn kube(text: &str) -> Judged<PathBuf> {
    let path = PathBuf::from(text);
    let meta = fs::metadata(&path).map_err(|error| error.to_string())?;
    if !meta.is_dir() && ![".tar.zst", ".tar.gz", ".tgz"].iter().any(|end| text.ends_with(end)) {
        return Err("neither a folder nor a .tar.zst or .tar.gz".to_owned());
    }
    Ok(path)
}

/// Where an image is written: a folder that is new, empty or holds an older layout, or a file `.tar`.
pub(crate) fn output(text: &str) -> Judged<PathBuf> {
    let path = PathBuf::from(text);
    if is_archive(&path) && path.is_dir() {
        return Err("a folder, and its name is that of an archive".to_owned());
    }
    if is_archive(&path) {
        return Ok(path);
    }
    if path.is_file() || PACKED.iter().any(|end| path.extension().is_some_and(|own| own == *end)) {
        return Err("an archive's name ends in .tar; any other name is a folder's".to_owned());
    }
    if !path.join("oci-layout").exists() && !empty(&path) {
        return Err("the folder holds something that is no OCI layout".to_owned());
    }
    Ok(path)
}

/// A folder that is to be made.
pub(crate) fn new_folder(text: &str) -> Judged<PathBuf> {
    let path = PathBuf::from(text);
    if path.is_file() || !empty(&path) {
        return Err("it is there, and not an empty folder".to_owned());
    }
    Ok(path)
}

/// A file to be written into a folder that is there.
pub(crate) fn new_file(text: &str) -> Judged<PathBuf> {
    let path = PathBuf::from(text);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if path.is_dir() || !folder.is_none_or(Path::is_dir) {
        return Err("it is a folder, or in none that is there".to_owned());
    }
    Ok(path)
}

/// A folder with files.
pub(crate) fn folder(text: &str) -> Judged<PathBuf> {
    fs::read_dir(text).map_err(|error| error.to_string())?;
    Ok(PathBuf::from(text))
}

/// Whether a path is an archive's.
pub(crate) fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "tar")
}

/// Whether nothing is there, or a folder with nothing in it.
fn empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none()) || !path.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with a layout, a letter and a letter named `agent.tar`; how to name what is in it.
    fn things() -> (tempfile::TempDir, impl Fn(&str) -> String) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("layout")).unwrap();
        for file in ["layout/index.json", "layout/oci-layout", "letter", "agent.tar"] {
            fs::write(folder.path().join(file), "").unwrap();
        }
        let root = folder.path().to_owned();
        (folder, move |name| root.join(name).display().to_string())
    }

    #[test]
    fn an_image_is_a_layout_or_its_archive() {
        let (_folder, named) = things();
        assert!(image(&named("layout")).is_ok() && image(&named("agent.tar")).is_ok());
        assert!(image(&named("gone")).unwrap_err().starts_with("No such file"));
        assert!(image(&named("letter")).unwrap_err().ends_with(".tar"));
        assert!(image(&named("")).unwrap_err().ends_with("no index.json"));
    }

    #[test]
    fn an_image_is_never_written_over_something_else() {
        let (_folder, named) = things();
        for good in ["layout", "agent.tar", "new", "new/agent.tar"] {
            assert!(output(&named(good)).is_ok(), "{good}");
        }
        for bad in ["", "letter", "agent.tar.zst", "agent.tgz"] {
            assert!(output(&named(bad)).is_err(), "{bad}");
        }
        assert!(new_folder(&named("new")).is_ok() && new_folder(&named("layout")).is_err());
    }

    #[test]
    fn what_else_is_named_is_there_or_can_be_made() {
        let (_folder, named) = things();
        assert!(kube(&named("layout")).is_ok() && kube(&named("letter")).is_err() && kube(&named("gone")).is_err());
        assert!(new_file(&named("report.json")).is_ok() && new_file("report.json").is_ok());
        assert!(new_file(&named("gone/report.json")).is_err() && new_file(&named("layout")).is_err());
        assert!(folder(&named("layout")).is_ok() && folder(&named("letter")).is_err());
    }
}
