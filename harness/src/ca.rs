//! The bed's own certificate authority: made once in the cache, trusted by every host, and used for registry, downloads and names.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::cache::Cache;
use crate::command::Command;
use crate::run;

/// What it calls itself.
pub(crate) const NAME: &str = "aks-flex-node harness";

/// The authority's files.
#[derive(Clone, Debug)]
pub(crate) struct Ca {
    /// `ca.crt`, `ca.key` (0600).
    dir: PathBuf,
}

/// A server's key and certificate.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) key: PathBuf,
    /// The certificate alone: the authority's own is in every host.
    pub(crate) certificate: PathBuf,
}

impl Ca {
    /// The cache's authority, made if there is none yet.
    ///
    /// # Errors
    /// `openssl` fails.
    pub(crate) async fn of(cache: &Cache) -> Result<Self> {
        let make = async |new: &Path| {
            let key = generate().await?;
            run::secret(&new.join("ca.key"), key.as_bytes())?;
            Command::line(&[
                "openssl", "req", "-x509", "-key", "ca.key", "-out", "ca.crt", "-days", "3650",
            ])
            .args(["-subj", &format!("/CN={NAME}")])
            .args(["-addext", "keyUsage=critical,keyCertSign,cRLSign"])
            .dir(new)
            .run()
            .await
        };
        Ok(Self {
            dir: cache.produce("ca", "EC P-256, ten years", make).await?,
        })
    }

    /// The authority's certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    /// Its key.
    pub(crate) fn key(&self) -> PathBuf {
        self.dir.join("ca.key")
    }

    /// Makes `NAME.key` and `NAME.crt` in `dir`. `names` are as openssl takes them: `DNS:registry.test`, `IP:10.88.1.1`.
    ///
    /// # Errors
    /// `openssl` fails, or there is a `NAME.key` already.
    pub(crate) async fn issue(&self, dir: &Path, name: &str, names: &[String]) -> Result<Pair> {
        let file = |end: &str| dir.join(format!("{name}.{end}"));
        let pair = Pair {
            key: file("key"),
            certificate: file("crt"),
        };
        run::secret(&pair.key, generate().await?.as_bytes())?;
        let request = file("csr");
        let extensions = file("ext");
        fs::write(
            &extensions,
            format!(
                "subjectAltName={}\nextendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n",
                names.join(",")
            ),
        )?;
        let subject = format!("/CN={name}");
        Command::line(&["openssl", "req", "-new", "-subj", &subject, "-key"])
            .arg(&pair.key)
            .arg("-out")
            .arg(&request)
            .run()
            .await?;
        Command::line(&["openssl", "x509", "-req", "-days", "3650", "-in"])
            .arg(&request)
            .arg("-CA")
            .arg(self.certificate())
            .arg("-CAkey")
            .arg(self.key())
            .arg("-CAcreateserial")
            .arg("-CAserial")
            .arg(file("srl"))
            .arg("-extfile")
            .arg(&extensions)
            .arg("-out")
            .arg(&pair.certificate)
            .run()
            .await?;
        Ok(pair)
    }
}

/// A new private key, which only ever lies in our memory and in a file of mode 0600.
async fn generate() -> Result<String> {
    Command::line(&[
        "openssl",
        "genpkey",
        "-algorithm",
        "EC",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
    ])
    .read()
    .await
}
