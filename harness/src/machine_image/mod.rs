//! The images that a bed's registry holds beside the agent's: the machine's operating system, and what pods are made of.
//!
//! Both are made from Debian packages once and kept in the cache as OCI layouts. The machine's tree is a lean Debian trixie: systemd,
//! containerd, runc, and what the shims in `cloud/files/` and kubelet call. The real kubelet is not in it: hosts bind it in.

mod layout;
mod machine;
mod pods;

pub(crate) use machine::build as machine;
pub(crate) use pods::{busybox, pause};
