//! Docker beside a node: its rules of the packet filter would go before those of Kubernetes.

use hostexec::HostPath;
use serde_json::{Map, Value};

use crate::{
    facts::Facts,
    plan::Unfit,
    step::{File, Place, Plan, Step},
};

const CONFIG: HostPath = HostPath::fixed("/etc/docker/daemon.json");
const KEY: &str = "iptables";

const UNITS: [&str; 2] = ["docker.socket", "docker.service"];

/// Docker does not run, and should somebody start it again, it leaves the packet filter alone. Nothing, where there is none (node-agent
/// specification, Q26).
pub(super) fn disable(facts: &Facts) -> Result<Option<Plan>, Unfit> {
    let units: Vec<_> = UNITS.into_iter().filter(|unit| facts.units.contains(unit)).collect();
    if units.is_empty() && facts.docker.is_none() {
        return Ok(None);
    }
    let mut plans = Vec::new();
    if !units.is_empty() {
        plans.push(Plan::task("disable-docker", Step::UnitsOff(units)));
    }
    let found = facts.docker.as_ref();
    if let Some(text) = without_filter(found.map(|file| file.text.reveal().as_str()))? {
        let file = match found {
            Some(found) => File::like(CONFIG, found.mode, text),
            None => File::open(Place::Host, CONFIG, 0o644, text),
        };
        plans.push(Plan::task("configure-docker", Step::Files(vec![file])));
    }
    Ok(Some(Plan::Serial(plans)))
}

/// The settings with their other keys as they were; none where they say it already.
fn without_filter(found: Option<&str>) -> Result<Option<String>, Unfit> {
    let text = found.unwrap_or_default().trim();
    let mut settings: Map<String, Value> = match text {
        "" => Map::new(),
        text => serde_json::from_str(text).map_err(|_| Unfit::Existing {
            path: CONFIG,
            wrong: "is no JSON object",
            write: "mend it, or remove it where docker is not used",
        })?,
    };
    if settings.insert(KEY.to_owned(), Value::Bool(false)) == Some(Value::Bool(false)) {
        return Ok(None);
    }
    let text = serde_json::to_string_pretty(&settings).expect("a map of JSON values is JSON");
    Ok(Some(text + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_settings_stay() {
        assert_eq!(
            without_filter(None).unwrap().as_deref(),
            Some("{\n  \"iptables\": false\n}\n")
        );
        let text = without_filter(Some(r#"{"data-root": "/data", "iptables": true}"#)).unwrap();
        let made: Value = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(made, serde_json::json!({"data-root": "/data", "iptables": false}));
    }

    #[test]
    fn settings_that_say_it_are_left_alone_byte_for_byte() {
        assert_eq!(without_filter(Some("{ \"iptables\":false }")).unwrap(), None);
    }

    #[test]
    fn settings_that_docker_itself_would_refuse_are_not_thrown_away() {
        for text in ["{", "[]", "null", "{} x"] {
            let error = without_filter(Some(text)).unwrap_err().to_string();
            assert_eq!(
                error,
                "/etc/docker/daemon.json of the host is no JSON object: mend it, or remove it where docker is not used"
            );
        }
    }
}
