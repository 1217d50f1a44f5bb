//! Any bytes as circom's constraints: `cargo xtask fuzz --target r1cs`.
#![no_main]

#[path = "../../crates/plimsoll-circom/tests/hostile/readers.rs"]
#[allow(dead_code, reason = "the other targets call the others")]
mod readers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| readers::r1cs(bytes));
