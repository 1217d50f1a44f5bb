//! Circuits of other sizes than the fixtures': a key that does not fit and stays in its file, and one without public inputs.

use std::fs::File;
use std::io::BufWriter;
use std::ops::ControlFlow;

use blstrs::Scalar;
use ff::Field;
use plimsoll_circom::wtns;
use plimsoll_circom::zkey::RootRatio;
use plimsoll_circom::zkey::insecure::write_zkey;
use plimsoll_groth16::keys::HBasis;
use plimsoll_groth16::r1cs::{InputRows, Products, R1csBuilder, Side};
use plimsoll_groth16::setup::{ToxicWaste, generate_from};
use serde_json::Value;

use crate::support::Sandbox;

/// Writes `chain.zkey` and `chain.wtns`: x, x², x⁴ and so on for so many steps, of which the last `public` are public.
fn chain(sandbox: &Sandbox, steps: usize, public: usize) {
    let (inputs, aux) = (1 + public, steps + 1 - public);
    // In the order of the chain; the public ones stand before the others in the file.
    let place = |step: usize| if step < aux { inputs + step } else { 1 + step - aux };
    let mut builder = R1csBuilder::new(inputs, aux, steps).unwrap();
    let mut values = vec![Scalar::ONE; inputs + aux];
    let mut value = Scalar::from(3);
    values[place(0)] = value;
    for step in 0..steps {
        builder.push(Side::A, step, place(step), &Scalar::ONE).unwrap();
        builder.push(Side::B, step, place(step), &Scalar::ONE).unwrap();
        builder.push(Side::C, step, place(step + 1), &Scalar::ONE).unwrap();
        value = value.square();
        values[place(step + 1)] = value;
    }
    let shape = builder.finish(InputRows::Append, Products::Matrix).unwrap();
    let shape = shape.with_stride(RootRatio::snarkjs().stride());
    let toxic = ToxicWaste::random(&mut rand_core::OsRng);
    let key = generate_from(&shape, &toxic, HBasis::OddCosetLagrange, &|_| ControlFlow::Continue(())).unwrap();
    write_zkey(&shape, &key, BufWriter::new(File::create(sandbox.path("chain.zkey")).unwrap())).unwrap();
    wtns::write(&values, BufWriter::new(File::create(sandbox.path("chain.wtns")).unwrap())).unwrap();
    sandbox.run(&["setup", "convert", "chain.zkey", "--to", "verification-key", "--output", "vk.json"]).expect(0, &[]);
}

fn prove(sandbox: &Sandbox, memory: &str) -> Value {
    let arguments = ["--zkey", "chain.zkey", "--wtns", "chain.wtns", "--threads", "2", "--memory", memory];
    let (_, json) = sandbox.prove(&arguments);
    sandbox
        .run(&["verify", "--vkey", "vk.json", "--proof", "chain.proof.json", "--public", "chain.public.json"])
        .expect(0, &[]);
    let memory = &json["memory"];
    assert!(memory["ledger_peak_bytes"].as_u64() <= memory["ledger_bytes"].as_u64(), "{json}");
    json
}

#[test]
fn a_key_that_does_not_fit_stays_in_its_file() {
    let sandbox = Sandbox::with_own_cache();
    chain(&sandbox, 16_000, 1);
    let whole = prove(&sandbox, "1GiB");
    let bytes = |json: &Value, name: &str| json["memory"][name].as_u64().unwrap();
    assert!(whole["key"]["points_at_a_time"].is_null() && whole["key"]["read_bytes_per_proof"].is_null(), "{whole}");

    // What the ledger then held at most, and a page less.
    let beside = bytes(&whole, "budget_bytes") - bytes(&whole, "ledger_bytes");
    let line = beside + bytes(&whole, "ledger_peak_bytes") - 4096;
    let streamed = prove(&sandbox, &line.to_string());
    let piece = streamed["key"]["points_at_a_time"].as_u64().expect("the key is in its file");
    assert!(piece >= 4096, "{streamed}");
    assert!(streamed["key"]["resident_bytes"].as_u64() < whole["key"]["resident_bytes"].as_u64(), "{streamed}");
    assert!(streamed["key"]["read_bytes_per_proof"].as_u64() >= whole["key"]["resident_bytes"].as_u64(), "{streamed}");
    assert!(bytes(&streamed, "ledger_peak_bytes") < bytes(&whole, "ledger_peak_bytes"), "{streamed}");
    assert_eq!(streamed["key"]["digest"], whole["key"]["digest"]);
}

#[test]
fn a_circuit_without_public_inputs_is_proved() {
    let sandbox = Sandbox::with_own_cache();
    chain(&sandbox, 5, 0);
    prove(&sandbox, "64MiB");
    assert_eq!(
        std::fs::read_to_string(sandbox.path("chain.public.json")).unwrap().split_whitespace().collect::<String>(),
        "[]"
    );
}
