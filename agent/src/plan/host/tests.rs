use units::host::Family;

use super::*;
use crate::plan::tests::facts;

#[test]
fn the_hosts_containerd_is_nobodys_to_mask_and_docker_is() {
    let mut facts = facts();
    facts.units = vec!["docker.socket", "docker.service", "kubelet.service"];
    let plan = setup(&facts, &Routing::default()).unwrap();
    let mut masked: Vec<&str> = Vec::new();
    for task in plan.tasks() {
        if let Step::UnitsOff(units) = &task.step {
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

#[test]
fn a_host_without_docker_and_kubelet_is_left_alone() {
    let mut facts = facts();
    facts.units.clear();
    let text = setup(&facts, &Routing::default()).unwrap().to_string();
    assert!(!text.contains("docker") && !text.contains("kubelet.service"), "{text}");
}

#[test]
fn routes_that_are_no_longer_asked_for_go_without_the_machine() {
    let mut facts = facts();
    facts.units = vec![units::host::STATIC_ROUTES, units::host::ROUTE_OVERLAP];
    let text = setup(&facts, &Routing::default()).unwrap().to_string();
    for line in [
        "static-routes.service starts at no boot",
        "/etc/aks-flex-node/static-routes.sh, absent",
        "check-route-overlap.service starts at no boot",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
