//! What an upgrade costs: the time without an agent, the way back from a bad one, and all of it from a registry; each beside bare tools
//! on the same host in the same run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use image::ImageRef;

use super::{Figure, TIMES, median, monotonic};
use crate::agent::{RUN, UNIT};
use crate::agent_image::Variant;
use crate::cloud::Cloud;
use crate::cloud::cluster::{Operation, upgrade_to};
use crate::host::Host;
use crate::node::READY;
use crate::product::Product;
use crate::wait;

/// How often what takes several seconds is repeated; the median counts.
const FEW: usize = 3;
/// How long a daemon may take for its units.
const CONVERGED: Duration = Duration::from_secs(30);
/// What the recovery's command logs when it has decided.
const VERDICT: &str = "going back to the last good image";

/// A host whose agent is upgraded, and what it takes for it.
#[derive(Clone, Copy)]
struct Place<'a> {
    host: &'a Host,
    cloud: &'a Cloud,
    product: &'a Product,
}

/// Measures all of it.
///
/// # Errors
/// An upgrade does not end as it must.
pub(super) async fn measure(host: &Host, cloud: &Cloud, product: &Product) -> Result<Vec<Figure>> {
    let place = Place { host, cloud, product };
    let mut figures = vec![place.gap().await?];
    figures.extend(place.back().await?);
    figures.extend(place.registry().await?);
    Ok(figures)
}

/// The times of the unit's last restart, in seconds since the boot.
#[derive(Clone, Copy, Debug)]
struct Restart {
    /// It is told to stop.
    stopping: f64,
    /// The old daemon has gone: its last word.
    gone: f64,
    /// Nothing of the old one is left.
    stopped: f64,
    /// All that comes before `ctr run` is done.
    prepared: f64,
    /// The new one is ready.
    ready: f64,
}

impl Restart {
    async fn of(host: &Host) -> Result<Self> {
        let properties = "--property=ActiveExitTimestampMonotonic,InactiveEnterTimestampMonotonic,\
                          ExecMainStartTimestampMonotonic,ActiveEnterTimestampMonotonic";
        let said = host.exec_ok(&["systemctl", "show", properties, UNIT]).await?;
        let time = |name: &str| {
            let value = said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            let micros: f64 = value.with_context(|| format!("no {name}"))?.parse()?;
            Ok::<_, anyhow::Error>(micros / 1e6)
        };
        let log = host
            .journal(&["--boot", "SYSLOG_IDENTIFIER=aks-flex-node", "--output=short-monotonic"])
            .await?;
        let last = log.lines().rfind(|line| line.contains("msg=stopping"));
        Ok(Self {
            stopping: time("ActiveExitTimestampMonotonic")?,
            gone: last.and_then(monotonic).context("no daemon was told to stop")?,
            stopped: time("InactiveEnterTimestampMonotonic")?,
            prepared: time("ExecMainStartTimestampMonotonic")?,
            ready: time("ActiveEnterTimestampMonotonic")?,
        })
    }
}

impl Place<'_> {
    /// Good upgrades to and fro between images that are on the host; after each a container that does nothing, so that both meet the same load.
    async fn gap(self) -> Result<Figure> {
        let second = self.product.variant(self.cloud, Variant::Second).await?;
        // From here on both are on the host.
        self.complete(&second).await?;
        let (mut restarts, mut runs) = (Vec::new(), Vec::new());
        for image in [&self.product.image, &second].into_iter().cycle().take(TIMES) {
            self.complete(image).await?;
            restarts.push(Restart::of(self.host).await?);
            runs.push(self.empty_run(image).await?);
        }
        let part = |of: fn(&Restart) -> f64| median(restarts.iter().map(of).collect());
        let gap = part(|restart| restart.ready - restart.gone);
        let run = median(runs);
        Ok(Figure {
            what: "good upgrade, image on the host: old daemon gone → new one ready",
            value: format!("{gap:.3} s"),
            bound: "2 s; 2 × `ctr run`",
            beside: format!(
                "`ctr run … version` with the unit's flags {run:.3} s: {:.2} ×. Of it the end of the old container {:.2} s, \
                 the unit's preparations {:.2} s, the new container and the daemon's start {:.2} s; the old daemon goes {:.3} s after it is told to",
                gap / run,
                part(|restart| restart.stopped - restart.gone),
                part(|restart| restart.prepared - restart.stopped),
                part(|restart| restart.ready - restart.prepared),
                part(|restart| restart.gone - restart.stopping),
            ),
        })
    }

    /// A candidate that exits at once, and the last good one after it.
    async fn back(self) -> Result<Vec<Figure>> {
        let exits = self.product.variant(self.cloud, Variant::Exits).await?;
        let (mut from_stop, mut from_verdict) = (Vec::new(), Vec::new());
        for _ in 0..FEW {
            let before = self.stops().await?.len();
            let over = self.upgrade(&exits, &[("force", "true")]).await?;
            ensure!(over.phase() == "Failed", "the broken upgrade: {}", over.text());
            self.host.wait_active(&[UNIT], READY).await?;
            let ready = Restart::of(self.host).await?.ready;
            let stops = self.stops().await?;
            let stop = stops.get(before).context("the agent was not stopped")?;
            let verdict = self.verdict().await?;
            ensure!(*stop < verdict && verdict < ready, "{stop} < {verdict} < {ready}");
            from_stop.push(ready - stop);
            from_verdict.push(ready - verdict);
        }
        Ok(vec![
            Figure {
                what: "candidate that exits at once: old daemon told to stop → last good one ready",
                value: format!("{:.2} s", median(from_stop)),
                bound: "15 s",
                beside: String::new(),
            },
            Figure {
                what: "the same: recovery's verdict → last good one ready",
                value: format!("{:.2} s", median(from_verdict)),
                bound: "10 s",
                beside: String::new(),
            },
        ])
    }

    /// Upgrades to images of which nothing is on the host, each beside the bare tools that do the same pull and the same first run.
    async fn registry(self) -> Result<[Figure; 2]> {
        let mut all = Vec::new();
        for number in 0..FEW {
            let image = self.product.fresh(self.cloud, u64::try_from(number)?).await?;
            let tools = self.tools(&image).await?;
            let asked = self.ask(&image, &[]).await?;
            let created = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
            let over = self.cloud.cluster.operation_over(&asked, READY).await?;
            ensure!(over.phase() == "Complete", "the upgrade: {}", over.text());
            self.settled().await?;
            all.push((Course::of(self.host, &asked, created).await?, tools));
        }
        all.sort_by(|one, other| one.0.all().total_cmp(&other.0.all()));
        let (course, _) = &all[FEW / 2];
        let tools = median(all.iter().map(|(_, tools)| *tools).collect());
        // The tools pull and run once, and so does the upgrade up to its selection; what comes after it is another thing.
        Ok([
            Figure {
                what: "AgentUpgrade from a registry, what the tools do: created → pulled, checked and selected",
                value: format!("{:.2} s", course.selected()),
                bound: "1.5 × the bare tools",
                beside: format!(
                    "`ctr images pull` + `ctr run … version` of the same image {tools:.2} s: {:.2} ×",
                    course.selected() / tools
                ),
            },
            Figure {
                what: "AgentUpgrade from a registry, whole: created → the new agent is judged, complete",
                value: format!("{:.2} s", course.all()),
                bound: "",
                beside: format!("{:.1} × the same tools. Of it {}", course.all() / tools, course.parts()),
            },
        ])
    }

    /// `ctr images pull` and `ctr run` of an image that is not on the host, and is not after it either.
    async fn tools(self, image: &ImageRef) -> Result<f64> {
        let ctr = "ctr --namespace aks-flex-node";
        let pull = format!("{ctr} images pull --local --snapshotter overlayfs {image}");
        let run = format!("{ctr} {} {image} bench /usr/bin/aks-flex-node version", RUN.join(" "));
        let took = self
            .time(&format!("{pull} > /dev/null; {run} > /dev/null < /dev/null"))
            .await?;
        self.host
            .agent()
            .ctr(&["images", "rm", "--sync", &image.to_string()])
            .await?;
        let content = self.host.agent().ctr(&["content", "list", "--quiet"]).await?;
        ensure!(!content.contains(image.digest.as_str()), "{image} is still there");
        Ok(took)
    }

    /// A container with the flags of the unit's, that does nothing.
    async fn empty_run(self, image: &ImageRef) -> Result<f64> {
        let line = format!(
            "ctr --namespace aks-flex-node {} {image} bench /usr/bin/aks-flex-node version > /dev/null < /dev/null",
            RUN.join(" ")
        );
        self.time(&line).await
    }

    /// How long a script takes, in the host: entering it is no part of it.
    async fn time(self, script: &str) -> Result<f64> {
        let script = format!("s=$EPOCHREALTIME; {script}; echo $s $EPOCHREALTIME");
        let said = self.host.sh(&script).await?;
        let (start, end) = said.trim().split_once(' ').context("two times")?;
        Ok(end.parse::<f64>()? - start.parse::<f64>()?)
    }

    /// An upgrade that ends well; what it left to do is done.
    async fn complete(self, image: &ImageRef) -> Result<()> {
        let over = self.upgrade(image, &[]).await?;
        ensure!(over.phase() == "Complete", "the upgrade: {}", over.text());
        self.settled().await
    }

    async fn upgrade(self, image: &ImageRef, more: &[(&'static str, &str)]) -> Result<Operation> {
        let name = self.ask(image, more).await?;
        self.cloud.cluster.operation_over(&name, READY).await
    }

    /// Asks for an upgrade; hands back the operation's name.
    async fn ask(self, image: &ImageRef, more: &[(&'static str, &str)]) -> Result<String> {
        let name = format!("bench-{}", SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos());
        let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
        let parameters: Vec<_> = upgrade_to(image).into_iter().chain(more).collect();
        let cluster = &self.cloud.cluster;
        cluster
            .machine_operation(&name, self.host.name(), "AgentUpgrade", &parameters)
            .await?;
        Ok(name)
    }

    /// Waits until the daemon has done what it does besides.
    async fn settled(self) -> Result<()> {
        let agent = self.host.agent();
        let pid = wait::until("one agent", CONVERGED, async || agent.only().await).await?;
        agent.converged(pid, CONVERGED).await
    }

    /// When the unit was told to stop, or its main process ended, of all boots.
    async fn stops(self) -> Result<Vec<f64>> {
        let said = self
            .host
            .journal(&[&format!("UNIT={UNIT}"), "--output=short-monotonic"])
            .await?;
        let stops = said
            .lines()
            .filter(|line| line.contains("Stopping ") || line.contains("Main process exited"));
        Ok(stops.filter_map(monotonic).collect())
    }

    /// When recovery last decided to go back.
    async fn verdict(self) -> Result<f64> {
        let said = self
            .host
            .journal(&["SYSLOG_IDENTIFIER=aks-flex-node", "--output=short-monotonic"])
            .await?;
        let last = said.lines().rfind(|line| line.contains(VERDICT));
        last.and_then(monotonic).context("recovery has decided nothing")
    }
}

/// An upgrade as the daemons' log tells it: what was reached, and when, in seconds since 1970.
struct Course(Vec<(&'static str, f64)>);

/// What is logged at the end of each part, and the part's name.
const PARTS: [(&str, &str); 6] = [
    ("operation taken", "the watch"),
    ("the agent image is here", "the pull"),
    ("what the agent of the image finds", "the check of the candidate"),
    ("the agent restarts", "the selection"),
    ("\"this agent\"", "the restart with the second before it"),
    ("operation ended", "units, verdict and status"),
];

impl Course {
    async fn of(host: &Host, operation: &str, created: f64) -> Result<Self> {
        let said = host
            .journal(&["SYSLOG_IDENTIFIER=aks-flex-node", "--output=short-unix"])
            .await?;
        Self::parse(&said, operation, created)
    }

    fn parse(log: &str, operation: &str, created: f64) -> Result<Self> {
        let named = format!("operation={operation}");
        let mut lines = log.lines();
        let mut at = lines
            .by_ref()
            .find(|line| line.contains(PARTS[0].0) && line.split(' ').any(|word| word == named));
        let mut course = Vec::new();
        for (index, (_, name)) in PARTS.iter().enumerate() {
            let line = at.with_context(|| format!("the log does not tell the end of {name}"))?;
            let time = line.split(' ').next().unwrap_or_default();
            let time: f64 = time.parse().with_context(|| line.to_owned())?;
            course.push((*name, time));
            at = PARTS
                .get(index + 1)
                .and_then(|(end, _)| lines.by_ref().find(|line| line.contains(end)));
        }
        // kubectl may say that it is there only after the daemon has it.
        let created = created.min(course[0].1);
        course.insert(0, ("", created));
        Ok(Self(course))
    }

    fn all(&self) -> f64 {
        self.0[self.0.len() - 1].1 - self.0[0].1
    }

    /// Until the image is selected.
    fn selected(&self) -> f64 {
        self.0[4].1 - self.0[0].1
    }

    fn parts(&self) -> String {
        let parts = self.0.windows(2);
        let parts = parts.map(|pair| format!("{} {:.2} s", pair[1].0, pair[1].1 - pair[0].1));
        parts.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_upgrade_are_read_in_their_order() {
        let log = "10.000000 h x[1]: level=INFO msg=\"operation taken\" operation=other image=a\n\
                   11.000000 h x[1]: level=INFO msg=\"operation taken\" operation=o image=b\n\
                   12.500000 h x[1]: level=INFO msg=\"the agent image is here\" image=b\n\
                   13.000000 h x[1]: level=INFO msg=\"what the agent of the image finds on this host\" report=c\n\
                   13.250000 h x[1]: level=INFO msg=\"the agent restarts in a second\"\n\
                   15.000000 h x[2]: level=INFO msg=\"this agent\" image=b\n\
                   15.500000 h x[2]: level=INFO msg=\"operation ended\" operation=o\n";
        let course = Course::parse(log, "o", 10.5).unwrap();
        assert!((course.all() - 5.0).abs() < 1e-9);
        assert!((course.selected() - 2.75).abs() < 1e-9);
        assert!(
            course.parts().starts_with("the watch 0.50 s, the pull 1.50 s, "),
            "{}",
            course.parts()
        );
        assert!(Course::parse(log, "none", 0.0).is_err());
    }
}
