use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use blstrs::Scalar;
use plimsoll::{Budget, Bytes, Ledger, Space};
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::prover::{Blinding, ProveError, Proved, Prover};

use super::*;
use crate::wtns::WtnsFile;

const ZKEY: &[u8] = include_bytes!("../../../tests/fixtures/small.zkey");
const WTNS: &[u8] = include_bytes!("../../../tests/fixtures/small.wtns");

/// A file that is there for as long as a test looks at it.
struct KeyFile(PathBuf);

impl KeyFile {
    fn with(bytes: &[u8]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("plimsoll-stream-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::write(&path, bytes).expect("a temporary file");
        Self(path)
    }

    fn map(&self) -> Arc<MappedFile> {
        Arc::new(MappedFile::open(&self.0).expect("mapped"))
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn scan(map: &Arc<MappedFile>, window_points: usize) -> Result<(ZkeyStream, KeyDigest), ReadError> {
    let zkey = ZkeyFile::parse(map).expect("sound frame");
    let shape = zkey.shape(None, &**map).expect("shape");
    zkey.scan_by(&shape, map, window_points)
}

fn blinding() -> Blinding {
    Blinding::from_scalars(Scalar::from(5), Scalar::from(7))
}

/// Proves the fixture's witness in a ledger in which no second proof would fit.
fn prove(prover: &Prover) -> Result<Proved, ProveError> {
    let prover = prover.clone().with_synthesis_scratch(Bytes(0));
    let stages = prover.profile(1);
    let peak = stages.stages().iter().map(|stage| stage.peak.iter().map(|(_, bytes)| bytes).sum::<u64>()).max();
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(peak.expect("stages"))));
    let file = WtnsFile::parse(WTNS).expect("sound");
    let mut values = vec![Scalar::from(0); file.len()];
    file.read(0, &mut values).expect("sound");
    let proved = prover.prove_assigned(
        &ledger,
        |inputs, aux| {
            inputs.copy_from_slice(&values[1..=inputs.len()]);
            aux.copy_from_slice(&values[inputs.len() + 1..]);
            Ok(())
        },
        blinding(),
    );
    assert!(ledger.snapshot().is_empty(), "everything is back: {:?}", ledger.snapshot());
    proved
}

fn streamed(map: &Arc<MappedFile>, window_points: usize, piece: usize) -> Prover {
    let zkey = ZkeyFile::parse(map).expect("sound frame");
    let shape = zkey.shape(None, &**map).expect("shape");
    let (key, _) = scan(map, window_points).expect("sound");
    Prover::streamed(Arc::new(shape), Arc::new(key), piece, Arc::new(Cpu::new())).expect("they fit")
}

#[test]
fn a_key_that_passes_through_makes_the_same_proof() {
    let file = KeyFile::with(ZKEY);
    let map = file.map();
    let zkey = ZkeyFile::parse(&map).expect("sound");
    let shape = zkey.shape(None, &*map).expect("shape");
    let (key, digest) = zkey.read_key(&shape, &*map).expect("key");
    let resident = Prover::new(Arc::new(shape), Arc::new(key), Arc::new(Cpu::new())).expect("they fit");
    let expected = prove(&resident).expect("proof");
    for (window_points, piece) in [(1, 1), (1, 3), (2, 2), (2, 5), (3, 6), (8, 1), (WINDOW_POINTS, 1)] {
        assert_eq!(scan(&map, window_points).expect("sound").1, digest, "known by the same digest");
        let prover = streamed(&map, window_points, piece);
        assert!(prover.is_streamed() && prover.key().a.is_empty());
        assert_eq!(prove(&prover).expect("proof"), expected, "windows of {window_points}, pieces of {piece}");
    }
    let (key, _) = scan(&map, WINDOW_POINTS).expect("sound");
    assert_eq!(key.resident_bytes(), zkey.stream_resident_bytes());
}

#[test]
fn a_file_that_changes_meanwhile_is_not_used() {
    let sections = {
        let zkey = ZkeyFile::parse(ZKEY).expect("sound");
        [zkey.h, zkey.l, zkey.a, zkey.b_g1, zkey.b_g2]
    };
    for section in sections {
        let file = KeyFile::with(ZKEY);
        let prover = streamed(&file.map(), 2, 2);
        prove(&prover).expect("proof");
        // In the last point, to a point of the curve: infinity, or the generator where it is infinity.
        let mut bytes = ZKEY.to_vec();
        let last = section.end - 96..section.end;
        match bytes[last.clone()].iter().all(|byte| *byte == 0) {
            true => bytes[last].fill(1),
            false => bytes[last].fill(0),
        }
        // In place: the map is of this file, and not of its name.
        fs::write(&file.0, bytes).expect("written");
        let error = prove(&prover).expect_err("another key");
        let ProveError::Key { source } = error else { panic!("{error}") };
        assert!(source.to_string().contains("changed while it was in use"), "{source}");
    }
}

#[test]
fn points_are_checked_where_they_are() {
    let check = |bytes: &[u8]| {
        let file = KeyFile::with(bytes);
        let (key, _) = scan(&file.map(), 2).expect("on the curve");
        let mut seen = Vec::new();
        let outcome = key.check_subgroups(&mut |done, total| {
            seen.push((done, total));
            std::ops::ControlFlow::Continue(())
        });
        (outcome, seen)
    };
    let (sound, seen) = check(ZKEY);
    assert_eq!(sound, Ok(()));
    let (done, total) = *seen.last().expect("told");
    assert!(done == total && seen.is_sorted(), "{seen:?}");
    let mut encoded = Vec::new();
    FilePoint::write(&crate::points::outside_subgroup(), &mut encoded);
    let h = ZkeyFile::parse(ZKEY).expect("sound").h;
    let mut bytes = ZKEY.to_vec();
    bytes[h.start + 5 * 96..h.start + 6 * 96].copy_from_slice(&encoded);
    let error = check(&bytes).0.expect_err("in another group").to_string();
    assert!(error.contains("H points, point 5: not in the subgroup"), "{error}");

    let mut off = ZKEY.to_vec();
    off[h.start + 3 * 96] ^= 1;
    let error = scan(&KeyFile::with(&off).map(), 2).expect_err("off the curve").to_string();
    assert!(error.contains("H points, point 3: not on the curve"), "{error}");
}
