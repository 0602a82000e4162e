//! Everything of a host that a node may leave its traces in, a line each.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::host::Host;

/// Files with their kinds, modes, owners, links and hashes; units; mounts; network; control groups; containers; settings of the kernel.
/// Left out is what changes by itself on a host that nobody touches: journals, containerd's store, what systemd and its services note in
/// `/run` and `/var/lib/systemd` of running units.
const SCRIPT: &str = r#"
prune() {
    find /etc /var /opt /srv /root /run \( -path /opt/kube -o -path /var/lib/containerd -o -path /var/lib/systemd -o -path /var/tmp \
        -o -path /run/containerd -o -path /run/udev -o -path /run/log -o -path /run/user -o -path /run/dbus -o -path /run/credentials \
        -o -path '/run/systemd/[!nmst]*' -o -path /run/systemd/netif -o -path /run/systemd/notify -o -path '/run/systemd/s[!y]*' \
        -o -path /run/systemd/transient -o -path /run/host -o -path /run/mount -o -path /run/machine-id -o -path /run/test-shield -o -path /run/agetty.reload -o -name .updated \
        -o -path /var/cache/ldconfig -o -path '/var/log/?tmp' \) -prune "$@"
}
prune -o -type d -printf 'folder %p %m %u:%g\n' -o -type l -printf 'link %p %l\n' -o ! -type f -printf 'other %y %p\n'
prune -o -type f ! -path '/var/log/journal/*' -printf 'file %p %m %u:%g\n'
prune -o -type f ! -path '/var/log/journal/*' -print0 | xargs -0 -r sha256sum | awk '{ print "content " $2 " " $1 }'
systemctl list-unit-files --no-legend --no-pager --plain | awk '{ print "unit-file " $1 " " $2 }' | grep -v 'run-\|session-'
systemctl list-units --all --no-legend --no-pager --plain --state=failed | awk '{ print "failed " $1 }'
systemctl list-units --all --no-legend --no-pager --plain 'aks-*' 'systemd-nspawn@*' '*docker*' 'kube*' | awk '{ print "loaded " $1 " " $3 }'
findmnt --raw --noheadings --output TARGET,FSTYPE | grep -v '^/run/credentials\|^/run/user' | sed 's/^/mount /'
ip -o link show | awk -F'[:@] *' '{ print "interface " $2 }'
ip route show table all | grep -v 'expires' | sed 's/^/route /'
ip rule show | sed 's/^/rule /'
nft --stateless list ruleset | sed 's/^/nft /'
find /sys/fs/cgroup -type d \( -path '*aksflex*' -o -path '*nspawn*' -o -path '*kubepods*' \) -printf 'group %P\n'
machinectl list --no-legend | sed 's/^/machine /'
ctr -n aks-flex-node containers list -q | sed 's/^/container /'
ctr -n aks-flex-node tasks list -q | sed 's/^/task /'
ctr -n aks-flex-node images list -q | sed 's/^/image /'
ctr -n aks-flex-node leases list -q | sed 's/^/lease /'
sysctl net.ipv4.ip_forward net.ipv4.conf.all.rp_filter net.ipv4.conf.default.rp_filter net.ipv4.conf.all.src_valid_mark \
    net.ipv4.conf.default.src_valid_mark vm.overcommit_memory kernel.panic 2> /dev/null | sed 's/^/sysctl /'
pgrep --list-full 'kubelet|containerd-shim|aks-flex' | grep -v pgrep | sed 's/^[0-9]* /process /' | cut -c -120
"#;

/// What docs/reset.md says that a reset leaves different, one pattern a line: what comes (`+`) and what goes (`-`).
const DOCS: &str = include_str!("../../../../docs/reset.md");
const BEGIN: &str = "<!-- left by a reset -->\n";

/// A host as it stood.
pub(super) struct Snapshot(BTreeSet<String>);

impl Snapshot {
    /// Looks at all of it.
    ///
    /// # Errors
    /// The host can't be looked at.
    pub(super) async fn of(host: &Host) -> Result<Self> {
        let script = format!("set +e +o pipefail\n{SCRIPT}\ntrue");
        let said = host.sh(&script).await?;
        Ok(Self(said.lines().map(str::to_owned).collect()))
    }

    /// Sees to it that a later look differs in just what is documented, and in what matches one of `also`.
    ///
    /// # Errors
    /// It differs otherwise: by which lines is in the error.
    pub(super) fn is_restored(&self, after: &Self, also: &[&str]) -> Result<()> {
        let known = documented();
        let is = |line: &str| {
            known.iter().chain(also).any(|pattern| {
                line.starts_with(pattern.trim_end_matches('*')) && (pattern.ends_with('*') || line == *pattern)
            })
        };
        let gone = self.0.difference(&after.0).map(|line| format!("- {line}"));
        let come = after.0.difference(&self.0).map(|line| format!("+ {line}"));
        let strange: Vec<String> = gone.chain(come).filter(|line| !is(line)).collect();
        ensure!(
            strange.is_empty(),
            "{} lines differ from what the host was before:\n{}",
            strange.len(),
            strange.join("\n")
        );
        Ok(())
    }
}

/// The documented lines.
fn documented() -> Vec<&'static str> {
    let block = DOCS.split_once(BEGIN).map_or("", |(_, after)| after);
    let lines = block.lines().skip(1).take_while(|line| !line.starts_with("<!--"));
    lines.filter_map(|line| line.strip_prefix("    ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_list_is_found_and_short() {
        let lines = documented();
        assert!(!lines.is_empty() && lines.len() < 12, "{lines:#?}");
        assert!(lines.iter().all(|line| line.starts_with(['+', '-'])));
    }

    #[test]
    fn what_is_not_documented_is_told() {
        let of = |lines: &[&str]| Snapshot(lines.iter().map(|line| (*line).to_owned()).collect());
        let before = of(&["file /etc/a", "folder /x"]);
        before.is_restored(&of(&["file /etc/a", "folder /x"]), &[]).unwrap();
        let error = before
            .is_restored(&of(&["file /etc/a", "file /left"]), &["- folder*"])
            .unwrap_err();
        assert!(format!("{error}").ends_with(":\n+ file /left"), "{error}");
    }
}
