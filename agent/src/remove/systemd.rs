//! Units and machines. systemd is asked by its own socket, without D-Bus; once it does not answer in time it is not asked again.

use std::time::Duration;

use hostexec::{Call, Host, HostPath, Output, Tool, ToolError};
use tokio::time::{Instant, sleep};

use crate::ledger::UnitWas;
use crate::model::{MachineName, chain};
use crate::plan::reset::names;
use crate::removal::End;

/// How long a plain question may take.
const ASK: Duration = Duration::from_secs(8);
/// How long a unit, and a machine with its pods, has to stop before it is killed.
const STOP: Duration = Duration::from_secs(35);
const MACHINE: Duration = Duration::from_secs(20);
/// How long what was killed may take to be gone.
const DYING: Duration = Duration::from_secs(10);
/// How long machined may take to forget a machine that is gone.
const FORGET: Duration = Duration::from_secs(3);
const POLL: Duration = Duration::from_millis(100);

pub(super) struct Systemd<'a> {
    host: &'a Host,
    /// Why it is not asked any more.
    mute: Option<String>,
}

impl<'a> Systemd<'a> {
    pub(super) fn new(host: &'a Host) -> Self {
        Self { host, mute: None }
    }

    async fn call(&mut self, line: &[&str], limit: Duration) -> Result<Output, String> {
        if let Some(why) = &self.mute {
            return Err(why.clone());
        }
        let asked = self.host.call(Call::new(Tool::Systemctl, line).limit(limit)).await;
        asked.map_err(|error| {
            let why = chain(&error);
            if matches!(error, ToolError::Slow { .. }) && limit <= ASK {
                self.mute = Some("systemd does not answer".to_owned());
            }
            why
        })
    }

    async fn property(&mut self, unit: &str, name: &str) -> Result<String, String> {
        let line = ["show", "--value", "--property", name, unit];
        Ok(self.call(&line, ASK).await?.stdout.trim().to_owned())
    }

    async fn runs(&mut self, unit: &str) -> Result<bool, String> {
        let state = self.property(unit, "ActiveState").await?;
        Ok(!["inactive", "failed"].contains(&&*state))
    }

    /// A host without systemd has nothing of it.
    fn is_absent(&self) -> bool {
        self.host.find(Tool::Systemctl).is_none()
    }

    pub(super) async fn stop(&mut self, unit: &str) -> End {
        if self.is_absent() {
            return End::Absent;
        }
        match self.runs(unit).await {
            Ok(false) => End::Absent,
            Ok(true) => self.stop_within(unit, STOP).await,
            Err(why) => End::CouldNot(why),
        }
    }

    async fn stop_within(&mut self, unit: &str, limit: Duration) -> End {
        let stopped = self.call(&["stop", unit], limit).await;
        if stopped.is_ok() {
            return End::Removed;
        }
        let killed = self.call(&["kill", "--signal=KILL", unit], ASK).await;
        let until = Instant::now() + DYING;
        loop {
            match self.runs(unit).await {
                Ok(false) => return End::Removed,
                Ok(true) if Instant::now() < until => sleep(POLL).await,
                Ok(true) => {
                    let why = stopped.and(killed).err().unwrap_or_default();
                    return End::CouldNot(format!("it was killed, and still runs: {why}"));
                }
                Err(why) => return End::CouldNot(why),
            }
        }
    }

    /// Stops a machine, whatever its pods have to say, and has machined forget it.
    pub(super) async fn stop_machine(&mut self, machine: MachineName) -> End {
        if self.is_absent() {
            return End::Absent;
        }
        let unit = format!("systemd-nspawn@{machine}.service");
        let end = match self.runs(&unit).await {
            Ok(false) => End::Absent,
            Ok(true) => self.stop_within(&unit, MACHINE).await,
            Err(why) => End::CouldNot(why),
        };
        if let End::Absent | End::Removed = end {
            // Its entry is of no harm to anybody but the next machine of this name, whose start clears it too.
            self.forget(machine).await;
        }
        end
    }

    async fn forget(&self, machine: MachineName) {
        let entry = HostPath::new(format!("/run/systemd/machines/{machine}")).expect("a machine's name is plain");
        let known = || self.host.exists(&entry).unwrap_or(false);
        if !known() {
            return;
        }
        let line = ["terminate", machine.as_str()];
        let asked = self.host.call(Call::new(Tool::Machinectl, &line).limit(FORGET)).await;
        let until = Instant::now() + FORGET;
        while known() && Instant::now() < until {
            sleep(POLL).await;
        }
        if known() {
            let error = asked.err().map(|error| chain(&error)).unwrap_or_default();
            tracing::warn!(
                machine = machine.as_str(),
                error,
                "machined keeps the entry of a machine that is gone"
            );
        }
    }

    /// Whether processes of the machine live, by the kernel's word.
    pub(super) async fn machine_runs(&mut self, machine: MachineName) -> bool {
        let events = format!("/sys/fs/cgroup/machine.slice/systemd-nspawn@{machine}.service/cgroup.events");
        let events = HostPath::new(events).expect("a machine's name is plain");
        let populated = || {
            let events = self.host.read_text(&events);
            events.is_ok_and(|events| events.lines().any(|line| line == "populated 1"))
        };
        let until = Instant::now() + DYING;
        while populated() {
            if Instant::now() >= until {
                return true;
            }
            sleep(POLL).await;
        }
        false
    }

    pub(super) async fn reload(&mut self, units: &[String]) -> End {
        if self.is_absent() {
            return End::Absent;
        }
        match self.call(&["daemon-reload"], MACHINE).await {
            Ok(_) => {}
            Err(why) => return End::CouldNot(why),
        }
        // Of a unit that never failed there is nothing to forget.
        let units = units.iter().map(String::as_str);
        let _ = self
            .call(&["reset-failed"].into_iter().chain(units).collect::<Vec<_>>(), ASK)
            .await;
        End::Absent
    }

    /// Has a unit start anew that runs.
    pub(super) async fn anew(&mut self, unit: &str) -> End {
        match self.runs(unit).await {
            Ok(false) => return End::Absent,
            Ok(true) => {}
            Err(why) => return End::CouldNot(why),
        }
        match self.call(&["try-restart", unit], MACHINE).await {
            Ok(_) => End::Removed,
            Err(why) => End::CouldNot(why),
        }
    }

    /// Has a unit of others be what it was: masked, enabled, running, or none of it.
    pub(super) async fn as_before(&mut self, unit: &str, was: &UnitWas) -> End {
        let mut end = End::Absent;
        let place = names::unit(unit);
        let masked = self.host.read_link(&place).is_ok_and(|target| target == "/dev/null");
        if masked && was.state != "masked" {
            match self.host.remove(&place) {
                Ok(()) => end = End::Removed,
                Err(error) => return End::CouldNot(error.to_string()),
            }
            if let Err(why) = self.call(&["daemon-reload"], MACHINE).await {
                return End::CouldNot(why);
            }
        }
        let state = match self.property(unit, "UnitFileState").await {
            Ok(state) => state,
            Err(why) => return End::CouldNot(why),
        };
        let verb = match (was.state.as_str(), state.as_str()) {
            ("enabled", "disabled") => Some("enable"),
            ("disabled", "enabled") => Some("disable"),
            (_, _) => None,
        };
        if let Some(verb) = verb {
            match self.call(&[verb, unit], ASK).await {
                Ok(_) => end = End::Removed,
                Err(why) => return End::CouldNot(why),
            }
        }
        // What ran and was stopped by the agent runs again; whoever stopped it since, or never had it, is not asked.
        if was.active && end == End::Removed && self.runs(unit).await == Ok(false) {
            // Its start is its own affair, and may take long.
            if let Err(why) = self.call(&["--no-block", "start", unit], ASK).await {
                return End::CouldNot(why);
            }
        }
        end
    }
}
