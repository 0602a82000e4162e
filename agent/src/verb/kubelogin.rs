//! `token kubelogin`: kubelet's credential plugin. It runs in the machine, keeps nothing, and says what helps where kubelet's journal has it.

use std::io::{self, Write as _};

use hostexec::{Host, HostPath};

use super::Surroundings;
use crate::{
    azure::{Asked, Audience, Azure, BadCall, Certificate, Limits, render},
    config,
    exit::{Exit, Failure},
    fetch,
};

/// Which token is asked for, but for what the environment says.
#[derive(Clone, Debug)]
pub struct Login {
    /// Whom it is for.
    pub server_id: String,
    /// A PEM with a certificate and its key.
    pub certificate: Option<String>,
    /// What it is to be bound to.
    pub binding: Binding,
}

/// What a token is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Nothing: whoever bears it has it.
    None,
    /// A key of the bearer's.
    ToKey,
}

/// The longest file that is read for a certificate with its chain and key.
const LONGEST: u64 = 256 << 10;

/// Prints an `ExecCredential`.
///
/// # Errors
/// The call can't work, or there is no token now.
pub async fn kubelogin(here: &Surroundings, login: &Login) -> Result<Exit, Failure> {
    if login.binding == Binding::ToKey {
        return Err(BadCall::Pop.into());
    }
    let certificate = login.certificate.as_deref();
    let certificate = certificate.map(|path| certificate_at(&here.host, path)).transpose()?;
    let asked = Asked::parse(|name| std::env::var(name).ok(), certificate)?;
    let azure = Azure::new(fetch::roots(&here.host), Limits::default())?;
    let token = azure
        .token(&asked.account, &Audience::of(login.server_id.as_str()))
        .await?;
    let printed = render(asked.version, &token);
    let mut stdout = io::stdout().lock();
    let printed = stdout
        .write_all(printed.reveal().as_bytes())
        .and_then(|()| stdout.flush());
    printed.map_err(|source| Failure::Host {
        what: "print the token",
        source,
    })?;
    Ok(Exit::Done)
}

fn certificate_at(host: &Host, path: &str) -> Result<Certificate, Failure> {
    let bad = |what| Err(BadCall::File(what).into());
    let Ok(path) = HostPath::new(path) else {
        return bad("is not a plain path: write an absolute one");
    };
    let failed = |source| Failure::Host {
        what: "read the client certificate",
        source,
    };
    match host.metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bad("names a file that is not there: write it"),
        Err(error) => Err(failed(error)),
        Ok(found) if !found.is_file() || found.len() > LONGEST => bad("names no file with a certificate"),
        Ok(found) if config::exposed(&found) => {
            bad("names a file that others than its owner can read: give it mode 0600, and to who runs this")
        }
        Ok(_) => {
            let bytes = host.read(&path).map_err(failed)?;
            Ok(Certificate::parse(&bytes).map_err(BadCall::Certificate)?)
        }
    }
}
