//! Faults of one host's network; the other hosts and the cloud don't notice.

use std::time::Duration;

use anyhow::Result;

use super::Host;
use crate::wait;

/// Within which a port whose link is up has a carrier.
const CARRIER: Duration = Duration::from_secs(20);

/// How a host's cable is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The cable is out: carrier lost, addresses go.
    Link,
    /// The switch eats every frame: carrier stays.
    Drop,
    /// Everything the host sends to the cloud is answered by a reset.
    Reset,
}

/// What becomes of packets to something that is blocked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Refused at once, as if nothing listened.
    Reset,
    /// Never answered.
    Silence,
}

impl Host {
    fn port(&self) -> String {
        format!("vb-{}", self.plan.name)
    }

    /// Takes the cable away that the boot before had: after a power cut the kernel may be slow to do so, and nspawn refuses to make another.
    pub(super) async fn unplug(&self) {
        // Mostly there is none.
        let _ = self.net.ip(&format!("link delete {}", self.port())).await;
    }

    /// Cuts the host's cable.
    ///
    /// # Errors
    /// The host is off: its cable is not there.
    pub(crate) async fn cut(&self, how: Cut) -> Result<()> {
        match how {
            Cut::Link => self.net.ip(&format!("link set {} down", self.port())).await,
            Cut::Drop => self.bridge_state("0").await,
            Cut::Reset => self.refuse("cut", "", Refusal::Reset).await,
        }
    }

    /// Mends whatever `cut` and `block` did.
    ///
    /// # Errors
    /// The host is off, or its port does not come back in time.
    pub(crate) async fn heal(&self) -> Result<()> {
        self.net.ip(&format!("link set {} up", self.port())).await?;
        // The kernel refuses as long as it has not taken notice of a carrier, its own time after the link is up.
        let carried = async || self.bridge_state("3").await.map(|()| true);
        wait::until_true("the bridge takes the port back", CARRIER, carried).await?;
        self.forget_faults().await;
        Ok(())
    }

    /// Makes one server of the cloud unreachable for this host alone: `10.88.N.1:5000`. Connections that stand are hit too.
    ///
    /// # Errors
    /// nft refuses; the address has no port.
    pub(crate) async fn block(&self, server: &str, how: Refusal) -> Result<()> {
        let (address, port) = server
            .rsplit_once(':')
            .ok_or_else(|| anyhow::anyhow!("{server} has no port"))?;
        self.refuse(
            &format!("port{port}"),
            &format!("ip daddr {address} tcp dport {port}"),
            how,
        )
        .await
    }

    /// Lets the host hear nothing from the resolver, until `heal`.
    ///
    /// # Errors
    /// nft refuses.
    pub(crate) async fn block_names(&self) -> Result<()> {
        let names = format!("ip daddr {} meta l4proto {{ tcp, udp }} th dport 53", self.plan.gateway);
        self.refuse("names", &names, Refusal::Silence).await
    }

    /// Makes one server of the cloud the only thing that this host reaches, until `heal`: `10.88.N.1:6443`.
    ///
    /// # Errors
    /// nft refuses; the address has no port.
    pub(crate) async fn reach_only(&self, server: &str) -> Result<()> {
        let (address, port) = server
            .rsplit_once(':')
            .ok_or_else(|| anyhow::anyhow!("{server} has no port"))?;
        let others = [
            format!("ip daddr != {address} meta l4proto {{ tcp, udp }}"),
            format!("ip daddr {address} meta l4proto udp"),
            format!("ip daddr {address} tcp dport != {port} tcp flags & (syn | ack) == syn"),
        ];
        for (number, packets) in others.iter().enumerate() {
            self.refuse(&format!("only{number}"), packets, Refusal::Silence).await?;
        }
        Ok(())
    }

    /// Takes a block away.
    ///
    /// # Errors
    /// There is none.
    pub(crate) async fn unblock(&self, server: &str) -> Result<()> {
        let (_, port) = server
            .rsplit_once(':')
            .ok_or_else(|| anyhow::anyhow!("{server} has no port"))?;
        let table = self.table(&format!("port{port}"));
        self.net
            .command("nft")
            .args(["delete", "table", "inet", &table])
            .run()
            .await
    }

    /// Lets the host receive no more than so many Mbit a second, whoever sends.
    ///
    /// # Errors
    /// The host is off.
    pub(crate) async fn slow(&self, megabits: u32) -> Result<()> {
        let rate = format!("{megabits}mbit");
        self.net
            .command("tc")
            .args(["qdisc", "replace", "dev", &self.port(), "root", "tbf", "rate", &rate])
            .args(["burst", "64kb", "latency", "400ms"])
            .run()
            .await
    }

    /// Takes `slow` away.
    ///
    /// # Errors
    /// It is not slow, or the host is off.
    pub(crate) async fn unslow(&self) -> Result<()> {
        self.net
            .command("tc")
            .args(["qdisc", "delete", "dev", &self.port(), "root"])
            .run()
            .await
    }

    async fn bridge_state(&self, state: &str) -> Result<()> {
        self.net
            .command("bridge")
            .args(["link", "set", "dev", &self.port(), "state", state])
            .run()
            .await
    }

    fn table(&self, what: &str) -> String {
        format!("{}_{what}", self.plan.name)
    }

    async fn refuse(&self, what: &str, packets: &str, how: Refusal) -> Result<()> {
        let from = format!("ip saddr {} {packets}", self.plan.address);
        let reset = match how {
            Refusal::Reset => format!("{from} meta l4proto tcp reject with tcp reset"),
            Refusal::Silence => String::new(),
        };
        let table = self.table(what);
        let chain = format!("type filter hook input priority 0\n{reset}\n{from} drop\n");
        let rules = format!("table inet {table} {{\nchain c {{\n{chain}}}\n}}\n");
        self.net.command("nft").args(["-f", "-"]).stdin(rules).run().await
    }

    /// Removes this host's tables from the cloud's packet filter.
    pub(super) async fn forget_faults(&self) {
        let tables = self
            .net
            .command("nft")
            .args(["list", "tables"])
            .read()
            .await
            .unwrap_or_default();
        let own = format!("{}_", self.plan.name);
        for table in tables
            .lines()
            .filter_map(|line| line.strip_prefix("table inet "))
            .filter(|table| table.starts_with(&own))
        {
            let _ = self
                .net
                .command("nft")
                .args(["delete", "table", "inet", table])
                .run()
                .await;
        }
    }
}
