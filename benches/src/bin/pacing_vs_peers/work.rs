//! The work that all engines do: the same buffers and the same times.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What stands for a GiB.
pub(crate) const UNIT_BYTES: usize = 256 << 10;
/// What stands for a second.
const SECOND: Duration = Duration::from_millis(8);

/// Witness; evaluations; the copy of the witness that evaluating needs; what finishing needs. In units.
pub(crate) const AUX: u64 = 4;
pub(crate) const ABC: u64 = 12;
pub(crate) const COPY: u64 = 4;
pub(crate) const SPLIT: u64 = 3;
/// The most that a job holds.
pub(crate) const PEAK_UNITS: u64 = AUX + ABC + COPY;

static HELD: AtomicU64 = AtomicU64::new(0);
static PEAK: AtomicU64 = AtomicU64::new(0);
/// When the device was busy.
static BUSY: Mutex<Vec<(Instant, Instant)>> = Mutex::new(Vec::new());
static SIDE_BY_SIDE: AtomicU64 = AtomicU64::new(0);

/// Memory that is really there. It counts itself.
#[derive(Debug)]
pub(crate) struct Buffer(Vec<u8>);

impl Buffer {
    pub(crate) fn new(units: u64) -> Self {
        let held = HELD.fetch_add(units, Ordering::Relaxed) + units;
        PEAK.fetch_max(held, Ordering::Relaxed);
        let mut bytes = vec![0; units as usize * UNIT_BYTES];
        bytes.iter_mut().step_by(4096).for_each(|page| *page = 1);
        Self(bytes)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let units = (std::mem::take(&mut self.0).len() / UNIT_BYTES) as u64;
        HELD.fetch_sub(units, Ordering::Relaxed);
    }
}

/// Works for so many seconds of the real thing, and so many more for each job beside it.
fn contended(alone: f64, each: f64) {
    let beside = SIDE_BY_SIDE.fetch_add(1, Ordering::Relaxed);
    sleep(alone + each * beside as f64);
    SIDE_BY_SIDE.fetch_sub(1, Ordering::Relaxed);
}

fn sleep(seconds: f64) {
    std::thread::sleep(SECOND.mul_f64(seconds)); // tidy: sleep (it is the work)
}

pub(crate) fn witness() -> Buffer {
    let aux = Buffer::new(AUX);
    contended(22.0, 0.64);
    aux
}

pub(crate) fn evaluate() -> Buffer {
    let (abc, copy) = (Buffer::new(ABC), Buffer::new(COPY));
    contended(7.0, 0.21);
    drop(copy);
    abc
}

pub(crate) fn device(abc: Buffer) {
    let began = Instant::now();
    sleep(3.65);
    BUSY.lock().expect("no panics").push((began, Instant::now()));
    drop(abc);
}

pub(crate) fn finish(aux: Buffer) {
    let split = Buffer::new(SPLIT);
    sleep(1.9);
    drop((split, aux));
}

/// Units as people read them.
pub(crate) fn units(units: u64) -> String {
    format!("{:.1} MiB", (units * UNIT_BYTES as u64) as f64 / f64::from(1 << 20))
}

/// What came of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Jobs a second, once the line is full.
    pub(crate) rate: f64,
    /// The part of that time in which the device was busy: whatever else the machine did, its sleeps may be longer, but not
    /// more of them.
    pub(crate) busy: f64,
    pub(crate) peak_units: u64,
    /// From the first job to the last.
    pub(crate) seconds: f64,
}

/// When each job was done.
pub(crate) struct Clock {
    started: Instant,
    done: Mutex<Vec<Instant>>,
}

impl Clock {
    pub(crate) fn start() -> Self {
        BUSY.lock().expect("no panics").clear();
        PEAK.store(HELD.load(Ordering::Relaxed), Ordering::Relaxed);
        Self { started: Instant::now(), done: Mutex::default() }
    }

    pub(crate) fn done(&self) {
        self.done.lock().expect("no panics").push(Instant::now());
    }

    /// The first fifth fills the line, and the last jobs empty it.
    pub(crate) fn stop(&self) -> Run {
        let done = self.done.lock().expect("no panics");
        let (from, to) = (done.len() / 5, done.len() - 1);
        let seconds = (done[to] - self.started).as_secs_f64();
        let rate = (to - from) as f64 / (done[to] - done[from]).as_secs_f64();
        let inside = |&(began, ended): &(Instant, Instant)| {
            ended.min(done[to]).saturating_duration_since(began.max(done[from])).as_secs_f64()
        };
        let busy: f64 = BUSY.lock().expect("no panics").iter().map(inside).sum();
        let busy = busy / (done[to] - done[from]).as_secs_f64();
        Run { rate, busy, peak_units: PEAK.load(Ordering::Relaxed), seconds }
    }
}
