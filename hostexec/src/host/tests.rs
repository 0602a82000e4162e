use super::*;
use crate::again;
use std::{fs::Permissions, os::unix::fs::symlink};

fn script(root: &Path, path: &str, text: &str) {
    let tool = root.join(path);
    fs::create_dir_all(tool.parent().unwrap()).unwrap();
    fs::write(&tool, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&tool, Permissions::from_mode(0o755)).unwrap();
}

fn host(text: &str) -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    script(dir.path(), "bin/systemctl", text);
    let host = Host::rooted(dir.path());
    (dir, host)
}

/// Waits until the process is gone, or but a zombie that whoever inherited it has not buried yet.
async fn ends(pid: &str) {
    for _ in 0..200 {
        match fs::read_to_string(format!("/proc/{}/stat", pid.trim())) {
            Ok(stat) if !stat.contains(") Z ") => tokio::time::sleep(Duration::from_millis(10)).await,
            Ok(_) | Err(_) => return,
        }
    }
    panic!("process {pid} is still there");
}

/// The process id that a script wrote to a file.
async fn written_pid(path: &Path) -> String {
    for _ in 0..500 {
        match fs::read_to_string(path) {
            Ok(pid) if pid.ends_with('\n') => return pid,
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    panic!("{} was never written", path.display());
}

#[tokio::test]
async fn an_answer_carries_stdout_stderr_and_the_code() {
    let (_dir, host) = host("echo \"<$*>\"; echo beware >&2");
    let output = host.run(Tool::Systemctl, &["is-active", "a b"]).await.unwrap();
    let expected = Output {
        code: Some(0),
        stdout: "<is-active a b>\n".into(),
        stderr: "beware\n".into(),
    };
    assert_eq!(output, expected);
}

#[tokio::test]
async fn a_failure_carries_the_line_and_the_end_of_stderr() {
    let (_dir, host) = host("echo no such unit >&2; exit 5");
    let error = host.run(Tool::Systemctl, &["start", "x.service"]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "`systemctl start x.service` exit status: 5: no such unit"
    );
    assert_eq!(error.code(), Some(5));
}

#[tokio::test]
async fn what_is_no_program_is_not_given_to_a_shell() {
    let (dir, host) = host("exit 0");
    let tool = dir.path().join("bin/systemctl");
    for text in ["", "exit 0\n"] {
        fs::write(&tool, text).unwrap();
        let error = host.run(Tool::Systemctl, &["x"]).await.unwrap_err();
        assert!(
            matches!(&error, ToolError::Run { source, .. } if source.raw_os_error() == Some(nix::errno::Errno::ENOEXEC as i32)),
            "{error:?}"
        );
    }
}

#[tokio::test]
async fn of_much_stderr_only_the_last_lines_are_told() {
    let (_dir, host) = host("i=0; while [ $i -lt 5000 ]; do echo line $i; i=$((i+1)); done >&2; exit 1");
    let text = host.run(Tool::Systemctl, &[]).await.unwrap_err().to_string();
    assert!(text.ends_with("line 4998; line 4999") && text.len() < 300, "{text}");
}

#[tokio::test]
async fn any_code_may_be_an_answer_but_not_a_signal() {
    let (_dir, host) = host("[ $1 = die ] && kill -9 $$; echo inactive; exit 3");
    let output = host
        .call(Call::new(Tool::Systemctl, &["is-active"]).any_code())
        .await
        .unwrap();
    assert_eq!((output.code, output.stdout.as_str()), (Some(3), "inactive\n"));
    let error = host
        .call(Call::new(Tool::Systemctl, &["die"]).any_code())
        .await
        .unwrap_err();
    assert!(error.to_string().starts_with("`systemctl die` signal: 9"), "{error}");
}

#[tokio::test]
async fn fc_h6_a_missing_tool_is_an_error_at_once_that_says_where_it_was_sought() {
    let (dir, host) = host("");
    // There, but not to be run.
    fs::write(dir.path().join("bin/nft"), "").unwrap();
    for tool in [Tool::Machinectl, Tool::Nft] {
        let error = host.run(tool, &[]).await.unwrap_err();
        let looked = "/usr/local/sbin, /usr/local/bin, /usr/sbin, /usr/bin, /sbin, /bin";
        assert_eq!(
            error.to_string(),
            format!("{} is not on the host (looked in {looked})", tool.name())
        );
    }
}

#[tokio::test]
async fn na_r24_a_tool_is_found_through_links_of_the_host_and_never_outside_it() {
    let (dir, host) = host("");
    // A program of many names: a shell says by which it was called.
    fs::create_dir_all(dir.path().join("usr/lib")).unwrap();
    fs::copy("/bin/sh", dir.path().join("usr/lib/multi")).unwrap();
    symlink("/usr/lib/multi", dir.path().join("bin/iptables")).unwrap();
    let output = host
        .run(Tool::Iptables, &["-c", "echo $0; readlink /proc/$$/exe"])
        .await
        .unwrap();
    let program = fs::canonicalize(dir.path()).unwrap().join("usr/lib/multi");
    assert_eq!(output.stdout, format!("iptables\n{}\n", program.display()));

    symlink("/bin/true", dir.path().join("bin/mount")).unwrap();
    assert!(matches!(
        host.run(Tool::Mount, &[]).await,
        Err(ToolError::Missing(Tool::Mount))
    ));
}

#[tokio::test]
async fn stdin_reaches_the_tool_and_one_that_does_not_read_it_is_no_error() {
    let (_dir, host) = host("[ \"$1\" = deaf ] && exit 0; exec wc -c");
    let bytes = vec![b'x'; 300_000];
    let output = host.call(Call::new(Tool::Systemctl, &[]).stdin(&bytes)).await.unwrap();
    assert_eq!(output.stdout.trim(), "300000");
    host.call(Call::new(Tool::Systemctl, &["deaf"]).stdin(&bytes))
        .await
        .unwrap();
}

#[tokio::test]
async fn without_stdin_a_tool_reads_nothing() {
    let (_dir, host) = host("exec cat");
    assert_eq!(host.run(Tool::Systemctl, &[]).await.unwrap().stdout, "");
}

#[tokio::test]
async fn the_time_limit_ends_the_tool_and_all_it_started() {
    let (dir, host) = host("sleep 600 & echo $! > \"$1\"; wait");
    let file = dir.path().join("pid");
    let args = [file.to_str().unwrap()];
    let call = Call::new(Tool::Systemctl, &args).limit(Duration::from_millis(300));
    let error = host.call(call).await.unwrap_err();
    assert!(error.to_string().ends_with("took longer than 300ms"), "{error}");
    ends(&written_pid(&file).await).await;
}

#[tokio::test]
async fn what_is_deaf_to_sigterm_is_killed_at_the_limit() {
    let (dir, host) = host("trap '' TERM; echo $$ > \"$1\"; while :; do sleep 0.05; done");
    let file = dir.path().join("pid");
    let args = [file.to_str().unwrap()];
    host.call(Call::new(Tool::Systemctl, &args).limit(Duration::from_millis(200)))
        .await
        .unwrap_err();
    ends(&written_pid(&file).await).await;
}

#[tokio::test]
async fn dropping_the_future_ends_the_tool_and_all_it_started() {
    let (dir, host) = host("sleep 600 & echo $! > \"$1\"; wait");
    let file = dir.path().join("pid");
    let args = [file.to_str().unwrap()];
    let pid = tokio::select! {
        result = host.run(Tool::Systemctl, &args) => panic!("{result:?}"),
        pid = written_pid(&file) => pid,
    };
    ends(&pid).await;
}

#[tokio::test]
async fn streams_that_outlive_the_tool_do_not_hold_up_its_answer() {
    let (_dir, host) = host("sleep 5 & echo $!");
    let started = Instant::now();
    let output = host.run(Tool::Systemctl, &[]).await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(4));
    let pid = Pid::from_raw(output.stdout.trim().parse().unwrap());
    nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn a_flood_is_an_error_and_ends_the_tool() {
    let (_dir, host) = host("exec cat /dev/zero");
    let error = host.run(Tool::Systemctl, &[]).await.unwrap_err();
    assert!(
        error.to_string().ends_with("printed more than 16777216 bytes"),
        "{error}"
    );
}

#[test]
fn the_line_is_one_that_a_person_could_type() {
    let line = Call::new(Tool::SystemdRun, &["--wait", "", "a b", "x\ny", "$HOME", "k=v"]).line();
    assert_eq!(line, r#"systemd-run --wait "" "a b" "x\ny" "$HOME" k=v"#);
}

#[test]
fn fc_h3_hostile_variables_do_not_reach_a_tool() {
    let hostile = include_str!("../../tests/hostile-variables.txt").lines();
    if !again::is_inner() {
        let mut again = again::again("host::tests::fc_h3_hostile_variables_do_not_reach_a_tool");
        again
            .envs(hostile.map(|name| (name, "/nonexistent")))
            .env("TMPDIR", std::env::temp_dir());
        again.env("HTTPS_PROXY", "http://proxy.test:3128").env("TZ", "UTC");
        return again::passes(&mut again);
    }
    let (_dir, host) = host("exec env");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let seen = runtime.block_on(host.run(Tool::Systemctl, &[])).unwrap().stdout;
    let has = |start: &str| seen.lines().any(|line| line.starts_with(start));
    for name in hostile.filter(|name| *name != "PATH") {
        assert!(
            std::env::var_os(name).is_some() && !has(&format!("{name}=")),
            "{name} in {seen}"
        );
    }
    for line in [
        &format!("PATH={}", environment::PATH),
        "HTTPS_PROXY=http://proxy.test:3128",
        "TZ=UTC",
    ] {
        assert!(has(line), "{line} in {seen}");
    }
}

#[tokio::test]
async fn a_program_that_is_being_written_is_waited_for() {
    let (dir, host) = host("echo done");
    let writer = fs::File::options()
        .append(true)
        .open(dir.path().join("bin/systemctl"))
        .unwrap();
    let error = host.run(Tool::Systemctl, &["a"]).await.unwrap_err();
    assert!(error.to_string().contains("systemctl a"), "{error}");
    let run = host.run(Tool::Systemctl, &["a"]);
    let written = async {
        sleep(AGAIN * 3).await;
        drop(writer);
    };
    let (output, ()) = tokio::join!(run, written);
    assert_eq!(output.unwrap().stdout, "done\n");
}
