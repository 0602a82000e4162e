//! Images unpacked into a folder without containerd.

use agent::containerd::{PullError, Registries, Unpacked, Why, unpack_image};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use image::Digest;
use image::layout::{Image, Layout};
use image::oci::OciError;

use crate::bed::{Bed, LIMITS, two_layers};

async fn unpack(bed: &Bed, reference: &str, registries: &Registries) -> Result<Unpacked, PullError> {
    let into = bed.path("machine");
    let _ = std::fs::remove_dir_all(&into);
    std::fs::create_dir(&into).unwrap();
    unpack_image(reference, registries, LIMITS, &into).await
}

#[tokio::test]
async fn an_image_is_unpacked_by_tag_by_digest_and_as_latest() {
    let bed = Bed::new();
    let mut layout = Layout::of(&two_layers(), None).unwrap();
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
    bed.push(&layout, "machines/base", "latest").await;
    let repository = bed.repository("machines/base");
    for reference in [
        repository.clone(),
        format!("{repository}:latest"),
        format!("{repository}@{index}"),
    ] {
        let unpacked = unpack(&bed, &reference, &bed.registries()).await.unwrap();
        assert_eq!(unpacked.digest, index);
        let read = |path: &str| std::fs::read(bed.path("machine").join(path));
        assert_eq!(read("etc/os-release").unwrap(), b"ID=test\n");
        assert_eq!(read("usr/bin/second").unwrap(), b"2");
        assert_eq!(read("usr/bin/tool").unwrap().len(), 300_000);
        assert!(read("gone").is_err());
    }
}

#[tokio::test]
async fn what_is_no_image_for_this_host_is_said_to_be_none() {
    let bed = Bed::new();
    let repository = bed.repository("m");
    let registries = bed.registries();

    let foreign = Image {
        architecture: Some("s390x".into()),
        ..two_layers()
    };
    let mut layout = Layout::of(&foreign, None).unwrap();
    bed.push(&layout, "m", "single").await;
    layout.join(None);
    bed.push(&layout, "m", "index").await;
    for tag in ["single", "index"] {
        let error = unpack(&bed, &format!("{repository}:{tag}"), &registries)
            .await
            .unwrap_err();
        assert!(error.to_string().ends_with("it has linux/s390x"), "{error}");
        assert!(!error.may_pass());
    }

    bed.push(&Layout::of(&Image::default(), None).unwrap(), "m", "empty")
        .await;
    let error = unpack(&bed, &format!("{repository}:empty"), &registries)
        .await
        .unwrap_err();
    assert!(matches!(error, PullError::Image(OciError::NoLayers)), "{error}");

    for missing in [
        format!("{repository}:none"),
        format!("{repository}@{}", Digest::of(b"none")),
    ] {
        let error = unpack(&bed, &missing, &registries).await.unwrap_err();
        let want = format!(
            "get the manifest from 127.0.0.1:{}: HTTP status 404 (MANIFEST_UNKNOWN)",
            bed.port
        );
        assert_eq!(error.to_string(), want);
        assert!(!error.may_pass());
    }
    let error = unpack(&bed, "user:s3cret@127.0.0.1:1/r", &registries)
        .await
        .unwrap_err();
    assert!(matches!(error, PullError::Reference(_)) && !error.to_string().contains("s3cret"));
}

#[tokio::test]
async fn a_damaged_layer_is_refused() {
    let bed = Bed::new();
    let layout = Layout::of(&two_layers(), None).unwrap();
    bed.push(&layout, "m", "v1").await;
    let (digest, bytes) = layout
        .blobs()
        .iter()
        .find(|(_, bytes)| bytes.starts_with(&[0x1f, 0x8b]))
        .unwrap();
    let hex = digest.hex();
    let file = bed.path(&format!(
        "registry/docker/registry/v2/blobs/sha256/{}/{hex}/data",
        &hex[..2]
    ));
    let mut damaged = bytes.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    std::fs::write(&file, damaged).unwrap();
    let error = unpack(&bed, &format!("{}:v1", bed.repository("m")), &bed.registries())
        .await
        .unwrap_err();
    assert!(
        matches!(error, PullError::Unpack(_)) && error.to_string().contains(hex),
        "{error}"
    );
}

#[tokio::test]
async fn fc_c13_a_dead_mirror_costs_one_try_and_the_registry_serves() {
    let bed = Bed::new();
    bed.push(&Layout::of(&two_layers(), None).unwrap(), "m", "v1").await;
    let text = format!(
        "server = \"http://127.0.0.1:{}\"\n[host.\"http://127.0.0.1:1\"]\ncapabilities = [\"pull\", \"resolve\"]\n",
        bed.port
    );
    let dir = bed.hosts_toml("registry.test:5000", &text, 0o644);
    let registries = Registries::load(&bed.host(), Some(&dir)).unwrap();
    let begin = std::time::Instant::now();
    unpack(&bed, "registry.test:5000/m:v1", &registries).await.unwrap();
    assert!(begin.elapsed().as_secs() < 4, "{:?}", begin.elapsed());
}

#[tokio::test]
async fn nobody_there_is_an_error_that_may_pass_and_names_the_registry() {
    let bed = Bed::new();
    let error = unpack(&bed, "127.0.0.1:1/r:v1", &bed.registries()).await.unwrap_err();
    assert!(
        matches!(
            &error,
            PullError::Registry {
                why: Why::Transport(_),
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error.may_pass() && error.to_string().starts_with("get the manifest from 127.0.0.1:1: "),
        "{error}"
    );
    assert!(!error.to_string().contains("http://"), "{error}");
}

#[tokio::test]
async fn fc_c11_credentials_by_file_open_a_private_registry_and_without_them_it_says_401() {
    let bed = Bed::new();
    bed.push(&Layout::of(&two_layers(), None).unwrap(), "m", "v1").await;
    let (_private, port) = bed.private();
    let server = format!("server = \"http://127.0.0.1:{port}\"\n");
    let header = |pair: &str| format!("{server}[header]\nAuthorization = \"Basic {}\"\n", BASE64.encode(pair));
    for (text, want) in [
        (header("user:s3cret"), None),
        (header("user:wrong"), Some("401")),
        (server.clone(), Some("401")),
    ] {
        let dir = bed.hosts_toml("private.test", &text, 0o600);
        let registries = Registries::load(&bed.host(), Some(&dir)).unwrap();
        let done = unpack(&bed, "private.test/m:v1", &registries).await;
        match want {
            None => assert!(done.is_ok(), "{done:?}"),
            Some(status) => {
                let error = done.unwrap_err();
                assert!(
                    error
                        .to_string()
                        .contains(&format!("from 127.0.0.1:{port}: HTTP status {status}")),
                    "{error}"
                );
                assert!(!error.may_pass() && !format!("{error} {error:?}").contains("s3cret"));
            }
        }
    }
}

#[tokio::test]
async fn na_r02_an_address_that_a_registry_redirects_to_is_in_no_error() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        use std::io::{Read, Write};
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let to = "http://127.0.0.1:1/blob?sig=s3cret";
            let _ = write!(
                stream,
                "HTTP/1.1 307 Moved\r\nLocation: {to}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            );
        }
    });
    let bed = Bed::new();
    let error = unpack(&bed, &format!("127.0.0.1:{port}/m:v1"), &bed.registries())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("get the manifest from 127.0.0.1:{port}: ")),
        "{error}"
    );
    assert!(!format!("{error} {error:?}").contains("s3cret"), "{error:?}");
}
