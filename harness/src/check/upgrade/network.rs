//! `upgrade.network`: a registry, or the way to it, that does everything a registry must not do. What can't work fails at once and leaves
//! nothing behind; what may pass is got over; each says what it was.

mod cases;

use std::cell::{Cell, RefCell};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use image::ImageRef;

use self::cases::{Case, Class, LAYER, MANIFEST, cases};
use super::asked::{Seen, ask_for};
use super::canary::Canary;
use super::state::{Readiness, State};
use super::store::Store;
use super::{OVER, PULL};
use crate::agent_image::BALLAST;
use crate::check::Context;
use crate::check::context::Depth;
use crate::cloud::faulty::{At, Door, Fault, Guard, HOST, How, Kind, PORT, Redirect, SIGNATURE};
use crate::cloud::registry;
use crate::host::{Host, Refusal};
use crate::wait;

/// What can't work has failed within this, on a busy machine. That it was asked for once is looked at besides.
const AT_ONCE: Duration = Duration::from_secs(20);
/// What might have passed and did not has failed within this.
const GIVEN_UP: Duration = Duration::from_secs(60);
/// A registry that takes a connection and says nothing: the limit of a connection, as often as it is tried, and the pauses between.
const MUTE: Duration = Duration::from_secs(120);
/// How long a dead mirror may hold a pull up (fc_c13), and what that is on a busy machine.
const MIRROR: Duration = Duration::from_secs(30);
/// How long packets are lost in the middle of a pull.
const LOST: Duration = Duration::from_secs(5);

/// Where the install's settings have the registries' folder; not below `/etc`, where the canary looks for what was let out.
const REGISTRIES: &str = "/var/lib/registries";
const SETTINGS: &str = "/etc/aks-flex-node-agent.env";
/// Registries' login, but for its password.
const USER: &str = "bed";

/// One check after the other on one host; everything that went wrong is told at the end.
pub(super) async fn fc_u1_fc_u2_fc_u18_fc_u27_fc_c13_fc_c19_fc_o7_na_r03_network(context: &Context) -> Result<()> {
    let bed = Network::of(context).await?;
    let mut faults = Vec::new();
    let mut tell = |name: &str, outcome: Result<()>| {
        if let Err(error) = outcome {
            faults.push(format!("{name}: {error:#}"));
        }
    };
    for case in cases() {
        tell(case.name, bed.fails(&case).await);
    }
    tell("names", bed.names_are_dead().await);
    tell("a mute registry", bed.mute().await);
    if context.depth == Depth::Full {
        tell("a silent registry", bed.silent().await);
    }
    tell("statuses that pass", bed.statuses_pass().await);
    tell("a login", bed.login().await);
    tell("bodies that break", bed.bodies_break().await);
    tell(
        "a dead mirror, a slow registry, lost packets",
        bed.slow_and_lost().await,
    );
    if !faults.is_empty() {
        bail!("{} of them: {}", faults.len(), faults.join("\n"));
    }
    Ok(())
}

/// An image that no host has yet, named as the faulty registry has it.
async fn another(context: &Context, made: &Cell<u64>) -> Result<ImageRef> {
    made.set(made.get() + 1);
    let image = context.product().heavy(context.cloud(), made.get()).await?;
    context.cloud().faulty.image(&image)
}

/// A host that has joined, and what is asked of it.
struct Network<'a> {
    context: &'a Context,
    host: Host,
    /// What is asked for where it can't be had; what is on the host once can't serve for that any more.
    unreached: RefCell<ImageRef>,
    /// How many images were made.
    made: Cell<u64>,
}

impl<'a> Network<'a> {
    async fn of(context: &'a Context) -> Result<Self> {
        let host = context.joined().await?;
        let made = Cell::new(0);
        let unreached = RefCell::new(another(context, &made).await?);
        let settings = host.read_file(SETTINGS).await?;
        let settings = format!("{settings}AKS_FLEX_NODE_AGENT_HOSTS_DIR={REGISTRIES}\n");
        host.write_file(SETTINGS, settings, 0o600).await?;
        host.exec_ok(&["mkdir", "-p", REGISTRIES]).await?;
        Ok(Self {
            context,
            host,
            unreached,
            made,
        })
    }

    /// Settings of the faulty registry: of its login or of a mirror.
    async fn registries(&self, more: &str) -> Result<()> {
        let text = format!("server = \"https://{HOST}:{PORT}\"\n{more}\n");
        let path = format!("{REGISTRIES}/{HOST}_{PORT}_/hosts.toml");
        self.host.write_file(&path, text, 0o600).await
    }

    /// Asks for the first image while something is wrong: it fails, says why, and everything is as it was.
    async fn comes_to_nothing(&self, fault: Fault, limit: Duration, says: &[&str]) -> Result<Seen> {
        let faulty = &self.context.cloud().faulty;
        let (state, store) = (State::of(&self.host).await?, Store::of(&self.host).await?);
        faulty.set(&self.host, fault)?;
        let unreached = self.unreached.borrow().clone();
        let asked = ask_for(self.context, &self.host, &unreached).await?;
        let seen = asked.over(self.context, limit).await;
        // Also of what was not over: it must not stand in the way of the next.
        faulty.heal(&self.host)?;
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => {
                self.calm().await.context("after one that was not over in time")?;
                return Err(error);
            }
        };
        if State::of(&self.host).await?.has(&unreached) {
            self.unreached.replace(another(self.context, &self.made).await?);
        }
        seen.failed(&["ExecutionFailed"])?;
        let message = seen.over.message();
        seen.names(says)?;
        ensure!(
            message.contains(HOST),
            "the message does not name the registry: {message:?}"
        );
        self.keeps_quiet(&seen)?;
        let now = State::of(&self.host).await?;
        ensure!(now == state, "{state:?} became {now:?}");
        store.is_as_before(&self.host).await?;
        Ok(seen)
    }

    /// No address and no secret is in what the cluster was told.
    fn keeps_quiet(&self, seen: &Seen) -> Result<()> {
        let told = [&[seen.over.message().to_owned()], seen.in_progress.as_slice()].concat();
        for word in ["://", "?", "Bearer", "Basic", SIGNATURE, "signature"] {
            let repeats = told.iter().find(|message| message.contains(word));
            ensure!(repeats.is_none(), "it holds {word}: {repeats:?}");
        }
        Ok(())
    }

    /// Waits until no operation is going on any more.
    async fn calm(&self) -> Result<()> {
        wait::until_true("no upgrade is under way", PULL, async || {
            Ok(!self.host.exists("/etc/aks-flex-node/agent-upgrade-signal.json").await?)
        })
        .await
    }

    async fn fails(&self, case: &Case) -> Result<()> {
        let mark = self.context.cloud().faulty.mark();
        let limit = match case.class {
            Class::Final => AT_ONCE,
            Class::MayPass => GIVEN_UP,
        };
        self.comes_to_nothing(case.fault.clone(), limit, case.says).await?;
        let requests = self.context.cloud().faulty.requests(&self.host, mark)?;
        let wrong = |request: &&crate::cloud::faulty::Request| {
            request.how.is_some() && request.how != Some(How::Redirect(Redirect::Loop))
        };
        let mut kinds: Vec<_> = requests
            .iter()
            .filter(wrong)
            .map(|request| request.path.clone())
            .collect();
        let asked = kinds.len();
        kinds.dedup();
        ensure!(
            case.class == Class::MayPass || asked <= 2 && kinds.len() <= 1,
            "what can't work was asked for {asked} times: {requests:?}"
        );
        ensure!(
            !requests.iter().any(|request| request.plain),
            "it went where there is no TLS"
        );
        Ok(())
    }

    /// Nobody answers where names are asked for.
    async fn names_are_dead(&self) -> Result<()> {
        self.host.block_names().await?;
        let seen = self
            .comes_to_nothing(Fault::default(), MUTE, &["dns|name|resolv"])
            .await;
        self.host.heal().await?;
        // The watch of operations needs names too.
        seen.map(drop)
    }

    /// fc_u27, fc_o7: the connection is taken, and that is all.
    async fn mute(&self) -> Result<()> {
        let says = [MANIFEST, "no answer|limit|timed out"];
        self.comes_to_nothing(Fault::door(Door::Mute), MUTE, &says)
            .await
            .map(drop)
    }

    /// Nothing comes after a request, or in the middle of a layer: the limit without a byte.
    async fn silent(&self) -> Result<()> {
        for (kind, at, step) in [
            (Kind::Manifest, At::Byte(0), MANIFEST),
            (Kind::Layer, At::Percent(50), LAYER),
        ] {
            let fault = Fault::of(kind, How::Hold(at));
            let seen = self.comes_to_nothing(fault, PULL, &[step, "no answer|limit"]).await;
            seen.with_context(|| step.to_owned())?;
        }
        Ok(())
    }

    /// fc_c19: a login that the token service refuses, one whose token is too short-lived, and one that does. It never gets out.
    async fn login(&self) -> Result<()> {
        let canary = Canary::of(&self.host, self.context.seed).await?;
        let login = format!("{USER}:{}", canary.word);
        let encoded = BASE64_STANDARD.encode(&login);
        canary.also(&encoded).await?;
        self.registries(&format!("[header]\nAuthorization = \"Basic {encoded}\""))
            .await?;
        let guard = |login: &str, uses| {
            let login = login.to_owned();
            Fault::guarded(Guard { login, uses })
        };
        let faulty = &self.context.cloud().faulty;
        let mark = faulty.mark();
        let tokens = |mark| {
            let requests = faulty.requests(&self.host, mark)?;
            let tokens = requests.iter().filter(|request| request.kind == Some(Kind::Token));
            Ok::<_, anyhow::Error>(tokens.count())
        };
        let tried = canary
            .watch(async {
                let refused = self
                    .comes_to_nothing(guard("bed:another", None), AT_ONCE, &[MANIFEST, "token|401"])
                    .await?;
                let tokens = tokens(mark)?;
                ensure!(tokens <= 2, "it asked for {tokens} tokens that it did not get");
                // What it had in vain it gets now; a token that has expired is no reason to fail.
                let image = self.unreached.borrow().clone();
                let taken = self.becomes(&image, guard(&login, Some(1)));
                Ok([refused, taken.await.context("with the right login")?])
            })
            .await;
        self.registries("").await?;
        for seen in &tried? {
            for secret in [&canary.word, &encoded] {
                ensure!(!seen.over.text().contains(secret), "the operation repeats the login");
            }
        }
        self.unreached.replace(another(self.context, &self.made).await?);
        Ok(())
    }

    /// Asks for an image while something is wrong, and the host becomes it all the same.
    async fn becomes(&self, image: &ImageRef, fault: Fault) -> Result<Seen> {
        let (cluster, faulty) = (&self.context.cloud().cluster, &self.context.cloud().faulty);
        let ready = Readiness::of(cluster, self.host.name()).await?;
        faulty.set(&self.host, fault)?;
        let asked = ask_for(self.context, &self.host, image).await?;
        let seen = asked.over(self.context, OVER).await;
        faulty.heal(&self.host)?;
        let seen = seen?;
        self.has_become(image, &seen).await?;
        ensure!(
            Readiness::of(cluster, self.host.name()).await? == ready,
            "the node was not Ready all along"
        );
        Ok(seen)
    }

    async fn has_become(&self, image: &ImageRef, seen: &Seen) -> Result<()> {
        seen.complete()?;
        self.keeps_quiet(seen)?;
        State::of(&self.host).await?.runs(image)?;
        Store::of(&self.host).await?.is_tidy()
    }

    /// fc_u2: refusals of the kind that passes. fc_u18: of the very image that could not be had so often.
    async fn statuses_pass(&self) -> Result<()> {
        let fault = Fault::of(Kind::Manifest, How::Status(503))
            .times(2)
            .and(Kind::Config, How::Status(500))
            .times(1)
            .and(Kind::Layer, How::Status(429))
            .times(1);
        let image = self.unreached.borrow().clone();
        self.becomes(&image, fault).await?;
        self.unreached.replace(another(self.context, &self.made).await?);
        Ok(())
    }

    /// A layer by way of a storage: a connection that is reset in the middle of it, one that ends early, one that does not end at all.
    async fn bodies_break(&self) -> Result<()> {
        let faulty = &self.context.cloud().faulty;
        let fault = Fault::of(Kind::Layer, How::Redirect(Redirect::Signed))
            .and(Kind::Signed, How::Reset(At::Percent(50)))
            .times(1)
            .and(Kind::Signed, How::Short(At::Percent(75)))
            .times(1)
            .and(Kind::Signed, How::Endless);
        let mark = faulty.mark();
        let image = another(self.context, &self.made).await?;
        self.becomes(&image, fault).await?;
        let requests = faulty.requests(&self.host, mark)?;
        let bytes = requests.iter().filter(|request| request.kind == Some(Kind::Signed));
        let bytes: Vec<_> = bytes.map(|request| request.sent).collect();
        let [first, second, third] = bytes[..] else {
            bail!("the layer came in {} parts", bytes.len())
        };
        // It is incompressible, and nearly all of it this.
        let size = BALLAST as u64;
        ensure!(
            first.abs_diff(size / 2) < size / 50 && second.abs_diff(size / 4) < size / 50,
            "it did not go on where it was: {bytes:?}"
        );
        ensure!(third < size, "of what never ends it took {third} bytes");
        Ok(())
    }

    /// fc_c13: a mirror that does not answer comes first; then the registry is slow, and its packets are lost for a while.
    async fn slow_and_lost(&self) -> Result<()> {
        let faulty = &self.context.cloud().faulty;
        let gateway = self.context.bed.net.gateway();
        let (mirror, server) = (format!("{gateway}:5999"), format!("{gateway}:{PORT}"));
        let named = format!("[host.\"https://{}:5999\"]\ncapabilities = [\"pull\"]", registry::HOST);
        self.registries(&named).await?;
        self.host.block(&mirror, Refusal::Silence).await?;
        faulty.set(&self.host, Fault::of(Kind::Layer, How::Slow(2 << 20)))?;
        let image = another(self.context, &self.made).await?;
        let asked = ask_for(self.context, &self.host, &image).await?;
        let lose = async {
            let active = async || self.host.agent().ctr(&["content", "active"]).await;
            wait::until_true("the layer is on its way", MIRROR, async || {
                Ok(active().await?.contains("aks-flex-node-pull-"))
            })
            .await?;
            self.host.block(&server, Refusal::Silence).await?;
            // What is to be seen is that nothing comes for a time.
            tokio::time::sleep(LOST).await;
            self.host.unblock(&server).await
        };
        let (seen, lost) = tokio::join!(asked.over(self.context, OVER), lose);
        self.host.unblock(&mirror).await?;
        faulty.heal(&self.host)?;
        self.registries("").await?;
        lost?;
        self.has_become(&image, &seen?).await
    }
}
