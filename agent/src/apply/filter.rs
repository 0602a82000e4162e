//! Firewalls of the host, open to what a node needs.

use hostexec::{Call, Host, Tool};
use units::host::{self, Family};

use super::Error;

/// Lets a node's traffic through now. A firewall that does not stand, since its unit has not run yet, is met by the drop-in.
pub(super) async fn open(host: &Host, families: &[Family]) -> Result<(), Error> {
    for family in families {
        let tool = match family {
            Family::V4 => Tool::Iptables,
            Family::V6 => Tool::Ip6tables,
        };
        host.run(tool, &host::FORWARD).await?;
        let asked = host.call(Call::new(tool, &host::kubelet_is_open()).any_code()).await?;
        if asked.code != Some(0) {
            host.run(tool, &host::open_kubelet()).await?;
        }
    }
    Ok(())
}
