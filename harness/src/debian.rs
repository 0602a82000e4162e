//! Debian's mirror, as this machine is configured: what the bed builds comes from there and from nowhere else.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// The URL of the first Debian mirror in the machine's apt sources. No tree that we build may keep it.
///
/// # Errors
/// There is none.
pub(crate) fn mirror() -> Result<String> {
    let mut files = vec!["/etc/apt/sources.list".into()];
    if let Ok(more) = fs::read_dir("/etc/apt/sources.list.d") {
        let mut more: Vec<_> = more.filter_map(|entry| Some(entry.ok()?.path())).collect();
        more.sort();
        files.extend(more);
    }
    files
        .iter()
        .find_map(|file: &std::path::PathBuf| first(&fs::read_to_string(file).ok()?))
        .with_context(|| {
            format!(
                "no Debian mirror in {} or below it",
                Path::new("/etc/apt/sources.list").display()
            )
        })
}

/// The first URL of a sources file, of either form, that leads to Debian itself: `main` is among its components.
fn first(text: &str) -> Option<String> {
    for stanza in text.split("\n\n") {
        let field = |name: &str| stanza.lines().find_map(|line| line.strip_prefix(name));
        if let (Some(uris), Some(suites)) = (field("URIs:"), field("Suites:"))
            && field("Components:").is_some_and(|components| components.split_whitespace().any(|word| word == "main"))
            && !suites.contains("-security")
        {
            let first = uris.split_whitespace().next()?;
            if first.contains("debian") {
                return Some(first.to_owned());
            }
        }
    }
    let line = text
        .lines()
        .find(|line| line.starts_with("deb ") && line.contains(" main") && line.contains("debian"))?;
    line.split_whitespace()
        .find(|word| word.contains("://"))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_sources_file_are_read() {
        let stanzas = "Types: deb\nURIs: http://deb.example/debian-security\nSuites: bookworm-security\nComponents: main\n\n\
                       Types: deb\n# a word\nURIs: http://deb.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n";
        assert_eq!(first(stanzas).unwrap(), "http://deb.example/debian");
        assert_eq!(
            first("deb [signed-by=/x] https://deb.example/debian trixie main\n").unwrap(),
            "https://deb.example/debian"
        );
        assert_eq!(first("deb https://packages.example/apt cloud main\n"), None);
    }
}
