//! What others write and the agent reads: any bytes may come, and none may end the agent, be half taken, or be repeated.
//!
//! Each target states what holds for every input, and panics where it does not. `cargo fuzz` searches for such inputs; the
//! test replays those of `corpus/`, which is kept small: what was found, and one input for each road through the code.

use std::collections::BTreeMap;

use agent::operation::parse_upgrade;
use agent::store::{journal, selection};
use agent::{bootstrap, config};
use hostexec::HostPath;
use image::{Digest, ImageRef, Repository};

/// A word that no text of the agent's own has: a secret where one may stand.
const CANARY: &str = "c4narysecret";

/// References to images, and URLs of operations: what is taken reads back as itself, and an error repeats nothing.
pub fn reference(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match text.parse::<ImageRef>() {
        Ok(image) => assert_eq!(
            image.to_string().parse::<ImageRef>(),
            Ok(image),
            "a reference reads back"
        ),
        Err(error) => silent(&error, text),
    }
    match Repository::parse_loose(text) {
        Ok(repository) => {
            let image = repository.clone().at(Digest::of(b""));
            assert_eq!(
                image.to_string().parse::<ImageRef>(),
                Ok(image),
                "a repository makes a reference"
            );
        }
        Err(error) => silent(&error, text),
    }
    if let Ok(digest) = Digest::parse_hex_lenient(text) {
        assert_eq!(digest.as_str().parse::<Digest>(), Ok(digest), "a digest reads back");
    }
}

/// The bootstrap's inputs and the files that name images: taken or refused, and an error repeats no value.
pub fn env_file(data: &[u8]) {
    if let Err(error) = bootstrap::Inputs::parse(data) {
        assert!(
            !format!("{error} {error:?}").contains(CANARY),
            "an error repeats a value"
        );
    }
    let path = HostPath::fixed("/etc/aks-flex-node/agent-image.env");
    match selection::parse(data, &path) {
        Ok(image) => {
            let line = selection::line(&image);
            assert_eq!(
                selection::parse(line.as_bytes(), &path).ok(),
                Some(image),
                "a selection reads back"
            );
        }
        Err(error) => assert!(!error.to_string().contains(CANARY), "an error repeats a value"),
    }
}

/// The journal: read or refused by name, never taken for none, and what is read is written as it was meant.
pub fn journal(data: &[u8]) {
    if let Ok(upgrade) = journal::parse(data) {
        let line = journal::render(&upgrade).expect("a journal that is there is never idle");
        assert_eq!(
            journal::parse(line.as_bytes()).ok(),
            Some(upgrade),
            "a journal reads back"
        );
    }
}

/// The configuration: meant or refused, and an error repeats no value.
pub fn config(data: &[u8]) {
    if let Err(error) = config::parse(data, &config::PATH, "edge-1") {
        let mut text = error.to_string();
        let mut cause: Option<&dyn std::error::Error> = std::error::Error::source(&error);
        while let Some(error) = cause {
            text.push_str(&error.to_string());
            cause = error.source();
        }
        assert!(!text.contains(CANARY), "an error repeats a value: {text}");
    }
}

/// An operation's parameters, a line `key=value` each: an image or a fixed text.
pub fn operation(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let parameters: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    match parse_upgrade(&parameters) {
        Ok(wanted) => assert_eq!(
            wanted.to.to_string().parse::<ImageRef>(),
            Ok(wanted.to),
            "an image reads back"
        ),
        Err(error) => silent(&error, text),
    }
}

/// A fixed text: it has nothing of the input but words that are its own.
fn silent(error: &impl std::error::Error, input: &str) {
    let text = format!("{error} {error:?}");
    assert!(
        !input.contains(CANARY) || !text.contains(CANARY),
        "an error repeats the input: {text}"
    );
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    type Target = (&'static str, fn(&[u8]));

    #[test]
    fn nothing_of_the_corpus_ends_the_agent() {
        let targets: [Target; 5] = [
            ("reference", super::reference),
            ("env_file", super::env_file),
            ("journal", super::journal),
            ("config", super::config),
            ("operation", super::operation),
        ];
        for (name, target) in targets {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
            let inputs = fs::read_dir(&folder).expect("each target has a corpus");
            let mut count = 0;
            for input in inputs {
                target(&fs::read(input.expect("a folder can be read").path()).expect("an input can be read"));
                count += 1;
            }
            assert!(count > 0, "{} is empty", folder.display());
            target(b"");
        }
    }
}
