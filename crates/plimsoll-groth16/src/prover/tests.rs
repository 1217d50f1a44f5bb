use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use bellpepper_core::ConstraintSystem;
use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective};
use ff::Field;
use plimsoll::pipeline::JobError;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Class, Job, Reservation, Space};

use super::*;
use crate::backend::{Cpu, CurveGroup, Reference, Transform};
use crate::footprint::{AUX, PROVERS, SCRATCH, SHELLS, STAGES};
use crate::r1cs::{InputRows, Products, R1csBuilder, Side};
use crate::setup::{ToxicWaste, generate_from};
use crate::test_circuits::{Cubic, InputsOnly, Quirks, Random, Sha256Preimage, Squarings, TestCircuit, rng};
use crate::{PreparedVerifyingKey, Proof, VerifyError, verify};

fn prover_with(circuit: impl TestCircuit, basis: HBasis, backend: impl Backend + 'static) -> Prover {
    let r1cs = R1cs::from_circuit(circuit).expect("shape");
    let key =
        generate_from(&r1cs, &ToxicWaste::random(&mut rng(1)), basis, &|_| ControlFlow::Continue(())).expect("key");
    Prover::new(Arc::new(r1cs), Arc::new(key), Arc::new(backend)).expect("the key fits")
}

pub(crate) fn prover(circuit: impl TestCircuit) -> Prover {
    prover_with(circuit, HBasis::PowersOfTau, Cpu::new())
}

pub(crate) fn blinding() -> Blinding {
    Blinding::from_scalars(Scalar::from(1234), Scalar::from(5678))
}

fn verify_with(prover: &Prover, proved: &Proved) -> Result<(), VerifyError> {
    verify(&PreparedVerifyingKey::new(&prover.key().vk), &proved.proof, &proved.public_inputs)
}

/// A ledger in which exactly one proof of the prover fits.
fn tight_ledger(prover: &Prover, threads: usize) -> Ledger {
    let peak =
        prover.profile(threads).stages().iter().map(|stage| stage.peak.iter().map(|(_, bytes)| bytes).sum()).max();
    Ledger::new(Budget::new().space(Space::HOST, Bytes(peak.unwrap_or(0))))
}

fn held(ledger: &Ledger, class: Class) -> u64 {
    ledger.snapshot().class(class).map_or(0, |usage| usage.totals.held)
}

fn check<C: TestCircuit>(name: &str, circuit: C) {
    let prover = prover(circuit.clone());
    let ledger = tight_ledger(&prover, 1);
    let proved = prover.prove(&ledger, circuit.clone(), blinding()).expect(name);
    assert_eq!(proved.public_inputs, circuit.public_inputs(), "{name}");
    assert_eq!(verify_with(&prover, &proved), Ok(()), "{name}");
    assert!(ledger.snapshot().is_empty(), "{name}: {:?}", ledger.snapshot());
    if let [first, ..] = &proved.public_inputs[..] {
        let mut other = proved.clone();
        other.public_inputs[0] = first + Scalar::ONE;
        assert_eq!(verify_with(&prover, &other), Err(VerifyError::InvalidProof), "{name}");
    }
}

#[test]
fn every_circuit_is_proved_within_its_profile() {
    check("cubic", Cubic(Some(Scalar::from(7))));
    check("inputs only", InputsOnly);
    check("quirks", Quirks(Some((Scalar::from(3), -Scalar::from(5)))));
    check("squarings", Squarings { start: Some(Scalar::from(2)), steps: 3000 });
    for seed in 0..16 {
        check(&format!("random {seed}"), Random::small(seed));
    }
}

/// A proof of given values, in a ledger in which no second proof would fit.
fn prove_assigned(prover: &Prover, inputs: &[Scalar], aux: &[Scalar]) -> Result<Proved, ProveError> {
    let prover = prover.clone().with_synthesis_scratch(Bytes(0));
    let fill = |to_inputs: &mut [Scalar], to_aux: &mut [Scalar]| {
        to_inputs.copy_from_slice(inputs);
        to_aux.copy_from_slice(aux);
        Ok(())
    };
    prover.prove_assigned(&tight_ledger(&prover, 1), fill, blinding())
}

#[test]
fn values_from_elsewhere_and_implied_products_make_the_same_proof() {
    let x = Scalar::from(7);
    let circuit = Cubic(Some(x));
    let prover = prover(circuit.clone());
    let expected = prover.prove(&Ledger::unlimited(), circuit.clone(), blinding()).expect("proof");
    let (inputs, aux) = (circuit.public_inputs(), [x, x.square(), x.square() * x]);
    assert_eq!(prove_assigned(&prover, &inputs, &aux).expect("proof"), expected);

    // The same matrices without C, as snarkjs's keys have them.
    let shape = prover.r1cs();
    let mut builder = R1csBuilder::new(shape.inputs(), shape.aux(), shape.constraints()).expect("sizes");
    for (side, matrix) in [(Side::A, shape.a()), (Side::B, shape.b())] {
        for row in 0..shape.constraints() {
            for (column, coefficient) in matrix.row(row) {
                let coefficient = &shape.coefficients()[coefficient as usize];
                builder.push(side, row, column, coefficient).expect("an entry");
            }
        }
    }
    let implied = builder.finish(InputRows::Given, Products::Implied).expect("shape");
    let implied = Prover::new(Arc::new(implied), prover.key().clone(), Arc::new(Cpu::new())).expect("the key fits");
    assert_eq!(prove_assigned(&implied, &inputs, &aux).expect("proof"), expected);

    // A wrong value is found before the proof with C, and by the verifier alone without it.
    let wrong = [x, x.square() + Scalar::ONE, x.square() * x];
    let refused = prove_assigned(&prover, &inputs, &wrong);
    assert!(matches!(refused, Err(ProveError::Unsatisfied { constraint: 0 })), "{refused:?}");
    let forged = prove_assigned(&implied, &inputs, &wrong).expect("a proof that nobody accepts");
    assert_eq!(verify_with(&implied, &forged), Err(VerifyError::InvalidProof));
}

#[test]
fn a_pool_proves_within_the_profile_for_its_threads() {
    let circuit = Sha256Preimage { bytes: Some(b"letter".to_vec()), len: 6 };
    let prover = prover(circuit.clone());
    for threads in [1, 2, 3] {
        let pool = Pool::new(PoolConfig { threads, ..PoolConfig::default() }).expect("pool");
        let ledger = tight_ledger(&prover, threads);
        let proved = pool.install(|| prover.prove(&ledger, circuit.clone(), blinding())).expect("proof");
        assert_eq!(verify_with(&prover, &proved), Ok(()), "{threads} threads");
    }
}

#[test]
fn backends_and_bases_make_the_same_proof() {
    for seed in 100..110 {
        let circuit = Random::small(seed);
        let proofs: Vec<Proof> = [
            prover_with(circuit.clone(), HBasis::PowersOfTau, Cpu::new()),
            prover_with(circuit.clone(), HBasis::PowersOfTau, Reference),
            prover_with(circuit.clone(), HBasis::OddCosetLagrange, Cpu::new()),
            prover_with(circuit.clone(), HBasis::OddCosetLagrange, Reference),
        ]
        .iter()
        .map(|prover| prover.prove(&Ledger::unlimited(), circuit.clone(), blinding()).expect("proof").proof)
        .collect();
        assert!(proofs.iter().all(|proof| *proof == proofs[0]), "seed {seed}");
    }
}

#[test]
fn more_variables_than_points_of_the_domain_are_committed_in_pieces() {
    /// Many variables in one constraint.
    #[derive(Clone)]
    struct Wide;
    impl Circuit<Scalar> for Wide {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
            let variables =
                (0..101).map(|i| cs.alloc(|| "v", || Ok(Scalar::from(i)))).collect::<Result<Vec<_>, _>>()?;
            let sum = cs.alloc_input(|| "sum", || Ok(Scalar::from(5050)))?;
            cs.enforce(|| "sum", |lc| variables.iter().fold(lc, |lc, v| lc + *v), |lc| lc + CS::one(), |lc| lc + sum);
            Ok(())
        }
    }
    impl TestCircuit for Wide {
        fn public_inputs(&self) -> Vec<Scalar> {
            vec![Scalar::from(5050)]
        }
    }
    let r1cs = R1cs::from_circuit(Wide).expect("shape");
    assert!(r1cs.a_density().total() > 20 * r1cs.domain().size());
    check("wide", Wide);
}

/// A circuit that compares its variables, as none should.
#[derive(Clone, Debug)]
pub(crate) struct Compares;

impl Circuit<Scalar> for Compares {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let x = cs.alloc(|| "x", || Ok(Scalar::from(3)))?;
        let y = cs.alloc(|| "y", || Ok(Scalar::from(3)))?;
        if x == y {
            cs.alloc(|| "one more", || Ok(Scalar::ONE))?;
        }
        let z = cs.alloc_input(|| "z", || Ok(Scalar::from(9)))?;
        cs.enforce(|| "product", |lc| lc + x, |lc| lc + y, |lc| lc + z);
        Ok(())
    }
}

impl TestCircuit for Compares {
    fn public_inputs(&self) -> Vec<Scalar> {
        vec![Scalar::from(9)]
    }
}

#[test]
fn a_circuit_that_compares_its_variables_gets_distinct_ones_where_it_is_said() {
    let prover = prover(Compares);
    let alike = prover.prove(&Ledger::unlimited(), Compares, blinding());
    assert!(matches!(alike, Err(ProveError::ShapeChanged { .. })), "{alike:?}");
    let prover = prover.with_distinct_variables();
    let proved = prover.prove(&Ledger::unlimited(), Compares, blinding()).expect("proof");
    assert_eq!(verify_with(&prover, &proved), Ok(()));
}

#[test]
fn pieces_and_whole_vectors_make_the_same_quotient() {
    /// The same backend that is handed all three vectors.
    #[derive(Debug)]
    struct Whole(Cpu);
    impl Backend for Whole {
        fn name(&self) -> &'static str {
            "whole"
        }
        fn ntt_scratch_bytes(&self, n: usize, threads: usize) -> u64 {
            self.0.ntt_scratch_bytes(n, threads)
        }
        fn quotient_scratch_bytes(&self, n: usize, threads: usize) -> u64 {
            self.0.quotient_scratch_bytes(n, threads)
        }
        fn msm_scratch_bytes(&self, group: CurveGroup, n: usize, threads: usize) -> u64 {
            self.0.msm_scratch_bytes(group, n, threads)
        }
        fn ntt(
            &self,
            domain: &Domain,
            data: &mut [Scalar],
            transform: Transform,
            scratch: &mut Reservation,
        ) -> Result<(), BackendError> {
            self.0.ntt(domain, data, transform, scratch)
        }
        fn mul_sub_scale(&self, a: &mut [Scalar], b: &[Scalar], c: &[Scalar], f: &Scalar) -> Result<(), BackendError> {
            self.0.mul_sub_scale(a, b, c, f)
        }
        fn msm_g1(
            &self,
            b: &[G1Affine],
            s: &[Scalar],
            scratch: &mut Reservation,
        ) -> Result<G1Projective, BackendError> {
            self.0.msm_g1(b, s, scratch)
        }
        fn msm_g2(
            &self,
            b: &[G2Affine],
            s: &[Scalar],
            scratch: &mut Reservation,
        ) -> Result<G2Projective, BackendError> {
            self.0.msm_g2(b, s, scratch)
        }
    }
    // Of domains of few points up to many tasks' worth; with rows at other places, too.
    for steps in [1, 2, 5, 13, 100, 3000, 9000] {
        for (basis, stride) in [(HBasis::PowersOfTau, 1), (HBasis::OddCosetLagrange, 1), (HBasis::OddCosetLagrange, 77)]
        {
            let circuit = Squarings { start: Some(Scalar::from(2)), steps };
            let shape = Arc::new(R1cs::from_circuit(circuit.clone()).expect("shape").with_stride(stride));
            let toxic = ToxicWaste::random(&mut rng(1));
            let key = generate_from(&shape, &toxic, basis, &|_| ControlFlow::Continue(())).expect("key");
            let key = Arc::new(key);
            let quotient = |backend: Arc<dyn Backend>| {
                let prover = Prover::new(shape.clone(), key.clone(), backend).expect("the key fits");
                let mut job = tight_ledger(&prover, 1).submit(JobSpec::new("proof", prover.profile(1))).expect("fits");
                let witness = prover.synthesise(&mut job.enter(0).wait().expect("grant"), circuit.clone());
                let evaluated = prover.evaluate(&mut job.enter(1).wait().expect("grant"), witness.expect("witness"));
                let evaluated = evaluated.expect("satisfied");
                prover.quotient(&mut job.enter(2).wait().expect("grant"), evaluated).expect("quotient").h.to_vec()
            };
            let whole = quotient(Arc::new(Whole(Cpu::new())));
            assert!(quotient(Arc::new(Cpu::new())) == whole, "{steps} steps, {basis:?}, stride {stride}");
        }
    }
}

/// Notes what the ledger holds when the backend is called.
#[derive(Debug)]
struct Spy {
    ledger: Ledger,
    ntt: AtomicU64,
    last_g1: AtomicU64,
    g2: AtomicU64,
}

impl Backend for Spy {
    fn name(&self) -> &'static str {
        "spy"
    }
    fn ntt_scratch_bytes(&self, n: usize, threads: usize) -> u64 {
        Cpu::new().ntt_scratch_bytes(n, threads)
    }
    fn quotient_scratch_bytes(&self, n: usize, threads: usize) -> u64 {
        Cpu::new().quotient_scratch_bytes(n, threads)
    }
    fn msm_scratch_bytes(&self, group: CurveGroup, n: usize, threads: usize) -> u64 {
        Cpu::new().msm_scratch_bytes(group, n, threads)
    }
    fn ntt(
        &self,
        domain: &Domain,
        data: &mut [Scalar],
        transform: Transform,
        scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        if transform == Transform::CosetInverse {
            self.ntt.store(held(&self.ledger, PROVERS), Ordering::Relaxed);
        }
        Cpu::new().ntt(domain, data, transform, scratch)
    }
    fn mul_sub_scale(&self, a: &mut [Scalar], b: &[Scalar], c: &[Scalar], factor: &Scalar) -> Result<(), BackendError> {
        Cpu::new().mul_sub_scale(a, b, c, factor)
    }
    fn msm_g1(
        &self,
        bases: &[G1Affine],
        s: &[Scalar],
        scratch: &mut Reservation,
    ) -> Result<G1Projective, BackendError> {
        self.last_g1.store(held(&self.ledger, PROVERS), Ordering::Relaxed);
        Cpu::new().msm_g1(bases, s, scratch)
    }
    fn msm_g2(
        &self,
        bases: &[G2Affine],
        s: &[Scalar],
        scratch: &mut Reservation,
    ) -> Result<G2Projective, BackendError> {
        self.g2.store(held(&self.ledger, PROVERS), Ordering::Relaxed);
        Cpu::new().msm_g2(bases, s, scratch)
    }
}

#[test]
fn vectors_are_given_back_at_their_last_use() {
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 300 };
    let ledger = Ledger::unlimited();
    let unseen = || AtomicU64::new(u64::MAX);
    let spy = Arc::new(Spy { ledger: ledger.clone(), ntt: unseen(), last_g1: unseen(), g2: unseen() });
    let simple = prover(circuit.clone());
    let backend: Arc<dyn Backend> = spy.clone();
    let prover = Prover::new(simple.r1cs().clone(), simple.key().clone(), backend).expect("prover");
    prover.prove(&ledger, circuit, blinding()).expect("proof");
    let vector = (512 * size_of::<Scalar>()) as u64;
    assert_eq!(spy.ntt.load(Ordering::Relaxed), vector, "only a is left for the last transform");
    assert_eq!(spy.last_g1.load(Ordering::Relaxed), 0, "nothing is left for the last commitments in G1");
    assert_eq!(spy.g2.load(Ordering::Relaxed), 0);
}

#[test]
fn each_stage_keeps_what_its_profile_says() {
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 300 };
    let prover = prover(circuit.clone());
    let ledger = tight_ledger(&prover, 1);
    let profile = prover.profile(1);
    let keeps = |stage: usize| {
        for class in [PROVERS, AUX, SHELLS, SCRATCH] {
            assert_eq!(held(&ledger, class), profile.stages()[stage].keep.of(class), "stage {stage}, {class}");
        }
    };
    let mut job = ledger.submit(JobSpec::new("proof", profile.clone())).expect("fits");
    let enter = |job: &mut Job, stage| job.enter(stage).try_now().expect("nobody else is there");
    let witness = prover.synthesise(&mut enter(&mut job, 0), circuit).expect("synthesise");
    keeps(0);
    let evaluated = prover.evaluate(&mut enter(&mut job, 1), witness).expect("evaluate");
    keeps(1);
    let quotient = prover.quotient(&mut enter(&mut job, 2), evaluated).expect("quotient");
    keeps(2);
    let committed = prover.commit(&mut enter(&mut job, 3), quotient).expect("commit");
    keeps(3);
    let openings = prover.b_g2(&mut enter(&mut job, 4), committed).expect("b in G2");
    keeps(4);
    let grant = enter(&mut job, 5);
    let proved = prover.assemble(openings, blinding());
    drop(grant);
    keeps(5);
    assert_eq!(verify_with(&prover, &proved), Ok(()));
}

#[test]
fn an_unsatisfied_constraint_is_named_and_everything_given_back() {
    /// Claims that 3 · 3 is what it is told.
    #[derive(Clone)]
    struct Claim(u64);
    impl Circuit<Scalar> for Claim {
        fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
            let x = cs.alloc(|| "x", || Ok(Scalar::from(3)))?;
            let y = cs.alloc_input(|| "y", || Ok(Scalar::from(self.0)))?;
            cs.enforce(|| "fine", |lc| lc + x, |lc| lc + CS::one(), |lc| lc + x);
            cs.enforce(|| "square", |lc| lc + x, |lc| lc + x, |lc| lc + y);
            Ok(())
        }
    }
    impl TestCircuit for Claim {
        fn public_inputs(&self) -> Vec<Scalar> {
            vec![Scalar::from(self.0)]
        }
    }
    check("claim", Claim(9));
    let ledger = Ledger::unlimited();
    let error = prover(Claim(9)).prove(&ledger, Claim(10), blinding()).expect_err("3 · 3 is not 10");
    assert!(matches!(error, ProveError::Unsatisfied { constraint: 1 }), "{error}");
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_stopped_proof_gives_everything_back() {
    let flag = Arc::new(AtomicBool::new(false));
    let circuit = Cubic(Some(Scalar::from(7)));
    let prover = prover(circuit.clone()).with_stop(flag.clone());
    let ledger = tight_ledger(&prover, 1);
    prover.prove(&ledger, circuit.clone(), blinding()).expect("not stopped");
    flag.store(true, Ordering::Relaxed);
    let error = prover.prove(&ledger, circuit, blinding()).expect_err("stopped");
    assert!(matches!(error, ProveError::Stopped), "{error}");
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn no_stage_of_a_pipeline_begins_once_it_is_to_stop() {
    let flag = Arc::new(AtomicBool::new(false));
    let prover = prover(Cubic(None)).with_stop(flag.clone());
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("pool");
    let ledger = tight_ledger(&prover, 1);
    // The first job's witness sets the flag: its own next stage is not begun, nor the second job.
    let begin = move |prover: &Prover, grant: &mut Grant, circuit: Cubic| {
        let witness = prover.synthesise(grant, circuit)?;
        flag.store(true, Ordering::Release);
        Ok((witness, "beside"))
    };
    let end = |prover: &Prover, openings, beside| Ok((prover.finish(openings, blinding())?, beside));
    let pipeline = prover.pipeline(&ledger, &pool, begin, end).expect("one proof fits");
    let jobs = [7, 8].map(|x| pipeline.submit("proof", Cubic(Some(Scalar::from(x)))).expect("taken on"));
    let stages = jobs.map(|job| match job.wait() {
        Err(JobError::Stage { stage, source: ProveError::Stopped, .. }) => stage,
        other => panic!("{other:?}"),
    });
    assert_eq!(stages, [STAGES[1], STAGES[0]]);
    pipeline.drain();
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_circuit_of_another_shape_is_refused() {
    let prover = prover(Squarings { start: None, steps: 300 });
    let ledger = Ledger::unlimited();
    for steps in [299, 301, 5000] {
        let circuit = Squarings { start: Some(Scalar::ONE), steps };
        let error = prover.prove(&ledger, circuit, blinding()).expect_err("another shape");
        assert!(matches!(error, ProveError::ShapeChanged { .. }), "{steps} steps: {error}");
        assert!(ledger.snapshot().is_empty());
    }
    let error = prover.prove(&ledger, Squarings { start: None, steps: 300 }, blinding()).expect_err("no witness");
    assert!(matches!(error, ProveError::Synthesis { source: SynthesisError::AssignmentMissing }), "{error}");
}

#[test]
fn a_key_for_another_circuit_is_refused() {
    let (cubic, quirks) = (prover(Cubic(None)), prover(Quirks(None)));
    assert!(Prover::new(cubic.r1cs().clone(), quirks.key().clone(), Arc::new(Cpu::new())).is_err());
}

#[test]
fn a_budget_below_the_peak_is_refused_before_anything_runs() {
    let circuit = Squarings { start: Some(Scalar::ONE), steps: 300 };
    let prover = prover(circuit.clone());
    let peak = tight_ledger(&prover, 1).snapshot().space(Space::HOST).expect("limited").limit;
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(peak.0 - 1)));
    let error = prover.prove(&ledger, circuit, blinding()).expect_err("one byte short");
    assert!(matches!(error, ProveError::Refused(_)), "{error}");
}

#[test]
fn nothing_secret_is_printed() {
    let secret = Scalar::from(0x5ec2e7);
    let prover = prover(Cubic(None));
    let ledger = Ledger::unlimited();
    let mut job = ledger.submit(JobSpec::new("proof", prover.profile(1))).expect("submit");
    let witness = prover.synthesise(&mut job.enter(0).wait().expect("grant"), Cubic(Some(secret))).expect("witness");
    let mut texts = vec![format!("{:?}", witness.assignment), format!("{:?}", blinding())];
    let evaluated = prover.evaluate(&mut job.enter(1).wait().expect("grant"), witness).expect("evaluated");
    texts.push(format!("{evaluated:?}"));
    let quotient = prover.quotient(&mut job.enter(2).wait().expect("grant"), evaluated).expect("quotient");
    texts.push(format!("{quotient:?}"));
    let committed = prover.commit(&mut job.enter(3).wait().expect("grant"), quotient).expect("committed");
    texts.push(format!("{committed:?}"));
    for text in texts {
        assert!(!text.contains("5ec2e7") && !text.contains("Scalar(0x0"), "{text}");
    }
}

#[test]
fn a_shape_whose_constraints_lie_elsewhere_on_the_domain_proves_with_its_key() {
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 300 };
    for basis in [HBasis::PowersOfTau, HBasis::OddCosetLagrange] {
        let shape = R1cs::from_circuit(circuit.clone()).expect("shape");
        let usual = shape.digest();
        let shape = shape.with_stride(0x1234_5677);
        assert_ne!(shape.digest(), usual, "another key belongs to it");
        let toxic = ToxicWaste::random(&mut rng(1));
        let key = generate_from(&shape, &toxic, basis, &|_| ControlFlow::Continue(())).expect("key");
        let prover = Prover::new(Arc::new(shape), Arc::new(key), Arc::new(Cpu::new())).expect("they fit");
        let proved = prover.prove(&Ledger::unlimited(), circuit.clone(), blinding()).expect("proof");
        assert_eq!(verify_with(&prover, &proved), Ok(()), "{basis:?}");
    }
}

/// Gives its values in bulk to who wants nothing else, as circuits with a fast way to their witness do.
#[derive(Clone)]
struct Bulk {
    start: Option<Scalar>,
    steps: usize,
    /// Values more than there should be.
    more: usize,
}

impl Circuit<Scalar> for Bulk {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let squarings = Squarings { start: self.start, steps: self.steps };
        if !cs.is_witness_generator() {
            return squarings.synthesize(cs);
        }
        let start = self.start.ok_or(SynthesisError::AssignmentMissing)?;
        let mut values = vec![start];
        for i in 0..self.steps {
            values.push((values[i] + values[i.saturating_sub(1)] + Scalar::from(3)).square());
        }
        let last = values.pop().ok_or(SynthesisError::AssignmentMissing)?;
        let half = values.len() / 2;
        cs.extend_aux(&values[..half]);
        cs.allocate_empty_aux(values.len() - half).copy_from_slice(&values[half..]);
        assert!(self.steps != 100 || cs.aux_slice() == values);
        cs.extend_inputs(&[last]);
        let _ = cs.allocate_empty(self.more, 0);
        Ok(())
    }
}

#[test]
fn values_that_come_in_bulk_make_the_same_proof() {
    let squarings = Squarings { start: Some(Scalar::from(3)), steps: 100 };
    let prover = prover(squarings.clone());
    let ledger = Ledger::unlimited();
    let expected = prover.prove(&ledger, squarings, blinding()).expect("proof");
    let bulk = |steps, more| prover.prove(&ledger, Bulk { start: Some(Scalar::from(3)), steps, more }, blinding());
    assert_eq!(bulk(100, 0).expect("proof"), expected);
    for (steps, more) in [(99, 0), (101, 0), (100, 1), (100, 1000)] {
        let error = bulk(steps, more).expect_err("another shape");
        assert!(matches!(error, ProveError::ShapeChanged { .. }), "{steps}, {more}: {error}");
    }
}
