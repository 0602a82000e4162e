use super::*;
use crate::again;
use nix::mount::{MsFlags, mount};
use std::os::unix::fs::symlink;

const TREE: HostPath = HostPath::fixed("/var/lib/machines/kube1");

fn root() -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("var/lib/machines/kube1/etc")).unwrap();
    fs::write(dir.path().join("var/lib/machines/kube1/etc/hostname"), "kube1\n").unwrap();
    let host = Host::rooted(dir.path());
    (dir, host)
}

fn bind(from: &Path, to: &Path) {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

#[test]
fn a_tree_goes_and_what_its_links_lead_to_stays() {
    let (dir, host) = root();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("kept"), "").unwrap();
    fs::write(dir.path().join("var/lib/kept"), "").unwrap();
    let tree = dir.path().join("var/lib/machines/kube1");
    symlink(outside.path(), tree.join("absolute")).unwrap();
    symlink("../..", tree.join("upwards")).unwrap();
    symlink("loop", tree.join("loop")).unwrap();
    host.remove_tree(&TREE).unwrap();
    assert!(!tree.exists());
    assert!(outside.path().join("kept").exists() && dir.path().join("var/lib/kept").exists());
}

#[test]
fn an_absent_tree_counts_as_removed_and_a_link_goes_alone() {
    let (dir, host) = root();
    for absent in ["/none", "/none/below", "/var/lib/machines/kube1/etc/hostname/below"] {
        host.remove_tree(&HostPath::new(absent).unwrap()).unwrap();
    }
    host.link("machines", &HostPath::fixed("/var/lib/link")).unwrap();
    host.remove_tree(&HostPath::fixed("/var/lib/link")).unwrap();
    assert!(dir.path().join("var/lib/machines/kube1/etc/hostname").exists());
    assert!(!host.exists(&HostPath::fixed("/var/lib/link")).unwrap());
}

#[test]
fn the_root_itself_is_never_removed() {
    let (dir, host) = root();
    host.remove_tree(&HostPath::ROOT).unwrap_err();
    assert!(dir.path().join("var/lib/machines/kube1/etc/hostname").exists());
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
    host.remove_tree(&TREE).unwrap();
    assert!(!dir.path().join("var/lib/machines/kube1").exists());
}

#[test]
fn a_mount_in_the_tree_is_named_and_nothing_is_removed() {
    if !again::is_inner() {
        return again::passes_with_own_mounts("tree::tests::a_mount_in_the_tree_is_named_and_nothing_is_removed");
    }
    let (dir, host) = root();
    let dir = dir.keep();
    let tree = dir.join("var/lib/machines/kube1");
    // On the same file system, so that device numbers do not tell; with a blank, so that the table escapes it.
    let other = dir.join("other");
    for folder in [&other, &tree.join("a mount"), &dir.join("var/lib/machines/kube10")] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(other.join("kept"), "").unwrap();

    bind(&other, &dir.join("var/lib/machines/kube10"));
    bind(&other, &tree.join("a mount"));
    let text = host.remove_tree(&TREE).unwrap_err().to_string();
    assert_eq!(
        text,
        "remove /var/lib/machines/kube1: something is mounted at a mount in it"
    );
    assert!(tree.join("etc/hostname").exists() && other.join("kept").exists());
    nix::mount::umount(&tree.join("a mount")).unwrap();

    bind(&other.join("kept"), &tree.join("etc/hostname"));
    let text = host.remove_tree(&TREE).unwrap_err().to_string();
    assert_eq!(
        text,
        "remove /var/lib/machines/kube1: something is mounted at etc/hostname in it"
    );
    nix::mount::umount(&tree.join("etc/hostname")).unwrap();

    bind(&other, &tree);
    let text = host.remove_tree(&TREE).unwrap_err().to_string();
    assert_eq!(text, "remove /var/lib/machines/kube1: something is mounted there");
    nix::mount::umount(&tree).unwrap();

    host.remove_tree(&TREE).unwrap();
    assert!(!tree.exists() && other.join("kept").exists());
}

#[test]
fn a_mount_that_the_table_did_not_show_stops_the_walk() {
    if !again::is_inner() {
        return again::passes_with_own_mounts("tree::tests::a_mount_that_the_table_did_not_show_stops_the_walk");
    }
    let (dir, host) = root();
    let dir = dir.keep();
    let (tree, other) = (dir.join("var/lib/machines/kube1"), dir.join("other"));
    fs::create_dir(&other).unwrap();
    fs::write(other.join("kept"), "").unwrap();
    bind(&other, &tree.join("etc"));
    let walked = host.dir(&TREE).unwrap();
    let text = empty(walked, OsStr::new("kube1")).unwrap_err().to_string();
    assert_eq!(text, "something is mounted at etc in it");
    assert!(other.join("kept").exists());
}

#[test]
fn the_mount_tables_escapes_are_undone() {
    let line = br"36 35 98:0 / /mnt/a\040b\134c\011\ue rw,noatime - ext4 /dev/sda rw";
    assert_eq!(mount_point(line), Some(PathBuf::from("/mnt/a b\\c\t\\ue")));
    assert_eq!(mount_point(b""), None);
}

#[test]
fn na_r21_a_mounted_folder_is_emptied_and_stays() {
    if !again::is_inner() {
        return again::passes_with_own_mounts("tree::tests::na_r21_a_mounted_folder_is_emptied_and_stays");
    }
    let (dir, host) = root();
    let dir = dir.keep();
    let tree = dir.join("var/lib/machines/kube1");
    let (mounted, other) = (dir.join("mounted"), dir.join("other"));
    for folder in [&mounted, &mounted.join("below"), &other] {
        fs::create_dir(folder).unwrap();
    }
    fs::write(mounted.join("below/file"), "").unwrap();
    fs::write(other.join("kept"), "").unwrap();
    bind(&mounted, &tree);
    bind(&other, &tree.join("below"));
    let text = host.empty_dir(&TREE).unwrap_err().to_string();
    assert_eq!(
        text,
        "empty /var/lib/machines/kube1: something is mounted at below in it"
    );
    assert!(other.join("kept").exists());
    nix::mount::umount(&tree.join("below")).unwrap();

    host.empty_dir(&TREE).unwrap();
    assert_eq!(fs::read_dir(&mounted).unwrap().count(), 0);
    assert!(tree.exists());
    nix::mount::umount(&tree).unwrap();
    assert!(tree.join("etc/hostname").exists(), "what the mount hid");
    host.empty_dir(&HostPath::fixed("/var/lib/machines/kube2")).unwrap();
}
