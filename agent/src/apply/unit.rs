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
    let asked = host
        .call(Call::new(Tool::Systemctl, &["is-enabled", unit]).any_code())
        .await?;
    if asked.stdout.trim() == "enabled" {
        return Ok(());
    }
    host.run(Tool::Systemctl, &["enable", unit]).await?;
    Ok(())
}

/// Sees to it that none of these units runs, and that nobody starts one.
pub(super) async fn mask(host: &Host, units: &[&str]) -> Result<(), Error> {
    for unit in units {
        let state = property(host, unit, "LoadState").await?;
        if state != "masked" {
            host.run(Tool::Systemctl, &["mask", unit]).await?;
        }
        // It runs on where it was masked while it ran.
        if !["inactive", "failed"].contains(&&*property(host, unit, "ActiveState").await?) {
            host.run(Tool::Systemctl, &["stop", unit]).await?;
        }
    }
    Ok(())
}

async fn property(host: &Host, unit: &str, name: &str) -> Result<String, Error> {
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
    let verb = if active { "restart" } else { "start" };
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
        Ok(output) => super::machine::one_line(&output.stdout),
        Err(error) => format!("({error})"),
    }
}
