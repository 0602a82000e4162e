//! A host: one booted machine, its life, and what can be done to it.
