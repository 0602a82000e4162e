//! The containerd edge against the real programs: each test starts its own registry, and those that need it their own
//! containerd, in a temporary folder. Needs root and the Debian packages `containerd`, `runc`, `docker-registry` and
//! `busybox-static`.
#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests start programs and write plain files of their own, and may fail where they stand"
)]

mod bed;
mod check;
mod machine;
mod pull;
mod rootfs;
