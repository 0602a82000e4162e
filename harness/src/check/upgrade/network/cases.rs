//! What keeps an upgrade from its image for good, and what the operation then says.

use crate::cloud::faulty::{At, Door, Fault, How, Kind, Redirect};

/// Steps of a pull, as messages name them.
pub(super) const MANIFEST: &str = "get the manifest";
const CONFIG: &str = "get the config";
pub(super) const LAYER: &str = "get a layer";

/// Whether it is worth another try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Final,
    MayPass,
}

/// Something that keeps an upgrade from its image.
pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) fault: Fault,
    pub(super) class: Class,
    /// What the message names; of words with `|` between them, one.
    pub(super) says: &'static [&'static str],
}

fn lasting(name: &'static str, kind: Kind, how: How, says: &'static [&'static str]) -> Case {
    Case {
        name,
        fault: Fault::of(kind, how),
        class: Class::Final,
        says,
    }
}

fn at_the_door(name: &'static str, door: Door, says: &'static [&'static str]) -> Case {
    Case {
        name,
        fault: Fault::door(door),
        class: Class::MayPass,
        says,
    }
}

/// What fails for good.
pub(super) fn cases() -> Vec<Case> {
    let middle = At::Percent(50);
    let redirect = |to| How::Redirect(to);
    let storage = Case {
        name: "the storage that it redirects to refuses",
        fault: Fault::of(Kind::Layer, redirect(Redirect::Signed)).and(Kind::Signed, How::Status(403)),
        class: Class::Final,
        says: &[LAYER, "403"],
    };
    vec![
        lasting("401", Kind::Manifest, How::Status(401), &[MANIFEST, "401"]),
        lasting("403", Kind::Manifest, How::Status(403), &[MANIFEST, "403"]),
        lasting("404", Kind::Manifest, How::Status(404), &[MANIFEST, "404"]),
        lasting("404 for the config", Kind::Config, How::Status(404), &[CONFIG, "404"]),
        lasting("401 for a layer", Kind::Layer, How::Status(401), &[LAYER, "401"]),
        lasting("403 for a layer", Kind::Layer, How::Status(403), &[LAYER, "403"]),
        lasting(
            "a wrong byte in the manifest",
            Kind::Manifest,
            How::Flip(middle),
            &["digest|gave"],
        ),
        lasting(
            "a wrong byte in the config",
            Kind::Config,
            How::Flip(middle),
            &["digest|gave"],
        ),
        lasting(
            "a wrong byte in a layer",
            Kind::Layer,
            How::Flip(middle),
            &[LAYER, "digest"],
        ),
        lasting("too long a manifest", Kind::Manifest, How::Longer(9), &["digest|gave"]),
        lasting(
            "too long a config",
            Kind::Config,
            How::Longer(9),
            &[CONFIG, "more bytes|length"],
        ),
        lasting(
            "too long a layer",
            Kind::Layer,
            How::Longer(9),
            &[LAYER, "more bytes|length"],
        ),
        lasting(
            "an endless manifest",
            Kind::Manifest,
            How::Endless,
            &[MANIFEST, "larger"],
        ),
        lasting(
            "a circle",
            Kind::Manifest,
            redirect(Redirect::Loop),
            &[MANIFEST, "redirect"],
        ),
        lasting(
            "a layer's circle",
            Kind::Layer,
            redirect(Redirect::Loop),
            &[LAYER, "redirect"],
        ),
        lasting(
            "to http",
            Kind::Manifest,
            redirect(Redirect::Plain),
            &[MANIFEST, "redirect"],
        ),
        lasting(
            "a layer to http",
            Kind::Layer,
            redirect(Redirect::Plain),
            &[LAYER, "redirect"],
        ),
        storage,
        // As a host sees it whose clock is behind.
        at_the_door("a certificate that is not valid yet", Door::Early, &["not valid yet"]),
        at_the_door("a certificate that has expired", Door::Late, &["expired"]),
        at_the_door(
            "a stranger's certificate",
            Door::Stranger,
            &["UnknownIssuer|unknown issuer"],
        ),
        at_the_door("another's certificate", Door::OtherName, &["not valid for name"]),
    ]
}
