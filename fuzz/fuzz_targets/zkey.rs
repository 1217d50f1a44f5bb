//! Any bytes as a key of snarkjs's: its shape, its points, and what they take: `cargo xtask fuzz --target zkey`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use plimsoll_circom::map::InMemory;
    let Ok(file) = plimsoll_circom::zkey::ZkeyFile::parse(bytes) else { return };
    // A file of so many bytes has so many points and coefficients.
    assert!(file.header().resident_bytes_max() <= bytes.len() as u64);
    let building = file.shape_bytes(None);
    assert!(building <= 4 * bytes.len() as u64 + 4096, "{building} bytes for a file of {}", bytes.len());
    let Ok(shape) = file.shape(None, &InMemory) else { return };
    assert!(shape.resident_bytes() <= building, "{} of {building}", shape.resident_bytes());
    if let Ok((key, _)) = file.read_key(&shape, &InMemory) {
        assert_eq!(key.resident_bytes(), file.plan(&shape).resident_bytes);
        let _ = plimsoll_circom::zkey::check_subgroups(&key, &mut |_, _| std::ops::ControlFlow::Continue(()));
    }
});
