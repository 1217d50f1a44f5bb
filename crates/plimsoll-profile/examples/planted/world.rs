//! What the programs have in common: a ledger whose trace is written, and jobs with real buffers.

use std::error::Error;
use std::fs::File;
use std::io::BufWriter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep; // tidy: sleep, work that takes its time in another process
use std::time::{Duration, Instant};

use plimsoll::observe::JsonLines;
use plimsoll::{Budget, Bytes, Charged, Class, Demand, Job, JobSpec, Ledger, Profile, Space};

use super::dice::Dice;

pub(crate) const AUX: Class = Class::new("aux", Space::HOST);
pub(crate) const SCRATCH: Class = Class::new("scratch", Space::HOST);
pub(crate) const CACHE: Class = Class::new("cache", Space::HOST);

/// Pieces in which a buffer is filled.
const PIECES: usize = 4;

/// A run.
pub(crate) struct World {
    pub(crate) ledger: Ledger,
    pub(crate) lines: Arc<JsonLines<BufWriter<File>>>,
    /// What a job holds, more or less.
    pub(crate) bytes: u64,
    /// For how long its first stage runs.
    pub(crate) time: Duration,
    /// How much both differ from job to job.
    pub(crate) noise: f64,
    pub(crate) workers: u64,
    pub(crate) length: Duration,
    pub(crate) period: Duration,
    /// One sample in so many is left out.
    pub(crate) gaps: u64,
    started: Instant,
    jobs: AtomicU64,
}

impl World {
    pub(crate) fn new(dice: &mut Dice, file: &str) -> Result<World, Box<dyn Error>> {
        let (least, most) = dice.choose((2 << 20, 8 << 20), (1 << 19, 14 << 20), (1 << 20, 24 << 20));
        let bytes = dice.between(least, most);
        let (least, most) = dice.choose((8000, 25_000), (4000, 45_000), (5000, 60_000));
        let time = Duration::from_micros(dice.between(least, most));
        let lines = Arc::new(JsonLines::new(BufWriter::new(File::create(file)?)));
        let budget = Budget::new().space(Space::HOST, Bytes(4 << 30)).space(Space::device(0), Bytes(1 << 30));
        let ledger = Ledger::new(budget);
        ledger.observe(lines.clone());
        ledger.announce_limits();
        let noise = dice.choose(0.15, 0.4, 0.6) * dice.part();
        let workers = dice.between(dice.choose(2, 2, 1), dice.choose(3, 5, 6));
        let (least, most) = dice.choose((6000, 6000), (4500, 8500), (8000, 30_000));
        let length = Duration::from_millis(dice.between(least, most));
        let (least, most) = dice.choose((25, 25), (15, 75), (20, 100));
        let period = Duration::from_millis(dice.between(least, most));
        let (least, most) = dice.choose((1000, 1000), (3, 12), (3, 30));
        let gaps = dice.between(least, most);
        let (started, jobs) = (Instant::now(), AtomicU64::new(0));
        Ok(World { ledger, lines, bytes, time, noise, workers, length, period, gaps, started, jobs })
    }

    /// The part of the run that is over.
    pub(crate) fn progress(&self) -> f64 {
        self.started.elapsed().as_secs_f64() / self.length.as_secs_f64()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.progress() >= 1.0
    }

    /// Runs `work` on every worker's thread.
    pub(crate) fn work(&self, dice: &mut Dice, work: impl Fn(&mut Dice) + Sync) {
        std::thread::scope(|scope| {
            for worker in 0..self.workers {
                let (mut dice, work) = (dice.split(worker), &work);
                scope.spawn(move || work(&mut dice));
            }
        });
    }

    /// Ordinary jobs on every worker until the run is over; `each` is called with each job's size between its stages.
    pub(crate) fn jobs(&self, dice: &mut Dice, each: impl Fn(&World, &mut Dice, u64) + Sync) {
        self.work(dice, |dice| {
            while !self.is_over() {
                self.job(dice, 1.0, |world, dice, bytes| each(world, dice, bytes));
            }
        });
    }

    /// One job of two stages, this many times as large as others.
    pub(crate) fn job(&self, dice: &mut Dice, times: f64, each: impl FnOnce(&World, &mut Dice, u64)) {
        let bytes = (dice.about(self.bytes, self.noise) as f64 * times) as u64;
        let made = self.make(dice, bytes);
        each(self, dice, bytes);
        self.consume(dice, made, self.time / 3);
    }

    /// The first stage: what it makes stays charged to the job.
    pub(crate) fn make(&self, dice: &mut Dice, bytes: u64) -> Made {
        let number = self.jobs.fetch_add(1, Ordering::Relaxed);
        let keep = bytes * 3 / 4;
        let profile = Profile::new()
            .stage("make", demand(AUX, keep).bytes(SCRATCH, Bytes(bytes - keep)), demand(AUX, keep))
            .stage("use", demand(AUX, keep), Demand::new());
        let mut job = self.ledger.submit(JobSpec::new(&format!("job {number}"), profile)).expect("it fits");
        let mut grant = job.enter(0).wait().expect("it is granted");
        let mut kept = grant.vec::<u8>(AUX, keep as usize).expect("it is paid");
        let mut scratch = grant.vec::<u8>(SCRATCH, (bytes - keep) as usize).expect("it is paid");
        let time = Duration::from_nanos(dice.about(self.time.as_nanos() as u64, self.noise));
        scratch.resize((bytes - keep) as usize, 3).expect("it has room");
        for piece in 1..=PIECES {
            kept.resize(keep as usize * piece / PIECES, 7).expect("it has room");
            sleep(time / PIECES as u32);
        }
        drop((scratch, grant));
        Made { buffer: kept, job }
    }

    /// The second stage.
    pub(crate) fn consume(&self, dice: &mut Dice, made: Made, time: Duration) {
        let Made { buffer, mut job } = made;
        let grant = job.enter(1).wait().expect("it is granted");
        sleep(Duration::from_nanos(dice.about(time.as_nanos() as u64, self.noise)));
        drop((buffer, grant));
    }

    /// A buffer outside of any job, in the ledger's books.
    pub(crate) fn cached(&self, class: Class, name: &str, bytes: u64) -> Charged<Vec<u8>> {
        let reservation = self.ledger.reserve(class, Bytes(bytes)).name(name).wait().expect("there is room");
        let mut buffer = Charged::<Vec<u8>>::with_capacity(reservation, bytes as usize).expect("it is paid");
        buffer.resize(bytes as usize, 5).expect("it has room");
        buffer
    }

    pub(crate) fn rest(&self, time: Duration) {
        sleep(time);
    }

    /// Writes out what there is of the trace.
    pub(crate) fn finish(self) -> Result<(), Box<dyn Error>> {
        drop(self.ledger);
        // What a program has forgotten may still hold the ledger.
        Ok(self.lines.flush()?)
    }
}

/// What the first stage has made.
pub(crate) struct Made {
    // Freed before the job ends.
    pub(crate) buffer: Charged<Vec<u8>>,
    pub(crate) job: Job,
}

pub(crate) fn demand(class: Class, bytes: u64) -> Demand {
    Demand::new().bytes(class, Bytes(bytes))
}

/// Memory that nobody counts, touched.
pub(crate) fn uncounted(bytes: u64) -> Vec<u8> {
    // It is used, as far as the compiler knows: what nobody reads need not be allocated.
    std::hint::black_box(vec![9; bytes as usize])
}
