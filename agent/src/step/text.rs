//! A plan as a person reads it: its tree, a task and its end a line, each file below it.
//!
//! ```text
//! in order
//!   side by side
//!     write-sysctls: these files are so
//!       /etc/sysctl.d/99-kubernetes.conf, 0644, 412 bytes
//! ```

use std::fmt;

use super::{Entry, File, Origin, Place, Plan, Step};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        show(self, 0, f)
    }
}

fn show(plan: &Plan, depth: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let indent = 2 * depth;
    let (order, plans) = match plan {
        Plan::Serial(plans) => ("in order", plans),
        Plan::Parallel(plans) => ("side by side", plans),
        Plan::Task(task) => {
            writeln!(f, "{:indent$}{}: {}", "", task.name, task.step)?;
            return files(&task.step)
                .iter()
                .try_for_each(|file| writeln!(f, "{:indent$}  {file}", ""));
        }
    };
    writeln!(f, "{:indent$}{order}", "")?;
    plans.iter().try_for_each(|plan| show(plan, depth + 1, f))
}

fn files(step: &Step) -> &[File] {
    match step {
        Step::Files(files) | Step::UnitFiles(files) => files,
        Step::Reload
        | Step::Sysctls(_)
        | Step::UnitsOff(_)
        | Step::SwapOff
        | Step::FirewallsOpen(_)
        | Step::UnitCurrent { .. }
        | Step::UnitDisabled { .. }
        | Step::Rootfs { .. }
        | Step::Download(_)
        | Step::Archives { .. }
        | Step::ImagesImported { .. }
        | Step::AgentBinary { .. }
        | Step::MachineEnabled { .. }
        | Step::MachineRunning { .. }
        | Step::ServiceRunning { .. }
        | Step::KubeletJoined { .. }
        | Step::KubeletSteady { .. }
        | Step::StateSaved(_)
        | Step::UnitRunning { .. }
        | Step::UnitEnabled { .. } => &[],
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(_) => f.write_str("these are so"),
            Self::UnitFiles(_) => f.write_str("these are so, and systemd has read them"),
            Self::Reload => f.write_str("systemd has read its units"),
            Self::Sysctls(all) => write!(f, "the kernel holds {} values", all.len()),
            Self::UnitsOff(units) => write!(f, "kept from running: {}", units.join(", ")),
            Self::SwapOff => f.write_str("nothing is swapped to, nor will be after a boot"),
            Self::FirewallsOpen(families) => {
                let names: Vec<&str> = families.iter().map(|family| family.program()).collect();
                write!(f, "forwarding and kubelet's port are open: {}", names.join(", "))
            }
            Self::UnitDisabled { unit } => write!(f, "{unit} starts at no boot"),
            Self::UnitCurrent { unit, .. } => write!(f, "{unit} has run with what its files say"),
            Self::Rootfs { machine, image } => write!(f, "{machine} holds the image {image}"),
            Self::Download(download) => write!(
                f,
                "{} {} is in {}, from {}",
                download.component, download.version, download.machine, download.origin
            ),
            Self::Archives { folder, archives } => write!(f, "{folder} holds {} archives of images", archives.len()),
            Self::ImagesImported { machine, images } => {
                let names: Vec<&str> = images.iter().map(|(_, image)| image.as_str()).collect();
                write!(f, "containerd of {machine} has {}", names.join(", "))
            }
            Self::AgentBinary { machine } => write!(f, "this program is in {machine}"),
            Self::MachineEnabled { machine } => write!(f, "{machine} starts at every boot"),
            Self::MachineRunning { machine } => write!(f, "{machine} runs and answers"),
            Self::ServiceRunning { machine, unit, .. } => write!(f, "{unit} of {machine} runs with these files"),
            Self::KubeletJoined { machine, .. } => write!(f, "kubelet of {machine} holds its credential"),
            Self::KubeletSteady { machine } => write!(f, "kubelet of {machine} runs on"),
            Self::StateSaved(state) => write!(f, "the state names {}", state.active_machine),
            Self::UnitRunning { unit } => write!(f, "{unit} runs"),
            Self::UnitEnabled { unit } => write!(f, "{unit} starts at every boot"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url { url, .. } => f.write_str(url),
            Self::File { path, .. } => write!(f, "{path}"),
            Self::Blob { repository, blob } => write!(f, "{repository}@{}", blob.digest),
        }
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Place::Machine(machine) = self.place {
            write!(f, "{machine}:")?;
        }
        write!(f, "{}", self.path)?;
        match &self.entry {
            Entry::File { mode, content } => write!(f, ", {mode:04o}, {} bytes", content.bytes().len()),
            Entry::Link { target } => write!(f, " -> {target}"),
            Entry::Folder { mode } => write!(f, "/, {mode:04o}"),
            Entry::Absent => f.write_str(", absent"),
        }
    }
}
