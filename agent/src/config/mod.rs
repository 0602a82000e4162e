//! The agent's configuration: the file as written, and as meant.
