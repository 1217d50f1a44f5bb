//! Traces of the ledger's state machine against its oracle, as a fuzzer finds them: `cargo xtask fuzz`, or `cargo fuzz run
//! ledger_trace` where cargo-fuzz is installed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    plimsoll_soak::trace::run_bytes(bytes);
});
