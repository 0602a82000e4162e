//! Findings as a report, and the report as text and as JSON.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use serde::Serialize;

use super::{Check, Finding, UnknownCheck, Verdict};

/// Checks whose errors count as warnings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    all: bool,
    checks: BTreeSet<Check>,
}

impl Ignored {
    /// Reads lists of names, separated by commas; `all` names every check.
    ///
    /// # Errors
    /// A name is no check's.
    pub fn parse<'a>(lists: impl IntoIterator<Item = &'a str>) -> Result<Self, UnknownCheck> {
        let mut ignored = Self::default();
        let names = lists.into_iter().flat_map(|list| list.split(','));
        for name in names.map(str::trim).filter(|name| !name.is_empty()) {
            if name.eq_ignore_ascii_case("all") {
                ignored.all = true;
            } else {
                ignored.checks.insert(name.parse()?);
            }
        }
        Ok(ignored)
    }

    fn holds(&self, check: Check) -> bool {
        self.all || self.checks.contains(&check)
    }
}

/// Whether warnings fail a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strictness {
    /// Errors alone do.
    #[default]
    Errors,
    /// Warnings do, too.
    Warnings,
}

/// How a report ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// A node can be made of the host.
    Ok,
    /// It can't.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Severity {
    Ok,
    Warning,
    Error,
    Skipped,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Line {
    name: &'static str,
    target: String,
    severity: Severity,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    evidence: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<&'static str>,
    ignored: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Summary {
    ok: usize,
    warnings: usize,
    errors: usize,
    skipped: usize,
}

/// Everything that was found. `Display` is the text for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    status: Status,
    checks: Vec<Line>,
    summary: Summary,
}

impl Report {
    /// The findings in the order of their checks.
    #[must_use]
    pub fn of(mut findings: Vec<Finding>, ignored: &Ignored, strictness: Strictness) -> Self {
        findings.sort_by_key(|finding| finding.check);
        let checks: Vec<Line> = findings.into_iter().map(|finding| line(finding, ignored)).collect();
        let count = |severity| checks.iter().filter(|line| line.severity == severity).count();
        let summary = Summary {
            ok: count(Severity::Ok),
            warnings: count(Severity::Warning),
            errors: count(Severity::Error),
            skipped: count(Severity::Skipped),
        };
        let failed = summary.errors > 0 || (strictness == Strictness::Warnings && summary.warnings > 0);
        Self {
            status: if failed { Status::Failed } else { Status::Ok },
            checks,
            summary,
        }
    }

    /// How it ended.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The report as JSON, with a line's end.
    #[must_use]
    pub fn json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a report is plain data");
        text.push('\n');
        text
    }
}

fn line(finding: Finding, ignored: &Ignored) -> Line {
    let (severity, remedy) = match finding.verdict {
        Verdict::Ok => (Severity::Ok, None),
        Verdict::Skipped => (Severity::Skipped, None),
        Verdict::Warning(remedy) => (Severity::Warning, Some(remedy.as_str())),
        Verdict::Error(remedy) => (Severity::Error, Some(remedy.as_str())),
    };
    let ignored = severity == Severity::Error && ignored.holds(finding.check);
    let name = finding.check.name();
    let plain = |text: String| text.replace(|letter: char| letter.is_control(), " ");
    Line {
        name,
        target: plain(finding.target.unwrap_or_else(|| name.to_owned())),
        severity: if ignored { Severity::Warning } else { severity },
        message: plain(finding.message),
        evidence: finding.evidence.map(plain),
        remedy,
        ignored,
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Ok => "OK",
            Severity::Warning => "WARNING",
            Severity::Error => "ERROR",
            Severity::Skipped => "SKIPPED",
        };
        write!(f, "\t[{word} {}]: {}", self.name, self.message)?;
        if self.ignored {
            f.write_str(" (ignored)")?;
        }
        if self.target != self.name {
            write!(f, " (target: {})", self.target)?;
        }
        f.write_char('\n')?;
        match self.remedy {
            Some(remedy) => writeln!(f, "\t\tWhat to do: {remedy}."),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[preflight] Whether this host can become a node; nothing is changed\n")?;
        let errors = |line: &&Line| line.severity == Severity::Error;
        for line in self.checks.iter().filter(|line| !errors(line)) {
            line.fmt(f)?;
        }
        let Summary {
            ok,
            warnings,
            errors: fatal,
            skipped,
        } = self.summary;
        if fatal > 0 {
            f.write_str("[preflight] These errors are fatal:\n")?;
            for line in self.checks.iter().filter(errors) {
                line.fmt(f)?;
            }
            f.write_str(
                "[preflight] To go on all the same, name checks whose errors are to be ignored: --ignore-preflight-errors=...\n",
            )?;
        }
        writeln!(
            f,
            "[preflight] {ok} ok, {warnings} warnings, {fatal} errors, {skipped} skipped"
        )
    }
}
