//! Whole proofs: right, and how long one takes alone.

use std::fs::{self, File};
use std::io::BufWriter;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::PrimeField;
use group::prime::PrimeCurveAffine;
use plimsoll::pipeline::Pacing;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Bytes, Ledger};
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::device::Residence;
use plimsoll_groth16::keys::{HBasis, HQuery, ProvingKey, VerifyingKey};
use plimsoll_groth16::prover::{Blinding, Proved, Prover};
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_groth16::{PreparedVerifyingKey, setup, verify};

use crate::circuits::{Chain, Kind};
use crate::setting::{Failed, Setting};
use crate::speed::points;
use crate::{Outcome, arena_bytes, number, say};

pub(crate) fn pool() -> Result<Pool, Failed> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Pool::new(PoolConfig { threads, ..PoolConfig::default() })?)
}

pub(crate) fn blinding() -> Blinding {
    Blinding::from_scalars(Scalar::from(1234), Scalar::from(5678))
}

pub(crate) fn kind(args: &[String], at: usize) -> Result<Kind, Failed> {
    match args.get(at).map(String::as_str) {
        None | Some("dense") => Ok(Kind::Dense),
        Some("boolean") => Ok(Kind::Boolean),
        Some("sha256") => Ok(Kind::Sha256),
        Some(other) => Err(format!("no kind of circuit: {other}").into()),
    }
}

/// A key that proves: made with a trapdoor, which is what it is for.
pub(crate) fn real_key(r1cs: &R1cs, pool: &Pool) -> Result<ProvingKey, Failed> {
    Ok(pool.install(|| setup::generate(r1cs, &mut rand_core::OsRng, &|_| ControlFlow::Continue(())))?)
}

/// A key of the right shape with points that mean nothing: making a proof with it takes as long, and it is there at once.
fn shaped_key(r1cs: &R1cs) -> ProvingKey {
    let (g1, g2) = (G1Affine::generator(), G2Affine::generator());
    let many = points::<G1Affine>(r1cs.domain().size().max(r1cs.variables()));
    let some = |count: usize| many[..count].to_vec();
    let b = r1cs.b_density().total();
    ProvingKey {
        vk: VerifyingKey {
            alpha_g1: g1,
            beta_g1: g1,
            beta_g2: g2,
            gamma_g2: g2,
            delta_g1: g1,
            delta_g2: g2,
            ic: some(r1cs.inputs()),
        },
        h: HQuery { basis: HBasis::PowersOfTau, points: some(r1cs.domain().size() - 1) },
        l: some(r1cs.aux()),
        a: some(r1cs.a_density().total()),
        b_g1: some(b),
        b_g2: points::<G2Affine>(b),
    }
}

/// Proofs with real keys: they verify, and are the processor's, with the key resident and with points that pass through.
pub(crate) fn conform(args: &[String]) -> Outcome {
    let (low, high) = (number(args, 0, 10)?, number(args, 1, 14)?);
    let pool = pool()?;
    for log in (low..=high).step_by(2) {
        for kind in [Kind::Dense, Kind::Boolean, Kind::Sha256] {
            if kind == Kind::Sha256 && log < 16 {
                // Not even one block.
                continue;
            }
            let circuit = Chain::new(log, kind);
            let r1cs = R1cs::from_circuit(circuit)?;
            let started = Instant::now();
            let key = real_key(&r1cs, &pool)?;
            let setup = started.elapsed().as_secs_f64();
            let prover = Prover::new(Arc::new(r1cs), Arc::new(key), Arc::new(Cpu::new()))?;
            let started = Instant::now();
            let expected = pool.install(|| prover.prove(&Ledger::unlimited(), circuit, blinding()))?;
            let cpu = started.elapsed().as_secs_f64();
            let vk = PreparedVerifyingKey::new(&prover.key().vk);
            verify(&vk, &expected.proof, &expected.public_inputs).map_err(|e| format!("the processor's: {e}"))?;
            for residence in [Residence::Resident, Residence::Streamed] {
                let setting = Setting::new(&prover, &pool, arena_bytes(16 << 10), Some(residence), Pacing::Auto)?;
                for proof in setting.pipeline.run_all((0..4).map(|i| (format!("{i}"), circuit))).in_order() {
                    let proved = proof.1?;
                    let parts = [
                        ("A", proved.proof.a == expected.proof.a),
                        ("B", proved.proof.b == expected.proof.b),
                        ("C", proved.proof.c == expected.proof.c),
                        ("the inputs", proved.public_inputs == expected.public_inputs),
                    ];
                    let wrong: Vec<_> = parts.iter().filter(|part| !part.1).map(|part| part.0).collect();
                    if !wrong.is_empty() {
                        let what = format!("2^{log} {kind:?} {residence:?} proof {}: {wrong:?}", proof.0);
                        return Err(format!("{what} differ from the processor's").into());
                    }
                    verify(&vk, &proved.proof, &proved.public_inputs)?;
                    if let Some(folder) = args.get(2) {
                        let name = format!("{log}-{kind:?}-{residence:?}-{}", proof.0);
                        leave(Path::new(folder), &name, prover.key(), &proved)?;
                    }
                }
            }
            say(&format!("2^{log} {kind:?}: verified and equal (setup {setup:.1} s, processor {cpu:.2} s)"));
        }
    }
    Ok(())
}

pub(crate) fn prover_of(circuit: Chain) -> Result<Prover, Failed> {
    let r1cs = R1cs::from_circuit(circuit)?;
    let key = shaped_key(&r1cs);
    let prover = Prover::new(Arc::new(r1cs), Arc::new(key), Arc::new(Cpu::new()))?;
    Ok(match circuit.kind {
        // A hash keeps handles to its bits, as the prover assumes of circuits; the others keep next to nothing.
        Kind::Sha256 => prover,
        Kind::Dense | Kind::Boolean => prover.with_synthesis_scratch(Bytes::MIB),
    })
}

/// For another verifier: the verifying key, the proof and the public inputs, in bellperson's formats.
fn leave(folder: &Path, name: &str, key: &ProvingKey, proved: &Proved) -> Outcome {
    key.vk.write(File::create(folder.join(format!("{name}.vk")))?)?;
    fs::write(folder.join(format!("{name}.proof")), proved.proof.to_bytes())?;
    let inputs: Vec<u8> = proved.public_inputs.iter().flat_map(|input| input.to_repr()).collect();
    Ok(fs::write(folder.join(format!("{name}.inputs")), inputs)?)
}

/// Writes a key of the right shape in bellperson's format, for other provers of the same circuit.
pub(crate) fn key(args: &[String]) -> Outcome {
    let (log, kind) = (number(args, 0, 20)?, kind(args, 1)?);
    let path = args.get(2).ok_or("say which file the key goes to")?;
    let prover = prover_of(Chain::new(log, kind))?;
    prover.key().write(BufWriter::with_capacity(1 << 22, File::create(path)?))?;
    let r1cs = prover.r1cs();
    say(&format!("{path}: 2^{log} {kind:?}, {} constraints, {} variables", r1cs.constraints(), r1cs.variables()));
    Ok(())
}

/// One proof after the other, nothing overlapped: from vectors in host memory to the proof, as provers count that take up
/// what synthesis has left; and how long its kernels take of that.
pub(crate) fn full(args: &[String]) -> Outcome {
    let (log, kind, rounds) = (number(args, 0, 20)?, kind(args, 1)?, number(args, 2, 7)?);
    let pool = pool()?;
    let circuit = Chain::new(log, kind);
    let prover = prover_of(circuit)?;
    let setting = Setting::new(&prover, &pool, 40 << 30, None, Pacing::Auto)?;
    let mut lines = Vec::new();
    let mut proof = None;
    for round in 0..=rounds {
        let (busy, started) = (setting.device.driver().busy(), Instant::now());
        proof = Some(setting.pipeline.submit("proof", circuit)?.wait()?.proof);
        let all = started.elapsed().as_secs_f64() * 1e3;
        let kernels = (setting.device.driver().busy() - busy).as_secs_f64() * 1e3;
        let marks = setting.marks();
        let [mark] = &marks[..] else { return Err("a proof has one mark".into()) };
        let wall = (mark.assembled - mark.staging).as_secs_f64() * 1e3;
        match round {
            0 => say(&format!("first proof, with the key's upload: {all:.1} ms")),
            _ => lines.push((wall, kernels, all)),
        }
    }
    lines.sort_by(|a, b| a.0.total_cmp(&b.0));
    let middle = lines[lines.len() / 2];
    let proof = proof.ok_or("no proof")?.to_bytes();
    say(&format!(
        "plimsoll 2^{log} {kind:?} {:?}: vectors to proof {:.1} ms median of {} (min {:.1}, max {:.1}), kernels {:.1} ms, with \
         synthesis {:.0} ms; {}; proof {}",
        setting.prover.residence(),
        middle.0,
        lines.len(),
        lines[0].0,
        lines[lines.len() - 1].0,
        middle.1,
        middle.2,
        setting.stages(),
        proof.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
    ));
    Ok(())
}
