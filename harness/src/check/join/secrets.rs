//! `join.secrets`: where a secret is written, nobody but root can read it; and nowhere else is it found, while a host joins and after.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{BASE_CONFIG, CONFIG, Context, INPUTS};
use crate::host::Host;
use crate::node::READY;
use crate::wait;

/// Where the settings say that registries' files are.
const HOSTS_DIR: &str = "/etc/aks-flex-node-agent-hosts";

/// On the host: the secrets, a line each.
const SECRETS: &str = "/run/secrets-of-this-check";
/// Ends `WATCH`.
const OVER: &str = "/run/secrets-of-this-check.over";

/// Who shows a secret to everyone: processes, and containerd's records.
const LOOK: &str = r#"
look() {
    for p in /proc/[0-9]*; do
        for f in cmdline environ; do
            grep -qaF -f "$secrets" $p/$f 2> /dev/null && echo "$f of $(cat $p/comm 2> /dev/null)"
        done
    done
    for c in $(ctr --namespace aks-flex-node containers list --quiet); do
        ctr --namespace aks-flex-node containers info "$c" 2> /dev/null | grep -qaF -f "$secrets" && echo "record of container $c"
    done
    return 0
}
"#;

/// While the host joins.
const WATCH: &str = r#"until [ -e "$over" ]; do look; sleep 0.05; done | sort -u"#;

/// What stays: journals, and files of all kinds, each with its mode.
const SEARCH: &str = r#"
look
for from in --directory=/var/log/journal --machine=kube1; do
    journalctl $from --quiet --output=export > /run/journal-of-this-check
    [ -s /run/journal-of-this-check ] || echo "no journal $from"
    grep -qaF -f "$secrets" /run/journal-of-this-check && echo "journal $from"
    rm /run/journal-of-this-check
done
find / \( -path /proc -o -path /sys -o -path /dev -o -path /usr -o -path /opt/kube -o -path "$secrets" -o -path '/var/lib/machines/*/usr' \
    -o -path /.etc-work -o -path /run/containerd -o -path '/var/lib/containerd/io.containerd.snapshotter*' \) -prune \
    -o -type f -readable -print0 | xargs -0 -r grep -laF -f "$secrets" 2> /dev/null | while read -r file; do
    echo "file $(stat -c %a "$file") $file"
done
"#;

fn script(parts: &[&str]) -> String {
    format!("secrets={SECRETS}; over={OVER}\n{}", parts.concat())
}

/// na_r19, na_r25: every input holds a secret. After the join the inputs are gone, what has to keep one is root's alone, and no process, journal,
/// record of containerd, log, object of the cluster or other file has it.
pub(super) async fn secrets(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    let (overrides, base, principal, header) = (
        "canary-over-4hq8",
        "canary-base-9xk2",
        "canary-principal-3vd7",
        "canary-header-6mz1",
    );
    let token = joining.token.reveal();
    let secret = token.split_once('.').context("a token has a dot")?.1.to_owned();
    // The token comes by the overrides; the file that they are laid over has a secret that means nothing to the agent.
    joining.config["azure"]["bootstrapToken"] = json!({});
    joining.config["azure"]["password"] = json!(base);
    let laid_over = json!({ "azure": { "bootstrapToken": { "token": token } }, "password": overrides });
    joining.inputs.push((
        "bootstrap.env".to_owned(),
        format!(
            "AKS_FLEX_NODE_BASE_CONFIG_FILE={BASE_CONFIG}\nAKS_FLEX_NODE_CONFIG_OVERRIDES='{laid_over}'\n\
             AKS_FLEX_NODE_AUTH=service-principal\nAKS_FLEX_NODE_SP_TENANT_ID=t\nAKS_FLEX_NODE_SP_CLIENT_ID=c\n\
             AKS_FLEX_NODE_SP_CLIENT_SECRET={principal}\n"
        ),
    ));
    let agent = &joining.agent;
    let settings = format!("AKS_FLEX_NODE_AGENT_IMAGE={agent}\nAKS_FLEX_NODE_AGENT_HOSTS_DIR={HOSTS_DIR}\n");
    joining.inputs.push(("agent.env".to_owned(), settings));
    let server = "https://registry.test:5000";
    joining.inputs.push((
        "hosts/registry.test:5000/hosts.toml".to_owned(),
        format!(
            "server = \"{server}\"\n[host.\"{server}\"]\ncapabilities = [\"pull\", \"resolve\"]\n\
             [host.\"{server}\".header]\nAuthorization = \"Bearer {header}\"\n"
        ),
    ));
    let host = context.boot(&joining).await?;
    let secrets = [secret.as_str(), overrides, base, principal, header].join("\n");
    host.write_file(SECRETS, format!("{secrets}\n"), 0o600).await?;
    let watch = async {
        let script = script(&[LOOK, WATCH]);
        let watched = host.exec_within(READY * 2, &["bash", "-uc", &script]).await?;
        ensure!(watched.ok(), "the watch ended: {}", watched.stderr);
        Ok(watched.stdout)
    };
    let join = async {
        let joined = async {
            context.is_joined(&host).await?;
            wait::until_true("the end of the inputs", Duration::from_secs(60), async || {
                Ok(!host.exists(INPUTS).await?)
            })
            .await
        };
        let joined = joined.await;
        host.write_file(OVER, "", 0o600).await?;
        joined
    };
    let (watched, joined) = tokio::join!(watch, join);
    joined?;
    let watched = watched?;
    ensure!(watched.is_empty(), "while the host joined a secret was in: {watched}");
    ensure!(!host.exists(BASE_CONFIG).await?, "{BASE_CONFIG} is there");
    let found = search(&host).await?;
    let may: BTreeSet<String> = [
        CONFIG.to_owned(),
        format!("{HOSTS_DIR}/registry.test:5000/hosts.toml"),
        "/var/lib/machines/kube1/var/lib/kubelet/bootstrap-kubeconfig".to_owned(),
    ]
    .map(|path| format!("file 600 {path}"))
    .into();
    ensure!(found == may, "secrets are in {found:#?}, not just in {may:#?}");
    outside(context, &host, &secrets).await?;
    it_would_be_found(&host).await
}

/// Where one of these is found on a host that has joined: as `search` says it.
///
/// # Errors
/// The host can't be searched.
pub(in crate::check) async fn found(host: &Host, secrets: &[&str]) -> Result<BTreeSet<String>> {
    host.write_file(SECRETS, format!("{}\n", secrets.join("\n")), 0o600)
        .await?;
    search(host).await
}

async fn search(host: &Host) -> Result<BTreeSet<String>> {
    let limit = Duration::from_secs(120);
    let found = host
        .exec_within(limit, &["bash", "-uc", &script(&[LOOK, SEARCH])])
        .await?;
    Ok(found.stdout.lines().map(str::to_owned).collect())
}

/// Nor has the console, or anything that the cluster shows of the host.
async fn outside(context: &Context, host: &Host, secrets: &str) -> Result<()> {
    let console = std::fs::read(host.console())?;
    let kinds = "nodes,events,certificatesigningrequests,machineoperations,pods,configmaps";
    let objects = context
        .cloud()
        .cluster
        .kubectl(&["get", "--all-namespaces", "--output=json", kinds], "")
        .await?;
    for (what, text) in [
        ("the console", String::from_utf8_lossy(&console).into_owned()),
        ("the cluster", objects),
    ] {
        ensure!(
            !secrets.lines().any(|secret| text.contains(secret)),
            "{what} shows a secret"
        );
    }
    Ok(())
}

/// The same search finds a secret in each place where one is put.
async fn it_would_be_found(host: &Host) -> Result<()> {
    let plant = format!(
        "s=$(tail -n 1 {SECRETS}); echo $s > /var/log/planted; chmod 644 /var/log/planted; echo $s | systemd-cat; journalctl --sync; \
         bash -c 'exec -a \"planted $0\" sleep 300' $s > /dev/null 2>&1 & \
         PLANTED=$s sleep 300 > /dev/null 2>&1 &"
    );
    host.sh(&plant).await?;
    let found = search(host).await?;
    for place in [
        "cmdline of sleep",
        "environ of sleep",
        "journal --directory=/var/log/journal",
        "file 644 /var/log/planted",
    ] {
        ensure!(
            found.contains(place),
            "a secret planted in {place} is not found: {found:#?}"
        );
    }
    Ok(())
}
