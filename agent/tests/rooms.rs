//! Holds the order of the rooms: a room imports only from rooms named before it. The order is that of `src/lib.rs`.

use std::{fs, path::Path};

/// Rooms in order; the rooms of one line may import each other.
const ORDER: &[&[&str]] = &[
    &["model"],
    &["config", "facts", "step", "bootstrap"],
    &["plan", "preflight", "upgrade"],
    &["operation", "report"],
    &["observe", "store", "fetch", "containerd", "apply"],
    &["cluster", "azure"],
    &["exit", "log", "daemon", "verb"],
    &["cli"],
];

fn rank(room: &str) -> Option<usize> {
    ORDER.iter().position(|rooms| rooms.contains(&room))
}

fn imports(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("crate::").map(|(at, found)| {
        let rest = &text[at + found.len()..];
        &rest[..rest
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(rest.len())]
    })
}

fn visit(path: &Path, room: &str, wrong: &mut Vec<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            visit(&entry.unwrap().path(), room, wrong);
        }
        return;
    }
    let text = fs::read_to_string(path).unwrap();
    for import in imports(&text).filter(|import| *import != room && !import.is_empty()) {
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
        if ["lib", "main"].contains(&room.as_str()) {
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
