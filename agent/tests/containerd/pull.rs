//! Pulls into a real containerd.

use std::sync::atomic::{AtomicU64, Ordering};

use agent::containerd::{Origin, PullError};
use image::layout::{Entry, Image, Layer, Layout};
use image::{Digest, ImageRef};

use crate::bed::{Bed, Engine, LIMITS, two_layers};

fn named(bed: &Bed, path: &str, digest: &Digest) -> ImageRef {
    bed.repository(path)
        .parse::<image::Repository>()
        .unwrap()
        .at(digest.clone())
}

#[tokio::test]
async fn a_pulled_image_is_whole_named_labelled_and_not_pulled_again() {
    let engine = Engine::new();
    let bed = &engine.bed;
    let containerd = engine.containerd();
    let mut layout = Layout::of(&two_layers(), None).unwrap();
    let manifest = layout.roots()[0].digest.clone();
    layout
        .add(
            &Image {
                architecture: Some("s390x".into()),
                ..two_layers()
            },
            None,
        )
        .unwrap();
    let index = layout.join(None);
    bed.push(&layout, "agent", "v1").await;
    let registries = bed.registries();

    // By the index's digest and by the manifest's: the same image, the second time without its layers.
    for digest in [&index, &manifest] {
        let image = named(bed, "agent", digest);
        assert!(!containerd.image_present(&image).await.unwrap());
        let (last, total) = (AtomicU64::new(0), AtomicU64::new(0));
        let progress = |done, all| {
            assert!(done >= last.load(Ordering::Relaxed));
            last.store(done, Ordering::Relaxed);
            total.store(all, Ordering::Relaxed);
        };
        let pulled = containerd.pull(&image, &registries, LIMITS, progress).await.unwrap();
        assert_eq!((&pulled.image, &pulled.platform_digest), (&image, &manifest));
        assert!(pulled.bytes > 0 && last.load(Ordering::Relaxed) == total.load(Ordering::Relaxed));
        assert!(containerd.image_present(&image).await.unwrap());
        let before = bed.requests().len();
        let again = containerd.pull(&image, &registries, LIMITS, |_, _| ()).await.unwrap();
        assert_eq!((again.bytes, again.platform_digest), (0, manifest.clone()));
        assert_eq!(bed.requests().len(), before, "nothing was asked for");
    }
    assert!(engine.ctr(&["leases", "ls", "-q"]).trim().is_empty());

    // The collector leaves it whole, and takes all of it when its last name goes.
    engine.ctr(&["leases", "create", "--id", "collect"]);
    engine.ctr(&["leases", "rm", "--sync", "collect"]);
    assert!(containerd.image_present(&named(bed, "agent", &index)).await.unwrap());
    let images = containerd.images().await.unwrap();
    assert_eq!(
        images.iter().map(|image| image.origin).collect::<Vec<_>>(),
        [Origin::Upgrade; 2]
    );
    for image in images {
        containerd.remove_image(&image.name).await.unwrap();
        containerd.remove_image(&image.name).await.unwrap();
    }
    assert!(containerd.images().await.unwrap().is_empty());
    engine.until_empty();
}

#[tokio::test]
async fn na_r27_an_image_that_the_install_brought_is_not_labelled_as_an_upgrades() {
    let engine = Engine::new();
    let containerd = engine.containerd();
    let layout = Layout::of(&two_layers(), None).unwrap();
    engine.bed.push(&layout, "agent", "v1").await;
    let image = named(&engine.bed, "agent", &layout.roots()[0].digest);
    engine.ctr(&["images", "pull", "--plain-http", &image.to_string()]);
    assert!(
        containerd.image_present(&image).await.unwrap(),
        "ctr's pull is whole to us"
    );
    assert_eq!(
        containerd
            .pull(&image, &engine.bed.registries(), LIMITS, |_, _| ())
            .await
            .unwrap()
            .bytes,
        0
    );
    assert_eq!(containerd.images().await.unwrap()[0].origin, Origin::Other);

    // Damaged, it is made whole again, and still is the install's.
    let layer = layout
        .blobs()
        .iter()
        .find(|(_, bytes)| bytes.starts_with(&[0x1f, 0x8b]))
        .unwrap()
        .0;
    engine.ctr(&["content", "rm", layer.as_str()]);
    assert!(!containerd.image_present(&image).await.unwrap());
    assert!(
        containerd
            .pull(&image, &engine.bed.registries(), LIMITS, |_, _| ())
            .await
            .unwrap()
            .bytes
            > 0
    );
    assert!(containerd.image_present(&image).await.unwrap());
    assert_eq!(containerd.images().await.unwrap()[0].origin, Origin::Other);
}

#[tokio::test]
async fn a_failed_pull_leaves_nothing() {
    let engine = Engine::new();
    let bed = &engine.bed;
    let containerd = engine.containerd();
    let registries = bed.registries();
    // A layer that is no archive: all is fetched, and unpacking fails at the second.
    let Image { mut layers, .. } = two_layers();
    layers.push(Layer::Tar(vec![b'x'; 5000]));
    let broken = Layout::of(
        &Image {
            layers,
            ..Image::default()
        },
        None,
    )
    .unwrap();
    bed.push(&broken, "agent", "broken").await;
    let error = containerd
        .pull(
            &named(bed, "agent", &broken.roots()[0].digest),
            &registries,
            LIMITS,
            |_, _| (),
        )
        .await;
    assert!(matches!(&error, Err(PullError::Containerd(_))), "{error:?}");
    engine.until_empty();

    // A layer that the registry has lost.
    let lost = Layout::of(&two_layers(), None).unwrap();
    bed.push(&lost, "agent", "lost").await;
    let layer = lost
        .blobs()
        .iter()
        .rfind(|(_, bytes)| bytes.starts_with(&[0x1f, 0x8b]))
        .unwrap()
        .0
        .hex();
    std::fs::remove_file(bed.path(&format!(
        "registry/docker/registry/v2/blobs/sha256/{}/{layer}/data",
        &layer[..2]
    )))
    .unwrap();
    let error = containerd
        .pull(
            &named(bed, "agent", &lost.roots()[0].digest),
            &registries,
            LIMITS,
            |_, _| (),
        )
        .await;
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("get a layer from 127.0.0.1:{}: HTTP status", bed.port)),
        "{error}"
    );
    engine.until_empty();

    // Another processor's image.
    let foreign = Layout::of(
        &Image {
            architecture: Some("s390x".into()),
            ..two_layers()
        },
        None,
    )
    .unwrap();
    bed.push(&foreign, "agent", "foreign").await;
    let error = containerd
        .pull(
            &named(bed, "agent", &foreign.roots()[0].digest),
            &registries,
            LIMITS,
            |_, _| (),
        )
        .await;
    assert!(matches!(error, Err(PullError::Image(_))), "{error:?}");
    engine.until_empty();
}

#[tokio::test]
async fn na_r03_a_pull_that_takes_too_long_ends_leaves_nothing_and_a_cut_one_is_resumed() {
    let engine = Engine::new();
    let bed = &engine.bed;
    let containerd = engine.containerd();
    // Noise, so that it does not shrink.
    let mut noise = Vec::new();
    while noise.len() < 12_000_000 {
        noise.extend_from_slice(Digest::of(&noise.len().to_le_bytes()).hex().as_bytes());
    }
    let layers = vec![Layer::Entries(vec![Entry::bytes("big", 0o644, noise)])];
    let big = Image {
        layers,
        compression: image::layout::Compression::Plain,
        ..Image::default()
    };
    let layout = Layout::of(&big, None).unwrap();
    bed.push(&layout, "agent", "big").await;
    let image = named(bed, "agent", &layout.roots()[0].digest);
    let slow = bed.slow_door();

    let limits = agent::containerd::Limits {
        overall: std::time::Duration::from_millis(1500),
        ..LIMITS
    };
    let begin = std::time::Instant::now();
    let slowly = slow.registries(bed, &image);
    let error = containerd.pull(&image, &slowly, limits, |_, _| ()).await.unwrap_err();
    assert!(matches!(error, PullError::Overall { .. }), "{error}");
    assert!(begin.elapsed().as_secs() < 4, "{:?}", begin.elapsed());
    engine.until_empty();

    // Cut off without a goodbye, as if the process had died.
    let far = tokio::sync::Notify::new();
    let progress = |done, _| {
        if done > 4_000_000 {
            far.notify_one();
        }
    };
    tokio::select! {
        pulled = containerd.pull(&image, &slowly, LIMITS, progress) => panic!("it should have been slow: {pulled:?}"),
        () = far.notified() => {}
    }
    let mut first = None;
    let registries = bed.registries();
    let pulled = containerd.pull(&image, &registries, LIMITS, |done, _| {
        first.get_or_insert(done);
    });
    let pulled = pulled.await.unwrap();
    assert!(
        first.unwrap() > 1_000_000 && pulled.bytes < 11_500_000,
        "{first:?} {}",
        pulled.bytes
    );
    assert!(containerd.image_present(&image).await.unwrap());
}
