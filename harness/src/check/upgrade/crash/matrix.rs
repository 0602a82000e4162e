//! The table of victims and points.

use anyhow::{Result, bail};

use super::point::{self, Fault};
use super::series::{Series, Wrong};
use super::victim::Victim;
use crate::check::Context;
use crate::check::context::Depth;
use crate::progress;

/// Each victim and each point at least once; at full depth every pair that there is. Each ends within a minute with one agent, the one that
/// is selected, and the operation's true end.
pub(in crate::check::upgrade) async fn fc_u14_fc_u16_fc_u22_fc_r17_fc_c3_matrix(context: &Context) -> Result<()> {
    let faults = match context.depth {
        Depth::Short => point::covering(),
        Depth::Full => point::all(),
    };
    let (cuts, kills): (Vec<Fault>, Vec<Fault>) = faults.into_iter().partition(|fault| fault.victim == Victim::Power);
    let (half, other): (Vec<_>, Vec<_>) = kills.into_iter().enumerate().partition(|(place, _)| place % 2 == 0);
    let plain = |faults: Vec<(usize, Fault)>| faults.into_iter().map(|(_, fault)| fault).collect();
    let (cuts, half, other) = tokio::join!(
        table(context, cuts, true),
        table(context, plain(half), false),
        table(context, plain(other), false)
    );
    let bad = [cuts?, half?, other?].concat();
    if !bad.is_empty() {
        bail!("{} rows: {}", bad.len(), bad.join(" | "));
    }
    Ok(())
}

/// One host's rows, one after the other; another host when one is broken. The rows that are not good.
async fn table(context: &Context, faults: Vec<Fault>, power: bool) -> Result<Vec<String>> {
    let mut bad = Vec::new();
    if faults.is_empty() {
        return Ok(bad);
    }
    let mut series = Series::begin(context, power).await?;
    for fault in &faults {
        let row = format!("{} at {}", fault.victim, fault.point.name);
        let wrong = match series.fault(*fault).await {
            Ok(ended) => {
                progress::note(&format!("{row}: {ended}"));
                continue;
            }
            Err(Wrong::Missed(why)) => format!("{row}: {why}"),
            Err(Wrong::Violated(error)) => {
                let kept = context
                    .artifacts("upgrade.crash-matrix")
                    .join(row.replace([' ', '%', ','], "-"));
                context.keep(&kept).await?;
                let wrong = format!("{row}: {error:#}; see {}", kept.display());
                series = series.anew().await?;
                wrong
            }
        };
        progress::note(&wrong);
        bad.push(wrong);
    }
    if let Err(error) = series.end().await {
        bad.push(format!("the upgrade after all rows: {error:#}"));
    }
    Ok(bad)
}
