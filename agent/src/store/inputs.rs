//! The bootstrap's inputs after the join: their secrets are needed no more.

use std::io;

use hostexec::{Host, HostPath};
use tracing::{info, warn};

use super::state;
use crate::bootstrap::{INPUTS, Inputs};
use crate::config;

/// Removes the inputs, and the base file where it lies among what is ours: both hold what only a join needs.
/// The inputs go first, so that they never name a file that is gone.
///
/// # Errors
/// When one could not be removed; the text names it.
pub fn consume(host: &Host, base: Option<&HostPath>) -> io::Result<()> {
    host.remove(&INPUTS)?;
    let ours = |base: &&HostPath| INPUTS.parent().is_some_and(|dir| base.is_within(&dir)) && **base != config::PATH;
    if let Some(base) = base.filter(ours) {
        host.remove(base)?;
    }
    info!("the host has joined, and the bootstrap's inputs are removed");
    Ok(())
}

/// Removes inputs that a bootstrap cut short left behind: the host has joined since they were written. Inputs younger than
/// the node's state are somebody's next join, and stay. What can't be done now is tried at the next start.
pub fn consume_left(host: &Host) {
    if let Err(error) = try_consume_left(host) {
        warn!(%error, "the bootstrap's inputs, which are needed no more, could not be removed");
    }
}

fn try_consume_left(host: &Host) -> io::Result<()> {
    let Some(joined) = state::saved_at(host)? else {
        return Ok(());
    };
    match host.metadata(&INPUTS) {
        Ok(found) if found.modified()? <= joined => {}
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    let inputs = Inputs::parse(&host.read(&INPUTS)?).ok();
    let base = inputs.as_ref().and_then(Inputs::base);
    consume(host, base.and_then(|path| HostPath::new(path).ok()).as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::State;

    #[test]
    fn a_join_consumes_its_inputs_and_no_file_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        let ours = HostPath::fixed("/etc/aks-flex-node/base-config.json");
        let others = HostPath::fixed("/etc/base.json");
        for base in [&ours, &others, &config::PATH] {
            host.write(&INPUTS, b"", 0o600).unwrap();
            host.write(base, b"{}", 0o600).unwrap();
            consume(&host, Some(base)).unwrap();
            assert!(!host.exists(&INPUTS).unwrap());
            assert_eq!(host.exists(base).unwrap(), *base != ours, "{base}");
        }
        consume(&host, Some(&ours)).unwrap();
    }

    #[test]
    fn inputs_older_than_the_node_go_and_younger_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        let base = HostPath::fixed("/etc/aks-flex-node/base-config.json");
        let inputs = format!("AKS_FLEX_NODE_BASE_CONFIG_FILE={base}\n");
        let written = |after: bool| {
            let file = std::fs::File::options()
                .write(true)
                .open(dir.path().join("etc/aks-flex-node/bootstrap.env"))
                .unwrap();
            let state = state::saved_at(&host).unwrap().unwrap();
            let second = std::time::Duration::from_secs(1);
            file.set_modified(if after { state + second } else { state - second })
                .unwrap();
        };
        host.write(&INPUTS, inputs.as_bytes(), 0o600).unwrap();
        host.write(&base, b"{}", 0o600).unwrap();
        consume_left(&host);
        assert!(host.exists(&INPUTS).unwrap(), "the host has not joined");
        state::save(&host, &State::first("1.34.0")).unwrap();
        written(true);
        consume_left(&host);
        assert!(host.exists(&INPUTS).unwrap() && host.exists(&base).unwrap());
        written(false);
        consume_left(&host);
        assert!(!host.exists(&INPUTS).unwrap() && !host.exists(&base).unwrap());
        consume_left(&host);
    }
}
