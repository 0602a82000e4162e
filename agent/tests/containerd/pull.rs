//! Pulls into a real containerd.

use std::sync::atomic::{AtomicU64, Ordering};

use agent::containerd::{ContainerdError, NoRoom, Origin, Progress, PullError};
use image::layout::{Entry, Image, Layer, Layout};
use image::{Digest, ImageRef};

use crate::bed::{Bed, Engine, LIMITS, two_layers};

fn named(bed: &Bed, path: &str, digest: &Digest) -> ImageRef {
    bed.repository(path)
        .parse::<image::Repository>()
        .unwrap()
        .at(digest.clone())
}

/// An image of 12 MB that is as large unpacked.
async fn big(bed: &Bed) -> ImageRef {
    // Noise, so that it does not shrink.
    let mut noise = Vec::new();
    while noise.len() < 12_000_000 {
        noise.extend_from_slice(Digest::of(&noise.len().to_le_bytes()).hex().as_bytes());
    }
    let big = Image {
        layers: vec![Layer::Entries(vec![Entry::bytes("big", 0o644, noise)])],
        compression: image::layout::Compression::Plain,
        ..Image::default()
    };
    let layout = Layout::of(&big, None).unwrap();
    bed.push(&layout, "agent", "big").await;
    named(bed, "agent", &layout.roots()[0].digest)
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
        let progress = |event| {
            let Progress::Bytes { done, all } = event else {
                panic!("{event:?}");
            };
            assert!(done >= last.load(Ordering::Relaxed));
            last.store(done, Ordering::Relaxed);
            total.store(all, Ordering::Relaxed);
        };
        let pulled = containerd.pull(&image, &registries, LIMITS, progress).await.unwrap();
        assert_eq!((&pulled.image, &pulled.platform_digest), (&image, &manifest));
        assert!(pulled.bytes > 0 && last.load(Ordering::Relaxed) == total.load(Ordering::Relaxed));
        assert!(containerd.image_present(&image).await.unwrap());
        let before = bed.requests().len();
        let again = containerd.pull(&image, &registries, LIMITS, |_| ()).await.unwrap();
        assert_eq!((again.bytes, again.platform_digest), (0, manifest.clone()));
        assert_eq!((pulled.attempts, again.attempts), (1, 1));
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
            .pull(&image, &engine.bed.registries(), LIMITS, |_| ())
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
            .pull(&image, &engine.bed.registries(), LIMITS, |_| ())
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
            |_| (),
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
            |_| (),
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
            |_| (),
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
    let image = big(bed).await;
    let slow = bed.slow_door();

    let limits = agent::containerd::Limits {
        overall: std::time::Duration::from_millis(1500),
        ..LIMITS
    };
    let begin = std::time::Instant::now();
    let slowly = slow.registries(bed, &image);
    let error = containerd.pull(&image, &slowly, limits, |_| ()).await.unwrap_err();
    assert!(matches!(error, PullError::Overall { .. }), "{error}");
    assert!(begin.elapsed().as_secs() < 4, "{:?}", begin.elapsed());
    engine.until_empty();

    // Cut off without a goodbye, as if the process had died.
    let far = tokio::sync::Notify::new();
    let progress = |event| {
        if matches!(event, Progress::Bytes { done: 4_000_001.., .. }) {
            far.notify_one();
        }
    };
    tokio::select! {
        pulled = containerd.pull(&image, &slowly, LIMITS, progress) => panic!("it should have been slow: {pulled:?}"),
        () = far.notified() => {}
    }
    let mut first = None;
    let registries = bed.registries();
    let pulled = containerd.pull(&image, &registries, LIMITS, |event| {
        if let Progress::Bytes { done, .. } = event {
            first.get_or_insert(done);
        }
    });
    let pulled = pulled.await.unwrap();
    assert!(
        first.unwrap() > 1_000_000 && pulled.bytes < 11_500_000,
        "{first:?} {}",
        pulled.bytes
    );
    assert!(containerd.image_present(&image).await.unwrap());
}

#[tokio::test]
async fn fc_u23_an_image_that_has_no_room_is_refused_before_any_of_it_comes() {
    let engine = Engine::new();
    let bed = &engine.bed;
    let layout = Layout::of(&two_layers(), None).unwrap();
    bed.push(&layout, "agent", "v1").await;
    let (_, manifest) = layout
        .blobs()
        .iter()
        .find(|(digest, _)| **digest == layout.roots()[0].digest)
        .unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(manifest).unwrap();
    manifest["layers"][0]["size"] = (1_u64 << 50).into();
    let bytes = serde_json::to_vec(&manifest).unwrap();
    let digest = Digest::of(&bytes);
    let put = reqwest::Client::new()
        .put(format!(
            "http://{}/manifests/{digest}",
            bed.repository("agent").replacen('/', "/v2/", 1)
        ))
        .header("content-type", "application/vnd.oci.image.manifest.v1+json")
        .body(bytes);
    assert_eq!(put.send().await.unwrap().status(), 201);

    let error = engine
        .containerd()
        .pull(&named(bed, "agent", &digest), &bed.registries(), LIMITS, |event| {
            panic!("{event:?}")
        })
        .await
        .unwrap_err();
    assert!(
        matches!(
            &error,
            PullError::NoRoom {
                source: NoRoom::Full { .. },
                ..
            }
        ),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(
        text.starts_with("there is no room for the image in /var/lib/containerd: it needs about 4503"),
        "{text}"
    );
    let blobs = bed
        .requests()
        .into_iter()
        .filter(|line| line.contains("GET /v2/agent/blobs/"));
    assert_eq!(blobs.count(), 1, "its config alone");
    engine.until_empty();
}

#[tokio::test]
async fn fc_u23_a_disk_that_fills_half_way_is_named_and_all_of_it_is_released() {
    // Too small for the blob; for what it unpacks to.
    for (size, step) in [("8m", "store content"), ("20m", "unpack a layer")] {
        let engine = Engine::on_disk_of(size);
        let image = big(&engine.bed).await;
        let (containerd, registries) = (engine.containerd(), engine.bed.registries());
        let pulled = containerd.pull(&image, &registries, LIMITS, |event| {
            assert!(matches!(event, Progress::Bytes { .. }), "{event:?}");
        });
        let error = pulled.await.unwrap_err();
        assert!(
            matches!(error, PullError::Containerd(ContainerdError::Full { .. })),
            "{size}: {error:?}"
        );
        assert!(
            error
                .to_string()
                .starts_with(&format!("containerd: {step}: its disk is full: ")),
            "{error}"
        );
        engine.until_empty();
    }
}

#[tokio::test]
async fn fc_u2_a_registry_that_fails_for_a_while_is_asked_again_and_one_that_refuses_for_good_is_not() {
    let engine = Engine::new();
    let bed = &engine.bed;
    let containerd = engine.containerd();
    let layout = Layout::of(&two_layers(), None).unwrap();
    bed.push(&layout, "agent", "v1").await;
    let image = named(bed, "agent", &layout.roots()[0].digest);
    let mut again = Vec::new();
    let door = bed.failing_door(7).registries(bed, &image);
    let pulled = containerd.pull(&image, &door, LIMITS, |event| {
        if let Progress::Again { attempt, why } = event {
            again.push((attempt, why));
        }
    });
    let pulled = pulled.await.unwrap();
    assert_eq!(pulled.attempts, 2);
    let [(2, why)] = &again[..] else { panic!("{again:?}") };
    assert!(why.contains("HTTP status 503"), "{why}");

    // Unauthorized, and not there: at once.
    let (_private, port) = bed.private();
    let private: image::Repository = format!("127.0.0.1:{port}/agent").parse().unwrap();
    let lost = image.repository.at(Digest::of(b"lost"));
    for (image, status) in [(private.at(image.digest.clone()), "401"), (lost, "404")] {
        let begin = std::time::Instant::now();
        let error = containerd
            .pull(&image, &bed.registries(), LIMITS, |event| panic!("{event:?}"))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(&format!("HTTP status {status}")), "{error}");
        assert!(begin.elapsed().as_secs() < 3, "{:?}", begin.elapsed());
    }

    // Nobody there: soon.
    let nobody: image::Repository = "127.0.0.1:1/agent".parse().unwrap();
    let begin = std::time::Instant::now();
    let mut attempts = 1;
    let (nobody, registries) = (nobody.at(image.digest.clone()), bed.registries());
    let pulled = containerd.pull(&nobody, &registries, crate::bed::PATIENT, |event| {
        if let Progress::Again { attempt, .. } = event {
            attempts = attempt;
        }
    });
    let error = pulled.await.unwrap_err();
    assert!(matches!(error, PullError::Registry { .. }), "{error:?}");
    assert_eq!(attempts, 5);
    assert!((15..45).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
}

#[tokio::test]
async fn fc_c15_pulls_that_were_cancelled_leave_nothing_after_a_sweep() {
    let engine = Engine::new();
    let bed = &engine.bed;
    let containerd = engine.containerd();
    let image = big(bed).await;
    let slow = bed.slow_door().registries(bed, &image);
    for turn in 1..=5 {
        let half = tokio::sync::Notify::new();
        let progress = |event| {
            if matches!(event, Progress::Bytes { done, all } if done * 2 >= all) {
                half.notify_one();
            }
        };
        tokio::select! {
            pulled = containerd.pull(&image, &slow, LIMITS, progress) => panic!("{turn}: {pulled:?}"),
            () = half.notified() => {}
        }
        assert!(!engine.ctr(&["leases", "ls", "-q"]).trim().is_empty(), "{turn}");
        if turn % 2 == 1 {
            containerd.sweep_pulls().await.unwrap();
            engine.until_empty();
        }
    }
    // containerd leaves two time stamps of a writer that ends as it is taken back.
    let left: u64 = files(&bed.path("host/var/lib/containerd/io.containerd.content.v1.content"));
    assert!(left < 1000, "{left} bytes of content");
}

fn files(below: &std::path::Path) -> u64 {
    let entries = std::fs::read_dir(below).unwrap().map(|entry| entry.unwrap());
    let sizes = entries.map(|entry| match entry.metadata().unwrap() {
        folder if folder.is_dir() => files(&entry.path()),
        file => file.len(),
    });
    sizes.sum()
}

type Damage<'a> = &'a dyn Fn(&[u8]) -> Vec<u8>;

#[tokio::test]
async fn fc_u11_fc_p1_content_that_was_damaged_on_the_disk_is_found_and_brought_anew() {
    let engine = Engine::new();
    let bed = &engine.bed;
    let containerd = engine.containerd();
    let layout = Layout::of(&two_layers(), None).unwrap();
    bed.push(&layout, "agent", "v1").await;
    let image = named(bed, "agent", &layout.roots()[0].digest);
    let pull = async || {
        containerd
            .pull(&image, &bed.registries(), LIMITS, |_| ())
            .await
            .unwrap()
    };
    pull().await;
    let layer = layout
        .blobs()
        .iter()
        .find(|(_, bytes)| bytes.starts_with(&[0x1f, 0x8b]))
        .unwrap();
    let on_disk = |digest: &Digest| {
        bed.path(&format!(
            "host/var/lib/containerd/io.containerd.content.v1.content/blobs/sha256/{}",
            digest.hex()
        ))
    };
    let cut = |bytes: &[u8]| bytes[..bytes.len() / 2].to_vec();
    let flipped = |bytes: &[u8]| {
        bytes
            .iter()
            .enumerate()
            .map(|(at, byte)| byte ^ u8::from(at == 20))
            .collect()
    };
    let empty = |_: &[u8]| Vec::new();
    let damages: [(_, Damage); 3] = [("cut", &cut), ("flipped", &flipped), ("empty", &empty)];
    for digest in [layer.0, &image.digest] {
        let whole = &layout.blobs()[digest];
        for (name, damage) in damages {
            let file = on_disk(digest);
            std::fs::remove_file(&file).unwrap();
            std::fs::write(&file, damage(whole)).unwrap();
            assert!(pull().await.bytes > 0, "{name}");
            assert_eq!(&std::fs::read(&file).unwrap(), whole, "{name}");
            assert!(containerd.image_present(&image).await.unwrap(), "{name}");
            assert_eq!(pull().await.bytes, 0, "{name}");
        }
    }
    containerd.remove_image(&image.to_string()).await.unwrap();
    engine.until_empty();
}

#[tokio::test]
async fn a_redirect_from_https_to_plain_http_or_in_a_circle_is_refused() {
    let engine = Engine::new();
    let bed = &engine.bed;
    let layout = Layout::of(&two_layers(), None).unwrap();
    bed.push(&layout, "agent", "v1").await;
    // It sends whoever asks to itself.
    let circle = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", circle.local_addr().unwrap());
    let location = address.clone();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for mut asker in circle.incoming().flatten() {
            let _ = asker.read(&mut [0; 8192]);
            let answer = format!(
                "HTTP/1.1 307 Temporary Redirect\r\nlocation: {location}/?sig=canary\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let _ = asker.write_all(answer.as_bytes());
        }
    });
    let (_registry, port) = bed.redirecting(&address);
    let registry = format!("127.0.0.1:{port}");
    let image = format!("{registry}/agent").parse::<image::Repository>().unwrap();
    let image = image.at(layout.roots()[0].digest.clone());
    let hosts = format!("server = \"https://{registry}\"\nskip_verify = true\n");
    let dir = bed.hosts_toml(&registry, &hosts, 0o644);
    let secure = agent::containerd::Registries::load(&bed.host(), Some(&dir)).unwrap();
    let begin = std::time::Instant::now();
    let error = engine
        .containerd()
        .pull(&image, &secure, LIMITS, |event| panic!("{event:?}"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("it redirects from https to plain http"), "{error}");
    assert!(begin.elapsed().as_secs() < 3);
    assert!(!error.contains("canary"));
}
