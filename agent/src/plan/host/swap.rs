//! `disable-swap`: kubelet refuses a host that swaps.
//!
//! The host's own `/etc/fstab` is changed, and as it was before kept beside it.

use hostexec::HostPath;

use crate::facts::{Existing, Presence};
use crate::step::{File, Plan, Step};

const FSTAB: HostPath = HostPath::fixed("/etc/fstab");
/// As the host had it. Source: node-agent specification, 5.2.5.
const BACKUP: HostPath = HostPath::fixed("/etc/fstab.bak");

/// No swap now, and none at a boot. What is kept already, is kept.
pub(super) fn disable(fstab: Option<&Existing>, kept: Presence) -> Plan {
    let off = Plan::task("disable-swap", Step::SwapOff);
    let changed = fstab.and_then(|found| Some((found, without_swap(found.text.reveal())?)));
    let Some((found, after)) = changed else {
        return off;
    };
    let mut files = vec![File::like(FSTAB, found.mode, after)];
    if kept == Presence::Absent {
        // First: a crash between the two loses nothing.
        files.insert(0, File::like(BACKUP, found.mode, found.text.reveal().as_str()));
    }
    Plan::Serial(vec![Plan::task("write-fstab", Step::Files(files)), off])
}

/// The table with its swap commented out; none where there is no swap in it. Source: fstab(5), the third field.
fn without_swap(text: &str) -> Option<String> {
    let is_swap = |line: &str| {
        let mut fields = line.split_whitespace();
        fields.next().is_some_and(|first| !first.starts_with('#')) && fields.nth(1) == Some("swap")
    };
    text.lines().any(is_swap).then(|| {
        let lines = text.split_inclusive('\n');
        lines
            .map(|line| {
                if is_swap(line) {
                    format!("# {line}")
                } else {
                    line.to_owned()
                }
            })
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::Secret, step::Entry};

    fn found(text: &str) -> Existing {
        Existing {
            text: Secret::new(text.to_owned()),
            mode: 0o600,
        }
    }

    const TABLE: &str = "# swap was on sdb1 once\nLABEL=ROOT / ext4 defaults 0 1\n/swap.img none swap sw 0 0\n\
        UUID=1\tnone\tswap\tdiscard\t0\t0\n  /dev/zram0 none swap defaults\n/dev/sdb1 /var/swap ext4 noswap 0 2\ntmpfs /tmp";

    #[test]
    fn na_r23_swap_is_commented_out_and_nothing_else_is_touched() {
        assert_eq!(
            without_swap(TABLE).unwrap(),
            "# swap was on sdb1 once\nLABEL=ROOT / ext4 defaults 0 1\n# /swap.img none swap sw 0 0\n\
             # UUID=1\tnone\tswap\tdiscard\t0\t0\n#   /dev/zram0 none swap defaults\n/dev/sdb1 /var/swap ext4 noswap 0 2\ntmpfs /tmp"
        );
        assert_eq!(without_swap(&without_swap(TABLE).unwrap()), None);
        assert_eq!(without_swap(""), None);
    }

    #[test]
    fn what_the_host_had_is_kept_before_it_is_changed() {
        let plan = disable(Some(&found(TABLE)), Presence::Absent);
        let tasks = plan.tasks();
        let Step::Files(files) = &tasks[0].step else {
            panic!("{plan}")
        };
        let Entry::File { content, mode } = &files[0].entry else {
            panic!("{plan}")
        };
        assert_eq!(*mode, 0o600);
        assert_eq!((&files[0].path, content.bytes()), (&BACKUP, TABLE.as_bytes()));
        assert_eq!(tasks[1].step, Step::SwapOff);
        assert_eq!(
            disable(Some(&found("/dev/sda1 / ext4")), Presence::Absent)
                .tasks()
                .len(),
            1
        );
        // Swap that came back does not take the first copy's place.
        let again = disable(Some(&found(TABLE)), Presence::There);
        assert!(
            matches!(&again.tasks()[0].step, Step::Files(files) if files.len() == 1),
            "{again}"
        );
    }
}
