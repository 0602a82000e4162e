use super::*;

const GOOD: &str = r#"{
  "schemaVersion": 1,
  "versions": {"kubernetes": "v1.34.0", "containerd": "2.1.8", "runc": "v1.5.0", "cni": "1.5.1", "crictl": "v1.34.0"},
  "containerImages": [" mcr.example/pause:3.9 ", "", "mcr.example/pause:3.9"],
  "builtBy": "another tool"
}"#;

#[test]
fn a_manifest_names_versions_without_v_and_each_image_once() {
    let manifest = Manifest::parse(GOOD.as_bytes()).unwrap();
    assert_eq!(
        (&*manifest.kubernetes, &*manifest.runc, &*manifest.crictl),
        ("1.34.0", "1.5.0", "1.34.0")
    );
    assert_eq!(manifest.images.iter().collect::<Vec<_>>(), ["mcr.example/pause:3.9"]);
    assert_eq!(manifest.npd, None);
    let with = GOOD.replace("\"1.5.1\"", "\"1.5.1\", \"npd\": \"v1.35.1\"");
    let with = Manifest::parse(with.as_bytes()).unwrap();
    assert_eq!(with.npd.as_deref(), Some("1.35.1"));
    assert!(
        files(&with, Arch::Arm64).iter().any(|(path, _)| {
            path == "node-problem-detector/v1.35.1/node-problem-detector-v1.35.1-linux_arm64.tar.gz"
        })
    );
    for schema in ["\"schemaVersion\": 0,", "", "\"schemaVersion\": null,"] {
        let text = GOOD.replace("\"schemaVersion\": 1,", schema);
        assert_eq!(Manifest::parse(text.as_bytes()).unwrap(), manifest);
    }
}

#[test]
fn what_is_wrong_with_a_manifest_is_named_by_its_keys() {
    let with = |from: &str, to: &str| {
        Manifest::parse(GOOD.replace(from, to).as_bytes())
            .unwrap_err()
            .to_string()
    };
    for (from, to, said) in [
        ("{\n", "[", "line 1"),
        ("\"v1.34.0\", \"containerd\"", "1, \"containerd\"", "line 3"),
        ("\"schemaVersion\": 1", "\"schemaVersion\": 2", "schemaVersion"),
        ("\"kubernetes\": \"v1.34.0\", ", "", "lacks versions.kubernetes"),
        ("\"v1.5.0\"", "\" v \"", "lacks versions.runc"),
        ("\"1.5.1\"", "\"../canary\"", "versions.cni"),
        ("\"1.5.1\"", "\"1.5.1\", \"npd\": \"../canary\"", "versions.npd"),
        ("2.1.8", "2.1.8\\n", "2.1.8 is trimmed"),
        ("pause:3.9\"]", "pause:3.9\", \"../canary\"]", "containerImages"),
        ("pause:3.9\"]", "pause:3.9\", \"a b\"]", "containerImages"),
    ] {
        if said.ends_with("trimmed") {
            assert!(Manifest::parse(GOOD.replace(from, to).as_bytes()).is_ok());
            continue;
        }
        let error = with(from, to);
        assert!(error.contains(said) && !error.contains("canary"), "{error}");
    }
    let error = Manifest::parse(b"{}").unwrap_err().to_string();
    assert!(
        error.contains("versions.kubernetes, versions.containerd, versions.runc, versions.cni, versions.crictl"),
        "{error}"
    );
}

#[test]
fn files_lie_where_the_references_bundles_have_them() {
    let manifest = Manifest::parse(GOOD.as_bytes()).unwrap();
    let files: Vec<_> = files(&manifest, Arch::Amd64)
        .into_iter()
        .map(|(path, _)| path)
        .collect();
    assert_eq!(
        files,
        [
            "kubernetes/v1.34.0/bin/linux/amd64/kubelet",
            "kubernetes/v1.34.0/bin/linux/amd64/kubectl",
            "kubernetes/v1.34.0/bin/linux/amd64/kube-proxy",
            "crictl/v1.34.0/crictl-v1.34.0-linux-amd64.tar.gz",
            "containerd/v2.1.8/containerd-2.1.8-linux-amd64.tar.gz",
            "runc/v1.5.0/runc.amd64",
            "cni/v1.5.1/cni-plugins-linux-amd64-v1.5.1.tgz",
            // The digits are the digest's, by sha256sum.
            "container-images/amd64/mcr.example_pause_3.9-c5220912f033.tar",
        ]
    );
}
