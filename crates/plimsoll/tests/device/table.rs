//! One table: every kind of stage, at every place of a pipeline, against everything that can go wrong with it.
//!
//! In each cell one job runs into the fault. It ends as the table says, with everything given back; where the pipeline is still
//! there, the next job gets through; and when it was dropped, no thread is left on the card.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Wake;
use std::time::Duration;

use plimsoll::device::simulate::{CardSpec, Simulated};
use plimsoll::device::{Device, DeviceConfig, DeviceError, DeviceSet, LeaseCx};
use plimsoll::ledger::{EnterError, TakeError, VecError};
use plimsoll::pipeline::{Builder, Carrier, Errand, FanIn, JobError, JobOptions, Pipeline, Runtime, StageCx};
use plimsoll::pool::{Pool, PoolConfig, Shutdown};
use plimsoll::{Budget, Bytes, Charged, Class, Demand, Grant, Ledger, Profile, Space};

use crate::hands::{Hands, Polled, once_around};
use crate::support::input;

const BUFFER: Class = Class::new("buffer", Space::HOST);
const PART: Class = Class::new("part", Space::HOST);
/// Needed by the stage under test: whoever holds it keeps jobs in front of that stage.
const GATE: Class = Class::new("gate", Space::device(7));
const STAGES: [&str; 3] = ["one", "two", "three"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Worker,
    Carried,
    Lane,
    Lease,
    /// A stage that runs on a device or on a worker: by a profile with a lease, and by one without.
    EitherOnDevice,
    EitherOnWorker,
    Future,
    Parts,
}

const KINDS: [Kind; 8] = [
    Kind::Worker,
    Kind::Carried,
    Kind::Lane,
    Kind::Lease,
    Kind::EitherOnDevice,
    Kind::EitherOnWorker,
    Kind::Future,
    Kind::Parts,
];

impl Kind {
    fn is_on_device(self) -> bool {
        matches!(self, Kind::Lane | Kind::Lease | Kind::EitherOnDevice)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    Error,
    Panic,
    /// The job is cancelled while it waits in front of the stage.
    CancelledBefore,
    /// In the middle of the stage: the job is cancelled, its time is up, the pipeline is dropped, the pool aborted.
    CancelledInside,
    TimedOut,
    Dropped,
    Aborted,
    /// The device is lost in the middle of the stage.
    DeviceLost,
    /// What is to run the stage is gone before it begins: carrier, runtime, device.
    Gone,
}

const FAULTS: [Fault; 10] = [
    Fault::Nothing,
    Fault::Error,
    Fault::Panic,
    Fault::CancelledBefore,
    Fault::CancelledInside,
    Fault::TimedOut,
    Fault::Dropped,
    Fault::Aborted,
    Fault::DeviceLost,
    Fault::Gone,
];

/// How a job ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Result,
    Failed,
    Panicked,
    Cancelled,
    TimedOut,
    ShutDown,
    Forsaken,
    Lost,
}

/// The table.
fn endings(kind: Kind, is_last: bool, fault: Fault) -> Vec<Ending> {
    // A stage that runs on a thread is told, and ends as it likes: the last one with a result. A future is dropped where it is,
    // and a job that has split never joins.
    let stopped = |ending| match kind {
        Kind::Future | Kind::Parts => ending,
        _ if is_last => Ending::Result,
        _ => ending,
    };
    let on_device = kind.is_on_device();
    match fault {
        Fault::Nothing => vec![Ending::Result],
        Fault::Error => vec![Ending::Failed],
        Fault::Panic => vec![Ending::Panicked],
        Fault::CancelledBefore => vec![Ending::Cancelled],
        Fault::CancelledInside => vec![stopped(Ending::Cancelled)],
        // It may be up before the stage begins.
        Fault::TimedOut => vec![stopped(Ending::TimedOut), Ending::TimedOut],
        Fault::Dropped | Fault::Aborted => vec![stopped(Ending::ShutDown)],
        Fault::DeviceLost | Fault::Gone if on_device => vec![Ending::Lost],
        Fault::DeviceLost => vec![Ending::Result],
        Fault::Gone => match kind {
            Kind::Carried | Kind::Future => vec![Ending::Forsaken],
            // A pool that has ended: see `Aborted`.
            _ => Vec::new(),
        },
    }
}

fn ending_of<T>(ended: &Result<T, JobError<Told>>) -> Ending {
    match ended {
        Ok(_) => Ending::Result,
        Err(JobError::Part { source, .. }) => match &*source.0 {
            JobError::Panicked { .. } => Ending::Panicked,
            JobError::Stage { source: Told::Fail, .. } => Ending::Failed,
            other => panic!("a part ended with {other:?}"),
        },
        Err(JobError::Stage { source: Told::Device(DeviceError::Lost(_)), .. }) => Ending::Lost,
        Err(JobError::NotEntered { source, .. }) if matches!(**source, EnterError::Lost(_)) => Ending::Lost,
        Err(JobError::Stage { source: Told::Fail, .. }) => Ending::Failed,
        Err(JobError::Panicked { message, .. }) if message == "told to" => Ending::Panicked,
        Err(JobError::Cancelled { .. }) => Ending::Cancelled,
        Err(JobError::TimedOut { .. }) => Ending::TimedOut,
        Err(JobError::ShutDown { .. }) => Ending::ShutDown,
        Err(JobError::Forsaken { .. }) => Ending::Forsaken,
        Err(other) => panic!("{other:?}"),
    }
}

#[derive(Debug, thiserror::Error)]
enum Told {
    #[error("told to fail")]
    Fail,
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Vec(#[from] VecError),
    #[error(transparent)]
    Take(#[from] TakeError),
}

/// What travels.
type Load = Option<Charged<Vec<u8>>>;

fn loaded(load: Load, grant: &mut Grant) -> Result<Load, Told> {
    Ok(Some(match load {
        Some(buffer) => buffer,
        None => grant.vec(BUFFER, 16)?,
    }))
}

/// What the job that runs into the fault does in the stage under test.
#[derive(Clone)]
struct Script {
    fault: Fault,
    begun: mpsc::Sender<()>,
    device: Device<Simulated>,
}

impl Script {
    fn is_inside(&self) -> bool {
        matches!(self.fault, Fault::CancelledInside | Fault::TimedOut | Fault::Dropped | Fault::Aborted)
    }

    fn act(&self, job: &str, is_cancelled: impl Fn() -> bool) -> Result<(), Told> {
        if !job.starts_with("victim") {
            return Ok(());
        }
        match self.fault {
            Fault::Error => return Err(Told::Fail),
            Fault::Panic => panic!("told to"),
            Fault::DeviceLost => drop(self.device.give_up("told to")),
            _ if self.is_inside() => {
                let _ = self.begun.send(());
                while !is_cancelled() {
                    std::thread::yield_now();
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn compute(script: &Script, cx: &mut LeaseCx<'_, Simulated>, load: Load) -> Result<Load, Told> {
    let load = loaded(load, cx.grant())?;
    let memory = cx.upload(input(0), &[1; 4])?;
    let job = cx.grant().job().to_owned();
    script.act(&job, || cx.is_cancelled())?;
    cx.call(|lane| lane.kernel(Duration::from_micros(1), &[memory.memory()], || ()))?;
    Ok(load)
}

/// A carrier, or runtime, that may be gone.
struct MayBeGone(Hands, Arc<AtomicBool>);

impl Carrier for MayBeGone {
    fn carry(&self, errand: Errand) {
        if !self.1.load(Ordering::SeqCst) {
            self.0.carry(errand);
        }
    }
}

/// Everything around one cell.
struct Cell {
    ledger: Ledger,
    pool: Pool,
    card: Simulated,
    set: DeviceSet<Simulated>,
    is_gone: Arc<AtomicBool>,
    hands: Hands,
}

impl Cell {
    fn new(hands: &Hands) -> Cell {
        let budget = Budget::new().space(Space::HOST, Bytes(1000)).space(GATE.space(), Bytes(1));
        let ledger = Ledger::new(budget.device(0, Bytes(100), 2));
        let card = Simulated::new(CardSpec { memory: Bytes(100), ..CardSpec::default() });
        let device = Device::start(0, card.clone(), &ledger, DeviceConfig::default()).expect("a device");
        let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).expect("threads");
        Cell { ledger, pool, card, set: DeviceSet::new([device]), is_gone: Arc::default(), hands: hands.clone() }
    }

    fn profile(kind: Kind, place: usize) -> Profile {
        let buffer = || Demand::new().bytes(BUFFER, Bytes(16));
        STAGES.iter().enumerate().fold(Profile::new(), |profile, (at, stage)| {
            if at != place {
                return profile.stage(stage, buffer(), buffer());
            }
            let gated = buffer().bytes(GATE, Bytes(1));
            let (peak, parts) = match kind {
                Kind::Lane => (gated.on_lane(0).bytes(input(0), Bytes(4)), 0),
                Kind::Lease | Kind::EitherOnDevice => (gated.on_lease(0).bytes(input(0), Bytes(4)), 0),
                Kind::Parts => (gated, 2),
                _ => (gated, 0),
            };
            profile.stage(stage, peak, buffer()).parts(parts, &part())
        })
    }

    fn build(&self, kind: Kind, place: usize, script: &Script) -> Pipeline<Load, Load, Told> {
        let mut builder = Pipeline::builder(&self.ledger, &self.pool, move |_| Cell::profile(kind, place));
        for (at, name) in STAGES.into_iter().enumerate() {
            builder = if at == place {
                self.stage_of(kind, builder, name, script.clone())
            } else {
                builder.stage(name, |cx, load| loaded(load, cx.grant()))
            };
        }
        builder.build().expect("a pipeline")
    }

    fn stage_of(
        &self,
        kind: Kind,
        builder: Builder<Load, Load, Told>,
        name: &'static str,
        script: Script,
    ) -> Builder<Load, Load, Told> {
        let on_thread = |script: Script| {
            move |cx: &mut StageCx<'_>, load: Load| {
                let load = loaded(load, cx.grant())?;
                script.act(cx.job_name(), || cx.is_cancelled()).map(|()| load)
            }
        };
        match kind {
            Kind::Worker => builder.stage(name, on_thread(script)),
            Kind::Carried => {
                let carrier: Arc<dyn Carrier> = Arc::new(MayBeGone(self.hands.clone(), self.is_gone.clone()));
                builder.stage_on(name, &carrier, on_thread(script))
            }
            Kind::Lane => builder.device_stage(name, &self.set, move |cx, load| {
                let load = loaded(load, cx.grant())?;
                let job = cx.grant().job().to_owned();
                script.act(&job, || cx.is_cancelled())?;
                drop(cx.upload(input(0), &[1; 4])?);
                Ok(load)
            }),
            Kind::Lease => builder.compute_stage(name, &self.set, move |cx, load| compute(&script, cx, load)),
            Kind::EitherOnDevice | Kind::EitherOnWorker => {
                let on_worker = on_thread(script.clone());
                let on_device = move |cx: &mut LeaseCx<'_, Simulated>, load| compute(&script, cx, load);
                builder.compute_stage_or(name, &self.set, on_device, on_worker)
            }
            Kind::Future => {
                let (hands, is_gone) = (self.hands.clone(), self.is_gone.clone());
                let runtime = Runtime::new(move |task| {
                    if !is_gone.load(Ordering::SeqCst) {
                        Polled::new(hands.clone(), task).wake();
                    }
                });
                builder.async_stage(name, &runtime, move |cx, load: Load| {
                    let script = script.clone();
                    async move {
                        once_around().await;
                        let load = cx.with_grant(|grant| loaded(load, grant)).expect("it has not ended")?;
                        if cx.job_name() == "victim" && script.is_inside() {
                            let _ = script.begun.send(());
                            std::future::pending::<()>().await;
                        }
                        script.act(cx.job_name(), || true)?;
                        once_around().await;
                        Ok(load)
                    }
                })
            }
            Kind::Parts => builder.fan_out(
                name,
                |cx, load: Load| Ok((loaded(load, cx.grant())?, [0, 1])),
                |_| part(),
                move |parts| {
                    parts.stage("part", move |cx: &mut StageCx<'_>, at: usize| {
                        let _scratch = cx.grant().take_all(PART);
                        script.act(cx.job_name(), || cx.is_cancelled()).map(|()| at)
                    })
                },
                FanIn::InOrder,
                |_, load, made| {
                    assert_eq!(made, [(0, 0), (1, 1)]);
                    Ok(load)
                },
            ),
        }
    }

    /// Blocks until the job waits in front of the stage under test.
    fn until_parked(&self, stage: &str) {
        let is_it = |waiter: &plimsoll::ledger::snapshot::Waiter| waiter.stage == Some(stage);
        while !self.ledger.snapshot().waiters.iter().any(is_it) {
            std::thread::yield_now();
        }
    }

    fn check(self, kind: Kind, place: usize, fault: Fault) {
        let what = format!("{kind:?} in stage {}, {fault:?}", STAGES[place]);
        let (begun, has_begun) = mpsc::channel();
        let script = Script { fault, begun, device: self.set.devices()[0].clone() };
        let pipeline = self.build(kind, place, &script);
        let on_device = kind.is_on_device();
        let waits = fault == Fault::CancelledBefore || (fault == Fault::Gone && on_device);
        let gate = waits.then(|| self.ledger.reserve(GATE, Bytes(1)).try_now().expect("free"));
        self.is_gone.store(fault == Fault::Gone && !on_device, Ordering::SeqCst);
        let mut options = JobOptions::new("victim");
        if fault == Fault::TimedOut {
            options = options.timeout(Duration::from_micros(500));
        }
        let ticket = pipeline.submit(options, None).expect("taken on");
        let mut pipeline = Some(pipeline);
        match fault {
            Fault::CancelledBefore => {
                self.until_parked(STAGES[place]);
                // It ends while the gate is still shut: now, or when the worker that asked for it has put it down.
                ticket.cancel();
            }
            Fault::CancelledInside => {
                has_begun.recv().expect("it begins");
                ticket.cancel();
            }
            Fault::Dropped => {
                has_begun.recv().expect("it begins");
                pipeline = None;
                assert!(ticket.has_ended(), "{what}");
            }
            Fault::Aborted => {
                has_begun.recv().expect("it begins");
                self.pool.shutdown(Shutdown::Abort);
                assert!(ticket.has_ended(), "{what}");
            }
            Fault::Gone if on_device => {
                self.until_parked(STAGES[place]);
                script.device.give_up("told to");
            }
            _ => {}
        }
        let ended = ticket.wait();
        let (ending, allowed) = (ending_of(&ended), endings(kind, place == 2, fault));
        assert!(allowed.contains(&ending), "{what}: it ended with {ending:?}, not {allowed:?}");
        drop((ended, gate));
        self.is_gone.store(false, Ordering::SeqCst);
        if let Some(pipeline) = pipeline {
            let next = pipeline.submit("next", None).map_err(|rejected| rejected.reason.to_string());
            let is_lost = on_device && matches!(fault, Fault::DeviceLost | Fault::Gone);
            match next {
                Ok(ticket) => assert!(ticket.wait().is_ok(), "{what}: the next job"),
                Err(reason) => assert!(is_lost || fault == Fault::Aborted, "{what}: the next job: {reason}"),
            }
        }
        self.ledger.quiesce(Duration::from_secs(60)).expect("quiet");
        let snapshot = self.ledger.snapshot();
        assert!(snapshot.is_empty() && snapshot.outlived == 0, "{what}: {snapshot:?}");
        let Cell { card, set, .. } = self;
        drop((script, set));
        let stats = card.stats();
        assert_eq!((stats.open_lanes, stats.allocated_bytes), (0, Bytes::ZERO), "{what}");
        // Nobody is asked whether a lost device is still at something.
        assert!(stats.freed_in_use == 0 || fault == Fault::DeviceLost, "{what}");
    }
}

fn part() -> Profile {
    Profile::new().stage("part", Demand::new().bytes(PART, Bytes(4)), Demand::new())
}

#[test]
fn every_kind_of_stage_meets_every_fault() {
    let hands = Hands::new();
    let mut cells = 0;
    for kind in KINDS {
        for place in 0..STAGES.len() {
            for fault in FAULTS {
                if !endings(kind, place == 2, fault).is_empty() {
                    Cell::new(&hands).check(kind, place, fault);
                    cells += 1;
                }
            }
        }
    }
    assert_eq!(cells, 3 * (8 * 10 - 3));
}
