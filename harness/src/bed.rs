//! A bed: a run with its network, its cloud and its hosts, made and taken down as one.

use anyhow::{Result, bail};

use crate::cache::Cache;
use crate::cloud::Cloud;
use crate::host::Host;
use crate::net::Net;
use crate::process;
use crate::progress::{self, step};
use crate::run::{Life, Run};

/// A bed.
#[derive(Clone, Debug)]
pub(crate) struct Bed {
    pub(crate) run: Run,
    pub(crate) net: Net,
}

impl Bed {
    /// Makes a run and its network. What an earlier run left behind when its process died is taken down first.
    ///
    /// # Errors
    /// There is a bed of that name, or the network can't be made: nothing of it is left then.
    pub(crate) async fn make(cache: &Cache, id: &str, life: Life) -> Result<Self> {
        sweep(cache).await?;
        let run = Run::create(cache, id, life).await?;
        let net = Net::of(&run);
        let bed = Self { run, net };
        if let Err(error) = bed.net.up().await {
            bed.down().await?;
            return Err(error);
        }
        Ok(bed)
    }

    /// The bed of that name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn open(cache: &Cache, id: &str) -> Result<Self> {
        let run = Run::open(cache, id)?;
        let net = Net::of(&run);
        Ok(Self { run, net })
    }

    /// Its cloud, which is up.
    ///
    /// # Errors
    /// It never was.
    pub(crate) fn cloud(&self) -> Result<Cloud> {
        Cloud::of(&self.run, &self.net)
    }

    /// Takes it down: hosts, servers and the network's holder among them, folder. Goes on after a fault, so that as little as possible is left.
    ///
    /// # Errors
    /// Everything that could not be removed; the folder stays then, and with it what another try needs.
    pub(crate) async fn down(&self) -> Result<()> {
        let mut faults = Vec::new();
        for host in Host::list(&self.run) {
            if let Err(error) = host.down().await {
                faults.push(format!("host {}: {error:#}", host.name()));
            }
        }
        if let Err(error) = process::end_all(&self.run).await {
            faults.push(format!("servers: {error:#}"));
        }
        if !faults.is_empty() {
            bail!("run {} is not wholly gone: {}", self.run.id, faults.join("; "));
        }
        self.run.remove()
    }
}

/// Takes down every run whose maker has died.
///
/// # Errors
/// One of them can't be taken down.
pub(crate) async fn sweep(cache: &Cache) -> Result<()> {
    for run in Run::list(cache).into_iter().filter(Run::abandoned) {
        let bed = Bed {
            net: Net::of(&run),
            run,
        };
        step(
            &format!("take down run {}, whose process is gone", bed.run.id),
            bed.down(),
        )
        .await?;
    }
    Ok(())
}

/// Takes down the beds asked for; none of that name is fine.
///
/// # Errors
/// One can't be taken down.
pub(crate) async fn down(cache: &Cache, id: &str, all: bool) -> Result<()> {
    sweep(cache).await?;
    let asked = |run: &Run| all || run.id == id;
    let runs: Vec<Run> = Run::list(cache).into_iter().filter(asked).collect();
    if runs.is_empty() {
        progress::note(&if all {
            "there is no run".to_owned()
        } else {
            format!("there is no run {id}")
        });
    }
    for run in runs {
        let bed = Bed {
            net: Net::of(&run),
            run,
        };
        step(&format!("take down {}", bed.run.id), bed.down()).await?;
    }
    Ok(())
}

/// Takes down one host of a bed.
///
/// # Errors
/// There is none of that name, or it can't be taken down.
pub(crate) async fn down_host(cache: &Cache, id: &str, name: &str) -> Result<()> {
    let host = Host::open(&Run::open(cache, id)?, name)?;
    step(&format!("take down host {name} of {id}"), host.down()).await
}
