//! Writes every unit into the folder that is named.
#![allow(clippy::disallowed_methods, reason = "a tool for people, not the product")]

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| ".".into());
    let all = [units::bootstrap(), units::reset()]
        .into_iter()
        .chain(units::written_by_agent(&units::AgentUnit::default()));
    for unit in all {
        std::fs::write(std::path::Path::new(&folder).join(unit.name), unit.text)?;
    }
    Ok(())
}
