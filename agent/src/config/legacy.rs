//! Keys of older files, moved to where they stand now. Source: node-agent specification, 2.5.

use url::Url;

use super::file::File;

/// Fills what is empty from the keys of older files.
pub(super) fn adapt(file: &mut File) {
    fill(&mut file.components.kubernetes, &file.kubernetes.version);
    fill(&mut file.components.containerd, &file.containerd.version);
    fill(&mut file.components.runc, &file.runc.version);
    fill(&mut file.networking.cni_version, &file.cni.version);
    fill(&mut file.networking.dns_service_ip, &file.node.kubelet.dns_service_ip);
    let server = host_and_port(&file.node.kubelet.server_url);
    fill(&mut file.node.kubelet.cluster_fqdn, &server);
}

fn fill(new: &mut String, old: &str) {
    if new.trim().is_empty() {
        *new = old.trim().to_owned();
    }
}

/// Host and port of a URL as they were written; anything else stays as it is.
fn host_and_port(text: &str) -> String {
    let text = text.trim();
    let Some((_, rest)) = text.split_once("://") else {
        return text.to_owned();
    };
    match Url::parse(text) {
        Ok(url) if url.has_host() && url.username().is_empty() && url.password().is_none() => {
            rest.split(['/', '?', '#']).next().unwrap_or(rest).to_owned()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(json: &serde_json::Value) -> File {
        let (mut file, unknown) = crate::config::decode::decode::<File>(json).unwrap();
        assert!(unknown.is_empty(), "{unknown:?}");
        adapt(&mut file);
        file
    }

    #[test]
    fn old_keys_fill_what_is_empty() {
        let file = file(&serde_json::json!({
            "kubernetes": {"version": "1.34.0"}, "containerd": {"version": "2.0.4"}, "runc": {"version": "1.2.0"},
            "cni": {"version": "1.6.0"},
            "node": {"kubelet": {"dnsServiceIP": "10.1.0.10", "serverURL": "https://c1.example.net:6443/"}},
        }));
        assert_eq!(file.components.kubernetes, "1.34.0");
        assert_eq!(file.components.containerd, "2.0.4");
        assert_eq!(file.components.runc, "1.2.0");
        assert_eq!(file.networking.cni_version, "1.6.0");
        assert_eq!(file.networking.dns_service_ip, "10.1.0.10");
        assert_eq!(file.node.kubelet.cluster_fqdn, "c1.example.net:6443");
    }

    #[test]
    fn what_is_given_stays() {
        let file = file(&serde_json::json!({
            "components": {"kubernetes": "1.35.0"}, "kubernetes": {"version": "1.34.0"},
            "networking": {"dnsServiceIP": "10.2.0.10"},
            "node": {"kubelet": {"clusterFQDN": "new", "dnsServiceIP": "10.1.0.10", "serverURL": "https://old"}},
        }));
        assert_eq!(file.components.kubernetes, "1.35.0");
        assert_eq!(file.networking.dns_service_ip, "10.2.0.10");
        assert_eq!(file.node.kubelet.cluster_fqdn, "new");
    }

    #[test]
    fn the_server_is_the_urls_host_and_port_or_the_text_itself() {
        for (text, server) in [
            ("https://a.b:443/x?y", "a.b:443"),
            ("https://a.b", "a.b"),
            ("a.b:6443", "a.b:6443"),
            ("https://", "https://"),
            ("https://u:p@a.b", "https://u:p@a.b"),
        ] {
            assert_eq!(host_and_port(text), server);
        }
    }
}
