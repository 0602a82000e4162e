//! What commands can be given.

use clap::{Args, Subcommand, ValueEnum};

use crate::{
    azure::{AKS_SERVER, API_VERSION},
    bootstrap::Key,
    preflight::Strictness,
    verb::{self, Output},
};

/// What can be planned.
#[derive(Subcommand)]
pub enum PlanOf {
    /// What `reset` would do.
    Reset(Printed),
    /// What `start` would do.
    Start {
        /// The configuration.
        #[command(flatten)]
        config: Config,
        /// An outline, or JSON with every file's bytes.
        #[arg(long, value_enum, default_value = "text")]
        output: Output,
    },
}

/// How it is printed.
#[derive(Args)]
pub struct Printed {
    #[arg(long, value_enum, default_value = "text", help = "For a person, or JSON")]
    output: Output,
    #[arg(long, conflicts_with = "output", help = "The same as `--output json`")]
    json: bool,
}

impl Printed {
    /// What was asked for.
    #[must_use]
    pub fn output(&self) -> Output {
        if self.json { Output::Json } else { self.output }
    }
}

/// Where the configuration is.
#[derive(Args)]
pub struct Config {
    /// The configuration file of the host.
    #[arg(long = "config", value_name = "PATH", default_value = "", hide_default_value = true)]
    pub path: String,
}

/// Which bootstrap data, by whom, and where to.
#[derive(Args)]
pub struct FetchBootstrapData {
    #[arg(long, value_name = "ID", help = "Resource ID of the cluster")]
    cluster_resource_id: String,
    #[arg(long, value_name = "NAME", help = "The pool of FlexNodes")]
    agent_pool_name: String,
    #[arg(long, value_enum, help = "Who asks")]
    auth: verb::Auth,
    #[arg(short, long, value_name = "PATH", help = "File of the host that the data goes into")]
    output: String,
    #[arg(long, value_name = "ID", help = "Client ID of the managed identity")]
    msi_client_id: Option<String>,
    #[arg(long, value_name = "ID", help = "Tenant of the service principal")]
    sp_tenant_id: Option<String>,
    #[arg(long, value_name = "ID", help = "Client ID of the service principal")]
    sp_client_id: Option<String>,
    #[arg(long, value_name = "PATH", help = "File with the service principal's secret")]
    sp_client_secret_file: Option<String>,
    #[arg(long, value_name = "PATH", help = "PEM with its certificate and key")]
    sp_client_certificate_file: Option<String>,
    #[arg(long, value_name = "PATH", help = "File with either")]
    sp_client_credential_file: Option<String>,
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    #[arg(help = "The resource manager, unless it is the public cloud's")]
    resource_manager_endpoint: String,
    #[arg(
        long,
        value_name = "URL",
        help = "Who gives out tokens, unless it is who goes with the resource manager"
    )]
    authority_host: Option<String>,
    #[arg(long, value_name = "VERSION", default_value = API_VERSION)]
    #[arg(help = "Version of the resource manager's API")]
    api_version: String,
}

impl From<FetchBootstrapData> for verb::Wanted {
    fn from(asked: FetchBootstrapData) -> Self {
        let files = [
            asked.sp_client_secret_file,
            asked.sp_client_certificate_file,
            asked.sp_client_credential_file,
        ];
        Self {
            cluster: asked.cluster_resource_id,
            pool: asked.agent_pool_name,
            auth: asked.auth,
            msi_client: asked.msi_client_id,
            tenant: asked.sp_tenant_id,
            client: asked.sp_client_id,
            files: files.into_iter().flatten().collect(),
            manager: asked.resource_manager_endpoint,
            authority: asked.authority_host,
            api_version: asked.api_version,
            output: asked.output,
        }
    }
}

/// In which form a token is printed.
#[derive(Subcommand)]
pub enum TokenOf {
    /// As kubelet takes it from its credential plugin, which this is. Who it is of is said by the environment: AAD_LOGIN_METHOD
    /// (spn or msi) and what goes with it.
    Kubelogin(Kubelogin),
}

/// Which token.
#[derive(Args)]
pub struct Kubelogin {
    /// Whom it is for: the application of the API server.
    #[arg(long, value_name = "ID", default_value = AKS_SERVER)]
    pub server_id: String,
    /// A PEM with the service principal's certificate and key.
    #[arg(long, value_name = "PATH")]
    pub client_certificate_file: Option<String>,
    /// Not supported.
    #[arg(long, hide = true)]
    pub pop_enabled: bool,
    /// Not supported.
    #[arg(long, hide = true, value_name = "CLAIMS")]
    pub pop_claims: Option<String>,
}

impl From<Kubelogin> for verb::Login {
    fn from(asked: Kubelogin) -> Self {
        Self {
            server_id: asked.server_id,
            certificate: asked.client_certificate_file,
            binding: match asked.pop_enabled || asked.pop_claims.is_some() {
                true => verb::Binding::ToKey,
                false => verb::Binding::None,
            },
        }
    }
}

/// What to look at, and how it is judged.
#[derive(Args)]
pub struct Preflight {
    /// The configuration.
    #[command(flatten)]
    pub config: Config,
    /// How the report is printed.
    #[arg(long, value_enum, default_value = "text")]
    pub output: Output,
    /// Checks whose errors are to be warnings, separated by commas, or all; may be repeated.
    #[arg(long, value_name = "LIST")]
    pub ignore_preflight_errors: Vec<String>,
    /// Fail on warnings, too.
    #[arg(long)]
    pub fail_on_warnings: bool,
    /// A check to make, instead of all; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub check: Vec<String>,
}

impl Preflight {
    pub(super) fn asked(self) -> verb::Asked {
        verb::Asked {
            output: self.output,
            ignored: self.ignore_preflight_errors,
            strictness: match self.fail_on_warnings {
                true => Strictness::Warnings,
                false => Strictness::Errors,
            },
            only: self.check,
        }
    }
}

/// What to render.
#[derive(Args)]
pub struct Ignition {
    /// The folder with the inputs.
    pub dir: std::path::PathBuf,
    /// The version of the config: 3.3.0 for older Ignition.
    #[arg(long, value_enum, default_value = "3.4.0")]
    pub spec: Spec,
}

/// A version of Ignition's config.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Spec {
    /// For Ignition before 2.15.
    #[value(name = "3.3.0")]
    Older,
    /// What Azure Container Linux is given.
    #[value(name = "3.4.0")]
    Acl,
}

impl From<Spec> for butane::Spec {
    fn from(spec: Spec) -> Self {
        match spec {
            Spec::Older => Self::V3_3_0,
            Spec::Acl => Self::V3_4_0,
        }
    }
}

/// A phase of a machine's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Phase {
    /// Before the machine starts.
    PreStart,
    /// After it has started.
    PostStart,
    /// When its devices have changed.
    Reconcile,
}

/// The inputs of a first boot: each lies over the variable of its name.
#[derive(Args)]
pub struct Inputs {
    /// msi, service-principal or arc.
    #[arg(long, value_name = "WAY")]
    auth: Option<String>,
    #[arg(long, value_name = "ID", help = "Client ID of the managed identity")]
    msi_client_id: Option<String>,
    #[arg(long, value_name = "ID", help = "Tenant of the service principal")]
    sp_tenant_id: Option<String>,
    #[arg(long, value_name = "ID", help = "Client ID of the service principal")]
    sp_client_id: Option<String>,
    #[arg(
        long,
        value_name = "PATH",
        help = "File of the host with the service principal's secret"
    )]
    sp_client_secret_file: Option<String>,
    #[arg(
        long,
        value_name = "PATH",
        help = "File of the host with the service principal's certificate and key"
    )]
    sp_client_certificate_file: Option<String>,
    #[arg(long, help = "Ask Azure for the cluster's data: not part of this release yet")]
    fetch_bootstrap_data: bool,
    #[arg(long, value_name = "ID", help = "Resource ID of the cluster")]
    cluster_resource_id: Option<String>,
    #[arg(long, value_name = "NAME", help = "Agent pool of the AKS machine")]
    agent_pool_name: Option<String>,
    #[arg(long, value_name = "URL", help = "Where the binary install gets the agent")]
    agent_url: Option<String>,
    #[arg(long, value_name = "VERSION", help = "Which agent the binary install gets")]
    agent_version: Option<String>,
    #[arg(long, value_name = "HEX", help = "Digest of what the binary install gets")]
    agent_sha256: Option<String>,
    #[arg(
        long,
        value_name = "JSON",
        help = "Object laid over the configuration; may be repeated"
    )]
    config_overrides: Vec<String>,
    #[arg(long, value_name = "IMAGE", help = "Rootfs image of the machine")]
    bootstrap_oci_image: Option<String>,
    #[arg(
        long,
        value_name = "SOURCE",
        help = "Where offline artifacts are: a folder of the host, or oci://<registry>/<repository>:<tag>"
    )]
    bootstrap_offline_artifacts_source: Option<String>,
    #[arg(long, value_name = "PATH", help = "Where the binary install puts the agent")]
    install_dir: Option<String>,
    #[arg(long, value_name = "PATH", help = "Where the configuration is written")]
    config_path: Option<String>,
    #[arg(long, value_name = "PATH", help = "Agent to run instead of installing one")]
    installed_agent: Option<String>,
}

impl Inputs {
    /// The options that were given.
    pub fn given(self) -> impl Iterator<Item = (Key, String)> {
        let single = [
            (Key::Auth, self.auth),
            (Key::MsiClientId, self.msi_client_id),
            (Key::SpTenantId, self.sp_tenant_id),
            (Key::SpClientId, self.sp_client_id),
            (Key::SpClientSecretFile, self.sp_client_secret_file),
            (Key::SpClientCertificateFile, self.sp_client_certificate_file),
            (
                Key::FetchBootstrapData,
                self.fetch_bootstrap_data.then(|| "true".to_owned()),
            ),
            (Key::ClusterResourceId, self.cluster_resource_id),
            (Key::AgentPoolName, self.agent_pool_name),
            (Key::AgentUrl, self.agent_url),
            (Key::AgentVersion, self.agent_version),
            (Key::AgentSha256, self.agent_sha256),
            (Key::BootstrapOciImage, self.bootstrap_oci_image),
            (
                Key::BootstrapOfflineArtifactsSource,
                self.bootstrap_offline_artifacts_source,
            ),
            (Key::InstallDir, self.install_dir),
            (Key::ConfigPath, self.config_path),
            (Key::InstalledAgent, self.installed_agent),
        ];
        let overrides = self
            .config_overrides
            .into_iter()
            .map(|text| (Key::ConfigOverrides, text));
        single
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .chain(overrides)
    }
}
