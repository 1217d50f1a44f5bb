//! Any bytes as powers of tau: `cargo xtask fuzz --target ptau`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = plimsoll_circom::ptau::PtauFile::parse(bytes) {
        assert!(96_u64 << file.header().power <= bytes.len() as u64, "more powers than there are bytes");
    }
});
