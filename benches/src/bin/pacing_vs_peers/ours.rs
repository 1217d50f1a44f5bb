//! The same work as a pipeline.

use std::fs;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use plimsoll::pipeline::{Carrier, Errand, Pipeline};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Class, Demand, Grant, Ledger, Profile, Reservation, Space};

use crate::work::{self, Buffer, Clock, Run};

const AUX: Class = Class::new("aux", Space::HOST);
const ABC: Class = Class::new("abc", Space::HOST);
const SCRATCH: Class = Class::new("scratch", Space::HOST);
/// As many as the peers' tasks that can be at work at once on such a machine; they sleep.
const THREADS: usize = 32;

type Error = Box<dyn std::error::Error + Send + Sync>;
/// Buffers with what pays for them: freed first, returned after.
type Paid = (Buffer, Reservation);

/// One thread that runs what it is given, in order.
struct DeviceThread(mpsc::Sender<Errand>);

impl Carrier for DeviceThread {
    fn carry(&self, errand: Errand) {
        let _ = self.0.send(errand);
    }
}

fn device_thread() -> Arc<dyn Carrier> {
    let (sender, errands) = mpsc::channel::<Errand>();
    std::thread::spawn(move || errands.into_iter().for_each(Errand::run));
    Arc::new(DeviceThread(sender))
}

fn bytes(units: u64) -> Bytes {
    Bytes(units * work::UNIT_BYTES as u64)
}

fn profile() -> Profile {
    let witness = Demand::new().bytes(AUX, bytes(work::AUX));
    let evaluated = witness.clone().bytes(ABC, bytes(work::ABC));
    Profile::new()
        .stage("witness", witness.clone(), witness.clone())
        .stage("evaluate", evaluated.clone().bytes(SCRATCH, bytes(work::COPY)), evaluated.clone())
        .stage("device", evaluated, witness.clone())
        .stage("finish", witness.bytes(SCRATCH, bytes(work::SPLIT)), Demand::new())
}

fn take(grant: &mut Grant, class: Class, units: u64) -> Result<Reservation, Error> {
    Ok(grant.take(class, bytes(units))?)
}

fn pipeline(ledger: &Ledger, pool: &Pool, clock: &Arc<Clock>) -> Pipeline<(), (), Error> {
    let clock = clock.clone();
    Pipeline::builder(ledger, pool, |_: &()| profile())
        .stage("witness", |cx, ()| {
            let paid = take(cx.grant(), AUX, work::AUX)?;
            Ok::<Paid, Error>((work::witness(), paid))
        })
        .stage("evaluate", |cx, aux: Paid| {
            let paid = take(cx.grant(), ABC, work::ABC)?;
            Ok((aux, (work::evaluate(), paid)))
        })
        .stage_on("device", &device_thread(), |_, (aux, (abc, paid)): (Paid, Paid)| {
            work::device(abc);
            drop(paid);
            Ok(aux)
        })
        .at_most(1)
        .stage("finish", move |_, (aux, paid): Paid| {
            work::finish(aux);
            drop(paid);
            clock.done();
            Ok(())
        })
        .build()
        .expect("the stages are those of the profile")
}

/// Runs jobs within a line of so many units.
pub(crate) fn run(line: u64, jobs: usize) -> Run {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, bytes(line)));
    let pool = Pool::new(PoolConfig { threads: THREADS, ..PoolConfig::default() }).expect("threads");
    let clock = Arc::new(Clock::start());
    let pipeline = pipeline(&ledger, &pool, &clock);
    for (_, result) in pipeline.run_all((0..jobs).map(|job| (format!("job {job}"), ()))) {
        result.expect("no stage fails");
    }
    if let Some(pace) = pipeline.pace() {
        let ropes: Vec<_> =
            pace.ropes.iter().map(|rope| format!("{} … {}: {}", rope.first, rope.last, rope.tokens)).collect();
        println!(
            "(plimsoll at {}: drum {}, a = {:.1}, spread {:.3}, jobs from {})",
            work::units(line),
            pace.drum.unwrap_or("?"),
            pace.pace.on_the_way,
            pace.pace.spread,
            ropes.join(", ")
        );
    }
    clock.stop()
}

/// How long it was watched, and the CPU time that the process took meanwhile, while every job waits for memory.
pub(crate) fn idle(watch: Duration) -> (Duration, u64) {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, bytes(work::PEAK_UNITS)));
    let pool = Pool::new(PoolConfig { threads: THREADS, ..PoolConfig::default() }).expect("threads");
    let pipeline = pipeline(&ledger, &pool, &Arc::new(Clock::start()));
    let in_the_way = ledger.reserve(SCRATCH, bytes(work::PEAK_UNITS)).wait().expect("it fits");
    let tickets: Vec<_> = (0..100).map(|job| pipeline.submit(format!("job {job}"), ()).expect("taken on")).collect();
    let (started, before) = (Instant::now(), cpu_ticks());
    std::thread::sleep(watch); // tidy: sleep (it watches)
    let (wall, ticks) = (started.elapsed(), cpu_ticks() - before);
    tickets.iter().for_each(|ticket| ticket.cancel());
    drop((tickets, in_the_way));
    (wall, ticks)
}

/// User and system time of the process so far, in clock ticks (proc(5)).
fn cpu_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    fields.get(11..13).map_or(0, |times| times.iter().filter_map(|ticks| ticks.parse::<u64>().ok()).sum())
}
