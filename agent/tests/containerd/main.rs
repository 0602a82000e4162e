//! The containerd edge against the real programs: each test starts its own registry, and those that need it their own
//! containerd, in a temporary folder. Needs root and the Debian packages `containerd`, `runc` and `docker-registry`.
#![expect(
    clippy::disallowed_methods,
    reason = "tests start programs and write plain files of their own"
)]

mod bed;
mod machine;
mod rootfs;
