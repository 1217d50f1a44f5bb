//! Whole proofs.

use std::ops::ControlFlow;
use std::sync::Arc;

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError};
use blstrs::{G2Projective, Scalar};
use ff::Field;
use plimsoll::pipeline::JobError;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Class, Grant, Ledger, Space};
use plimsoll_groth16::backend::{Backend, CurveGroup};
use plimsoll_groth16::prover::{Blinding, ProveError, Prover};
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_groth16::setup;
use plimsoll_icicle::Icicle;
use plimsoll_icicle::memory::{MsmPlan, Scratch};

use crate::support::Mock;

const MIB: u64 = 1 << 20;

/// y is x to the power of 2^rounds.
pub(crate) struct Squares {
    pub(crate) rounds: usize,
    pub(crate) start: Option<Scalar>,
}

impl Squares {
    pub(crate) fn of(x: u64) -> Self {
        Self { rounds: 20, start: Some(Scalar::from(x)) }
    }
}

impl Circuit<Scalar> for Squares {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let missing = || SynthesisError::AssignmentMissing;
        let mut value = self.start;
        let mut x = cs.alloc(|| "x", || value.ok_or_else(missing))?;
        for round in 0..self.rounds {
            value = value.map(|value| value.square());
            let square = match round + 1 == self.rounds {
                true => cs.alloc_input(|| "y", || value.ok_or_else(missing))?,
                false => cs.alloc(|| format!("square {round}"), || value.ok_or_else(missing))?,
            };
            cs.enforce(|| format!("round {round}"), |lc| lc + x, |lc| lc + x, |lc| lc + square);
            x = square;
        }
        Ok(())
    }
}

fn prover(icicle: &Icicle) -> Prover {
    prover_with(icicle)
}

/// A prover with a key of its own on this backend.
pub(crate) fn prover_with<B: Backend + Clone + 'static>(backend: &B) -> Prover {
    let r1cs = Arc::new(R1cs::from_circuit(Squares { rounds: 20, start: None }).expect("a circuit"));
    let key = setup::generate(&r1cs, &mut rand_core::OsRng, &|_| ControlFlow::Continue(())).expect("a key");
    let backend: Arc<dyn Backend> = Arc::new(backend.clone());
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
        let proved = prover.prove(&ledger(), Squares::of(x), Blinding::from_os()).expect("a proof");
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
            scope.spawn(move || prover.prove(&ledger(), Squares::of(x), Blinding::from_os()).expect("a proof"));
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
    let circuit = || Squares::of(3);
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

/// The largest vector of points fits the device, and not beside what is kept there for good: its points pass through.
#[test]
fn points_without_room_beside_what_is_kept_pass_through() {
    let mock = Mock::new();
    mock.set("silent", 1).set("memory", 4 * MIB as i64);
    let icicle = mock.icicle(4 * MIB);
    let r1cs = R1cs::from_circuit(Squares { rounds: 1000, start: None }).expect("a circuit");
    let key = setup::generate(&r1cs, &mut rand_core::OsRng, &|_| ControlFlow::Continue(())).expect("a key");
    let (key, terms) = (Arc::new(key), 1000);
    icicle.adopt_key(&key);
    let ways = |resident| MsmPlan::smallest(CurveGroup::G2, terms, resident, Scratch::Exact, 1000);
    let whole = size_of_val(&*key.b_g2) as u64;
    let room = ways(false).midpoint(ways(true) + whole);
    assert!(ways(false) + 1000 < room && room < ways(true) + whole);
    let held = icicle.ledger().snapshot().space(Space::device(0)).expect("budgeted").held.0;
    let class = Class::new("device.abc", Space::device(0));
    let kept = icicle.ledger().reserve(class, Bytes(4 * MIB - held - room)).retained().wait().expect("room");
    let scratch = || Ledger::unlimited().reserve(Class::new("scratch", Space::HOST), Bytes(MIB)).wait();
    let scalars: Vec<Scalar> = (0..terms).map(|n| Scalar::from(n * n + 1)).collect();
    let multiply = || {
        let bases = &key.b_g2[..terms as usize];
        let made = icicle.msm_g2(bases, &scalars, &mut scratch().expect("unlimited")).expect("in pieces");
        assert_eq!(made, bases.iter().zip(&scalars).map(|(base, scalar)| base * scalar).sum::<G2Projective>());
    };
    multiply();
    let resident = || {
        let class = Class::new("device.points", Space::device(0));
        icicle.ledger().snapshot().class(class).map_or(0, |usage| usage.totals.held)
    };
    assert_eq!(resident(), 0);
    // When there is room again they stay.
    drop(kept);
    multiply();
    assert_eq!(resident(), whole);
    mock.assert_used_well();
}
