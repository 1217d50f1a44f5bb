use std::fs;
use std::sync::Arc;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective};
use group::Group;
use plimsoll::pool::PoolConfig;
use plimsoll::{Bytes, Reservation};
use plimsoll_circom::map::{InMemory, MappedFile};
use plimsoll_circom::r1cs::R1csFile;
use plimsoll_circom::zkey::{ZkeyFile, ZkeyStream};
use plimsoll_groth16::backend::{Backend, BackendError, Cpu, CurveGroup, Transform};
use plimsoll_groth16::domain::Domain;

use super::*;
use crate::circom::load::WITNESS_WINDOW;

const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../plimsoll-circom/tests/fixtures");
const ZKEY: &[u8] = include_bytes!("../../../../plimsoll-circom/tests/fixtures/small.zkey");
const R1CS: &[u8] = include_bytes!("../../../../plimsoll-circom/tests/fixtures/small.r1cs");

/// A device that computes wrongly: what it says of G2 is always the same.
#[derive(Debug)]
struct Liar;

impl Backend for Liar {
    fn name(&self) -> &'static str {
        "liar"
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
    fn ntt(&self, d: &Domain, data: &mut [Scalar], t: Transform, s: &mut Reservation) -> Result<(), BackendError> {
        Cpu::new().ntt(d, data, t, s)
    }
    fn mul_sub_scale(&self, a: &mut [Scalar], b: &[Scalar], c: &[Scalar], f: &Scalar) -> Result<(), BackendError> {
        Cpu::new().mul_sub_scale(a, b, c, f)
    }
    fn msm_g1(&self, p: &[G1Affine], v: &[Scalar], s: &mut Reservation) -> Result<G1Projective, BackendError> {
        Cpu::new().msm_g1(p, v, s)
    }
    fn msm_g2(&self, _: &[G2Affine], _: &[Scalar], _: &mut Reservation) -> Result<G2Projective, BackendError> {
        Ok(G2Projective::generator())
    }
}

fn whole(with_r1cs: bool, backend: Arc<dyn Backend>) -> Prover {
    let zkey = ZkeyFile::parse(ZKEY).unwrap();
    let r1cs = R1csFile::parse(R1CS).unwrap();
    let shape = zkey.shape(with_r1cs.then_some(&r1cs), &InMemory).unwrap();
    let (key, _) = zkey.read_key(&shape, &InMemory).unwrap();
    Prover::new(Arc::new(shape), Arc::new(key), backend).unwrap()
}

/// Proves the fixture's witness so often; what came of each, `None` for a proof.
fn outcomes(prover: Prover, count: usize, mut before: impl FnMut(&Ledger, usize)) -> Vec<Option<WitnessError>> {
    let prover = prover.with_synthesis_scratch(Bytes(WITNESS_WINDOW as u64));
    let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).unwrap();
    let ledger = Ledger::unlimited();
    let witness = WitnessFile { path: format!("{FIXTURES}/small.wtns").into(), proof: "".into(), public: "".into() };
    let waiting = Waiting { together: 1, at_most: count, bytes: Bytes::MIB };
    let (cards, interrupt) = (Cards::default(), Interrupt::default());
    let batch = Batch { prover: &prover, cards: &cards, ledger: &ledger, pool: &pool, interrupt: &interrupt, waiting };
    let mut outcomes = Vec::new();
    let run = batch.run::<PipelineError>(&vec![witness; count], |index, result| {
        before(&ledger, index);
        outcomes.push(result.err());
        Ok(())
    });
    run.unwrap();
    assert!(ledger.snapshot().is_empty(), "everything is given back");
    outcomes
}

#[test]
fn a_device_that_computes_wrongly_is_not_called_a_wrong_witness() {
    assert!(matches!(outcomes(whole(true, Arc::new(Cpu::new())), 1, |_, _| {})[..], [None]));
    let with = outcomes(whole(true, Arc::new(Liar)), 2, |_, _| {});
    assert!(matches!(with[..], [Some(WitnessError::Unsound { backend: "liar" }), Some(WitnessError::Unsound { .. })]));
    let text = with[0].as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(text.contains("satisfies the circuit") && text.contains("liar backend computes wrongly"), "{text}");
    // Where nobody has looked at the constraints, it may be any of three.
    let without = outcomes(whole(false, Arc::new(Liar)), 1, |_, _| {});
    let text = without[0].as_ref().map(ToString::to_string).unwrap_or_default();
    assert!(matches!(without[0], Some(WitnessError::Invalid { .. })));
    for cause in ["the witness does not satisfy", "the key is for another", "liar backend computes wrongly"] {
        assert!(text.contains(cause), "{text}");
    }
}

#[test]
fn a_key_that_is_changed_on_the_way_is_to_blame_and_not_the_witness() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("small.zkey");
    fs::write(&path, ZKEY).unwrap();
    let map = Arc::new(MappedFile::open(&path).unwrap());
    let zkey = ZkeyFile::parse_in(&map, &*map).unwrap();
    let shape = zkey.shape(None, &*map).unwrap();
    let key = Arc::new(zkey.scan_key(&shape, &map).unwrap().0);
    let streamed = || {
        let backend = Arc::new(Cpu::new());
        Prover::streamed(Arc::new(zkey.shape(None, &*map).unwrap()), key.clone(), ZkeyStream::WINDOW_POINTS, backend)
    };
    assert!(matches!(outcomes(streamed().unwrap(), 1, |_, _| {})[..], [None]));
    let prover = streamed().unwrap();
    let mut changed = ZKEY.to_vec();
    let in_h = changed.len() - 1000;
    changed[in_h] ^= 1;
    fs::write(&path, changed).unwrap();
    match &outcomes(prover, 1, |_, _| {})[..] {
        [Some(WitnessError::Key(text))] => assert!(text.contains("changed while it was in use"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cancelled_witness_is_none_of_the_programs_faults() {
    const COUNT: usize = 100;
    let mut cancelled = None;
    let cancel = |ledger: &Ledger, index: usize| {
        if index == 0 {
            // The last of those that are under way: it cannot be done before the others.
            cancelled = (1..COUNT).rev().find(|index| ledger.cancel(&format!("witness {index}")) == 1);
        }
    };
    let outcomes = outcomes(whole(true, Arc::new(Cpu::new())), COUNT, cancel);
    let cancelled = cancelled.expect("more than one is under way");
    for (index, outcome) in outcomes.iter().enumerate() {
        let expected =
            if index == cancelled { matches!(outcome, Some(WitnessError::Cancelled)) } else { outcome.is_none() };
        assert!(expected, "witness {index} of which {cancelled} was cancelled: {outcome:?}");
    }
}
