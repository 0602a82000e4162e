//! The built `host-exec`, in a container of sorts: a root of its own with a host of sorts at `/host`, in mount and process
//! namespaces of its own, so that nothing of it is seen or left on this machine.

#![expect(clippy::unwrap_used, reason = "in a test, also in what only tests call")]

use hostexec::{Host, HostPath, Tool, ToolError};
use nix::{
    mount::{MsFlags, mount},
    sys::signal::{SigSet, Signal},
    unistd::geteuid,
};
use std::{
    fs::{self, Permissions},
    io::Write,
    os::unix::{
        fs::{PermissionsExt, symlink},
        process::ExitStatusExt,
    },
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_host-exec");
const ROOT: &str = "HOSTEXEC_TEST_ROOT";

/// Runs the body of the test of this name as process 1 of namespaces of its own; as root, or as a user namespace's.
fn in_a_container(test: &str, body: impl FnOnce(&Container)) {
    if let Some(root) = std::env::var_os(ROOT) {
        return body(&Container::new(root.into()));
    }
    // Removed out here, where none of the mounts is seen.
    let root = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    if !geteuid().is_root() {
        command.args(["--user", "--map-root-user"]);
    }
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]);
    command
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"]);
    let output = command
        .env(ROOT, root.path())
        .output()
        .expect("unshare(1) of util-linux");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{}\n{said}\n{complaints}",
        output.status
    );
}

/// The container's root; the host's is `host` in it.
struct Container {
    root: PathBuf,
}

impl Container {
    fn new(root: PathBuf) -> Self {
        let container = Self { root };
        container.system("");
        container.system("host");
        let program = container.root.join("usr/bin/host-exec");
        fs::copy(PROGRAM, program).unwrap();
        container
    }

    /// Enough of a system for a dynamic program and a shell script.
    fn system(&self, below: &str) {
        let root = self.root.join(below);
        for folder in ["usr/bin", "usr/lib", "proc", "dev", "etc"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        bind(Path::new("/usr/lib"), &root.join("usr/lib"));
        for lib in ["lib", "lib64"] {
            match fs::read_link(Path::new("/").join(lib)) {
                Ok(target) => symlink(target, root.join(lib)).unwrap(),
                Err(_) if Path::new("/").join(lib).exists() => {
                    fs::create_dir(root.join(lib)).unwrap();
                    bind(&Path::new("/").join(lib), &root.join(lib));
                }
                Err(_) => {}
            }
        }
        if Path::new("/usr/lib64").exists() {
            fs::create_dir(root.join("usr/lib64")).unwrap();
            bind(Path::new("/usr/lib64"), &root.join("usr/lib64"));
        }
        symlink("usr/bin", root.join("bin")).unwrap();
        for program in ["sh", "cat", "env", "setpriv"] {
            fs::copy(Path::new("/bin").join(program), root.join("usr/bin").join(program)).unwrap();
        }
        mount(
            Some("proc"),
            &root.join("proc"),
            Some("proc"),
            MsFlags::empty(),
            None::<&str>,
        )
        .unwrap();
    }

    /// Gives the host a tool.
    fn tool(&self, name: &str, script: &str) {
        self.host_file(&format!("usr/bin/{name}"), &format!("#!/bin/sh\n{script}\n"), 0o755);
    }

    fn host_file(&self, path: &str, text: &str, mode: u32) {
        let file = self.root.join("host").join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    }

    /// A command in the container.
    fn command(&self, line: &[&str]) -> Command {
        let mut command = Command::new("chroot");
        command.arg(&self.root).args(line).stdin(Stdio::null());
        command
    }

    fn run(&self, line: &[&str]) -> Output {
        self.command(line).output().unwrap()
    }
}

fn bind(from: &Path, to: &Path) {
    mount(Some(from), to, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The exit code, stdout and stderr.
fn told(output: &Output) -> (Option<i32>, &str, &str) {
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_tool_runs_under_the_hosts_root_with_its_arguments_streams_and_code() {
    in_a_container(
        "a_tool_runs_under_the_hosts_root_with_its_arguments_streams_and_code",
        |container| {
            container.host_file("etc/hostname", "the-host\n", 0o644);
            container.tool(
                "systemctl",
                "cat /etc/hostname -; pwd; echo \"<$*> $$\"; echo beware >&2; exit 42",
            );
            let mut child = container
                .command(&["/usr/bin/host-exec", "systemctl", "is-active", "a b"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            // Both chroot(1) and host-exec become what they run.
            let pid = child.id();
            child.stdin.take().unwrap().write_all(b"from stdin\n").unwrap();
            let output = child.wait_with_output().unwrap();
            let expected = format!("the-host\nfrom stdin\n/\n<is-active a b> {pid}\n");
            assert_eq!(told(&output), (Some(42), expected.as_str(), "beware\n"));
        },
    );
}

#[test]
fn a_link_named_after_a_tool_runs_it_and_death_by_a_signal_is_passed_on() {
    in_a_container(
        "a_link_named_after_a_tool_runs_it_and_death_by_a_signal_is_passed_on",
        |container| {
            let links = container.root.join("usr/libexec/host-exec");
            fs::create_dir_all(&links).unwrap();
            for name in ["journalctl", "sh"] {
                symlink("/usr/bin/host-exec", links.join(name)).unwrap();
            }
            container.tool("journalctl", "[ $1 = die ] && kill -9 $$; echo \"$@\"");
            let output = container.run(&["/usr/libexec/host-exec/journalctl", "--unit", "x"]);
            assert_eq!(told(&output), (Some(0), "--unit x\n", ""));
            assert_eq!(
                container
                    .run(&["/usr/libexec/host-exec/journalctl", "die"])
                    .status
                    .signal(),
                Some(9)
            );
            let output = container.run(&["/usr/libexec/host-exec/sh", "-c", "exit 0"]);
            let refusal = "host-exec: sh is not a tool of the host that may be run\n";
            assert_eq!(told(&output), (Some(126), "", refusal));
        },
    );
}

#[test]
fn fc_h3_hostile_variables_do_not_reach_a_tool_and_harmless_ones_do() {
    in_a_container(
        "fc_h3_hostile_variables_do_not_reach_a_tool_and_harmless_ones_do",
        |container| {
            container.tool("systemctl", "exec env");
            let names = || {
                include_str!("hostile-variables.txt")
                    .lines()
                    .filter(|name| *name != "PATH")
            };
            assert!(names().count() >= 30);
            let output = container
                .command(&[
                    "/usr/bin/env",
                    "PATH=/usr/libexec/host-exec:/usr/bin",
                    "/usr/bin/host-exec",
                    "systemctl",
                ])
                .envs(names().map(|name| (name, "/nonexistent")))
                .envs([
                    ("LC_ALL", "C.UTF-8"),
                    ("HOME", "/nonexistent"),
                    ("TZ", "UTC"),
                    ("no_proxy", "10.0.0.0/8"),
                ])
                .output()
                .unwrap();
            let seen = text(&output.stdout);
            let has = |start: &str| seen.lines().any(|line| line.starts_with(start));
            for name in names() {
                assert!(!has(&format!("{name}=")), "{name} in {seen}");
            }
            let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
            for line in [path, "LC_ALL=C.UTF-8", "HOME=/root", "TZ=UTC", "no_proxy=10.0.0.0/8"] {
                assert!(has(line), "{line} in {seen}");
            }
        },
    );
}

#[test]
fn a_tool_starts_with_sigpipe_deadly_and_no_signal_blocked() {
    in_a_container("a_tool_starts_with_sigpipe_deadly_and_no_signal_blocked", |container| {
        container.tool("systemctl", "exec cat /proc/self/status");
        SigSet::from(Signal::SIGUSR1).thread_block().unwrap();
        let output = container.run(&["/usr/bin/host-exec", "systemctl"]);
        let mask = |name: &str| {
            let line = text(&output.stdout)
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        assert_eq!(
            (mask("SigBlk:"), mask("SigIgn:") >> (Signal::SIGPIPE as u32 - 1) & 1),
            (0, 0)
        );
        // That this can fail: without host-exec the block is inherited.
        let output = container.run(&["/bin/cat", "/proc/self/status"]);
        assert!(!text(&output.stdout).contains("SigBlk:\t0000000000000000"));
    });
}

#[test]
fn fc_h6_what_cannot_be_run_is_said_at_once_each_with_its_code() {
    in_a_container(
        "fc_h6_what_cannot_be_run_is_said_at_once_each_with_its_code",
        |container| {
            // In the container, but not on the host.
            fs::copy("/bin/cat", container.root.join("usr/bin/machinectl")).unwrap();
            let host = container.root.join("host");
            container.host_file("usr/bin/nft", "no program\n", 0o644);
            container.host_file("usr/bin/ip", "#!/nonexistent\n", 0o755);
            // To a shell these would be scripts, and the first would succeed.
            container.host_file("usr/bin/rpm", "", 0o755);
            container.host_file("usr/bin/dnf", "echo ran\n", 0o755);
            container.host_file("usr/bin/tdnf", "\u{7f}ELF\necho ran\n", 0o755);
            fs::create_dir(host.join("usr/bin/curl")).unwrap();
            symlink("/usr/bin/nowhere", host.join("usr/bin/ctr")).unwrap();
            // What comes later in the order is still found.
            fs::create_dir_all(host.join("usr/sbin/sysctl")).unwrap();
            container.tool("sysctl", "exit 3");
            let no_program = "it is no program: empty, damaged, of another machine's kind, or without `#!`";
            let long = "x".repeat(101);
            let looked = "looked in /usr/local/sbin, /usr/local/bin, /usr/sbin, /usr/bin, /sbin, /bin";
            for (line, code, why) in [
                (
                    &["machinectl"][..],
                    127,
                    format!("machinectl is not on the host ({looked})"),
                ),
                (&["ctr"], 127, format!("ctr is not on the host ({looked})")),
                (&["nft"], 126, "nft is not executable on the host (/usr/bin/nft)".into()),
                (
                    &["curl"],
                    126,
                    "curl is not executable on the host (/usr/bin/curl)".into(),
                ),
                (
                    &["ip"],
                    126,
                    "/usr/bin/ip: its interpreter is missing on the host".into(),
                ),
                (&["rpm"], 126, format!("/usr/bin/rpm: {no_program}")),
                (&["dnf"], 126, format!("/usr/bin/dnf: {no_program}")),
                (&["tdnf"], 126, format!("/usr/bin/tdnf: {no_program}")),
                (
                    &["a\u{1b}[31m\nb\u{202e}ü"],
                    126,
                    "a\\u{1b}[31m\\u{a}b\\u{202e}ü is not a tool of the host that may be run".into(),
                ),
                (
                    &[&long],
                    126,
                    format!("{}… is not a tool of the host that may be run", &long[..100]),
                ),
                (
                    &["/bin/sh"],
                    126,
                    "/bin/sh is not a tool of the host that may be run".into(),
                ),
                (
                    &[],
                    126,
                    "usage: host-exec TOOL [ARGUMENT...], or host-exec --list".into(),
                ),
            ] {
                let output = container.run(&[&["/usr/bin/host-exec"], line].concat());
                assert_eq!(told(&output), (Some(code), "", format!("host-exec: {why}\n").as_str()));
            }
            assert_eq!(container.run(&["/usr/bin/host-exec", "sysctl"]).status.code(), Some(3));
        },
    );
}

#[test]
fn without_a_host_the_error_says_so() {
    in_a_container("without_a_host_the_error_says_so", |container| {
        let host = container.root.join("host");
        for mounted in ["proc", "usr/lib", "usr/lib64"] {
            let _ = nix::mount::umount(&host.join(mounted));
        }
        fs::rename(&host, container.root.join("elsewhere")).unwrap();
        let output = container.run(&["/usr/bin/host-exec", "systemctl"]);
        let why = "enter /host: No such file or directory (os error 2); is the host's root mounted at /host?";
        assert_eq!(
            told(&output),
            (Some(125), "", format!("host-exec: systemctl: {why}\n").as_str())
        );
        fs::write(&host, "").unwrap();
        for (tool, what) in [
            ("systemctl", "enter /host"),
            ("mount", "open the host's mount namespace, /host/proc/1/ns/mnt"),
        ] {
            let output = container.run(&["/usr/bin/host-exec", tool]);
            let why = "Not a directory (os error 20); /host is a file: mount the host's root there";
            let expected = format!("host-exec: {tool}: {what}: {why}\n");
            assert_eq!(told(&output), (Some(125), "", expected.as_str()));
        }
        fs::remove_file(&host).unwrap();
        fs::create_dir(&host).unwrap();
        let output = container.run(&["/usr/bin/host-exec", "systemctl"]);
        let why = "host-exec: systemctl: the host's root is not mounted at /host\n";
        assert_eq!(told(&output), (Some(125), "", why));
        let output = container.run(&["/usr/bin/host-exec", "mount"]);
        assert_eq!(output.status.code(), Some(125));
        assert!(
            text(&output.stderr).contains("/host/proc/1/ns/mnt: No such file"),
            "{output:?}"
        );
    });
}

#[test]
fn na_r24_a_tool_behind_an_absolute_link_is_the_hosts() {
    in_a_container("na_r24_a_tool_behind_an_absolute_link_is_the_hosts", |container| {
        container.host_file("opt/multi", "#!/bin/sh\necho the host\n", 0o755);
        fs::create_dir(container.root.join("opt")).unwrap();
        fs::write(container.root.join("opt/multi"), "#!/bin/sh\necho the container\n").unwrap();
        symlink("/opt/multi", container.root.join("host/usr/bin/iptables")).unwrap();
        let output = container.run(&["/usr/bin/host-exec", "iptables"]);
        assert_eq!(told(&output), (Some(0), "the host\n", ""));
        // A program of many names goes by the one it is called by; a shell says which.
        symlink("/usr/bin/sh", container.root.join("host/usr/bin/nft")).unwrap();
        let output = container.run(&["/usr/bin/host-exec", "nft", "-c", "echo $0"]);
        assert_eq!(told(&output), (Some(0), "nft\n", ""));
    });
}

#[test]
fn fc_h1_a_mount_is_made_among_the_mounts_of_process_1() {
    in_a_container("fc_h1_a_mount_is_made_among_the_mounts_of_process_1", |container| {
        // This process is number 1, so this machine's root, as it sees it, is the host's.
        let at = container.root.join("mounted here");
        fs::create_dir(&at).unwrap();
        let seen = || {
            fs::read_to_string("/proc/self/mountinfo")
                .unwrap()
                .contains("mounted\\040here")
        };
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--propagation", "private", "chroot"])
            .arg(&container.root);
        command
            .args(["/usr/bin/host-exec", "mount", "-t", "tmpfs", "tmpfs"])
            .arg(&at);
        assert!(!seen());
        let output = command.output().unwrap();
        assert_eq!(told(&output), (Some(0), "", ""));
        assert!(seen());
    });
}

#[test]
fn fc_h5_a_missing_privilege_is_named_and_what_needs_none_of_it_runs() {
    in_a_container(
        "fc_h5_a_missing_privilege_is_named_and_what_needs_none_of_it_runs",
        |container| {
            container.tool("systemctl", "echo ran");
            container.tool("mount", "echo ran");
            let without = |capability: &str, tool| {
                let less = format!("-{capability}");
                container.run(&["/usr/bin/setpriv", "--bounding-set", &less, "/usr/bin/host-exec", tool])
            };
            let why = "the container lacks a privilege it needs\n";
            let output = without("sys_chroot", "systemctl");
            let refusal = format!("host-exec: systemctl: enter /host: Operation not permitted (os error 1); {why}");
            assert_eq!(told(&output), (Some(125), "", refusal.as_str()));
            let output = without("sys_admin", "mount");
            // Refused when opening it or when joining it: that depends on what process 1 has.
            assert_eq!(output.status.code(), Some(125));
            let complaint = text(&output.stderr);
            assert!(
                complaint.contains(" the host's mount namespace") && complaint.ends_with(why),
                "{complaint}"
            );
            assert_eq!(told(&without("sys_admin", "systemctl")), (Some(0), "ran\n", ""));
        },
    );
}

#[test]
fn from_within_the_container_the_host_is_read_written_and_run() {
    in_a_container(
        "from_within_the_container_the_host_is_read_written_and_run",
        |container| {
            container.host_file("etc/hostname", "the-host\n", 0o644);
            container.tool("systemctl", "cat /etc/hostname; cat; echo $LC_ALL; exit $1");
            nix::unistd::chroot(&container.root).unwrap();
            std::env::set_current_dir("/").unwrap();
            let host = Host::container();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();

            let call = hostexec::Call::new(Tool::Systemctl, &["3"])
                .stdin(b"from stdin\n")
                .any_code();
            let output = runtime.block_on(host.call(call)).unwrap();
            assert_eq!(output.code, Some(3));
            assert!(
                output.stdout.starts_with("the-host\nfrom stdin\nC.UTF-8\n"),
                "{output:?}"
            );
            let error = runtime.block_on(host.run(Tool::Machinectl, &["list"])).unwrap_err();
            assert!(matches!(error, ToolError::Missing(Tool::Machinectl)), "{error}");

            let path = HostPath::fixed("/etc/aks-flex-node/config.json");
            host.write(&path, b"{}", 0o600).unwrap();
            assert_eq!(fs::read_to_string("/host/etc/aks-flex-node/config.json").unwrap(), "{}");
            assert!(!Path::new("/etc/aks-flex-node").exists());
            symlink("/etc/hostname", "/host/etc/name").unwrap();
            assert_eq!(host.read_text(&HostPath::fixed("/etc/name")).unwrap(), "the-host\n");
            let error = host.remove_tree(&HostPath::fixed("/usr")).unwrap_err().to_string();
            assert!(error.starts_with("remove /usr: something is mounted at lib"), "{error}");
        },
    );
}

#[test]
fn the_list_is_the_table() {
    let output = Command::new(PROGRAM).arg("--list").output().unwrap();
    let table: String = Tool::ALL.iter().map(|tool| format!("{}\n", tool.name())).collect();
    assert_eq!(told(&output), (Some(0), table.as_str(), ""));
}
