//! Files of `KEY=value` lines, as far as a linter must understand systemd's `EnvironmentFile=`.

use std::collections::BTreeMap;

use crate::Error;

/// The keys and values of `bytes`; a later line goes before an earlier one.
pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<BTreeMap<String, String>, Error> {
    let text = std::str::from_utf8(bytes).map_err(|_| Error::file(file, "it is not UTF-8 text"))?;
    if text.contains('\0') {
        return Err(Error::file(file, "it holds a NUL"));
    }
    let mut values = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let at = at + 1;
        let (key, value) = line
            .split_once('=')
            .ok_or_else(|| Error::file(file, format!("line {at} is no KEY=value")))?;
        let (key, value) = (key.trim(), value.trim());
        let named = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if key.is_empty() || !key.chars().all(named) || key.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(Error::file(
                file,
                format!("line {at}: a key is letters, digits and underscores, without space or `export`"),
            ));
        }
        values.insert(key.to_owned(), unquoted(value).to_owned());
    }
    Ok(values)
}

fn unquoted(value: &str) -> &str {
    let within = |quote: char| value.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    within('"').or_else(|| within('\'')).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_quotes_and_later_lines_are_understood() {
        let values = parse("x.env", b"# c\n\n; c\nA=1\n B = \"2 3\" \nA='4'\n").unwrap();
        assert_eq!(
            values,
            BTreeMap::from([("A".into(), "4".into()), ("B".into(), "2 3".into())])
        );
    }

    #[test]
    fn a_line_that_is_none_is_refused_by_its_number_alone() {
        for bad in [
            "A=1\ncanary\n",
            "A=1\nexport canary=1\n",
            "A=1\n1canary=2\n",
            "A=1\n=canary\n",
        ] {
            let said = parse("x.env", bad.as_bytes()).unwrap_err().to_string();
            assert!(said.contains("x.env: line 2") && !said.contains("canary"), "{said}");
        }
        assert!(parse("x.env", b"A=\xff").is_err());
        assert!(parse("x.env", b"A=\0").is_err());
    }
}
