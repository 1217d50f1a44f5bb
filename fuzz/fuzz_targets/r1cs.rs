//! Any bytes as circom's constraints: `cargo xtask fuzz --target r1cs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    use plimsoll_circom::ReadError;
    if let Ok(file) = plimsoll_circom::r1cs::R1csFile::parse(bytes) {
        let mut terms = 0;
        let walked = file.for_each_term::<ReadError>(|_, constraint, wire, _| {
            assert!(constraint < file.header().constraints && wire < file.header().wires);
            terms += 1;
            Ok(())
        });
        assert!(terms <= file.terms_max(), "more terms than the section has room for");
        if walked.is_ok() {
            assert!(file.label(file.header().wires).is_none());
        }
    }
});
