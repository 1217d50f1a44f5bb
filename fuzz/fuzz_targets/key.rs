//! Any bytes as a key or a proof of bellperson's: `cargo xtask fuzz --target key`.
#![no_main]

#[path = "../../crates/plimsoll-circom/tests/hostile/readers.rs"]
#[allow(dead_code, reason = "the other targets call the others")]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::key(bytes));
