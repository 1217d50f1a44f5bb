//! Circuits of circom's: files of snarkjs's in, proofs out that its verification key accepts.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::support::Sandbox;

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-circom/tests/fixtures").join(name)
}

/// A sandbox with snarkjs's files in it.
pub(crate) fn sandbox() -> Sandbox {
    let sandbox = Sandbox::with_own_cache();
    for name in
        ["small.zkey", "small.r1cs", "small.sym", "small.wtns", "verification_key.json", "proof.json", "public.json"]
    {
        fs::copy(fixture(name), sandbox.path(name)).unwrap();
    }
    sandbox
}

/// The witness with one byte of a value changed.
pub(crate) fn wrong_witness(sandbox: &Sandbox, name: &str, wire: usize) {
    let mut bytes = fs::read(fixture("small.wtns")).unwrap();
    let values = bytes.len() - 7 * 32;
    bytes[values + wire * 32] ^= 1;
    fs::write(sandbox.path(name), bytes).unwrap();
}

#[test]
fn a_witness_is_proved_and_the_proof_verified_with_snarkjs_key() {
    let sandbox = sandbox();
    sandbox.run(&["prove", "--zkey", "small.zkey", "--wtns", "small.wtns", "--output", "out"]).expect(0, &[]);
    let verify = |proof: &str, public: &str| {
        sandbox.run(&["verify", "--vkey", "verification_key.json", "--proof", proof, "--public", public, "--json"])
    };
    let outcome = verify("out/proof.json", "out/public.json");
    assert_eq!((outcome.code(), &outcome.json()["public_inputs"]), (0, &json!(2)), "{}", outcome.stderr);
    // What snarkjs proved is the same statement, by another proof.
    assert_eq!(fs::read(sandbox.path("out/public.json")).unwrap(), fs::read(fixture("public.json")).unwrap());
    assert_ne!(fs::read(sandbox.path("out/proof.json")).unwrap(), fs::read(fixture("proof.json")).unwrap());
    verify("proof.json", "public.json").expect(0, &[]);
    fs::write(sandbox.path("other.json"), "[\"276\", \"12\"]").unwrap();
    verify("proof.json", "other.json").expect(3, &["proof.json", "not valid"]);
    fs::write(sandbox.path("few.json"), "[\"276\"]").unwrap();
    verify("proof.json", "few.json").expect(3, &["few.json", "1 public inputs, the key is for 2"]);
}

#[test]
fn a_key_is_checked_once() {
    let sandbox = sandbox();
    let prove = || sandbox.prove(&["--zkey", "small.zkey", "--wtns", "small.wtns"]).1;
    assert_eq!(prove()["key"]["checked_before"], false);
    assert_eq!(prove()["key"]["checked_before"], true);
    assert_eq!(sandbox.run(&["setup", "check", "small.zkey", "--r1cs", "small.r1cs"]).code(), 0);
    // Another file with the same name is another key.
    let mut bytes = fs::read(fixture("small.zkey")).unwrap();
    let in_h = bytes.len() - 1000;
    bytes[in_h] ^= 1;
    fs::write(sandbox.path("small.zkey"), bytes).unwrap();
    let outcome = sandbox.run(&["prove", "--zkey", "small.zkey", "--wtns", "small.wtns"]);
    outcome.expect(4, &["small.zkey", "H points, point 4"]);
}

#[test]
fn a_batch_goes_on_behind_a_wrong_witness_and_names_its_constraint() {
    let sandbox = sandbox();
    fs::create_dir(sandbox.path("w")).unwrap();
    fs::copy(fixture("small.wtns"), sandbox.path("w/a.wtns")).unwrap();
    wrong_witness(&sandbox, "w/b.wtns", 4);
    fs::copy(fixture("small.wtns"), sandbox.path("w/c.wtns")).unwrap();
    fs::write(sandbox.path("w/d.wtns"), "wtns").unwrap();
    let run = |more: &[&str]| {
        let arguments = ["prove", "--zkey", "small.zkey", "--wtns", "w", "--output", "out", "--json"];
        sandbox.run(&[&arguments, more].concat())
    };
    let outcome = run(&["--check"]);
    outcome.expect(
        4,
        &["w/b.wtns", "constraint 0 does not hold: (-main.x) * (main.x) = -main.x2", "w/d.wtns", "cut short"],
    );
    let json = outcome.json();
    assert_eq!((&json["ok"], &json["proofs"], &json["witnesses"]), (&json!(false), &json!(2), &json!(4)));
    let constraints: Vec<_> =
        json["results"].as_array().unwrap().iter().map(|result| result["constraint"].clone()).collect();
    assert_eq!(constraints, [json!(null), json!(0), json!(null), json!(null)]);
    for name in ["a", "c"] {
        let (proof, public) = (format!("out/{name}.proof.json"), format!("out/{name}.public.json"));
        sandbox
            .run(&["verify", "--vkey", "verification_key.json", "--proof", &proof, "--public", &public])
            .expect(0, &[]);
    }
    assert!(!sandbox.path("out/b.proof.json").exists() && !sandbox.path("out/d.public.json").exists());
    // Without the constraints it is found as well, only later.
    let outcome = run(&[]);
    outcome.expect(4, &["w/b.wtns", "does not verify", "--r1cs"]);
    assert_eq!(outcome.json()["proofs"], 2);
    assert!(!outcome.stdout.contains("\"243\""), "3^5 is a secret");
}

#[test]
fn a_list_on_standard_input_is_proved() {
    use std::io::Write;
    let sandbox = sandbox();
    fs::copy(fixture("small.wtns"), sandbox.path("other.wtns")).unwrap();
    let mut command = sandbox.command(&["prove", "--zkey", "small.zkey", "--wtns", "-", "--json"]);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"small.wtns\nother.wtns\n").unwrap();
    let outcome = crate::support::finish(child);
    assert_eq!(outcome.code(), 0, "{}", outcome.stderr);
    assert!(sandbox.path("small.proof.json").exists() && sandbox.path("other.public.json").exists());
}

#[test]
fn what_cannot_be_used_is_told_with_the_way_out() {
    let sandbox = sandbox();
    let zkey = fs::read(fixture("small.zkey")).unwrap();
    // The base field's modulus of BN254 in the header of a key.
    let mut bn254 = zkey.clone();
    let modulus = "47fd7cd8168c203c8dca7168916a81975d588181b64550b829a031e1724e6430";
    let header = zkey.windows(8).position(|bytes| bytes == [48, 0, 0, 0, 0xab, 0xaa, 0xff, 0xff]).unwrap();
    bn254[header + 4..header + 52].fill(0);
    bn254[header + 4..header + 36].copy_from_slice(&hex(modulus));
    fs::write(sandbox.path("bn254.zkey"), bn254).unwrap();
    let prove = |key: &str| sandbox.run(&["prove", "--zkey", key, "--wtns", "small.wtns"]);
    prove("bn254.zkey").expect(4, &["bn254.zkey", "BN254", "--prime bls12381"]);
    fs::write(sandbox.path("short.zkey"), &zkey[..zkey.len() / 2]).unwrap();
    prove("short.zkey").expect(4, &["short.zkey", "cut short"]);
    prove("none.zkey").expect(4, &["none.zkey"]);
    sandbox.run(&["prove", "--zkey", "small.zkey"]).expect(2, &["--wtns"]);
    sandbox.run(&["prove"]).expect(2, &["FILE"]);
    sandbox
        .run(&["prove", "--zkey", "small.zkey", "--wtns", "small.wtns", "--memory", "1MiB"])
        .expect(5, &["--memory"]);
    let with = |more: &[&str]| {
        sandbox.run(&[&["prove", "--zkey", "small.zkey", "--wtns", "small.wtns", "--output", "sym"], more].concat())
    };
    with(&["--check", "--sym", "none.sym"]).expect(4, &["none.sym"]);
    with(&["--check", "--sym", "/dev/null"]).expect(4, &["/dev/null", "not a regular file"]);
    with(&["--sym", "small.sym"]).expect(2, &["--sym", "--r1cs"]);
    let names = fs::read_to_string(fixture("small.sym")).unwrap();
    fs::write(sandbox.path("longer.sym"), format!("{names}7,7,0,main.more\n")).unwrap();
    with(&["--check", "--sym", "longer.sym"]).expect(4, &["longer.sym", "another circuit"]);
    sandbox
        .run(&["setup", "convert", "small.zkey", "--to", "verification-key", "--output", "./small.zkey"])
        .expect(2, &["small.zkey", "would be overwritten"]);
    assert_eq!(fs::read(sandbox.path("small.zkey")).unwrap(), zkey);
    fs::remove_file(sandbox.path("small.r1cs")).unwrap();
    sandbox
        .run(&["prove", "--zkey", "small.zkey", "--wtns", "small.wtns", "--check"])
        .expect(2, &["small.r1cs", "--r1cs"]);
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn keys_are_imported_and_converted() {
    let sandbox = sandbox();
    sandbox.run(&["setup", "import", "small.zkey"]).expect(0, &[]);
    let (_, json) = sandbox.prove(&["--zkey", "small.zkey", "--wtns", "small.wtns"]);
    assert_eq!(json["key"]["checked_before"], true);
    sandbox.run(&["setup", "convert", "small.zkey", "--to", "verification-key", "--output", "vk.json"]).expect(0, &[]);
    sandbox.run(&["verify", "--vkey", "vk.json", "--proof", "proof.json", "--public", "public.json"]).expect(0, &[]);
    sandbox.run(&["setup", "convert", "small.zkey", "--to", "bellperson-vk", "--output", "vk.bin"]).expect(0, &[]);
    let outcome = sandbox.run(&["inspect", "vk.bin", "--json"]);
    assert_eq!(outcome.json()["facts"]["public_inputs"], 2, "{}", outcome.stderr);
    sandbox.run(&["setup", "convert", "vk.bin", "--to", "verification-key", "--output", "again.json"]).expect(0, &[]);
    assert_eq!(fs::read(sandbox.path("vk.json")).unwrap(), fs::read(sandbox.path("again.json")).unwrap());
    sandbox
        .run(&["setup", "convert", "vk.json", "--to", "bellperson-vk", "--output", "x"])
        .expect(4, &["beta and delta in G1"]);
    sandbox.run(&["setup", "import", "vk.bin"]).expect(4, &["vk.bin"]);
}
