//! Any bytes as a key of snarkjs's: `cargo xtask fuzz --target zkey`.
#![no_main]

#[path = "../../crates/plimsoll-circom/tests/hostile/readers.rs"]
#[allow(dead_code, reason = "the other targets call the others")]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::zkey(bytes));
