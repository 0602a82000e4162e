//! Interfaces, routes, the packet filter, and the kernel's settings.

use std::time::Duration;

use hostexec::{Call, Host, Tool, ToolError};

use crate::model::chain;
use crate::plan::reset::{chains, tables};
use crate::removal::End;
use crate::step::Sysctl;

/// How long a tool may take.
const ASK: Duration = Duration::from_secs(10);
/// Tables of the node's tunnels. Source: node-agent specification, 12.2.
const TABLES: std::ops::RangeInclusive<u32> = 51820..=51899;

async fn ask(host: &Host, tool: Tool, line: &[&str]) -> Result<String, ToolError> {
    let output = host.call(Call::new(tool, line).limit(ASK)).await?;
    Ok(output.stdout)
}

/// What failed; a tool that the host does not have made nothing there.
fn failed(error: &ToolError) -> End {
    match error {
        ToolError::Missing(_) => End::Absent,
        ToolError::Run { .. } | ToolError::Failed { .. } | ToolError::Slow { .. } | ToolError::Flood { .. } => {
            End::CouldNot(chain(error))
        }
    }
}

pub(super) async fn interface(host: &Host, name: &str) -> End {
    match ask(host, Tool::Ip, &["link", "delete", name]).await {
        Ok(_) => End::Removed,
        // A pod's end may have taken it along.
        Err(ToolError::Failed { stderr, .. }) if stderr.contains("Cannot find device") => End::Absent,
        Err(error) => failed(&error),
    }
}

/// Takes chains away, of nftables and of both families of the older filter.
pub(super) async fn chains(host: &Host) -> End {
    let mut end = End::Absent;
    match ask(host, Tool::Nft, &["--handle", "list", "ruleset"]).await {
        Ok(listed) => {
            if let Some(removal) = tables::removal(&listed) {
                let call = Call::new(Tool::Nft, &["--file", "-"])
                    .stdin(removal.as_bytes())
                    .limit(ASK);
                match host.call(call).await {
                    Ok(_) => end = End::Removed,
                    Err(error) => return failed(&error),
                }
            }
        }
        Err(ToolError::Missing(_)) => {}
        Err(error) => return failed(&error),
    }
    for (save, restore) in [
        (Tool::IptablesSave, Tool::IptablesRestore),
        (Tool::Ip6tablesSave, Tool::Ip6tablesRestore),
    ] {
        let removal = match ask(host, save, &[]).await {
            Ok(saved) => chains::removal(&saved),
            // A host without the tool has no such rules.
            Err(ToolError::Missing(_)) => continue,
            Err(error) => return failed(&error),
        };
        let Some(removal) = removal else { continue };
        let line = ["--noflush", "--wait"];
        let call = Call::new(restore, &line).stdin(removal.as_bytes()).limit(ASK);
        match host.call(call).await {
            Ok(_) => end = End::Removed,
            Err(error) => return failed(&error),
        }
    }
    end
}

/// Takes routes away that bear the agent's mark, and what leads to the tables of tunnels.
pub(super) async fn routes(host: &Host) -> End {
    let mark = units::host::ROUTE_PROTOCOL;
    let take = async || -> Result<End, ToolError> {
        let mut end = End::Absent;
        let listed = ask(host, Tool::Ip, &["-4", "route", "show", "proto", mark]).await?;
        if !listed.trim().is_empty() {
            ask(host, Tool::Ip, &["-4", "route", "flush", "proto", mark]).await?;
            end = End::Removed;
        }
        for family in ["-4", "-6"] {
            let rules = match ask(host, Tool::Ip, &[family, "rule", "show"]).await {
                // A kernel without IPv6.
                Err(ToolError::Failed { .. }) if family == "-6" => continue,
                rules => rules?,
            };
            for table in rules
                .lines()
                .filter_map(looked_up)
                .filter(|table| TABLES.contains(table))
            {
                let table = table.to_string();
                ask(host, Tool::Ip, &[family, "rule", "del", "table", &table]).await?;
                ask(host, Tool::Ip, &[family, "route", "flush", "table", &table]).await?;
                end = End::Removed;
            }
        }
        Ok(end)
    };
    take().await.unwrap_or_else(|error| failed(&error))
}

/// The table that a rule leads to.
fn looked_up(rule: &str) -> Option<u32> {
    let mut words = rule.split_whitespace();
    words.find(|word| *word == "lookup")?;
    words.next()?.parse().ok()
}

/// Sets a value back that is still the agent's.
pub(super) async fn sysctl(host: &Host, key: &str, value: &str, was: &str) -> End {
    let Some(path) = Sysctl::path_of(key) else {
        return End::Kept("it is no setting of a kernel".into());
    };
    match host.read_text(&path) {
        Ok(now) if now.trim() == value => {}
        // It was changed since, or its module is gone.
        Ok(_) | Err(_) => return End::Absent,
    }
    match ask(host, Tool::Sysctl, &["--write", &format!("{key}={was}")]).await {
        Ok(_) => End::Removed,
        Err(error) => failed(&error),
    }
}
