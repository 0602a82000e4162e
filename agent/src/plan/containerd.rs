//! containerd in the machine: its configuration and its unit.

use hostexec::HostPath;

use super::Goal;
use crate::step::{File, Place};

/// The unit's name in the machine.
pub(super) const UNIT: &str = "containerd.service";

/// containerd's files.
pub(super) fn files(goal: &Goal) -> Vec<File> {
    let place = Place::Machine(goal.machine);
    vec![
        File::folder(place, HostPath::fixed("/etc/containerd/certs.d"), 0o755),
        File::folder(place, HostPath::fixed("/etc/containerd/conf.d"), 0o755),
        File::open(
            place,
            HostPath::fixed("/etc/containerd/config.toml"),
            0o644,
            config(&goal.sandbox_image),
        ),
        File::open(
            place,
            HostPath::fixed("/etc/systemd/system/containerd.service"),
            0o644,
            include_str!("../../files/containerd.service"),
        ),
    ]
}

fn config(sandbox_image: &str) -> String {
    // A TOML basic string is escaped as JSON's is, as far as an image reference goes.
    let image = serde_json::Value::from(sandbox_image);
    include_str!("../../files/containerd.toml.in").replace("@SANDBOX_IMAGE@", &image.to_string())
}
