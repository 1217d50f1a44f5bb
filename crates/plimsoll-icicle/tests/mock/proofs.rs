//! Whole proofs.

use std::ops::ControlFlow;
use std::sync::Arc;

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use blstrs::Scalar;
use ff::Field;
use plimsoll::pipeline::JobError;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Grant, Ledger, Space};
use plimsoll_groth16::backend::Backend;
use plimsoll_groth16::prover::{Blinding, ProveError, Prover};
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_groth16::setup;
use plimsoll_icicle::Icicle;

use crate::support::Mock;

const MIB: u64 = 1 << 20;

/// y is x to the power of 2^20.
struct Squares(Option<Scalar>);

impl Circuit<Scalar> for Squares {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let missing = || SynthesisError::AssignmentMissing;
        let mut value = self.0;
        let mut x = cs.alloc(|| "x", || value.ok_or_else(missing))?;
        for round in 0..20 {
            value = value.map(|value| value.square());
            let square = match round {
                19 => cs.alloc_input(|| "y", || value.ok_or_else(missing))?,
                _ => cs.alloc(|| format!("square {round}"), || value.ok_or_else(missing))?,
            };
            cs.enforce(|| format!("round {round}"), |lc| lc + x, |lc| lc + x, |lc| lc + square);
            x = square;
        }
        Ok(())
    }
}

fn prover(icicle: &Icicle) -> Prover {
    let r1cs = Arc::new(R1cs::from_circuit(Squares(None)).expect("a circuit"));
    let key = setup::generate(&r1cs, &mut rand_core::OsRng, &|_| ControlFlow::Continue(())).expect("a key");
    let backend: Arc<dyn Backend> = Arc::new(icicle.clone());
    Prover::new(r1cs, Arc::new(key), backend).expect("they belong together")
}

fn ledger() -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(64 * MIB)))
}

#[test]
fn proofs_verify_and_points_are_loaded_and_converted_once() {
    let mock = Mock::new();
    let icicle = mock.icicle(512 * MIB);
    let prover = prover(&icicle);
    let mut converted = Vec::new();
    for x in 2..5 {
        let proved = prover.prove(&ledger(), Squares(Some(Scalar::from(x))), Blinding::from_os()).expect("a proof");
        assert_eq!(proved.public_inputs.len(), 1);
        converted.push(mock.get("calls:convert"));
    }
    assert_eq!(converted[0], converted[2], "the second and third proof found the points where the first left them");
    let resident = icicle.ledger().snapshot().residencies.iter().filter(|one| one.name.starts_with("key")).count();
    assert_eq!(resident, 5);
    mock.assert_used_well();
    drop(prover);
    // Nobody has the key any more: its points go when the backend next looks.
    drop(icicle);
    mock.assert_empty();
}

#[test]
fn several_proofs_at_once_on_a_device_with_room_for_little_more_than_one() {
    let mock = Mock::new();
    mock.set("silent", 1).set("memory", 3 * MIB as i64);
    let icicle = mock.icicle(3 * MIB);
    let prover = prover(&icicle);
    std::thread::scope(|scope| {
        for x in 2..6 {
            let prover = &prover;
            scope.spawn(move || {
                prover.prove(&ledger(), Squares(Some(Scalar::from(x))), Blinding::from_os()).expect("a proof")
            });
        }
    });
    assert_eq!(icicle.learned().out_of_memory, 0);
    assert!(mock.get("peak") <= 3 * MIB as i64);
    mock.assert_used_well();
}

#[test]
fn a_proof_that_is_not_valid_is_not_returned() {
    let mock = Mock::new();
    let icicle = mock.icicle(512 * MIB);
    let prover = prover(&icicle);
    let circuit = || Squares(Some(Scalar::from(3)));
    let prove = |prover: &Prover| prover.prove(&ledger(), circuit(), Blinding::from_os());
    let through_a_pipeline = |prover: &Prover| {
        let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("a thread");
        let begin = |prover: &Prover, grant: &mut Grant, circuit| Ok((prover.synthesise(grant, circuit)?, ()));
        let end = |prover: &Prover, openings, ()| prover.finish(openings, Blinding::from_os());
        let pipeline = prover.pipeline(&ledger(), &pool, begin, end).expect("room for one");
        pipeline.submit("proof", circuit()).expect("taken on").wait().map_err(Box::new)
    };
    prove(&prover).expect("a proof");
    through_a_pipeline(&prover).expect("a proof");
    // From now on sums are wrong, without an error.
    mock.set("wrong_from", mock.get("calls:msm") + 1);
    let error = prove(&prover).expect_err("wrong");
    assert!(matches!(error, ProveError::Unsound { backend: "icicle", .. }), "{error}");
    match *through_a_pipeline(&prover).expect_err("wrong") {
        JobError::Stage { source: ProveError::Unsound { backend: "icicle", .. }, .. } => {}
        ref error => panic!("{error}"),
    }
    let careless = prover.without_verification();
    prove(&careless).expect("nobody looked");
    prove(&careless.with_verification()).expect_err("somebody looked");
}
