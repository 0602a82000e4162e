//! docs/field-cases.md is held to name tests that are there.

#![cfg(test)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::check;

/// Every function that stands in the workspace's sources.
fn functions(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            functions(&path, names);
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let words = text.split("fn ").skip(1);
            let name = |word: &str| word.split(['(', '<']).next().unwrap_or_default().to_owned();
            names.extend(words.map(name));
        }
    }
}

#[test]
fn every_test_that_the_page_names_is_there_and_no_row_is_without_an_answer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut names: BTreeSet<String> = check::all().iter().map(|check| check.name.to_owned()).collect();
    for room in ["hostexec", "image", "units", "butane", "agent", "harness"] {
        functions(&root.join(room), &mut names);
    }
    let page = fs::read_to_string(root.join("docs/field-cases.md")).unwrap();
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| ---") && !line.starts_with("| id"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    assert!(rows.len() > 60, "{} rows", rows.len());
    let mut missing = Vec::new();
    for row in &rows {
        assert_eq!(row.len(), 3, "{row:?}");
        assert!(!row[2].is_empty(), "{row:?}");
        let quoted = row[2].split('`').skip(1).step_by(2);
        // What names a file or a function of the product is no test.
        let tests = quoted.filter(|name| !name.contains(['/', '=']) && (name.contains('.') || name.contains('_')));
        missing.extend(tests.filter(|name| !names.contains(*name)));
    }
    assert!(
        missing.is_empty(),
        "the page names tests that are not there: {missing:?}"
    );
}
