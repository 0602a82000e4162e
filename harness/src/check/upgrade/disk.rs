//! `upgrade.disk`: a host that has no room, or takes no word, before an upgrade or in the middle of one. The agent stays, the operation says
//! what it was, and as soon as there is room again an upgrade works.

use std::cell::Cell;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use image::ImageRef;

use super::OVER;
use super::asked::{Asked, Seen, ask_for};
use super::state::{Readiness, State};
use super::store::Store;
use crate::agent_image::BALLAST;
use crate::check::Context;
use crate::cloud::faulty::{At, Fault, How, Kind};
use crate::host::{Disk, Host};

/// The host's disk, in MiB. Below 15 % of it kubelet evicts pods.
const DISK: u32 = 3072;
const PRESSURE: u32 = DISK * 15 / 100;
/// Less than the image needs, in MiB, and more than small files do.
const LITTLE: u32 = 24;
/// What such a small file needs, in MiB.
const A_FILE: u32 = 1;
/// How long a host may take to make files by the hundred thousand.
const MANY: Duration = Duration::from_secs(180);

/// Leaves $1 MiB, to root, for whom ext4 keeps nothing back but the 16 MiB of its own.
const FILL: &str = r#"
    sync; read -r free size < <(stat -f -c '%f %S' /var)
    room=$(( free * size / 1048576 - 16 - $1 )); [ $room -gt 0 ]
    fallocate -l ${room}M /var/filler
    # What fallocate can't have, and less than a MiB.
    if [ $1 -eq 0 ]; then cat /dev/zero > /var/filler2 2> /dev/null || true; sync; cat /dev/zero > /var/filler3 2> /dev/null || true; fi"#;
const EMPTY: &str = "rm -rf /var/filler*; sync";
/// Leaves $1 inodes.
const USE_INODES: &str = r#"
    mkdir /var/filler; sync; cd /var/filler
    for try in 1 2 3; do
        free=$(stat -f -c %d /var); seq -f "$try-%.0f" 1 $(( free > $1 ? free - $1 : 0 )) | xargs --no-run-if-empty touch 2> /dev/null || true
    done"#;
/// The host's /run has not a page more, until it has its size again.
const FILL_RUN: &str = r#"
    findmnt --noheadings --output OPTIONS /run | tr , '\n' | grep '^size=' > /var/run-size || echo size=20% > /var/run-size
    mount -o remount,size=$(( $(stat -f -c '(%b-%f)*%S' /run) )) /run; ! head -c 8192 /dev/zero > /run/filler 2> /dev/null; rm -f /run/filler"#;
const EMPTY_RUN: &str = r#"mount -o remount,"$(cat /var/run-size)" /run; rm /var/run-size"#;
/// `/etc` can't be written, through whichever mount. By mount(2): its successor takes no word on an overlay.
const LOCK_ETC: &str = "LIBMOUNT_FORCE_MOUNT2=always mount -o remount,ro /etc; ! touch /etc/written 2> /dev/null";
const UNLOCK_ETC: &str = "LIBMOUNT_FORCE_MOUNT2=always mount -o remount,rw /etc; touch /etc/written; rm /etc/written";

pub(super) async fn fc_u23_fc_u24_fc_r12_disk(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    joining.options.disk = Disk::Image(DISK);
    let host = context.boot(&joining).await?;
    context.is_joined(&host).await?;
    let full = Full {
        context,
        host,
        made: Cell::new(0),
    };
    let unrecorded = &["can't be recorded"];
    full.before_the_pull("a full disk", FILL, LITTLE, &["no room", "bytes", "free"])
        .await?;
    full.before_the_pull("pressure", FILL, PRESSURE + LITTLE, &["no room", "bytes", "evict"])
        .await?;
    full.during_the_pull().await.context("full during the pull")?;
    // A byte that something else lets go of may be the one that the record needs.
    full.before_it_begins("not a byte", FILL, 0, EMPTY, &["can't be recorded|no room"])
        .await?;
    full.before_the_pull("few inodes", USE_INODES, 60, &["no room", "inodes", "free"])
        .await?;
    full.before_it_begins("no inode", USE_INODES, 0, EMPTY, unrecorded)
        .await?;
    full.before_it_begins("/run", FILL_RUN, 0, EMPTY_RUN, &["no space left"])
        .await?;
    full.before_it_begins("/etc", LOCK_ETC, 0, UNLOCK_ETC, unrecorded).await
}

/// A host of which something is used up.
struct Full<'a> {
    context: &'a Context,
    host: Host,
    /// How many images were made.
    made: Cell<u64>,
}

/// What there was before.
struct Before {
    state: State,
    store: Store,
    ready: Readiness,
}

impl Full<'_> {
    /// An image that the host does not have yet, named as the faulty registry has it.
    async fn another(&self) -> Result<ImageRef> {
        self.made.set(self.made.get() + 1);
        let image = self
            .context
            .product()
            .heavy(self.context.cloud(), self.made.get())
            .await?;
        self.context.cloud().faulty.image(&image)
    }

    async fn look(&self) -> Result<Before> {
        Ok(Before {
            state: State::of(&self.host).await?,
            store: Store::of(&self.host).await?,
            ready: Readiness::of(&self.context.cloud().cluster, self.host.name()).await?,
        })
    }

    async fn run(&self, script: &str, argument: u32) -> Result<()> {
        let argument = argument.to_string();
        let line = ["bash", "-euo", "pipefail", "-c", script, "bash", &argument];
        let ran = self.host.exec_within(MANY, &line).await?;
        ensure!(ran.ok(), "{script}: {ran:?}");
        Ok(())
    }

    /// With so little left, an upgrade fails and says so; with room again it works.
    async fn before_it_begins(&self, name: &str, fill: &str, left: u32, empty: &str, says: &[&str]) -> Result<()> {
        let tried = async {
            let image = self.another().await?;
            let before = self.look().await?;
            self.run(fill, left).await?;
            let asked = ask_for(self.context, &self.host, &image).await?;
            let seen = asked.over(self.context, OVER).await;
            self.run(empty, 0).await?;
            self.came_to_nothing(&before, &seen?, says).await?;
            self.works(&image).await
        };
        tried.await.context(name.to_owned())
    }

    /// As `before_it_begins`, and no layer was asked for.
    async fn before_the_pull(&self, name: &str, fill: &str, left: u32, says: &[&str]) -> Result<()> {
        let faulty = &self.context.cloud().faulty;
        let tried = async {
            let image = self.another().await?;
            let before = self.look().await?;
            self.run(fill, left).await?;
            let mark = faulty.mark();
            let asked = ask_for(self.context, &self.host, &image).await?;
            let seen = asked.over(self.context, OVER).await;
            self.run(EMPTY, 0).await?;
            let layers = faulty.requests(&self.host, mark)?;
            let layers = layers
                .iter()
                .filter(|request| request.kind == Some(Kind::Layer))
                .count();
            ensure!(layers == 0, "it asked for a layer that has no room");
            let seen = seen?;
            self.came_to_nothing(&before, &seen, says).await?;
            let numbers = seen.over.message().split_whitespace();
            let numbers = numbers.filter(|word| word.parse::<u64>().is_ok()).count();
            ensure!(
                numbers >= 2,
                "it does not say how much is needed and free: {}",
                seen.over.message()
            );
            self.works(&image).await
        };
        tried.await.context(name.to_owned())
    }

    /// Half of the layer is here when the disk is full.
    async fn during_the_pull(&self) -> Result<()> {
        let faulty = &self.context.cloud().faulty;
        let image = self.another().await?;
        let before = self.look().await?;
        let mark = faulty.mark();
        faulty.set(&self.host, Fault::of(Kind::Layer, How::Hold(At::Percent(50))))?;
        let asked = ask_for(self.context, &self.host, &image).await?;
        let fill = async {
            let sent = faulty.held(&self.host, Kind::Layer, mark, OVER).await?;
            self.run(FILL, A_FILE).await?;
            faulty.heal(&self.host)?;
            Ok::<_, anyhow::Error>(sent)
        };
        let (seen, sent) = tokio::join!(asked.over(self.context, OVER), fill);
        faulty.heal(&self.host)?;
        self.run(EMPTY, 0).await?;
        ensure!(
            sent?.abs_diff(BALLAST as u64 / 2) < BALLAST as u64 / 50,
            "it was not in the middle of the layer"
        );
        self.came_to_nothing(&before, &seen?, &["no space left"]).await?;
        self.works(&image).await
    }

    async fn came_to_nothing(&self, before: &Before, seen: &Seen, says: &[&str]) -> Result<()> {
        seen.failed(&["ExecutionFailed"])?;
        seen.names(says)?;
        let now = State::of(&self.host).await?;
        ensure!(now == before.state, "{:?} became {now:?}", before.state);
        before.store.is_as_before(&self.host).await?;
        let ready = Readiness::of(&self.context.cloud().cluster, self.host.name()).await?;
        ensure!(ready == before.ready, "the node was not Ready all along");
        Ok(())
    }

    /// What could not be had is had now.
    async fn works(&self, image: &ImageRef) -> Result<()> {
        let asked: Asked = ask_for(self.context, &self.host, image).await?;
        let seen = asked.over(self.context, OVER).await?;
        seen.complete().context("with room again")?;
        State::of(&self.host).await?.runs(image)?;
        Store::of(&self.host).await?.is_tidy()
    }
}
