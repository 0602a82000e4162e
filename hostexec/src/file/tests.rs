use super::*;
use crate::again;
use nix::mount::{MsFlags, mount};
use std::{
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
};

const FILE: HostPath = HostPath::fixed("/etc/aks-flex-node/config.json");

fn root() -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::rooted(dir.path());
    (dir, host)
}

fn path(text: &str) -> HostPath {
    HostPath::new(text).unwrap()
}

fn mode(host: &Host, path: &HostPath) -> u32 {
    host.metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn what_was_written_is_read_back_with_its_mode() {
    let (_dir, host) = root();
    host.write(&FILE, b"{}", 0o600).unwrap();
    assert_eq!(host.read_text(&FILE).unwrap(), "{}");
    assert_eq!(
        (mode(&host, &FILE), mode(&host, &path("/etc/aks-flex-node"))),
        (0o600, 0o755)
    );
    host.write(&FILE, b"[]", 0o644).unwrap();
    assert_eq!(
        (host.read(&FILE).unwrap().as_slice(), mode(&host, &FILE)),
        (&b"[]"[..], 0o644)
    );
    assert_eq!(host.list(&path("/etc/aks-flex-node")).unwrap(), ["config.json"]);
}

#[test]
fn modes_are_as_asked_whatever_the_umask() {
    if !again::is_inner() {
        return again::passes(&mut again::again("file::tests::modes_are_as_asked_whatever_the_umask"));
    }
    for umask in [0o000, 0o027, 0o077] {
        let (_dir, host) = root();
        nix::sys::stat::umask(Mode::from_bits_truncate(umask));
        host.write(&FILE, b"", 0o644).unwrap();
        host.create_dir(&path("/var/lib/private"), 0o700).unwrap();
        let modes =
            ["/etc", "/etc/aks-flex-node/config.json", "/var/lib", "/var/lib/private"].map(|p| mode(&host, &path(p)));
        assert_eq!(modes, [0o755, 0o644, 0o755, 0o700], "{umask:o}");
    }
}

#[test]
fn a_reader_sees_the_old_bytes_or_the_new_never_a_part() {
    let (_dir, host) = root();
    let (old, new) = (vec![b'o'; 100_000], vec![b'n'; 50_000]);
    host.write(&FILE, &old, 0o600).unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for bytes in [&new, &old].into_iter().cycle().take(8) {
                host.write(&FILE, bytes, 0o600).unwrap();
            }
        });
        while !writer.is_finished() {
            let seen = host.read(&FILE).unwrap();
            assert!(seen == old || seen == new, "{} bytes", seen.len());
        }
    });
}

#[test]
fn a_write_that_fails_leaves_the_old_and_no_temporary_file() {
    let (dir, host) = root();
    fs::create_dir_all(dir.path().join("etc/taken/by-a-folder")).unwrap();
    let error = host.write(&path("/etc/taken"), b"x", 0o600).unwrap_err();
    assert!(error.to_string().starts_with("write /etc/taken: "), "{error}");
    assert_eq!(host.list(&path("/etc")).unwrap(), ["taken"]);
    fs::write(dir.path().join("etc/file"), "").unwrap();
    host.write(&path("/etc/file/below"), b"x", 0o600).unwrap_err();
}

#[test]
fn a_replacement_dropped_before_its_commit_leaves_nothing() {
    let (_dir, host) = root();
    host.write(&FILE, b"old", 0o600).unwrap();
    let mut new = host.replace(&FILE, 0o600).unwrap();
    new.write_all(b"half").unwrap();
    drop(new);
    assert_eq!(host.read_text(&FILE).unwrap(), "old");
    assert_eq!(host.list(&path("/etc/aks-flex-node")).unwrap(), ["config.json"]);
}

#[test]
fn only_a_difference_is_written_and_the_mode_is_one() {
    let (_dir, host) = root();
    let inode = || host.metadata(&FILE).unwrap().ino();
    assert_eq!(host.write_if_changed(&FILE, b"a", 0o600).unwrap(), Written::Changed);
    let first = inode();
    assert_eq!(host.write_if_changed(&FILE, b"a", 0o600).unwrap(), Written::Same);
    assert_eq!(inode(), first);
    assert_eq!(host.write_if_changed(&FILE, b"a", 0o644).unwrap(), Written::Changed);
    assert_eq!(mode(&host, &FILE), 0o644);
    assert_eq!(host.write_if_changed(&FILE, b"b", 0o644).unwrap(), Written::Changed);
    assert_eq!(host.read_text(&FILE).unwrap(), "b");
}

#[test]
fn a_link_is_replaced_not_written_through() {
    let (dir, host) = root();
    host.write(&path("/run/target"), b"target", 0o644).unwrap();
    host.link("/run/target", &FILE).unwrap();
    assert_eq!(host.read_text(&FILE).unwrap(), "target");
    assert_eq!(
        host.write_if_changed(&FILE, b"target", 0o644).unwrap(),
        Written::Changed
    );
    assert!(
        fs::symlink_metadata(dir.path().join(&FILE.as_str()[1..]))
            .unwrap()
            .is_file()
    );
    host.link("elsewhere", &FILE).unwrap();
    assert_eq!(host.read_link(&FILE).unwrap(), "elsewhere");
    assert!(host.exists(&FILE).unwrap(), "a dangling link is there");
    assert_eq!(host.read_text(&path("/run/target")).unwrap(), "target");
    assert_eq!(host.list(&path("/etc/aks-flex-node")).unwrap(), ["config.json"]);
}

#[test]
fn na_r24_links_below_the_root_stay_in_the_root() {
    let (dir, host) = root();
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret");
    fs::write(&secret, "outside").unwrap();
    let outside = outside.path().to_str().unwrap();

    // What an absolute link or any number of `..` leads to is in the root: first absent, then ours.
    let up = format!("{}{}", "../".repeat(30), &outside[1..]);
    for (name, target) in [("absolute", outside), ("upwards", up.as_str()), ("chain", "/absolute")] {
        symlink(target, dir.path().join(name)).unwrap();
    }
    for name in ["absolute", "upwards", "chain"] {
        let through = path(&format!("/{name}/secret"));
        for error in [
            host.read(&through).unwrap_err(),
            host.write(&through, b"x", 0o600).unwrap_err(),
            host.create_dir(&through, 0o755).unwrap_err(),
            host.link("x", &through).unwrap_err(),
            host.lock(&through).unwrap_err(),
            host.list(&path(&format!("/{name}"))).unwrap_err(),
        ] {
            assert!(error.to_string().contains(&format!("/{name}")), "{error}");
        }
        assert!(!host.exists(&through).unwrap() && !host.is_dir(&path(&format!("/{name}"))).unwrap());
        host.remove(&through).unwrap();
        host.remove_tree(&through).unwrap();
        host.sweep(&path(&format!("/{name}"))).unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "outside");
    }
    fs::create_dir_all(dir.path().join(&outside[1..])).unwrap();
    for name in ["absolute", "upwards", "chain"] {
        let through = path(&format!("/{name}/secret"));
        host.write(&through, name.as_bytes(), 0o600).unwrap();
        assert_eq!(
            fs::read_to_string(dir.path().join(&outside[1..]).join("secret")).unwrap(),
            name
        );
        assert_eq!(host.read_text(&through).unwrap(), name);
        host.remove(&through).unwrap();
    }
    assert_eq!(fs::read_to_string(&secret).unwrap(), "outside");
}

#[test]
fn na_r24_a_loop_of_links_is_an_error_and_not_an_absence() {
    let (dir, host) = root();
    symlink("b", dir.path().join("a")).unwrap();
    symlink("a", dir.path().join("b")).unwrap();
    let through = path("/a/file");
    for error in [
        host.read(&through).unwrap_err(),
        host.exists(&through).unwrap_err(),
        host.remove(&through).unwrap_err(),
        host.write(&through, b"", 0o600).unwrap_err(),
    ] {
        assert!(
            error.to_string().contains("/a/file: Too many levels of symbolic links"),
            "{error}"
        );
    }
    host.remove(&path("/a")).unwrap();
}

#[test]
fn na_r24_a_link_of_proc_is_not_followed() {
    if !again::is_inner() {
        return again::passes_with_own_mounts("file::tests::na_r24_a_link_of_proc_is_not_followed");
    }
    let (dir, host) = root();
    let proc = dir.keep().join("proc");
    fs::create_dir(&proc).unwrap();
    mount(Some("/proc"), &proc, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    host.read(&path("/proc/self/root/etc/passwd")).unwrap_err();
    let stat = host.read_text(&path("/proc/self/stat")).unwrap();
    assert!(stat.starts_with(&format!("{} ", std::process::id())), "{stat}");
}

#[test]
fn na_r22_on_a_read_only_file_system_what_is_absent_is_removed() {
    if !again::is_inner() {
        return again::passes_with_own_mounts(
            "file::tests::na_r22_on_a_read_only_file_system_what_is_absent_is_removed",
        );
    }
    let (dir, host) = root();
    let dir = dir.keep();
    mount(Some("tmpfs"), &dir, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
    host.write(&FILE, b"x", 0o600).unwrap();
    mount(
        None::<&str>,
        &dir,
        None::<&str>,
        MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY,
        None::<&str>,
    )
    .unwrap();

    for absent in [
        "/etc/aks-flex-node/none",
        "/none/below",
        "/etc/aks-flex-node/config.json/below",
    ] {
        host.remove(&path(absent)).unwrap();
        host.remove_tree(&path(absent)).unwrap();
    }
    host.sweep(&path("/etc/aks-flex-node")).unwrap();
    assert_eq!(host.write_if_changed(&FILE, b"x", 0o600).unwrap(), Written::Same);
    host.create_dir(&path("/etc/aks-flex-node"), 0o755).unwrap();
    for error in [
        host.remove(&FILE).unwrap_err(),
        host.write(&FILE, b"y", 0o600).unwrap_err(),
    ] {
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert!(error.to_string().contains(FILE.as_str()), "{error}");
    }
    assert_eq!(host.read_text(&FILE).unwrap(), "x");
}

#[test]
fn a_folder_that_is_there_keeps_its_mode_and_a_file_in_the_way_is_an_error() {
    let (_dir, host) = root();
    host.create_dir(&path("/var/lib/x"), 0o700).unwrap();
    host.create_dir(&path("/var/lib/x"), 0o755).unwrap();
    assert_eq!(mode(&host, &path("/var/lib/x")), 0o700);
    host.write(&path("/var/lib/file"), b"", 0o600).unwrap();
    host.create_dir(&path("/var/lib/file"), 0o755).unwrap_err();
    host.link("nowhere", &path("/var/lib/link")).unwrap();
    host.create_dir(&path("/var/lib/link"), 0o755).unwrap_err();
}

#[test]
fn remove_takes_files_and_links_but_no_folders() {
    let (_dir, host) = root();
    host.write(&FILE, b"", 0o600).unwrap();
    host.remove(&FILE).unwrap();
    host.remove(&FILE).unwrap();
    assert!(!host.exists(&FILE).unwrap());
    let error = host.remove(&path("/etc/aks-flex-node")).unwrap_err();
    assert!(error.to_string().starts_with("remove /etc/aks-flex-node: "), "{error}");
}

#[test]
fn an_error_names_the_path_of_the_host_and_keeps_its_kind() {
    let (_dir, host) = root();
    let error = host.read(&FILE).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(
        error.to_string(),
        "read /etc/aks-flex-node/config.json: No such file or directory (os error 2)"
    );
}

#[test]
fn a_sweep_takes_what_a_crash_left_and_nothing_else() {
    let (dir, host) = root();
    host.write(&FILE, b"", 0o600).unwrap();
    let folder = dir.path().join("etc/aks-flex-node");
    let left = |name: &str| folder.join(format!("{PREFIX}{name}"));
    fs::write(left("file"), "half").unwrap();
    symlink("nowhere", left("link")).unwrap();
    fs::create_dir_all(left("tree").join("below")).unwrap();
    let mut writing = host.replace(&FILE, 0o600).unwrap();

    host.sweep(&path("/etc/aks-flex-node")).unwrap();
    assert_eq!(
        host.list(&path("/etc/aks-flex-node")).unwrap().len(),
        2,
        "the file, and what is being written"
    );
    writing.write_all(b"whole").unwrap();
    writing.commit().unwrap();
    assert_eq!(host.read_text(&FILE).unwrap(), "whole");
    host.sweep(&path("/absent")).unwrap();
}

#[test]
fn a_rename_moves_a_folder_within_the_root() {
    let (_dir, host) = root();
    host.write(&path("/var/lib/new/x"), b"x", 0o600).unwrap();
    host.rename(&path("/var/lib/new"), &path("/var/lib/made/now")).unwrap();
    assert_eq!(host.read_text(&path("/var/lib/made/now/x")).unwrap(), "x");
    let error = host.rename(&path("/none"), &path("/x")).unwrap_err().to_string();
    assert!(error.starts_with("rename /none to /x: "), "{error}");
}

#[test]
fn ordinary_code_works_inside_an_open_folder() {
    let (dir, host) = root();
    host.create_dir(&path("/var/lib/machines"), 0o700).unwrap();
    let open = host.open_dir(&path("/var/lib/machines")).unwrap();
    fs::create_dir_all(open.path().join("kube1/etc")).unwrap();
    open.sync().unwrap();
    assert!(Path::new(&dir.path().join("var/lib/machines/kube1/etc")).is_dir());
    assert_eq!(host.list(&HostPath::ROOT).unwrap(), ["var"]);
}
