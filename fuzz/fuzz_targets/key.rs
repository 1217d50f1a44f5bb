//! Any bytes as a key or a proof of bellperson's: `cargo xtask fuzz --target key`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use plimsoll_groth16::keys::{Checked, KeyHeader, ProvingKey, VerifyingKey};
    if let Ok(header) = KeyHeader::scan(&mut std::io::Cursor::new(bytes)) {
        assert_eq!(header.file_bytes(), bytes.len() as u64);
        assert!(header.resident_bytes() <= bytes.len() as u64);
        let _ = ProvingKey::read(bytes, &header, Checked::Yes);
    }
    let _ = VerifyingKey::read(std::io::Cursor::new(bytes));
    if let Ok(proof) = plimsoll_groth16::Proof::from_bytes(bytes) {
        assert_eq!(proof.to_bytes(), bytes, "a proof has one encoding");
    }
});
