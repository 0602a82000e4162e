//! A look at the Azure identity: one token is asked for, and forgotten.

use std::time::Duration;

use tokio::time::timeout;

use super::{LIMIT, Look, Subject, a_look, blocking};
use crate::{
    azure::{AKS_SERVER, Account, Audience, Azure, BadCertificate, Error, Limits},
    fetch,
    preflight::{
        Check, Unseen,
        judge::{self, Given, Use, words},
    },
};

/// Within [`LIMIT`], and once more where it is busy.
const LIMITS: Limits = Limits {
    total: Duration::from_secs(8),
    one: Duration::from_secs(4),
    connect: Duration::from_secs(3),
    pause: Duration::from_secs(1),
    longest: Duration::from_secs(2),
};

pub(super) fn looks(subject: &Subject) -> Vec<Look<'_>> {
    vec![a_look(&[Check::AzureIdentity], async move {
        let needed = match subject.settings.auth().token() {
            Some(_) => Use::Manage,
            None => Use::Join,
        };
        vec![match timeout(LIMIT, asked(subject, needed)).await {
            Ok(given) => judge::identity(needed, &given),
            Err(_) => Check::AzureIdentity.unseen(&Unseen::Late(LIMIT)),
        }]
    })]
}

async fn asked(subject: &Subject, needed: Use) -> Given {
    let settings = &subject.settings;
    let (account, audience) = match needed {
        Use::Join => (Account::of(settings), AKS_SERVER),
        Use::Manage => (
            Account::of_manager(settings, &subject.host),
            settings.resource_manager(),
        ),
    };
    let account = match account {
        Ok(Some(account)) => account,
        Ok(None) => return Given::NotAsked,
        Err(error) => return told(error),
    };
    let roots = blocking(&subject.host, |host| Ok(fetch::roots(host))).await;
    let azure = match roots.map(|roots| Azure::new(roots, LIMITS)) {
        Ok(Ok(azure)) => azure,
        Ok(Err(error)) => return told(error),
        Err(why) => return told(Error::Setup(why.to_string())),
    };
    match azure.token(&account, &Audience::of(audience)).await {
        Ok(_) => Given::Token,
        Err(error) => told(error),
    }
}

/// What an error says, without what the network says of addresses.
fn told(error: Error) -> Given {
    const SETUP: &str = "see that the agent's certificates of authorities can be read";
    const KEY: &str = "see that himdsd.service runs, and that root can read the files in /var/opt/azcmagent/tokens";
    match error {
        Error::Refused { whom, code, remedy } => Given::Refused {
            said: format!("{whom} says {code}"),
            remedy,
        },
        Error::Busy { whom, code, remedy } => Given::Busy {
            said: format!("{whom} says {code}"),
            remedy,
        },
        Error::Stranger { whom, .. } => Given::Stranger { whom: whom.to_string() },
        Error::Away { whom, why, remedy } => Given::Away {
            whom: whom.to_string(),
            why: match why.strip_prefix("not within") {
                Some(limit) => format!("no answer within{limit}"),
                None => words(&why).to_owned(),
            },
            remedy,
        },
        Error::Credential(BadCertificate::Unread) => Given::Unread,
        Error::Credential(why) => Given::Unproved(why.to_string()),
        Error::Key(_) => Given::Busy {
            said: "the answer to Azure Arc's challenge can't be read".to_owned(),
            remedy: KEY,
        },
        Error::Data(_) | Error::Setup(_) => Given::Busy {
            said: "no connection to Azure can be made".to_owned(),
            remedy: SETUP,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::azure::Whom;
    use crate::preflight::Verdict;

    #[test]
    fn kinds_of_failure_are_told_apart_and_nothing_of_the_network_is_repeated() {
        let refused = || Error::Refused {
            whom: Whom::Entra,
            code: "HTTP status 401, invalid_client, AADSTS7000215".into(),
            remedy: "put the right secret there",
        };
        let away = |why: &str| Error::Away {
            whom: Whom::Metadata,
            why: why.into(),
            remedy: "look at the network",
        };
        for (error, said) in [
            (
                refused(),
                "refused a token: Entra ID says HTTP status 401, invalid_client, AADSTS7000215",
            ),
            (
                Error::Stranger {
                    whom: Whom::Arc,
                    what: "canary".into(),
                },
                "what answers for Azure Arc's agent",
            ),
            (
                away("tcp connect error: canary 10.1.2.3: Connection refused"),
                "does not answer: the connection is refused",
            ),
            (away("not within 4 s"), "does not answer: no answer within 4 s"),
            (
                Error::Credential(BadCertificate::Pkcs12),
                "its credential can't be used: it is PKCS#12",
            ),
        ] {
            let given = told(error);
            let join = judge::identity(Use::Join, &given);
            assert!(
                join.message.contains(said) && !join.message.contains("canary"),
                "{}",
                join.message
            );
            assert!(matches!(join.verdict, Verdict::Error(_)), "{join:?}");
            let manage = judge::identity(Use::Manage, &given);
            assert!(matches!(manage.verdict, Verdict::Warning(_)), "{manage:?}");
        }
        let busy = told(Error::Busy {
            whom: Whom::Metadata,
            code: "HTTP status 429".into(),
            remedy: "wait a little",
        });
        assert!(matches!(judge::identity(Use::Join, &busy).verdict, Verdict::Warning(_)));
    }
}
