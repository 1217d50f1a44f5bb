//! arkworks' constraint systems, keys and proofs over BLS12-381, to and from plimsoll-groth16.
//!
//! An `ark-relations` R1CS becomes the prover's matrices, an `ark-groth16` key its key, and its proofs are `ark-groth16` proofs:
//! both reduce to the same polynomials (the rows for the inputs stand behind the constraints, h is in powers of τ, and the two
//! libraries use the same root of unity). Points go through the uncompressed encoding that both share, scalars as numbers.
//!
//! `cargo test --release` in this folder; `cargo run --release --example square_root`.

use ark_bls12_381::{Bls12_381, Fr, G1Affine as ArkG1, G2Affine as ArkG2};
use ark_ec::AffineRepr;
use ark_ff::{BigInt, PrimeField};
use ark_groth16::{Proof as ArkProof, ProvingKey as ArkKey};
use ark_relations::gr1cs::{ConstraintSystem, R1CS_PREDICATE_LABEL, SynthesisError};
use ark_serialize::{CanonicalDeserialize, CanonicalSerialize};
use blstrs::{G1Affine, G2Affine, Scalar};
use ff::PrimeField as _;
use group::prime::PrimeCurveAffine;
use plimsoll::{Bytes, Ledger};
use plimsoll_groth16::Proof;
use plimsoll_groth16::keys::{HBasis, HQuery, ProvingKey, VerifyingKey};
use plimsoll_groth16::prover::{Blinding, ProveError, Proved, Prover};
use plimsoll_groth16::r1cs::{Density, InputRows, Products, R1cs, R1csBuilder, ShapeError, Side};

/// Why something of arkworks could not be taken over.
#[derive(Debug)]
pub enum ImportError {
    /// The constraint system has no matrices or no values, or other predicates than R1CS.
    Synthesis(SynthesisError),
    /// The system has constraints that are no R1CS, so Groth16 cannot prove it.
    NotR1cs,
    /// The shape could not be built.
    Shape(ShapeError),
    /// The key has another number of points than the circuit's shape needs.
    KeyLength {
        /// The query.
        query: &'static str,
        /// The points it has.
        found: usize,
        /// The points that the circuit needs.
        expected: usize,
    },
    /// A point of the key is not in its group.
    Point {
        /// The query.
        query: &'static str,
        /// Which of its points, from 0.
        index: usize,
    },
    /// A point of the key is of a variable that does not occur in the circuit's matrix, and is not infinity: the key is another circuit's.
    Unused {
        /// The query.
        query: &'static str,
        /// Which of its points, from 0.
        index: usize,
    },
}

impl std::fmt::Display for ImportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Synthesis(error) => write!(f, "the constraint system: {error}"),
            Self::NotR1cs => write!(f, "the constraint system has constraints that are no R1CS"),
            Self::Shape(error) => error.fmt(f),
            Self::KeyLength { query, found, expected } => {
                write!(f, "the key's {query} has {found} points, the circuit needs {expected}")
            }
            Self::Point { query, index } => write!(f, "point {index} of the key's {query} is not in its group"),
            Self::Unused { query, index } => {
                write!(f, "the key's {query} has point {index}, of which the circuit has no use; it is another circuit's key")
            }
        }
    }
}

impl std::error::Error for ImportError {}

/// arkworks' scalar.
pub fn scalar(value: &Fr) -> Scalar {
    Scalar::from_u64s_le(&value.into_bigint().0).expect("both fields have the same order")
}

/// To arkworks' scalar.
pub fn fr(value: &Scalar) -> Fr {
    let mut limbs = [0; 4];
    for (limb, bytes) in limbs.iter_mut().zip(value.to_repr().chunks_exact(8)) {
        *limb = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    }
    Fr::from_bigint(BigInt(limbs)).expect("both fields have the same order")
}

/// The matrices of a finalized constraint system. It needs no values: `SynthesisMode::Setup` will do.
pub fn shape(cs: &ConstraintSystem<Fr>) -> Result<R1cs, ImportError> {
    let all = cs.to_matrices().map_err(ImportError::Synthesis)?;
    let others =
        all.iter().any(|(label, matrices)| label != R1CS_PREDICATE_LABEL && matrices.iter().any(|m| !m.is_empty()));
    let Some(matrices) = all.get(R1CS_PREDICATE_LABEL).filter(|_| !others) else { return Err(ImportError::NotR1cs) };
    let [a, b, c] = &matrices[..] else { return Err(ImportError::NotR1cs) };
    let (inputs, aux) = (cs.num_instance_variables(), cs.num_witness_variables());
    let mut builder = R1csBuilder::new(inputs, aux, a.len()).map_err(ImportError::Shape)?;
    for (side, matrix) in [(Side::A, a), (Side::B, b), (Side::C, c)] {
        builder.reserve(side, matrix.iter().map(Vec::len).sum());
        for (row, entries) in matrix.iter().enumerate() {
            for (coefficient, column) in entries {
                builder.push(side, row, *column, &scalar(coefficient)).map_err(ImportError::Shape)?;
            }
        }
    }
    builder.finish(InputRows::Append, Products::Matrix).map_err(ImportError::Shape)
}

/// An `ark-groth16` key for a circuit of this shape. Every point is checked to be on its curve and in its subgroup.
pub fn proving_key(key: &ArkKey<Bls12_381>, shape: &R1cs) -> Result<ProvingKey, ImportError> {
    let lengths = [
        ("gamma_abc_g1", key.vk.gamma_abc_g1.len(), shape.inputs()),
        ("h_query", key.h_query.len(), shape.domain().size() - 1),
        ("l_query", key.l_query.len(), shape.aux()),
        ("a_query", key.a_query.len(), shape.variables()),
        ("b_g1_query", key.b_g1_query.len(), shape.variables()),
        ("b_g2_query", key.b_g2_query.len(), shape.variables()),
    ];
    for (query, found, expected) in lengths {
        if found != expected {
            return Err(ImportError::KeyLength { query, found, expected });
        }
    }
    let one = |query, point: &ArkG1| g1(point).ok_or(ImportError::Point { query, index: 0 });
    let one_g2 = |query, point: &ArkG2| g2(point).ok_or(ImportError::Point { query, index: 0 });
    Ok(ProvingKey {
        vk: VerifyingKey {
            alpha_g1: one("alpha_g1", &key.vk.alpha_g1)?,
            beta_g1: one("beta_g1", &key.beta_g1)?,
            beta_g2: one_g2("beta_g2", &key.vk.beta_g2)?,
            gamma_g2: one_g2("gamma_g2", &key.vk.gamma_g2)?,
            delta_g1: one("delta_g1", &key.delta_g1)?,
            delta_g2: one_g2("delta_g2", &key.vk.delta_g2)?,
            ic: points("gamma_abc_g1", &key.vk.gamma_abc_g1, None, g1)?,
        },
        h: HQuery { basis: HBasis::PowersOfTau, points: points("h_query", &key.h_query, None, g1)? },
        l: points("l_query", &key.l_query, None, g1)?,
        a: points("a_query", &key.a_query, Some(shape.a_density()), g1)?,
        b_g1: points("b_g1_query", &key.b_g1_query, Some(shape.b_density()), g1)?,
        b_g2: points("b_g2_query", &key.b_g2_query, Some(shape.b_density()), g2)?,
    })
}

/// The points of the variables that occur; arkworks has infinity for the others.
fn points<Ark: AffineRepr, Ours>(
    query: &'static str,
    all: &[Ark],
    of: Option<&Density>,
    convert: impl Fn(&Ark) -> Option<Ours>,
) -> Result<Vec<Ours>, ImportError> {
    let kept = of.map_or(all.len(), Density::total);
    let mut points = Vec::with_capacity(kept);
    for (index, point) in all.iter().enumerate() {
        if of.is_none_or(|density| density.contains(index)) {
            points.push(convert(point).ok_or(ImportError::Point { query, index })?);
        } else if !point.is_zero() {
            return Err(ImportError::Unused { query, index });
        }
    }
    Ok(points)
}

fn g1(point: &ArkG1) -> Option<G1Affine> {
    let mut bytes = [0; 96];
    point.serialize_uncompressed(&mut bytes[..]).ok()?;
    G1Affine::from_uncompressed(&bytes).into()
}

fn g2(point: &ArkG2) -> Option<G2Affine> {
    let mut bytes = [0; 192];
    point.serialize_uncompressed(&mut bytes[..]).ok()?;
    G2Affine::from_uncompressed(&bytes).into()
}

/// A proof as `ark-groth16` has it.
pub fn proof(proof: &Proof) -> ArkProof<Bls12_381> {
    let g1 = |point: &G1Affine| ArkG1::deserialize_uncompressed_unchecked(&point.to_uncompressed()[..]);
    let g2 = |point: &G2Affine| ArkG2::deserialize_uncompressed_unchecked(&point.to_uncompressed()[..]);
    debug_assert!(!bool::from(proof.a.is_identity()), "the prover makes no such proof");
    let message = "both libraries have the same encoding of points";
    ArkProof { a: g1(&proof.a).expect(message), b: g2(&proof.b).expect(message), c: g1(&proof.c).expect(message) }
}

/// Proves the values of a synthesised constraint system, within the ledger's budget.
///
/// # Errors
/// See [`ProveError`]; [`ProveError::Assignment`] if the system has no values, or is another one than the prover's.
pub fn prove(
    prover: &Prover,
    ledger: &Ledger,
    cs: &ConstraintSystem<Fr>,
    blinding: Blinding,
) -> Result<Proved, ProveError> {
    let prover = prover.clone().with_synthesis_scratch(Bytes(0));
    let fill = |inputs: &mut [Scalar], aux: &mut [Scalar]| {
        let known = cs.instance_assignment().and_then(|instance| Ok((instance, cs.witness_assignment()?)));
        let (instance, witness) = known.map_err(|error| ProveError::Assignment { source: error.to_string().into() })?;
        if instance.len() != inputs.len() + 1 || witness.len() != aux.len() {
            let found = format!("{} inputs and {} private values", instance.len(), witness.len());
            let expected = format!("{} and {}", inputs.len() + 1, aux.len());
            return Err(ProveError::Assignment { source: format!("found {found}, expected {expected}").into() });
        }
        for (places, values) in [(inputs, &instance[1..]), (aux, witness)] {
            for (place, value) in places.iter_mut().zip(values) {
                *place = scalar(value);
            }
        }
        Ok(())
    };
    prover.prove_assigned(ledger, fill, blinding)
}
