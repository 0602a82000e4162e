//! MachineOperation as the cluster writes it, and as the agent means it. Source: node-agent specification, 9.1.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::operation::{Ask, Kind, Operation, Phase, Requirement, Target};

/// The custom resource. Fields this agent does not use are left out: it writes patches, never whole objects.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "Raw")]
pub struct MachineOperation {
    /// Name, UID, versions.
    pub metadata: ObjectMeta,
    /// What is asked.
    pub spec: Spec,
    /// What became of it.
    pub status: Option<Status>,
    /// Which part of it can't be read. It stands for nobody then: one object must not hide all the others of a list.
    #[serde(skip)]
    pub unreadable: Option<&'static str>,
}

/// As it came.
#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Value,
    #[serde(default)]
    status: Value,
}

impl From<Raw> for MachineOperation {
    fn from(Raw { metadata, spec, status }: Raw) -> Self {
        let spec = serde_json::from_value::<Option<Spec>>(spec);
        let status = serde_json::from_value::<Option<Status>>(status);
        let unreadable = spec.as_ref().err().map(|_| "spec");
        let unreadable = unreadable.or(status.as_ref().err().map(|_| "status"));
        let (spec, status) = (spec.ok().flatten(), status.ok().flatten());
        Self {
            metadata,
            // Without a target it is nobody's.
            spec: spec.filter(|_| unreadable.is_none()).unwrap_or_default(),
            status,
            unreadable,
        }
    }
}

/// A time as RFC 3339 has it; none for what only looks like one: the API server takes more than there is.
fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    Ok(text.and_then(|text| text.parse().ok()))
}

/// What is asked.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// The target's name.
    pub machine_ref: Option<String>,
    /// The targets' labels.
    pub machine_selector: Option<LabelSelector>,
    /// What to do.
    pub operation_kind: String,
    /// With what.
    pub parameters: Option<BTreeMap<String, String>>,
    /// How long it stays after its end.
    pub ttl_seconds_after_finished: Option<i64>,
}

/// What became of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// `""`, `Pending`, `InProgress`, `Complete`, `Failed`.
    pub phase: Option<String>,
    /// In a sentence.
    pub message: Option<String>,
    /// When it was taken.
    #[serde(deserialize_with = "time")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[serde(deserialize_with = "time")]
    pub completed_at: Option<Timestamp>,
    /// The Machine object's generation then.
    pub observed_machine_generation: Option<i64>,
    /// `Completed`, and whatever others keep there.
    pub conditions: Option<Vec<Value>>,
}

impl k8s_openapi::Resource for MachineOperation {
    const API_VERSION: &'static str = "unbounded-cloud.io/v1alpha3";
    const GROUP: &'static str = "unbounded-cloud.io";
    const KIND: &'static str = "MachineOperation";
    const VERSION: &'static str = "v1alpha3";
    const URL_PATH_SEGMENT: &'static str = "machineoperations";
    type Scope = k8s_openapi::ClusterResourceScope;
}

impl k8s_openapi::Metadata for MachineOperation {
    type Ty = ObjectMeta;

    fn metadata(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn metadata_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl MachineOperation {
    /// The phase, with all that counts as "nobody took it" made one.
    #[must_use]
    pub fn phase(&self) -> Phase {
        match self
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref())
            .unwrap_or_default()
        {
            "" | "Pending" => Phase::New,
            "InProgress" => Phase::InProgress,
            "Complete" | "Failed" => Phase::Over,
            _ => Phase::Unknown,
        }
    }
}

impl From<MachineOperation> for Operation {
    fn from(object: MachineOperation) -> Self {
        let phase = object.phase();
        let MachineOperation {
            metadata, spec, status, ..
        } = object;
        let target = match (spec.machine_ref.filter(|name| !name.is_empty()), spec.machine_selector) {
            (Some(name), _) => Target::Machine(name),
            (None, Some(selector)) => Target::Labels(requirements(selector)),
            (None, None) => Target::None,
        };
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            created_at: metadata.creation_timestamp.map(|time| time.0),
            target,
            kind: match spec.operation_kind.as_str() {
                "AgentUpgrade" => Kind::AgentUpgrade,
                "NodeReboot" => Kind::NodeReboot,
                "AgentReset" => Kind::AgentReset,
                _ => Kind::Others,
            },
            parameters: spec.parameters.unwrap_or_default(),
            keep: spec.ttl_seconds_after_finished.map(SignedDuration::from_secs),
            phase,
            completed_at: status.and_then(|status| status.completed_at),
        }
    }
}

fn requirements(selector: LabelSelector) -> Vec<Requirement> {
    let equal = selector
        .match_labels
        .unwrap_or_default()
        .into_iter()
        .map(|(key, value)| Requirement {
            key,
            ask: Ask::In(vec![value]),
        });
    let expressions = selector.match_expressions.unwrap_or_default().into_iter().map(|asked| {
        let values = asked.values.unwrap_or_default();
        Requirement {
            key: asked.key,
            ask: match asked.operator.as_str() {
                "In" => Ask::In(values),
                "NotIn" => Ask::NotIn(values),
                "Exists" => Ask::Exists,
                "DoesNotExist" => Ask::Absent,
                _ => Ask::Unknown,
            },
        }
    });
    equal.chain(expressions).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(value: serde_json::Value) -> Operation {
        serde_json::from_value::<MachineOperation>(value).unwrap().into()
    }

    #[test]
    fn what_the_cluster_writes_is_what_the_agent_means() {
        let operation = read(json!({
            "apiVersion": "unbounded-cloud.io/v1alpha3", "kind": "MachineOperation",
            "metadata": {"name": "up", "uid": "u-1", "creationTimestamp": "2026-11-29T10:00:00Z", "labels": {"x": "y"}},
            "spec": {"machineRef": "edge-1", "operationKind": "AgentUpgrade", "parameters": {"sha256": "x"},
                     "ttlSecondsAfterFinished": 60, "unknown": 1},
            "status": {"phase": "Complete", "completedAt": "2026-11-29T10:01:00Z"},
        }));
        assert_eq!(operation.target, Target::Machine("edge-1".into()));
        assert_eq!(operation.kind, Kind::AgentUpgrade);
        assert_eq!(operation.phase, Phase::Over);
        assert_eq!(operation.keep, Some(SignedDuration::from_mins(1)));
        assert_eq!(operation.completed_at, Some("2026-11-29T10:01:00Z".parse().unwrap()));
        assert_eq!(operation.parameters["sha256"], "x");
    }

    #[test]
    fn one_object_that_cannot_be_read_hides_no_other() {
        let good =
            json!({"metadata": {"name": "good"}, "spec": {"machineRef": "edge-1", "operationKind": "NodeReboot"}});
        let odd = json!({"metadata": {"name": "odd"}, "spec": {"machineRef": "edge-1", "operationKind": "NodeReboot"},
            "status": {"phase": "Failed", "completedAt": "2026-11-30T02:35:08+99:99"}});
        let spec = json!({"metadata": {"name": "spec"}, "spec": {"machineRef": "edge-1", "parameters": {"a": [1]}}});
        let status = json!({"metadata": {"name": "status"}, "spec": {"machineRef": "edge-1"}, "status": {"phase": 7}});
        let read: Vec<MachineOperation> =
            serde_json::from_value(json!([good, odd, spec, status, {"spec": null}])).unwrap();
        let told: Vec<_> = read.iter().map(|object| object.unreadable).collect();
        assert_eq!(told, [None, None, Some("spec"), Some("status"), None]);
        let read: Vec<Operation> = read.into_iter().map(Operation::from).collect();
        assert_eq!(read[1].phase, Phase::Over);
        assert!(read[2..].iter().all(|operation| operation.target == Target::None));
    }

    #[test]
    fn an_object_with_nothing_in_it_is_for_nobody() {
        let operation = read(json!({"metadata": {"name": "x"}}));
        assert_eq!(operation.target, Target::None);
        assert_eq!(operation.kind, Kind::Others);
        assert_eq!(operation.phase, Phase::New);
        let empty_ref = read(
            json!({"metadata": {}, "spec": {"machineRef": "", "operationKind": "NodeReboot",
            "machineSelector": {"matchLabels": {"site": "a"}, "matchExpressions": [
                {"key": "gpu", "operator": "DoesNotExist"}, {"key": "x", "operator": "Gt", "values": ["1"]}]}}}),
        );
        let Target::Labels(asked) = empty_ref.target else {
            panic!("{:?}", empty_ref.target)
        };
        assert_eq!(asked.len(), 3);
        assert_eq!(asked[2].ask, Ask::Unknown);
    }
}
