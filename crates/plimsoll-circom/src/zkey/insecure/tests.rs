use std::ops::ControlFlow;
use std::sync::Arc;

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::Field;
use group::prime::PrimeCurveAffine;
use plimsoll::{Bytes, Ledger};
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::prover::{Blinding, Proved, Prover};
use plimsoll_groth16::r1cs::{InputRows, Products, R1csBuilder, Side};
use plimsoll_groth16::setup::{ToxicWaste, generate_from};
use plimsoll_groth16::{PreparedVerifyingKey, verify};

use super::*;
use crate::json::VerificationKey;
use crate::map::InMemory;
use crate::wtns::{self, WtnsFile};
use crate::zkey::{ZkeyFile, check_subgroups};

/// A product of two sums: the terms of each side, as variable and coefficient.
type Constraint<'a> = [&'a [(usize, u64)]; 3];

fn circuit(inputs: usize, aux: usize, constraints: &[Constraint<'_>]) -> R1cs {
    let mut builder = R1csBuilder::new(inputs, aux, constraints.len()).expect("sizes");
    for (row, sums) in constraints.iter().enumerate() {
        for (side, sum) in [Side::A, Side::B, Side::C].into_iter().zip(sums) {
            for (variable, coefficient) in *sum {
                builder.push(side, row, *variable, &Scalar::from(*coefficient)).expect("there");
            }
        }
    }
    let shape = builder.finish(InputRows::Append, Products::Matrix).expect("a shape");
    shape.with_stride(RootRatio::snarkjs().stride())
}

fn key_of(shape: &R1cs) -> ProvingKey {
    let secret = |i: u64| Scalar::from(1000 + i).square();
    let [alpha, beta, gamma, delta, tau] = [1, 2, 3, 4, 5].map(secret);
    let (g1, g2) = (group::Group::generator(), group::Group::generator());
    let toxic = ToxicWaste { g1, g2, alpha, beta, gamma, delta, tau };
    generate_from(shape, &toxic, HBasis::OddCosetLagrange, &|_| ControlFlow::Continue(())).expect("a key")
}

fn prove(prover: &Prover, values: &[Scalar]) -> Proved {
    let prover = prover.clone().with_synthesis_scratch(Bytes(0));
    let fill = |inputs: &mut [Scalar], aux: &mut [Scalar]| {
        inputs.copy_from_slice(&values[1..=inputs.len()]);
        aux.copy_from_slice(&values[inputs.len() + 1..]);
        Ok(())
    };
    let blinding = Blinding::from_scalars(Scalar::from(5), Scalar::from(7));
    prover.prove_assigned(&Ledger::unlimited(), fill, blinding).expect("a proof")
}

/// Writes key and witness, reads them, proves, and verifies with the key that the file has, also as JSON.
fn check(name: &str, shape: &R1cs, key: &ProvingKey, values: &[u64]) {
    let values: Vec<Scalar> = values.iter().map(|value| Scalar::from(*value)).collect();
    let (mut zkey, mut witness) = (Vec::new(), Vec::new());
    write_zkey(shape, key, &mut zkey).expect("a vector takes everything");
    wtns::write(&values, &mut witness).expect("a vector takes everything");
    let file = ZkeyFile::parse(&zkey).expect(name);
    let read_shape = file.shape(None, &InMemory).expect(name);
    let (read_key, _) = file.read_key(&read_shape, &InMemory).expect(name);
    assert!(read_key == *key, "{name}: the key comes back");
    check_subgroups(&read_key, &mut |_, _| ControlFlow::Continue(())).expect(name);
    let file_of_values = WtnsFile::parse(&witness).expect(name);
    let mut read = vec![Scalar::ZERO; file_of_values.len()];
    file_of_values.read(0, &mut read).expect(name);
    assert!(read == values, "{name}: the witness comes back");

    let prover = Prover::new(Arc::new(read_shape), Arc::new(read_key), Arc::new(Cpu::new())).expect(name);
    let proved = prove(&prover, &values);
    let vk = file.read_verifying_key(&InMemory).expect(name);
    assert_eq!(verify(&PreparedVerifyingKey::new(&vk), &proved.proof, &proved.public_inputs), Ok(()), "{name}");
    let json = VerificationKey::read(VerificationKey::from(&vk).write().as_bytes()).expect(name);
    assert_eq!(verify(&json.prepare(), &proved.proof, &proved.public_inputs), Ok(()), "{name}: by the JSON key");
    // The same where all three matrices are known.
    let known = shape.digest();
    let prover = Prover::new(Arc::new(again(shape)), Arc::new(key.clone()), Arc::new(Cpu::new())).expect(name);
    assert_eq!(prover.r1cs().digest(), known);
    assert_eq!(prove(&prover, &values), proved, "{name}");
}

/// A copy, entry by entry.
fn again(shape: &R1cs) -> R1cs {
    let aux = shape.variables() - shape.inputs();
    let mut builder = R1csBuilder::new(shape.inputs(), aux, shape.constraints()).expect("sizes");
    for row in 0..shape.constraints() {
        for (side, matrix) in [(Side::A, shape.a()), (Side::B, shape.b()), (Side::C, shape.c())] {
            for (column, coefficient) in matrix.row(row) {
                builder.push(side, row, column, &shape.coefficients()[coefficient as usize]).expect("there");
            }
        }
    }
    let shape = builder.finish(InputRows::Given, Products::Matrix).expect("a shape");
    shape.with_stride(RootRatio::snarkjs().stride())
}

#[test]
fn circuits_without_publics_or_without_privates_are_proved() {
    // 1 · x · y = z, and z · z = w: nothing is public.
    let none_public = circuit(1, 4, &[[&[(1, 1)], &[(2, 1)], &[(3, 1)]], [&[(3, 1)], &[(3, 1)], &[(4, 1)]]]);
    check("no publics", &none_public, &key_of(&none_public), &[1, 3, 5, 15, 225]);
    // p · p = 9 and q · 2 = 8: nothing is private.
    let none_private = circuit(3, 0, &[[&[(1, 1)], &[(1, 1)], &[(0, 9)]], [&[(2, 1)], &[(0, 2)], &[(0, 8)]]]);
    check("no privates", &none_private, &key_of(&none_private), &[1, 3, 4]);
    // Neither: 2 · 3 = 6.
    let nothing = circuit(1, 0, &[[&[(0, 2)], &[(0, 3)], &[(0, 6)]]]);
    check("constants alone", &nothing, &key_of(&nothing), &[1]);
}

#[test]
fn points_at_infinity_are_passed_over() {
    // x · y = p and x · q = 0, with x that occurs in A, y in B. Where a value is zero its points are of no consequence.
    let shape = circuit(
        3,
        3,
        &[
            [&[(3, 1)], &[(4, 1)], &[(1, 1)]],
            [&[(3, 1), (2, 1)], &[(5, 1), (4, 1)], &[(1, 1)]],
            [&[(5, 1)], &[(3, 1)], &[(2, 1)]],
        ],
    );
    let mut key = key_of(&shape);
    let values = [1, 12, 0, 3, 4, 0];
    check("all there", &shape, &key, &values);
    key.vk.ic[2] = G1Affine::identity();
    check("a point of IC", &shape, &key, &values);
    let rank =
        |density: &Density, variable: usize| density.iter().position(|member| member == variable).expect("occurs");
    key.a[rank(shape.a_density(), 5)] = G1Affine::identity();
    key.b_g1[rank(shape.b_density(), 5)] = G1Affine::identity();
    key.b_g2[rank(shape.b_density(), 5)] = G2Affine::identity();
    key.l[5 - 3] = G1Affine::identity();
    check("points of every query", &shape, &key, &values);
}
