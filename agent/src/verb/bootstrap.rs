//! `bootstrap`: inputs to configuration, then `start`, then the inputs go.
//!
//! A crash at any point leaves the inputs, or a node that has joined: the next run does it all again, to the same end.

use std::io;

use hostexec::{Host, HostPath};

use super::{Surroundings, fetch_bootstrap_data, preflight, start};
use crate::{
    azure::{Account, Azure, BootstrapData, Pool},
    bootstrap::{self, Below, Error, Fetch, INPUTS, Inputs, Key},
    config,
    exit::{Exit, Failure},
    fetch,
    store::inputs,
};

/// Makes the configuration, joins the host, and removes the inputs, whose secrets are needed no more.
///
/// # Errors
/// The inputs stay where they are.
pub async fn bootstrap(here: &Surroundings, options: impl IntoIterator<Item = (Key, String)>) -> Result<Exit, Failure> {
    let Configured { settings, base } = configure(here, options).await?;
    here.log.set_level(settings.log_level());
    here.log_to(settings.log_dir());
    let exit = match start::join(here, &settings).await {
        Err(failure) if failure.exit() == Exit::Failed => {
            preflight::explain(here, &settings).await;
            return Err(failure);
        }
        joined => joined?,
    };
    inputs::consume(&here.host, base.as_ref()).map_err(failed("remove the bootstrap's inputs"))?;
    Ok(exit)
}

/// What the inputs made.
#[derive(Debug)]
struct Configured {
    settings: config::Settings,
    /// The file it started from.
    base: Option<HostPath>,
}

/// Writes the configuration that the inputs make, once it is known to work.
async fn configure(
    here: &Surroundings,
    options: impl IntoIterator<Item = (Key, String)>,
) -> Result<Configured, Failure> {
    let host = &here.host;
    let inputs = read(host)?.with(options);
    for key in inputs.without_effect() {
        tracing::warn!(key = key.name(), "without effect where the agent runs from its image");
    }
    for (key, path) in bootstrap::protected_files(&inputs) {
        protected(host, &named(key, path)?, key)?;
    }
    let base = inputs.base().map(|path| named(Key::BaseConfigFile, path)).transpose()?;
    let from = base
        .as_ref()
        .map(|path| host.read(path).map_err(failed("read the base configuration")));
    let name = host.host_name().map_err(failed("read the host's name"))?;
    let from = from.transpose()?;
    let make = |fetched: Option<&[u8]>| {
        let base = from.as_deref();
        let bytes = bootstrap::render(&inputs, Below { base, fetched }, here.mode, &name)?;
        let mut made = config::parse(&bytes, &config::PATH, &name).map_err(Error::Made)?;
        config::read_credential(host, &mut made.settings);
        made.settings.startable().map_err(Failure::Unfit)?;
        Ok::<_, Failure>((bytes, made))
    };
    let (bytes, made) = match bootstrap::fetch(&inputs)? {
        Fetch::No => make(None)?,
        Fetch::Yes => {
            // Whom to ask, and as whom: what can't work is told before anybody is asked.
            let asking = make(Some(bootstrap::SOME_DATA))?.1.settings;
            make(Some(fetched(host, &asking).await?.reveal().reveal()))?
        }
    };
    here.tell(&made);
    if let Some(dir) = config::PATH.parent() {
        host.create_dir(&dir, 0o755)
            .map_err(failed("make the configuration's folder"))?;
        host.sweep(&dir).map_err(failed("remove what an earlier try left"))?;
    }
    host.write_if_changed(&config::PATH, &bytes, 0o600)
        .map_err(failed("write the configuration"))?;
    Ok(Configured {
        settings: made.settings,
        base,
    })
}

/// What the resource manager says of the pool.
async fn fetched(host: &Host, settings: &config::Settings) -> Result<BootstrapData, Failure> {
    bootstrap::identified(settings)?;
    let account = Account::of_manager(settings, host)?.expect("an identity is an account");
    let azure = Azure::new(fetch::roots(host), fetch_bootstrap_data::LIMITS)?;
    let pool = Pool::of(settings);
    let data = azure
        .bootstrap_data(&account, settings.resource_manager(), &pool)
        .await?;
    tracing::info!(
        pool = settings.pool(),
        "the resource manager has said what the pool's nodes join with"
    );
    Ok(data)
}

fn read(host: &Host) -> Result<Inputs, Error> {
    match host.metadata(&INPUTS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::NoInputs),
        Err(source) => {
            return Err(Error::Host {
                what: "look at the bootstrap's inputs",
                source,
            });
        }
        Ok(found) if config::exposed(&found) => return Err(Error::Exposed { path: INPUTS }),
        Ok(_) => {}
    }
    let bytes = host.read(&INPUTS).map_err(failed("read the bootstrap's inputs"))?;
    Inputs::parse(&bytes)
}

fn named(key: Key, path: &str) -> Result<HostPath, Error> {
    HostPath::new(path)
        .map_err(|_| Error::mistake(key.name(), "is not a plain path of the host", "write an absolute one"))
}

/// A file with a secret is there, and nobody else's.
fn protected(host: &Host, path: &HostPath, key: Key) -> Result<(), Error> {
    let mistake = |wrong, write| Err(Error::mistake(key.name(), wrong, write));
    match host.metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => mistake(
            "names a file that the host does not have",
            "write the file, or another path",
        ),
        Err(source) => Err(Error::Host {
            what: "look at a file that the bootstrap's inputs name",
            source,
        }),
        Ok(found) if !found.is_file() => mistake("names no regular file", "write another path"),
        Ok(found) if config::exposed(&found) => mistake(
            "names a file that others than root can read or change",
            "make it root's own, with mode 0600",
        ),
        Ok(_) => Ok(()),
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Host { what, source }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt, PermissionsExt},
        path::Path,
    };

    use super::*;
    use crate::{
        log::Log,
        model::{Mode, chain},
    };

    const GOOD: &str = r#"
# The token may be used once.
AKS_FLEX_NODE_CONFIG_OVERRIDES='{
  "azure": {
    "bootstrapToken": {"token": "abcdef.0123456789abcdef"},
    "targetCluster": {"resourceId": "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c1"}
  },
  "node": {"kubelet": {"clusterFQDN": "c1:6443", "caCertData": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="}},
  "components": {"kubernetes": "1.34.0"}
}'
"#;

    fn here(inputs: &str, mode: u32) -> (tempfile::TempDir, Surroundings) {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        host.write(&INPUTS, inputs.as_bytes(), mode).unwrap();
        host.write(&HostPath::fixed("/etc/hostname"), b"Edge-7\n", 0o644)
            .unwrap();
        (
            dir,
            Surroundings {
                mode: Mode::Container,
                host,
                log: Log::silent(),
            },
        )
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[tokio::test]
    async fn the_inputs_become_a_configuration_for_root_alone() {
        let (dir, here) = here(GOOD, 0o600);
        let made = configure(&here, []).await.unwrap().settings;
        assert_eq!(made.node_name().as_str(), "edge-7");
        let path = dir.path().join("etc/aks-flex-node/config.json");
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o755));
        let first = fs::read(&path).unwrap();
        // What an earlier run left half-done or changed is made good, and a run that changes nothing writes nothing.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        here.host.write(&config::PATH, b"{", 0o644).unwrap();
        configure(&here, []).await.unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (first, 0o600));
        let inode = fs::metadata(&path).unwrap().ino();
        configure(&here, []).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), inode);
    }

    #[tokio::test]
    async fn options_and_a_base_file_count() {
        let base = "AKS_FLEX_NODE_BASE_CONFIG_FILE=/etc/base.json\n";
        let (_dir, here) = here(&format!("{GOOD}{base}"), 0o600);
        let path = HostPath::fixed("/etc/base.json");
        here.host
            .write(&path, br#"{"agent": {"nodeName": "base", "logLevel": "debug"}}"#, 0o600)
            .unwrap();
        let Configured { settings: made, base } = configure(&here, [(Key::AgentPoolName, "pool".to_owned())])
            .await
            .unwrap();
        assert_eq!(base.as_ref(), Some(&HostPath::fixed("/etc/base.json")));
        assert_eq!((made.node_name().as_str(), made.pool()), ("base", "pool"));
        here.host.write(&path, b"{}", 0o644).unwrap();
        let failure = configure(&here, []).await.unwrap_err();
        assert_eq!(failure.exit(), Exit::Never);
        assert!(chain(&failure).contains("AKS_FLEX_NODE_BASE_CONFIG_FILE names a file that others than root can read"));
        here.host.remove(&path).unwrap();
        let failure = configure(&here, []).await.unwrap_err();
        assert_eq!(failure.exit(), Exit::Never);
        assert!(chain(&failure).contains("AKS_FLEX_NODE_BASE_CONFIG_FILE names a file that the host does not have"));
    }

    #[tokio::test]
    async fn inputs_that_cannot_work_are_final_and_write_nothing() {
        for (inputs, mode, text) in [
            (GOOD, 0o644, "can be read or changed by others than root"),
            (
                "AKS_FLEX_NODE_X=canary\n",
                0o600,
                "AKS_FLEX_NODE_X is no variable of the agent",
            ),
            (
                "AKS_FLEX_NODE_AUTH='canary\n",
                0o600,
                "line 1 has a quote that is not closed",
            ),
            (
                "AKS_FLEX_NODE_AUTH=canary\n",
                0o600,
                "AKS_FLEX_NODE_AUTH is no way to authenticate",
            ),
            (
                "AKS_FLEX_NODE_CONFIG_OVERRIDES={\"azure\":{\"bootstrapToken\":{\"token\":\"canary\"}}}\n",
                0o600,
                "azure.bootstrapToken.token is not a bootstrap token",
            ),
            (&GOOD.replace("1.34.0", ""), 0o600, "components.kubernetes is missing"),
            (
                &GOOD.replace("\"node\"", "\"networking\": {\"localDNS\": {}}, \"node\""),
                0o600,
                "networking.localDNS asks for what is not part of this release yet",
            ),
        ] {
            let (_dir, here) = here(inputs, mode);
            let failure = configure(&here, []).await.unwrap_err();
            let message = chain(&failure);
            assert_eq!(failure.exit(), Exit::Never, "{message}");
            assert!(message.contains(text) && !message.contains("canary"), "{message}");
            assert!(!here.host.exists(&config::PATH).unwrap(), "{message}");
            assert!(here.host.exists(&INPUTS).unwrap());
        }
    }

    #[tokio::test]
    async fn no_inputs_are_final_and_a_host_without_a_name_is_not() {
        let (_dir, here) = here(GOOD, 0o600);
        here.host
            .write(&HostPath::fixed("/etc/hostname"), b"localhost\n", 0o644)
            .unwrap();
        let failure = configure(&here, []).await.unwrap_err();
        assert_eq!(failure.exit(), Exit::Failed, "{}", chain(&failure));
        here.host.remove(&INPUTS).unwrap();
        let failure = configure(&here, []).await.unwrap_err();
        assert_eq!(failure.exit(), Exit::Never);
        assert!(chain(&failure).starts_with("there is no /etc/aks-flex-node/bootstrap.env: write it"));
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_fails_the_try_and_leaves_the_old_file_whole() {
        let (dir, here) = here(GOOD, 0o600);
        // A folder in the file's place can be had without a disk of its own: the replacement fails as on a full one.
        let path = dir.path().join("etc/aks-flex-node/config.json");
        fs::create_dir_all(path.join("kept")).unwrap();
        let failure = configure(&here, []).await.unwrap_err();
        assert_eq!(failure.exit(), Exit::Failed, "{}", chain(&failure));
        assert!(path.join("kept").is_dir() && here.host.exists(&INPUTS).unwrap());
        let names = fs::read_dir(path.parent().unwrap()).unwrap();
        assert_eq!(names.count(), 2, "no temporary file is left");
    }

    #[tokio::test]
    async fn what_can_not_be_fetched_is_final_before_anybody_is_asked() {
        for (more, text) in [
            (
                "",
                "AKS_FLEX_NODE_FETCH_BOOTSTRAP_DATA has no Azure identity to ask with",
            ),
            (
                "AKS_FLEX_NODE_AUTH=service-principal\n",
                "AKS_FLEX_NODE_SP_TENANT_ID is missing",
            ),
            (
                "AKS_FLEX_NODE_AUTH=msi\nAKS_FLEX_NODE_CLUSTER_RESOURCE_ID=canary\n",
                "azure.targetCluster.resourceId is not the resource ID",
            ),
        ] {
            let (_dir, here) = here(&format!("{GOOD}AKS_FLEX_NODE_FETCH_BOOTSTRAP_DATA=true\n{more}"), 0o600);
            let failure = configure(&here, []).await.unwrap_err();
            let message = chain(&failure);
            assert_eq!(failure.exit(), Exit::Never, "{message}");
            assert!(message.contains(text) && !message.contains("canary"), "{message}");
            assert!(!here.host.exists(&config::PATH).unwrap());
        }
    }

    #[tokio::test]
    async fn what_a_cut_write_left_is_swept() {
        let (dir, here) = here(GOOD, 0o600);
        let left = HostPath::fixed("/etc/aks-flex-node/.aks-flex-node-tmp-cut");
        here.host.write(&left, b"half", 0o600).unwrap();
        configure(&here, []).await.unwrap();
        assert!(!dir.path().join("etc/aks-flex-node/.aks-flex-node-tmp-cut").exists());
    }
}
