//! Whole proofs: right, fast, and within the budget.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use blstrs::{G1Affine, G2Affine, Scalar};
use group::prime::PrimeCurveAffine;
use plimsoll::device::{Device, DeviceConfig, DeviceSet};
use plimsoll::pipeline::{Pacing, Pipeline, Retry};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Ledger, Space};
use plimsoll_cuda::{CudaDriver, plan};
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::device::Residence;
use plimsoll_groth16::keys::{HBasis, HQuery, ProvingKey, VerifyingKey};
use plimsoll_groth16::prover::{Blinding, DEVICE_STAGES, DeviceProver, ProveError, Proved, Prover};
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_groth16::{PreparedVerifyingKey, setup, verify};

use crate::circuits::{Chain, Kind};
use crate::speed::points;
use crate::{Outcome, number, say};

type Failed = Box<dyn std::error::Error>;
type Proofs = Pipeline<Chain, Proved, ProveError>;

fn pool() -> Result<Pool, Failed> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Pool::new(PoolConfig { threads, ..PoolConfig::default() })?)
}

fn blinding() -> Blinding {
    Blinding::from_scalars(Scalar::from(1234), Scalar::from(5678))
}

fn kind(args: &[String], at: usize) -> Result<Kind, Failed> {
    match args.get(at).map(String::as_str) {
        None | Some("dense") => Ok(Kind::Dense),
        Some("boolean") => Ok(Kind::Boolean),
        Some(other) => Err(format!("no kind of circuit: {other}").into()),
    }
}

/// A key that proves: made with a trapdoor, which is what it is for.
fn real_key(r1cs: &R1cs, pool: &Pool) -> Result<ProvingKey, Failed> {
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

/// A device with a budget, and the pipeline that proves on it.
struct Setting {
    ledger: Ledger,
    device: Device<CudaDriver>,
    prover: DeviceProver<CudaDriver>,
    pipeline: Proofs,
}

impl Setting {
    fn new(prover: &Prover, pool: &Pool, device_bytes: u64, residence: Option<Residence>) -> Result<Self, Failed> {
        let tables = plan::aligned(plan::ntt::Tables::plan().bytes);
        let driver = CudaDriver::open(0, device_bytes + tables)?;
        let budget = Budget::new().space(Space::HOST, Bytes(96 << 30)).device(0, Bytes(driver.usable_bytes()), 2);
        let ledger = Ledger::new(budget);
        let device = Device::start(0, driver, &ledger, DeviceConfig::default())?;
        let set = DeviceSet::new([device.clone()]);
        let prover = match residence {
            Some(residence) => DeviceProver::with_residence(prover.clone(), set, &ledger, residence)?,
            None => DeviceProver::new(prover.clone(), set, &ledger)?,
        };
        let pipeline = pipeline(&prover, &ledger, pool)?;
        Ok(Self { ledger, device, prover, pipeline })
    }
}

fn pipeline(this: &DeviceProver<CudaDriver>, ledger: &Ledger, pool: &Pool) -> Result<Proofs, Failed> {
    let [synthesise, evaluate, stage_in, compute, assemble] = DEVICE_STAGES;
    let threads = pool.threads();
    let [first, rest, one, two, three, four, five] = [(); 7].map(|()| this.clone());
    let builder = Pipeline::builder(ledger, pool, move |_: &Chain| first.profiles(threads).remove(0))
        .alternatives(move |_| rest.profiles(threads))
        .failures(ProveError::failure)
        .pacing(Pacing::Auto)
        .stage(synthesise, move |cx, circuit| one.prover().synthesise(cx.grant(), circuit))
        .stage(evaluate, move |cx, witness| two.prover().evaluate(cx.grant(), witness))
        .device_stage(stage_in, this.devices(), move |cx, evaluated| three.stage_in(cx, evaluated))
        .compute_stage_again(compute, this.devices(), Retry::times(2), move |cx, staged| four.compute(cx, staged))
        .stage(assemble, move |_, openings| Ok(five.prover().assemble(openings, blinding())));
    Ok(this.with_keys(builder, ledger).build()?)
}

/// Proofs with real keys: they verify, and are the processor's, with the key resident and with points that pass through.
pub(crate) fn conform(args: &[String]) -> Outcome {
    let (low, high) = (number(args, 0, 10)?, number(args, 1, 14)?);
    let pool = pool()?;
    for log in (low..=high).step_by(2) {
        for kind in [Kind::Dense, Kind::Boolean] {
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
                let setting = Setting::new(&prover, &pool, 16 << 30, Some(residence))?;
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
                }
            }
            say(&format!("2^{log} {kind:?}: verified and equal (setup {setup:.1} s, processor {cpu:.2} s)"));
        }
    }
    Ok(())
}

fn prover_of(circuit: Chain) -> Result<Prover, Failed> {
    let r1cs = R1cs::from_circuit(circuit)?;
    let key = shaped_key(&r1cs);
    Ok(Prover::new(Arc::new(r1cs), Arc::new(key), Arc::new(Cpu::new()))?)
}

/// One proof after the other, nothing overlapped: the time from the evaluated witness to the proof.
pub(crate) fn full(args: &[String]) -> Outcome {
    let (log, kind) = (number(args, 0, 20)?, kind(args, 1)?);
    let pool = pool()?;
    let circuit = Chain::new(log, kind);
    let prover = prover_of(circuit)?;
    let setting = Setting::new(&prover, &pool, 40 << 30, None)?;
    let mut lines = Vec::new();
    for round in 0..6 {
        let (busy, started) = (setting.device.driver().busy(), Instant::now());
        setting.pipeline.submit("proof", circuit)?.wait()?;
        let wall = started.elapsed().as_secs_f64() * 1e3;
        let kernels = (setting.device.driver().busy() - busy).as_secs_f64() * 1e3;
        lines.push((wall, kernels));
        if round == 0 {
            say(&format!("first proof, with the key's upload: {wall:.1} ms"));
        }
    }
    lines.remove(0);
    lines.sort_by(|a, b| a.1.total_cmp(&b.1));
    let (wall, kernels) = lines[lines.len() / 2];
    let stats = setting.pipeline.stats();
    let stages: Vec<String> = stages(&stats);
    say(&format!(
        "2^{log} {kind:?} {:?}: kernels {kernels:.1} ms, synthesis to proof {wall:.1} ms; {}",
        setting.prover.residence(),
        stages.join(", ")
    ));
    Ok(())
}

fn stages(stats: &[plimsoll::pipeline::StageStats]) -> Vec<String> {
    stats
        .iter()
        .map(|stage| format!("{} {:.1} ms", stage.stage, stage.run_seconds * 1e3 / stage.count.max(1) as f64))
        .collect()
}

/// Many proofs: how many a second, how busy the device, how many bytes, under each budget.
pub(crate) fn stream(args: &[String]) -> Outcome {
    let (log, kind, proofs) = (number(args, 0, 20)?, kind(args, 1)?, number(args, 2, 64)?);
    let budgets: Vec<u64> = args.iter().skip(3).map(|mib| mib.parse()).collect::<Result<_, _>>()?;
    let pool = pool()?;
    let circuit = Chain::new(log, kind);
    let prover = prover_of(circuit)?;
    say(
        "budget MiB, key, proofs a second, kernels' share of the time, device peak MiB, arena peak MiB, host peak MiB, resident MiB",
    );
    for mib in budgets {
        let setting = Setting::new(&prover, &pool, mib << 20, None)?;
        // The key and the first proofs' start are not the steady state.
        for proof in setting.pipeline.run_all((0..4).map(|i| (format!("warm {i}"), circuit))) {
            proof.1?;
        }
        let (busy, started) = (setting.device.driver().busy(), Instant::now());
        for proof in setting.pipeline.run_all((0..proofs).map(|i| (format!("{i}"), circuit))) {
            proof.1?;
        }
        let wall = started.elapsed().as_secs_f64();
        let busy = (setting.device.driver().busy() - busy).as_secs_f64();
        let snapshot = setting.ledger.snapshot();
        let peak = |space| snapshot.space(space).map_or(0, |space| space.peak.0 >> 20);
        say(&format!(
            "{mib}, {:?}, {:.2}, {:.1} %, {}, {}, {}, {}; kernels {:.1} ms a proof; {}",
            setting.prover.residence(),
            f64::from(proofs) / wall,
            busy / wall * 100.0,
            peak(Space::device(0)),
            setting.device.driver().used_peak_bytes() >> 20,
            peak(Space::HOST),
            resident_mib(),
            busy * 1e3 / f64::from(proofs),
            stages(&setting.pipeline.stats()).join(", "),
        ));
    }
    Ok(())
}

/// What the kernel says this process holds.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) >> 10
}
