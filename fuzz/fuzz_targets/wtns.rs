//! Any bytes as a witness: `cargo xtask fuzz --target wtns`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(file) = plimsoll_circom::wtns::WtnsFile::parse(bytes) {
        assert!(file.len() * 32 <= bytes.len(), "more values than there are bytes");
        let mut values = vec![blstrs::Scalar::from(0); file.len()];
        let _ = file.read(0, &mut values);
    }
});
