//! Keys that were made to deceive, results that would replace what is no result, and what is left of failed witnesses.

use std::fs::{self, Permissions};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::Path;

use blstrs::{G1Affine, G1Projective, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use group::{Curve, Group};
use plimsoll_circom::map::InMemory;
use plimsoll_circom::zkey::{KeyDigest, ZkeyFile};
use plimsoll_groth16::backend::{AffineCurve, base_element};

use crate::circom::{fixture, sandbox, wrong_witness};
use crate::support::Sandbox;

/// Bytes of a point in G1.
const POINT: usize = 96;

/// Where the points of the private signals are.
fn l_points(zkey: &[u8]) -> std::ops::Range<usize> {
    let file = ZkeyFile::parse(zkey).unwrap();
    file.container().require(8, "C", "").unwrap()
}

fn digest(zkey: &[u8]) -> KeyDigest {
    let file = ZkeyFile::parse(zkey).unwrap();
    file.read_key(&file.shape(None, &InMemory).unwrap(), &InMemory).unwrap().1
}

/// A point of the curve of a small order that is not the group's.
fn torsion() -> G1Projective {
    let outside = (1_u8..).find_map(|x| {
        let mut bytes = [0; 48];
        (bytes[0], bytes[47]) = (0x80, x);
        Option::<G1Affine>::from(G1Affine::from_compressed_unchecked(&bytes))
    });
    let outside = outside.unwrap().to_curve();
    let order = (-Scalar::ONE).to_bytes_be();
    let bits = order.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1));
    bits.fold(G1Projective::identity(), |sum, bit| if bit { sum.double() + outside } else { sum.double() }) + outside
}

/// The key, the torsion point added to the first private signal's: its proofs are valid, and tell that signal's value modulo the order.
fn leaking_key() -> Vec<u8> {
    let mut bytes = fs::read(fixture("small.zkey")).unwrap();
    let first = l_points(&bytes).start;
    let place = &mut bytes[first..first + POINT];
    let point = G1Affine::new(base_element(&place[..48]).unwrap(), base_element(&place[48..]).unwrap());
    let sum = (point.to_curve() + torsion()).to_affine();
    assert!(bool::from(sum.is_on_curve()) && !bool::from(sum.is_torsion_free()));
    for (place, coordinate) in place.chunks_exact_mut(48).zip([AffineCurve::x(&sum), AffineCurve::y(&sum)]) {
        place.copy_from_slice(&coordinate.l.map(u64::to_le_bytes).concat());
    }
    bytes
}

fn plant(sandbox: &Sandbox, digest: KeyDigest) -> std::path::PathBuf {
    let folder = sandbox.cache().join("plimsoll/checked");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    let mark = folder.join(digest.to_string());
    fs::write(&mark, "").unwrap();
    fs::set_permissions(&mark, Permissions::from_mode(0o600)).unwrap();
    mark
}

#[test]
fn a_key_with_points_outside_the_group_proves_nothing() {
    let sandbox = sandbox();
    let key = leaking_key();
    fs::write(sandbox.path("leaking.zkey"), &key).unwrap();
    let prove = |check: &[&str]| {
        let arguments = ["prove", "--zkey", "leaking.zkey", "--wtns", "small.wtns", "--output", "out"];
        let outcome = sandbox.run(&[&arguments, check].concat());
        assert!(!sandbox.path("out/proof.json").exists() && !sandbox.path("out/public.json").exists());
        outcome
    };
    for check in [&[][..], &["--r1cs", "small.r1cs"]] {
        prove(check).expect(4, &["leaking.zkey", "C points, point 0: not in the subgroup"]);
    }
    // Whoever can write there can have the check left out; what is proved is looked at all the same.
    let mark = plant(&sandbox, digest(&key));
    for check in [&[][..], &["--r1cs", "small.r1cs"]] {
        prove(check).expect(4, &["leaking.zkey", "outside of its group"]);
    }
    // A mark that somebody else may have made does not count.
    fs::set_permissions(&mark, Permissions::from_mode(0o666)).unwrap();
    prove(&[]).expect(4, &["leaking.zkey", "C points, point 0: not in the subgroup"]);
}

#[test]
fn a_wrong_key_is_not_called_a_wrong_witness() {
    let sandbox = sandbox();
    let mut key = fs::read(fixture("small.zkey")).unwrap();
    let l = l_points(&key);
    let (first, second) = key[l.start..l.start + 2 * POINT].split_at_mut(POINT);
    first.swap_with_slice(second);
    fs::write(sandbox.path("other.zkey"), &key).unwrap();
    let prove =
        |more: &[&str]| sandbox.run(&[&["prove", "--zkey", "other.zkey", "--wtns", "small.wtns"], more].concat());
    prove(&["--r1cs", "small.r1cs"]).expect(1, &["though the witness satisfies the circuit", "key", "cpu backend"]);
    prove(&[]).expect(4, &["the witness does not satisfy", "the key is for another circuit", "cpu backend"]);
    assert!(!sandbox.path("proof.json").exists() || sandbox.path("small.zkey").exists());
}

#[test]
fn what_is_no_file_is_not_replaced_and_a_link_is_followed() {
    let sandbox = sandbox();
    let pipe = sandbox.path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let convert =
        |output: &str| sandbox.run(&["setup", "convert", "small.zkey", "--to", "verification-key", "--output", output]);
    convert("pipe").expect(6, &["pipe", "not a regular file"]);
    sandbox.run(&["setup", "powers", "--power", "1", "--output", "pipe"]).expect(6, &["pipe", "not a regular file"]);
    fs::create_dir(sandbox.path("out")).unwrap();
    for name in ["proof.json", "public.json"] {
        let place = sandbox.path("out").join(name);
        fs::rename(&pipe, &place).unwrap();
        let prove = ["prove", "--zkey", "small.zkey", "--wtns", "small.wtns", "--output", "out"];
        sandbox.run(&prove).expect(6, &[name, "not a regular file"]);
        fs::rename(&place, &pipe).unwrap();
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());
    }
    symlink(sandbox.path("target.json"), sandbox.path("link.json")).unwrap();
    fs::write(sandbox.path("target.json"), "older").unwrap();
    convert("link.json").expect(0, &[]);
    assert!(sandbox.path("link.json").is_symlink());
    assert_ne!(fs::read(sandbox.path("target.json")).unwrap(), b"older");
}

#[test]
fn a_witness_without_a_proof_leaves_no_older_one() {
    let sandbox = sandbox();
    fs::create_dir(sandbox.path("w")).unwrap();
    for name in ["a", "b"] {
        fs::copy(fixture("small.wtns"), sandbox.path(&format!("w/{name}.wtns"))).unwrap();
    }
    let prove = || sandbox.run(&["prove", "--zkey", "small.zkey", "--wtns", "w", "--output", "out", "--check"]);
    prove().expect(0, &[]);
    let there = |names: &[&str]| names.iter().all(|name| sandbox.path("out").join(name).exists());
    assert!(there(&["a.proof.json", "a.public.json", "b.proof.json", "b.public.json"]));
    wrong_witness(&sandbox, "w/b.wtns", 4);
    prove().expect(4, &["w/b.wtns"]);
    assert!(there(&["a.proof.json", "a.public.json"]));
    assert_eq!(fs::read_dir(sandbox.path("out")).unwrap().count(), 2, "nothing is left of b");
}

#[test]
fn nothing_that_is_read_is_written_over() {
    let sandbox = sandbox();
    let unchanged = |name: &str| fs::read(sandbox.path(name)).unwrap() == fs::read(fixture(name)).unwrap();
    let prove = ["prove", "--zkey", "small.zkey", "--wtns", "small.wtns", "--output", "out", "--check"];
    for name in ["small.zkey", "small.r1cs", "small.sym", "small.wtns"] {
        for (option, path) in [("--trace", name.to_owned()), ("--record", format!("./{name}"))] {
            sandbox.run(&[&prove[..], &[option, &path]].concat()).expect(2, &[name, "would overwrite"]);
            assert!(unchanged(name), "{option} {path}");
        }
    }
    fs::copy(sandbox.path("small.sym"), sandbox.path("named.sym")).unwrap();
    let named = ["--sym", "named.sym", "--trace", "named.sym"];
    sandbox.run(&[&prove[..], &named].concat()).expect(2, &["named.sym", "would overwrite"]);
    assert_eq!(fs::read(sandbox.path("named.sym")).unwrap(), fs::read(fixture("small.sym")).unwrap());
}

#[test]
fn a_json_file_beyond_all_measure_is_not_read() {
    let sandbox = sandbox();
    let large = fs::File::create(sandbox.path("large.json")).unwrap();
    std::io::Write::write_all(&mut &large, b"{").unwrap();
    large.set_len((64 << 20) + 1).unwrap();
    let convert = ["setup", "convert", "large.json", "--to", "verification-key", "--output", "out.json"];
    sandbox.run(&convert).expect(4, &["large.json", "longer than any"]);
    assert!(!Path::new(&sandbox.path("out.json")).exists());
}

#[test]
fn what_was_not_looked_at_is_not_called_sound() {
    let sandbox = sandbox();
    let import = sandbox.run(&["setup", "import", "small.zkey"]);
    assert!(!import.stdout.contains("sound") && import.stdout.contains("equations"), "{}", import.stdout);
    let check = sandbox.run(&["setup", "check", "small.zkey"]);
    assert!(check.stdout.contains("sound"), "{}", check.stdout);
}
