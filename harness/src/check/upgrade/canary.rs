//! A word that must not get out, and where it is looked for: journal, files, arguments and environments of processes.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::host::Host;

/// Where the word lies for those who look for it: it must not be in their own arguments.
const WORD: &str = "/run/canary";
/// There once the watch shall end.
const STOP: &str = "/run/canary-stop";
/// The longest that a watch lasts.
const WATCH: Duration = Duration::from_secs(180);

/// Everything that holds the word now, one a line.
const LOOK: &str = r#"
    journalctl --sync
    if journalctl --directory=/var/log/journal --no-pager --output=export | grep -qaF -f "$1"; then echo journal; fi
    grep -rlaF -f "$1" /etc /var/log || true
    for p in /proc/[0-9]*; do
        if cat $p/cmdline $p/environ 2> /dev/null | tr '\0' '\n' | grep -qaF -f "$1"; then echo $p; fi
    done"#;

/// Every argument and variable that holds the word, until the watch is over.
const LISTEN: &str = r#"
    until [ -e "$2" ]; do
        cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null | tr '\0' '\n' | grep -aF -f "$1" || true
        sleep 0.05
    done"#;

/// A word that a check has put where it must not come out.
pub(super) struct Canary<'a> {
    host: &'a Host,
    pub(super) word: String,
}

impl<'a> Canary<'a> {
    /// A word of its own for this host, once it is proved that it would be found in each of the places.
    ///
    /// # Errors
    /// A word that was let out on purpose is not found.
    pub(super) async fn of(host: &'a Host, seed: u64) -> Result<Self> {
        // Letters, digits and a hyphen: it may stand wherever a repository's name may.
        let bait = format!("bait-{}-{seed}", host.name());
        host.write_file(WORD, bait.clone(), 0o600).await?;
        let plant = format!(
            "echo {bait} > /etc/bait; logger {bait}; (exec -a {bait} sleep 60 > /dev/null 2>&1 & echo $! > /run/bait)"
        );
        host.sh(&plant).await?;
        let found = look(host).await;
        host.sh("kill $(cat /run/bait); rm /etc/bait /run/bait").await?;
        let found = found?;
        for place in ["journal\n", "/etc/bait\n", "/proc/"] {
            ensure!(
                found.contains(place),
                "the word was let out to {place:?} and found only in {found:?}"
            );
        }
        let word = format!("canary-{}-{seed}", host.name());
        host.write_file(WORD, word.clone(), 0o600).await?;
        Ok(Self { host, word })
    }

    /// Another form of the word, which must not come out either.
    ///
    /// # Errors
    /// The host does not take it.
    pub(super) async fn also(&self, form: &str) -> Result<()> {
        let forms = format!("{}\n{form}\n", self.word);
        self.host.write_file(WORD, forms, 0o600).await
    }

    /// Does something, while every process of the host is watched.
    ///
    /// # Errors
    /// What was done failed, or the word was seen.
    pub(super) async fn watch<T>(&self, done: impl Future<Output = Result<T>>) -> Result<T> {
        let listen = self
            .host
            .exec_within(WATCH, &["bash", "-euc", LISTEN, "bash", WORD, STOP]);
        let done = async {
            let done = done.await;
            self.host.write_file(STOP, "", 0o600).await?;
            done
        };
        let (heard, done) = tokio::join!(listen, done);
        let (heard, done) = (heard?, done?);
        ensure!(heard.ok() && heard.stdout.is_empty(), "a process was told: {heard:?}");
        let found = look(self.host).await?;
        ensure!(found.is_empty(), "the word got out to {found}");
        self.host.exec_ok(&["rm", WORD, STOP]).await?;
        Ok(done)
    }
}

async fn look(host: &Host) -> Result<String> {
    host.exec_ok(&["bash", "-euc", LOOK, "bash", WORD]).await
}
