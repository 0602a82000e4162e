//! What the agent remembers of its machines between two starts.

use serde::{Deserialize, Serialize};

use super::MachineName;

/// The content of `daemon-state.json`. Empty fields are left out, unknown ones ignored, so that an older and a newer
/// agent read each other's file. Source: node-agent specification, 8.5.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The settings version the active machine was built for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_settings_version: String,
    /// The Kubernetes version of the active machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub applied_kubernetes_version: String,
    /// The settings version before that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub previous_settings_version: String,
    /// The Kubernetes version before that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub previous_kubernetes_version: String,
    /// The machine that runs the node.
    pub active_machine: MachineName,
}

impl State {
    /// The state of a host whose first machine was just built for `kubernetes`. The settings version is that of
    /// Kubernetes until AKS names another one.
    #[must_use]
    pub fn first(kubernetes: &str) -> Self {
        Self {
            applied_settings_version: kubernetes.to_owned(),
            applied_kubernetes_version: kubernetes.to_owned(),
            previous_settings_version: String::new(),
            previous_kubernetes_version: String::new(),
            active_machine: MachineName::FIRST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_fields_are_left_out_and_unknown_ones_ignored() {
        let state = State::first("1.34.0");
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(
            text,
            r#"{"appliedSettingsVersion":"1.34.0","appliedKubernetesVersion":"1.34.0","activeMachine":"kube1"}"#
        );
        let newer = r#"{"activeMachine":"kube2","appliedGoal":{"a":1}}"#;
        assert_eq!(
            serde_json::from_str::<State>(newer).unwrap().active_machine,
            MachineName::Kube2
        );
    }
}
