//! Holds the order of the rooms: a room imports only from rooms named before it. The order is that of `src/lib.rs`.

#![allow(clippy::unwrap_used, reason = "a test, and its helpers")]

use std::{fs, path::Path};

/// Rooms in order; the rooms of one line may import each other.
const ORDER: &[&[&str]] = &[
    &["model"],
    &["config"],
    &["bootstrap", "facts", "step", "ledger", "removal", "offline"],
    &["plan", "preflight", "upgrade", "reset"],
    &["operation", "report"],
    &["observe", "store", "fetch", "containerd", "bundle", "apply", "remove"],
    &["cluster", "azure"],
    &["look"],
    &["exit", "log", "daemon", "verb"],
    &["cli"],
];

fn rank(room: &str) -> Option<usize> {
    ORDER.iter().position(|rooms| rooms.contains(&room))
}

/// The names after `crate::`, also those of a list in braces.
fn imports(text: &str) -> Vec<&str> {
    let word = |text: &'_ str| {
        text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(text.len())
    };
    let mut found = Vec::new();
    for (at, start) in text.match_indices("crate::") {
        let rest = &text[at + start.len()..];
        let Some(list) = rest.strip_prefix('{') else {
            found.push(&rest[..word(rest)]);
            continue;
        };
        let (mut depth, mut item) = (0, list);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                ',' | '}' if depth == 0 => {
                    let name = item[..item.len() - list[at..].len()].trim();
                    found.push(&name[..word(name)]);
                    item = &list[at + 1..];
                    if c == '}' {
                        break;
                    }
                }
                '}' => depth -= 1,
                _ => {}
            }
        }
    }
    found
}

fn visit(path: &Path, room: &str, wrong: &mut Vec<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            visit(&entry.unwrap().path(), room, wrong);
        }
        return;
    }
    let text = fs::read_to_string(path).unwrap();
    for import in imports(&text)
        .into_iter()
        .filter(|import| *import != room && !import.is_empty())
    {
        if rank(import).is_none_or(|import| import > rank(room).unwrap()) {
            wrong.push(format!("{} imports {import}", path.display()));
        }
    }
}

#[test]
fn a_room_imports_only_from_rooms_named_before_it() {
    let mut wrong = Vec::new();
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src")).unwrap() {
        let path = entry.unwrap().path();
        let room = path.file_stem().unwrap().to_str().unwrap().to_owned();
        // The snapshots are of the tests in rooms that are one file.
        if ["lib", "main", "snapshots"].contains(&room.as_str()) {
            continue;
        }
        if rank(&room).is_none() {
            wrong.push(format!("{room} stands in no row of the table of rooms"));
        } else {
            visit(&path, &room, &mut wrong);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn imports_are_found_alone_and_in_lists() {
    assert_eq!(imports("use crate::model::X; crate::plan::f()"), ["model", "plan"]);
    assert_eq!(
        imports("use crate::{\n    config::{A, B},\n    model,\n};"),
        ["config", "model", ""]
    );
}
