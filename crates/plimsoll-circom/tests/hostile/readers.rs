//! What every reader of files has to bear, for any bytes: it neither panics nor takes more than the file's size. Called by the
//! targets of libFuzzer (`fuzz/`) and by `main.rs`.

use blstrs::Scalar;
use plimsoll_circom::{ReadError, json, map::InMemory, ptau::PtauFile, r1cs::R1csFile, sym, wtns::WtnsFile, zkey};
use plimsoll_groth16::Proof;
use plimsoll_groth16::keys::{Checked, KeyHeader, ProvingKey, VerifyingKey};

/// A reader, by the name of its fuzz target and its corpus.
pub(crate) type Reader = (&'static str, fn(&[u8]));

/// All of them.
pub(crate) const ALL: [Reader; 6] =
    [("r1cs", r1cs), ("wtns", wtns), ("zkey", zkey), ("ptau", ptau), ("json", json), ("key", key)];

/// circom's constraints.
pub(crate) fn r1cs(bytes: &[u8]) {
    let Ok(file) = R1csFile::parse(bytes) else { return };
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

/// A witness.
pub(crate) fn wtns(bytes: &[u8]) {
    let Ok(file) = WtnsFile::parse(bytes) else { return };
    assert!(file.len() * 32 <= bytes.len(), "more values than there are bytes");
    let mut values = vec![Scalar::from(0); file.len()];
    let _ = file.read(0, &mut values);
}

/// A key of snarkjs's: its shape, its points, and what they take.
pub(crate) fn zkey(bytes: &[u8]) {
    let Ok(file) = zkey::ZkeyFile::parse(bytes) else { return };
    // A file of so many bytes has so many points and coefficients.
    assert!(file.header().resident_bytes_max() <= bytes.len() as u64);
    if let Ok(contributors) = file.contributors() {
        assert!(contributors.len() * 500 <= bytes.len(), "more contributions than there is room for");
    }
    let mut building = file.shape_bytes(None);
    let shape = file.shape_paying(None, None, &InMemory, &mut |more| {
        building += more;
        Ok(())
    });
    assert!(building <= 5 * bytes.len() as u64 + 4096, "{building} bytes for a file of {}", bytes.len());
    let Ok(shape) = shape else { return };
    assert!(shape.resident_bytes() <= building, "{} of {building}", shape.resident_bytes());
    if let Ok((key, _)) = file.read_key(&shape, &InMemory) {
        assert_eq!(key.resident_bytes(), file.plan(&shape).resident_bytes);
        let _ = zkey::check_subgroups(&key, &mut |_, _| std::ops::ControlFlow::Continue(()));
    }
}

/// Powers of tau.
pub(crate) fn ptau(bytes: &[u8]) {
    if let Ok(file) = PtauFile::parse(bytes) {
        assert!(96_u64 << file.header().power <= bytes.len() as u64, "more powers than there are bytes");
        let (powers, scaled) = (file.powers(3), file.scaled_powers(3));
        assert!(
            powers.iter().all(|(in_g1, in_g2)| in_g1.len() <= 3 && in_g2.len() <= 3)
                && scaled.iter().flatten().count() <= 2
        );
        if let Ok(contributors) = file.contributors() {
            assert!(contributors.len() * 2104 <= bytes.len(), "more contributions than there is room for");
        }
    }
}

/// Text as one of snarkjs's JSON files: what is read is written again, and is the same then.
pub(crate) fn json(bytes: &[u8]) {
    if let Ok(proof) = json::read_proof(bytes) {
        assert_eq!(json::read_proof(json::write_proof(&proof).as_bytes()), Ok(proof));
    }
    if let Ok(inputs) = json::read_public(bytes) {
        assert_eq!(json::read_public(json::write_public(&inputs).as_bytes()), Ok(inputs));
    }
    if let Ok(key) = json::VerificationKey::read(bytes) {
        assert_eq!(json::VerificationKey::read(key.write().as_bytes()), Ok(key));
    }
    let _ = sym::names(bytes, &[0, 1, 2]);
}

/// A key or a proof of bellperson's.
pub(crate) fn key(bytes: &[u8]) {
    if let Ok(header) = KeyHeader::scan(&mut std::io::Cursor::new(bytes)) {
        assert_eq!(header.file_bytes(), bytes.len() as u64);
        assert!(header.resident_bytes() <= bytes.len() as u64);
        let starts = header.queries().map(|(_, start, count)| start + 96 * u64::from(count));
        assert!(starts.is_sorted() && starts[5] <= bytes.len() as u64, "queries are in the file");
        let _ = ProvingKey::read(bytes, &header, Checked::Yes);
    }
    let _ = VerifyingKey::read(std::io::Cursor::new(bytes));
    if let Ok(proof) = Proof::from_bytes(bytes) {
        assert_eq!(proof.to_bytes(), bytes, "a proof has one encoding");
    }
}
