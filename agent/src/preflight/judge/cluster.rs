//! The API server: its name, its TLS, its clock, and whether it takes the token.

use std::time::Duration;

use crate::preflight::{Check, Finding, Remedy};

/// What a certificate comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tls {
    /// It is trusted.
    Trusted,
    /// It is none yet, by the clock that was asked.
    NotYetValid,
    /// It is none any more, by the clock that was asked.
    Expired,
    /// Nobody who is trusted has signed it.
    UnknownAuthority,
    /// It is another server's.
    WrongName,
    /// It can't be used for another cause.
    Unusable,
}

/// What the API server answered, over a connection whose certificate was judged and trusted with nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's.
    pub status: u16,
    /// How far its clock, by its `Date`, is ahead of ours, in seconds; negative: behind.
    pub ahead: Option<i64>,
    /// By our clock.
    pub tls: Tls,
    /// By its own clock.
    pub by_its_clock: Option<Tls>,
}

/// What came of asking it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached {
    /// It answered.
    Answered(Answer),
    /// The configuration names none.
    NoUrl,
    /// The configuration's authority holds no certificate that TLS can use.
    NoAuthority,
    /// Its name has no address.
    Unnamed,
    /// Nothing came in time.
    Late(Duration),
    /// What went wrong, in our words.
    Failed(&'static str),
}

/// How far clocks may be apart. A certificate that a cluster issues counts from five minutes before. Source:
/// kubernetes/kubernetes: pkg/controller/certificates/signer/signer.go, `Backdate`.
const APART: u64 = 300;
/// From where on it is told.
const NOTABLE: u64 = 30;

/// Our words for how a connection ended, by what the transport says of it, which may name the server.
#[must_use]
pub fn words(said: &str) -> &'static str {
    const STRANGER: &str = "nobody who is trusted here has signed its certificate";
    const WORDS: [(&str, &str); 13] = [
        ("UnknownIssuer", STRANGER),
        ("BadSignature", STRANGER),
        ("certificate not valid for name", "its certificate is for another name"),
        (
            "certificate expired",
            "its certificate has expired, by this host's clock",
        ),
        (
            "certificate not valid yet",
            "its certificate is not valid yet, by this host's clock",
        ),
        ("invalid peer certificate", "its certificate can't be used"),
        ("InvalidContentType", "it speaks plain HTTP where TLS is expected"),
        ("refused", "the connection is refused"),
        ("unreachable", "no route leads there"),
        ("reset", "the connection is reset"),
        ("redirect", "it redirects where the agent does not follow"),
        ("timed out", "no answer came in time"),
        ("dns error", "its name can't be resolved"),
    ];
    WORDS
        .into_iter()
        .find_map(|(part, words)| said.contains(part).then_some(words))
        .unwrap_or("the connection failed")
}

const RESOLVER: Remedy = Remedy::new(
    "see that /etc/resolv.conf of the host names a resolver that answers (`resolvectl query`), and that the name is right and known there",
);

/// `dns`: the API server's name, and the names of sources that could not be resolved.
#[must_use]
pub fn dns(server: &Reached, named: bool, sources: &[&'static str]) -> Vec<Finding> {
    let check = Check::Dns;
    let fails = |target: &'static str| check.fail("its name can't be resolved", RESOLVER).on(target);
    let mut found: Vec<_> = (*server == Reached::Unnamed)
        .then(|| fails("the API server"))
        .into_iter()
        .chain(sources.iter().map(|source| fails(source)))
        .collect();
    if found.is_empty() {
        found.push(check.ok(if named {
            "names can be resolved"
        } else {
            "the API server has an address, and names of sources can be resolved"
        }));
    }
    found
}

/// `api-server-reachable`
#[must_use]
pub fn api_server(reached: &Reached) -> Finding {
    const NO_URL: Remedy = Remedy::new("write the name of the cluster's API server to node.kubelet.clusterFQDN");
    const NO_CA: Remedy = Remedy::new("write the cluster's CA, as PEM in base64, to node.kubelet.caCertData");
    const NETWORK: Remedy = Remedy::new(
        "see that the cluster runs, and that this host's network, routes and firewall let it reach the API server",
    );
    const PLAIN: Remedy =
        Remedy::new("write the address and port at which the API server speaks TLS to node.kubelet.clusterFQDN");
    const AUTHORITY: Remedy = Remedy::new(
        "write the CA of this very cluster to node.kubelet.caCertData; if a proxy opens TLS in between, let it leave the API server alone",
    );
    const NAME: Remedy =
        Remedy::new("write a name to node.kubelet.clusterFQDN that the API server's certificate is for");
    const RENEW: Remedy = Remedy::new("renew the API server's certificate, or wait until it is valid");
    const UNUSABLE: Remedy = Remedy::new(
        "have the API server use a certificate that TLS servers may use (X.509 version 3, with a name of the server)",
    );
    const SICK: Remedy = Remedy::new("see why the API server is not ready: its /readyz and its log say");
    let check = Check::ApiServerReachable;
    let answer = match reached {
        Reached::Answered(answer) => answer,
        Reached::NoUrl => return check.fail("the configuration names no API server", NO_URL),
        Reached::NoAuthority => return check.fail("the configuration's CA is no certificate", NO_CA),
        Reached::Unnamed => return check.skip("its name can't be resolved: see the check dns"),
        Reached::Late(limit) => return check.fail(format!("no answer within {} s", limit.as_secs()), NETWORK),
        Reached::Failed(words) => {
            let remedy = if words.contains("plain HTTP") { PLAIN } else { NETWORK };
            return check.fail(*words, remedy);
        }
    };
    let evidence = format!("HTTP status {}", answer.status);
    let tls = if apart(answer) {
        answer.by_its_clock.unwrap_or(answer.tls)
    } else {
        answer.tls
    };
    let finding = match tls {
        Tls::NotYetValid => check.fail("its certificate is not valid yet", RENEW),
        Tls::Expired => check.fail("its certificate has expired", RENEW),
        Tls::UnknownAuthority => check.fail("its certificate is not signed by the configuration's CA", AUTHORITY),
        Tls::WrongName => check.fail("its certificate is for another name", NAME),
        Tls::Unusable => check.fail("its certificate can't be used", UNUSABLE),
        Tls::Trusted if answer.status >= 500 => check.fail(format!("it answers HTTP status {}", answer.status), SICK),
        // The other clock is another check's.
        Tls::Trusted if answer.tls != Tls::Trusted => {
            check.skip("its certificate is good by its own clock: see the check clock")
        }
        Tls::Trusted => check.ok("it answers, and is who the configuration says"),
    };
    finding.seen(evidence)
}

fn apart(answer: &Answer) -> bool {
    answer.ahead.is_some_and(|ahead| ahead.unsigned_abs() > APART)
}

/// `clock`, by the `Date` of the API server.
#[must_use]
pub fn clock(reached: &Reached) -> Finding {
    const SET: Remedy = Remedy::new(
        "set the host's clock, and have chronyd or systemd-timesyncd keep it: `timedatectl` shows whether they do",
    );
    let check = Check::Clock;
    let Reached::Answered(answer) = reached else {
        return check.skip("the API server did not say what time it is");
    };
    let Some(ahead) = answer.ahead else {
        return check.skip("the API server does not say what time it is");
    };
    let which = if ahead > 0 { "behind" } else { "ahead of" };
    let message = format!(
        "the host's clock is about {} {which} the API server's",
        length(ahead.unsigned_abs())
    );
    match ahead.unsigned_abs() {
        0..NOTABLE => check.ok("the host's clock agrees with the API server's"),
        NOTABLE..=APART => check.warn(message, SET),
        _ => check.fail(message, SET),
    }
    .seen(format!("{} s apart", ahead.abs()))
}

fn length(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", (seconds + 30) / 60),
        7200..172_800 => format!("{} h", (seconds + 1800) / 3600),
        _ => format!("{} days", (seconds + 43_200) / 86_400),
    }
}

/// What the API server says to a bootstrap token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// There is none.
    None,
    /// It was not shown: the connection is not trusted.
    Withheld,
    /// It knows who shows it, and answers this status.
    Taken(u16),
    /// It does not know it.
    Unknown,
    /// No answer to judge by.
    Unclear,
}

/// `bootstrap-token`. Its form was judged when the configuration was read.
#[must_use]
pub fn token(token: Token) -> Finding {
    const NEW: Remedy =
        Remedy::new("make a new bootstrap token in the cluster, and write it to azure.bootstrapToken.token");
    let check = Check::BootstrapToken;
    match token {
        Token::None => check.skip("the configuration has none"),
        Token::Withheld => check.skip("it is not shown to a server that could not be reached or is not trusted"),
        Token::Unclear => check.skip("the API server gave no answer to judge by"),
        Token::Taken(status) => check
            .ok("the API server knows it")
            .seen(format!("HTTP status {status}")),
        Token::Unknown => check
            .fail(
                "the API server does not know it: it has expired, or was never made in this cluster",
                NEW,
            )
            .seen("HTTP status 401"),
    }
}
