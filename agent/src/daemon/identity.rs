//! Who the daemon is to the API server where it has a certificate: the stored one, or a new one for the bootstrap token, renewed in
//! time. (Without a bootstrap token an Azure identity's tokens are shown: `bearer`.)
//!
//! ```text
//!  stored and fit ──────────────────────────┐
//!  else token ─CSR─▶ issued ─saved─▶ client ┴─▶ at 70–90 % of its life: CSR by the certificate itself ─▶ a new client
//! ```
//!
//! It gives up on nothing: the agent's unit is of use to its host without a cluster too.

use std::time::Duration;

use hostexec::Host;
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{error, info, warn};

use crate::cluster::{Client, Credential, Endpoint, Error, enrol, jitter};
use crate::config::BootstrapToken;
use crate::model::{NodeName, Secret};
use crate::store::credentials::{self, Pair};

/// Pause after the first failure, and the longest one.
pub(super) const PAUSE: Duration = Duration::from_secs(2);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// How often the clock is looked at while a certificate is good: a wall clock may be set, a sleep does not notice.
pub(super) const LOOK: Duration = Duration::from_secs(3600);

/// What an identity is made from.
pub(super) struct Source<'a> {
    /// Where it is stored.
    pub(super) host: &'a Host,
    /// Where it is issued.
    pub(super) endpoint: Endpoint,
    /// Whose it is.
    pub(super) node: &'a NodeName,
    /// What proves it at first.
    pub(super) token: Option<&'a BootstrapToken>,
}

/// Keeps a client in `clients` for as long as it runs. `refused` tells it that the API server does not take the last one.
pub(super) async fn keep(source: &Source<'_>, clients: &watch::Sender<Option<Client>>, refused: &Notify) {
    let mut pair = stored(source);
    let mut refusals = Refusals::default();
    loop {
        let current = match pair.take() {
            Some(pair) => pair,
            None => first(source).await,
        };
        let Ok(client) = client(source, &current) else {
            // A certificate that makes no client: it was stored by something else.
            warn!("the daemon's certificate can't be used; asking for another");
            pair = Some(first(source).await);
            continue;
        };
        clients.send_replace(Some(client.clone()));
        let renew_at = current.renew_at(jitter::fraction());
        info!(until = %current.not_after, renewed_at = %renew_at, "the daemon's certificate is good");
        tokio::select! {
            // Both may be dropped at any time: nothing is stored before a certificate is issued.
            renewed = renewed(source, &client, &current, renew_at) => pair = renewed,
            () = refused.notified() => {
                let pause = refusals.next(Instant::now());
                warn!(?pause, "the API server does not take the daemon's certificate");
                sleep(pause.mul_f64(1.0 + jitter::fraction())).await;
                if source.token.is_none() {
                    pair = Some(current);
                }
            }
        }
    }
}

/// How long to wait after a refusal: the more of them in a row, the longer. A certificate may have been taken from us, or
/// the API server may not know us for a while.
#[derive(Default)]
pub(super) struct Refusals {
    pause: Duration,
    last: Option<Instant>,
}

impl Refusals {
    pub(super) fn next(&mut self, now: Instant) -> Duration {
        let in_a_row = self.last.is_some_and(|last| now - last < LONGEST_PAUSE * 2);
        self.pause = if in_a_row {
            (self.pause * 2).min(LONGEST_PAUSE)
        } else {
            PAUSE
        };
        self.last = Some(now);
        self.pause
    }
}

fn client(source: &Source<'_>, pair: &Pair) -> Result<Client, Error> {
    let credential = Credential::Certificate {
        certificate: pair.certificate.clone(),
        key: pair.key.clone(),
    };
    Client::new(&source.endpoint, &credential)
}

fn stored(source: &Source<'_>) -> Option<Pair> {
    match credentials::load(source.host, source.node, Timestamp::now()) {
        Ok(Some(Ok(pair))) => Some(pair),
        Ok(Some(Err(unfit))) => {
            warn!(%unfit, "the stored certificate of the daemon is not used");
            None
        }
        Ok(None) => None,
        Err(error) => {
            warn!(%error, "the stored certificate of the daemon can't be read");
            None
        }
    }
}

/// A certificate for the bootstrap token, however long that takes; or the stored one, which is looked at again after each
/// failure: a clock may have been wrong, or the API server not have known us for a while.
async fn first(source: &Source<'_>) -> Pair {
    let Some(token) = source.token else {
        error!(
            "the daemon has no client certificate, no bootstrap token to ask for one, and no Azure identity: write one \
             into azure"
        );
        loop {
            sleep(LONGEST_PAUSE).await;
            if let Some(pair) = stored(source) {
                return pair;
            }
        }
    };
    let mut pause = PAUSE;
    loop {
        match enrolled(source, &Credential::Token(Secret::new(token.reveal().to_owned()))).await {
            Ok(pair) => return pair,
            Err(error @ Error::Unauthorized(_)) => error!(
                %error,
                "the bootstrap token is unknown or expired: put a new one into azure.bootstrapToken.token"
            ),
            Err(error) => warn!(%error, "the daemon's certificate could not be had yet"),
        }
        sleep(pause.mul_f64(1.0 + jitter::fraction() / 4.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
        if let Some(pair) = stored(source) {
            return pair;
        }
    }
}

/// Waits for the time, then asks with the certificate itself. Nothing when that is over and a token must do.
async fn renewed(source: &Source<'_>, client: &Client, current: &Pair, at: Timestamp) -> Option<Pair> {
    let mut pause = PAUSE;
    loop {
        let now = Timestamp::now();
        if now < at {
            let left = Duration::try_from(at.duration_since(now)).unwrap_or(LOOK);
            sleep(left.min(LOOK)).await;
            continue;
        }
        if now >= current.not_after {
            error!("the daemon's certificate was not renewed in time");
            return None;
        }
        // Dropped when its time is over: the request stands in the cluster, the next one is another.
        let left = Duration::try_from(current.not_after.duration_since(now)).unwrap_or(LOOK);
        match timeout(left, save(source, enrol(client, source.node))).await {
            Ok(Ok(pair)) => return Some(pair),
            Ok(Err(error)) => warn!(%error, "the daemon's certificate could not be renewed yet"),
            Err(_) => continue,
        }
        sleep(pause.mul_f64(1.0 + jitter::fraction() / 4.0)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn enrolled(source: &Source<'_>, credential: &Credential) -> Result<Pair, Error> {
    let client = Client::new(&source.endpoint, credential)?;
    save(source, enrol(&client, source.node)).await
}

async fn save(
    source: &Source<'_>,
    issued: impl Future<Output = Result<(String, Secret<String>), Error>>,
) -> Result<Pair, Error> {
    let (certificate, key) = issued.await?;
    let now = Timestamp::now();
    // The API server's clock may be a little ahead of ours: what it just issued is good.
    let pair = Pair::new(certificate.clone(), key.clone(), source.node, now)
        .or_else(|_| Pair::new(certificate, key, source.node, now + jiff::SignedDuration::from_mins(10)))
        .map_err(|unfit| Error::Settings(format!("the certificate that was issued can't be used: {unfit}")))?;
    if let Err(error) = credentials::save(source.host, &pair, now) {
        error!(%error, "the daemon's certificate could not be stored; it is used until the next start");
    }
    info!("the daemon has a new certificate");
    Ok(pair)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_in_a_row_are_met_with_growing_patience() {
        let mut refusals = Refusals::default();
        let start = Instant::now();
        let pauses: Vec<_> = (0..10)
            .map(|n| refusals.next(start + Duration::from_secs(n)).as_secs())
            .collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        let later = refusals.next(start + Duration::from_secs(10_000));
        assert_eq!(later, PAUSE);
    }
}
