//! Firewalls of the host, open to what a node needs.

use hostexec::{Call, Host, Tool};
use units::host::{self, Family};

use super::{Error, unit};

/// Lets a node's traffic through now. A firewall that does not stand is met by the drop-in, once its unit runs.
pub(super) async fn open(host: &Host, families: &[Family]) -> Result<(), Error> {
    for family in families {
        if unit::property(host, family.unit(), "ActiveState").await? != "active" {
            continue;
        }
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
