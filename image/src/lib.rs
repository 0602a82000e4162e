//! Images as data: digests, references, OCI layouts; read, checked while streaming, assembled to the same bytes each time.
//!
//! Pure and streaming: no network, no containerd, no async. Those who fetch bytes hand them in as readers.

pub mod digest;
pub mod layout;
pub mod oci;
pub mod on_disk;
pub mod reference;
pub mod unpack;

pub use digest::{Digest, DigestError};
pub use reference::{ImageRef, RefError, Reference, Repository, Select};
