//! What services said last, made fit for an error: its reason first, on one line, without a secret, and with what to do about it.

pub(super) const NO_CERTIFICATE: &str = "has no certificate";

/// What kubelet's last words most often mean, and what to do about it.
pub(super) fn hint(journal: &str, what: &str) -> &'static str {
    const HINTS: [(&str, &str); 9] = [
        (
            // client-go's words for a credential plugin that fails.
            "getting credentials: exec",
            ": kubelet gets no token of the Azure identity: do what the last line of aks-flex-node says",
        ),
        (
            "Unauthorized",
            ": the API server refuses the bootstrap token (unknown, expired, or of another cluster): make a new one; or \
             the Azure identity: it is of another tenant than the cluster's",
        ),
        (
            "is forbidden: User",
            ": the cluster does not allow this identity to join: grant what docs/operations.md lists",
        ),
        (
            "certificate has expired or is not yet valid",
            ": look at the host's clock, then at the API server's certificate",
        ),
        (
            "certificate signed by unknown authority",
            ": node.kubelet.caCertData is not the CA of this API server",
        ),
        (
            "certificate is valid for",
            ": node.kubelet.clusterFQDN is not a name in the API server's certificate",
        ),
        ("no such host", ": the API server's name can't be resolved"),
        ("connection refused", ": the API server is not there"),
        ("i/o timeout", ": the API server does not answer"),
    ];
    let found = HINTS.iter().find(|(sign, _)| journal.contains(sign));
    match found {
        Some((_, hint)) => hint,
        None if what == NO_CERTIFICATE => ": if its certificate request is pending, approve it (kubectl get csr)",
        None => "",
    }
}

/// A log without the stacks of Go programs; after it, once more, the last line in which one told why it ended, if other lines follow that.
pub(super) fn telling(text: &str) -> String {
    let stack = |line: &str| {
        line.starts_with(['\t', '+'])
            || line.starts_with("goroutine ")
            || line.starts_with("created by ")
            || line.contains("(0x")
            || line.ends_with("(...)")
    };
    // Source: klog's header, `Fmmdd hh:mm:ss`.
    let fatal = |line: &&&str| {
        let mut head = line.bytes();
        head.next() == Some(b'F')
            && head.by_ref().take(4).all(|byte| byte.is_ascii_digit())
            && head.next() == Some(b' ')
    };
    let lines: Vec<&str> = text.lines().filter(|line| !stack(line)).collect();
    let start = lines.len().saturating_sub(80);
    let last = lines.iter().rfind(fatal);
    let said = last.filter(|last| lines.last() != Some(last));
    lines[start..]
        .iter()
        .chain(said)
        .copied()
        .collect::<Vec<_>>()
        .join("\n")
}

/// The end of a log on one line, at most some 2000 characters, without what could be a bootstrap token.
pub(super) fn one_line(text: &str) -> String {
    let line = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join(" | ");
    let start = line.char_indices().rev().nth(2000).map_or(0, |(at, _)| at);
    without_tokens(&line[start..])
}

/// Replaces what has the form of a bootstrap token, `[a-z0-9]{6}.[a-z0-9]{16}`, with `***`.
fn without_tokens(text: &str) -> String {
    let part = |bytes: &[u8]| {
        bytes
            .iter()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    let bytes = text.as_bytes();
    let mut plain = String::with_capacity(text.len());
    let mut copied = 0;
    let mut at = 0;
    while let Some(dot) = bytes[at..]
        .iter()
        .position(|byte| *byte == b'.')
        .map(|found| at + found)
    {
        at = dot + 1;
        let (Some(start), Some(end)) = (
            dot.checked_sub(6),
            dot.checked_add(17).filter(|end| *end <= bytes.len()),
        ) else {
            continue;
        };
        if start >= copied && part(&bytes[start..dot]) && part(&bytes[dot + 1..end]) {
            plain.push_str(&text[copied..start]);
            plain.push_str("***");
            (copied, at) = (end, end);
        }
    }
    plain.push_str(&text[copied..]);
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_form_of_a_token_is_never_shown() {
        for (text, shown) in [
            ("token abcdef.0123456789abcdef.", "token ***."),
            ("abcdef.0123456789abcdef|uvwxyz.0123456789abcdef", "***|***"),
            ("system:bootstrap:abcdef", "system:bootstrap:abcdef"),
            ("a.b 10.0.0.1 kubelet.go:1234 ü.ü", "a.b 10.0.0.1 kubelet.go:1234 ü.ü"),
            ("xabcdef.0123456789abcdef0", "x***0"),
        ] {
            assert_eq!(without_tokens(text), shown);
        }
    }

    #[test]
    fn fc_k1_of_a_farewell_the_reason_is_told_and_not_the_stacks() {
        let log = "I1130 11:50:34.1 1 server.go] starting\nF1130 11:50:34.2 1 kubelet.go:1350] Failed to start\ngoroutine 1 [select]:\n\
            k8s.io/klog.stacks(0xc000010001, 0xc0001)\n\t/go/klog.go:996 +0xb9\nmain.main()\ncreated by main\n\
            k8s.io/a.(*b).c(...)\nkubelet.service: Failed with result 'exit-code'.\n";
        assert_eq!(
            telling(log).lines().map(|line| &line[..5]).collect::<Vec<_>>(),
            ["I1130", "F1130", "main.", "kubel", "F1130"]
        );
        assert_eq!(telling("Failed\nF1130 x"), "Failed\nF1130 x");
    }

    #[test]
    fn a_long_log_keeps_its_end_on_one_line() {
        let text = format!("{}\n\n  last  \n", "ü".repeat(3000));
        let line = one_line(&text);
        assert!(
            line.ends_with("ü | last") && line.chars().count() == 2001,
            "{}",
            line.chars().count()
        );
    }

    #[test]
    fn fc_k1_the_end_of_the_journal_says_what_to_do() {
        for (journal, word) in [
            (
                "failed to run Kubelet: cannot create certificate signing request: Unauthorized",
                "token",
            ),
            (
                "x509: certificate has expired or is not yet valid: current time 2020",
                "clock",
            ),
            ("dial tcp 10.0.0.1:6443: connect: connection refused", "not there"),
            ("", "csr"),
        ] {
            assert!(hint(journal, NO_CERTIFICATE).contains(word), "{journal}");
        }
        assert_eq!(hint("Failed to start ContainerManager", "is not active"), "");
    }
}
