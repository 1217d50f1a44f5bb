use std::borrow::Cow;
use std::time::Duration;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective};
use ff::PrimeField;
use group::Group;
use plimsoll::device::simulate::{CardSpec, Faults, Simulated, SimulatedLane, SimulatedMemory};
use plimsoll::device::{DeviceConfig, DriverError};
use plimsoll::pipeline::{JobError, Pipeline, Retry};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Class, Reservation, Space};

use super::super::tests::{blinding, prover};
use super::*;
use crate::Proof;
use crate::backend::{Backend, Cpu, Transform};
use crate::device::DeviceSums;
use crate::test_circuits::{Quirks, Random, Squarings, TestCircuit};

mod pipeline;

/// What a simulated device needs for itself, of each class, in its two plans.
const ROOM: [u64; 2] = [4096, 512];

/// A simulated card computes with the processor on what is written in its memory.
impl DeviceBackend for Simulated {
    type Plan = u64;

    fn name(&self) -> &'static str {
        "simulated"
    }

    fn plans(&self, _: &DeviceSizes, residence: Residence, memory: Bytes) -> Vec<DevicePlan<u64>> {
        let points = |room| if residence == Residence::Streamed { Bytes(room) } else { Bytes::ZERO };
        let plan = |room| DevicePlan { points: points(room), buckets: Bytes(room), workspace: Bytes(room), plan: room };
        let classes = if residence == Residence::Streamed { 3 } else { 2 };
        ROOM.into_iter().filter(|room| classes * room <= memory.0).map(plan).collect()
    }

    fn scalars(values: &[Scalar]) -> Cow<'_, [u8]> {
        values.iter().flat_map(|value| value.to_repr()).collect()
    }

    fn g1(points: &[G1Affine]) -> Cow<'_, [u8]> {
        points.iter().flat_map(|point| point.to_uncompressed()).collect()
    }

    fn g2(points: &[G2Affine]) -> Cow<'_, [u8]> {
        points.iter().flat_map(|point| point.to_uncompressed()).collect()
    }

    fn prove(lane: &mut SimulatedLane, room: &u64, work: DeviceWork<'_, Self>) -> Result<DeviceSums, DriverError> {
        work.workspace.write(|bytes| bytes.resize(*room as usize, 1));
        let uses = [work.scalars, work.buckets, work.workspace, work.points];
        let mut sums = None;
        // As on a real one, what has failed is known when it is waited for.
        let kernel = lane.kernel(Duration::from_millis(1), &uses, || sums = Some(compute(&work)));
        let done = kernel.and_then(|()| lane.synchronise());
        work.scalars.write(|bytes| bytes.fill(0));
        done?;
        sums.ok_or(DriverError::Failed { message: "the kernel was not run".to_owned() })
    }
}

fn read(memory: &SimulatedMemory, at: u64, bytes: u64) -> Vec<u8> {
    memory.read(|all| {
        let mut part = vec![0; bytes as usize];
        let there = &all[(at as usize).min(all.len())..];
        let len = there.len().min(part.len());
        part[..len].copy_from_slice(&there[..len]);
        part
    })
}

fn scalars(memory: &SimulatedMemory, at: u64, len: u64) -> Vec<Scalar> {
    let bytes = read(memory, at, 32 * len);
    bytes.chunks(32).map(|one| Scalar::from_repr(one.try_into().expect("32")).expect("a scalar")).collect()
}

fn g1(memory: &SimulatedMemory, at: u64, len: u64) -> Vec<G1Affine> {
    let bytes = read(memory, at, 96 * len);
    bytes
        .chunks(96)
        .map(|one| G1Affine::from_uncompressed_unchecked(one.try_into().expect("96")).expect("a point"))
        .collect()
}

fn g2(memory: &SimulatedMemory, at: u64, len: u64) -> Vec<G2Affine> {
    let bytes = read(memory, at, 192 * len);
    bytes
        .chunks(192)
        .map(|one| G2Affine::from_uncompressed_unchecked(one.try_into().expect("192")).expect("a point"))
        .collect()
}

fn gathered(memory: &SimulatedMemory, at: u64, len: u64, from: &[Scalar]) -> Vec<Scalar> {
    let bytes = read(memory, at, 4 * len);
    bytes.chunks(4).map(|one| from[u32::from_le_bytes(one.try_into().expect("4")) as usize]).collect()
}

fn scratch(bytes: u64) -> Reservation {
    const CLASS: Class = Class::new("scratch", Space::HOST);
    Ledger::unlimited().reserve(CLASS, Bytes(bytes)).wait().expect("unlimited")
}

fn msm_g1(bases: &[G1Affine], scalars: &[Scalar]) -> G1Projective {
    let mut scratch = scratch(1 << 30);
    if bases.is_empty() {
        G1Projective::identity()
    } else {
        Cpu::new().msm_g1(bases, scalars, &mut scratch).expect("msm")
    }
}

fn msm_g2(bases: &[G2Affine], scalars: &[Scalar]) -> G2Projective {
    let mut scratch = scratch(1 << 30);
    if bases.is_empty() {
        G2Projective::identity()
    } else {
        Cpu::new().msm_g2(bases, scalars, &mut scratch).expect("msm")
    }
}

fn compute(work: &DeviceWork<'_, Simulated>) -> DeviceSums {
    let DeviceWork { sizes, domain, layout, scalars: memory, .. } = work;
    let [mut a, mut b] = layout.factors.map(|at| scalars(memory, at, sizes.domain));
    let mut c: Vec<_> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
    let mut room = scratch(1 << 30);
    Cpu::new().quotient_on_coset(domain, &mut a, &mut b, &mut c, work.factor, &mut room).expect("quotient");
    if work.coefficients {
        Cpu::new().ntt(domain, &mut a, Transform::CosetInverse, &mut room).expect("transform");
    }
    let assignment = scalars(memory, layout.assignment, sizes.variables);
    let (h, l, a_points, b_g1, b_g2, index, at) = match work.key {
        KeyPoints::Resident(key, at) => (
            g1(key, at.h, sizes.h),
            g1(key, at.l, sizes.l),
            g1(key, at.a, sizes.a),
            g1(key, at.b_g1, sizes.b),
            g2(key, at.b_g2, sizes.b),
            key,
            (at.index_a, at.index_b),
        ),
        KeyPoints::Streamed(key) => (
            key.h.points.clone(),
            key.l.clone(),
            key.a.clone(),
            key.b_g1.clone(),
            key.b_g2.clone(),
            *memory,
            (layout.index_a, layout.index_b),
        ),
    };
    let of_a = if sizes.a_is_dense() { assignment.clone() } else { gathered(index, at.0, sizes.a, &assignment) };
    let of_b = if sizes.b_is_dense() { assignment.clone() } else { gathered(index, at.1, sizes.b, &assignment) };
    DeviceSums {
        h_and_l: msm_g1(&h, &a[..h.len()]) + msm_g1(&l, &assignment[sizes.inputs as usize..]),
        a: msm_g1(&a_points, &of_a),
        b_g1: msm_g1(&b_g1, &of_b),
        b_g2: msm_g2(&b_g2, &of_b),
    }
}

/// Devices of so many bytes each, with a ledger of their own.
fn devices(cards: &[Simulated], memory: Bytes) -> (DeviceSet<Simulated>, Ledger) {
    let budget = (0..cards.len())
        .fold(Budget::new().space(Space::HOST, Bytes::GIB), |budget, number| budget.device(number as u16, memory, 2));
    let ledger = Ledger::new(budget);
    let start = |(number, card): (usize, &Simulated)| {
        Device::start(number as u16, card.clone(), &ledger, DeviceConfig::default()).expect("a simulated device")
    };
    (DeviceSet::new(cards.iter().enumerate().map(start).collect::<Vec<_>>()), ledger)
}

fn pipeline<C: TestCircuit + Send + 'static>(
    this: &DeviceProver<Simulated>,
    ledger: &Ledger,
    pool: &Pool,
) -> Pipeline<C, Proof, ProveError> {
    pipeline_of(this, ledger, pool, false)
}

/// Where a stage on the device fails, it is run again from its input, or the job from its start.
fn pipeline_of<C: TestCircuit + Send + 'static>(
    this: &DeviceProver<Simulated>,
    ledger: &Ledger,
    pool: &Pool,
    from_start: bool,
) -> Pipeline<C, Proof, ProveError> {
    let [synthesise, evaluate, stage_in, compute, assemble] = DEVICE_STAGES;
    let threads = pool.threads();
    let (first, rest) = (this.clone(), this.clone());
    let on = |_: ()| this.clone();
    let [one, two, three, four, five] = [(); 5].map(on);
    let builder = Pipeline::builder(ledger, pool, move |_: &C| first.profiles(threads).remove(0))
        .alternatives(move |_| rest.profiles(threads))
        .failures(ProveError::failure)
        .stage(synthesise, move |cx, circuit| one.prover().synthesise(cx.grant(), circuit))
        .stage(evaluate, move |cx, witness| two.prover().evaluate_for_device(cx.grant(), witness))
        .device_stage(stage_in, this.devices(), move |cx, evaluated| three.stage_in(cx, evaluated))
        .compute_stage_again(compute, this.devices(), Retry::times(2), move |cx, staged| four.compute(cx, staged));
    let builder = if from_start { builder.from_start(Retry::times(2)) } else { builder };
    let builder = builder.stage(assemble, move |_, openings| Ok(five.prover().assemble(openings, blinding()).proof));
    this.with_keys(builder).build().expect("it fits")
}

fn card() -> Simulated {
    Simulated::new(CardSpec { memory: Bytes::GIB, ..CardSpec::default() })
}

fn check<C: TestCircuit + Send + 'static>(name: &str, circuit: C, residence: Residence, cards: usize) {
    let prover = prover(circuit.clone());
    let expected = prover.prove(&Ledger::unlimited(), circuit.clone(), blinding()).expect(name).proof;
    let cards: Vec<_> = (0..cards).map(|_| card()).collect();
    let (set, ledger) = devices(&cards, Bytes(64 << 20));
    let this = DeviceProver::with_residence(prover, set, &ledger, residence).expect(name);
    let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).expect("pool");
    let pipeline = pipeline(&this, &ledger, &pool);
    let proofs: Vec<_> = pipeline.run_all((0..4).map(|i| (format!("proof {i}"), circuit.clone()))).collect();
    for (_, proof) in proofs {
        assert_eq!(proof.expect(name), expected, "{name}");
    }
    pipeline.drain();
    // What is left is the keys, which stay as long as somebody has the prover.
    let snapshot = ledger.snapshot();
    let others: Vec<_> = snapshot.holders.iter().filter(|holder| &*holder.who != "proving key").collect();
    assert!(others.is_empty(), "{name}: {others:?}");
    let mut with_key = 0;
    for (number, card) in cards.iter().enumerate() {
        // A device that no proof was made on has not been given the key.
        let is_there = this.sites[number].key.as_ref().is_some_and(Residency::is_resident);
        let key = if is_there { KeyLayout::new(&this.sizes).bytes } else { Bytes::ZERO };
        let held = snapshot.space(Space::device(number as u16)).map(|space| space.held);
        assert_eq!((held, card.stats().allocated_bytes), (Some(key), key), "{name}: device {number}");
        with_key += usize::from(is_there);
    }
    assert_eq!(with_key > 0, residence == Residence::Resident, "{name}");
}

#[test]
fn proofs_made_on_devices_are_the_processors() {
    for residence in [Residence::Resident, Residence::Streamed] {
        check("quirks", Quirks(Some((Scalar::from(3), -Scalar::from(5)))), residence, 1);
        check("squarings", Squarings { start: Some(Scalar::from(2)), steps: 50 }, residence, 2);
        for seed in 0..4 {
            check(&format!("random {seed}"), Random::small(seed), residence, 1);
        }
    }
}

#[test]
fn points_pass_through_where_they_have_no_room() {
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 100 };
    let prover = prover(circuit.clone());
    let sizes = DeviceSizes::new(prover.r1cs(), HBasis::PowersOfTau);
    let [beside_key, scalars] =
        [Residence::Resident, Residence::Streamed].map(|at| ScalarLayout::new(&sizes, at).bytes.0);
    let key = KeyLayout::new(&sizes).bytes.0 + beside_key + 2 * ROOM[1];
    // Without points that pass through, a plan takes a third less.
    let residence = |memory: u64| {
        let (set, ledger) = devices(&[card()], Bytes(memory));
        DeviceProver::new(prover.clone(), set, &ledger).map(|this| this.residence())
    };
    assert_eq!(residence(key).expect("fits"), Residence::Resident);
    assert_eq!(residence(key - 1).expect("fits"), Residence::Streamed);
    assert_eq!(residence(scalars + 3 * ROOM[1]).expect("fits"), Residence::Streamed);
    assert!(matches!(residence(scalars + 3 * ROOM[1] - 1), Err(DeviceProverError::TooSmall { device: 0, .. })));
}

/// A neighbour takes the card's memory: the stage is tried again and goes by the smaller plan, and the proof is the same.
#[test]
fn a_neighbour_on_the_card_means_a_smaller_plan() {
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 20 };
    let prover = prover(circuit.clone());
    let expected = prover.prove(&Ledger::unlimited(), circuit.clone(), blinding()).expect("proof").proof;
    let sizes = DeviceSizes::new(prover.r1cs(), HBasis::PowersOfTau);
    let scalars = ScalarLayout::new(&sizes, Residence::Streamed).bytes.0;
    let card = Simulated::new(CardSpec { memory: Bytes(scalars + 3 * ROOM[0]), ..CardSpec::default() });
    let _neighbour = card.neighbour(Bytes(3 * (ROOM[0] - ROOM[1]))).expect("the card is empty");
    let (set, ledger) = devices(std::slice::from_ref(&card), Bytes(scalars + 3 * ROOM[0]));
    let this = DeviceProver::with_residence(prover, set, &ledger, Residence::Streamed).expect("fits");
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("pool");
    let [synthesise, evaluate, stage_in, compute, assemble] = DEVICE_STAGES;
    let (first, rest) = (this.clone(), this.clone());
    let [one, two, three, four, five] = [(); 5].map(|()| this.clone());
    let retry = Retry::times(2).within(Duration::ZERO);
    let pipeline = Pipeline::builder(&ledger, &pool, move |_: &Squarings| first.profiles(1).remove(0))
        .alternatives(move |_| rest.profiles(1))
        .failures(ProveError::failure)
        .stage(synthesise, move |cx, circuit| one.prover().synthesise(cx.grant(), circuit))
        .stage(evaluate, move |cx, witness| two.prover().evaluate_for_device(cx.grant(), witness))
        .device_stage(stage_in, this.devices(), move |cx, evaluated| three.stage_in(cx, evaluated))
        .compute_stage_again(compute, this.devices(), retry, move |cx, staged| four.compute(cx, staged))
        .stage(assemble, move |_, openings| Ok::<_, ProveError>(five.prover().assemble(openings, blinding()).proof))
        .build()
        .expect("it fits");
    let proof = pipeline.submit("proof", circuit).expect("submitted").wait();
    assert_eq!(proof.expect("the smaller plan fits"), expected);
}

/// A card that refuses one call.
fn refusing(call: u64) -> Simulated {
    let faults = Faults { refused_at: Some(call), ..Faults::default() };
    Simulated::new(CardSpec { memory: Bytes::GIB, faults, ..CardSpec::default() })
}

/// Each call of the device in turn is refused, those inside of `prove` among them, when the scalars are no more what they were.
#[test]
fn a_refused_call_means_an_error_or_the_right_proof() {
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 3 };
    let prover = prover(circuit.clone());
    let expected = prover.prove(&Ledger::unlimited(), circuit.clone(), blinding()).expect("proof").proof;
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("pool");
    let prove = |card: &Simulated, residence, from_start: bool| {
        let (set, ledger) = devices(std::slice::from_ref(card), Bytes(64 << 20));
        let this = DeviceProver::with_residence(prover.clone(), set, &ledger, residence).expect("fits");
        let pipeline = pipeline_of(&this, &ledger, &pool, from_start);
        let outcome = pipeline.submit("proof", circuit.clone()).expect("submitted").wait();
        pipeline.drain();
        drop((pipeline, this));
        let held = ledger.snapshot().spaces.iter().map(|space| space.held.0).sum::<u64>();
        assert_eq!((held, card.stats().freed_in_use), (0, 0));
        (outcome, card.stats().calls)
    };
    for residence in [Residence::Resident, Residence::Streamed] {
        let (outcome, calls) = prove(&card(), residence, false);
        assert_eq!(outcome.expect("no fault"), expected);
        let (mut used_up, mut retried, mut restarted) = (0, 0, 0);
        for call in 3..=calls {
            let from_input = prove(&refusing(call), residence, false).0;
            let from_start = prove(&refusing(call), residence, true).0;
            for proof in [&from_input, &from_start].into_iter().flatten() {
                assert_eq!(proof, &expected, "{residence:?}: call {call}");
            }
            if let Err(JobError::Stage { source: ProveError::UsedUp { cause }, .. }) = &from_input {
                let is_refused = |cause: &DeviceError| matches!(cause, DeviceError::Driver { .. });
                assert!(cause.as_ref().is_none_or(is_refused), "{residence:?}: call {call}: {cause:?}");
                used_up += 1;
                restarted += usize::from(from_start.is_ok());
            }
            let stopped = matches!(from_input, Err(JobError::Stage { source: ProveError::Stopped, .. }));
            assert!(!stopped, "{residence:?}: call {call}: nobody has stopped it");
            retried += usize::from(from_input.is_ok());
        }
        // The kernel, what waits for it, and the wait at the stage's end; the stage's three allocations before.
        assert_eq!((used_up, restarted), (3, 3), "{residence:?}");
        assert!(retried >= 3, "{residence:?}: {retried}");
    }
}

#[test]
fn a_lost_device_is_a_typed_error_and_nothing_is_left() {
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 20 };
    let card = card();
    let (set, ledger) = devices(std::slice::from_ref(&card), Bytes(64 << 20));
    let this = DeviceProver::with_residence(prover(circuit.clone()), set, &ledger, Residence::Streamed).expect("fits");
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("pool");
    let pipeline = pipeline(&this, &ledger, &pool);
    card.lose();
    let outcome = pipeline.submit("proof", circuit).expect("submitted").wait();
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!(this.devices().losses().len(), 1);
    pipeline.drain();
    let host = ledger.snapshot().space(Space::HOST).map(|space| space.held);
    assert_eq!(host, Some(Bytes::ZERO));
}

#[test]
fn a_lost_device_leaves_the_next_proofs_to_the_other_and_the_key_there() {
    let circuit = Squarings { start: Some(Scalar::from(2)), steps: 20 };
    let prover = prover(circuit.clone());
    let expected = prover.prove(&Ledger::unlimited(), circuit.clone(), blinding()).expect("proof").proof;
    let (set, ledger) = devices(&[card(), card()], Bytes(64 << 20));
    let this = DeviceProver::with_residence(prover, set, &ledger, Residence::Resident).expect("fits");
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).expect("pool");
    let pipeline = pipeline(&this, &ledger, &pool);
    let has_key = || [0, 1].map(|at: usize| this.sites[at].key.as_ref().is_some_and(Residency::is_resident));
    let prove = || pipeline.submit("proof", circuit.clone()).expect("submitted").wait().expect("proved");
    assert_eq!(prove(), expected);
    let first = has_key().iter().position(|has_key| *has_key).expect("it was loaded");
    assert_eq!(has_key().iter().filter(|has_key| **has_key).count(), 1, "to the device that the proof was made on");
    this.devices().device(first as u16).expect("it is there").give_up("pulled out");
    assert_eq!(prove(), expected);
    assert!(has_key()[1 - first]);
}
