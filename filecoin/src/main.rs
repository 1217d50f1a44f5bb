//! A Filecoin proof of replication of the smallest sector: replicated and checked by Filecoin's crates, proved here.
//!
//! `cargo run --release -- [MEMORY]`, in this folder (the first build takes ten minutes or more).
//!
//! The sector has 2 KiB, two layers, and one challenge in each of two partitions, which makes the two challenges that Filecoin asks
//! of this size. Its key is made on the spot, for development. Both partitions are proved by one call that replaces
//! `bellperson::groth16::create_random_proof_batch`, within MEMORY (`4GiB`; no limit if left out), and `StackedCompound::verify`
//! gives the verdict. Then bellperson proves the same circuits with the same key, for comparison.

use std::io::Cursor;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bellperson::groth16::{self, Parameters as PeerParameters, VerifyingKey as PeerVerifyingKey};
use blstrs::{Bls12, Scalar};
use ff::Field;
use filecoin_hashers::Hasher;
use filecoin_hashers::poseidon::PoseidonHasher;
use filecoin_hashers::sha256::Sha256Hasher;
use fr32::fr_into_bytes;
use generic_array::typenum::{U0, U8};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Ledger, Space};
use plimsoll_groth16::bellperson::{Engine, Parameters, create_random_proof_batch};
use plimsoll_groth16::prover::Prover;
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_groth16::setup;
use rand::rngs::OsRng;
use rand::{Rng, RngCore};
use storage_proofs_core::api_version::ApiVersion;
use storage_proofs_core::compound_proof::{self, CompoundProof};
use storage_proofs_core::drgraph::BASE_DEGREE;
use storage_proofs_core::merkle::DiskTree;
use storage_proofs_core::multi_proof::MultiProof;
use storage_proofs_core::proof::ProofScheme;
use storage_proofs_core::test_helper::setup_replica;
use storage_proofs_porep::stacked::{
    ChallengeRequirements, Challenges, EXP_DEGREE, PrivateInputs, PublicInputs, SetupParams, StackedCircuit,
    StackedCompound, StackedDrg, TemporaryAuxCache,
};

/// The shape of a sector of 2 KiB in Filecoin: one base tree of arity 8.
type Tree = DiskTree<PoseidonHasher, U8, U0, U0>;
type Scheme = StackedDrg<'static, Tree, Sha256Hasher>;
type Circuit = StackedCircuit<Tree, Sha256Hasher>;
type Compound = StackedCompound<Tree, Sha256Hasher>;
type Public = PublicInputs<<PoseidonHasher as Hasher>::Domain, <Sha256Hasher as Hasher>::Domain>;

const SECTOR_BYTES: usize = 2 << 10;
const LAYERS: usize = 2;
const CHALLENGES_PER_PARTITION: usize = 1;
const PARTITIONS: usize = 2;

fn main() -> Result<()> {
    let memory = std::env::args().nth(1).map(|text| text.parse::<Bytes>()).transpose()?;
    let sector = Sector::replicate()?;
    let (public_params, public_inputs) = (&sector.public_params, &sector.public_inputs);

    let vanilla_proofs =
        Scheme::prove_all_partitions(&public_params.vanilla_params, public_inputs, &sector.private_inputs, PARTITIONS)?;
    let circuits = vanilla_proofs
        .iter()
        .enumerate()
        .map(|(k, proof)| {
            <Compound as CompoundProof<Scheme, Circuit>>::circuit(
                public_inputs,
                (),
                proof,
                &public_params.vanilla_params,
                Some(k),
            )
        })
        .collect::<Result<Vec<_>>>()?;

    // The key: from the circuit without values, as Filecoin's own ceremony had it.
    let pool = Pool::new(PoolConfig::default())?;
    let blank = || <Compound as CompoundProof<Scheme, Circuit>>::blank_circuit(&public_params.vanilla_params);
    let (shape, seconds) = timed(|| R1cs::from_circuit(blank()));
    let shape = shape?;
    println!(
        "circuit of a partition: {} constraints, {} variables, domain 2^{}, matrices {} ({seconds:.1} s)",
        shape.constraints(),
        shape.variables(),
        shape.domain().log_size(),
        Bytes(shape.resident_bytes())
    );
    let (key, seconds) = timed(|| pool.install(|| setup::generate(&shape, &mut OsRng, &|_| ControlFlow::Continue(()))));
    let key = Arc::new(key?);
    println!("development key, which only its maker can trust: {} ({seconds:.1} s)", Bytes(key.resident_bytes()));

    let ledger = match memory {
        Some(limit) => Ledger::new(Budget::new().space(Space::HOST, limit)),
        None => Ledger::unlimited(),
    };
    let engine = Engine::new(ledger.clone(), pool);
    let params = Parameters::new(&engine, key.clone())?;

    // The one line, instead of `groth16::create_random_proof_batch(circuits, &params, &mut OsRng)`. The first batch under a key
    // keeps the circuit's matrices for the next ones.
    let (proofs, first) = timed(|| create_random_proof_batch(circuits.clone(), &params, &mut OsRng));
    let proofs = proofs?;
    let (again, seconds) = timed(|| create_random_proof_batch(circuits.clone(), &params, &mut OsRng));
    again?;
    println!("{PARTITIONS} partitions proved here: {first:.1} s the first time, {seconds:.1} s then");
    let host = ledger.snapshot().spaces[0].clone();
    println!("peak {} in the ledger, key and matrices included", host.peak);

    // Filecoin's verifier, with bellperson's types made from our bytes.
    let mut vk = Vec::new();
    key.vk.write(&mut vk)?;
    let pvk = groth16::prepare_verifying_key(&PeerVerifyingKey::<Bls12>::read(Cursor::new(&vk))?);
    let verdict = |proofs: &[plimsoll_groth16::Proof]| -> Result<bool> {
        let proofs =
            proofs.iter().map(|proof| groth16::Proof::read(&proof.to_bytes()[..])).collect::<Result<_, _>>()?;
        Compound::verify(
            public_params,
            public_inputs,
            &MultiProof::new(proofs, &pvk),
            &ChallengeRequirements { minimum_challenges: PARTITIONS * CHALLENGES_PER_PARTITION },
        )
    };
    ensure!(verdict(&proofs)?, "Filecoin's verifier rejects the proofs");
    let mut swapped = proofs.clone();
    swapped.reverse();
    ensure!(!verdict(&swapped)?, "Filecoin's verifier takes the partitions in any order");
    println!("Filecoin's verifier accepts them, and rejects them in the wrong order");

    compare_synthesis(&engine, shape, &key, &circuits[0])?;
    let mut file = Vec::new();
    key.write(&mut file)?;
    drop((params, key, engine));
    let peer = PeerParameters::<Bls12>::read(Cursor::new(&file), false)?;
    drop(file);
    let (proofs, theirs) = timed(|| groth16::create_random_proof_batch(circuits, &peer, &mut OsRng));
    ensure!(proofs?.len() == PARTITIONS, "bellperson made another number of proofs");
    println!("{PARTITIONS} partitions proved by bellperson: {theirs:.1} s, {:.2} times as long", theirs / seconds);
    Ok(())
}

/// How long a witness and its products take when the matrices are there, against the first synthesis.
fn compare_synthesis(
    engine: &Engine,
    shape: R1cs,
    key: &Arc<plimsoll_groth16::keys::ProvingKey>,
    circuit: &Circuit,
) -> Result<()> {
    let prover = Prover::new(Arc::new(shape), key.clone(), engine.backend().clone())?;
    let threads = engine.pool().threads();
    let mut job = Ledger::unlimited().submit(plimsoll::JobSpec::new("synthesis", prover.profile(threads)))?;
    let (witness, synthesis) =
        timed(|| prover.synthesise(&mut job.enter(0).wait()?, circuit.clone()).map_err(anyhow::Error::from));
    let witness = witness?;
    let mut grant = job.enter(1).wait()?;
    let (evaluated, products) = timed(|| engine.pool().install(|| prover.evaluate(&mut grant, witness)));
    drop(evaluated?);
    println!("synthesis with the matrices: witness {synthesis:.2} s, three products {products:.2} s");
    Ok(())
}

fn timed<T>(run: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = run();
    (result, start.elapsed().as_secs_f64())
}

/// A replicated sector, with all that is needed to prove it.
struct Sector {
    public_params: compound_proof::PublicParams<'static, Scheme>,
    public_inputs: Public,
    private_inputs: PrivateInputs<Tree, Sha256Hasher>,
    /// The trees are read from here.
    _folder: tempfile::TempDir,
}

impl Sector {
    fn replicate() -> Result<Self> {
        let mut rng = OsRng;
        let nodes = SECTOR_BYTES / 32;
        let replica_id: <PoseidonHasher as Hasher>::Domain = Scalar::random(&mut rng).into();
        let data: Vec<u8> = (0..nodes).flat_map(|_| fr_into_bytes(&Scalar::random(&mut rng))).collect();
        let mut porep_id = [0; 32];
        rng.fill_bytes(&mut porep_id);
        let public_params = Compound::setup(&compound_proof::SetupParams {
            vanilla_params: SetupParams {
                nodes,
                degree: BASE_DEGREE,
                expansion_degree: EXP_DEGREE,
                porep_id,
                challenges: Challenges::new_interactive(CHALLENGES_PER_PARTITION),
                num_layers: LAYERS,
                api_version: ApiVersion::V1_1_0,
                api_features: vec![],
            },
            partitions: Some(PARTITIONS),
            priority: false,
        })?;

        let folder = tempfile::tempdir()?;
        let replica = folder.path().join("replica");
        let mut mapped = setup_replica(&data, &replica);
        let (labels, _) = StackedDrg::<Tree, Sha256Hasher>::replicate_phase1(
            &public_params.vanilla_params,
            &replica_id,
            folder.path(),
        )
        .context("labels")?;
        let (tau, (p_aux, t_aux)) = StackedDrg::<Tree, Sha256Hasher>::replicate_phase2(
            &public_params.vanilla_params,
            labels,
            mapped.as_mut().into(),
            None,
            folder.path().to_path_buf(),
            replica.clone(),
        )
        .context("replica")?;
        ensure!(data != mapped[..], "the replica is the data");
        let t_aux = TemporaryAuxCache::new(&t_aux, replica, false)?;
        Ok(Self {
            public_params,
            public_inputs: PublicInputs { replica_id, seed: Some(rng.r#gen()), tau: Some(tau), k: None },
            private_inputs: PrivateInputs { p_aux, t_aux },
            _folder: folder,
        })
    }
}
