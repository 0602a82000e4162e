//! A candidate on its way onto the host, and images on their way off it: what the daemon asks of containerd.

use hostexec::Host;
use image::ImageRef;

const NOT_YET: &str = "containerd can't be asked by this version yet";

/// Brings the image onto this host, whole and on its disk, and sees its agent run.
///
/// # Errors
/// What failed, in a sentence for the operation's status. Nothing is selected.
pub(super) async fn stage(_host: &Host, _image: &ImageRef) -> Result<(), String> {
    Err(NOT_YET.into())
}

/// The image that the agent's container was made of.
///
/// # Errors
/// When containerd does not say.
pub(super) async fn running(_host: &Host) -> Result<ImageRef, String> {
    Err(NOT_YET.into())
}

/// Removes the images that upgrades brought and that will not run again.
pub(super) async fn remove_unused(_host: &Host) {}
