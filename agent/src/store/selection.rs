//! Which image the agent's units run: the selected one, the last good one, and the install's.
//!
//! Each is one line of a file that systemd reads as `EnvironmentFile=` (node-agent specification 10B.3).

use std::io;

use hostexec::{Host, HostPath, Written};
use image::ImageRef;
use tracing::warn;
use units::name;

use super::aside;

/// The selected image; goes before the install's.
pub const SELECTED: HostPath = HostPath::fixed(name::AGENT_IMAGE_ENV);
/// The image that recovery runs.
pub const LAST_GOOD: HostPath = HostPath::fixed(name::AGENT_IMAGE_LAST_GOOD_ENV);
/// The install's settings.
pub const SETTINGS: HostPath = HostPath::fixed(name::SETTINGS_ENV);

/// Why no image can be read from a file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// There is no such line in it.
    #[error("{path} does not set {}", name::IMAGE_KEY)]
    Unset {
        /// The file.
        path: HostPath,
    },
    /// The line names no image by digest. What it says is not repeated.
    #[error("{} in {path} is no image by digest: {why}", name::IMAGE_KEY)]
    Malformed {
        /// The file.
        path: HostPath,
        /// What is wrong with it.
        why: image::RefError,
    },
}

/// The image that this file names; none when there is no such file.
///
/// # Errors
/// When the file names none, or can't be read; the text names the path.
pub fn load(host: &Host, path: &HostPath) -> Result<Option<ImageRef>, Error> {
    match host.read(path) {
        Ok(bytes) => parse(&bytes, path).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The image that these bytes of a file at `path` name.
///
/// # Errors
/// When they name none; the text names the path.
pub fn parse(bytes: &[u8], path: &HostPath) -> Result<ImageRef, Error> {
    let text = String::from_utf8_lossy(bytes);
    let value = value_of(&text, name::IMAGE_KEY).ok_or_else(|| Error::Unset { path: path.clone() })?;
    value.parse().map_err(|why| Error::Malformed {
        path: path.clone(),
        why,
    })
}

/// The line that names an image.
#[must_use]
pub fn line(image: &ImageRef) -> String {
    format!("{}={image}\n", name::IMAGE_KEY)
}

/// The image the agent's unit runs at its next start: the selected one, or the install's when that one is not to be used,
/// as the unit itself has it.
///
/// # Errors
/// When neither file names an image.
pub fn next(host: &Host) -> Result<ImageRef, Error> {
    if let Ok(Some(image)) = load(host, &SELECTED) {
        return Ok(image);
    }
    load(host, &SETTINGS)?.ok_or(Error::Unset { path: SETTINGS })
}

/// Makes this file name that image. A folder in its place is put aside: a host must not lose its agent to it.
///
/// # Errors
/// When it could not be written; the old file stands.
pub fn save(host: &Host, path: &HostPath, image: &ImageRef) -> io::Result<Written> {
    let write = || host.write_if_changed(path, line(image).as_bytes(), 0o600);
    let written = write();
    if written.is_ok() || !host.is_dir(path).unwrap_or(false) {
        return written;
    }
    let to = HostPath::new(format!("{path}.unreadable")).map_err(io::Error::other)?;
    aside::put(host, path, &to)?;
    warn!(%path, %to, "a folder was in the place of a file");
    write()
}

/// Makes this image what the agent's unit runs at its next start. Where nothing is selected and the install's settings name
/// it, nothing is written: their word holds, also when it changes.
///
/// # Errors
/// When it could not be written; the old file stands.
pub fn select(host: &Host, image: &ImageRef) -> io::Result<Written> {
    let unselected = matches!(load(host, &SELECTED), Ok(None));
    if unselected && next(host).is_ok_and(|next| next == *image) {
        return Ok(Written::Same);
    }
    save(host, &SELECTED, image)
}

/// The folder that the install's settings name for the registries, if they do.
///
/// # Errors
/// When the settings can't be read; of the kind `InvalidInput` when they name no plain path.
pub fn hosts_dir(host: &Host) -> io::Result<Option<HostPath>> {
    let text = match host.read(&SETTINGS) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let plain = |value: &str| {
        let path = HostPath::new(value);
        path.map_err(|why| {
            let text = format!("{} in {SETTINGS}: {why}; write an absolute path", name::HOSTS_DIR_KEY);
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })
    };
    value_of(&text, name::HOSTS_DIR_KEY)
        .filter(|value| !value.is_empty())
        .map(plain)
        .transpose()
}

/// The last value the text gives the key, with the quotes off that systemd would take off.
fn value_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';']));
    let values = lines
        .filter_map(|line| line.split_once('='))
        .filter(|(name, _)| name.trim() == key);
    let value = values.map(|(_, value)| value.trim()).next_back()?;
    let quoted = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    Some(quoted('"').or_else(|| quoted('\'')).unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn image(digit: char) -> ImageRef {
        format!("registry.test/agent@sha256:{}", digit.to_string().repeat(64))
            .parse()
            .unwrap()
    }

    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        (dir, host)
    }

    #[test]
    fn a_selection_is_one_line_of_mode_0600_and_reads_back() {
        let (dir, host) = host();
        assert!(load(&host, &SELECTED).unwrap().is_none());
        save(&host, &SELECTED, &image('a')).unwrap();
        let file = dir.path().join("etc/aks-flex-node/agent-image.env");
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            format!("AKS_FLEX_NODE_AGENT_IMAGE={}\n", image('a'))
        );
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load(&host, &SELECTED).unwrap(), Some(image('a')));
    }

    #[test]
    fn a_folder_in_the_place_of_a_selection_is_put_aside() {
        let (dir, host) = host();
        let path = dir.path().join("etc/aks-flex-node/agent-image.env");
        for digit in ['a', 'b'] {
            std::fs::create_dir_all(path.join("kept")).unwrap();
            select(&host, &image(digit)).unwrap();
            assert_eq!(load(&host, &SELECTED).unwrap(), Some(image(digit)));
            std::fs::remove_file(&path).unwrap();
        }
        for aside in ["agent-image.env.unreadable/kept", "agent-image.env.unreadable.2/kept"] {
            assert!(path.with_file_name(aside).is_dir(), "{aside}");
        }
    }

    #[test]
    fn fc_r15_an_empty_selection_is_no_selection_and_the_installs_image_is_next() {
        let (_dir, host) = host();
        assert!(matches!(next(&host), Err(Error::Unset { .. })));
        save(&host, &SETTINGS, &image('a')).unwrap();
        assert_eq!(next(&host).unwrap(), image('a'));
        for broken in [
            "",
            "AKS_FLEX_NODE_AGENT_IMAGE=\n",
            "AKS_FLEX_NODE_AGENT_IMAGE=registry.test/agent:v1\n",
        ] {
            host.write(&SELECTED, broken.as_bytes(), 0o600).unwrap();
            assert_eq!(next(&host).unwrap(), image('a'), "{broken}");
        }
        save(&host, &SELECTED, &image('b')).unwrap();
        assert_eq!(next(&host).unwrap(), image('b'));
    }

    #[test]
    fn what_the_settings_name_is_selected_without_a_file_and_a_file_is_always_made_right() {
        let (_dir, host) = host();
        save(&host, &SETTINGS, &image('a')).unwrap();
        assert_eq!(select(&host, &image('a')).unwrap(), Written::Same);
        assert!(!host.exists(&SELECTED).unwrap());
        assert_eq!(select(&host, &image('b')).unwrap(), Written::Changed);
        assert_eq!(select(&host, &image('a')).unwrap(), Written::Changed);
        assert_eq!(load(&host, &SELECTED).unwrap(), Some(image('a')));
        host.write(&SELECTED, b"", 0o600).unwrap();
        assert_eq!(select(&host, &image('a')).unwrap(), Written::Changed);
    }

    #[test]
    fn na_r13_an_error_names_the_file_and_not_what_it_says() {
        let (_dir, host) = host();
        host.write(&SETTINGS, b"AKS_FLEX_NODE_AGENT_IMAGE=user:c4nary@h/r\n", 0o600)
            .unwrap();
        let error = next(&host).unwrap_err().to_string();
        assert!(error.contains("/etc/aks-flex-node-agent.env"), "{error}");
        assert!(!error.contains("c4nary"), "{error}");
    }

    #[test]
    fn the_registries_folder_is_the_settings() {
        let (_dir, host) = host();
        assert_eq!(hosts_dir(&host).unwrap(), None);
        host.write(&SETTINGS, b"AKS_FLEX_NODE_AGENT_HOSTS_DIR=/etc/registries\n", 0o600)
            .unwrap();
        assert_eq!(hosts_dir(&host).unwrap().unwrap().as_str(), "/etc/registries");
        host.write(&SETTINGS, b"AKS_FLEX_NODE_AGENT_HOSTS_DIR=../x\n", 0o600)
            .unwrap();
        assert!(hosts_dir(&host).is_err());
        host.write(&SETTINGS, b"AKS_FLEX_NODE_AGENT_HOSTS_DIR=\n", 0o600)
            .unwrap();
        assert_eq!(hosts_dir(&host).unwrap(), None);
    }

    #[test]
    fn the_last_line_wins_and_quotes_and_comments_are_systemds() {
        let (a, b) = (image('a'), image('b'));
        let key = name::IMAGE_KEY;
        for text in [
            format!("{key}={a}\n{key}={b}"),
            format!("# {key}={a}\n; x\nOTHER=1\n {key} = \"{b}\" \n"),
            format!("{key}='{b}'\r\n"),
        ] {
            assert_eq!(value_of(&text, key), Some(b.to_string().as_str()), "{text}");
        }
        assert_eq!(value_of("OTHER=1\n", key), None);
    }
}
