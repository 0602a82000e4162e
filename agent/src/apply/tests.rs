//! Steps against a folder that plays the host, with scripts for its tools. Each script logs its call and then does what
//! the test says.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    sync::atomic::Ordering,
};

use hostexec::HostPath;
use image::Digest;

use super::*;
use crate::{
    fetch::tests::{Then, chain, fetcher, ok, server},
    model::{MachineName, Secret},
    step::{Archive, Content, Download, Entry, File, Origin, Place, Proof, Sysctl, Unpack},
};

mod host;

struct Bed {
    dir: tempfile::TempDir,
    context: Context,
}

impl Bed {
    /// A host with these tools; in a script `$log` is the log of calls and `$root` the host's root.
    fn new(tools: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().display();
        let host = Host::rooted(dir.path());
        for (name, script) in tools {
            let path = HostPath::fixed("/usr/bin").join(name).unwrap();
            let text = format!("#!/bin/sh\nroot={root} log={root}/log\necho \"{name} $*\" >> $log\n{script}\n");
            host.write(&path, text.as_bytes(), 0o755).unwrap();
        }
        host.create_dir(&HostPath::fixed("/var/lib/machines/kube1/etc"), 0o755)
            .unwrap();
        let short = Duration::from_millis(300);
        let poll = Duration::from_millis(20);
        let waits = Waits {
            boot: short,
            poll,
            gone: short,
            active: short,
            joined: short,
            steady: poll,
            lasting: poll,
            kubelet_poll: poll,
        };
        let context = Context {
            host,
            fetcher: fetcher(),
            program: "/proc/self/exe".into(),
            waits,
        };
        Self { dir, context }
    }

    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// The calls that ask for more than an answer.
    fn changes(&self) -> Vec<String> {
        let asks = |call: &String| {
            [" show ", " is-enabled "]
                .iter()
                .any(|question| call.contains(question))
        };
        self.calls().into_iter().filter(|call| !asks(call)).collect()
    }

    fn put(&self, path: &str, text: &str) {
        let path = HostPath::new(format!("/{path}")).unwrap();
        self.context.host.write(&path, text.as_bytes(), 0o644).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.dir.path().join(path)).unwrap()
    }

    async fn make(&self, step: Step) -> Result<(), Failed> {
        run(&Plan::task("a-task", step), &self.context).await
    }

    async fn fails(&self, step: Step) -> String {
        chain(&self.make(step).await.unwrap_err())
    }
}

const MACHINE: MachineName = MachineName::Kube1;

fn open(place: Place, path: &'static str, text: &str) -> File {
    File::open(place, HostPath::fixed(path), 0o644, text)
}

#[tokio::test]
async fn a_serial_plan_ends_at_its_first_error_which_bears_the_tasks_name() {
    let bed = Bed::new(&[
        ("systemctl", "[ $1 != start ] || { echo 'no such unit' >&2; exit 5; }"),
        ("journalctl", "echo last words"),
    ]);
    let plan = Plan::Serial(vec![
        Plan::task("first", Step::Reload),
        Plan::task("second", Step::UnitRunning { unit: "x.service" }),
        Plan::task("third", Step::UnitEnabled { unit: "x.service" }),
    ]);
    let failed = run(&plan, &bed.context).await.unwrap_err();
    assert_eq!(failed.task, "second");
    let text = chain(&failed);
    assert!(
        text.starts_with("second failed: x.service does not run") && text.contains("last words"),
        "{text}"
    );
    assert!(text.ends_with("no such unit"), "{text}");
    assert!(
        !bed.calls().iter().any(|call| call.contains("enable")),
        "{:?}",
        bed.calls()
    );
}

#[tokio::test]
async fn the_first_error_of_a_parallel_plan_ends_the_others_and_their_tools() {
    let bed = Bed::new(&[(
        "systemctl",
        "[ $1 = daemon-reload ] && { sleep 5; touch $root/survived; }; [ $1 != enable ]",
    )]);
    let started = Instant::now();
    let plan = Plan::Parallel(vec![
        Plan::task("slow", Step::Reload),
        Plan::task("broken", Step::UnitEnabled { unit: "x.service" }),
    ]);
    assert_eq!(run(&plan, &bed.context).await.unwrap_err().task, "broken");
    assert!(started.elapsed() < Duration::from_secs(3) && !bed.dir.path().join("survived").exists());
}

#[tokio::test]
async fn a_panic_is_the_error_of_its_step() {
    let bed = Bed::new(&[]);
    let text = bed
        .fails(Step::Sysctls(vec![Sysctl {
            key: "not..plain",
            value: "1",
        }]))
        .await;
    assert!(text.starts_with("a-task failed: a bug: the step panicked"), "{text}");
}

#[tokio::test]
async fn files_are_written_once_with_their_modes() {
    let bed = Bed::new(&[]);
    let step = Step::Files(vec![
        open(Place::Host, "/etc/a/b.conf", "b\n"),
        File::secret(Place::Machine(MACHINE), HostPath::fixed("/var/lib/kubelet/k"), "secret"),
        File::folder(
            Place::Machine(MACHINE),
            HostPath::fixed("/etc/kubernetes/manifests"),
            0o700,
        ),
        File::link(Place::Machine(MACHINE), HostPath::fixed("/etc/x.service"), "/dev/null"),
        File::absent(Place::Host, HostPath::fixed("/etc/gone")),
    ]);
    bed.make(step.clone()).await.unwrap();
    let secret = bed.dir.path().join("var/lib/machines/kube1/var/lib/kubelet/k");
    let before = [
        fs::metadata(&secret).unwrap().ino(),
        fs::metadata(bed.dir.path().join("etc/a/b.conf")).unwrap().ino(),
    ];
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    bed.make(step).await.unwrap();
    let after = [
        fs::metadata(&secret).unwrap().ino(),
        fs::metadata(bed.dir.path().join("etc/a/b.conf")).unwrap().ino(),
    ];
    assert_eq!(before, after, "written anew");
    assert_eq!(
        fs::read_link(bed.dir.path().join("var/lib/machines/kube1/etc/x.service"))
            .unwrap()
            .to_str(),
        Some("/dev/null")
    );
}

#[tokio::test]
async fn na_r24_a_link_in_a_machines_image_leads_into_the_image_not_the_host() {
    let bed = Bed::new(&[]);
    let machine = bed.dir.path().join("var/lib/machines/kube1");
    std::os::unix::fs::symlink("/etc", machine.join("escape")).unwrap();
    std::os::unix::fs::symlink("../../../../../../etc", machine.join("climb")).unwrap();
    let step = Step::Files(vec![
        open(Place::Machine(MACHINE), "/escape/a", "a"),
        open(Place::Machine(MACHINE), "/climb/b", "b"),
    ]);
    bed.make(step).await.unwrap();
    assert!(machine.join("etc/a").exists() && machine.join("etc/b").exists());
    assert!(!bed.dir.path().join("etc/a").exists() && !bed.dir.path().join("etc/b").exists());
}

#[tokio::test]
async fn sysctls_are_judged_by_the_kernel_not_by_the_tools_exit_code() {
    const WANTED: [Sysctl; 2] = [
        Sysctl {
            key: "vm.a",
            value: "1",
        },
        Sysctl {
            key: "net.bridge.bridge-nf-call-iptables",
            value: "1",
        },
    ];
    // The bridge's key isn't there, as without br_netfilter.
    let bed = Bed::new(&[(
        "sysctl",
        "echo 1 > $root/proc/sys/vm/a; echo 'no net.bridge' >&2; exit 1",
    )]);
    bed.context
        .host
        .write(&HostPath::fixed("/proc/sys/vm/a"), b"0\n", 0o644)
        .unwrap();
    bed.make(Step::Sysctls(WANTED.into())).await.unwrap();
    bed.make(Step::Sysctls(WANTED.into())).await.unwrap();
    assert_eq!(bed.calls(), ["sysctl --system"], "once, and then never again");

    let bed = Bed::new(&[("sysctl", "exit 0")]);
    bed.context
        .host
        .write(&HostPath::fixed("/proc/sys/vm/a"), b"0\n", 0o644)
        .unwrap();
    let text = bed.fails(Step::Sysctls(WANTED.into())).await;
    assert!(
        text.contains("vm.a is \"0\" and must be 1") && !text.contains("bridge"),
        "{text}"
    );
}

#[tokio::test]
async fn fc_n1_a_stale_registration_is_cleared_and_the_machine_started_again() {
    let bed = Bed::new(&[
        (
            "machinectl",
            "case $1 in start) [ -e $root/cleared ] || { echo 'Machine already exists' >&2; exit 1; };;
             terminate) touch $root/cleared;; show) [ ! -e $root/cleared ];; esac",
        ),
        ("systemctl", "exit 1"),
        ("systemd-run", "exit 0"),
        ("journalctl", ""),
    ]);
    bed.make(Step::MachineRunning { machine: MACHINE }).await.unwrap();
    let calls = bed.calls();
    let at = |call: &str| {
        calls
            .iter()
            .position(|made| made == call)
            .unwrap_or_else(|| panic!("no {call} in {calls:?}"))
    };
    assert!(at("machinectl terminate kube1") > at("systemctl reset-failed systemd-nspawn@kube1.service"));
    assert_eq!(calls.iter().filter(|call| *call == "machinectl start kube1").count(), 2);
}

#[tokio::test]
async fn a_machine_that_does_not_answer_is_told_with_its_last_words() {
    let bed = Bed::new(&[
        ("machinectl", ""),
        ("systemd-run", "exit 1"),
        (
            "journalctl",
            "echo 'Failed to mount'; echo 'token abcdef.0123456789abcdef'",
        ),
    ]);
    let text = bed.fails(Step::MachineRunning { machine: MACHINE }).await;
    assert!(
        text.contains("kube1 does not answer") && text.contains("Failed to mount | token ***"),
        "{text}"
    );
}

#[tokio::test]
async fn a_machine_is_enabled_together_with_the_target_that_starts_machines() {
    // For the ledger: how it was before.
    let noted = "systemctl show --property=UnitFileState --property=ActiveState machines.target";
    let asked = "systemctl is-enabled machines.target";
    let bed = Bed::new(&[("machinectl", ""), ("systemctl", "[ $1 = enable ] || echo disabled")]);
    bed.make(Step::MachineEnabled { machine: MACHINE }).await.unwrap();
    assert_eq!(
        bed.calls(),
        [
            noted,
            "machinectl enable kube1",
            asked,
            "systemctl enable machines.target"
        ]
    );
    let bed = Bed::new(&[("machinectl", ""), ("systemctl", "echo enabled")]);
    bed.make(Step::MachineEnabled { machine: MACHINE }).await.unwrap();
    assert_eq!(bed.calls(), [noted, "machinectl enable kube1", asked]);
    bed.make(Step::MachineEnabled { machine: MACHINE }).await.unwrap();
    assert_eq!(bed.calls()[3..], ["machinectl enable kube1", asked], "it is noted once");
}

#[tokio::test]
async fn a_service_is_started_anew_only_when_what_it_reads_has_changed() {
    let bed = Bed::new(&[("systemd-run", "case \"$*\" in *is-active*) echo active;; esac")]);
    let config = open(Place::Machine(MACHINE), "/etc/k.yaml", "a");
    let step = Step::ServiceRunning {
        machine: MACHINE,
        unit: "k.service",
        reads: vec![config.path.clone()],
    };
    let restarts = || {
        bed.calls()
            .iter()
            .filter(|call| call.ends_with("systemctl restart k.service"))
            .count()
    };
    bed.make(Step::Files(vec![config.clone()])).await.unwrap();
    bed.make(step.clone()).await.unwrap();
    assert_eq!(restarts(), 1, "it may run with something older");
    bed.make(step.clone()).await.unwrap();
    assert_eq!(restarts(), 1);
    let changed = File {
        entry: Entry::File {
            mode: 0o644,
            content: Content::Secret(Secret::new("b".to_owned())),
        },
        ..config
    };
    bed.make(Step::Files(vec![changed])).await.unwrap();
    bed.make(step).await.unwrap();
    assert_eq!(restarts(), 2);
    assert!(bed.calls()[0].starts_with("systemd-run --quiet --machine=kube1 --collect --pipe --wait -- systemctl"));
}

#[tokio::test]
async fn fc_k7_a_kubelet_without_certificate_is_told_with_what_to_do() {
    let bed = Bed::new(&[(
        "systemd-run",
        "case \"$*\" in *is-active*) echo active;; *journalctl*) echo 'waiting for abcdef.0123456789abcdef';; *) exit 1;; esac",
    )]);
    let text = bed
        .fails(Step::KubeletJoined {
            machine: MACHINE,
            credential: "/credential",
        })
        .await;
    assert!(
        text.contains("kubelet has no certificate") && text.contains("kubectl get csr"),
        "{text}"
    );
    assert!(text.ends_with("waiting for ***"), "{text}");
}

#[tokio::test]
async fn fc_k1_a_kubelet_that_is_started_again_and_again_is_no_nodes() {
    let bed = Bed::new(&[(
        "systemd-run",
        "case \"$*\" in *InvocationID*) echo ActiveState=active; echo InvocationID=$$;; *journalctl*) echo 'F1130 no'; echo 'goroutine 1 [select]:';; esac",
    )]);
    let text = bed.fails(Step::KubeletSteady { machine: MACHINE }).await;
    assert!(
        text.contains("kubelet does not stay active") && text.ends_with("F1130 no"),
        "{text}"
    );
    let bed = Bed::new(&[("systemd-run", "echo ActiveState=active; echo InvocationID=1")]);
    bed.make(Step::KubeletSteady { machine: MACHINE }).await.unwrap();
}

#[tokio::test]
async fn the_agents_program_is_copied_into_the_machine_once() {
    let mut bed = Bed::new(&[]);
    bed.context.program = bed.dir.path().join("agent");
    let write = |text: &str| {
        bed.context
            .host
            .write(&HostPath::fixed("/agent"), text.as_bytes(), 0o755)
            .unwrap()
    };
    let at = bed
        .dir
        .path()
        .join("var/lib/machines/kube1/usr/local/bin/aks-flex-node");
    write("one");
    bed.make(Step::AgentBinary { machine: MACHINE }).await.unwrap();
    let first = fs::metadata(&at).unwrap();
    assert_eq!(first.permissions().mode() & 0o7777, 0o755);
    bed.make(Step::AgentBinary { machine: MACHINE }).await.unwrap();
    assert_eq!(fs::metadata(&at).unwrap().ino(), first.ino());
    write("two");
    bed.make(Step::AgentBinary { machine: MACHINE }).await.unwrap();
    assert_eq!(fs::read_to_string(&at).unwrap(), "two");
}

fn download(url: &str) -> Download {
    Download {
        machine: MACHINE,
        component: "kubelet",
        version: "1.34.0".to_owned(),
        origin: Origin::Url {
            url: url.to_owned(),
            proof: Proof::Tls,
        },
        unpack: Unpack::Program {
            to: HostPath::fixed("/usr/local/bin/kubelet"),
        },
    }
}

#[tokio::test]
async fn fc_u11_a_release_is_fetched_again_only_when_version_or_content_differ() {
    let bed = Bed::new(&[]);
    let server = server(|_, _| (ok("kubelet"), Then::Close)).await;
    let asked = || server.asked.load(Ordering::SeqCst);
    let wanted = download(&server.url);
    for expected in [1, 1] {
        bed.make(Step::Download(wanted.clone())).await.unwrap();
        assert_eq!(asked(), expected);
    }
    let program = HostPath::fixed("/var/lib/machines/kube1/usr/local/bin/kubelet");
    assert_eq!(
        bed.context.host.metadata(&program).unwrap().permissions().mode() & 0o7777,
        0o755
    );
    bed.context.host.write(&program, b"kubel", 0o755).unwrap();
    bed.make(Step::Download(wanted.clone())).await.unwrap();
    assert_eq!(
        (asked(), bed.context.host.read(&program).unwrap().as_slice()),
        (2, b"kubelet".as_slice())
    );
    bed.make(Step::Download(Download {
        version: "1.34.1".to_owned(),
        ..wanted
    }))
    .await
    .unwrap();
    assert_eq!(asked(), 3);
    let record: serde_json::Value =
        serde_json::from_str(&bed.text("var/lib/machines/kube1/usr/local/share/aks-flex-node/installed/kubelet.json"))
            .unwrap();
    assert_eq!(record["version"], "1.34.1");
    assert_eq!(
        record["files"]["/usr/local/bin/kubelet"],
        Digest::of(b"kubelet").as_str()
    );
}

#[tokio::test]
async fn na_r18_a_file_of_a_bundle_is_installed_when_its_checksum_proves_it() {
    let bed = Bed::new(&[]);
    let host = &bed.context.host;
    let (file, sum) = (
        HostPath::fixed("/opt/b/kubelet"),
        HostPath::fixed("/opt/b/kubelet.sha256"),
    );
    for folder in ["/opt", "/opt/b"] {
        host.create_dir(&HostPath::fixed(folder), 0o755).unwrap();
    }
    let wanted = Download {
        origin: Origin::File {
            path: file.clone(),
            proof: Some(sum.clone()),
        },
        ..download("")
    };
    host.write(&file, b"kubelet", 0o644).unwrap();
    for (line, said) in [
        ("nonsense", "holds no SHA-256"),
        (&"0".repeat(64), "its checksum file says 0000"),
    ] {
        host.write(&sum, line.as_bytes(), 0o644).unwrap();
        let text = bed.fails(Step::Download(wanted.clone())).await;
        assert!(text.contains(said), "{text}");
    }
    host.write(
        &sum,
        format!("{}  kubelet\n", Digest::of(b"kubelet").hex()).as_bytes(),
        0o644,
    )
    .unwrap();
    bed.make(Step::Download(wanted.clone())).await.unwrap();
    assert_eq!(bed.text("var/lib/machines/kube1/usr/local/bin/kubelet"), "kubelet");
    // The bundle may go once its work is done.
    host.remove(&file).unwrap();
    bed.make(Step::Download(wanted)).await.unwrap();
}

#[tokio::test]
async fn archives_are_put_once_and_others_go() {
    let bed = Bed::new(&[]);
    let host = &bed.context.host;
    let folder = HostPath::fixed("/staged");
    let (file, sum) = (HostPath::fixed("/image.tar"), HostPath::fixed("/image.tar.sha256"));
    host.write(&file, b"archive", 0o600).unwrap();
    host.write(&sum, Digest::of(b"archive").hex().as_bytes(), 0o600)
        .unwrap();
    let archives = |names: &[&str]| Step::Archives {
        folder: folder.clone(),
        archives: names
            .iter()
            .map(|name| Archive {
                name: (*name).to_owned(),
                origin: Origin::File {
                    path: file.clone(),
                    proof: Some(sum.clone()),
                },
            })
            .collect(),
    };
    bed.make(archives(&["image-0.tar", "image-1.tar"])).await.unwrap();
    let there = bed.dir.path().join("staged/image-0.tar");
    let first = fs::metadata(&there).unwrap();
    bed.make(archives(&["image-0.tar"])).await.unwrap();
    assert_eq!(fs::metadata(&there).unwrap().ino(), first.ino());
    assert_eq!(host.list(&folder).unwrap(), ["image-0.tar"]);
    // Another archive under the same name.
    host.write(&file, b"newer", 0o600).unwrap();
    host.write(&sum, Digest::of(b"newer").hex().as_bytes(), 0o600).unwrap();
    bed.make(archives(&["image-0.tar"])).await.unwrap();
    assert_eq!(bed.text("staged/image-0.tar"), "newer");
    bed.make(archives(&[])).await.unwrap();
    assert!(host.list(&folder).unwrap().is_empty());
}

#[tokio::test]
async fn a_release_that_is_no_archive_or_lacks_a_program_is_told_and_leaves_no_record() {
    let bed = Bed::new(&[]);
    let server = server(|_, _| (ok("not an archive"), Then::Close)).await;
    let unpack = Unpack::All {
        into: HostPath::fixed("/opt/cni/bin"),
        needed: vec!["bridge"],
    };
    let text = bed
        .fails(Step::Download(Download {
            unpack,
            ..download(&server.url)
        }))
        .await;
    assert!(
        text.contains("the release of kubelet can't be installed: not a whole tar"),
        "{text}"
    );
    assert!(
        !bed.dir
            .path()
            .join("var/lib/machines/kube1/usr/local/share/aks-flex-node/installed")
            .exists()
    );
}

#[tokio::test]
async fn what_the_agent_did_not_put_there_is_never_replaced_and_never_tried_again() {
    let bed = Bed::new(&[]);
    let failed = bed
        .make(Step::Rootfs {
            machine: MACHINE,
            image: "registry.test/os:1".to_owned(),
        })
        .await
        .unwrap_err();
    assert!(
        failed.is_final() && chain(&failed).contains("/var/lib/machines/kube1"),
        "{}",
        chain(&failed)
    );
    assert!(bed.dir.path().join("var/lib/machines/kube1/etc").is_dir());
}

#[tokio::test]
async fn an_image_that_is_there_is_not_asked_for_and_one_that_is_nobodys_name_is_final() {
    let bed = Bed::new(&[("machinectl", "exit 1")]);
    let step = |image: &str| Step::Rootfs {
        machine: MACHINE,
        image: image.to_owned(),
    };
    let mark = HostPath::fixed("/var/lib/machines/kube1/.aks-flex-node-rootfs");
    bed.context
        .host
        .write(&mark, b"registry.invalid/os:1\n", 0o644)
        .unwrap();
    bed.make(step("registry.invalid/os:1")).await.unwrap();
    let failed = bed.make(step("Not A Reference sesame")).await.unwrap_err();
    assert!(
        failed.is_final() && chain(&failed).contains("bootstrap.ociImage") && !chain(&failed).contains("sesame"),
        "{}",
        chain(&failed)
    );
    let host = &bed.context.host;
    for (path, text) in [
        (
            "/etc/aks-flex-node-agent.env",
            "AKS_FLEX_NODE_AGENT_HOSTS_DIR=/etc/registries\n",
        ),
        ("/etc/registries/registry.invalid/hosts.toml", "server = 7\n"),
    ] {
        host.write(&HostPath::fixed(path), text.as_bytes(), 0o600).unwrap();
    }
    let failed = bed.make(step("registry.invalid/os:2")).await.unwrap_err();
    assert!(
        failed.is_final() && chain(&failed).contains("/etc/registries/registry.invalid/hosts.toml"),
        "{}",
        chain(&failed)
    );
    assert_eq!(
        bed.context.host.list(&HostPath::fixed("/var/lib/machines")).unwrap(),
        ["kube1"],
        "nothing is left"
    );
    assert!(
        bed.dir.path().join("var/lib/machines/kube1/etc").is_dir(),
        "and the old one stays"
    );
}

#[tokio::test]
async fn systemd_is_told_of_a_machines_settings_only_when_they_changed() {
    let bed = Bed::new(&[("systemctl", "")]);
    let step = |text| Step::UnitFiles(vec![open(Place::Host, "/etc/systemd/nspawn/kube1.nspawn", text)]);
    for (text, reloads) in [("a", 1), ("a", 1), ("b", 2), ("b", 2)] {
        bed.make(step(text)).await.unwrap();
        assert_eq!(bed.calls(), vec!["systemctl daemon-reload"; reloads]);
    }
}

#[test]
fn fc_n8_a_full_disk_is_told_with_what_is_free_and_may_pass() {
    let bed = Bed::new(&[]);
    let full = || Error::File(std::io::Error::from(std::io::ErrorKind::StorageFull));
    let error = full().on_disk(&bed.context.host, &file::MACHINES);
    assert!(!error.is_final() && chain(&error).starts_with("no space is left on the disk of /var/lib/machines: "));
    let nested = Error::Archive {
        component: "runc",
        source: fetch::Refused::Broken(std::io::ErrorKind::StorageFull.into()),
    };
    assert!(matches!(
        nested.on_disk(&bed.context.host, &file::MACHINES),
        Error::Full { .. }
    ));
    let other = Error::NoSystem.on_disk(&bed.context.host, &file::MACHINES);
    assert!(matches!(other, Error::NoSystem));
}

#[tokio::test]
async fn a_folder_of_registries_that_is_no_path_is_final_and_named_by_its_key() {
    let bed = Bed::new(&[("machinectl", "exit 1")]);
    std::fs::remove_dir_all(bed.dir.path().join("var/lib/machines/kube1")).unwrap();
    let settings = HostPath::fixed("/etc/aks-flex-node-agent.env");
    bed.context
        .host
        .write(&settings, b"AKS_FLEX_NODE_AGENT_HOSTS_DIR=sesame/hosts\n", 0o600)
        .unwrap();
    let image = "registry.invalid/os:1".to_owned();
    let failed = bed
        .make(Step::Rootfs {
            machine: MACHINE,
            image,
        })
        .await
        .unwrap_err();
    let text = chain(&failed);
    assert!(
        failed.is_final() && text.contains("AKS_FLEX_NODE_AGENT_HOSTS_DIR") && !text.contains("sesame"),
        "{text}"
    );
}

/// fc_p5: a kill or a power cut while a file is replaced leaves its new half beside it.
#[test]
fn what_a_killed_agent_left_beside_its_files_goes_from_host_and_machine() {
    let bed = Bed::new(&[]);
    let host = &bed.context.host;
    let machine: MachineName = "kube1".parse().unwrap();
    let left = [
        "/etc/aks-flex-node/.aks-flex-node-tmp-a",
        "/etc/aks-flex-node/daemon-credentials/.aks-flex-node-tmp-b",
        "/etc/systemd/system/.aks-flex-node-tmp-c",
        "/var/lib/machines/kube1/usr/local/bin/.aks-flex-node-tmp-d",
    ]
    .map(HostPath::fixed);
    sweep(host, Some(machine)).unwrap();
    for path in &left {
        host.write(path, b"half", 0o600).unwrap();
    }
    let whole = HostPath::fixed("/etc/aks-flex-node/agent-image.env");
    host.write(&whole, b"whole", 0o600).unwrap();
    sweep(host, Some(machine)).unwrap();
    assert!(left.iter().all(|path| !host.exists(path).unwrap()));
    assert_eq!(host.read(&whole).unwrap(), b"whole");
}
