//! `hostexec.*`: the door from the agent's container to the host, tried from within that container.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{Check, Context, check};
use crate::agent::UNIT;
use crate::host::Host;

pub(super) const CHECKS: [Check; 6] = [
    check!("hostexec.mounts", Cloud, 600, mounts),
    check!("hostexec.env", Cloud, 600, env),
    check!("hostexec.exit", Cloud, 600, exit),
    check!("hostexec.missing", Cloud, 600, missing),
    check!("hostexec.paths", Cloud, 600, paths),
    check!("hostexec.resolver", Cloud, 420, na_r16_fc_h9_resolver),
];

const HOST_EXEC: &str = "/usr/bin/host-exec";

/// A tool of the table that no host here has: for the time of a check it is `env`, which shows what it is given and runs what it is told.
const PROBE: &str = "tdnf";

/// Longer than any refusal takes, container and all, on a busy machine.
const AT_ONCE: Duration = Duration::from_secs(10);

/// Puts `env` in the place of the tool `PROBE`. `/usr` can't be written, so a mount brings it.
async fn probe(host: &Host) -> Result<()> {
    host.sh(&format!(
        "mount -t tmpfs -o mode=755 probe /usr/local/sbin; ln -s /usr/bin/env /usr/local/sbin/{PROBE}"
    ))
    .await
    .map(drop)
}

async fn unprobe(host: &Host) -> Result<()> {
    host.exec_ok(&["umount", "/usr/local/sbin"]).await.map(drop)
}

/// A mount made from within the container is the host's own, and so is its end.
async fn mounts(context: &Context) -> Result<()> {
    const AT: &str = "/run/probe-mount";
    let host = context.shared().await?;
    let agent = host.agent();
    let daemon = agent.daemon().await?;
    host.exec_ok(&["mkdir", AT]).await?;
    let seen = async || {
        host.sh(&format!(
            "awk '$5 == \"{AT}\"' /proc/1/mountinfo | wc -l; awk '$5 == \"/host{AT}\"' /proc/{daemon}/mountinfo | wc -l"
        ))
        .await
    };
    let is_mount = async || Ok::<_, anyhow::Error>(agent.exec(&[HOST_EXEC, "mountpoint", "--quiet", AT]).await?.code);
    ensure!(seen().await? == "0\n0\n", "something is mounted already");
    ensure!(is_mount().await? != Some(0), "mountpoint says yes before the mount");
    let made = agent
        .exec(&[HOST_EXEC, "mount", "-t", "tmpfs", "-o", "size=64k", "probe", AT])
        .await?;
    ensure!(made.ok(), "mount: {made:?}");
    let both = seen().await?;
    ensure!(
        both == "1\n1\n",
        "in the table of PID 1, and in the daemon's below /host: {both}"
    );
    ensure!(is_mount().await? == Some(0), "mountpoint says no after the mount");
    let ended = agent.exec(&[HOST_EXEC, "umount", AT]).await?;
    ensure!(ended.ok(), "umount: {ended:?}");
    let both = seen().await?;
    ensure!(both == "0\n0\n", "after umount: {both}");
    host.exec_ok(&["rmdir", AT]).await.map(drop)
}

/// Variables with which a container could make a tool of the host do something else, or speak in the agent's name.
const HOSTILE: [&str; 36] = [
    "AKS_FLEX_NODE_CONTAINERIZED",
    "BASH_ENV",
    "BASH_FUNC_mount%%",
    "CONTAINERD_ADDRESS",
    "CONTAINERD_NAMESPACE",
    "DBUS_SYSTEM_BUS_ADDRESS",
    "EDITOR",
    "ENV",
    "GCONV_PATH",
    "HOSTALIASES",
    "IFS",
    "KUBECONFIG",
    "LD_AUDIT",
    "LD_DEBUG",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "LESSOPEN",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "LOCPATH",
    "MALLOC_CHECK_",
    "NLSPATH",
    "NOTIFY_SOCKET",
    "PAGER",
    "PATH",
    "PERL5LIB",
    "PYTHONPATH",
    "RES_OPTIONS",
    "SHELL",
    "SYSTEMD_PAGER",
    "SYSTEMD_UNIT_PATH",
    "TMPDIR",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
    "XDG_RUNTIME_DIR",
];

/// What a tool is to see: its own `PATH`, and what was allowed.
async fn env(context: &Context) -> Result<()> {
    const CANARY: &str = "/tmp/hostile";
    let host = context.shared().await?;
    probe(&host).await?;
    let given: Vec<_> = HOSTILE.iter().map(|name| (*name, CANARY)).collect();
    let allowed = [("LC_ALL", "C.UTF-8"), ("HTTPS_PROXY", "http://proxy.test:3128")];
    let all = [&given[..], &allowed].concat();
    let image = &context.product().image;
    // Those that are allowed come the same way: that they arrive shows that the others were in the container at all.
    let own = host
        .agent()
        .run(image, &all, &[HOST_EXEC, PROBE, "cat", "/proc/self/environ"]);
    let seen = own.await?;
    ensure!(seen.ok(), "{PROBE}: {seen:?}");
    let mut seen: Vec<&str> = seen.stdout.split('\0').filter(|line| !line.is_empty()).collect();
    seen.sort_unstable();
    let expected = [
        "HOME=/root",
        "HTTPS_PROXY=http://proxy.test:3128",
        "LC_ALL=C.UTF-8",
        "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    ];
    ensure!(seen == expected, "the tool saw {seen:?}");
    unprobe(&host).await
}

/// Exit codes, ends by a signal, and both streams are the tool's own.
async fn exit(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let agent = host.agent();
    probe(&host).await?;
    let shell =
        async |script: &str| Ok::<_, anyhow::Error>(agent.exec(&[HOST_EXEC, PROBE, "sh", "-c", script]).await?.code);
    for code in [0, 1, 42, 126, 127, 255] {
        let got = shell(&format!("exit {code}")).await?;
        ensure!(got == Some(code), "exit {code} arrives as {got:?}");
    }
    // Source: ctr and runc, as a shell: 128 and the signal's number.
    for (signal, code) in [("TERM", 143), ("PIPE", 141), ("USR1", 138)] {
        let got = shell(&format!("kill -{signal} $$")).await?;
        ensure!(got == Some(code), "an end by SIG{signal} arrives as {got:?}");
    }
    // A signal to the process in the container is a signal to the tool: there is no other process between.
    let script = format!(
        r#"cd "$(mktemp -d)"; mkfifo said
        ctr -n aks-flex-node tasks exec --exec-id told {} {HOST_EXEC} {PROBE} sh -c 'trap "exit 7" HUP; echo set; while :; do sleep 0.05; done' \
            < /dev/null > said & ctr=$!
        read -r line < said
        ctr -n aks-flex-node tasks kill --exec-id told --signal SIGHUP {}
        wait $ctr || echo "$line $?""#,
        crate::agent::CONTAINER,
        crate::agent::CONTAINER,
    );
    let said = host.sh(&script).await?;
    ensure!(said == "set 7\n", "a tool that ends with 7 on SIGHUP: {said:?}");
    // A megabyte that is no text goes in and comes out, and nothing of it gets into the other stream.
    let script = format!(
        r#"cd "$(mktemp -d)"; head -c 1048576 /dev/urandom > in
        ctr -n aks-flex-node tasks exec --exec-id bytes {} {HOST_EXEC} {PROBE} sh -c 'cat; echo end >&2' < in > out 2> err
        cmp in out; cat err"#,
        crate::agent::CONTAINER,
    );
    let said = host.sh(&script).await?;
    ensure!(said == "end\n", "standard error: {said:?}");
    unprobe(&host).await
}

/// fc_h6: a tool that the host has not is an error at once, which names it and where it was looked for; one that is no tool of the table is
/// refused, whether the host has it or not.
async fn missing(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    ensure!(!host.exec(&["which", "dnf"]).await?.ok(), "this host has dnf");
    for (line, code, says) in [
        (
            &[HOST_EXEC, "dnf", "--version"][..],
            127,
            "host-exec: dnf is not on the host (looked in /usr/local/sbin, /usr/local/bin, /usr/sbin, /usr/bin, /sbin, /bin)",
        ),
        (
            &["/usr/libexec/host-exec/dnf"],
            127,
            "host-exec: dnf is not on the host",
        ),
        (
            &[HOST_EXEC, "bash", "-c", "true"],
            126,
            "bash is not a tool of the host that may be run",
        ),
        (
            &[HOST_EXEC, "/usr/bin/systemctl"],
            126,
            "is not a tool of the host that may be run",
        ),
        (&[HOST_EXEC], 126, "usage: host-exec TOOL"),
    ] {
        let start = Instant::now();
        let said = host.agent().exec(line).await?;
        let took = start.elapsed();
        ensure!(
            said.code == Some(code) && said.stderr.contains(says),
            "{line:?}: {said:?}"
        );
        ensure!(said.stdout.is_empty(), "{line:?}: {said:?}");
        ensure!(took < AT_ONCE, "{line:?} took {took:?}");
    }
    Ok(())
}

/// na_r24: links of the host, absolute, climbing or dangling, are followed within the host's root, never into the container's.
async fn paths(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let agent = host.agent();
    let image = &context.product().image;
    // What they name is in the container and not on the host.
    ensure!(!host.exists(HOST_EXEC).await?, "this host has {HOST_EXEC}");
    for target in [HOST_EXEC, "../../../../../../../../usr/bin/host-exec"] {
        let link = "/etc/probe/config.json";
        host.sh(&format!("mkdir -p /etc/probe; ln -sfn {target} {link}"))
            .await?;
        let said = agent
            .run(image, &[], &["/usr/bin/aks-flex-node", "daemon", "--config", link])
            .await?;
        ensure!(
            said.code.is_some_and(|code| code != 0) && said.stderr.contains("there is no configuration file"),
            "a link to {target}: {said:?}"
        );
    }
    host.exec_ok(&["rm", "-r", "/etc/probe"]).await?;
    // The agent's folder behind an absolute link, its configuration behind one that climbs higher than the root.
    host.sh(&format!(
        "systemctl stop {UNIT}; mkdir -p /var/lib/elsewhere/deeper
         cp -a /etc/aks-flex-node /var/lib/elsewhere/folder; mv /etc/aks-flex-node /etc/aks-flex-node.kept
         ln -s /var/lib/elsewhere/folder /etc/aks-flex-node
         mv /var/lib/elsewhere/folder/config.json /var/lib/elsewhere/deeper/config.json
         ln -s ../../../../../../../../var/lib/elsewhere/deeper/config.json /var/lib/elsewhere/folder/config.json
         systemctl start {UNIT}"
    ))
    .await
    .context("the agent starts with its folder behind links")?;
    let daemon = agent.daemon().await?;
    let inside = host.sh(&format!("ls /proc/{daemon}/root")).await?;
    ensure!(
        !inside.lines().any(|name| name == "var"),
        "the container's root has what only the host has: {inside}"
    );
    host.sh(&format!(
        "systemctl stop {UNIT}; rm /etc/aks-flex-node; mv /etc/aks-flex-node.kept /etc/aks-flex-node; rm -r /var/lib/elsewhere
         systemctl start {UNIT}"
    ))
    .await
    .map(drop)
}

/// na_r16: the image has the host's `resolvectl`. fc_h9: a host that replaces its resolver's file is followed by the agent that runs.
async fn na_r16_fc_h9_resolver(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let agent = host.agent();
    let asked = agent.exec(&["/usr/libexec/host-exec/resolvectl", "domain"]).await?;
    ensure!(asked.ok() && asked.stdout.contains("Global"), "resolvectl: {asked:?}");
    let daemon = agent.daemon().await?;
    let own = format!("/proc/{daemon}/root/etc/resolv.conf");
    let first = host.read_file(&own).await?;
    host.sh("cp -P /etc/resolv.conf /etc/resolv.conf.of-check
         { cat /etc/resolv.conf; echo '# of this check'; } > /etc/resolv.conf.new
         mv -T /etc/resolv.conf.new /etc/resolv.conf")
        .await?;
    follows(&host, &own, &format!("{first}# of this check\n")).await?;
    host.exec_ok(&["mv", "-T", "/etc/resolv.conf.of-check", "/etc/resolv.conf"])
        .await?;
    follows(&host, &own, &first).await?;
    ensure!(agent.daemon().await? == daemon, "another daemon runs");
    Ok(())
}

async fn follows(host: &Host, own: &str, text: &str) -> Result<()> {
    crate::wait::until_true(
        "the agent's container has the host's file",
        Duration::from_secs(90),
        async || Ok(host.read_file(own).await? == text),
    )
    .await
}
