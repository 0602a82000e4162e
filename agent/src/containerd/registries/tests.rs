use super::*;

const DIR: HostPath = HostPath::fixed("/etc/registries");

struct Bed {
    _dir: tempfile::TempDir,
    host: Host,
}

impl Bed {
    fn new(files: &[(&str, &str, u32)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        host.create_dir(&DIR, 0o755).unwrap();
        for (path, text, mode) in files {
            host.write(&DIR.join(path).unwrap(), text.as_bytes(), *mode).unwrap();
        }
        Self { _dir: dir, host }
    }

    fn load(&self) -> Result<Registries, String> {
        Registries::load(&self.host, Some(&DIR)).map_err(|error| error.to_string())
    }
}

/// `scheme://authority`, and what is special of it.
fn shown(registries: &Registries, registry: &str) -> Vec<String> {
    let show = |endpoint: &Endpoint| {
        let mut text = match endpoint.scheme {
            Scheme::Http => format!("http://{}", endpoint.authority),
            Scheme::Https => format!("https://{}", endpoint.authority),
        };
        if endpoint.resolve == Resolve::DigestsOnly {
            text.push_str(" digests");
        }
        if endpoint.verify == Verify::Skip {
            text.push_str(" unverified");
        }
        match endpoint.auth.reveal() {
            RegistryAuth::Anonymous => {}
            RegistryAuth::Basic(user, password) => text.push_str(&format!(" basic {user} {password}")),
            RegistryAuth::Bearer(token) => text.push_str(&format!(" bearer {token}")),
        }
        text
    };
    registries.endpoints(registry).iter().map(show).collect()
}

#[test]
fn without_settings_a_registry_is_asked_itself_and_plain_http_is_for_this_machine_alone() {
    let registries = Registries::default();
    for (registry, want) in [
        ("ghcr.io", "https://ghcr.io"),
        ("registry.test:5000", "https://registry.test:5000"),
        ("10.0.0.1:5000", "https://10.0.0.1:5000"),
        ("localhost", "http://localhost"),
        ("localhost:5000", "http://localhost:5000"),
        ("127.0.0.1:5000", "http://127.0.0.1:5000"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("localhost.example:5000", "https://localhost.example:5000"),
    ] {
        assert_eq!(shown(&registries, registry), [want]);
    }
}

#[test]
fn mirrors_are_asked_in_the_order_of_the_file_and_the_server_last() {
    let text = r#"
server = "https://registry.test:5000/v2"
[host."https://zz.test"]
capabilities = ["pull", "resolve"]
[host."http://aa.test:81/sub/"]
capabilities = ["pull"]
skip_verify = true
[host."https://push-only.test"]
capabilities = ["push"]
[host."bare.test"]
"#;
    let bed = Bed::new(&[("registry.test:5000/hosts.toml", text, 0o644)]);
    let want = [
        "https://zz.test",
        "http://aa.test:81/sub digests unverified",
        "https://bare.test",
        "https://registry.test:5000",
    ];
    assert_eq!(shown(&bed.load().unwrap(), "registry.test:5000"), want);
    assert_eq!(shown(&bed.load().unwrap(), "other.test"), ["https://other.test"]);
}

#[test]
fn the_default_serves_registries_without_a_folder_and_ports_may_be_written_with_underscores() {
    let bed = Bed::new(&[
        ("_default/hosts.toml", "[host.\"https://mirror.test\"]\n", 0o644),
        ("h.test_5000_/hosts.toml", "server = \"http://h.test:5000\"\n", 0o644),
        ("no-file-here/readme", "", 0o644),
    ]);
    let registries = bed.load().unwrap();
    assert_eq!(
        shown(&registries, "ghcr.io"),
        ["https://mirror.test", "https://ghcr.io"]
    );
    assert_eq!(shown(&registries, "h.test:5000"), ["http://h.test:5000"]);
}

#[test]
fn credentials_come_from_a_closed_file_and_are_never_shown() {
    let text = |value: &str| format!("server = \"https://h.test\"\n[header]\nAuthorization = {value}\n");
    let user = BASE64.encode("user:s3cret:x");
    for (value, want) in [
        (format!("\"Basic {user}\""), "https://h.test basic user s3cret:x"),
        (format!("[\"basic {user}\"]"), "https://h.test basic user s3cret:x"),
        ("\"Bearer s3cret\"".to_owned(), "https://h.test bearer s3cret"),
    ] {
        let bed = Bed::new(&[("h.test/hosts.toml", &text(&value), 0o600)]);
        let registries = bed.load().unwrap();
        assert_eq!(shown(&registries, "h.test"), [want]);
        assert!(!format!("{registries:?}").contains("s3cret"));
    }
    for mode in [0o644, 0o640, 0o604] {
        let bed = Bed::new(&[("h.test/hosts.toml", &text("\"Bearer s3cret\""), mode)]);
        let error = bed.load().unwrap_err();
        assert!(error.contains("open to others") && error.contains("0600"), "{error}");
    }
}

#[test]
fn a_bad_file_is_named_with_its_key_and_never_with_a_value() {
    for (text, want) in [
        ("server = 5", "`server` is no text"),
        (
            "server = \"ftp://s3cret\"",
            "`server` has a scheme other than http and https",
        ),
        ("server = \"https://user:s3cret@h.test\"", "`server` holds a user"),
        ("server = \"https://h.test?token=s3cret\"", "`server` is no address"),
        ("server = \"https://\"", "`server` is no address"),
        ("host = 1", "`host` is no table"),
        ("[host]\nx = 1", "a `host` is no table"),
        (
            "[host.\"https://m\"]\ncapabilities = 1",
            "`capabilities` is neither a text nor a list",
        ),
        (
            "[host.\"https://m\"]\noverride_path = true",
            "`override_path` is not supported",
        ),
        (
            "[host.\"https://m\"]\nskip_verify = \"s3cret\"",
            "`skip_verify` is neither true nor false",
        ),
        ("[host.\"https://m\"]\nclient = \"s3cret\"", "client certificates"),
        ("[host.\"https://m\"]\nca = \"../s3cret\"", "`ca` names no plain path"),
        (
            "[host.\"https://m\"]\nca = \"none.pem\"",
            "read the registries' settings",
        ),
        (
            "[host.\"https://m\"]\nca = \"empty.pem\"",
            "/etc/registries/h.test/empty.pem holds no certificate",
        ),
        (
            "[host.\"https://m\".header]\nAuthorization = \"s3cret\"",
            "`Authorization` is neither",
        ),
        (
            "[host.\"https://m\".header]\nAuthorization = \"Basic s3cret\"",
            "`Authorization` is neither",
        ),
        (
            "[host.\"https://m\".header]\nX-Token = \"s3cret\"",
            "the header `X-Token` is not supported",
        ),
        ("\n\nAuthorization = s3cret", "not TOML at line 3"),
    ] {
        let bed = Bed::new(&[("h.test/hosts.toml", text, 0o600), ("h.test/empty.pem", "", 0o644)]);
        let error = bed.load().unwrap_err();
        assert!(error.contains(want) && !error.contains("s3cret"), "{text}: {error}");
        assert!(
            error.starts_with("/etc/registries/h.test/hosts.toml: ") || want.starts_with("read"),
            "{error}"
        );
    }
}

#[test]
fn certificates_come_from_the_file_named_and_from_the_hosts_bundles() {
    let certificate = |name: &str| {
        let key = rcgen::KeyPair::generate().unwrap();
        rcgen::CertificateParams::new(vec![name.to_owned()])
            .unwrap()
            .self_signed(&key)
            .unwrap()
            .pem()
    };
    let text = "[host.\"https://m.test\"]\nca = [\"own.pem\", \"/etc/registries/other.pem\"]\n";
    let bed = Bed::new(&[
        ("h.test/hosts.toml", text, 0o644),
        ("h.test/own.pem", &certificate("own"), 0o644),
        ("other.pem", &certificate("other"), 0o644),
    ]);
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let bundle = [certificate("host"), broken.to_owned()].concat();
    // As distributions have it: the bundle is an absolute link, which means the host's root.
    let real = HostPath::fixed("/var/lib/ca/bundle.pem");
    bed.host.write(&real, bundle.as_bytes(), 0o644).unwrap();
    bed.host.link("/var/lib/ca/bundle.pem", &BUNDLES[0]).unwrap();
    bed.host.write(&BUNDLES[1], bundle.as_bytes(), 0o644).unwrap();
    let registries = bed.load().unwrap();
    let counts: Vec<_> = registries
        .endpoints("h.test")
        .iter()
        .map(|endpoint| endpoint.certificates.len())
        .collect();
    assert_eq!(
        counts,
        [3, 1],
        "the mirror's two and the host's; the registry's own the host's alone"
    );
}
