//! `fetch-bootstrap-data`: what a host needs to join, from Azure Resource Manager into a file of root's own.

use std::os::unix::fs::MetadataExt as _;
use std::{io, time::Duration};

use hostexec::{Host, HostPath};

use super::Surroundings;
use crate::{
    azure::{Account, Authority, Azure, BadCall, Certificate, Keys, Limits, Pool, Principal, Proof},
    config::{self, Credential},
    exit::{Exit, Failure},
    fetch,
    model::Secret,
};

/// A first boot can wait for a resource manager that is busy; the bootstrap unit asks again.
pub(super) const LIMITS: Limits = Limits {
    total: Duration::from_secs(150),
    one: Duration::from_secs(60),
    connect: Duration::from_secs(10),
    pause: Duration::from_secs(2),
    longest: Duration::from_secs(20),
};

/// The variable with a service principal's secret.
const SECRET: &str = "AKS_FLEX_NODE_SP_CLIENT_SECRET";

/// Which data is asked for, by whom, and where it goes.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The cluster.
    pub cluster: String,
    /// The pool.
    pub pool: String,
    /// Who asks.
    pub auth: Auth,
    /// A managed identity's client.
    pub msi_client: Option<String>,
    /// A service principal's tenant.
    pub tenant: Option<String>,
    /// A service principal's client.
    pub client: Option<String>,
    /// Files with what proves it: one of them, or the variable.
    pub files: Vec<String>,
    /// The resource manager.
    pub manager: String,
    /// Who gives out tokens; none: whoever goes with the resource manager.
    pub authority: Option<String>,
    /// The version of the API.
    pub api_version: String,
    /// Where the data goes.
    pub output: String,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Auth {
    /// The host's identity in Azure Arc.
    Arc,
    /// The virtual machine's identity.
    Msi,
    /// A service principal.
    ServicePrincipal,
}

/// Fetches the data and writes it.
///
/// # Errors
/// The options can't work, or there is no data now. The file is as it was.
pub async fn fetch_bootstrap_data(here: &Surroundings, wanted: &Wanted) -> Result<Exit, Failure> {
    let host = &here.host;
    let bad = |name, wrong, write| Failure::from(BadCall::Variable { name, wrong, write });
    let manager = config::resource_manager(&wanted.manager, "");
    let manager = manager.map_err(|_| {
        bad(
            "--resource-manager-endpoint",
            "is no https URL of just a host",
            "write one such as https://management.azure.com",
        )
    })?;
    let cluster = config::cluster_id(&wanted.cluster);
    let cluster = cluster.map_err(|mistake| bad("--cluster-resource-id", mistake.wrong, mistake.write))?;
    let name = wanted.pool.trim();
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(bad(
            "--agent-pool-name",
            "is no pool's name",
            "write letters and digits",
        ));
    }
    let output = HostPath::new(wanted.output.as_str());
    let output = output.map_err(|_| bad("--output", "is not a plain path", "write an absolute one"))?;
    protected(host, &output)?;
    let account = account(host, wanted, &manager)?;
    let pool = Pool {
        cluster,
        name: name.to_owned(),
        api_version: wanted.api_version.clone(),
    };
    let azure = Azure::new(fetch::roots(host), LIMITS)?;
    let data = azure.bootstrap_data(&account, &manager, &pool).await?;
    let written = host.write(&output, data.reveal().reveal(), 0o600);
    written.map_err(|source| Failure::Host {
        what: "write the bootstrap data",
        source,
    })?;
    tracing::info!(output = %output, "the pool's bootstrap data is written");
    Ok(Exit::Done)
}

fn account(host: &Host, wanted: &Wanted, manager: &str) -> Result<Account, Failure> {
    let bad = |name, wrong, write| Failure::from(BadCall::Variable { name, wrong, write });
    let needed = |name, value: &Option<String>| {
        let given = value.as_deref().map(str::trim).filter(|value| !value.is_empty());
        given
            .map(str::to_owned)
            .ok_or_else(|| bad(name, "is missing", "write the ID"))
    };
    match wanted.auth {
        Auth::Arc => Ok(Account::Arc(Keys::of(host))),
        Auth::Msi => Ok(Account::Managed {
            client_id: wanted.msi_client.clone().filter(|id| !id.trim().is_empty()),
        }),
        Auth::ServicePrincipal => {
            let authority = wanted.authority.as_deref().unwrap_or(config::authority_of(manager));
            let authority = Authority::parse(authority).ok_or_else(|| {
                bad(
                    "--authority-host",
                    "is no https URL of just a host",
                    "write one such as https://login.microsoftonline.com",
                )
            })?;
            Ok(Account::Principal(Principal {
                authority,
                tenant: needed("--sp-tenant-id", &wanted.tenant)?,
                client: needed("--sp-client-id", &wanted.client)?,
                proof: proof(host, wanted)?,
            }))
        }
    }
}

fn proof(host: &Host, wanted: &Wanted) -> Result<Proof, Failure> {
    const FILE: &str = "--sp-client-secret-file, --sp-client-certificate-file or --sp-client-credential-file";
    let bad = |wrong, write| {
        let name = FILE;
        Failure::from(BadCall::Variable { name, wrong, write })
    };
    let variable = std::env::var(SECRET).ok().filter(|secret| !secret.is_empty());
    match (wanted.files.as_slice(), variable) {
        ([], Some(secret)) => Ok(Proof::Secret(Secret::new(secret))),
        ([path], None) => {
            let path = HostPath::new(path.as_str()).map_err(|_| bad("is not a plain path", "write an absolute one"))?;
            let read = config::credential_at(host, &path).map_err(|mistake| bad(mistake.wrong, mistake.write))?;
            match read {
                Credential::Secret(secret) => Ok(Proof::Secret(secret)),
                Credential::Certificate(pem) => {
                    let read = Certificate::parse(pem.reveal().as_bytes());
                    Ok(Proof::Certificate(read.map_err(crate::azure::Error::Credential)?))
                }
                Credential::File(_) => Err(bad("names a file that can't be read", "write another path")),
            }
        }
        ([], None) => Err(bad(
            "is missing",
            "write one of them, or AKS_FLEX_NODE_SP_CLIENT_SECRET",
        )),
        (_, _) => Err(bad("stands beside another credential", "write one of them")),
    }
}

/// Nobody but root can put another file, or a link, in the place of this one: that holds for each folder above it.
fn protected(host: &Host, path: &HostPath) -> Result<(), Failure> {
    let bad = |wrong, write| {
        Err(BadCall::Variable {
            name: "--output",
            wrong,
            write,
        }
        .into())
    };
    match host.metadata(path) {
        Ok(found) if !found.is_file() => return bad("names something that is no file", "write another path"),
        Ok(_) | Err(_) => {}
    }
    let mut above = path.parent();
    while let Some(folder) = above {
        match host.metadata(&folder) {
            Ok(found) if !found.is_dir() => return bad("lies below something that is no folder", "write another path"),
            Ok(found) => {
                let owner = [0, nix::unistd::geteuid().as_raw()].contains(&found.uid());
                let sticky = found.mode() & 0o1000 != 0;
                if !owner || (found.mode() & 0o022 != 0 && !sticky) {
                    return bad(
                        "lies in a folder that others than root can change",
                        "write a path in a folder of root's own, such as /etc/aks-flex-node",
                    );
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(Failure::Host {
                    what: "look at the output's folder",
                    source,
                });
            }
        }
        above = folder.parent();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::model::chain;

    #[test]
    fn data_goes_where_nobody_else_can_put_anything() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        for (folder, mode) in [("root", 0o700), ("open", 0o777), ("tmp", 0o1777), ("group", 0o775)] {
            let path = dir.path().join(folder);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let ask = |path: &str| protected(&host, &HostPath::new(path).unwrap());
        for good in ["/root/data", "/root/new/data", "/tmp/data"] {
            ask(good).unwrap();
        }
        for bad in ["/open/data", "/open/new/data", "/group/data", "/root"] {
            let failure = ask(bad).unwrap_err();
            assert_eq!(failure.exit(), Exit::Never);
            assert!(chain(&failure).contains("--output"), "{bad}: {failure}");
        }
    }
}
