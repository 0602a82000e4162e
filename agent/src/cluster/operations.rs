//! What the agent writes about a MachineOperation. Each write starts from a fresh read and names the version it read, so
//! that the API server refuses it when somebody else was faster.

use jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use super::wire::MachineOperation;
use super::{Client, Error, limited};
use crate::operation::Phase;

/// How often a write is begun anew because somebody else was faster.
const CONFLICTS: u32 = 5;
const CONDITION: &str = "Completed";

/// Whether an operation is still the one that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is, and what was to be written is written.
    Current,
    /// It is gone, another one has its name, or it has ended.
    NotCurrent,
}

/// How an operation ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// `Complete` or `Failed`.
    pub phase: &'static str,
    /// The condition's reason.
    pub reason: &'static str,
    /// The condition's and the status' message.
    pub message: String,
    /// When it was taken, should the status not say so yet.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub completed_at: Timestamp,
    /// The Machine object's generation, 0 when there is none.
    pub generation: i64,
}

impl Client {
    /// Says that the operation is being carried out.
    ///
    /// # Errors
    /// When that could not be written; trying again does no harm.
    pub async fn begin(
        &self,
        name: &str,
        uid: &str,
        message: &str,
        started_at: Timestamp,
        generation: i64,
    ) -> Result<Standing, Error> {
        self.write(name, uid, |object| {
            let started = object
                .status
                .as_ref()
                .and_then(|status| status.started_at)
                .unwrap_or(started_at);
            json!({
                "phase": "InProgress",
                "message": message,
                "startedAt": seconds(started),
                "observedMachineGeneration": generation,
                "conditions": conditions(object, "False", "InProgress", message, started_at),
            })
        })
        .await
    }

    /// Says how the operation ended. One that has ended stays as it is.
    ///
    /// # Errors
    /// When that could not be written; trying again does no harm.
    pub async fn finish(&self, name: &str, uid: &str, end: &Ending) -> Result<Standing, Error> {
        self.write(name, uid, |object| {
            let started = object.status.as_ref().and_then(|status| status.started_at);
            let started = started.or(end.started_at).unwrap_or(end.completed_at);
            let truth = if end.phase == "Complete" { "True" } else { "False" };
            let mut status = json!({
                "phase": end.phase,
                "message": end.message,
                "startedAt": seconds(started),
                "completedAt": seconds(end.completed_at),
                "conditions": conditions(object, truth, end.reason, &end.message, end.completed_at),
            });
            if end.generation > 0 {
                status["observedMachineGeneration"] = end.generation.into();
            }
            status
        })
        .await
    }

    /// Removes an operation that has ended.
    ///
    /// # Errors
    /// When it could not be removed; that it is gone is none.
    pub async fn remove(&self, name: &str, uid: &str) -> Result<(), Error> {
        let only_this = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        match limited(self.operations().delete(name, &only_this)).await {
            // A conflict is another UID under the name.
            Ok(_) | Err(Error::Missing(_) | Error::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the operation still waits for its end.
    ///
    /// # Errors
    /// When the API server does not say.
    pub async fn current(&self, name: &str, uid: &str) -> Result<Standing, Error> {
        Ok(match self.read(name, uid).await? {
            Some(_) => Standing::Current,
            None => Standing::NotCurrent,
        })
    }

    /// The generation of the Machine object of this name; 0 when there is none, or no such kind.
    ///
    /// # Errors
    /// When the API server does not say.
    pub async fn machine_generation(&self, name: &str) -> Result<i64, Error> {
        let resource = kube::core::ApiResource {
            group: "unbounded-cloud.io".into(),
            version: "v1alpha3".into(),
            api_version: "unbounded-cloud.io/v1alpha3".into(),
            kind: "Machine".into(),
            plural: "machines".into(),
        };
        let api: Api<kube::core::DynamicObject> = Api::all_with(self.0.clone(), &resource);
        match limited(api.get_metadata(name)).await {
            Ok(machine) => Ok(machine.metadata.generation.unwrap_or(0)),
            Err(Error::Missing(_)) => Ok(0),
            Err(error @ Error::Denied(_)) => {
                tracing::warn!(%error, "the Machine object can't be read; its generation is left out");
                Ok(0)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn operations(&self) -> Api<MachineOperation> {
        Api::all(self.0.clone())
    }

    async fn read(&self, name: &str, uid: &str) -> Result<Option<MachineOperation>, Error> {
        let object = match limited(self.operations().get(name)).await {
            Ok(object) => object,
            Err(Error::Missing(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let current = object.metadata.uid.as_deref() == Some(uid)
            && object.metadata.deletion_timestamp.is_none()
            && object.phase() != Phase::Over;
        Ok(current.then_some(object))
    }

    async fn write(
        &self,
        name: &str,
        uid: &str,
        status: impl Fn(&MachineOperation) -> Value,
    ) -> Result<Standing, Error> {
        let mut conflicts = 0;
        loop {
            let Some(object) = self.read(name, uid).await? else {
                return Ok(Standing::NotCurrent);
            };
            let patch = json!({
                "metadata": {"uid": uid, "resourceVersion": object.metadata.resource_version},
                "status": status(&object),
            });
            let patch = Patch::Merge(patch);
            match limited(self.operations().patch_status(name, &PatchParams::default(), &patch)).await {
                Ok(_) => return Ok(Standing::Current),
                Err(Error::Conflict(_)) if conflicts < CONFLICTS => conflicts += 1,
                Err(Error::Missing(_)) => return Ok(Standing::NotCurrent),
                Err(error) => return Err(error),
            }
        }
    }
}

/// The object's conditions with ours replaced; others' stay, and the time of ours moves only when its status does.
fn conditions(object: &MachineOperation, status: &str, reason: &str, message: &str, now: Timestamp) -> Vec<Value> {
    let mut all = object
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let before = all.iter().find(|condition| condition["type"] == CONDITION).cloned();
    all.retain(|condition| condition["type"] != CONDITION);
    let since = match before {
        Some(before) if before["status"] == status => before["lastTransitionTime"].clone(),
        Some(_) | None => json!(seconds(now)),
    };
    all.push(json!({
        "type": CONDITION, "status": status, "reason": reason, "message": message, "lastTransitionTime": since,
    }));
    all
}

/// Kubernetes keeps times to the second.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_condition_is_replaced_and_others_stay() {
        let object: MachineOperation = serde_json::from_value(json!({
            "metadata": {},
            "status": {"conditions": [
                {"type": "Approved", "status": "True"},
                {"type": "Completed", "status": "False", "reason": "InProgress", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            ]},
        }))
        .unwrap();
        let now = "2026-02-02T02:02:02.5Z".parse().unwrap();
        let done = conditions(&object, "True", "Succeeded", "m", now);
        assert_eq!(done.len(), 2);
        assert_eq!(done[0]["type"], "Approved");
        assert_eq!(done[1]["lastTransitionTime"], "2026-02-02T02:02:02Z");
        let again = conditions(&object, "False", "DaemonFailed", "m", now);
        assert_eq!(again[1]["lastTransitionTime"], "2026-01-01T00:00:00Z");
        assert_eq!(again[1]["reason"], "DaemonFailed");
    }
}
