//! Kernel settings of the host.

use hostexec::{Call, Host, Tool};

use super::Error;
use crate::step::Sysctl;

/// Applies what lies in `/etc/sysctl.d` and then judges by what the kernel says: `sysctl --system` also fails for keys of
/// others, and for those of modules that aren't there.
pub(super) async fn set(host: &Host, wanted: &[Sysctl]) -> Result<(), Error> {
    if differing(host, wanted).is_empty() {
        return Ok(());
    }
    let answer = host.call(Call::new(Tool::Sysctl, &["--system"]).any_code()).await?;
    let wrong = differing(host, wanted);
    if wrong.is_empty() {
        return Ok(());
    }
    tracing::warn!(code = answer.code, stderr = answer.stderr, "sysctl --system");
    Err(Error::Sysctl(wrong.join(", ")))
}

/// `key is a, must be b` for each value that isn't as wanted. A key the kernel does not have is no difference: it
/// belongs to a module that isn't loaded, and gets its value from the file when it is.
fn differing(host: &Host, wanted: &[Sysctl]) -> Vec<String> {
    wanted
        .iter()
        .filter_map(|Sysctl { key, value }| {
            let path = Sysctl { key, value }.path();
            match host.read_text(&path) {
                Ok(found) if found.trim() == *value => None,
                Ok(found) => Some(format!("{key} is {:?} and must be {value}", found.trim())),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    tracing::warn!(key, "the kernel does not have this setting");
                    None
                }
                Err(error) => Some(format!("{key} can't be read ({error}) and must be {value}")),
            }
        })
        .collect()
}
