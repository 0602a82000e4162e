//! Units of the host.

use hostexec::{Call, Host, HostPath, Tool};

use super::{Error, file};

/// Has systemd read its units anew.
pub(super) async fn reload(host: &Host) -> Result<(), Error> {
    host.run(Tool::Systemctl, &["daemon-reload"]).await?;
    Ok(())
}

/// Starts a unit and waits until it is up, as its type defines that.
pub(super) async fn start(host: &Host, unit: &str) -> Result<(), Error> {
    match host.run(Tool::Systemctl, &["start", unit]).await {
        Ok(_) => Ok(()),
        Err(source) => Err(Error::Unit {
            unit: unit.to_owned(),
            journal: journal(host, unit).await,
            source,
        }),
    }
}

/// Has a unit started at every boot.
pub(super) async fn enable(host: &Host, unit: &str) -> Result<(), Error> {
    if is_enabled(host, unit).await? {
        return Ok(());
    }
    host.run(Tool::Systemctl, &["enable", unit]).await?;
    Ok(())
}

/// Sees to it that none of these units runs, and that nobody starts one.
pub(super) async fn turn_off(host: &Host, units: &[&str]) -> Result<(), Error> {
    for unit in units {
        if is_own_file(host, unit)? {
            disable(host, unit).await?;
        } else if property(host, unit, "LoadState").await? != "masked" {
            host.run(Tool::Systemctl, &["mask", unit]).await?;
        }
        // It runs on where it was masked while it ran.
        if !["inactive", "failed"].contains(&&*property(host, unit, "ActiveState").await?) {
            host.run(Tool::Systemctl, &["stop", unit]).await?;
        }
    }
    Ok(())
}

/// Whether a unit is a file of the host's own, in whose place systemd makes no link.
pub(super) fn is_own_file(host: &Host, unit: &str) -> Result<bool, Error> {
    let Ok(path) = HostPath::fixed(units::name::UNIT_DIR).join(unit) else {
        return Ok(false);
    };
    if host.read_link(&path).is_ok() {
        return Ok(false);
    }
    host.exists(&path).map_err(Error::File)
}

/// Has a unit started at no boot.
pub(super) async fn disable(host: &Host, unit: &str) -> Result<(), Error> {
    if is_enabled(host, unit).await? {
        host.run(Tool::Systemctl, &["disable", unit]).await?;
    }
    Ok(())
}

async fn is_enabled(host: &Host, unit: &str) -> Result<bool, Error> {
    let line = ["is-enabled", unit];
    let asked = host.call(Call::new(Tool::Systemctl, &line).any_code()).await?;
    Ok(asked.stdout.trim() == "enabled")
}

pub(super) async fn property(host: &Host, unit: &str, name: &str) -> Result<String, Error> {
    let shown = host
        .run(Tool::Systemctl, &["show", "--value", "--property", name, unit])
        .await?;
    Ok(shown.stdout.trim().to_owned())
}

/// Where it is kept, until the next boot, what units of the host were started with.
const STARTED: HostPath = HostPath::fixed("/run/aks-flex-node/started");

/// Has a unit run with what these files say now; one that has done so since the boot is left alone.
pub(super) async fn run_current(host: &Host, unit: &str, reads: &[HostPath]) -> Result<(), Error> {
    let stamp = STARTED.join(unit).expect("a unit's name is plain");
    let inputs = file::digest(host, reads).map_err(Error::File)?;
    let current = host.read_text(&stamp).is_ok_and(|text| text.trim() == inputs.as_str());
    let active = property(host, unit, "ActiveState").await? == "active";
    if active && current {
        return Ok(());
    }
    // Restarted, it would take along the machine that requires it.
    let verb = if active { "reload" } else { "start" };
    if let Err(source) = host.run(Tool::Systemctl, &[verb, unit]).await {
        return Err(Error::Unit {
            unit: unit.to_owned(),
            journal: journal(host, unit).await,
            source,
        });
    }
    let save = || {
        host.create_dir(&STARTED, 0o755)?;
        host.write_if_changed(&stamp, format!("{inputs}\n").as_bytes(), 0o644)
    };
    save().map(drop).map_err(Error::File)
}

/// The last lines a unit logged, on one line, without secrets; or why there are none.
pub(super) async fn journal(host: &Host, unit: &str) -> String {
    let args = [
        "--unit",
        unit,
        "--lines",
        "20",
        "--output",
        "cat",
        "--no-pager",
        "--quiet",
    ];
    match host.run(Tool::Journalctl, &args).await {
        Ok(output) => super::words::one_line(&output.stdout),
        Err(error) => format!("({error})"),
    }
}
