//! How long a repeated circuit takes from its gadgets to a, b and c: here (a witness, and three products with the matrices that
//! were built once) and with bellperson (gadgets, linear combinations, evaluation), in turn.
//!
//! `cargo run --release -p plimsoll-peers --bin synthesis_vs_bellperson [-- ROUNDS]`; `THREADS` says how many threads (2 if unset).
//!
//! Beside them stands how long the circuit takes by itself, with a constraint system that throws every value away: whoever calls
//! `Circuit::synthesize` takes that long, so it bounds what any prover of such circuits can win.
//!
//! bellperson's synthesis is private. It is measured as the time in which its batch call comes back from a key that refuses: the call
//! synthesises first, and then asks the key for its parts.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bellpepper_core::{ConstraintSystem, Index, LinearCombination, Variable};
use bellperson::SynthesisError;
use bellperson::groth16::{ParameterSource, VerifyingKey, create_proof_batch};
use blstrs::{Bls12, G1Affine, G2Affine, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{JobSpec, Ledger};
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::keys::{HBasis, HQuery, ProvingKey, VerifyingKey as OurVerifyingKey};
use plimsoll_groth16::prover::Prover;
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_peers::circuits::{Sha256Preimage, Squarings, TestCircuit};

type Failure = Box<dyn std::error::Error>;

#[global_allocator]
static ALLOCATOR: jemallocator::Jemalloc = jemallocator::Jemalloc;

/// A key that refuses as soon as it is asked for anything.
struct Refuses;

impl ParameterSource<Bls12> for &Refuses {
    type G1Builder = (Arc<Vec<G1Affine>>, usize);
    type G2Builder = (Arc<Vec<G2Affine>>, usize);

    fn get_vk(&self, _: usize) -> Result<&VerifyingKey<Bls12>, SynthesisError> {
        refuse()
    }
    fn get_h(&self, _: usize) -> Result<Self::G1Builder, SynthesisError> {
        refuse()
    }
    fn get_l(&self, _: usize) -> Result<Self::G1Builder, SynthesisError> {
        refuse()
    }
    fn get_a(&self, _: usize, _: usize) -> Result<(Self::G1Builder, Self::G1Builder), SynthesisError> {
        refuse()
    }
    fn get_b_g1(&self, _: usize, _: usize) -> Result<(Self::G1Builder, Self::G1Builder), SynthesisError> {
        refuse()
    }
    fn get_b_g2(&self, _: usize, _: usize) -> Result<(Self::G2Builder, Self::G2Builder), SynthesisError> {
        refuse()
    }
}

/// Asks for every value and keeps none.
struct ThrowsAway {
    variables: usize,
}

impl ConstraintSystem<Scalar> for ThrowsAway {
    type Root = Self;

    fn alloc<F, A, AR>(&mut self, _: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        std::hint::black_box(value()?);
        self.variables += 1;
        Ok(Variable::new_unchecked(Index::Aux(self.variables)))
    }

    fn alloc_input<F, A, AR>(&mut self, annotation: A, value: F) -> Result<Variable, SynthesisError>
    where
        F: FnOnce() -> Result<Scalar, SynthesisError>,
        A: FnOnce() -> AR,
        AR: Into<String>,
    {
        self.alloc(annotation, value)
    }

    fn enforce<A, AR, LA, LB, LC>(&mut self, _: A, _: LA, _: LB, _: LC)
    where
        A: FnOnce() -> AR,
        AR: Into<String>,
        LA: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LB: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
        LC: FnOnce(LinearCombination<Scalar>) -> LinearCombination<Scalar>,
    {
    }

    fn push_namespace<NR, N>(&mut self, _: N)
    where
        NR: Into<String>,
        N: FnOnce() -> NR,
    {
    }

    fn pop_namespace(&mut self) {}

    fn get_root(&mut self) -> &mut Self::Root {
        self
    }
}

fn refuse<T>() -> Result<T, SynthesisError> {
    Err(SynthesisError::IoError(io::Error::other("the synthesis is all that is measured")))
}

fn main() -> Result<(), Failure> {
    let rounds = std::env::args().nth(1).map_or(Ok(5), |text| text.parse())?;
    let threads = std::env::var("THREADS").ok().and_then(|threads| threads.parse().ok()).unwrap_or(2);
    let pool = Pool::new(PoolConfig { threads, ..PoolConfig::default() })?;
    println!(
        "| circuit | constraints | matrices, MiB | milliseconds: circuit alone | witness | products | bellperson | ratio | at most |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let dense = |steps| move |x: u64| Squarings { start: Some(Scalar::from(x + 2)), steps };
    let sha = |blocks: usize| {
        let len = blocks * 64 - 9;
        move |x: u64| Sha256Preimage { bytes: Some(vec![x as u8; len]), len }
    };
    compare("dense, 2^14", dense(16_000), &pool, rounds)?;
    compare("dense, 2^16", dense(65_000), &pool, rounds)?;
    compare("SHA-256 of 2 blocks, 2^16", sha(2), &pool, rounds)?;
    compare("SHA-256 of 9 blocks, 2^18", sha(9), &pool, rounds)?;
    println!("\n{rounds} rounds in turn, medians; {threads} threads; one circuit at a time.");
    Ok(())
}

/// A prover wants a key of the right lengths; synthesis does not look at its points.
fn any_key(r1cs: &R1cs) -> ProvingKey {
    let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
    let (a, b) = (r1cs.a_density().total(), r1cs.b_density().total());
    let ic = vec![g1; r1cs.inputs()];
    ProvingKey {
        vk: OurVerifyingKey { alpha_g1: g1, beta_g1: g1, beta_g2: g2, gamma_g2: g2, delta_g1: g1, delta_g2: g2, ic },
        h: HQuery { basis: HBasis::PowersOfTau, points: vec![g1; r1cs.domain().size() - 1] },
        l: vec![g1; r1cs.aux()],
        a: vec![g1; a],
        b_g1: vec![g1; b],
        b_g2: vec![g2; b],
    }
}

fn compare<C: TestCircuit>(title: &str, circuit: impl Fn(u64) -> C, pool: &Pool, rounds: usize) -> Result<(), Failure> {
    let r1cs = Arc::new(R1cs::from_circuit(circuit(0))?);
    let prover = Prover::new(r1cs.clone(), Arc::new(any_key(&r1cs)), Arc::new(Cpu::new()))?;
    let ledger = Ledger::unlimited();
    let (mut alone, mut witnesses, mut products, mut theirs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds as u64 {
        let ours = circuit(round);
        let peer = ours.clone();
        let by_itself = ours.clone();
        let start = Instant::now();
        pool.install(|| by_itself.synthesize(&mut ThrowsAway { variables: 0 }))?;
        alone.push(start.elapsed());
        let mut job = ledger.submit(JobSpec::new("synthesis", prover.profile(pool.threads())))?;
        let mut grant = job.enter(0).wait()?;
        let start = Instant::now();
        let witness = pool.install(|| prover.synthesise(&mut grant, ours))?;
        witnesses.push(start.elapsed());
        drop(grant);
        let mut grant = job.enter(1).wait()?;
        let start = Instant::now();
        let evaluated = pool.install(|| prover.evaluate(&mut grant, witness))?;
        products.push(start.elapsed());
        drop(evaluated);

        let start = Instant::now();
        let refused = create_proof_batch(vec![peer], &Refuses, vec![Scalar::ZERO], vec![Scalar::ZERO]);
        theirs.push(start.elapsed());
        if refused.is_ok() {
            return Err("bellperson proved without a key".into());
        }
    }
    let median = |times: &mut Vec<std::time::Duration>| {
        times.sort();
        times[times.len() / 2].as_secs_f64() * 1e3
    };
    let (alone, witness) = (median(&mut alone), median(&mut witnesses));
    let (products, theirs) = (median(&mut products), median(&mut theirs));
    println!(
        "| {title} | {} | {:.1} | {alone:.1} | {witness:.1} | {products:.1} | {theirs:.1} | {:.2} | {:.2} |",
        r1cs.constraints(),
        r1cs.resident_bytes() as f64 / f64::from(1 << 20),
        theirs / (witness + products),
        theirs / alone,
    );
    Ok(())
}
