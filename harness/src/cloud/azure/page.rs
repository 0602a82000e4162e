//! What a host has of Azure, and what goes wrong for it: a file by its address, read anew for each request.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Who {
    /// The metadata service.
    Metadata,
    /// Entra ID.
    Entra,
    /// The resource manager.
    Manager,
}

/// How a request is answered wrongly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    /// With a status, and perhaps the seconds to wait.
    Status(u16, Option<u32>),
    /// With a refusal as the real ones write it: status, error, description.
    Refusal(u16, String, String),
    /// With a page of somebody in between.
    Stranger,
    /// Not at all.
    Silence,
}

/// A service principal that Entra ID knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Principal {
    pub(crate) tenant: String,
    pub(crate) client: String,
    pub(crate) secret: Option<String>,
    /// PEM.
    pub(crate) certificate: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Rule {
    of: Who,
    how: How,
    times: Option<u32>,
}

/// A host's page.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Page {
    /// The client IDs of the identities that are assigned to it.
    pub(super) managed: Vec<String>,
    pub(super) principal: Option<Principal>,
    /// How long a token is good for; none: as long as the real ones.
    pub(super) life_seconds: Option<u64>,
    /// What its accounts are told of their pool; none: they may not ask.
    pub(super) bootstrap_data: Option<Value>,
    rules: Vec<Rule>,
    /// Each that is set has another.
    number: String,
}

impl Page {
    /// That of a virtual machine with this identity.
    pub(crate) fn managed(client: &str) -> Self {
        Self {
            managed: vec![client.to_owned()],
            ..Self::default()
        }
    }

    /// With a principal that Entra ID knows.
    pub(crate) fn principal(self, principal: Principal) -> Self {
        Self {
            principal: Some(principal),
            ..self
        }
    }

    /// With tokens that are good for so long.
    pub(crate) fn life(self, seconds: u64) -> Self {
        Self {
            life_seconds: Some(seconds),
            ..self
        }
    }

    /// With a pool whose data its accounts may list.
    pub(crate) fn pool(self, bootstrap_data: Value) -> Self {
        Self {
            bootstrap_data: Some(bootstrap_data),
            ..self
        }
    }

    /// That goes wrong, for good.
    pub(crate) fn wrong(mut self, of: Who, how: How) -> Self {
        self.rules.push(Rule { of, how, times: None });
        self
    }

    /// What was said last goes wrong so often only.
    pub(crate) fn times(mut self, times: u32) -> Self {
        if let Some(rule) = self.rules.last_mut() {
            rule.times = Some(times);
        }
        self
    }
}

/// Sets the page of an address, in one moment.
///
/// # Errors
/// The file can't be written.
pub(super) fn write(folder: &Path, address: &str, page: &Page) -> Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let number = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let page = Page { number, ..page.clone() };
    let new = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&new, &page)?;
    new.persist(folder.join(address))?;
    Ok(())
}

/// The server's own view of the pages.
pub(super) struct Book {
    folder: PathBuf,
    /// By address: the page's number, and how often each of its rules was applied.
    counts: RefCell<BTreeMap<String, (String, Vec<u32>)>>,
}

impl Book {
    pub(super) fn of(folder: PathBuf) -> Self {
        Self {
            folder,
            counts: RefCell::default(),
        }
    }

    /// A host's page; an empty one if it has none.
    pub(super) fn page(&self, address: &str) -> Page {
        let text = fs::read(self.folder.join(address)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// How a request is to be answered wrongly, if it is; that is counted.
    pub(super) fn how(&self, address: &str, of: Who) -> Option<How> {
        let page = self.page(address);
        let mut counts = self.counts.borrow_mut();
        let (number, applied) = counts.entry(address.to_owned()).or_default();
        if *number != page.number {
            (*number, *applied) = (page.number, vec![0; page.rules.len()]);
        }
        let mut rules = page.rules.into_iter().zip(applied);
        let (rule, applied) =
            rules.find(|(rule, applied)| rule.of == of && rule.times.is_none_or(|times| **applied < times))?;
        *applied += 1;
        Some(rule.how)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_wrong_is_counted_for_its_host_and_anew_when_it_is_set_anew() {
        let folder = tempfile::tempdir().unwrap();
        let book = Book::of(folder.path().to_owned());
        assert_eq!(book.how("10.88.1.10", Who::Metadata), None);
        let busy = How::Status(429, Some(1));
        let page = Page::default().wrong(Who::Metadata, busy.clone()).times(2);
        write(folder.path(), "10.88.1.10", &page).unwrap();
        assert_eq!(book.how("10.88.1.11", Who::Metadata), None);
        assert_eq!(book.how("10.88.1.10", Who::Entra), None);
        let seen: Vec<_> = (0..3).map(|_| book.how("10.88.1.10", Who::Metadata)).collect();
        assert_eq!(seen, [Some(busy.clone()), Some(busy.clone()), None]);
        write(folder.path(), "10.88.1.10", &page).unwrap();
        assert_eq!(book.how("10.88.1.10", Who::Metadata), Some(busy));
    }
}
