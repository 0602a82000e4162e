//! What of the environment a tool of the host gets to see: an allow-list, in one place.

/// Where the host's programs are looked for, in order; what tools get as `PATH` is the same.
pub(crate) const SEARCH: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// [`SEARCH`] as `PATH`.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// root's home, where tools look for settings of their own (`.curlrc`). The caller's would name a folder of its choice.
pub(crate) const HOME: &str = "/root";

/// Whether the variable goes along. `PATH` and `HOME` do not: they are [`PATH`] and [`HOME`]. Nor do `LD_*` and their like, which would load the
/// container's files into the host's programs, nor `NOTIFY_SOCKET`, `WATCHDOG_*` and `LISTEN_*`, with which a tool would
/// speak in the agent's name.
pub(crate) fn passes(name: &str) -> bool {
    const NAMES: [&str; 3] = ["LANG", "TERM", "TZ"];
    const PROXIES: [&str; 5] = ["all_proxy", "ftp_proxy", "http_proxy", "https_proxy", "no_proxy"];
    NAMES.contains(&name) || name.starts_with("LC_") || PROXIES.iter().any(|proxy| proxy.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_order_is_path() {
        assert_eq!(SEARCH.join(":"), PATH);
    }

    #[test]
    fn what_speaks_in_the_agents_name_stays_behind() {
        for name in [
            "NOTIFY_SOCKET",
            "WATCHDOG_USEC",
            "WATCHDOG_PID",
            "LISTEN_FDS",
            "LD_PRELOAD",
            "PATH",
            "HOME",
            "LANGUAGE",
        ] {
            assert!(!passes(name), "{name}");
        }
        for name in ["LC_ALL", "HTTPS_PROXY", "no_proxy", "TERM"] {
            assert!(passes(name), "{name}");
        }
    }
}
