//! `cargo fuzz run config`: the target of the same name in `src/lib.rs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::config(data));
