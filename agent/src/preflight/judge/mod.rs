//! From what was seen to findings: one function a check, or one for checks that go by one look.

mod cluster;
mod identity;
mod kernel;
mod place;
mod source;
mod system;

pub use cluster::{Answer, Reached, Tls, Token, api_server, clock, dns, token, words};
pub use identity::{Given, Use, identity};
pub use kernel::{
    Hierarchy, Holder, Setting, cgroups, firewall, kernel_settings, kubelet_port, listener, metrics_port, swap,
};
pub use place::{Folder, Room, disk, existing, propagation, provisioning, targets, writable};
pub use source::{Offline, Source, oci_image, offline, sources};
pub use system::{
    Enforcement, ImageTraits, UnitState, containerd_config, containerd_sync, gpu, host_image, machined, runtime,
    selinux, settings, systemd_version, tools, unit, units, user,
};

#[cfg(test)]
mod tests;
