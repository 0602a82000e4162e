//! `version`: also the check of a candidate, so it needs nothing of the host.

use crate::daemon::check;

/// What `version` prints. A build that wasn't told says so.
#[must_use]
pub fn version() -> String {
    let told = |value: Option<&'static str>, otherwise| value.unwrap_or(otherwise);
    format!(
        "AKS Flex Node Agent\nVersion: {}\nGit Commit: {}\nBuild Time: {}\n{}\n",
        check::RELEASE,
        told(option_env!("AKS_FLEX_NODE_BUILD_COMMIT"), "unknown"),
        told(option_env!("AKS_FLEX_NODE_BUILD_TIME"), "unknown"),
        check::LINE,
    )
}
