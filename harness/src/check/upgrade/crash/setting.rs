//! Which image is asked for, so that a point can be met, and what is so before.

use anyhow::{Context as _, Result};
use image::ImageRef;

use super::look::Look;
use super::point::{Fault, File, Phase, Road, Sight};
use super::series::Series;
use crate::agent_image::Variant;
use crate::check::upgrade::state::Readiness;

/// So many images are to be pulled in turn: one that comes round again has gone from the host meanwhile.
const HEAVIES: u64 = 4;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An image of which all is on the host but its name.
    Good,
    /// One that has to be pulled first.
    Heavy,
    /// One whose daemon exits at once.
    Bad,
}

impl Kind {
    pub(super) fn road(self) -> Road {
        match self {
            Self::Good | Self::Heavy => Road::Good,
            Self::Bad => Road::Bad,
        }
    }
}

/// An upgrade that is about to be asked for.
pub(super) struct Setting {
    /// The image that runs.
    pub(super) from: String,
    pub(super) to: ImageRef,
    /// The daemon that runs, by the host's number.
    pub(super) old: String,
    /// Whether the one that is asked for has failed here before.
    pub(super) blamed: bool,
    /// The node's kubelet, unless it has just started.
    pub(super) kubelet: Option<String>,
    /// Since when the node is Ready; not asked where the power is cut, after which it has to become so again.
    pub(super) readiness: Option<Readiness>,
}

impl Series<'_> {
    /// Which image is asked for, so that the point can be met.
    pub(super) async fn setting_of(&mut self, fault: Fault) -> Result<Setting> {
        let mut look = Look::of(&self.host).await?;
        if fault.point.sight == Sight::Replacing(File::LastGood, Phase::Switched)
            || fault.point.sight == Sight::Replaced(File::LastGood, Phase::Switched)
        {
            // What is recorded already is not recorded again.
            while look.last_good() == Some(look.image()?) {
                let other = self.other(look.image()?).await?;
                self.upgrade(&other).await?;
                look = Look::of(&self.host).await?;
            }
        }
        let kind = match (fault.point.road, fault.point.sight) {
            (Road::Bad, _) => Kind::Bad,
            (Road::Good, Sight::Pulled(_)) => Kind::Heavy,
            (Road::Good, _) => Kind::Good,
        };
        self.setting(kind, &look).await
    }

    pub(super) async fn setting(&mut self, kind: Kind, look: &Look) -> Result<Setting> {
        let from = look.image()?.to_owned();
        let to = match kind {
            Kind::Bad => self.context.variant(Variant::Exits).await?,
            Kind::Heavy => self.heavy(&from).await?,
            Kind::Good => self.other(&from).await?,
        };
        Ok(Setting {
            old: look.daemon().context("no agent runs")?.to_owned(),
            blamed: look.blames(&to.to_string()),
            kubelet: look.old_kubelet().map(str::to_owned),
            from,
            to,
            readiness: self.readiness().await?,
        })
    }

    pub(super) async fn other(&self, than: &str) -> Result<ImageRef> {
        let first = &self.context.product().image;
        if first.to_string() == than {
            self.context.variant(Variant::Second).await
        } else {
            Ok(first.clone())
        }
    }

    async fn heavy(&mut self, than: &str) -> Result<ImageRef> {
        loop {
            self.heavy += 1;
            let product = self.context.product();
            let image = product.heavy(self.context.cloud(), self.heavy % HEAVIES).await?;
            if image.to_string() != than {
                return Ok(image);
            }
        }
    }
}
