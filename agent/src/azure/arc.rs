//! Azure Arc's agent on the host: it gives the machine's token to whoever can read the answer to its challenge, a file that it made for it.
//!
//! ```text
//! GET token ─▶ 401, the file's path ─▶ its content (root's to read) ─▶ GET token with it ─▶ token
//! ```
//!
//! Source: "Authenticate against Azure resources with Azure Arc-enabled servers"; the folder, the file's end and its length: the Azure
//! identity libraries, which check the same before they read what a stranger on the port might name.

use std::io::{self, Read as _};

use hostexec::{Host, HostPath};

use crate::model::Secret;

/// Where it answers.
pub(super) const ARC: &str = "http://127.0.0.1:40342";
/// Where its challenges' answers lie.
const FOLDER: HostPath = HostPath::fixed("/var/opt/azcmagent/tokens");
/// How their names end.
const END: &str = ".key";
/// An answer is no longer, in bytes.
const LONGEST: u64 = 4096;

/// The answers to challenges, on a host.
#[derive(Clone, Debug)]
pub struct Keys(Host);

impl Keys {
    /// Those of this host.
    #[must_use]
    pub fn of(host: &Host) -> Self {
        Self(host.clone())
    }

    /// An answer.
    ///
    /// # Errors
    /// It can't be read, or is none.
    pub(super) fn read(&self, path: &HostPath) -> io::Result<Secret<String>> {
        let bad = |what| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        if !self.0.metadata(path)?.is_file() {
            return bad("it is no file");
        }
        let mut text = String::new();
        self.0.open(path)?.take(LONGEST + 1).read_to_string(&mut text)?;
        let fits = text.len() as u64 <= LONGEST && !text.is_empty();
        match fits && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            true => Ok(Secret::new(text)),
            // It becomes a header.
            false => bad("it holds no answer"),
        }
    }
}

/// The file that a challenge names: `Basic realm=/var/opt/azcmagent/tokens/….key`. None: it names another.
pub(super) fn challenge(header: &str) -> Option<HostPath> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    let (name, path) = rest.trim().split_once('=')?;
    let path = HostPath::new(path.trim().trim_matches('"')).ok()?;
    let own = scheme.eq_ignore_ascii_case("basic")
        && name.eq_ignore_ascii_case("realm")
        && path.parent() == Some(FOLDER)
        && path.name().ends_with(END);
    own.then_some(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_challenge_names_a_file_of_its_folder_and_nothing_else() {
        let good = "/var/opt/azcmagent/tokens/a-1.key";
        for header in [
            format!("Basic realm={good}"),
            format!("basic Realm=\"{good}\""),
            format!(" Basic  realm={good} "),
        ] {
            assert_eq!(challenge(&header), Some(HostPath::fixed(good)), "{header}");
        }
        for header in [
            "",
            "Basic",
            "Basic realm=",
            "Bearer realm=/var/opt/azcmagent/tokens/a.key",
            "Basic user=/var/opt/azcmagent/tokens/a.key",
            "Basic realm=/etc/shadow",
            "Basic realm=/etc/shadow.key",
            "Basic realm=/var/opt/azcmagent/tokens/a",
            "Basic realm=/var/opt/azcmagent/tokens/b/a.key",
            "Basic realm=/var/opt/azcmagent/tokens/../a.key",
            "Basic realm=a.key",
        ] {
            assert_eq!(challenge(header), None, "{header}");
        }
    }

    #[test]
    fn an_answer_is_a_short_line_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::of(&Host::rooted(dir.path()));
        let path = HostPath::fixed("/var/opt/azcmagent/tokens/a.key");
        assert_eq!(keys.read(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let write = |text: &str| keys.0.write(&path, text.as_bytes(), 0o640).unwrap();
        write("YWJj");
        assert_eq!(keys.read(&path).unwrap().reveal(), "YWJj");
        for bad in ["", "canary\r\nX: y", &"canary".repeat(1000)] {
            write(bad);
            assert!(!keys.read(&path).unwrap_err().to_string().contains("canary"));
        }
        keys.0.remove(&path).unwrap();
        symlink("/var/opt", dir.path().join("var/opt/azcmagent/tokens/a.key")).unwrap();
        assert!(keys.read(&path).is_err());
    }
}
