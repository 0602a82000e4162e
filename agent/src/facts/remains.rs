//! What of the agent's there is on a host, as a look by names and places finds it.

use std::collections::{BTreeMap, BTreeSet};

use hostexec::HostPath;

use crate::model::MachineName;

/// What a reset may have to see to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remains {
    /// Files, links and folders that are the agent's by their name, or by what is written in them.
    pub there: BTreeSet<HostPath>,
    /// What stands in each machine's folder.
    pub machines: BTreeMap<MachineName, Folder>,
    /// What is mounted below `/run`, and as which type of file system.
    pub mounts: Vec<(HostPath, String)>,
    /// Network interfaces.
    pub interfaces: Vec<String>,
    /// What could not be looked at.
    pub unread: Vec<String>,
}

/// A machine's folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// It bears the agent's mark.
    Ours,
    /// There is something in it, without a mark.
    Unmarked,
    /// It is not there, or empty.
    Absent,
}
