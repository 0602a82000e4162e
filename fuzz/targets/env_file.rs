//! `cargo fuzz run env_file`: the target of the same name in `src/lib.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::env_file(data));
