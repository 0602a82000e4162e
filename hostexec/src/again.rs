//! For tests of what a whole process has (environment, umask, mounts, its death): the test runs itself again, in a
//! process of its own.

use nix::unistd::geteuid;
use std::process::Command;

const INNER: &str = "HOSTEXEC_TEST_INNER";

/// Whether this is the process of its own.
pub(crate) fn is_inner() -> bool {
    std::env::var_os(INNER).is_some()
}

/// The test of this name, to be run in a process of its own.
pub(crate) fn again(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    arm(&mut command, test);
    command
}

/// Runs the test of this name with mounts of its own: as root, or as the root of a user namespace. Its temporary folders
/// are removed here, where none of its mounts is seen: it must [`tempfile::TempDir::keep`] them.
pub(crate) fn passes_with_own_mounts(test: &str) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command
        .args(["--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap());
    arm(&mut command, test);
    passes(command.env("TMPDIR", dir.path()));
}

fn arm(command: &mut Command, test: &str) {
    command
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(INNER, "1");
}

/// Runs it, and sees to it that the test was really run.
pub(crate) fn passes(command: &mut Command) {
    let output = command
        .output()
        .expect("the test runs again (with mounts of its own, through unshare(1) of util-linux)");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}
