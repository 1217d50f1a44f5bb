//! Any text as one of snarkjs's JSON files: `cargo xtask fuzz --target json`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use plimsoll_circom::json::{VerificationKey, read_proof, read_public, write_proof, write_public};
    // What is read is written again, and is the same then.
    if let Ok(proof) = read_proof(bytes) {
        assert_eq!(read_proof(write_proof(&proof).as_bytes()), Ok(proof));
    }
    if let Ok(inputs) = read_public(bytes) {
        assert_eq!(read_public(write_public(&inputs).as_bytes()), Ok(inputs));
    }
    if let Ok(key) = VerificationKey::read(bytes) {
        assert_eq!(VerificationKey::read(key.write().as_bytes()), Ok(key));
    }
    let _ = plimsoll_circom::sym::names(bytes, &[0, 1, 2]);
});
