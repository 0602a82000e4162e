//! Checks: short containers in a real containerd.

use std::time::Duration;

use agent::containerd::{CHECK, CheckError, Containerd, ContainerdError, View};
use image::ImageRef;
use image::layout::{Entry, Image, Layer, Layout};

use crate::bed::{Engine, LIMITS, until};

const LIMIT: Duration = Duration::from_secs(10);

/// An image of busybox alone, pulled.
async fn busybox(engine: &Engine) -> (Containerd, ImageRef) {
    let program = "/bin/busybox";
    assert!(
        std::path::Path::new(program).exists(),
        "no {program}: install the package busybox-static"
    );
    let image = Image {
        layers: vec![Layer::Entries(vec![
            Entry::file("usr/bin/busybox", 0o755, program),
            Entry::folder("proc", 0o555),
            Entry::folder("dev", 0o755),
            Entry::folder("tmp", 0o1777),
        ])],
        env: vec!["FROM_IMAGE=yes".into()],
        ..Image::default()
    };
    let layout = Layout::of(&image, None).unwrap();
    engine.bed.push(&layout, "busybox", "v1").await;
    let repository: image::Repository = engine.bed.repository("busybox").parse().unwrap();
    let image = repository.at(layout.roots()[0].digest.clone());
    let containerd = engine.containerd();
    containerd
        .pull(&image, &engine.bed.registries(), LIMITS, |_| ())
        .await
        .unwrap();
    (containerd, image)
}

fn clean(engine: &Engine) {
    for list in [
        &["containers", "ls", "-q"] as &[&str],
        &["tasks", "ls", "-q"],
        &["leases", "ls", "-q"],
    ] {
        assert_eq!(engine.ctr(list).trim(), "");
    }
    assert!(!engine.ctr(&["snapshots", "ls"]).contains(CHECK));
    assert!(!engine.bed.path("host/run/aks-flex-node-agent-check.pipe").exists());
}

#[tokio::test]
async fn a_check_gives_code_and_output_and_leaves_nothing() {
    let engine = Engine::new();
    let (containerd, image) = busybox(&engine).await;
    let shell = |script: &'static str| ["/usr/bin/busybox", "sh", "-c", script];
    for (script, code, tail) in [
        ("echo out; sleep 0.2; echo err >&2; exit 7", 7, "out\nerr"),
        ("echo $FROM_IMAGE", 0, "yes"),
        ("(echo x >/new) 2>/dev/null || echo read-only", 0, "read-only"),
    ] {
        let output = containerd
            .run_check(&image, &shell(script), View::Image, &engine.cgroup(), LIMIT)
            .await
            .unwrap();
        assert_eq!((output.code, output.tail.as_str()), (code, tail), "{script}");
        clean(&engine);
    }
    // More than a pipe holds, of which the end is kept.
    let much = shell("i=0; while [ $i -lt 30000 ]; do echo line $i; i=$((i+1)); done");
    let output = containerd
        .run_check(&image, &much, View::Image, &engine.cgroup(), LIMIT)
        .await
        .unwrap();
    assert!(
        output.tail.ends_with("line 29999") && output.tail.len() <= 4096,
        "{}",
        output.tail.len()
    );
    clean(&engine);
}

#[tokio::test]
async fn a_check_of_the_host_sees_it_and_can_write_nothing_of_it() {
    let engine = Engine::first_process();
    let (containerd, image) = busybox(&engine).await;
    let run = async |script: &'static str| {
        let argv = ["/usr/bin/busybox", "sh", "-c", script];
        let output = containerd
            .run_check(&image, &argv, View::Host, &engine.cgroup(), LIMIT)
            .await;
        output.unwrap().tail
    };
    assert_eq!(run("read name < /host/proc/1/comm; echo $name").await, "containerd");
    let chroot = "/usr/bin/busybox chroot /host /bin/sh -c 'read name < /proc/1/comm; echo in $name'";
    assert_eq!(run(chroot).await, "in containerd");
    let mounts = run("/usr/bin/busybox nsenter --mount=/host/proc/1/ns/mnt /bin/sh -c 'echo entered'").await;
    assert_eq!(mounts, "entered");
    // Also where another file system begins.
    for folder in ["/host", "/host/tmp", "/host/run", "/host/dev/shm"] {
        let script: &'static str = Box::leak(
            format!("(echo x > {folder}/aks-flex-node-test-new) 2>/dev/null && echo wrote || echo no").into_boxed_str(),
        );
        assert_eq!(run(script).await, "no", "{folder}");
    }
    clean(&engine);
}

/// fc_c1: as a daemon leaves it that was killed while its check's task was being created.
#[tokio::test]
async fn a_check_waits_for_an_earlier_one_that_is_on_its_way_out() {
    let engine = Engine::new();
    let (containerd, image) = busybox(&engine).await;
    let tasks = "host/run/containerd/io.containerd.runtime.v2.task/aks-flex-node";
    let folder = engine.bed.path(tasks).join(CHECK);
    std::fs::create_dir_all(&folder).unwrap();
    let argv = ["/usr/bin/busybox", "echo", "here"];
    let cgroup = engine.cgroup();
    let check = containerd.run_check(&image, &argv, View::Image, &cgroup, LIMIT);
    let goes = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        std::fs::remove_dir(&folder).unwrap();
    };
    let (output, ()) = tokio::join!(check, goes);
    assert_eq!(output.unwrap().tail, "here");
    clean(&engine);
}

/// fc_c3: what runs it dies on the way; the one after it clears the place.
#[tokio::test]
async fn a_containerd_that_goes_away_during_a_check_is_said_to_be_away_and_the_next_check_runs() {
    let mut engine = Engine::new();
    let (containerd, image) = busybox(&engine).await;
    let (cgroup, checked) = (engine.cgroup(), (containerd.clone(), image.clone()));
    let check = tokio::spawn(async move {
        let argv = ["/usr/bin/busybox", "sleep", "100"];
        let (containerd, image) = checked;
        containerd.run_check(&image, &argv, View::Image, &cgroup, LIMIT).await
    });
    let engine = tokio::task::spawn_blocking(move || {
        until("the check's task", || {
            engine.ctr(&["tasks", "ls", "-q"]).trim() == CHECK
        });
        engine.restart();
        engine
    });
    let engine = engine.await.unwrap();
    let error = check.await.unwrap().unwrap_err();
    assert!(
        matches!(&error, CheckError::Containerd(ContainerdError::Away { .. })),
        "{error:?}"
    );
    let argv = ["/usr/bin/busybox", "echo", "here"];
    let cgroup = engine.cgroup();
    let output = containerd.run_check(&image, &argv, View::Image, &cgroup, LIMIT);
    // The lease of the first can't be ended with it; it ends by itself.
    assert_eq!(output.await.unwrap().tail, "here");
}

#[tokio::test]
async fn na_r03_a_check_that_hangs_or_cannot_start_is_an_error_and_leaves_nothing() {
    let engine = Engine::new();
    let (containerd, image) = busybox(&engine).await;
    let begin = std::time::Instant::now();
    let hang = ["/usr/bin/busybox", "sh", "-c", "trap '' TERM; echo stuck; sleep 100"];
    let error = containerd
        .run_check(&image, &hang, View::Image, &engine.cgroup(), Duration::from_secs(1))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, CheckError::Limit { tail, .. } if tail == "stuck"),
        "{error:?}"
    );
    assert!(begin.elapsed().as_secs() < 6, "{:?}", begin.elapsed());
    clean(&engine);

    let error = containerd
        .run_check(&image, &["/none"], View::Image, &engine.cgroup(), LIMIT)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("/none"), "{error}");
    clean(&engine);

    let other = image.repository.at(image::Digest::of(b"none"));
    let error = containerd
        .run_check(&other, &["/none"], View::Image, &engine.cgroup(), LIMIT)
        .await
        .unwrap_err();
    assert!(matches!(error, CheckError::NoImage));
}

#[tokio::test]
async fn what_a_dead_agent_left_is_taken_away_before_a_check_and_twice_is_fine() {
    let engine = Engine::new();
    let (containerd, image) = busybox(&engine).await;
    // A container with a live task, as a killed `ctr` leaves it.
    let name = image.to_string();
    let run = [
        "run",
        "--detach",
        "--snapshotter",
        "overlayfs",
        &name,
        CHECK,
        "/usr/bin/busybox",
        "sleep",
        "100",
    ];
    engine.ctr(&run);
    assert_eq!(engine.ctr(&["tasks", "ls", "-q"]).trim(), CHECK);
    let argv = ["/usr/bin/busybox", "true"];
    assert_eq!(
        containerd
            .run_check(&image, &argv, View::Image, &engine.cgroup(), LIMIT)
            .await
            .unwrap()
            .code,
        0
    );
    clean(&engine);
    containerd.cleanup(CHECK).await.unwrap();
    containerd.cleanup("aks-flex-node-agent").await.unwrap();
}

#[tokio::test]
async fn a_containerd_that_is_away_is_said_to_be_away() {
    let bed = crate::bed::Bed::new();
    let error = Containerd::connect(&bed.host()).images().await.unwrap_err().to_string();
    assert!(
        error.starts_with("containerd can't be reached at /run/containerd/containerd.sock"),
        "{error}"
    );
}
