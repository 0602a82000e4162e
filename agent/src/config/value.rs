//! Rules for single values: each reads one text of the file into what it means, or says why it can't.

use std::net::IpAddr;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hostexec::HostPath;
use url::Url;

use super::{
    Mistake,
    settings::{ClusterId, Device, MountPoint},
};

/// The text without blanks at its ends; none if nothing is left.
pub(super) fn given(text: &str) -> Option<&str> {
    let text = text.trim();
    (!text.is_empty()).then_some(text)
}

/// The resource ID of a managed cluster. Source: node-agent specification, 2.4.
///
/// # Errors
/// It is none.
pub fn cluster_id(text: &str) -> Result<ClusterId, Mistake> {
    const KEY: &str = "azure.targetCluster.resourceId";
    const WRITE: &str =
        "write /subscriptions/<uuid>/resourceGroups/<name>/providers/Microsoft.ContainerService/managedClusters/<name>";
    let Some(text) = given(text) else {
        return Err(Mistake::new(KEY, "is missing", WRITE));
    };
    let name = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    let is = |part: &str, word: &str| part.eq_ignore_ascii_case(word);
    match text.split('/').collect::<Vec<_>>()[..] {
        ["", a, subscription, b, group, c, d, e, cluster]
            if is(a, "subscriptions")
                && is_uuid(subscription)
                && is(b, "resourcegroups")
                && name(group)
                && is(c, "providers")
                && is(d, "microsoft.containerservice")
                && is(e, "managedclusters")
                && name(cluster) =>
        {
            Ok(ClusterId {
                text: text.into(),
                subscription: subscription.into(),
                resource_group: group.into(),
                name: cluster.into(),
            })
        }
        _ => Err(Mistake::new(KEY, "is not the resource ID of a managed cluster", WRITE)),
    }
}

fn is_uuid(text: &str) -> bool {
    let groups = text.split('-').map(str::len).collect::<Vec<_>>();
    groups == [8, 4, 4, 4, 12] && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// The endpoint of Azure Resource Manager, and every rule it breaks. Source: node-agent specification, 2.3.1, 2.4.
///
/// # Errors
/// Every rule that it breaks.
pub fn resource_manager(endpoint: &str, cloud: &str) -> Result<String, Vec<Mistake>> {
    const KEY: &str = "azure.resourceManagerEndpoint";
    let Some(text) = given(endpoint) else {
        return Ok(match cloud.trim() {
            "AzureUSGovernment" | "AzureGovernmentCloud" => "https://management.usgovcloudapi.net",
            "AzureChinaCloud" => "https://management.chinacloudapi.cn",
            _ => "https://management.azure.com",
        }
        .to_owned());
    };
    let text = text.trim_end_matches('/');
    let mistake = |wrong| Mistake::new(KEY, wrong, "write one such as https://management.azure.com");
    let Ok(url) = Url::parse(text) else {
        return Err(vec![mistake("is not an absolute URL")]);
    };
    let mut wrong = Vec::new();
    if url.scheme() != "https" {
        wrong.push(mistake("is not https"));
    }
    if !url.has_host() {
        wrong.push(mistake("has no host"));
    }
    if has_user_info(&url) {
        wrong.push(mistake("has user info"));
    }
    if url.port().is_some() {
        wrong.push(mistake("has a port"));
    }
    if !matches!(url.path(), "" | "/") {
        wrong.push(mistake("has a path"));
    }
    if url.query().is_some() {
        wrong.push(mistake("has a query"));
    }
    if url.fragment().is_some() {
        wrong.push(mistake("has a fragment"));
    }
    if wrong.is_empty() {
        Ok(text.to_owned())
    } else {
        Err(wrong)
    }
}

fn has_user_info(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// The API server's URL from `node.kubelet.clusterFQDN`. Source: node-agent specification, 2.4.
pub(super) fn api_server(text: &str) -> Result<Option<String>, Mistake> {
    let Some(text) = given(text) else { return Ok(None) };
    let whole = if text.contains("://") {
        text.to_owned()
    } else if text.contains(':') {
        format!("https://{text}")
    } else {
        format!("https://{text}:443")
    };
    let mistake = |wrong| {
        Mistake::new(
            "node.kubelet.clusterFQDN",
            wrong,
            "write the API server's name, with its port if it is not 443",
        )
    };
    // The parser mends what it can, and others would be given the text as it is.
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:[]/".contains(c);
    let rest = whole.split_once("://").map_or(whole.as_str(), |(_, rest)| rest);
    let odd = !rest.chars().all(|c| plain(c) || "@?#".contains(c));
    let url = Url::parse(&whole).map_err(|_| mistake("makes no URL of the API server"))?;
    match () {
        () if odd => Err(mistake("holds a character that no name of a server has")),
        () if url.scheme() != "https" => Err(mistake("makes a URL that is not https")),
        () if !url.has_host() => Err(mistake("makes a URL without a host")),
        () if has_user_info(&url) || rest.contains('@') => Err(mistake("makes a URL with user info")),
        () if url.port() == Some(0) || rest.trim_end_matches('/').ends_with(':') => {
            Err(mistake("makes a URL without a port"))
        }
        () if !matches!(url.path(), "" | "/") || rest.trim_end_matches('/').contains('/') => {
            Err(mistake("makes a URL with a path"))
        }
        () if url.query().is_some() => Err(mistake("makes a URL with a query")),
        () if url.fragment().is_some() => Err(mistake("makes a URL with a fragment")),
        () => Ok(Some(whole.trim_end_matches('/').to_owned())),
    }
}

/// PEM from standard base64.
pub(super) fn certificate_authority(text: &str) -> Result<Option<Vec<u8>>, Mistake> {
    let Some(text) = given(text) else { return Ok(None) };
    let mistake = |wrong| {
        Mistake::new(
            "node.kubelet.caCertData",
            wrong,
            "write the cluster's CA certificates as PEM, in standard base64",
        )
    };
    let pem = STANDARD.decode(text).map_err(|_| mistake("is not standard base64"))?;
    const BEGIN: &[u8] = b"-----BEGIN CERTIFICATE-----";
    if pem.windows(BEGIN.len()).any(|window| window == BEGIN) {
        Ok(Some(pem))
    } else {
        Err(mistake("is not PEM"))
    }
}

/// A version as it stands in paths and URLs: never with the leading `v` that the URLs add.
pub(super) fn version(key: &'static str, text: &str) -> Result<Option<String>, Mistake> {
    let Some(text) = given(text) else { return Ok(None) };
    let text = text.strip_prefix('v').unwrap_or(text);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+_-".contains(&byte);
    if text.starts_with(|c: char| c.is_ascii_digit()) && text.bytes().all(plain) {
        Ok(Some(text.to_owned()))
    } else {
        Err(Mistake::new(key, "is not a version", "write one such as 1.34.0"))
    }
}

/// Comma-separated addresses.
pub(super) fn node_ips(text: &str) -> Result<Vec<IpAddr>, Mistake> {
    let Some(text) = given(text) else { return Ok(Vec::new()) };
    text.split(',')
        .map(|ip| ip.trim().parse())
        .collect::<Result<_, _>>()
        .map_err(|_| {
            Mistake::new(
                "node.kubelet.nodeIP",
                "is not a list of IP addresses",
                "write one or more, separated by commas",
            )
        })
}

/// One IP address; none if nothing is given.
pub(super) fn address(key: &'static str, text: &str) -> Result<Option<IpAddr>, Mistake> {
    let Some(text) = given(text) else { return Ok(None) };
    text.parse()
        .map(Some)
        .map_err(|_| Mistake::new(key, "is not an IP address", "write one such as 10.0.0.10"))
}

/// An absolute, plain path of the host; none if nothing is given.
pub(super) fn path(key: impl Into<String>, text: &str) -> Result<Option<HostPath>, Mistake> {
    let Some(text) = given(text) else { return Ok(None) };
    HostPath::new(text).map(Some).map_err(|_| {
        Mistake::new(
            key.into(),
            "is not a plain path",
            "write an absolute path without `.`, `..`, `//` or a slash at the end",
        )
    })
}

/// `hostPrefix` stands unquoted in units: one narrow rule. Source: node-agent specification, 2.3.2, 13.1.
pub(super) fn host_prefix(text: &str) -> Result<Option<HostPath>, Mistake> {
    let Some(text) = given(text) else { return Ok(None) };
    let narrow = text
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._/-".contains(&byte));
    match HostPath::new(text) {
        Ok(path) if narrow && text != "/" => Ok(Some(path)),
        _ => Err(Mistake::new(
            "agent.hostPrefix",
            "is not a root the agent can use",
            "write a clean absolute path of letters, digits, `.`, `_`, `-` and `/`, not `/` itself",
        )),
    }
}

/// A path in `/dev`, or a group of devices as systemd's `DeviceAllow=` names it.
pub(super) fn device(index: usize, text: &str) -> Result<Device, Mistake> {
    let text = text.trim();
    let group = text
        .strip_prefix("char-")
        .or_else(|| text.strip_prefix("block-"))
        .is_some_and(|rest| {
            !rest.is_empty()
                && rest
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || b"_.-*?".contains(&byte))
        });
    if group {
        return Ok(Device::Group(text.to_owned()));
    }
    HostPath::new(text)
        .ok()
        .filter(|_| text.starts_with("/dev/") && is_one_word(text))
        .map(Device::Node)
        .ok_or_else(|| {
            Mistake::new(
                format!("bootstrap.additionalHostDevices[{index}]"),
                "is not a device",
                "write a clean path below /dev, or a group such as char-input",
            )
        })
}

/// One end of a bind mount, as `.nspawn` files take it.
pub(super) fn mount_path(key: String, text: &str) -> Result<MountPoint, Mistake> {
    HostPath::new(text)
        .ok()
        .filter(|_| is_one_word(text) && !text.contains(':'))
        .ok_or_else(|| {
            Mistake::new(
                key,
                "is not a path that can be mounted",
                "write a clean absolute path without blanks and `:`",
            )
        })
}

fn is_one_word(text: &str) -> bool {
    !text.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// A `.service` unit of the host.
pub(super) fn service(index: usize, text: &str) -> Result<String, Mistake> {
    let text = text.trim();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    if text.strip_suffix(".service").is_some_and(|name| !name.is_empty())
        && text.len() <= 255
        && text.bytes().all(plain)
    {
        return Ok(text.to_owned());
    }
    Err(Mistake::new(
        format!("bootstrap.additionalRequiredServices[{index}]"),
        "is not a service of the host",
        "write the unit's whole name, such as iscsid.service",
    ))
}

/// `key=value:Effect` or `key:Effect`, as kubelet registers them.
pub(super) fn taint(index: usize, text: &str) -> Result<String, Mistake> {
    let text = text.trim();
    let (label, effect) = text.rsplit_once(':').unwrap_or((text, ""));
    let (key, value) = label.split_once('=').unwrap_or((label, ""));
    if ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) && is_label_key(key) && is_label_value(value) {
        return Ok(text.to_owned());
    }
    Err(Mistake::new(
        format!("node.taints[{index}]"),
        "is not a taint",
        "write key=value:Effect or key:Effect, with NoSchedule, PreferNoSchedule or NoExecute",
    ))
}

/// A label as Kubernetes takes it.
pub(super) fn label(key: &str, value: &str) -> Result<(String, String), Mistake> {
    if is_label_key(key) && is_label_value(value) {
        return Ok((key.to_owned(), value.to_owned()));
    }
    Err(Mistake::new(
        "node.labels",
        "has a label that Kubernetes refuses",
        "write keys and values as Kubernetes' labels",
    ))
}

/// Source: Kubernetes apimachinery, `validation.IsQualifiedName`.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    !name.is_empty()
        && is_label_value(name)
        && prefix.is_none_or(|prefix| prefix.parse::<crate::model::NodeName>().is_ok())
}

/// Source: Kubernetes apimachinery, `validation.IsValidLabelValue`.
fn is_label_value(value: &str) -> bool {
    let bytes = value.as_bytes();
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    bytes.len() <= 63
        && ends(bytes.first())
        && ends(bytes.last())
        && bytes
            .iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_tells_subscription_group_and_name() {
        let text = "/subscriptions/00000000-0000-0000-0000-00000000000A/RESOURCEGROUPS/r_g.1-/providers/microsoft.ContainerService/managedclusters/c1";
        let id = cluster_id(text).unwrap();
        assert_eq!(id.as_str(), text);
        assert_eq!(id.subscription(), "00000000-0000-0000-0000-00000000000A");
        assert_eq!((id.resource_group(), id.name()), ("r_g.1-", "c1"));
        let good = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c1";
        for bad in [
            good.replace("subscriptions", "subscription"),
            good.replace("0001", "001"),
            good.replace("0001", "000g"),
            good.replace("rg", ""),
            good.replace("rg", "r g"),
            good.replace("ContainerService", "Compute"),
            good.replace("c1", ""),
            format!("{good}/"),
            format!("{good}/agentPools/p"),
            good[1..].to_owned(),
            String::new(),
        ] {
            assert_eq!(
                cluster_id(&bad).unwrap_err().key,
                "azure.targetCluster.resourceId",
                "{bad}"
            );
        }
    }

    #[test]
    fn the_cloud_names_the_endpoint_when_none_is_given() {
        for (endpoint, cloud, url) in [
            ("", "", "https://management.azure.com"),
            ("", "AzurePublicCloud", "https://management.azure.com"),
            ("", "other", "https://management.azure.com"),
            ("", "AzureUSGovernment", "https://management.usgovcloudapi.net"),
            ("", "AzureGovernmentCloud", "https://management.usgovcloudapi.net"),
            ("", "AzureChinaCloud", "https://management.chinacloudapi.cn"),
            ("https://arm.example//", "AzureChinaCloud", "https://arm.example"),
        ] {
            assert_eq!(resource_manager(endpoint, cloud), Ok(url.to_owned()));
        }
    }

    #[test]
    fn an_endpoint_is_told_every_rule_it_breaks() {
        for (endpoint, wrong) in [
            ("management.azure.com", &["is not an absolute URL"][..]),
            ("http://a", &["is not https"]),
            (
                "https://u:canary@a:8443/p?q=canary#f",
                &[
                    "has user info",
                    "has a port",
                    "has a path",
                    "has a query",
                    "has a fragment",
                ],
            ),
        ] {
            let mistakes = resource_manager(endpoint, "").unwrap_err();
            assert_eq!(mistakes.iter().map(|mistake| mistake.wrong).collect::<Vec<_>>(), wrong);
            assert!(
                mistakes
                    .iter()
                    .all(|mistake| mistake.key == "azure.resourceManagerEndpoint")
            );
        }
    }

    #[test]
    fn the_api_server_is_made_from_its_name() {
        for (text, url) in [
            ("a.b", "https://a.b:443"),
            ("a.b:6443", "https://a.b:6443"),
            ("https://a.b", "https://a.b"),
            ("https://a.b:6443/", "https://a.b:6443"),
            (" a.b ", "https://a.b:443"),
            ("[fd00::1]:6443", "https://[fd00::1]:6443"),
        ] {
            assert_eq!(api_server(text).unwrap().as_deref(), Some(url), "{text}");
        }
        assert_eq!(api_server(" ").unwrap(), None);
        for text in [
            "http://a",
            "https://u@a",
            "a/p",
            "https://a?q",
            "https://a#f",
            "a b",
            "a:port",
            "ftp://a",
            "://",
        ] {
            assert_eq!(api_server(text).unwrap_err().key, "node.kubelet.clusterFQDN", "{text}");
        }
    }

    #[test]
    fn versions_lose_the_v_and_are_safe_in_paths() {
        assert_eq!(version("k", "v1.34.0").unwrap().as_deref(), Some("1.34.0"));
        assert_eq!(
            version("k", " 1.34.0-rc.1+b ").unwrap().as_deref(),
            Some("1.34.0-rc.1+b")
        );
        assert_eq!(version("k", "").unwrap(), None);
        for text in ["latest", "../1", "1/2", "1 2", "vv1", "1?x"] {
            assert!(version("k", text).is_err(), "{text}");
        }
    }

    #[test]
    fn devices_mounts_services_and_prefixes_are_plain() {
        for text in ["/dev/kvm", "/dev/dri/card0", "char-input", "block-loop", "char-pts*"] {
            assert!(device(0, text).is_ok(), "{text}");
        }
        for text in [
            "kvm",
            "/dev/../etc",
            "/dev/a b",
            "char-",
            "char-a b",
            "/dev",
            "/etc/passwd",
            "/dev/",
        ] {
            assert_eq!(
                device(3, text).unwrap_err().key,
                "bootstrap.additionalHostDevices[3]",
                "{text}"
            );
        }
        assert!(mount_path("k".into(), "/opt/a").is_ok());
        for text in ["", "a", "/a:b", "/a b", "/a/", "/a\tb", "/a/../b"] {
            assert!(mount_path("k".into(), text).is_err(), "{text}");
        }
        for text in ["iscsid.service", "a@b.service"] {
            assert!(service(0, text).is_ok());
        }
        for text in [
            "iscsid",
            ".service",
            "a.socket",
            "a b.service",
            "a/b.service",
            "a.service\nX=1.service",
        ] {
            assert!(service(0, text).is_err(), "{text}");
        }
        assert!(host_prefix("/srv/agent-1_x.y").unwrap().is_some());
        assert!(host_prefix("").unwrap().is_none());
        for text in ["/", "srv", "/a b", "/a/../b", "/a$b", "/é"] {
            assert!(host_prefix(text).is_err(), "{text}");
        }
    }

    #[test]
    fn labels_and_taints_are_kubernetes_own() {
        for text in ["a=b:NoSchedule", "a:NoExecute", "x.y/a=:PreferNoSchedule"] {
            assert!(taint(0, text).is_ok(), "{text}");
        }
        for text in [
            "a=b",
            "a=b:Never",
            "=b:NoSchedule",
            "a,b:NoSchedule",
            "X_Y/a:NoSchedule",
            "",
        ] {
            assert!(taint(0, text).is_err(), "{text}");
        }
        assert!(label("kubernetes.azure.com/mode", "user").is_ok());
        for (key, value) in [
            ("", "a"),
            ("a/b/c", "x"),
            ("a", "b,c=d"),
            ("a", " b"),
            ("-a", "b"),
            ("A/b", "c"),
        ] {
            assert!(label(key, value).is_err(), "{key}={value}");
        }
    }

    #[test]
    fn certificates_are_pem_in_base64() {
        let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        assert_eq!(
            certificate_authority(&STANDARD.encode(pem)).unwrap().as_deref(),
            Some(pem.as_bytes())
        );
        assert_eq!(certificate_authority("").unwrap(), None);
        for text in ["***", "Y2FuYXJ5", pem] {
            assert!(certificate_authority(text).is_err(), "{text}");
        }
    }

    #[test]
    fn node_ips_are_addresses() {
        assert_eq!(node_ips("10.0.0.1, fd00::1").unwrap().len(), 2);
        assert!(node_ips("").unwrap().is_empty());
        for text in ["10.0.0", "10.0.0.1,", "a"] {
            assert!(node_ips(text).is_err(), "{text}");
        }
    }
}
