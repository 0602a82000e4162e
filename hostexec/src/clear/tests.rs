use super::*;
use crate::again;
use nix::mount::{MsFlags, mount};
use std::{os::unix::fs::symlink, time::Duration};

const TREE: HostPath = HostPath::fixed("/var/lib/machines/kube1");
const MARK: &str = ".mark";

fn root() -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("var/lib/machines/kube1/etc/deep")).unwrap();
    for file in [MARK, "etc/hostname", "etc/deep/x"] {
        fs::write(dir.path().join("var/lib/machines/kube1").join(file), "x").unwrap();
    }
    let host = Host::rooted(dir.path());
    (dir, host)
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn a_tree_goes_and_what_its_links_lead_to_stays() {
    let (dir, host) = root();
    fs::write(dir.path().join("var/lib/kept"), "").unwrap();
    let tree = dir.path().join("var/lib/machines/kube1");
    symlink("../..", tree.join("upwards")).unwrap();
    symlink("loop", tree.join("loop")).unwrap();
    assert_eq!(host.clear(&TREE, Some(MARK), soon()).unwrap(), []);
    assert!(!tree.exists() && dir.path().join("var/lib/kept").exists());
    assert_eq!(host.clear(&TREE, None, soon()).unwrap(), [], "an absent one is gone");
    host.link("lib", &HostPath::fixed("/var/link")).unwrap();
    host.clear(&HostPath::fixed("/var/link"), None, soon()).unwrap();
    assert!(dir.path().join("var/lib/kept").exists() && !dir.path().join("var/link").is_symlink());
    host.clear(&HostPath::ROOT, None, soon()).unwrap_err();
}

#[test]
fn a_tree_deeper_than_the_limit_of_open_files_goes() {
    let (dir, host) = root();
    let mut here = host.dir(&TREE).unwrap();
    for _ in 0..3000 {
        nix::sys::stat::mkdirat(here.file(), "d", nix::sys::stat::Mode::S_IRWXU).unwrap();
        here = here.open_subdir(Path::new("d")).unwrap();
    }
    drop(here);
    assert_eq!(host.clear(&TREE, None, soon()).unwrap(), []);
    assert!(!dir.path().join("var/lib/machines/kube1").exists());
}

#[test]
fn what_there_was_no_time_for_is_told_and_the_mark_stays_with_it() {
    let (dir, host) = root();
    let left = host.clear(&TREE, Some(MARK), Instant::now()).unwrap();
    assert_eq!(
        left,
        [Left {
            path: TREE.to_string(),
            why: Stays::Late
        }]
    );
    assert!(dir.path().join("var/lib/machines/kube1").join(MARK).exists());
}

#[test]
fn fc_x1_fc_x8_mounts_in_a_tree_stay_untouched_and_are_told_and_all_else_goes() {
    if !again::is_inner() {
        return again::passes_with_own_mounts(
            "clear::tests::fc_x1_fc_x8_mounts_in_a_tree_stay_untouched_and_are_told_and_all_else_goes",
        );
    }
    let (dir, host) = root();
    let dir = dir.keep();
    let tree = dir.join("var/lib/machines/kube1");
    let other = dir.join("other");
    for folder in [&other, &tree.join("a/b mount"), &tree.join("tmp"), &tree.join("a/gone")] {
        fs::create_dir_all(folder).unwrap();
    }
    for file in [&other.join("kept"), &tree.join("a/file"), &tree.join("a/gone/x")] {
        fs::write(file, "kept").unwrap();
    }
    let bind = |from: &Path, to: &Path| mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    // On the same file system, so that device numbers do not tell; with a blank, so that the table escapes it.
    bind(&other, &tree.join("a/b mount"));
    bind(&other.join("kept"), &tree.join("a/file"));
    mount(
        Some("tmpfs"),
        &tree.join("tmp"),
        Some("tmpfs"),
        MsFlags::empty(),
        None::<&str>,
    )
    .unwrap();
    fs::write(tree.join("tmp/kept"), "").unwrap();
    let mut left = host.clear(&TREE, Some(MARK), soon()).unwrap();
    left.sort_by(|a, b| a.path.cmp(&b.path));
    let paths: Vec<&str> = left.iter().map(|left| left.path.as_str()).collect();
    let at = |name: &str| format!("{TREE}/{name}");
    assert_eq!(paths, [&*at("a/b mount"), &*at("a/file"), &*at("tmp")]);
    assert!(
        left.iter()
            .all(|left| matches!(&left.why, Stays::Mount(kind) if !kind.is_empty()))
    );
    assert_eq!(left[2].why, Stays::Mount("tmpfs".into()));
    for kept in [
        other.join("kept"),
        tree.join("a/b mount/kept"),
        tree.join("tmp/kept"),
        tree.join(MARK),
    ] {
        assert!(kept.exists(), "{}", kept.display());
    }
    assert!(!tree.join("etc").exists() && !tree.join("a/gone").exists());
    // A second one finds the same, and ends.
    assert_eq!(host.clear(&TREE, Some(MARK), soon()).unwrap().len(), 3);
    // The tree itself, mounted.
    let left = host
        .clear(&HostPath::fixed("/var/lib/machines/kube1/tmp"), None, soon())
        .unwrap();
    assert_eq!(left[0].why, Stays::Mount("tmpfs".into()));
}

#[test]
fn a_file_that_was_locked_is_unlocked_and_goes() {
    let (dir, host) = root();
    let deep = dir.path().join("var/lib/machines/kube1/etc/deep");
    let lock = |path: &Path| {
        let file = File::open(path).unwrap();
        let flags = ioctl_getflags(&file).unwrap_or_else(|_| IFlags::empty());
        ioctl_setflags(&file, flags | IFlags::IMMUTABLE)
    };
    if lock(&deep.join("x")).is_err() || lock(&deep).is_err() {
        // Not root, or a file system without such flags: there is nothing to unlock.
        assert!(!nix::unistd::geteuid().is_root() || lock(&deep.join("x")).is_err());
        unlock(File::open(deep.join("x")).unwrap());
        return;
    }
    assert!(fs::remove_file(deep.join("x")).is_err());
    assert_eq!(host.clear(&TREE, None, soon()).unwrap(), []);
}
