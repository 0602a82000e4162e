use units::host::Family;

use super::*;
use crate::plan::tests::facts;

#[test]
fn the_hosts_containerd_is_nobodys_to_mask_and_docker_is() {
    let plan = setup(&facts(), &Routing::default()).unwrap();
    let mut masked: Vec<&str> = Vec::new();
    for task in plan.tasks() {
        if let Step::UnitsMasked(units) = &task.step {
            masked.extend(units);
        }
    }
    assert_eq!(masked, ["docker.socket", "docker.service", "kubelet.service"]);
}

#[test]
fn a_host_without_a_firewall_of_its_own_is_not_given_rules() {
    let has = |facts: &Facts| {
        let plan = setup(facts, &Routing::default()).unwrap();
        plan.tasks()
            .iter()
            .any(|task| matches!(task.step, Step::FirewallsOpen(_)))
    };
    let mut facts = facts();
    assert!(!has(&facts));
    facts.firewalls = vec![Family::V4];
    assert!(has(&facts));
}
