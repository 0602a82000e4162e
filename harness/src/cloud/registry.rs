//! The registry of a run: Debian's docker-registry over TLS, and what its access log says.

use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use image::ImageRef;

use super::log::Mark;
use super::server::{self, Socket};
use crate::ca::Ca;
use crate::net::Net;
use crate::run::Run;

/// Its name for hosts.
pub(crate) const HOST: &str = "registry.test";
pub(crate) const PORT: u16 = 5000;
/// The server's name in the run.
pub(crate) const SERVER: &str = "registry";

/// A registry that may run or not.
#[derive(Clone, Debug)]
pub(crate) struct Registry {
    run: Run,
    net: Net,
}

/// One request, as the access log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The address of who asked.
    pub(crate) from: String,
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) status: u16,
}

impl Request {
    /// Whether it fetched a manifest or a blob: more than the question whether one is there.
    pub(crate) fn is_pull(&self) -> bool {
        self.method == "GET" && (self.path.contains("/manifests/") || self.path.contains("/blobs/"))
    }
}

impl Registry {
    /// The registry of a run.
    pub(crate) fn of(run: &Run, net: &Net) -> Self {
        Self {
            run: run.clone(),
            net: net.clone(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.run.cloud_dir().join("registry")
    }

    /// Makes its folder, certificate and configuration.
    ///
    /// # Errors
    /// A file can't be written or the certificate not be made.
    pub(crate) async fn prepare(&self, ca: &Ca) -> Result<()> {
        let folder = self.folder();
        crate::cache::private_dir(&folder.join("trust"))?;
        let names = [format!("DNS:{HOST}"), format!("IP:{}", self.net.gateway())];
        let pair = ca.issue(&folder, "tls", &names).await?;
        std::fs::copy(ca.certificate(), folder.join("trust/ca.crt"))?;
        let config = serde_json::json!({
            "version": "0.1",
            "log": { "level": "warn", "accesslog": { "disabled": false } },
            "storage": { "filesystem": { "rootdirectory": folder.join("data") }, "delete": { "enabled": true } },
            "http": {
                "addr": format!("{}:{PORT}", self.net.gateway()),
                "tls": { "certificate": pair.certificate, "key": pair.key },
            },
        });
        Ok(std::fs::write(folder.join("config.yml"), config.to_string())?)
    }

    /// Starts it, unless it runs.
    ///
    /// # Errors
    /// It does not start or serve.
    pub(crate) async fn start(&self) -> Result<()> {
        let command = self
            .net
            .command("docker-registry")
            .env("OTEL_TRACES_EXPORTER", "none")
            .arg("serve")
            .arg(self.folder().join("config.yml"));
        let port = Socket::Tcp(SocketAddrV4::new(self.net.gateway().parse()?, PORT));
        server::start(&self.run, SERVER, command, async |process| {
            Ok(server::listens(process, port))
        })
        .await
    }

    /// Pushes the only image of an OCI layout, and returns how hosts name it.
    ///
    /// # Errors
    /// skopeo's, or the digest it reports is none.
    pub(crate) async fn push(&self, layout: &Path, repository: &str, tag: &str) -> Result<ImageRef> {
        let digest = tempfile::NamedTempFile::new()?;
        let to = format!("docker://{}:{PORT}/{repository}:{tag}", self.net.gateway());
        self.net
            .command("skopeo")
            .args([
                "copy",
                "--quiet",
                "--preserve-digests",
                "--insecure-policy",
                "--dest-cert-dir",
            ])
            .arg(self.folder().join("trust"))
            .arg("--digestfile")
            .arg(digest.path())
            .arg(format!("oci:{}", layout.display()))
            .arg(to)
            .limit(Duration::from_secs(300))
            .run()
            .await?;
        let digest = std::fs::read_to_string(digest.path())?;
        let name = format!("{HOST}:{PORT}/{repository}@{}", digest.trim());
        name.parse().ok().with_context(|| format!("{name} names no image"))
    }

    /// The end of the access log as it is now.
    pub(crate) fn mark(&self) -> Mark {
        Mark::end(&self.run.log(SERVER))
    }

    /// The requests since a mark. One is logged when it is answered.
    ///
    /// # Errors
    /// The log can't be read.
    pub(crate) fn requests(&self, since: Mark) -> Result<Vec<Request>> {
        let lines = since.rest(&self.run.log(SERVER))?;
        Ok(lines.lines().filter_map(request).collect())
    }

    /// The manifests and blobs that an address has fetched since a mark.
    ///
    /// # Errors
    /// The log can't be read.
    pub(crate) fn pulls(&self, address: &str, since: Mark) -> Result<Vec<Request>> {
        Ok(self
            .requests(since)?
            .into_iter()
            .filter(|request| request.from == address && request.is_pull())
            .collect())
    }
}

/// Source: Apache's combined log format, which docker-registry writes: `FROM - - [TIME] "METHOD PATH PROTOCOL" STATUS SIZE "" ""`.
fn request(line: &str) -> Option<Request> {
    let (from, rest) = line.split_once(" - - [")?;
    let mut parts = rest.split('"').skip(1);
    let mut asked = parts.next()?.split(' ');
    let status = parts.next()?.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Request {
        from: from.to_owned(),
        method: asked.next()?.to_owned(),
        path: asked.next()?.to_owned(),
        status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_is_told_from_a_question_and_from_other_lines() {
        let pull = "10.88.1.10 - - [29/Nov/2026:19:53:57 +0000] \"GET /v2/pause/blobs/sha256:3cc0 HTTP/2.0\" 200 1160 \"\" \"containerd/1.7.24\"";
        let seen = request(pull).unwrap();
        assert_eq!(
            (seen.from.as_str(), seen.path.as_str(), seen.status),
            ("10.88.1.10", "/v2/pause/blobs/sha256:3cc0", 200)
        );
        assert!(seen.is_pull());
        let asked = request(&pull.replace("GET", "HEAD")).unwrap();
        assert!(!asked.is_pull());
        assert_eq!(
            request("time=\"2026-11-29T19:48:26Z\" level=warning msg=\"No HTTP secret provided\""),
            None
        );
    }
}
