use std::ops::ControlFlow;
use std::sync::Arc;

use blstrs::Scalar;
use ff::Field;
use plimsoll::{JobSpec, Ledger};
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::prover::{Blinding, ProveError, Proved, Prover};
use plimsoll_groth16::verify;

use super::*;
use crate::json::VerificationKey;
use crate::map::InMemory;
use crate::r1cs::R1csFile;
use crate::wtns::WtnsFile;

const ZKEY: &[u8] = include_bytes!("../../tests/fixtures/small.zkey");
const R1CS: &[u8] = include_bytes!("../../tests/fixtures/small.r1cs");
const WTNS: &[u8] = include_bytes!("../../tests/fixtures/small.wtns");
const KEY: &[u8] = include_bytes!("../../tests/fixtures/verification_key.json");

fn prover(zkey: &ZkeyFile<'_>, r1cs: Option<&R1csFile<'_>>) -> Prover {
    let shape = zkey.shape(r1cs, &InMemory).expect("shape");
    let (key, _) = zkey.read_key(&shape, &InMemory).expect("key");
    check(&key).expect("sound");
    Prover::new(Arc::new(shape), Arc::new(key), Arc::new(Cpu::new())).expect("they fit")
}

fn check(key: &plimsoll_groth16::keys::ProvingKey) -> Result<(), ReadError> {
    check_subgroups(key, &mut |_, _| ControlFlow::Continue(()))
}

fn prove(prover: &Prover, values: &[Scalar]) -> Result<Proved, ProveError> {
    let ledger = Ledger::unlimited();
    let mut job = ledger.submit(JobSpec::new("proof", prover.profile(1))).expect("fits");
    let witness = prover.assign(&mut job.enter(0).wait().expect("grant"), |inputs, aux| {
        inputs.copy_from_slice(&values[1..=inputs.len()]);
        aux.copy_from_slice(&values[inputs.len() + 1..]);
        Ok(())
    })?;
    let evaluated = prover.evaluate(&mut job.enter(1).wait().expect("grant"), witness)?;
    let quotient = prover.quotient(&mut job.enter(2).wait().expect("grant"), evaluated)?;
    let committed = prover.commit(&mut job.enter(3).wait().expect("grant"), quotient)?;
    let openings = prover.b_g2(&mut job.enter(4).wait().expect("grant"), committed)?;
    Ok(prover.assemble(openings, Blinding::from_scalars(Scalar::from(5), Scalar::from(7))))
}

fn values() -> Vec<Scalar> {
    let file = WtnsFile::parse(WTNS).expect("sound");
    let mut values = vec![Scalar::ZERO; file.len()];
    file.read(0, &mut values).expect("sound");
    values
}

#[test]
fn a_key_of_snarkjs_proves_what_its_verification_key_accepts() {
    let zkey = ZkeyFile::parse(ZKEY).expect("sound");
    assert_eq!(*zkey.header(), ZkeyHeader { signals: 7, public: 2, domain: 8, coefficients: 11 });
    assert_eq!(zkey.contributions(), Some(1));
    let key = VerificationKey::read(KEY).expect("sound");
    assert_eq!(VerificationKey::from(&zkey.read_verifying_key(&InMemory).expect("sound")), key);
    let key = key.prepare();
    let r1cs = R1csFile::parse(R1CS).expect("sound");
    for r1cs in [None, Some(&r1cs)] {
        let proved = prove(&prover(&zkey, r1cs), &values()).expect("proof");
        assert_eq!(proved.public_inputs, values()[1..3]);
        assert_eq!(verify(&key, &proved.proof, &proved.public_inputs), Ok(()));
        assert!(verify(&key, &proved.proof, &[Scalar::ONE, Scalar::ONE]).is_err());
    }
}

#[test]
fn with_its_constraints_a_wrong_witness_is_found() {
    let zkey = ZkeyFile::parse(ZKEY).expect("sound");
    let r1cs = R1csFile::parse(R1CS).expect("sound");
    let with = prover(&zkey, Some(&r1cs));
    let key = VerificationKey::read(KEY).expect("sound").prepare();
    let without = prover(&zkey, None);
    for wire in 1..values().len() {
        let mut wrong = values();
        wrong[wire] += Scalar::ONE;
        let expected = with.r1cs().first_unsatisfied(&wrong).expect("each signal is constrained");
        match prove(&with, &wrong) {
            Err(ProveError::Unsatisfied { constraint }) => assert_eq!(constraint, expected, "wire {wire}"),
            other => panic!("wire {wire}: {other:?}"),
        }
        let proved = prove(&without, &wrong).expect("nobody can tell yet");
        assert!(verify(&key, &proved.proof, &proved.public_inputs).is_err(), "wire {wire}");
    }
}

#[test]
fn the_plan_is_what_loading_takes() {
    let zkey = ZkeyFile::parse(ZKEY).expect("sound");
    let shape = zkey.shape(None, &InMemory).expect("shape");
    let (key, digest) = zkey.read_key(&shape, &InMemory).expect("key");
    assert_eq!(zkey.plan(&shape).resident_bytes, key.resident_bytes());
    assert!(key.resident_bytes() < zkey.header().resident_bytes_max(), "some signals do not occur in B");
    assert!(shape.resident_bytes() <= zkey.shape_bytes(None));
    assert_eq!(zkey.read_key(&shape, &InMemory).expect("again").1, digest);
}

#[test]
fn what_a_shape_takes_beyond_the_usual_is_asked_for() {
    // A key whose 3,000 coefficients are all different.
    let zkey = ZkeyFile::parse(ZKEY).expect("sound");
    let count = 3000_u32;
    let mut section = count.to_le_bytes().to_vec();
    for i in 0..count {
        for number in [i % 2, i % 8, i % 7] {
            section.extend_from_slice(&number.to_le_bytes());
        }
        section.extend_from_slice(&crate::scalars::to_coefficient(&Scalar::from(u64::from(i) + 2)));
    }
    let old = zkey.coefficients.clone();
    let mut bytes = ZKEY[..old.start - 8].to_vec();
    bytes.extend_from_slice(&(section.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&section);
    bytes.extend_from_slice(&ZKEY[old.end..]);
    let file = ZkeyFile::parse(&bytes).expect("sound frame");
    let mut asked = Vec::new();
    let mut shape = |room: u64| {
        asked.clear();
        file.shape_paying(None, None, &InMemory, &mut |bytes| {
            asked.push(bytes);
            if asked.iter().sum::<u64>() > room { Err(ReadError::NoRoom { bytes }) } else { Ok(()) }
        })
    };
    let all = shape(u64::MAX).expect("room for everything");
    assert!(all.coefficients().len() == count as usize + 2);
    let needed: u64 = asked.iter().sum();
    // As it was counted before: all of them, in the beginning.
    let before = 116 * u64::from(count);
    assert!(needed > before / 2 && needed <= before, "{asked:?}");
    let shape = |room: u64| {
        let mut total = 0;
        file.shape_paying(None, None, &InMemory, &mut |bytes| {
            total += bytes;
            if total > room { Err(ReadError::NoRoom { bytes }) } else { Ok(()) }
        })
    };
    assert!(shape(needed).is_ok());
    let refused = shape(needed - 1);
    assert!(matches!(refused, Err(ShapeReadError::Read(ReadError::NoRoom { .. }))), "{refused:?}");
    // The usual circuit asks for nothing.
    let usual =
        zkey.shape_paying(None, None, &InMemory, &mut |bytes| if bytes == 0 { Ok(()) } else { panic!("{bytes}") });
    assert!(usual.is_ok());
}

/// The file with one byte of a section changed.
fn changed(range: &std::ops::Range<usize>, at: usize, to: u8) -> Vec<u8> {
    let mut bytes = ZKEY.to_vec();
    assert!(range.start + at < range.end);
    bytes[range.start + at] = to;
    bytes
}

#[test]
fn every_changed_point_is_found_or_changes_the_digest() {
    let zkey = ZkeyFile::parse(ZKEY).expect("sound");
    let shape = zkey.shape(None, &InMemory).expect("shape");
    let digest = zkey.read_key(&shape, &InMemory).expect("key").1;
    for range in [&zkey.constants, &zkey.ic, &zkey.a, &zkey.b_g1, &zkey.b_g2, &zkey.l, &zkey.h] {
        for at in (0..range.len()).step_by(7) {
            let bytes = changed(range, at, ZKEY[range.start + at] ^ 0x10);
            let file = ZkeyFile::parse(&bytes).expect("the frame is sound");
            match file.read_key(&shape, &InMemory) {
                Ok((_, other)) => assert_ne!(other, digest),
                Err(error) => assert!(matches!(error, ReadError::Point { .. } | ReadError::Unused { .. }), "{error}"),
            }
        }
    }
}

#[test]
fn a_point_outside_the_subgroup_is_found() {
    let zkey = ZkeyFile::parse(ZKEY).expect("sound");
    let shape = zkey.shape(None, &InMemory).expect("shape");
    let mut encoded = Vec::new();
    crate::points::FilePoint::write(&crate::points::outside_subgroup(), &mut encoded);
    let mut bytes = ZKEY.to_vec();
    bytes[zkey.l.start..zkey.l.start + 96].copy_from_slice(&encoded);
    let file = ZkeyFile::parse(&bytes).expect("sound frame");
    let (key, _) = file.read_key(&shape, &InMemory).expect("on the curve");
    let error = check(&key).expect_err("in another group").to_string();
    assert!(error.contains("C points, point 0: not in the subgroup"), "{error}");
}

#[test]
fn counts_and_coefficients_that_lie_are_told() {
    let zkey = ZkeyFile::parse(ZKEY).expect("sound");
    let header = zkey.constants.start - 12;
    for at in 0..12 {
        for to in [0, 1, 0x7f, 0xff] {
            let bytes = changed(&(header..header + 12), at, to);
            if bytes != ZKEY {
                ZkeyFile::parse(&bytes).expect_err("other counts make other lengths");
            }
        }
    }
    let coefficient = |at: usize, to: u8| {
        let bytes = changed(&zkey.coefficients, 4 + at, to);
        ZkeyFile::parse(&bytes).expect("sound frame").shape(None, &InMemory).expect_err("damaged").to_string()
    };
    assert!(coefficient(0, 2).contains("a coefficient's matrix is 2"));
    assert!(coefficient(4, 8).contains("a coefficient's constraint is 8"));
    assert!(coefficient(8, 7).contains("a coefficient's signal is 7"));
    assert!(coefficient(12 + 31, 0xff).contains("value 0 of the coefficients"));
}

#[test]
fn constraints_of_another_circuit_are_told() {
    let zkey = ZkeyFile::parse(ZKEY).expect("sound");
    let parsed = R1csFile::parse(R1CS).expect("sound");
    let error = |bytes: &[u8]| {
        let file = R1csFile::parse(bytes).expect("sound frame");
        zkey.shape(Some(&file), &InMemory).expect_err("another circuit").to_string()
    };
    // The wire of the first term of the first constraint.
    let first = parsed.container().require(2, "constraints", "").expect("there").start;
    let mut bytes = R1CS.to_vec();
    bytes[first + 4] ^= 1;
    assert!(error(&bytes).contains("constraint 0 differs"), "{}", error(&bytes));
    // The number of public outputs, in the header.
    let header = parsed.container().require(1, "header", "").expect("there").start;
    let mut bytes = R1CS.to_vec();
    bytes[header + 4 + 32 + 4] = 0;
    assert!(error(&bytes).contains("the number of public signals is 1 there and 2 in the key"), "{}", error(&bytes));
}
