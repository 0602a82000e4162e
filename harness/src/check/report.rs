//! What came of the checks: the report's JSON, the table, the last line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

/// How a check ended: none is ever skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Ended {
    Pass,
    Fail,
}

/// A check's row. Source of the shape: design.md 5.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) result: Ended,
    pub(crate) seconds: f64,
    /// Its hosts' names.
    pub(crate) host: String,
    /// Why it failed; else empty.
    pub(crate) message: String,
    /// The folder that explains a failure.
    pub(crate) artifacts: Option<PathBuf>,
}

/// The whole of it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) checks: Vec<Row>,
    /// What this bed can't show, whatever the results.
    pub(crate) limits: &'static [&'static str],
}

/// What hosts of this kind can't show. docs/test-bed.md says more.
pub(crate) const LIMITS: &[&str] = &[
    "resource limits of control groups, where the machine has no cgroup2 controllers",
    "the rule that a group with controllers holds no processes",
    "kernel modules, global kernel settings, the clock",
    "SELinux, dm-verity, measured boot",
    "systemd 255 and containerd 2.x: the hosts run Debian's 257 and 1.7",
];

impl Report {
    fn count(&self, ended: Ended) -> usize {
        self.checks.iter().filter(|row| row.result == ended).count()
    }

    /// Whether nothing failed.
    pub(crate) fn good(&self) -> bool {
        self.count(Ended::Fail) == 0
    }

    /// The table, and the last line.
    pub(crate) fn table(&self) -> String {
        let width = self.checks.iter().map(|row| row.name.len()).max().unwrap_or_default();
        let mut text = String::new();
        for row in &self.checks {
            let result = format!("{:?}", row.result).to_lowercase();
            text.push_str(&format!(
                "{:width$}  {result:4}  {:>6.1} s  {}\n",
                row.name,
                row.seconds,
                first_line(&row.message)
            ));
            if let Some(artifacts) = &row.artifacts {
                text.push_str(&format!("{:width$}        see {}\n", "", artifacts.display()));
            }
        }
        text.push_str(&self.last_line());
        text
    }

    fn last_line(&self) -> String {
        format!("{} passed, {} failed", self.count(Ended::Pass), self.count(Ended::Fail))
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// The file can't be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        std::fs::write(path, text).with_context(|| format!("could not write the report {}", path.display()))
    }
}

fn first_line(message: &str) -> String {
    let line = message.lines().next().unwrap_or_default();
    line.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, result: Ended) -> Row {
        Row {
            name: name.into(),
            result,
            seconds: 1.25,
            host: "h1".into(),
            message: String::new(),
            artifacts: None,
        }
    }

    #[test]
    fn the_last_line_counts() {
        let report = Report {
            checks: vec![row("a.b", Ended::Pass), row("a.c", Ended::Fail)],
            limits: LIMITS,
        };
        assert_eq!(report.last_line(), "1 passed, 1 failed");
        assert!(!report.good());
        assert_eq!(Report::default().last_line(), "0 passed, 0 failed");
    }

    #[test]
    fn the_report_has_the_agreed_shape() {
        let report = Report {
            checks: vec![row("a.b", Ended::Pass)],
            limits: &[],
        };
        let text = serde_json::to_string(&report).unwrap();
        let expected = r#"{"checks":[{"name":"a.b","result":"pass","seconds":1.25,"host":"h1","message":"","artifacts":null}],"limits":[]}"#;
        assert_eq!(text, expected);
    }
}
