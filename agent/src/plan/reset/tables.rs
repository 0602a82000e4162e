//! Chains of Kubernetes in tables of nftables, as a machine's own tools make them where the host's `iptables` speaks to the older filter. Pure.

/// Of what `nft --handle list ruleset` says, what `nft --file -` has to be given to take them away, with tables of which nothing but empty
/// chains that let everything through is left; none where there are none. Source: nft(8).
#[must_use]
pub fn removal(listed: &str) -> Option<String> {
    let tables = listed
        .split("\ntable ")
        .map(|text| text.strip_prefix("table ").unwrap_or(text));
    let text: String = tables.filter_map(table).collect();
    (!text.is_empty()).then_some(text)
}

struct Chain<'a> {
    name: &'a str,
    /// Rules, each with its handle.
    rules: Vec<(&'a str, &'a str)>,
    /// Something in it says that not everything is let through.
    strict: bool,
}

/// One table, from its family on.
fn table(text: &str) -> Option<String> {
    let mut words = text.split_whitespace();
    let (family, name) = (words.next()?, words.next()?);
    let mut chains: Vec<Chain<'_>> = Vec::new();
    let mut others = false;
    for line in text.lines().skip(1).map(str::trim) {
        let (said, handle) = line.rsplit_once(" # handle ").unwrap_or((line, ""));
        if let Some(name) = said.strip_prefix("chain ").and_then(|rest| rest.strip_suffix(" {")) {
            chains.push(Chain {
                name,
                rules: Vec::new(),
                strict: false,
            });
        } else if said.ends_with('{') && !handle.is_empty() {
            // A set, a map.
            others = true;
        } else if let Some(chain) = chains.last_mut() {
            if said.starts_with("type ") {
                chain.strict |= !said.ends_with("policy accept;");
            } else if !handle.is_empty() {
                chain.rules.push((said, handle));
            }
        }
    }
    let ours = |chain: &str| chain.starts_with("KUBE-");
    if !chains.iter().any(|chain| ours(chain.name)) {
        return None;
    }
    let leads = |rule: &str| {
        let mut words = rule.split_whitespace();
        words.any(|word| ["jump", "goto"].contains(&word)) && words.next().is_some_and(ours)
    };
    let (theirs, away): (Vec<&Chain<'_>>, Vec<&Chain<'_>>) = chains.iter().partition(|chain| !ours(chain.name));
    let empty = |chain: &&Chain<'_>| !chain.strict && chain.rules.iter().all(|(rule, _)| leads(rule));
    if !others && theirs.iter().all(empty) {
        return Some(format!("delete table {family} {name}\n"));
    }
    let mut removal = String::new();
    for chain in theirs {
        for (_, handle) in chain.rules.iter().filter(|(rule, _)| leads(rule)) {
            removal.push_str(&format!("delete rule {family} {name} {} handle {handle}\n", chain.name));
        }
    }
    for verb in ["flush", "delete"] {
        for chain in &away {
            removal.push_str(&format!("{verb} chain {family} {name} {}\n", chain.name));
        }
    }
    Some(removal)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As nft 1.1 prints what kubelet 1.20 made, and what others have.
    const LISTED: &str = "table ip mangle { # handle 1
\tchain KUBE-KUBELET-CANARY { # handle 1
\t}
}
table ip nat { # handle 2
\tchain KUBE-MARK-MASQ { # handle 3
\t\tcounter packets 0 bytes 0 meta mark set mark or 0x4000 # handle 7
\t}

\tchain KUBE-POSTROUTING { # handle 4
\t\tmeta mark & 0x00004000 != 0x00004000 counter packets 3 bytes 1 return # handle 9
\t}

\tchain POSTROUTING { # handle 5
\t\ttype nat hook postrouting priority srcnat; policy accept;
\t\t counter packets 3 bytes 1 jump KUBE-POSTROUTING # handle 6
\t}
}
table ip filter { # handle 3
\tchain KUBE-FIREWALL { # handle 1
\t}

\tchain INPUT { # handle 2
\t\ttype filter hook input priority filter; policy drop;
\t\ttcp dport 22 counter packets 0 bytes 0 accept # handle 4
\t\tcounter packets 0 bytes 0 jump KUBE-FIREWALL # handle 3
\t}
}
table inet canary { # handle 4
\tset s { # handle 1
\t\ttype ipv4_addr
\t}
}
";

    #[test]
    fn fc_x4_chains_of_kubernetes_go_and_tables_that_hold_nothing_else() {
        insta::assert_snapshot!(removal(LISTED).unwrap(), @r"
        delete table ip mangle
        delete table ip nat
        delete rule ip filter INPUT handle 3
        flush chain ip filter KUBE-FIREWALL
        delete chain ip filter KUBE-FIREWALL
        ");
    }

    #[test]
    fn tables_of_others_are_left_alone() {
        let canary = &LISTED[LISTED.find("table inet canary").unwrap()..];
        for text in [
            "",
            canary,
            "table ip nat { # handle 2\n\tchain POSTROUTING { # handle 5\n\t}\n}\n",
        ] {
            assert_eq!(removal(text), None, "{text}");
        }
    }
}
