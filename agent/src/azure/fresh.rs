//! Fresh bootstrap data for a node that is to be made anew: the token of the first join may be long gone. Source: node-agent specification, 7.7.

use hostexec::Host;

use super::{Account, Azure, Error, Limits, Pool};
use crate::config::Settings;
use crate::fetch;

/// The settings with a token and a CA of now, where an Azure identity stands beside a bootstrap token; else as they are. They are for one use:
/// nothing of it is saved, and nothing logged.
///
/// # Errors
/// The resource manager gives none, or one that can't work.
pub async fn refreshed(host: &Host, settings: &Settings, limits: Limits) -> Result<Settings, Error> {
    let (Some(_), Some(account)) = (settings.auth().token(), Account::of_manager(settings, host)?) else {
        return Ok(settings.clone());
    };
    let azure = Azure::new(fetch::roots(host), limits)?;
    let data = azure
        .bootstrap_data(&account, settings.resource_manager(), &Pool::of(settings))
        .await?;
    settings
        .refreshed(data.reveal().reveal())
        .map_err(|mistake| Error::Data(mistake.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::config;

    #[tokio::test]
    async fn without_a_token_or_an_identity_beside_it_nobody_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        let managed = ("azure.managedIdentity", serde_json::json!({}));
        for changes in [vec![], vec![("azure.bootstrapToken", Value::Null), managed]] {
            let settings = config::tests::settings(&config::tests::with(&changes));
            let same = refreshed(&host, &settings, Limits::default()).await.unwrap();
            assert!(same == settings);
        }
    }
}
