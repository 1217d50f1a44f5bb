//! Any bytes as a witness: `cargo xtask fuzz --target wtns`.
#![no_main]

#[path = "../../crates/plimsoll-circom/tests/hostile/readers.rs"]
#[allow(dead_code, reason = "the other targets call the others")]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::wtns(bytes));
