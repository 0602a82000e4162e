use super::*;
use crate::again;
use std::{
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Stdio,
};

const PATH: HostPath = HostPath::fixed("/run/aks-flex-node/upgrade.lock");

#[test]
fn a_lock_excludes_and_is_free_again_when_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::rooted(dir.path());
    let lock = host.lock(&PATH).unwrap();
    assert!(host.try_lock(&PATH).unwrap().is_none());
    let other = HostPath::fixed("/run/aks-flex-node/other.lock");
    assert!(host.try_lock(&other).unwrap().is_some());
    drop(lock);
    assert!(host.try_lock(&PATH).unwrap().is_some());
    let mode = host.metadata(&PATH).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}

#[test]
fn a_lock_dies_with_its_holder() {
    const ROOT: &str = "HOSTEXEC_TEST_ROOT";
    if again::is_inner() {
        let root = std::env::var_os(ROOT).unwrap();
        let _lock = Host::rooted(Path::new(&root)).lock(&PATH).unwrap();
        println!("\nheld");
        std::thread::sleep(std::time::Duration::from_secs(600));
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Host::rooted(dir.path());
    let mut holder = again::again("lock::tests::a_lock_dies_with_its_holder")
        .env(ROOT, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(holder.stdout.take().unwrap());
    assert!(said.lines().map_while(Result::ok).any(|line| line == "held"));
    let held = host.try_lock(&PATH).unwrap().is_none();
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(held);
    assert!(host.try_lock(&PATH).unwrap().is_some());
}

#[test]
fn na_r24_a_lock_is_not_taken_through_a_link() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::NamedTempFile::new().unwrap());
    let host = Host::rooted(dir.path());
    host.link(outside.path().to_str().unwrap(), &PATH).unwrap();
    let error = host.lock(&PATH).unwrap_err().to_string();
    assert!(error.starts_with("lock /run/aks-flex-node/upgrade.lock: "), "{error}");
}
