//! The host's swap, off.

use hostexec::{Host, HostPath, Tool};

use super::{Error, ledger, unit};

/// What the kernel swaps to; its first line names the columns.
const SWAPS: HostPath = HostPath::fixed("/proc/swaps");
/// Units of partitions under their other names, which go with the one that systemd made them of; but for those that somebody wrote.
const ALIAS: &str = r"dev-disk-by\x2d";

/// Masks every unit that swaps, whatever made it, and then ends what is swapped to. Source: node-agent specification, 5.2.5.
pub(super) async fn off(host: &Host) -> Result<(), Error> {
    let line = [
        "list-units",
        "--type=swap",
        "--all",
        "--no-legend",
        "--plain",
        "--no-pager",
    ];
    let listed = host.run(Tool::Systemctl, &line).await?.stdout;
    let units = to_mask(&listed);
    ledger::record_units(host, &units).await?;
    for unit in units {
        if unit::is_own_file(host, &unit)? {
            unit::disable(host, &unit).await?;
        } else if !unit.starts_with(ALIAS) {
            host.run(Tool::Systemctl, &["mask", "--now", &unit]).await?;
        }
    }
    if in_use(host)? {
        host.run(Tool::Swapoff, &["-a"]).await?;
    }
    // What is left is in nobody's table: a tool of another name space made it.
    if in_use(host)? { Err(Error::Swap) } else { Ok(()) }
}

fn in_use(host: &Host) -> Result<bool, Error> {
    match host.read_text(&SWAPS) {
        Ok(text) => Ok(text.lines().skip(1).any(|line| !line.trim().is_empty())),
        // A kernel without swap.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::File(error)),
    }
}

/// The units to mask, of what `systemctl list-units` says: name, load, active and sub state.
fn to_mask(listed: &str) -> Vec<String> {
    let mut units = Vec::new();
    for line in listed.lines() {
        let mut words = line.split_whitespace();
        let (Some(unit), Some(load)) = (words.next(), words.next()) else {
            continue;
        };
        let masked = load == "masked" && words.next() != Some("active");
        let Some(name) = unit.strip_suffix(".swap").filter(|_| !masked) else {
            continue;
        };
        // Its swap comes from a service that makes it anew at each boot.
        if let Some(device) = name.strip_prefix("dev-").filter(|device| device.starts_with("zram")) {
            units.push(format!("systemd-zram-setup@{device}.service"));
        }
        units.push(unit.to_owned());
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_swaps_is_masked_once_and_zram_with_its_maker() {
        let listed = "dev-zram0.swap                         loaded active   active Compressed Swap on /dev/zram0\n\
            dev-disk-by\\x2duuid-1.swap                loaded inactive dead   /dev/disk/by-uuid/1\n\
            swap.img.swap                          loaded active   active /swap.img\n\
            dev-sdb1.swap                          masked inactive dead   dev-sdb1.swap\n\
            dev-sdc1.swap                          masked active   active dev-sdc1.swap\n\n";
        assert_eq!(
            to_mask(listed),
            [
                "systemd-zram-setup@zram0.service",
                "dev-zram0.swap",
                r"dev-disk-by\x2duuid-1.swap",
                "swap.img.swap",
                "dev-sdc1.swap"
            ]
        );
    }
}
