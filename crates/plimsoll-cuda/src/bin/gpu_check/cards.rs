//! Several real devices: a stream of proofs over all of them, and one that loses a device on the way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll::device::{Device, DeviceConfig, DeviceSet};
use plimsoll::pipeline::Pipeline;
use plimsoll::pool::Pool;
use plimsoll::{Budget, Bytes, Grant, Ledger, Space};
use plimsoll_cuda::{CudaDriver, Staging, plan};
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::device::Residence;
use plimsoll_groth16::prover::{DeviceProver, ProveError, Proved, Prover, Witness};
use plimsoll_groth16::r1cs::R1cs;

use crate::circuits::{Chain, Kind};
use crate::prove::{blinding, pool, real_key};
use crate::setting::Failed;
use crate::{Outcome, number, say};

/// A set of cards with a ledger of their own.
pub(crate) struct Fleet {
    pub(crate) ledger: Ledger,
    prover: DeviceProver<CudaDriver>,
    staging: Vec<Staging>,
}

impl Fleet {
    fn new(prover: &Prover, count: u16, device_bytes: u64) -> Result<Self, Failed> {
        Self::with(prover, count, device_bytes, Residence::Resident)
    }

    /// The same, with the points where the caller says.
    pub(crate) fn with(prover: &Prover, count: u16, device_bytes: u64, at: Residence) -> Result<Self, Failed> {
        let tables = plan::aligned(plan::ntt::Tables::plan().bytes);
        let config = DeviceConfig::default();
        let drivers: Vec<CudaDriver> =
            (0..count).map(|device| CudaDriver::open(device, device_bytes + tables)).collect::<Result<_, _>>()?;
        let pinned = Staging::bytes(config.lanes).times(u64::from(count));
        let budget = Budget::new().space(Space::HOST, Bytes(200 << 30)).space(Space::PINNED, pinned);
        let budget = drivers.iter().fold(budget, |budget, driver| {
            budget.device(driver.device(), Bytes(driver.usable_bytes()), config.lanes as u64)
        });
        let ledger = Ledger::new(budget);
        let staging: Vec<_> =
            drivers.iter().map(|driver| Staging::new(driver, config.lanes, &ledger)).collect::<Result<_, _>>()?;
        let devices: Vec<_> = drivers
            .into_iter()
            .map(|driver| Device::start(driver.device(), driver, &ledger, DeviceConfig::default()))
            .collect::<Result<_, _>>()?;
        let prover = DeviceProver::with_residence(prover.clone(), DeviceSet::new(devices), &ledger, at)?;
        Ok(Self { ledger, prover, staging })
    }

    fn pipeline(&self, pool: &Pool) -> Result<Pipeline<Chain, Proved, ProveError>, Failed> {
        self.pipeline_from(pool, |prover, grant, circuit| Ok((prover.synthesise(grant, circuit)?, ())))
    }

    /// Of proofs whose witnesses `begin` makes.
    pub(crate) fn pipeline_from<In: Clone + Send + 'static>(
        &self,
        pool: &Pool,
        begin: impl Fn(&Prover, &mut Grant, In) -> Result<(Witness, ()), ProveError> + Send + Sync + 'static,
    ) -> Result<Pipeline<In, Proved, ProveError>, Failed> {
        let through = |builder| self.staging.iter().fold(builder, |builder, staging| staging.with(builder));
        let end = |prover: &Prover, openings, ()| Ok(prover.assemble(openings, blinding()));
        Ok(self.prover.pipeline(&self.ledger, pool, through, begin, end)?)
    }

    /// How many proofs each card has made so far.
    fn made(&self) -> Vec<u64> {
        self.prover.devices().devices().iter().map(|device| device.driver().proofs()).collect()
    }
}

/// What came on top.
fn since(before: &[u64], now: &[u64]) -> Vec<u64> {
    now.iter().zip(before).map(|(now, before)| now - before).collect()
}

/// `cards LOG PROOFS`: each proof is the processor's, with one card and with all; then all but one are given up in the middle.
pub(crate) fn run(args: &[String]) -> Outcome {
    let (log, proofs) = (number(args, 0, 18)?, number(args, 1, 64)?);
    let count = plimsoll_cuda::device_count()?;
    let pool = pool()?;
    let circuit = Chain::new(log, Kind::Dense);
    let r1cs = R1cs::from_circuit(circuit)?;
    let key = real_key(&r1cs, &pool)?;
    let prover = Prover::new(Arc::new(r1cs), Arc::new(key), Arc::new(Cpu::new()))?.with_synthesis_scratch(Bytes::MIB);
    let expected = pool.install(|| prover.prove(&Ledger::unlimited(), circuit, blinding()))?;
    let mut fleets = vec![1];
    fleets.extend((count > 1).then_some(count));
    let jobs = |count: u32| (0..count).map(|i| (format!("{i}"), circuit)).collect::<Vec<_>>();
    for cards in fleets {
        let fleet = Fleet::new(&prover, cards, 16 << 30)?;
        let pipeline = fleet.pipeline(&pool)?;
        // The keys' loads are not the stream's.
        for proof in pipeline.run_all(jobs(8)) {
            proof.1?;
        }
        let (before, started) = (fleet.made(), Instant::now());
        for proof in pipeline.run_all(jobs(proofs)) {
            if proof.1?.proof != expected.proof {
                return Err(format!("with {cards} cards: a proof differs from the processor's").into());
            }
        }
        let a_second = f64::from(proofs) / started.elapsed().as_secs_f64();
        pipeline.drain();
        let made = since(&before, &fleet.made());
        let snapshot = fleet.ledger.snapshot();
        let peak = |device| snapshot.space(Space::device(device)).map_or(0, |space| space.peak.0 >> 20);
        let peaks: Vec<_> = (0..cards).map(peak).collect();
        let devices = fleet.prover.devices().devices().iter();
        let arenas: Vec<_> = devices.map(|device| device.driver().used_peak_bytes() >> 20).collect();
        say(&format!(
            "{cards} cards, 2^{log}: {a_second:.1} proofs a second, all the processor's; by card {made:?}; device MiB: ledger \
             {peaks:?}, arena {arenas:?}"
        ));
        if made.iter().any(|&made| made < u64::from(proofs) / (4 * u64::from(cards))) {
            return Err("a card had less than a quarter of its share".into());
        }
    }
    if count > 1 { loss(&prover, &pool, circuit, &expected, count, proofs) } else { Ok(()) }
}

/// Gives up all cards but the last when a quarter of the proofs are made.
fn loss(prover: &Prover, pool: &Pool, circuit: Chain, expected: &Proved, count: u16, proofs: u32) -> Outcome {
    let fleet = Fleet::new(prover, count, 16 << 30)?;
    let pipeline = fleet.pipeline(pool)?;
    let lost = usize::from(count) - 1;
    let mut before = Vec::new();
    for (made, proof) in (1..).zip(pipeline.run_all((0..proofs).map(|i| (format!("{i}"), circuit)))) {
        if proof.1?.proof != expected.proof {
            return Err("a proof differs from the processor's".into());
        }
        if made == proofs / 4 {
            before = fleet.made();
            for device in &fleet.prover.devices().devices()[..lost] {
                device.give_up("pulled out");
            }
        }
    }
    pipeline.drain();
    let again: u64 = pipeline.stats().iter().map(|stage| stage.retried).sum();
    say(&format!(
        "{lost} of {count} cards given up after {} of {proofs} proofs: all of them made, all the processor's; by card {before:?} \
         before, {:?} at the end; {again} runs failed and their proofs began again",
        proofs / 4,
        fleet.made(),
    ));
    if fleet.prover.devices().losses().len() != lost {
        return Err("the cards were not given up".into());
    }
    let Fleet { ledger, prover, staging } = fleet;
    drop((pipeline, prover, staging));
    // What the last jobs held may be on its way back from another thread.
    let _ = ledger.quiesce(Duration::from_secs(5));
    let snapshot = ledger.snapshot();
    let held = snapshot.space(Space::HOST).map_or(Bytes::ZERO, |space| space.held);
    if held == Bytes::ZERO {
        return Ok(());
    }
    let who: Vec<_> = snapshot.holders.iter().map(|holder| holder.who.to_string()).collect();
    let residencies: Vec<_> = snapshot.residencies.iter().map(|usage| format!("{usage:?}")).collect();
    Err(format!("{held} of host memory were never given back: {who:?}, {residencies:?}").into())
}
