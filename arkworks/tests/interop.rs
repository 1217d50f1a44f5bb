//! Systems and keys of arkworks, proved here: for given r and s the proof is arkworks' own, and its verifier accepts it.

use std::sync::Arc;

use ark_bls12_381::{Bls12_381, Fr};
use ark_crypto_primitives::snark::{CircuitSpecificSetupSNARK, SNARK};
use ark_ff::{Field, UniformRand, Zero};
use ark_groth16::Groth16;
use ark_relations::gr1cs::{
    ConstraintSynthesizer, ConstraintSystem, ConstraintSystemRef, LinearCombination, OptimizationGoal, SynthesisError,
    SynthesisMode, Variable,
};
use ark_std::rand::rngs::StdRng;
use ark_std::rand::{Rng, SeedableRng};
use plimsoll::Ledger;
use plimsoll_arkworks::{ImportError, fr, proof, prove, proving_key, scalar, shape};
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::prover::{Blinding, ProveError, Prover};

type Ark = Groth16<Bls12_381>;

/// Random sparse products: each constraint multiplies two random combinations of what there is and makes the result a new
/// variable, sometimes a public one. Some combinations are empty, constant, or repeat a variable.
#[derive(Clone)]
struct Random {
    seed: u64,
    steps: usize,
    /// Adds one to the last private value: no longer a witness.
    wrong: bool,
}

impl ConstraintSynthesizer<Fr> for Random {
    fn generate_constraints(self, cs: ConstraintSystemRef<Fr>) -> Result<(), SynthesisError> {
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mut known: Vec<(Variable, Fr)> = vec![(Variable::One, Fr::from(1))];
        for _ in 0..3 {
            let value = Fr::rand(&mut rng);
            known.push((cs.new_witness_variable(|| Ok(value))?, value));
        }
        for step in 0..self.steps {
            let mut combination = || {
                let (mut sum, mut terms) = (Fr::zero(), LinearCombination::<Fr>::zero());
                for _ in 0..rng.gen_range(0..4) {
                    let (variable, value) = known[rng.gen_range(0..known.len())];
                    let coefficient = match rng.gen_range(0..3) {
                        0 => Fr::from(1),
                        1 => -Fr::from(1),
                        _ => Fr::rand(&mut rng),
                    };
                    sum += coefficient * value;
                    terms = terms + (coefficient, variable);
                }
                (sum, terms)
            };
            let ((a, a_terms), (b, b_terms)) = (combination(), combination());
            let mut c = a * b;
            if self.wrong && step + 1 == self.steps {
                c += Fr::from(1);
            }
            let public = rng.gen_range(0..5) == 0;
            let product = if public { cs.new_input_variable(|| Ok(c))? } else { cs.new_witness_variable(|| Ok(c))? };
            cs.enforce_r1cs_constraint(|| a_terms, || b_terms, || LinearCombination::from(product))?;
            known.push((product, c));
        }
        // So that no variable is left without a constraint.
        let all =
            known.iter().fold(LinearCombination::<Fr>::zero(), |sum, (variable, _)| sum + (Fr::from(1), *variable));
        let sum: Fr = known.iter().map(|(_, value)| value).sum();
        let total = cs.new_input_variable(|| Ok(sum))?;
        cs.enforce_r1cs_constraint(|| all, || LinearCombination::from(Variable::One), || LinearCombination::from(total))
    }
}

fn synthesised(circuit: Random) -> ConstraintSystem<Fr> {
    let cs = ConstraintSystem::new_ref();
    cs.set_optimization_goal(OptimizationGoal::Constraints);
    cs.set_mode(SynthesisMode::Prove { construct_matrices: true, generate_lc_assignments: false });
    circuit.generate_constraints(cs.clone()).expect("synthesis");
    cs.finalize();
    cs.into_inner().expect("nobody else has it")
}

#[test]
fn a_proof_is_arkworks_own_and_its_verifier_accepts_it() {
    for seed in 0..12 {
        let circuit = Random { seed, steps: 5 + 20 * seed as usize, wrong: false };
        let mut rng = StdRng::seed_from_u64(seed);
        let (ark_key, ark_vk) = Ark::setup(circuit.clone(), &mut rng).expect("arkworks makes a key");
        let cs = synthesised(circuit.clone());
        let r1cs = Arc::new(shape(&cs).expect("the system has a shape"));
        let key = Arc::new(proving_key(&ark_key, &r1cs).expect("the key fits"));
        let prover = Prover::new(r1cs, key, Arc::new(Cpu::new())).expect("the key fits");

        let (r, s) = (Fr::rand(&mut rng), Fr::rand(&mut rng));
        let blinding = Blinding::from_scalars(scalar(&r), scalar(&s));
        let proved = prove(&prover, &Ledger::unlimited(), &cs, blinding).expect("a proof");
        let expected = Ark::create_proof_with_reduction(circuit, &ark_key, r, s).expect("arkworks proves");
        assert_eq!(proof(&proved.proof), expected, "seed {seed}");

        let proved = prove(&prover, &Ledger::unlimited(), &cs, Blinding::from_os()).expect("a proof");
        let mut inputs: Vec<Fr> = proved.public_inputs.iter().map(fr).collect();
        assert_eq!(inputs, cs.instance_assignment().expect("values")[1..], "seed {seed}");
        assert!(Ark::verify(&ark_vk, &inputs, &proof(&proved.proof)).expect("well-formed"), "seed {seed}");
        let last = inputs.len() - 1;
        inputs[last] += Fr::from(1);
        assert!(!Ark::verify(&ark_vk, &inputs, &proof(&proved.proof)).expect("well-formed"), "seed {seed}");
    }
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let circuit = Random { seed: 1, steps: 30, wrong: false };
    let (ark_key, _) = Ark::setup(circuit.clone(), &mut StdRng::seed_from_u64(1)).expect("arkworks makes a key");
    let r1cs = Arc::new(shape(&synthesised(circuit.clone())).expect("shape"));
    let other = shape(&synthesised(Random { steps: 31, ..circuit.clone() })).expect("shape");
    assert!(matches!(proving_key(&ark_key, &other), Err(ImportError::KeyLength { .. })));

    // A point of a variable that does not occur.
    let unused = (0..r1cs.variables()).find(|variable| !r1cs.b_density().contains(*variable)).expect("one of them");
    let mut strange = ark_key.clone();
    strange.b_g1_query[unused] = strange.vk.alpha_g1;
    let refused = proving_key(&strange, &r1cs);
    assert!(matches!(refused, Err(ImportError::Unused { query: "b_g1_query", index }) if index == unused));

    let key = Arc::new(proving_key(&ark_key, &r1cs).expect("the key fits"));
    let prover = Prover::new(r1cs, key, Arc::new(Cpu::new())).expect("the key fits");
    let attempt = |circuit| prove(&prover, &Ledger::unlimited(), &synthesised(circuit), Blinding::from_os());
    let wrong = attempt(Random { wrong: true, ..circuit.clone() });
    assert!(matches!(wrong, Err(ProveError::Unsatisfied { constraint: 29 })), "{wrong:?}");
    let longer = attempt(Random { steps: 31, ..circuit });
    assert!(matches!(longer, Err(ProveError::Assignment { .. })), "{longer:?}");
}

#[test]
fn scalars_are_the_same_numbers() {
    let mut rng = StdRng::seed_from_u64(5);
    let half = Fr::from(2).inverse().expect("not zero");
    for value in [Fr::zero(), Fr::from(1), -Fr::from(1), half].into_iter().chain((0..20).map(|_| Fr::rand(&mut rng))) {
        assert_eq!(fr(&scalar(&value)), value);
        assert_eq!(scalar(&(value * half)), scalar(&value) * scalar(&half));
    }
}
