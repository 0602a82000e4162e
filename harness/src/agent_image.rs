//! The agent's OCI image: built from the workspace, assembled by the `image` crate.
