//! Units of the host.

use hostexec::{Call, Host, Tool};

use super::Error;

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
