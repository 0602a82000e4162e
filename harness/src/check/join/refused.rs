//! `join.final`: what can never work as it is written ends with 78, says which key it is and what to write, and is not tried again.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::bootstrap::{Bootstrap, UNIT};
use super::{BASE_CONFIG, Context, INPUTS, SETTINGS};
use crate::host::Host;

/// Stands in every bad value; no message may repeat it.
const CANARY: &str = "canary7w2q";

/// Files of a host that is to join, each by what is written in it; none where it is missing.
#[derive(Clone)]
struct Files {
    settings: Option<String>,
    inputs: String,
    inputs_mode: u32,
    config: String,
}

/// A bad value, and what is said of it.
struct Case {
    what: &'static str,
    files: Files,
    says: [&'static str; 2],
}

/// na_t18, na_r05: the first boot with a bad input, and then one bad input after the other on the same host.
pub(super) async fn refused(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    let good = Files {
        settings: Some(format!("AKS_FLEX_NODE_AGENT_IMAGE={}\n", joining.agent)),
        inputs: format!("AKS_FLEX_NODE_BASE_CONFIG_FILE={BASE_CONFIG}\n"),
        inputs_mode: 0o600,
        config: joining.config.to_string(),
    };
    let misspelt = format!("{}AKS_FLEX_NODE_AUHT={CANARY}\n", good.inputs);
    joining.spoilt = Some(misspelt);
    let host = context.boot(&joining).await?;
    let bootstrap = Bootstrap(&host);
    crate::wait::until_true("the end of the first try", crate::node::READY, async || {
        Ok(bootstrap.property("ActiveState").await? == "failed")
    })
    .await?;
    let said = bootstrap
        .last_try(&["AKS_FLEX_NODE_AUHT is no variable of the agent", "correct its name"])
        .await?;
    is_final(bootstrap, &said).await?;
    let pause = context.cloud().images.pause.to_string();
    let cases = settings(&good)
        .into_iter()
        .chain(inputs(&good))
        .chain(configurations(&good, &joining.config, &pause));
    for case in cases {
        write(&host, &case.files).await?;
        let judged = async {
            let said = bootstrap.one_try(&case.says).await?;
            is_final(bootstrap, &said).await
        };
        judged.await.map_err(|error| error.context(case.what))?;
    }
    ensure!(
        !host.exists("/var/lib/machines/kube1").await?,
        "there is a machine of an image that holds none"
    );
    // Nothing to join with: nothing is run, and nothing fails.
    write(&host, &good).await?;
    host.sh(&format!(
        "rm {INPUTS}; systemctl reset-failed {UNIT}; systemctl start {UNIT}"
    ))
    .await?;
    let skipped = bootstrap.property("ConditionResult").await?;
    ensure!(skipped == "no", "without {INPUTS} the unit ran");
    Ok(())
}

/// The unit has ended for good, and has kept what it was given to itself.
async fn is_final(bootstrap: Bootstrap<'_>, said: &str) -> Result<()> {
    for (property, value) in [
        ("ExecMainStatus", "78"),
        ("Result", "exit-code"),
        ("ActiveState", "failed"),
        ("SubState", "failed"),
        ("NRestarts", "0"),
    ] {
        let is = bootstrap.property(property).await?;
        ensure!(
            is == value,
            "{property} of {UNIT} is {is}, not {value}; it said: {said}"
        );
    }
    ensure!(!said.contains(CANARY), "it repeats a value: {said}");
    Ok(())
}

async fn write(host: &Host, files: &Files) -> Result<()> {
    match &files.settings {
        Some(settings) => host.write_file(SETTINGS, settings.as_str(), 0o600).await?,
        None => host.sh(&format!("rm {SETTINGS}")).await.map(drop)?,
    }
    host.write_file(INPUTS, files.inputs.as_str(), files.inputs_mode)
        .await?;
    host.write_file(BASE_CONFIG, files.config.as_str(), 0o600).await
}

fn settings(good: &Files) -> Vec<Case> {
    let image = good.settings.as_deref().unwrap_or_default().trim();
    let (name, digest) = image.split_once('@').unwrap_or((image, ""));
    let says = [
        "AKS_FLEX_NODE_AGENT_IMAGE in /etc/aks-flex-node-agent.env must name an image by digest",
        "write: AKS_FLEX_NODE_AGENT_IMAGE=<registry>/<repository>@sha256:",
    ];
    let user = image.replacen('=', &format!("=user:{CANARY}@"), 1);
    [
        ("settings without a digest", Some(name.to_owned())),
        ("settings with a tag in its place", Some(format!("{name}:{CANARY}"))),
        (
            "settings with a tag and the digest",
            Some(format!("{name}:{CANARY}@{digest}")),
        ),
        ("settings with user information", Some(user)),
        ("empty settings", Some(String::new())),
        ("no settings", None),
    ]
    .into_iter()
    .map(|(what, settings)| Case {
        what,
        files: Files {
            settings,
            ..good.clone()
        },
        says,
    })
    .collect()
}

fn inputs(good: &Files) -> Vec<Case> {
    let case = |what, inputs: String, says| Case {
        what,
        files: Files { inputs, ..good.clone() },
        says,
    };
    let with = |line: String| format!("{}{line}\n", good.inputs);
    let mut cases = vec![
        case(
            "a way to authenticate that there is not",
            with(format!("AKS_FLEX_NODE_AUTH={CANARY}")),
            ["AKS_FLEX_NODE_AUTH is no way to authenticate", "write"],
        ),
        case(
            "a quote that is not closed",
            with(format!("AKS_FLEX_NODE_AUTH=\"{CANARY}")),
            ["bootstrap.env can't be read", "line 2 has a quote that is not closed"],
        ),
        case(
            "a variable of someone else",
            with(format!("HTTPS_PROXY=http://user:{CANARY}@proxy")),
            ["line 2 has a variable that is none of the agent's", "leave it out"],
        ),
        case(
            "a file that is not there",
            format!("AKS_FLEX_NODE_BASE_CONFIG_FILE=/etc/{CANARY}\n"),
            [
                "AKS_FLEX_NODE_BASE_CONFIG_FILE names a file that the host does not have",
                "write the file, or another path",
            ],
        ),
        case(
            "overrides that are no JSON",
            with(format!("AKS_FLEX_NODE_CONFIG_OVERRIDES={{{CANARY}")),
            ["AKS_FLEX_NODE_CONFIG_OVERRIDES is no JSON object", "write one"],
        ),
    ];
    let mut open = case(
        "inputs that all may read",
        good.inputs.clone(),
        [
            "/etc/aks-flex-node/bootstrap.env can be read or changed by others than root",
            "mode 0600",
        ],
    );
    open.files.inputs_mode = 0o644;
    cases.push(open);
    cases
}

fn configurations(good: &Files, config: &Value, no_system: &str) -> Vec<Case> {
    let case = |what, config: String, says| Case {
        what,
        files: Files { config, ..good.clone() },
        says,
    };
    let with = |pointer: &str, value: Value| {
        let mut config = config.clone();
        // A place that is not there yet is a key of an object that is.
        let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        if let Some(Value::Object(parent)) = config.pointer_mut(parent) {
            parent.insert(key.to_owned(), value);
        }
        config.to_string()
    };
    let principal = json!({ "tenantId": "t", "clientId": "c", "clientSecret": CANARY });
    let mut two: Value = config.clone();
    two["azure"]["servicePrincipal"] = principal;
    two["azure"]["managedIdentity"] = json!({});
    vec![
        case(
            "a configuration that is no JSON",
            format!("{{\"{CANARY}"),
            [
                "AKS_FLEX_NODE_BASE_CONFIG_FILE names a file that is no JSON object",
                "write one",
            ],
        ),
        case(
            "a bad token",
            with("/azure/bootstrapToken/token", json!(CANARY)),
            [
                "azure.bootstrapToken.token is not a bootstrap token",
                "write six and sixteen",
            ],
        ),
        case(
            "two Azure identities",
            two.to_string(),
            [
                "azure has more than one Azure identity",
                "write one of servicePrincipal",
            ],
        ),
        case(
            "a number that is none",
            with("/node/maxPods", json!(CANARY)),
            ["node.maxPods: expected a whole number", "found a string"],
        ),
        case(
            "a cluster's name that is a URL with a password",
            with(
                "/node/kubelet/clusterFQDN",
                json!(format!("https://u:{CANARY}@api.test/?{CANARY}#{CANARY}")),
            ),
            ["node.kubelet.clusterFQDN", "write"],
        ),
        case(
            "a node's name that is none",
            with("/agent/nodeName", json!(format!("Node_{CANARY}!"))),
            ["agent.nodeName", "write"],
        ),
        case(
            "a machine's image that names none",
            with(
                "/bootstrap/ociImage",
                json!(format!("https://u:{CANARY}@registry.test/x")),
            ),
            ["bootstrap.ociImage is no image's name", "write <registry>/<repository>"],
        ),
        case(
            "a machine's image with no system in it",
            with("/bootstrap/ociImage", json!(no_system)),
            [
                "bootstrap.ociImage: the image holds no operating system",
                "name another one",
            ],
        ),
    ]
}
