//! Circuits of other shapes than the fixtures': one without public inputs.

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

#[test]
fn a_circuit_without_public_inputs_is_proved() {
    let sandbox = Sandbox::with_own_cache();
    chain(&sandbox, 5, 0);
    let files = ["--zkey", "chain.zkey", "--wtns", "chain.wtns", "--output", "out"];
    sandbox.prove(&[&files[..], &["--threads", "2", "--memory", "64MiB"]].concat());
    let public = std::fs::read_to_string(sandbox.path("out/public.json")).unwrap();
    assert_eq!(public.split_whitespace().collect::<String>(), "[]");
    sandbox
        .run(&["verify", "--vkey", "vk.json", "--proof", "out/proof.json", "--public", "out/public.json"])
        .expect(0, &[]);
}
