//! The grammar of systemd's `EnvironmentFile=`, and nothing less strict: what systemd would drop unseen is an error.
//!
//! ```text
//!  line start ──#;──▶ comment            name ──=──▶ before value ──'──▶ single quoted ──'──┐
//!      └──other──▶ name                                  ▲  ├──"──▶ double quoted ──"──┤
//!                                                        └──┼───────────────────────────────┘
//!                                                           └──other──▶ bare, `\` takes the next character
//! ```
//! Source: systemd.exec(5), "EnvironmentFile="; the states are those of systemd's `env-file.c`, version 257.

use std::fmt;

/// One line of the file that can't be read. No text of the line is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} {wrong}")]
pub struct Unreadable {
    /// From 1: where the assignment begins.
    pub line: usize,
    /// What is wrong.
    pub wrong: &'static str,
}

/// One assignment of the file. `Debug` shows neither name nor value.
#[derive(Clone, PartialEq, Eq)]
pub struct Assignment {
    /// From 1: where it begins.
    pub line: usize,
    /// Letters, digits and underscores.
    pub name: String,
    /// Without the quotes, which may hold an end of line.
    pub value: String,
}

impl fmt::Debug for Assignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assignment")
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

enum State {
    LineStart,
    Comment,
    CommentEscape,
    Name,
    BeforeValue,
    Bare,
    BareEscape,
    Single,
    Double,
    DoubleEscape,
}

/// What blanks are: systemd's `WHITESPACE`.
const BLANK: [char; 4] = [' ', '\t', '\n', '\r'];

/// Reads every assignment, in the file's order; of one name the last holds.
///
/// # Errors
/// A line that is no assignment, a name that is none, a quote that isn't closed, bytes that are no UTF-8 text.
pub fn parse(bytes: &[u8]) -> Result<Vec<Assignment>, Unreadable> {
    let text = std::str::from_utf8(bytes).map_err(|error| Unreadable {
        line: 1 + bytes[..error.valid_up_to()]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count(),
        wrong: "is not UTF-8",
    })?;
    let mut reader = Reader {
        state: State::LineStart,
        begin: 1,
        name: String::new(),
        value: String::new(),
        bare: 0,
        found: vec![],
    };
    let mut line = 1;
    for c in text.chars() {
        if c == '\0' {
            return Err(Unreadable {
                line,
                wrong: "has a NUL",
            });
        }
        reader.read(c, line)?;
        line += usize::from(c == '\n');
    }
    reader.end()
}

struct Reader {
    state: State,
    /// The line on which the assignment began.
    begin: usize,
    name: String,
    value: String,
    /// How much of the value stays when blanks at its end go: what was quoted or escaped does.
    bare: usize,
    found: Vec<Assignment>,
}

impl Reader {
    fn read(&mut self, c: char, line: usize) -> Result<(), Unreadable> {
        let newline = matches!(c, '\n' | '\r');
        match self.state {
            State::LineStart if matches!(c, '#' | ';') => self.state = State::Comment,
            State::LineStart if BLANK.contains(&c) => {}
            State::LineStart => {
                self.begin = line;
                self.name.push(c);
                self.state = State::Name;
            }
            State::Comment if c == '\\' => self.state = State::CommentEscape,
            State::Comment | State::CommentEscape => {
                self.state = if newline { State::LineStart } else { State::Comment }
            }
            State::Name if newline => return Err(self.wrong("is no assignment: write NAME=value")),
            State::Name if c == '=' => self.state = State::BeforeValue,
            State::Name => self.name.push(c),
            State::BeforeValue | State::Bare if newline => return self.push(),
            State::BeforeValue if c == '\'' => self.state = State::Single,
            State::BeforeValue if c == '"' => self.state = State::Double,
            State::BeforeValue | State::Bare if c == '\\' => self.state = State::BareEscape,
            State::BeforeValue if BLANK.contains(&c) => {}
            State::BeforeValue | State::Bare => {
                self.value.push(c);
                if !BLANK.contains(&c) {
                    self.bare = self.value.len();
                }
                self.state = State::Bare;
            }
            State::BareEscape => {
                self.state = State::Bare;
                if !newline {
                    self.keep(c);
                }
            }
            State::Single if c == '\'' => self.state = State::BeforeValue,
            State::Double if c == '"' => self.state = State::BeforeValue,
            State::Double if c == '\\' => self.state = State::DoubleEscape,
            State::Single | State::Double => self.keep(c),
            State::DoubleEscape => {
                self.state = State::Double;
                if c != '\n' {
                    if !matches!(c, '"' | '\\' | '`' | '$') {
                        self.keep('\\');
                    }
                    self.keep(c);
                }
            }
        }
        Ok(())
    }

    fn keep(&mut self, c: char) {
        self.value.push(c);
        self.bare = self.value.len();
    }

    fn end(mut self) -> Result<Vec<Assignment>, Unreadable> {
        match self.state {
            State::LineStart | State::Comment | State::CommentEscape => {}
            State::Name => return Err(self.wrong("is no assignment: write NAME=value")),
            State::Single | State::Double | State::DoubleEscape => {
                return Err(self.wrong("has a quote that is not closed"));
            }
            State::BeforeValue | State::Bare | State::BareEscape => self.push()?,
        }
        Ok(self.found)
    }

    fn push(&mut self) -> Result<(), Unreadable> {
        let name = self.name.trim_end_matches(BLANK);
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(plain) || name.is_empty() {
            return Err(self.wrong("has a name that no variable can have"));
        }
        let name = name.to_owned();
        self.value.truncate(self.bare);
        let value = std::mem::take(&mut self.value);
        self.found.push(Assignment {
            line: self.begin,
            name,
            value,
        });
        self.name.clear();
        self.bare = 0;
        self.state = State::LineStart;
        Ok(())
    }

    fn wrong(&self, wrong: &'static str) -> Unreadable {
        Unreadable {
            line: self.begin,
            wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text.as_bytes())
            .unwrap()
            .into_iter()
            .map(|found| (found.name, found.value))
            .collect()
    }

    #[test]
    fn values_read_as_systemd_reads_them() {
        for (text, value) in [
            ("A=b", "b"),
            ("A=b\n", "b"),
            ("A=b\r\n", "b"),
            ("  A  =  b c  \t\n", "b c"),
            ("A=", ""),
            ("A=\n", ""),
            ("A=\"b c \"", "b c "),
            ("A='b c '", "b c "),
            ("A=\"b\"'c'd", "bcd"),
            ("A=\"b\" 'c' d", "bcd"),
            ("A=b\"c\"", "b\"c\""),
            ("A=it's", "it's"),
            ("A=b\\ \n", "b "),
            ("A=b\\\n c", "b c"),
            ("A=\\\nb", "b"),
            ("A=b\\", "b"),
            ("A=\\'b", "'b"),
            ("A=\"b\\\nc\"", "bc"),
            ("A=\"b\\\rc\"", "b\\\rc"),
            ("A=\"b\nc\"", "b\nc"),
            ("A='b\nc\\n'", "b\nc\\n"),
            ("A=\"\\\"\\\\\\`\\$\\n\"", "\"\\`$\\n"),
            ("A='$x %h \"q\" \\'", "$x %h \"q\" \\"),
            ("A=$x %h `y`", "$x %h `y`"),
            ("A=b#c ;d", "b#c ;d"),
            ("A=b=c", "b=c"),
            ("A={\"k\": \"v\"}", "{\"k\": \"v\"}"),
            ("A='{\"k\": \"v\"}'", "{\"k\": \"v\"}"),
            ("\n\n# c\n; c\n#A=x\\\nA=b", "b"),
            ("A=ü", "ü"),
        ] {
            assert_eq!(pairs(text), [("A".to_owned(), value.to_owned())], "{text:?}");
        }
        assert_eq!(pairs("A=1\nB=2\nA=3").len(), 3);
        assert!(pairs("\n# only\n ; comments").is_empty());
    }

    #[test]
    fn what_systemd_drops_unseen_is_an_error() {
        for (text, line, wrong) in [
            ("A=1\nB", 2, "is no assignment: write NAME=value"),
            ("B\nA=1", 1, "is no assignment: write NAME=value"),
            ("A=1\n\nB=\"canary", 3, "has a quote that is not closed"),
            ("A='canary", 1, "has a quote that is not closed"),
            ("export A=1", 1, "has a name that no variable can have"),
            ("=canary", 1, "is no assignment: write NAME=value"),
            ("1A=x", 1, "has a name that no variable can have"),
            ("A-B=x", 1, "has a name that no variable can have"),
            ("A=\"x\ny\"\nB-=x", 3, "has a name that no variable can have"),
            ("A=1\nB=\0", 2, "has a NUL"),
        ] {
            assert_eq!(
                parse(text.as_bytes()).err(),
                Some(Unreadable { line, wrong }),
                "{text:?}"
            );
        }
        assert_eq!(
            parse(b"A=1\nB=\xff").err(),
            Some(Unreadable {
                line: 2,
                wrong: "is not UTF-8"
            })
        );
    }

    #[test]
    fn a_line_that_is_continued_belongs_to_its_value() {
        assert_eq!(
            pairs("A=/a\\\nB=canary\nC='{\n\"k\": 1}'\n"),
            [
                ("A".to_owned(), "/aB=canary".to_owned()),
                ("C".to_owned(), "{\n\"k\": 1}".to_owned())
            ]
        );
    }

    #[test]
    fn debug_shows_nothing_of_an_assignment() {
        let found = parse(b"CANARY=canary").unwrap();
        assert!(!format!("{found:?}").to_lowercase().contains("canary"));
    }

    proptest::proptest! {
        #[test]
        fn a_quoted_value_arrives_unchanged(value in "[^\0]{0,40}") {
            let single = value.replace('\'', "'\"'\"'");
            let double = value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$").replace('`', "\\`");
            for text in [format!("A='{single}'\n"), format!("A=\"{double}\"\n")] {
                proptest::prop_assert_eq!(pairs(&text), [("A".to_owned(), value.clone())]);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
