//! What upgrades leave in the image store: what may run again, and whatever is somebody else's.

use anyhow::{Context as _, Result, ensure};
use image::ImageRef;

use super::asked::{ask_for, insist_on};
use super::state::{LAST_GOOD, State};
use super::{OVER, TIDY};
use crate::agent_image::Variant;
use crate::check::Context;
use crate::host::Host;
use crate::wait;

/// The agent's namespace of containerd.
const OURS: &str = "aks-flex-node";
/// A name that a person gave to an image that an upgrade had pulled.
const COPY: &str = "somebody.test/copy:kept";
/// Removes an image again and again, until the file is there.
const REMOVE: &str =
    r#"until [ -e /run/removed ]; do ctr -n aks-flex-node images rm "$1" > /dev/null 2>&1 || true; done"#;

/// What upgrades pulled and will not run again goes; what may run again and what is somebody else's stays and runs.
pub(super) async fn na_r27_fc_r1_images(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    let first = State::of(&host).await?.image;
    let second = context.variant(Variant::Second).await?;
    let third = context.variant(Variant::Third).await?;
    let exits = context.variant(Variant::Exits).await?;
    let foreign = [
        (OURS, context.cloud().images.pause.to_string()),
        ("default", second.to_string()),
        ("k8s.io", second.to_string()),
    ];
    for (namespace, image) in &foreign {
        host.exec_ok(&["ctr", "--namespace", namespace, "images", "pull", image])
            .await?;
    }
    to(context, &host, &second).await?;
    host.agent().ctr(&["images", "tag", &second.to_string(), COPY]).await?;

    // Two ways back, each with its removal: they must not take what runs, nor what would be gone back to.
    for _ in 0..2 {
        let seen = insist_on(context, &host, &exits).await?.over(context, OVER).await?;
        seen.failed(&["DaemonFailed"])?;
        gone(&host, &exits).await?;
        State::of(&host).await?.runs(&second)?;
        can_run(&host, &[&first, &second]).await?;
    }

    // Somebody removes the very image that the agent is about to remove.
    to(context, &host, &third).await?;
    let named = second.to_string();
    let line = ["bash", "-c", REMOVE, "bash", &named];
    let remove = host.exec_within(OVER, &line);
    let upgrade = async {
        let done = to(context, &host, &first).await;
        host.write_file("/run/removed", "", 0o600).await?;
        done
    };
    let (removed, upgraded) = tokio::join!(remove, upgrade);
    upgraded.context("while its image before was being removed")?;
    ensure!(removed?.ok(), "the removal failed");
    gone(&host, &second).await?;
    can_run(&host, &[&first, &third]).await?;

    // The agent dies when it is about to remove; the next one does it.
    to(context, &host, &second).await?;
    let old = host.agent().daemon().await?;
    host.exec_ok(&["kill", "-KILL", &old.to_string()]).await?;
    host.agent().only_new(old, OVER).await?;
    gone(&host, &third).await?;
    State::of(&host).await?.runs(&second)?;
    can_run(&host, &[&first, &second]).await?;

    // And away from the image that others have too.
    to(context, &host, &third).await?;
    to(context, &host, &first).await?;
    gone(&host, &second).await?;
    let there = host.agent().ctr(&["images", "list", "--quiet"]).await?;
    ensure!(
        there.lines().any(|name| name == COPY),
        "{COPY} was removed; there are {there}"
    );
    let copy = (OURS, COPY.to_owned());
    for (namespace, image) in foreign[1..].iter().chain([&copy]) {
        let line = ["ctr", "--namespace", namespace, "run", "--rm", image, "probe-foreign"];
        host.exec_ok(&[&line[..], &["/usr/bin/aks-flex-node", "version"]].concat())
            .await
            .with_context(|| format!("{image} in namespace {namespace}"))?;
    }
    let pause = &foreign[0].1;
    ensure!(there.lines().any(|name| name == pause), "{pause} was removed");
    Ok(())
}

/// A good upgrade, after which the image before is the one to go back to.
async fn to(context: &Context, host: &Host, image: &ImageRef) -> Result<()> {
    let before = State::of(host).await?.image;
    let seen = ask_for(context, host, image).await?.over(context, OVER).await?;
    seen.complete().with_context(|| format!("to {image}"))?;
    let after = State::of(host).await?;
    after.runs(image)?;
    let last_good = after.last_good.unwrap_or_default();
    ensure!(
        last_good.trim_end().ends_with(&before.to_string()),
        "{LAST_GOOD} holds {last_good:?}"
    );
    Ok(())
}

/// Waits until an image is not on the host any more.
async fn gone(host: &Host, image: &ImageRef) -> Result<()> {
    wait::until_true(&format!("{image} is gone"), TIDY, async || {
        Ok(!State::of(host).await?.has(image))
    })
    .await
}

/// Each of them is there, whole: its agent runs.
async fn can_run(host: &Host, images: &[&ImageRef]) -> Result<()> {
    let there = State::of(host).await?;
    for image in images {
        ensure!(there.has(image), "{image} was removed; there are {:?}", there.images);
        let said = host
            .agent()
            .run(image, &[], &["/usr/bin/aks-flex-node", "version"])
            .await?;
        ensure!(said.ok(), "{image} does not run: {said:?}");
    }
    Ok(())
}
