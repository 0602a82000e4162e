//! Watches an upgrade from outside, and strikes at the point it is set for, within milliseconds: files by inotify, the rest by looking
//! every millisecond. A thread of its own does that, for nothing else may hold it up.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

use super::point::{Fault, File, Phase, Sight};
use super::victim::{self, Victim};
use crate::agent::GROUP;
use crate::agent_image::BALLAST;
use crate::host::Outside;
use crate::process::Process;

/// Where all files of an upgrade are.
const FOLDER: &str = "etc/aks-flex-node";
const JOURNAL: &str = "agent-upgrade-signal.json";
const LAST_GOOD: &str = "agent-image-last-good.env";
const SELECTION: &str = "agent-image.env";
const SETTINGS: &str = "etc/aks-flex-node-agent.env";
/// What a file is called until it takes its place. Source: hostexec, `replace`.
const TEMPORARY: &str = ".aks-flex-node-tmp-";
/// Where containerd keeps what has not come whole yet.
const INGEST: &str = "var/lib/containerd/io.containerd.content.v1.content/ingest";
/// Where systemd keeps timers made by `systemd-run`, and what the restart's is called.
const TRANSIENT: &str = "run/systemd/transient";
const TIMER: &str = "aks-flex-node-agent-upgrade-restart-";
/// How long a killed process may take to be gone, and a frozen host to stand still.
const DYING: Duration = Duration::from_secs(5);

/// An observer that is set and knows what it waits for.
pub(super) struct Trap {
    outside: Outside,
    fault: Fault,
    /// The image that runs and the one that is asked for, as the files name them.
    from: String,
    to: String,
    /// The daemon that is to be replaced.
    old: Option<i32>,
    inotify: Inotify,
    /// What has happened and was not looked at yet.
    events: VecDeque<Event>,
    phase: Phase,
}

/// A blow.
pub(super) struct Blow {
    /// Why it was not the point that was meant, if it was not.
    pub(super) late: Option<String>,
}

impl Trap {
    /// Sets one, before the upgrade is asked for.
    ///
    /// # Errors
    /// The host can't be watched.
    pub(super) fn set(outside: Outside, fault: Fault, from: String, to: String) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let events = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE;
        inotify
            .add_watch(&outside.root.join(FOLDER), events)
            .context("watching the upgrade's files")?;
        Ok(Self {
            old: victim::daemon(&outside),
            outside,
            fault,
            from,
            to,
            inotify,
            events: VecDeque::new(),
            phase: Phase::Idle,
        })
    }

    /// Waits for the point and strikes. Nothing, if it is told to stop before.
    ///
    /// # Errors
    /// The host can't be watched any more.
    pub(super) fn spring(mut self, stop: &Arc<AtomicBool>) -> Result<Option<Blow>> {
        hurry();
        while !stop.load(Ordering::Relaxed) {
            if self.seen()? {
                // Nobody is there for a moment: a unit between two starts, say. The point may last.
                if let Some(hit) = self.fault.victim.strike(&self.outside)? {
                    let late = self.late(&hit)?;
                    return Ok(Some(Blow { late }));
                }
            }
        }
        Ok(None)
    }

    /// Whether the point is there, now.
    fn seen(&mut self) -> Result<bool> {
        let looks = match self.fault.point.sight {
            Sight::Replacing(..) | Sight::Replaced(..) | Sight::Removed => None,
            Sight::Pulled(hundredths) => {
                Some(self.phase == Phase::Staging && self.pulled() >= BALLAST as u64 * u64::from(hundredths) / 100)
            }
            Sight::Checking => {
                let group = self.outside.group(&format!("{GROUP}/check"));
                Some(self.phase == Phase::Staging && group.exists())
            }
            Sight::Restarting => Some(self.phase == Phase::Switched && self.timer()),
            Sight::Starting => {
                let daemon = victim::daemon(&self.outside);
                Some(self.phase == Phase::Switched && daemon.is_some() && daemon != self.old)
            }
            Sight::Recovering => Some(self.phase == Phase::Switched && victim::recovers(&self.outside)),
        };
        if looks == Some(true) {
            return Ok(true);
        }
        if self.events.is_empty() {
            self.read(if looks.is_some() { 1 } else { 100 })?;
        }
        while let Some(event) = self.events.pop_front() {
            if self.is_it(&event) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether this event is the point. Keeps count of the phase.
    fn is_it(&mut self, event: &Event) -> bool {
        let sight = self.fault.point.sight;
        match event {
            Event::Made(name) if is_temporary(name) => {
                matches!(sight, Sight::Replacing(file, phase) if phase == self.phase && file == self.next())
            }
            Event::Moved(name) => {
                let Some(file) = named(name) else { return false };
                if file == File::Journal {
                    self.phase = self.read_phase();
                }
                sight == Sight::Replaced(file, self.phase)
            }
            Event::Gone(name) if name == JOURNAL => {
                self.phase = Phase::Idle;
                sight == Sight::Removed
            }
            Event::Made(_) | Event::Gone(_) => false,
        }
    }

    /// Which file is replaced next, by what they say now.
    fn next(&self) -> File {
        let names = |file: &str, image: &str| self.image(&Path::new(FOLDER).join(file)).as_deref() == Some(image);
        let selected = |image: &str| {
            let selected = self.image(&Path::new(FOLDER).join(SELECTION));
            selected.or_else(|| self.image(Path::new(SETTINGS))).as_deref() == Some(image)
        };
        match self.phase {
            Phase::Switched if !names(LAST_GOOD, &self.from) => File::LastGood,
            Phase::Switched if !selected(&self.to) => File::Selection,
            Phase::Back if !selected(&self.from) => File::Selection,
            Phase::Idle | Phase::Staging | Phase::Switched | Phase::Judging | Phase::Back | Phase::Over => {
                File::Journal
            }
        }
    }

    /// Why the blow came too late, if it did: what it was to come before has happened, or the state has passed on.
    fn late(&mut self, hit: &[Process]) -> Result<Option<String>> {
        let end = Instant::now() + DYING;
        let still = || {
            if self.fault.victim == Victim::Power {
                self.outside.is_frozen()
            } else {
                hit.iter().all(|process| !process.alive())
            }
        };
        while !still() {
            ensure!(Instant::now() < end, "{} does not die of a SIGKILL", self.fault.victim);
            std::thread::sleep(Duration::from_millis(1));
        }
        if !self.fault.victim.writes() {
            return Ok(None);
        }
        let mut replaced = Vec::new();
        self.read(0)?;
        while let Some(event) = self.events.pop_front() {
            if let Event::Moved(name) = &event
                && let Some(file) = named(name)
            {
                replaced.push(file);
            }
            self.is_it(&event);
        }
        let phase = self.phase;
        let passed =
            |expected: &[Phase]| (!expected.contains(&phase)).then(|| format!("the journal said {phase:?} already"));
        Ok(match self.fault.point.sight {
            Sight::Replacing(file, _) if replaced.contains(&file) => Some("the file was replaced already".to_owned()),
            Sight::Replacing(_, phase) | Sight::Replaced(_, phase) => passed(&[phase]),
            Sight::Pulled(_) | Sight::Checking => passed(&[Phase::Staging]),
            Sight::Restarting => passed(&[Phase::Switched]),
            Sight::Starting | Sight::Recovering => passed(&[Phase::Switched, Phase::Judging]),
            Sight::Removed => None,
        })
    }

    /// Reads what has happened in the folder; waits so many milliseconds for it.
    fn read(&mut self, wait: u16) -> Result<()> {
        let mut ready = [PollFd::new(self.inotify.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::from(wait)) {
            Ok(0) | Err(Errno::EINTR) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let read = match self.inotify.read_events() {
            Ok(read) => read,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        for event in read {
            let Some(name) = event.name else { continue };
            let name = OsStr::to_string_lossy(&name).into_owned();
            self.events
                .push_back(if event.mask.contains(AddWatchFlags::IN_MOVED_TO) {
                    Event::Moved(name)
                } else if event.mask.contains(AddWatchFlags::IN_DELETE) {
                    Event::Gone(name)
                } else {
                    Event::Made(name)
                });
        }
        Ok(())
    }

    fn read_phase(&self) -> Phase {
        let journal = fs::read(self.outside.root.join(FOLDER).join(JOURNAL)).unwrap_or_default();
        let journal: serde_json::Value = serde_json::from_slice(&journal).unwrap_or_default();
        journal["phase"].as_str().and_then(Phase::parse).unwrap_or(Phase::Idle)
    }

    /// The image that a file names.
    fn image(&self, file: &Path) -> Option<String> {
        let text = fs::read_to_string(self.outside.root.join(file)).ok()?;
        let mut lines = text.lines();
        lines.find_map(|line| line.strip_prefix("AKS_FLEX_NODE_AGENT_IMAGE=").map(str::to_owned))
    }

    /// Bytes of the largest blob that is on its way.
    fn pulled(&self) -> u64 {
        let entries = fs::read_dir(self.outside.root.join(INGEST))
            .into_iter()
            .flatten()
            .flatten();
        let data = |entry: fs::DirEntry| -> PathBuf { entry.path().join("data") };
        let sizes = entries.filter_map(|entry| fs::metadata(data(entry)).ok().map(|data| data.len()));
        sizes.max().unwrap_or(0)
    }

    fn timer(&self) -> bool {
        let mut entries = fs::read_dir(self.outside.root.join(TRANSIENT))
            .into_iter()
            .flatten()
            .flatten();
        entries.any(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with(TIMER) && name.ends_with(".timer")
        })
    }
}

/// Lets this thread go before all else that the computer has to do: some points last for milliseconds.
fn hurry() {
    let thread = nix::unistd::gettid().to_string();
    let mut renice = std::process::Command::new("renice");
    renice.args(["--priority", "-15", "--pid", &thread]);
    // Where that is not allowed, points are missed more often.
    let _ = renice.stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// What happened in the folder, to which name.
enum Event {
    Made(String),
    Moved(String),
    Gone(String),
}

fn is_temporary(name: &str) -> bool {
    name.starts_with(TEMPORARY)
}

fn named(name: &str) -> Option<File> {
    match name {
        JOURNAL => Some(File::Journal),
        LAST_GOOD => Some(File::LastGood),
        SELECTION => Some(File::Selection),
        _ => None,
    }
}
