//! As much of HTTP/1.1 as the cloud's own servers speak. By hand: a library would not let an answer be wrong.

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest head that is read.
const LONGEST: usize = 32 << 10;

/// The first line and the headers of a request or of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Without the line's end.
    pub(super) line: String,
    headers: Vec<(String, String)>,
}

impl Head {
    pub(super) fn new(line: impl Into<String>) -> Self {
        Self {
            line: line.into(),
            headers: Vec::new(),
        }
    }

    pub(super) fn with(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// The header's value, the first if it is there more than once.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// All but those of that name.
    pub(super) fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        self
    }

    /// The first line's words.
    pub(super) fn words(&self) -> [&str; 3] {
        let mut words = self.line.splitn(3, ' ');
        std::array::from_fn(|_| words.next().unwrap_or_default())
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.split("\r\n");
        let line = lines.next().filter(|line| line.contains(' '))?.to_owned();
        let headers = lines.take_while(|line| !line.is_empty());
        let headers = headers.map(|line| {
            let (name, value) = line.split_once(':')?;
            Some((name.trim().to_owned(), value.trim().to_owned()))
        });
        let headers = headers.collect::<Option<_>>()?;
        Some(Self { line, headers })
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let headers = self.headers.iter();
        let headers: String = headers.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        format!("{}\r\n{headers}\r\n", self.line).into_bytes()
    }
}

/// Reads a head, and what came of the body with it; `None` when the other end closes or speaks something else.
pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> Option<(Head, Vec<u8>)> {
    let mut bytes = Vec::new();
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Some((Head::parse(std::str::from_utf8(&bytes).ok()?)?, rest));
        }
        if bytes.len() > LONGEST || from.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_head_is_read_up_to_its_end_and_written_as_it_was() {
        let text = b"GET /v2/ HTTP/1.1\r\nHost: faulty.test:5001\r\nRange: bytes=5-\r\n\r\nbody";
        let (head, rest) = read(&mut text.as_slice()).await.unwrap();
        assert_eq!(head.words(), ["GET", "/v2/", "HTTP/1.1"]);
        assert_eq!(head.header("range"), Some("bytes=5-"));
        assert!(b"body".starts_with(&rest), "{rest:?}"); // as much of it as came along
        assert_eq!(head.bytes(), text[..text.len() - 4]);
        assert_eq!(head.without("HOST").header("host"), None);
    }

    #[tokio::test]
    async fn what_is_no_head_is_none() {
        for text in [
            "",
            "GET / HTTP/1.1\r\nHost: cut",
            "nonsense\r\n\r\n",
            "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        ] {
            assert_eq!(read(&mut text.as_bytes()).await, None, "{text:?}");
        }
    }
}
