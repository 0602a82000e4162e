//! The node problem detector in the machine: its unit. Its program and its configuration come from its release. Source: node-agent
//! specification, 5.10.

use hostexec::HostPath;

use super::{Goal, kubelet::KUBECONFIG};
use crate::step::{File, Place};

/// The unit's name in the machine.
pub(super) const UNIT: &str = "node-problem-detector.service";
/// What its download is called.
pub(super) const COMPONENT: &str = "npd";
/// The program.
pub(super) const PROGRAM: HostPath = HostPath::fixed("/usr/bin/node-problem-detector");
/// What it looks for in the kernel's log: the release's own.
pub(super) const MONITOR: HostPath = HostPath::fixed("/etc/node-problem-detector/kernel-monitor.json");

/// Its files but those of its release.
pub(super) fn files(goal: &Goal) -> Vec<File> {
    let name = word(&format!("--hostname-override={}", goal.node.as_str()));
    // The query is the detector's own: not by a service account, but as kubelet.
    let server = &goal.kubelet.server;
    let server = word(&format!(
        "--apiserver-override={server}?inClusterConfig=false&auth={KUBECONFIG}"
    ));
    let text = include_str!("../../files/node-problem-detector.service.in")
        .replace("@NAME@", &name)
        .replace("@SERVER@", &server);
    vec![File::open(
        Place::Machine(goal.machine),
        HostPath::fixed("/etc/systemd/system/node-problem-detector.service"),
        0o644,
        text,
    )]
}

/// One word of a command line, whatever it holds. Source: systemd.service(5), "Command lines"; systemd.unit(5), "Specifiers".
fn word(text: &str) -> String {
    let mut word = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => word.extend(['\\', letter]),
            '%' | '$' => word.extend([letter, letter]),
            _ => word.push(letter),
        }
    }
    word.push('"');
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_means_what_it_says() {
        assert_eq!(word("a%b$c\"d\\e"), r#""a%%b$$c\"d\\e""#);
    }
}
