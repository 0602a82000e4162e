//! Operations that wait, go, change or are found half done: each ends once, in its turn, and none holds up the next.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use image::ImageRef;
use serde_json::{Value, json};

use super::OVER;
use super::asked::{Asked, ask_for};
use super::state::{State, journal};
use crate::agent::UNIT;
use crate::agent_image::Variant;
use crate::check::Context;
use crate::cloud::cluster::{machine_operation, upgrade_to};
use crate::cloud::{control_plane, registry};
use crate::host::{Host, Refusal};
use crate::wait;

/// An operation that is taken away leaves the agent idle within this.
const AT_ONCE: Duration = Duration::from_secs(5);
/// How long an operation with a time of its own stays beyond it.
const SWEEP: Duration = Duration::from_secs(10);

/// Every case on one host, each going on from what the one before left.
pub(super) async fn fc_u13_fc_u16_fc_u26_fc_r17_fc_o6_queue(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    let queue = Queue {
        context,
        host: &host,
        first: State::of(&host).await?.image,
        second: context.variant(Variant::Second).await?,
        third: context.variant(Variant::Third).await?,
    };
    queue.one_at_a_time().await.context("two at once")?;
    queue
        .deleted()
        .await
        .context("one that is deleted while it is pulled")?;
    queue
        .replaced()
        .await
        .context("one that is replaced while it is pulled")?;
    queue.edited().await.context("one that is edited while it is pulled")?;
    queue.unpublished().await.context("an end that nobody was told of")?;
    queue.orphaned().await.context("one of a dead daemon")?;
    queue.others().await.context("others' operations")?;
    queue.kept_for_a_while().await.context("one with a time to live")
}

struct Queue<'a> {
    context: &'a Context,
    host: &'a Host,
    first: ImageRef,
    second: ImageRef,
    third: ImageRef,
}

impl Queue<'_> {
    /// Two that were asked for at the same moment: the second begins when the first is over, and what it asks for runs.
    async fn one_at_a_time(&self) -> Result<()> {
        let (one, other) = (self.name("first"), self.name("second"));
        self.create(&[self.upgrade(&one, &self.second), self.upgrade(&other, &self.third)])
            .await?;
        let mut both = 0;
        wait::until_true("both are over", OVER * 2, async || {
            // In this order: what was begun then must be over now.
            let other = self.phase(&other).await?;
            let one = self.phase(&one).await?;
            both += u32::from(one != "Complete" && !["", "Pending"].contains(&other.as_str()));
            Ok(is_over(&one) && is_over(&other))
        })
        .await?;
        ensure!(both == 0, "the second was taken before the first was over");
        for name in [&one, &other] {
            let phase = self.phase(name).await?;
            ensure!(phase == "Complete", "{name} is {phase}");
        }
        let end = self.time(&one, "completedAt").await?;
        let begin = self.time(&other, "startedAt").await?;
        // Both as RFC 3339 in UTC, to the second.
        ensure!(end <= begin, "the first was over at {end}, the second begun at {begin}");
        State::of(self.host).await?.runs(&self.third)
    }

    /// Its pull is given up at once, nothing of it is left, and the next one is carried out: all without the registry.
    async fn deleted(&self) -> Result<()> {
        let before = State::of(self.host).await?;
        self.host.block(&self.registry(), Refusal::Silence).await?;
        let exits = self.context.variant(Variant::Exits).await?;
        let name = self.name("deleted");
        self.create(&[self.upgrade(&name, &exits)]).await?;
        self.is_pulled(&name).await?;
        let next = ask_for(self.context, self.host, &self.second).await?;
        self.kubectl(&["delete", "machineoperation", &name], "").await?;
        self.idle_or_at(&next.name).await?;
        next.over(self.context, OVER).await?.complete()?;
        self.host.unblock(&self.registry()).await?;
        let after = State::of(self.host).await?;
        after.runs(&self.second)?;
        ensure!(!after.has(&exits), "the image of the deleted one is here");
        ensure!(
            after.images == before.images,
            "{:?} became {:?}",
            before.images,
            after.images
        );
        self.nothing_pulled().await
    }

    /// Another under the same name is another operation.
    async fn replaced(&self) -> Result<()> {
        self.host.block(&self.registry(), Refusal::Silence).await?;
        let exits = self.context.variant(Variant::Exits).await?;
        let name = self.name("replaced");
        self.create(&[self.upgrade(&name, &exits)]).await?;
        self.is_pulled(&name).await?;
        let old = self.object(&name).await?["metadata"]["uid"].clone();
        let other = self.upgrade(&name, &self.third).to_string();
        self.kubectl(&["replace", "--force", "-f", "-"], &other).await?;
        wait::until_true("the new one is over", OVER, async || {
            Ok(is_over(&self.phase(&name).await?))
        })
        .await?;
        self.host.unblock(&self.registry()).await?;
        let object = self.object(&name).await?;
        ensure!(object["metadata"]["uid"] != old, "it was not replaced");
        ensure!(object["status"]["phase"] == "Complete", "it ended so: {object}");
        State::of(self.host).await?.runs(&self.third)?;
        self.nothing_pulled().await
    }

    /// What was taken counts.
    async fn edited(&self) -> Result<()> {
        // Away from the second, so that it has to be pulled again.
        let seen = ask_for(self.context, self.host, &self.first).await?;
        seen.over(self.context, OVER).await?.complete()?;
        wait::until_true("the second image is gone", OVER, async || {
            Ok(!State::of(self.host).await?.has(&self.second))
        })
        .await?;
        self.host.block(&self.registry(), Refusal::Silence).await?;
        let name = self.name("edited");
        self.create(&[self.upgrade(&name, &self.second)]).await?;
        self.is_pulled(&name).await?;
        let other = json!({ "spec": self.upgrade(&name, &self.third)["spec"] }).to_string();
        self.kubectl(
            &["patch", "machineoperation", &name, "--type=merge", "--patch", &other],
            "",
        )
        .await?;
        self.host.unblock(&self.registry()).await?;
        wait::until_true("it is over", OVER, async || Ok(is_over(&self.phase(&name).await?))).await?;
        let phase = self.phase(&name).await?;
        ensure!(phase == "Complete", "it is {phase}");
        State::of(self.host).await?.runs(&self.second)
    }

    /// The daemon is killed after its journal says how the operation ended and before the API server was told.
    async fn unpublished(&self) -> Result<()> {
        let before = State::of(self.host).await?;
        let exits = self.context.variant(Variant::Exits).await?;
        self.host.block(&self.registry(), Refusal::Silence).await?;
        let name = self.name("unpublished");
        self.create(&[self.upgrade(&name, &exits)]).await?;
        self.is_pulled(&name).await?;
        let api = format!("{}:{}", self.context.bed.net.gateway(), control_plane::PORT);
        self.host.block(&api, Refusal::Silence).await?;
        self.host.unblock(&self.registry()).await?;
        self.host.block(&self.registry(), Refusal::Reset).await?;
        self.journal_says("over").await?;
        for _ in 0..2 {
            let old = self.host.agent().daemon().await?;
            self.host.exec_ok(&["kill", "-KILL", &old.to_string()]).await?;
            self.host.agent().only_new(old, OVER).await?;
            self.journal_says("over").await?;
        }
        self.host.unblock(&self.registry()).await?;
        self.host.unblock(&api).await?;
        let asked = Asked::named(&name);
        let seen = asked.over(self.context, OVER).await?;
        seen.failed(&["ExecutionFailed"])?;
        let message = seen.over.message();
        ensure!(message.contains("pull"), "it does not say why: {message:?}");
        State::of(self.host).await?.runs(&before.image)?;
        self.idle_or_at("").await
    }

    /// In progress, and no journal knows of it: nobody will end it but this agent.
    async fn orphaned(&self) -> Result<()> {
        self.host.exec_ok(&["systemctl", "stop", UNIT]).await?;
        let name = self.name("orphaned");
        self.create(&[self.upgrade(&name, &self.third)]).await?;
        self.put_status(&name, json!({ "phase": "InProgress", "message": "someone was at it" }))
            .await?;
        self.host.exec_ok(&["systemctl", "start", UNIT]).await?;
        let seen = Asked::named(&name).over(self.context, OVER).await?;
        seen.failed(&["DaemonFailed"])?;
        State::of(self.host).await?.runs(&self.second)
    }

    /// Kinds that others see to, and other machines' operations, are left alone.
    async fn others(&self) -> Result<()> {
        let (kind, machine) = (self.name("host-reboot"), self.name("elsewhere"));
        let mut reboot = self.upgrade(&kind, &self.third);
        reboot["spec"]["operationKind"] = "HostReboot".into();
        let mut elsewhere = self.upgrade(&machine, &self.third);
        elsewhere["spec"]["machineRef"] = "another-machine".into();
        self.create(&[reboot, elsewhere]).await?;
        // One that is younger is over: the agent has looked at all of them.
        let seen = ask_for(self.context, self.host, &self.second).await?;
        seen.over(self.context, OVER).await?.complete()?;
        for name in [kind, machine] {
            let object = self.object(&name).await?;
            ensure!(object["status"].is_null(), "{name} was touched: {object}");
            self.kubectl(&["delete", "machineoperation", &name], "").await?;
        }
        Ok(())
    }

    /// After its end an operation stays as long as it says, and one that says nothing stays.
    async fn kept_for_a_while(&self) -> Result<()> {
        const KEPT: u64 = 3;
        let (short, at_once, kept) = (self.name("kept"), self.name("gone"), self.name("stays"));
        let mut objects = Vec::new();
        for (name, seconds) in [(&short, Some(KEPT)), (&at_once, Some(0)), (&kept, None)] {
            let mut object = self.upgrade(name, &self.second);
            object["spec"]["ttlSecondsAfterFinished"] = json!(seconds);
            objects.push(object);
        }
        self.create(&objects).await?;
        Asked::named(&kept).over(self.context, OVER).await?.complete()?;
        let limit = Duration::from_secs(KEPT) + SWEEP;
        wait::until_true("those with a time are gone", limit, async || {
            let mut left = 0;
            for name in [&short, &at_once] {
                left += u32::from(self.context.cloud().cluster.get(KIND, name).await?.is_some());
            }
            Ok(left == 0)
        })
        .await?;
        self.object(&kept).await.map(drop)
    }

    fn registry(&self) -> String {
        format!("{}:{}", self.context.bed.net.gateway(), registry::PORT)
    }

    fn name(&self, what: &str) -> String {
        format!("queue-{}-{what}", self.host.name())
    }

    fn upgrade(&self, name: &str, to: &ImageRef) -> Value {
        machine_operation(name, self.host.name(), "AgentUpgrade", &upgrade_to(to))
    }

    async fn kubectl(&self, args: &[&str], stdin: &str) -> Result<String> {
        self.context.cloud().cluster.kubectl(args, stdin).await
    }

    async fn create(&self, objects: &[Value]) -> Result<()> {
        let list = json!({ "apiVersion": "v1", "kind": "List", "items": objects });
        self.kubectl(&["create", "-f", "-"], &list.to_string()).await.map(drop)
    }

    async fn object(&self, name: &str) -> Result<Value> {
        let object = self.context.cloud().cluster.get(KIND, name).await?;
        object.with_context(|| format!("no operation {name}"))
    }

    async fn phase(&self, name: &str) -> Result<String> {
        let object = self.object(name).await?;
        Ok(object["status"]["phase"].as_str().unwrap_or_default().to_owned())
    }

    async fn time(&self, name: &str, field: &str) -> Result<String> {
        let object = self.object(name).await?;
        let time = object["status"][field].as_str();
        Ok(time.with_context(|| format!("{name} has no {field}"))?.to_owned())
    }

    async fn put_status(&self, name: &str, status: Value) -> Result<()> {
        let mut object = self.object(name).await?;
        object["status"] = status;
        let path = format!("/apis/unbounded-cloud.io/v1alpha3/machineoperations/{name}/status");
        self.kubectl(&["replace", "--raw", &path, "-f", "-"], &object.to_string())
            .await
            .map(drop)
    }

    /// Waits until the operation is in progress and the agent waits for the registry.
    async fn is_pulled(&self, name: &str) -> Result<()> {
        wait::until_true("it is in progress", OVER, async || {
            Ok(self.phase(name).await? == "InProgress")
        })
        .await?;
        self.journal_says("staging").await
    }

    async fn journal_says(&self, phase: &str) -> Result<()> {
        wait::until_true(&format!("the journal says {phase:?}"), OVER, async || {
            Ok(journal(self.host)
                .await?
                .is_some_and(|journal| journal["phase"] == phase))
        })
        .await
    }

    /// Waits until the agent is at no operation, or at this one.
    async fn idle_or_at(&self, name: &str) -> Result<()> {
        wait::until_true("the agent has let go of it", AT_ONCE, async || {
            Ok(journal(self.host)
                .await?
                .is_none_or(|journal| journal["operationName"] == name))
        })
        .await
    }

    /// No lease and no half-done blob of a pull is left.
    async fn nothing_pulled(&self) -> Result<()> {
        wait::until_true("nothing of the pull is left", AT_ONCE, async || {
            let leases = self.host.agent().ctr(&["leases", "list", "--quiet"]).await?;
            let blobs = self.host.agent().ctr(&["content", "active"]).await?;
            Ok(!leases.contains("aks-flex-node-pull") && blobs.lines().count() <= 1)
        })
        .await
    }
}

const KIND: &str = "machineoperation";

fn is_over(phase: &str) -> bool {
    ["Complete", "Failed"].contains(&phase)
}
