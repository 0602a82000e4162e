//! Who the daemon is to the API server where an Azure identity has no bootstrap token beside it: tokens of that identity, each for a client
//! of its own, and another before it ends. No certificate is asked for. Source: node-agent specification, 6.3.
//!
//! It gives up on nothing: an identity may be assigned, a secret renewed, while the agent serves its host.

use std::time::Duration;

use hostexec::Host;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::identity::{LONGEST_PAUSE, LOOK, PAUSE, Refusals};
use crate::azure::{AKS_SERVER, Account, Audience, Azure, Error, Limits, Token};
use crate::cluster::{Client, Credential, Endpoint, jitter};
use crate::config::Settings;
use crate::fetch;
use crate::model::chain;

/// The daemon can wait for a metadata service that is being updated, which takes up to 70 s.
const TOTAL: Duration = Duration::from_secs(90);

/// What tokens are made from.
pub(super) struct Source<'a> {
    /// Whose authorities are trusted.
    pub(super) host: &'a Host,
    /// Where they are shown.
    pub(super) endpoint: Endpoint,
    /// Whose they are.
    pub(super) settings: &'a Settings,
}

/// Keeps a client in `clients` for as long as it runs. `refused` tells it that the API server does not take the last one.
pub(super) async fn keep(source: &Source<'_>, clients: &watch::Sender<Option<Client>>, refused: &Notify) {
    let mut refusals = Refusals::default();
    loop {
        let token = had(source).await;
        match Client::new(&source.endpoint, &Credential::Token(token.value().clone())) {
            Ok(client) => clients.send_replace(Some(client)),
            Err(error) => {
                error!(%error, "no client can be made of node.kubelet.clusterFQDN and caCertData");
                sleep(LONGEST_PAUSE).await;
                continue;
            }
        };
        let renew_at = token.renew_at(jitter::fraction());
        info!(until = %token.usable_until(), renewed_at = %renew_at, "the daemon has a token of its Azure identity");
        tokio::select! {
            // Both may be dropped at any time.
            () = until(renew_at) => {}
            () = refused.notified() => {
                let pause = refusals.next(Instant::now());
                warn!(
                    ?pause,
                    "the API server does not take the token of the Azure identity: is the identity of the cluster's tenant, and has the \
                     cluster Entra ID's authentication?"
                );
                sleep(pause.mul_f64(1.0 + jitter::fraction())).await;
            }
        }
    }
}

/// Waits by the wall clock, which may be set meanwhile.
async fn until(at: Timestamp) {
    loop {
        let left = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
        if left.is_zero() {
            return;
        }
        sleep(left.min(LOOK)).await;
    }
}

/// A token, however long that takes.
async fn had(source: &Source<'_>) -> Token {
    let mut pause = PAUSE;
    loop {
        match asked(source).await {
            Ok(token) => return token,
            Err(error) if error.may_pass() => warn!(error = chain(&error), "no token of the Azure identity yet"),
            Err(error) => error!(error = chain(&error), "no token of the Azure identity"),
        }
        sleep(pause.mul_f64(1.0 + jitter::fraction() / 4.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn asked(source: &Source<'_>) -> Result<Token, Error> {
    let account = Account::of(source.settings)?;
    let account = account.ok_or_else(|| Error::Setup("the settings have no such identity".into()))?;
    let limits = Limits {
        total: TOTAL,
        ..Limits::default()
    };
    // Made anew each time: an authority that was added to the host counts.
    let azure = Azure::new(fetch::roots(source.host), limits)?;
    azure.token(&account, &Audience::of(AKS_SERVER)).await
}
