//! Any bytes as one of snarkjs's JSON files: `cargo xtask fuzz --target json`.
#![no_main]

#[path = "../../crates/plimsoll-circom/tests/hostile/readers.rs"]
#[allow(dead_code, reason = "the other targets call the others")]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::json(bytes));
