//! A device with a budget, and the pipeline that proves on it.

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use plimsoll::device::{Device, DeviceConfig, DeviceError, DeviceSet, StageError};
use plimsoll::pipeline::{Pacing, Pipeline, Retry};
use plimsoll::pool::Pool;
use plimsoll::{Budget, Bytes, Demand, JobSpec, Ledger, Profile, Space};
use plimsoll_cuda::{CudaDriver, Staging, plan};
use plimsoll_groth16::device::Residence;
use plimsoll_groth16::prover::{DEVICE_STAGES, DeviceProver, ProveError, Proved, Prover};

use crate::circuits::Chain;
use crate::prove::blinding;

pub(crate) type Failed = Box<dyn std::error::Error>;
type Proofs = Pipeline<Chain, Proved, ProveError>;

/// What the host may take: most of the machine that this was made for.
const HOST: Bytes = Bytes(96 << 30);

pub(crate) struct Setting {
    pub(crate) ledger: Ledger,
    pub(crate) device: Device<CudaDriver>,
    pub(crate) prover: DeviceProver<CudaDriver>,
    pub(crate) pipeline: Proofs,
    staging: Staging,
    marks: Receiver<Mark>,
}

/// When a proof was where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// Its upload began.
    pub(crate) staging: Instant,
    /// The device was done with it, and for how long it has computed by then.
    pub(crate) computed: Instant,
    pub(crate) busy: Duration,
    /// It was there.
    pub(crate) assembled: Instant,
}

impl Setting {
    pub(crate) fn new(
        prover: &Prover,
        pool: &Pool,
        device_bytes: u64,
        residence: Option<Residence>,
        pacing: Pacing,
    ) -> Result<Self, Failed> {
        let tables = plan::aligned(plan::ntt::Tables::plan().bytes);
        let driver = CudaDriver::open(0, device_bytes + tables)?;
        let config = DeviceConfig::default();
        let lanes = config.lanes;
        let budget = Budget::new().space(Space::HOST, HOST).space(Space::PINNED, Staging::bytes(lanes)).device(
            0,
            Bytes(driver.usable_bytes()),
            lanes as u64,
        );
        let ledger = Ledger::new(budget);
        let staging = Staging::new(&driver, lanes, &ledger)?;
        let device = Device::start(0, driver, &ledger, config)?;
        Self::on(ledger, device, staging, prover, pool, residence, pacing)
    }

    /// Another circuit and key on the same device.
    pub(crate) fn beside(&self, prover: &Prover, pool: &Pool, residence: Residence) -> Result<Self, Failed> {
        let (ledger, device, staging) = (self.ledger.clone(), self.device.clone(), self.staging.clone());
        Self::on(ledger, device, staging, prover, pool, Some(residence), Pacing::Auto)
    }

    fn on(
        ledger: Ledger,
        device: Device<CudaDriver>,
        staging: Staging,
        prover: &Prover,
        pool: &Pool,
        residence: Option<Residence>,
        pacing: Pacing,
    ) -> Result<Self, Failed> {
        let set = DeviceSet::new([device.clone()]);
        let prover = match residence {
            Some(residence) => DeviceProver::with_residence(prover.clone(), set, &ledger, residence)?,
            None => DeviceProver::new(prover.clone(), set, &ledger)?,
        };
        let (pipeline, marks) = pipeline(&prover, &staging, &ledger, pool, pacing)?;
        Ok(Self { ledger, device, prover, pipeline, staging, marks })
    }

    /// The proofs that were made since this was last asked, in the order in which the device was done with them.
    pub(crate) fn marks(&self) -> Vec<Mark> {
        let mut marks: Vec<Mark> = self.marks.try_iter().collect();
        marks.sort_by_key(|mark| mark.computed);
        marks
    }

    /// How many bytes of the staging memory, through which nothing has passed yet, are not zero after a stage that has copied
    /// secret values, and after one that has copied others.
    pub(crate) fn staged(&self) -> Result<[usize; 2], Failed> {
        const BYTES: u64 = 64 << 20;
        let mut written = [0; 2];
        for (class, written) in [plan::abc(0), plan::points(0)].into_iter().zip(&mut written) {
            let demand = Demand::new().on_lane(0).bytes(class, Bytes(BYTES));
            let profile = Profile::new().stage("copy", demand, Demand::new());
            let spec = JobSpec::new("copy", profile).needs(self.staging.residency());
            let mut job = self.ledger.submit(spec)?;
            while let Some(load) = job.load().wait()? {
                let mut load = load.of(self.staging.residency()).map_err(|_| "another load")?;
                let area = self.staging.load(&mut load)?;
                drop(load.fill(area));
            }
            let grant = job.enter(0).wait()?;
            let area = grant.pinned(self.staging.residency()).cloned().ok_or("it is pinned")?;
            let copied = self.device.stage(grant, move |cx| cx.upload(class, &vec![9; BYTES as usize]).map(drop));
            copied.wait().map_err(|error: StageError<DeviceError>| error.to_string())?;
            *written = area.written_bytes();
        }
        Ok(written)
    }

    /// How long each stage took on average.
    pub(crate) fn stages(&self) -> String {
        let stats = self.pipeline.stats();
        let each = stats
            .iter()
            .map(|stage| format!("{} {:.1} ms", stage.stage, stage.run_seconds * 1e3 / stage.count.max(1) as f64));
        each.collect::<Vec<_>>().join(", ")
    }
}

fn pipeline(
    this: &DeviceProver<CudaDriver>,
    staging: &Staging,
    ledger: &Ledger,
    pool: &Pool,
    pacing: Pacing,
) -> Result<(Proofs, Receiver<Mark>), Failed> {
    let [synthesise, evaluate, stage_in, compute, assemble] = DEVICE_STAGES;
    let threads = pool.threads();
    let [first, rest, one, two, three, four, five] = [(); 7].map(|()| this.clone());
    let (sender, marks) = channel();
    // Nobody else uses the device, so what is not there now is not there later: then a smaller plan.
    let again = Retry::times(2).within(Duration::from_millis(100));
    let clock = this.devices().device(0).cloned().ok_or("no device")?;
    let builder = Pipeline::builder(ledger, pool, move |_: &Chain| first.profiles(threads).remove(0))
        .alternatives(move |_| rest.profiles(threads))
        .failures(ProveError::failure)
        .pacing(pacing)
        .stage(synthesise, move |cx, circuit| one.prover().synthesise(cx.grant(), circuit))
        .stage(evaluate, move |cx, witness| two.prover().evaluate_for_device(cx.grant(), witness))
        .device_stage(stage_in, this.devices(), move |cx, evaluated| {
            let staging = Instant::now();
            Ok((three.stage_in(cx, evaluated)?, staging))
        })
        .compute_stage_again(compute, this.devices(), again, move |cx, staged| {
            let openings = four.compute(cx, &staged.0)?;
            Ok((openings, staged.1, Instant::now(), clock.driver().busy()))
        })
        .stage(assemble, move |_, (openings, staging, computed, busy)| {
            let proved = five.prover().assemble(openings, blinding());
            // Nobody listens any more at the end.
            let _ = sender.send(Mark { staging, computed, busy, assembled: Instant::now() });
            Ok(proved)
        });
    // The staging memory first: the key is to go through it.
    Ok((this.with_keys(staging.with(builder)).build()?, marks))
}
