//! Proof files that someone tampered with: never accepted, never a panic.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;

use blstrs::G1Affine;
use group::prime::PrimeCurveAffine;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll_cli::verify::{CheckError, check};

use crate::support::{Sandbox, finish};

/// A proof of three partitions, as text.
fn proof() -> &'static str {
    static PROOF: OnceLock<String> = OnceLock::new();
    PROOF.get_or_init(|| {
        let sandbox = Sandbox::new();
        sandbox.file("file", 300);
        sandbox.prove(&["file"]);
        fs::read_to_string(sandbox.path("file.proof.json")).unwrap()
    })
}

fn check_bytes(directory: &Path, bytes: &[u8]) -> Result<(), CheckError> {
    let path = directory.join("tampered.json");
    fs::write(&path, bytes).unwrap();
    check(&path, None).map(drop)
}

/// What the command says to a proof with `from` replaced by `to`, once.
#[track_caller]
fn check_replaced(code: i32, from: &str, to: &str, words: &[&str]) {
    assert!(proof().contains(from), "{from:?}");
    check_text(code, &proof().replacen(from, to, 1), words);
}

#[track_caller]
fn check_text(code: i32, text: &str, words: &[&str]) {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("tampered.json"), text).unwrap();
    let outcome = sandbox.run(&["verify", "tampered.json", "--json"]);
    outcome.expect(code, &[&["tampered.json"], words].concat());
    assert_eq!(outcome.json()["ok"], false);
}

/// The partition's line.
fn line(index: usize) -> &'static str {
    proof().lines().filter(|line| line.contains("\"proof\":")).nth(index).unwrap().trim_end_matches(',')
}

fn field(line: &'static str, name: &str) -> &'static str {
    line.split_once(&format!("\"{name}\":\"")).unwrap().1.split_once('"').unwrap().0
}

#[test]
fn a_flipped_bit_is_never_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).unwrap();
    let bytes = proof().as_bytes();
    pool.install(|| check_bytes(directory.path(), bytes)).expect("untouched");
    // Some of every field, each time another bit. That every bit matters to the reader, the reader's own tests show.
    let bits = (0..bytes.len()).step_by(11).map(|i| 8 * i + (i * 5) % 8);
    pool.install(|| {
        for bit in bits {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(check_bytes(directory.path(), &flipped).is_err(), "bit {} of byte {}", bit % 8, bit / 8);
        }
    });
}

#[test]
fn a_cut_proof_is_damaged() {
    for length in [0, 1, 100, proof().len() / 2, proof().len() - 1] {
        check_text(4, &proof()[..length], &["line"]);
    }
    check_text(4, &format!("{} ", proof()), &["added to"]);
}

#[test]
fn swapped_partitions_break_the_chain() {
    let swapped = proof().replace(line(0), "X").replace(line(1), line(0)).replace('X', line(1));
    check_text(3, &swapped, &["partition 0 starts at", "the chain is broken"]);
}

#[test]
fn swapped_proofs_are_invalid() {
    let (one, two) = (field(line(0), "proof"), field(line(1), "proof"));
    let swapped = proof().replace(one, "X").replace(two, one).replace('X', two);
    check_text(3, &swapped, &["the proof of partition 0 is not valid"]);
}

/// A pipe can be read once: which proof it is cannot be looked up, that one is invalid is known.
#[test]
fn an_invalid_proof_from_a_pipe_is_invalid() {
    let (one, two) = (field(line(0), "proof"), field(line(1), "proof"));
    let swapped = proof().replace(one, "X").replace(two, one).replace('X', two);
    for (text, code, words) in [(proof(), 0, ""), (&swapped, 3, "some proof is not valid")] {
        let mut child = Sandbox::new().command(&["verify", "/dev/stdin"]).stdin(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        finish(child).expect(code, &[words]);
    }
}

#[test]
fn other_lengths_and_blocks_are_invalid() {
    // The same number of blocks: nothing but the proved padding contradicts it.
    check_replaced(3, "\"bytes\": 300", "\"bytes\": 301", &["partition 2 is not valid"]);
    check_replaced(4, "\"bytes\": 300", "\"bytes\": 299999999999999", &["must have", "bytes and has"]);
    check_replaced(4, "\"bytes\": 300", "\"bytes\": 99999999999999999999", &["line 7"]);
    check_replaced(3, "{\"blocks\":2", "{\"blocks\":1", &["partition 0 claims 1 blocks"]);
}

#[test]
fn another_digest_or_key_is_invalid() {
    let digest = proof().lines().nth(7).unwrap();
    let zeros = "  \"digest\": \"".to_owned() + &"0".repeat(64) + "\",";
    check_replaced(3, digest, &zeros, &["the chain ends at", "0000"]);
    let key = proof().lines().nth(8).unwrap();
    check_replaced(3, key, &zeros.replace("digest", "key"), &["is not the one it names"]);
    // Upper case would be a second spelling of the same proof.
    let upper = field(line(0), "proof").to_uppercase();
    check_replaced(4, field(line(0), "proof"), &upper, &["line 12"]);
}

/// A point on the curve but outside the subgroup, as A of the first proof.
#[test]
fn points_outside_the_subgroup_are_named() {
    let outside = (1..=u8::MAX)
        .find_map(|x| {
            let mut bytes = [0; 48];
            (bytes[0], bytes[47]) = (0x80, x);
            let point = Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))?;
            (!bool::from(point.is_torsion_free())).then_some(bytes)
        })
        .expect("most points are outside");
    let a = &field(line(0), "proof")[..96];
    check_replaced(3, a, &hex::encode(outside), &["proof of partition 0", "subgroup"]);
    let infinity = hex::encode(G1Affine::identity().to_compressed());
    check_replaced(3, a, &infinity, &["proof of partition 0", "infinity"]);
}

#[test]
fn what_is_no_proof_is_named() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("directory")).unwrap();
    sandbox.file("noise", 100_000);
    sandbox.run(&["verify", "directory"]).expect(4, &["directory"]);
    sandbox.run(&["verify", "missing"]).expect(4, &["missing", "No such file"]);
    sandbox.run(&["verify", "noise"]).expect(4, &["noise", "line 1"]);
    // Endless and without a line end: refused after a line's worth.
    sandbox.run(&["verify", "/dev/zero"]).expect(4, &["/dev/zero", "line 1"]);
}
