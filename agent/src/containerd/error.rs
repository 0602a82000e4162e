//! Why an image was not had: who was asked, what for, and what came of it.
//!
//! Nothing that a registry says is repeated but its status and its code: addresses it redirects to carry keys, and bodies
//! carry what it likes.

use std::time::Duration;

use hostexec::HostPath;
use image::oci::OciError;
use image::unpack::UnpackError;
use image::{Digest, RefError};
use oci_client::errors::{OciDistributionError, OciErrorCode};

use super::link::ContainerdError;
use super::registries::RegistriesError;
use super::room::NoRoom;

/// Why an image was not had.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// Its name is none.
    #[error(transparent)]
    Reference(#[from] RefError),
    /// The registries' settings are bad.
    #[error(transparent)]
    Registries(#[from] RegistriesError),
    /// The registry did not give it.
    #[error("{step} from {registry}: {why}")]
    Registry {
        /// Who was asked.
        registry: String,
        /// What for.
        step: &'static str,
        /// What came of it.
        why: Why,
    },
    /// What came is no image for this host.
    #[error(transparent)]
    Image(#[from] OciError),
    /// What came is not what was named.
    #[error("{registry} gave {got} for {wanted}")]
    Digest {
        /// Who gave it.
        registry: String,
        /// What was named.
        wanted: Digest,
        /// What came.
        got: Digest,
    },
    /// It took too long.
    #[error("the pull from {registry} was not done within {} s", limit.as_secs())]
    Overall {
        /// From whom.
        registry: String,
        /// The limit.
        limit: Duration,
        /// What failed before, and was tried again.
        #[source]
        last: Option<Box<PullError>>,
    },
    /// containerd's disk has no room for it.
    #[error("there is no room for the image in {folder}: {source}")]
    NoRoom {
        /// Where containerd keeps everything.
        folder: HostPath,
        /// How much is missing.
        source: NoRoom,
    },
    /// Its layers could not be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    /// What came had no place.
    #[error("what the registry sends can't be kept")]
    Keep(#[source] std::io::Error),
    /// containerd did not do its part.
    #[error(transparent)]
    Containerd(#[from] ContainerdError),
}

impl PullError {
    /// Whether asking again later may help.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Reference(_) | Self::Registries(_) | Self::Image(_) | Self::Digest { .. } | Self::NoRoom { .. } => {
                false
            }
            Self::Registry { why, .. } => why.may_pass(),
            Self::Containerd(error) => error.may_pass(),
            Self::Overall { .. } | Self::Unpack(_) | Self::Keep(_) => true,
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Why {
    /// It was refused.
    #[error("HTTP status {0}")]
    Status(u16),
    /// It was refused, with a code of the distribution-spec.
    #[error("HTTP status {status} ({code})")]
    Code {
        /// The status that goes with the code.
        status: u16,
        /// The code.
        code: &'static str,
    },
    /// The token service refused.
    #[error("the registry's token service gave no token")]
    NoToken,
    /// Nothing came, and its name could not be resolved either.
    #[error("its name could not be resolved")]
    Unnamed,
    /// Nothing came for too long.
    #[error("no answer within the limit")]
    Silent,
    /// The connection failed or broke; what the transport says of it.
    #[error("{0}")]
    Transport(String),
    /// The answer makes no sense.
    #[error("{0}")]
    Nonsense(&'static str),
}

impl Why {
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Status(status) | Self::Code { status, .. } => matches!(status, 408 | 429 | 500..),
            Self::Silent | Self::Unnamed | Self::Transport(_) => true,
            Self::NoToken | Self::Nonsense(_) => false,
        }
    }
}

/// A redirect that is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Turn {
    /// From TLS to none.
    #[error("it redirects from https to plain http")]
    Plain,
    /// One after the other.
    #[error("it redirects again and again")]
    Circle,
}

impl Turn {
    fn of(error: &reqwest::Error) -> Option<Why> {
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            match error.downcast_ref::<Self>() {
                Some(Self::Plain) => return Some(Why::Nonsense("it redirects from https to plain http")),
                Some(Self::Circle) => return Some(Why::Nonsense("it redirects again and again")),
                None => cause = error.source(),
            }
        }
        None
    }
}

/// What a failure comes to, without what the registry wrote.
pub(super) fn why(error: OciDistributionError) -> Why {
    use OciDistributionError as E;
    match error {
        E::UnauthorizedError { .. } => Why::Status(401),
        E::ServerError { code, .. } => Why::Status(code),
        E::RegistryError { envelope, .. } => match envelope.errors.first() {
            Some(error) => code(&error.code),
            None => Why::Nonsense("it refused without a reason"),
        },
        E::AuthenticationFailure(_) | E::RegistryTokenDecodeError(_) => Why::NoToken,
        E::RequestError(error) => transport(error),
        E::IoError(error) => match error.downcast::<reqwest::Error>() {
            Ok(error) => transport(error),
            Err(error) => Why::Transport(error.kind().to_string()),
        },
        E::DigestError(_) => Why::Nonsense("its digest is not the one that was named"),
        E::UrlParseError(_) => Why::Nonsense("its address is malformed"),
        E::SpecViolationError(_) => Why::Nonsense("it answered with a status that has no meaning here"),
        E::ConfigConversionError(_)
        | E::GenericError(_)
        | E::HeaderValueError(_)
        | E::ImageManifestNotFoundError(_)
        | E::ImageIndexParsingNoPlatformResolverError
        | E::IncompatibleLayerMediaTypeError(_)
        | E::JsonError(_)
        | E::ManifestEncodingError(_)
        | E::ManifestParsingError(_)
        | E::PushNoDataError
        | E::PushLayerNoDataError
        | E::PullNoLayersError
        | E::RegistryNoDigestError
        | E::RegistryNoLocationError
        | E::UnsupportedMediaTypeError(_)
        | E::UnsupportedSchemaVersionError(_)
        | E::VersionedParsingError(_) => Why::Nonsense("it answered something that is not of a registry"),
    }
}

/// The status that the distribution-spec pairs with a code: the client keeps the code alone.
fn code(code: &OciErrorCode) -> Why {
    use OciErrorCode as C;
    let (status, code) = match code {
        C::Unauthorized => (401, "UNAUTHORIZED"),
        C::Denied => (403, "DENIED"),
        C::ManifestUnknown => (404, "MANIFEST_UNKNOWN"),
        C::NameUnknown => (404, "NAME_UNKNOWN"),
        C::BlobUnknown => (404, "BLOB_UNKNOWN"),
        C::NotFound => (404, "NOT_FOUND"),
        C::Toomanyrequests => (429, "TOOMANYREQUESTS"),
        C::BlobUploadInvalid
        | C::BlobUploadUnknown
        | C::DigestInvalid
        | C::ManifestBlobUnknown
        | C::ManifestInvalid
        | C::ManifestUnverified
        | C::NameInvalid
        | C::SizeInvalid
        | C::TagInvalid
        | C::Unsupported
        | C::Other(_) => (400, "refused"),
    };
    Why::Code { status, code }
}

/// The transport's own words without any address: one that a registry redirects to carries a key.
fn transport(error: reqwest::Error) -> Why {
    if error.is_timeout() {
        return Why::Silent;
    }
    if let Some(refused) = Turn::of(&error) {
        return refused;
    }
    let error = error.without_url();
    let mut words = Vec::new();
    let mut cause: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = cause {
        let text = error.to_string();
        if !words.contains(&text) {
            words.push(text);
        }
        cause = error.source();
    }
    Why::Transport(words.join(": "))
}
