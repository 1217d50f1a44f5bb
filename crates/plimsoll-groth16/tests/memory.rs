//! What only an allocator sees: what circuits allocate behind the ledger's back, what a hostile file makes a reader allocate,
//! and whether secrets are erased before their memory is freed.

#[path = "support/circuits.rs"]
mod circuits;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::Arc;

use bellpepper_core::{Circuit, ConstraintSystem, SynthesisError, Variable};
use blstrs::Scalar;
use circuits::{Cubic, Sha256Preimage, Squarings, TestCircuit, rng};
use ff::Field;
use plimsoll::{JobSpec, Ledger};
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::footprint::{AUX, SCRATCH, SHELLS};
use plimsoll_groth16::keys::{Checked, KeyHeader, ProvingKey};
use plimsoll_groth16::prover::{Blinding, Prover};
use plimsoll_groth16::r1cs::{InputRows, Products, R1cs, R1csBuilder, Side};
use plimsoll_groth16::setup;

/// Counts what the current thread has allocated and not yet freed.
struct Counting;

thread_local! {
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
    /// Blocks of this size are looked at when they are freed.
    static WATCHED: Cell<usize> = const { Cell::new(0) };
    /// And all from this size on.
    static WATCHED_FROM: Cell<usize> = const { Cell::new(usize::MAX) };
    static ERASED: Cell<usize> = const { Cell::new(0) };
    static NOT_ERASED: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: i64) {
    HELD.set(HELD.get() + bytes);
    PEAK.set(PEAK.get().max(HELD.get()));
}

// SAFETY: all calls go to the system's allocator as they are; counting and looking allocate nothing.
#[expect(unsafe_code, reason = "an allocator that counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        if layout.size() == WATCHED.get() || layout.size() >= WATCHED_FROM.get() {
            // SAFETY: the block is still the caller's, and the buffers of these sizes are full of scalars, points or numbers.
            let bytes = unsafe { std::slice::from_raw_parts(pointer, layout.size()) };
            let counter = if bytes.iter().all(|&byte| byte == 0) { &ERASED } else { &NOT_ERASED };
            counter.set(counter.get() + 1);
        }
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that `f` held at a time, beyond what there was before.
fn peak_of<R>(f: impl FnOnce() -> R) -> (R, u64) {
    let before = HELD.get();
    PEAK.set(before);
    let result = f();
    (result, (PEAK.get() - before) as u64)
}

fn check_synthesis<C: TestCircuit>(name: &str, circuit: C) {
    let r1cs = R1cs::from_circuit(circuit.clone()).expect("shape");
    let key = setup::generate(&r1cs, &mut rng(1), &|_| ControlFlow::Continue(())).expect("key");
    let prover = Prover::new(Arc::new(r1cs), Arc::new(key), Arc::new(Cpu::new())).expect("prover");
    let profile = prover.profile(1);
    let declared = profile.stages()[0].peak.clone();
    let mut job = Ledger::unlimited().submit(JobSpec::new("proof", profile)).expect("submit");
    let mut grant = job.enter(0).wait().expect("grant");
    let (witness, peak) = peak_of(|| prover.synthesise(&mut grant, circuit).expect("witness"));
    let buffers = declared.of(AUX) + declared.of(SHELLS);
    let transient = peak - buffers;
    println!(
        "{name}: {transient} bytes beside the buffers, {:.1} a variable; declared {}",
        transient as f64 / prover.r1cs().variables() as f64,
        declared.of(SCRATCH)
    );
    assert!(transient <= declared.of(SCRATCH), "{name}: {transient} bytes");
    drop(witness);
}

/// Keeps a handle to every variable until the end.
#[derive(Clone, Debug)]
struct Hoarder(usize);

impl Circuit<Scalar> for Hoarder {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let mut numbers: Vec<(Option<Scalar>, Variable)> = Vec::with_capacity(self.0);
        for i in 0..self.0 as u64 {
            let value = Scalar::from(i);
            let variable = cs.alloc(|| "number", || Ok(value))?;
            numbers.push((Some(value), variable));
        }
        for (_, number) in numbers {
            cs.enforce(|| "itself", |lc| lc + number, |lc| lc + CS::one(), |lc| lc + number);
        }
        Ok(())
    }
}

impl TestCircuit for Hoarder {
    fn public_inputs(&self) -> Vec<Scalar> {
        Vec::new()
    }
}

#[test]
fn circuits_allocate_no_more_than_is_declared_for_them() {
    check_synthesis("cubic", Cubic(Some(Scalar::ONE)));
    check_synthesis("squarings", Squarings { start: Some(Scalar::ONE), steps: 5000 });
    check_synthesis("hoarder", Hoarder(8_000));
    for blocks in [1, 2] {
        let len = blocks * 64 - 9;
        check_synthesis(&format!("sha256 of {blocks} blocks"), Sha256Preimage { bytes: Some(vec![7; len]), len });
    }
}

#[test]
fn a_hostile_key_file_costs_no_more_than_a_few_bytes() {
    let r1cs = R1cs::from_circuit(Cubic(None)).expect("shape");
    let key = setup::generate(&r1cs, &mut rng(1), &|_| ControlFlow::Continue(())).expect("key");
    let mut file = Vec::new();
    key.write(&mut file).expect("written");
    // The count of the input points, after three points of each group; behind it everything is taken for points.
    for position in 864..868 {
        let mut hostile = file.clone();
        hostile[position] = 0xff;
        let (result, peak) = peak_of(|| ProvingKey::scan_and_read(Cursor::new(&hostile), Checked::No));
        assert!(result.is_err());
        assert!(peak < 4096, "byte {position}: {peak} bytes were allocated for a file of {}", file.len());
    }
    let header = KeyHeader::scan(&mut Cursor::new(&file)).expect("header");
    let (read, peak) = peak_of(|| ProvingKey::read(&file[..], &header, Checked::No));
    assert!(read.is_ok());
    assert!(peak <= header.resident_bytes() + KeyHeader::READ_SCRATCH_BYTES, "{peak} bytes");
}

#[test]
fn a_shape_from_entries_takes_no_more_than_is_said() {
    let (inputs, aux, rows) = (3, 20_000, 10_000);
    // As files have them, and the worst that a file can have: no order, and no two coefficients the same.
    for (name, distinct) in [("usual", false), ("hostile", true)] {
        let entry = |i: usize| {
            let row = if distinct { (i * 7919) % rows } else { i % rows };
            (row, i % (inputs + aux), Scalar::from(if distinct { i as u64 + 2 } else { i as u64 % 5 }))
        };
        let per_side = 30_000;
        let coefficients = if distinct { per_side } else { 5 };
        let declared = R1csBuilder::bytes_for(inputs, aux, rows, 3 * per_side, coefficients);
        let (shape, peak) = peak_of(|| {
            let mut builder = R1csBuilder::new(inputs, aux, rows).expect("sizes");
            for side in [Side::A, Side::B, Side::C] {
                builder.reserve(side, per_side);
                for (row, column, coefficient) in (0..per_side).map(entry) {
                    builder.push(side, row, column, &coefficient).expect("an entry");
                }
            }
            builder.finish(InputRows::Append, Products::Matrix).expect("a shape")
        });
        println!("{name}: {peak} bytes of {declared}, of which {} stay", shape.resident_bytes());
        assert!(peak <= declared, "{name}: {peak} bytes, declared {declared}");
        assert!(peak * 2 >= declared, "{name}: {peak} bytes, {declared} is far too much");
    }
}

#[test]
fn secrets_are_erased_before_their_memory_is_freed() {
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 700 };
    let r1cs = R1cs::from_circuit(circuit.clone()).expect("shape");
    let key = setup::generate(&r1cs, &mut rng(1), &|_| ControlFlow::Continue(())).expect("key");
    let (assignment, domain) = (r1cs.variables() * size_of::<Scalar>(), r1cs.domain().size() * size_of::<Scalar>());
    let prover = Prover::new(Arc::new(r1cs), Arc::new(key), Arc::new(Cpu::new())).expect("prover");
    // The assignment; a, in which the quotient is made; pieces of b and c.
    for (size, buffers) in [(assignment, 1), (domain, 1), (domain / 8 * 5, 1)] {
        let counts_before = (ERASED.get(), NOT_ERASED.get());
        WATCHED.set(size);
        let proved = prover.prove(&Ledger::unlimited(), circuit.clone(), Blinding::from_os());
        WATCHED.set(0);
        assert!(proved.is_ok());
        assert_eq!((ERASED.get(), NOT_ERASED.get()), (counts_before.0 + buffers, counts_before.1), "{size} bytes");
    }
}

#[test]
fn all_that_proving_works_with_is_erased_as_well() {
    // Buckets, sorted places, tables: whatever is large. (What is small is a handful of sums, errors, and the ledger's books.)
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 3000 };
    let r1cs = R1cs::from_circuit(circuit.clone()).expect("shape");
    let key = setup::generate(&r1cs, &mut rng(1), &|_| ControlFlow::Continue(())).expect("key");
    let prover = Prover::new(Arc::new(r1cs), Arc::new(key), Arc::new(Cpu::new())).expect("prover");
    let ledger = Ledger::unlimited();
    prover.prove(&ledger, circuit.clone(), Blinding::from_os()).expect("proof");
    let (erased, not_erased) = (ERASED.get(), NOT_ERASED.get());
    WATCHED_FROM.set(8 << 10);
    let proved = prover.prove(&ledger, circuit, Blinding::from_os());
    WATCHED_FROM.set(usize::MAX);
    assert!(proved.is_ok());
    assert_eq!(NOT_ERASED.get(), not_erased);
    assert!(ERASED.get() > erased + 20, "the buffers of a proof were looked at");
}
