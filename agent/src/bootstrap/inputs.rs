//! The inputs of a first boot: variables of `bootstrap.env` with options laid over them.

use std::{collections::BTreeMap, fmt};

use super::{Error, Key, key::PREFIX};
use crate::model::Mode;

/// The inputs. An empty one is as good as none. `Debug` shows only which are given.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Inputs {
    values: BTreeMap<Key, String>,
    /// Overrides in the order in which they are laid over the configuration.
    overrides: Vec<String>,
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}

impl Inputs {
    /// Reads the bytes of `bootstrap.env`. Variables that the agent's image sets are none of it, and ignored.
    ///
    /// # Errors
    /// The grammar, or a variable that means nothing: a misspelt one must not pass for one that isn't given.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let mut inputs = Self::default();
        for found in butane::env::parse(bytes).map_err(Error::Grammar)? {
            if found.name == Mode::VARIABLE {
                continue;
            }
            let Some(key) = Key::named(&found.name) else {
                let line = found.line;
                return Err(match found.name.starts_with(PREFIX) {
                    true => Error::Unknown { line, name: found.name },
                    false => Error::Foreign { line },
                });
            };
            inputs.set(key, found.value);
        }
        inputs.overrides.extend(inputs.values.remove(&Key::ConfigOverrides));
        Ok(inputs)
    }

    /// Lays the options of the command line over the variables. Overrides are laid one over the other.
    #[must_use]
    pub fn with(mut self, options: impl IntoIterator<Item = (Key, String)>) -> Self {
        for (key, value) in options {
            if key == Key::ConfigOverrides {
                self.overrides.push(value)
            } else {
                self.set(key, value)
            }
        }
        self
    }

    fn set(&mut self, key: Key, value: String) {
        if value.trim().is_empty() {
            self.values.remove(&key);
        } else {
            self.values.insert(key, value);
        }
    }

    /// The input without blanks at its ends, if it is given.
    pub(super) fn value(&self, key: Key) -> Option<&str> {
        self.values.get(&key).map(|value| value.trim())
    }

    pub(super) fn overrides(&self) -> impl Iterator<Item = &str> {
        self.overrides.iter().map(String::as_str)
    }

    /// The file that the configuration starts from.
    #[must_use]
    pub fn base(&self) -> Option<&str> {
        self.value(Key::BaseConfigFile)
    }

    /// Inputs that mean nothing where the agent runs from its image.
    pub fn without_effect(&self) -> impl Iterator<Item = Key> {
        [Key::AgentUrl, Key::AgentVersion, Key::AgentSha256, Key::InstallDir]
            .into_iter()
            .filter(|key| self.values.contains_key(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_beat_variables_and_overrides_add_up() {
        let inputs =
            Inputs::parse(b"AKS_FLEX_NODE_AUTH=msi\nAKS_FLEX_NODE_CONFIG_OVERRIDES={}\nAKS_FLEX_NODE_AGENT_URL=\n")
                .unwrap()
                .with([(Key::Auth, "arc".into()), (Key::ConfigOverrides, "{\"a\":1}".into())]);
        assert_eq!(inputs.value(Key::Auth), Some("arc"));
        assert_eq!(inputs.overrides().collect::<Vec<_>>(), ["{}", "{\"a\":1}"]);
        assert_eq!(
            inputs.without_effect().count(),
            0,
            "an empty variable is as good as none"
        );
        assert_eq!(format!("{inputs:?}"), "{Auth}");
    }

    #[test]
    fn na_r25_variables_of_the_image_are_no_inputs() {
        let inputs = Inputs::parse(b"AKS_FLEX_NODE_CONTAINERIZED=false\n").unwrap();
        assert_eq!(inputs, Inputs::default());
    }

    #[test]
    fn a_variable_that_means_nothing_is_refused_without_its_value() {
        for (text, message) in [
            (
                "AKS_FLEX_NODE_AUHT=canary",
                "/etc/aks-flex-node/bootstrap.env line 1: AKS_FLEX_NODE_AUHT is no variable of the agent: leave it out, or correct its name",
            ),
            (
                "\nHTTPS_PROXY=http://u:canary@p",
                "/etc/aks-flex-node/bootstrap.env line 2 has a variable that is none of the agent's: leave it out",
            ),
        ] {
            let error = Inputs::parse(text.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), message);
            assert!(!error.may_pass() && !format!("{error:?}").contains("canary"));
        }
    }
}
