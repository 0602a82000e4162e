//! The variables of `bootstrap.env`, which are also the options of `bootstrap`.

/// Begins the name of each variable.
pub(super) const PREFIX: &str = "AKS_FLEX_NODE_";

macro_rules! keys {
    ($($(#[$doc:meta])* $key:ident = $name:literal / $option:literal;)*) => {
        /// An input of a first boot. Source: node-agent specification, appendix C.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Key {
            $($(#[$doc])* $key,)*
        }

        impl Key {
            /// Every input.
            pub const ALL: &'static [Self] = &[$(Self::$key),*];

            /// The variable.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$key => concat!("AKS_FLEX_NODE_", $name)),* }
            }

            /// The option of the command line; empty where there is none.
            #[must_use]
            pub const fn option(self) -> &'static str {
                match self { $(Self::$key => $option),* }
            }
        }
    };
}

keys! {
    /// A file of the host that the configuration starts from.
    BaseConfigFile = "BASE_CONFIG_FILE" / "";
    /// JSON objects laid over the configuration, one after the other.
    ConfigOverrides = "CONFIG_OVERRIDES" / "config-overrides";
    /// `msi`, `service-principal` or `arc`.
    Auth = "AUTH" / "auth";
    /// The managed identity's client.
    MsiClientId = "MSI_CLIENT_ID" / "msi-client-id";
    /// The service principal's tenant.
    SpTenantId = "SP_TENANT_ID" / "sp-tenant-id";
    /// The service principal's client.
    SpClientId = "SP_CLIENT_ID" / "sp-client-id";
    /// The service principal's secret. Older than the file, and never an option.
    SpClientSecret = "SP_CLIENT_SECRET" / "";
    /// A file of the host with the secret.
    SpClientSecretFile = "SP_CLIENT_SECRET_FILE" / "sp-client-secret-file";
    /// A file of the host with certificate and key.
    SpClientCertificateFile = "SP_CLIENT_CERTIFICATE_FILE" / "sp-client-certificate-file";
    /// Whether Azure is asked for the cluster's data.
    FetchBootstrapData = "FETCH_BOOTSTRAP_DATA" / "fetch-bootstrap-data";
    /// The cluster's resource ID.
    ClusterResourceId = "CLUSTER_RESOURCE_ID" / "cluster-resource-id";
    /// The agent pool.
    AgentPoolName = "AGENT_POOL_NAME" / "agent-pool-name";
    /// The machine's rootfs image.
    BootstrapOciImage = "BOOTSTRAP_OCI_IMAGE" / "bootstrap-oci-image";
    /// Where offline artifacts are.
    BootstrapOfflineArtifactsSource = "BOOTSTRAP_OFFLINE_ARTIFACTS_SOURCE" / "bootstrap-offline-artifacts-source";
    /// Where the binary install gets the agent.
    AgentUrl = "AGENT_URL" / "agent-url";
    /// Which agent the binary install gets.
    AgentVersion = "AGENT_VERSION" / "agent-version";
    /// The digest of what the binary install gets.
    AgentSha256 = "AGENT_SHA256" / "agent-sha256";
    /// Where the binary install puts the agent.
    InstallDir = "INSTALL_DIR" / "install-dir";
    /// Where the configuration is written.
    ConfigPath = "CONFIG_PATH" / "config-path";
    /// The agent to run instead of installing one.
    InstalledAgent = "INSTALLED_AGENT" / "installed-agent";
}

impl Key {
    /// The input with this variable.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_options_agree() {
        for key in Key::ALL {
            assert_eq!(Key::named(key.name()), Some(*key));
            let option = key.option().to_uppercase().replace('-', "_");
            assert!(
                option.is_empty() || key.name() == format!("{PREFIX}{option}"),
                "{}",
                key.name()
            );
        }
    }
}
