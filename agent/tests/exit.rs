//! Holds the units to the table of exit codes.

use agent::exit::Exit;

#[test]
fn only_the_bootstrap_unit_takes_an_end_for_final() {
    let finals = Exit::FINAL.map(|exit| (exit as u8).to_string()).join(" ");
    let directive = |text: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
        line.map(str::to_owned)
    };
    assert_eq!(directive(&units::bootstrap().text), Some(finals));
    let mut others = units::written_by_agent(&units::AgentUnit::default()).to_vec();
    others.push(units::reset());
    for unit in others {
        assert_eq!(directive(&unit.text), None, "{}", unit.name);
    }
}
