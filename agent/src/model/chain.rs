//! An error as one line.

use std::{error::Error, fmt::Write as _};

/// An error and its sources on one line, whatever they contain.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut line = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let separator = if line.is_empty() { "" } else { ": " };
        // A source whose text its owner has already told isn't told twice.
        let text = error.to_string();
        if !line.ends_with(&text) {
            let _ = write!(line, "{separator}{text}");
        }
        next = error.source();
    }
    line.replace(|c: char| c.is_control(), " ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("write the configuration")]
    struct Outer(#[source] io::Error);

    #[derive(Debug, thiserror::Error)]
    #[error("again: {0}")]
    struct Told(#[source] io::Error);

    #[test]
    fn the_chain_is_one_line_and_tells_nothing_twice() {
        assert_eq!(
            chain(&Outer(io::Error::other("no space\nleft"))),
            "write the configuration: no space left"
        );
        assert_eq!(chain(&Told(io::Error::other("full"))), "again: full");
    }
}
