//! What is wrong for which host just now: read anew for each request, with what the server has counted since it was set.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::fault::{Door, Fault, Guard, How, Kind};

/// A fault as it lies in the folder, one file a host, named by its address.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Page {
    /// Each that is set has another.
    pub(super) number: String,
    pub(super) fault: Fault,
}

/// Sets what is wrong for an address, in one moment.
///
/// # Errors
/// The file can't be written.
pub(super) fn write(folder: &Path, address: &str, page: &Page) -> Result<()> {
    let new = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&new, page)?;
    new.persist(folder.join(address))?;
    Ok(())
}

/// The server's own view of that folder.
pub(super) struct Book {
    folder: PathBuf,
    counts: RefCell<BTreeMap<String, Counts>>,
}

#[derive(Default)]
struct Counts {
    number: String,
    /// How often each rule was applied.
    applied: Vec<u32>,
    /// What each token that was given is still good for.
    tokens: BTreeMap<String, Option<u32>>,
}

impl Book {
    pub(super) fn of(folder: PathBuf) -> Self {
        Self {
            folder,
            counts: RefCell::default(),
        }
    }

    fn page(&self, address: &str) -> Option<Page> {
        serde_json::from_slice(&fs::read(self.folder.join(address)).ok()?).ok()
    }

    /// Which fault an address has; another one, or none, means that what it had is healed.
    pub(super) fn number(&self, address: &str) -> Option<String> {
        self.page(address).map(|page| page.number)
    }

    pub(super) fn door(&self, address: &str) -> Door {
        self.page(address).map(|page| page.fault.door).unwrap_or_default()
    }

    pub(super) fn guard(&self, address: &str) -> Option<Guard> {
        self.page(address)?.fault.guard
    }

    fn counted<T>(&self, address: &str, number: &str, count: impl FnOnce(&mut Counts) -> T) -> T {
        let mut all = self.counts.borrow_mut();
        let counts = all.entry(address.to_owned()).or_default();
        if counts.number != number {
            *counts = Counts {
                number: number.to_owned(),
                ..Counts::default()
            };
        }
        count(counts)
    }

    /// How a request is to be answered wrongly, if it is; that is counted.
    pub(super) fn how(&self, address: &str, kind: Kind) -> Option<How> {
        let page = self.page(address)?;
        self.counted(address, &page.number, |counts| {
            counts.applied.resize(page.fault.rules.len(), 0);
            let mut rules = page.fault.rules.iter().zip(&mut counts.applied);
            let (rule, applied) =
                rules.find(|(rule, applied)| rule.of == kind && rule.times.is_none_or(|times| **applied < times))?;
            *applied += 1;
            Some(rule.how)
        })
    }

    /// A new token for an address.
    pub(super) fn token(&self, address: &str) -> Option<String> {
        let page = self.page(address)?;
        let uses = page.fault.guard?.uses;
        Some(self.counted(address, &page.number, |counts| {
            let token = format!("token-{}-of-{}", counts.tokens.len() + 1, page.number);
            counts.tokens.insert(token.clone(), uses);
            token
        }))
    }

    /// Whether a token was given and is still good; that is a use of it.
    pub(super) fn is_good(&self, address: &str, token: &str) -> bool {
        let Some(page) = self.page(address) else { return true };
        self.counted(address, &page.number, |counts| match counts.tokens.get_mut(token) {
            Some(Some(0)) | None => false,
            Some(Some(left)) => {
                *left -= 1;
                true
            }
            Some(None) => true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloud::faulty::fault::At;

    fn set(folder: &Path, number: &str, fault: Fault) {
        let number = number.to_owned();
        write(folder, "10.88.1.10", &Page { number, fault }).unwrap();
    }

    #[test]
    fn a_rule_is_counted_for_its_host_and_kind_and_anew_when_it_is_set_anew() {
        let folder = tempfile::tempdir().unwrap();
        let book = Book::of(folder.path().to_owned());
        assert_eq!(book.how("10.88.1.10", Kind::Manifest), None);
        let fault = Fault::of(Kind::Manifest, How::Status(503))
            .times(2)
            .and(Kind::Manifest, How::Reset(At::Byte(0)))
            .times(1);
        set(folder.path(), "1", fault.clone());
        assert_eq!(book.how("10.88.1.11", Kind::Manifest), None);
        assert_eq!(book.how("10.88.1.10", Kind::Layer), None);
        let seen: Vec<_> = (0..4).map(|_| book.how("10.88.1.10", Kind::Manifest)).collect();
        let reset = Some(How::Reset(At::Byte(0)));
        let busy = Some(How::Status(503));
        assert_eq!(seen, [busy, busy, reset, None]);
        set(folder.path(), "2", fault);
        assert_eq!(book.how("10.88.1.10", Kind::Manifest), busy);
    }

    #[test]
    fn a_token_is_good_as_often_as_it_was_said() {
        let folder = tempfile::tempdir().unwrap();
        let book = Book::of(folder.path().to_owned());
        let login = "user:password".to_owned();
        set(folder.path(), "1", Fault::guarded(Guard { login, uses: Some(1) }));
        let token = book.token("10.88.1.10").unwrap();
        assert!(!book.is_good("10.88.1.10", "another"));
        assert!(book.is_good("10.88.1.10", &token));
        assert!(!book.is_good("10.88.1.10", &token));
    }
}
