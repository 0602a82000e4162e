//! What the units of a container have in common: the lines that choose its image, clear its place and run it.

use crate::name;
use crate::template::fill;

/// What `grep -Ezx` takes as an image by digest: a registry, a path without a tag, and 64 digits.
///
/// Wider than `image::ImageRef` in the host's name, so that no image the agent takes is refused here.
pub const IMAGE_PATTERN: &str = "[][A-Za-z0-9.:-]+(/[a-z0-9._-]+)+@sha256:[0-9a-f]{64}";

const CTR: &str = concat!("/usr/bin/ctr --namespace ", "aks-flex-node");

/// How a unit's line is run: as a preparation or as one of the main commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Directive {
    StartPre,
    Start,
}

impl Directive {
    fn as_str(self) -> &'static str {
        match self {
            Self::StartPre => "ExecStartPre",
            Self::Start => "ExecStart",
        }
    }
}

/// What becomes of an image that is not on the host any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// It is had again by its digest.
    Fetched,
    /// The container does not run, or another line sees to it.
    Missed,
}

/// A container as its unit runs it.
pub(crate) struct Container<'a> {
    /// Container id; `%i` stands for the machine.
    pub(crate) id: &'a str,
    /// The agent's command.
    pub(crate) verb: &'a str,
    /// Variables for the container: `--env NAME=value ` each. Never a secret: the line is readable to all.
    pub(crate) env: &'a str,
    /// How the preparations are run.
    pub(crate) prepare: Directive,
    /// The status of a unit whose image setting can't work.
    pub(crate) unfit: u8,
    /// The file that goes before the settings.
    pub(crate) selection: &'a str,
    /// Seconds in which containerd must answer.
    pub(crate) containerd: u64,
    /// What becomes of an image that is lost.
    pub(crate) lost: Lost,
    /// Shell run once when the wait for containerd begins.
    pub(crate) extend: &'a str,
    /// Seconds between SIGTERM and SIGKILL.
    pub(crate) stop: u64,
}

impl Container<'_> {
    /// The lines by their names in the templates.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let status = self.unfit.to_string();
        let (seconds, stop) = (self.containerd.to_string(), self.stop.to_string());
        let prepare = ("directive", self.prepare.as_str());
        let ctr = ("ctr", CTR);
        let pattern = ("pattern", IMAGE_PATTERN);
        let snapshotter = ("snapshotter", name::SNAPSHOTTER);
        let settings = ("settings", name::SETTINGS_ENV);
        let selection = ("selection", self.selection);
        let (id, socket) = (("id", self.id), ("socket", name::CONTAINERD_SOCKET));
        let line = |text: &str, values: &[(&str, &str)]| {
            fill(text, values).expect("the templates' names and the values are those of the tests")
        };
        let part = |text: &str, values: &[(&str, &str)]| line(text, values).trim_end().to_owned();
        let judge = part(
            include_str!("../files/judge.in"),
            &[pattern, settings, ("status", &status)],
        );
        let answers = part(
            include_str!("../files/containerd.in"),
            &[ctr, socket, ("seconds", &seconds), ("extend", self.extend)],
        );
        let fetch = match self.lost {
            Lost::Fetched => part(include_str!("../files/fetch.in"), &[ctr, snapshotter]),
            Lost::Missed => String::new(),
        };
        let fit = part(include_str!("../files/fit.in"), &[ctr, id, snapshotter]);
        let clean = part(include_str!("../files/clean.in"), &[ctr, id, snapshotter]);
        vec![
            (
                "container",
                line(
                    include_str!("../files/container.in"),
                    &[
                        ("slice", name::SLICE),
                        ("supervisor", name::SUPERVISOR_GROUP),
                        ("stop", &stop),
                    ],
                ),
            ),
            (
                "images",
                line(include_str!("../files/images.in"), &[settings, selection]),
            ),
            (
                "choose",
                line(include_str!("../files/choose.in"), &[pattern, selection, settings]),
            ),
            (
                "prepare",
                line(
                    include_str!("../files/prepare.in"),
                    &[
                        prepare,
                        ("judge", &judge),
                        ("fit", &fit),
                        ("answers", &answers),
                        ("fetch", &fetch),
                        ("clean", &clean),
                    ],
                ),
            ),
            (
                "import",
                line(include_str!("../files/import.in"), &[ctr, snapshotter, settings]),
            ),
            ("pull", line(include_str!("../files/pull.in"), &[ctr, snapshotter])),
            (
                "clean_after",
                line(include_str!("../files/clean-after.in"), &[("clean", &clean)]),
            ),
            (
                "run",
                line(
                    include_str!("../files/run.in"),
                    &[
                        ctr,
                        snapshotter,
                        ("slice", name::SLICE_CGROUP),
                        ("payload", name::PAYLOAD_GROUP),
                        ("env", self.env),
                        id,
                        ("verb", self.verb),
                    ],
                ),
            ),
        ]
    }
}
