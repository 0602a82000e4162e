//! A machine's file system, from a registry to the machine's folder.

use std::error::Error as _;

use agent::{
    apply::{self, Context, Failed},
    model::MachineName,
    step::{Plan, Step},
};
use hostexec::HostPath;
use image::layout::{Entry, Image, Layer, Layout};

use crate::bed::{Bed, two_layers};

async fn provision(bed: &Bed, image: &str) -> Result<(), Failed> {
    let context = Context::new(bed.host()).unwrap();
    let step = Step::Rootfs {
        machine: MachineName::Kube1,
        image: image.to_owned(),
    };
    apply::run(&Plan::task("provision-rootfs", step), &context).await
}

fn machines(bed: &Bed) -> Vec<String> {
    bed.host().list(&HostPath::fixed("/var/lib/machines")).unwrap()
}

#[tokio::test]
async fn a_machine_gets_its_image_whole_and_marked_and_once() {
    let bed = Bed::new();
    bed.push(&Layout::of(&two_layers(), None).unwrap(), "machines/base", "one")
        .await;
    let image = bed.repository("machines/base:one");
    // What an agent that was ended has left.
    let torn = HostPath::fixed("/var/lib/machines/.kube1.aks-flex-node/etc/half");
    bed.host().write(&torn, b"", 0o644).unwrap();
    bed.host()
        .create_dir(&HostPath::fixed("/var/lib/machines/kube1"), 0o755)
        .unwrap();
    provision(&bed, &image).await.unwrap();
    assert_eq!(machines(&bed), ["kube1"]);
    let read = |path: &str| std::fs::read_to_string(bed.path("host/var/lib/machines/kube1").join(path));
    assert_eq!(read("etc/os-release").unwrap(), "ID=test\n");
    assert_eq!(read(".aks-flex-node-rootfs").unwrap(), format!("{image}\n"));
    assert!(read("etc/half").is_err());
    let asked = bed.requests().len();
    provision(&bed, &image).await.unwrap();
    assert_eq!(bed.requests().len(), asked, "the registry was asked again");
}

#[tokio::test]
async fn an_image_of_something_else_is_final_names_its_key_and_leaves_nothing() {
    let bed = Bed::new();
    let program = Image {
        layers: vec![Layer::Entries(vec![Entry::bytes("usr/bin/tool", 0o755, *b"x")])],
        ..Image::default()
    };
    bed.push(&Layout::of(&program, None).unwrap(), "machines/tool", "one")
        .await;
    let failed = provision(&bed, &bed.repository("machines/tool:one")).await.unwrap_err();
    let text = failed.source().unwrap().to_string();
    assert!(failed.is_final() && text.contains("bootstrap.ociImage"), "{text}");
    assert!(machines(&bed).is_empty());
}

#[tokio::test]
async fn a_registry_that_is_away_or_lacks_the_image_is_asked_again_by_the_next_start() {
    let bed = Bed::new();
    for image in [
        "127.0.0.1:1/machines/base:one".to_owned(),
        bed.repository("machines/none:one"),
    ] {
        let failed = provision(&bed, &image).await.unwrap_err();
        assert!(!failed.is_final(), "{failed:?}");
        assert!(machines(&bed).is_empty());
    }
}
