//! Programs whose fault begins late or is hidden by something else, and healthy ones that were once taken for faulty.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plimsoll::{Bytes, Demand, JobSpec, Profile, Space};
use plimsoll_profile::diagnose::Verdict;

use super::dice::Dice;
use super::faults::behind_one_consumer;
use super::world::{AUX, CACHE, World, demand, uncounted};
use super::{Needs, Program};

pub(crate) const PROGRAMS: &[Program] = &[
    any("leak-from-late-on", Verdict::Leak, late_leak),
    any("leak-that-speeds-up", Verdict::Leak, accelerating_leak),
    any("leak-of-a-timer", Verdict::Leak, timer_leak),
    any("backlog-fills-budget", Verdict::Backlog, full_backlog),
    any("cache-as-a-root", Verdict::Healthy, root_cache),
    any("tables-that-are-kept", Verdict::Healthy, kept_tables),
    any("one-long-proof", Verdict::Healthy, long_job),
    any("addresses-only", Verdict::Healthy, addresses),
];

const fn any(name: &'static str, verdict: Verdict, run: fn(&World, &mut Dice)) -> Program {
    Program { name, verdict, allocator: Needs::Any, run }
}

fn late_leak(world: &World, dice: &mut Dice) {
    let (from, piece) = (0.5 + 0.2 * dice.part(), world.bytes / dice.between(6, 20));
    let lost = Mutex::new(Vec::new());
    world.jobs(dice, |world, dice, _| {
        if world.progress() > from {
            lost.lock().unwrap().push(uncounted(dice.about(piece, world.noise)));
        }
    });
}

fn accelerating_leak(world: &World, dice: &mut Dice) {
    let whole = (world.bytes * dice.between(3, 8)) as f64;
    grows_as(world, dice, |progress| whole * progress.powi(3));
}

fn root_cache(world: &World, dice: &mut Dice) {
    let whole = (world.bytes * dice.between(2, 8)) as f64;
    grows_as(world, dice, |progress| whole * progress.sqrt());
}

/// Memory that nobody counts follows the run's progress.
fn grows_as(world: &World, dice: &mut Dice, bytes: impl Fn(f64) -> f64 + Sync) {
    let (kept, there) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    world.jobs(dice, |world, _, _| {
        let due = bytes(world.progress().min(1.0)) as u64;
        let more = due.saturating_sub(there.fetch_max(due, Ordering::Relaxed));
        if more > 0 {
            kept.lock().unwrap().push(uncounted(more));
        }
    });
}

/// A thread of its own leaks by the second; there is seldom anything to do.
fn timer_leak(world: &World, dice: &mut Dice) {
    let (pause, over) = (world.length / dice.between(6, 12) as u32, AtomicBool::new(false));
    let piece = world.bytes * dice.between(2, 6) / 200;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut lost = Vec::new();
            while !over.load(Ordering::Relaxed) {
                lost.push(uncounted(piece));
                world.rest(world.length / 200);
            }
        });
        world.work(dice, |dice| {
            while !world.is_over() {
                for _ in 0..dice.between(2, 6) {
                    world.job(dice, 1.0, |_, _, _| {});
                }
                world.rest(pause);
            }
        });
        over.store(true, Ordering::Relaxed);
    });
}

/// What is made waits for one consumer, and the budget is full of it before the middle.
fn full_backlog(world: &World, dice: &mut Dice) {
    let room = world.bytes as f64 * (10.0 + 6.0 * dice.part()) * 0.5;
    world.ledger.resize(Space::HOST, Bytes(room as u64)).expect("the budget names it");
    let each = world.time.mul_f64((2.0 + dice.part()) / world.workers as f64);
    behind_one_consumer(world, dice, |_, _| each);
}

/// Tables are made when they are first needed, one for each circuit, and kept in the books.
fn kept_tables(world: &World, dice: &mut Dice) {
    let tables = Mutex::new(Vec::new());
    let count = dice.between(2, 4) as usize;
    let bytes = world.bytes / 2;
    world.jobs(dice, |world, _, _| {
        let due = (world.progress() * (count + 1) as f64) as usize;
        let mut tables = tables.lock().unwrap();
        if tables.len() < due.min(count) {
            tables.push(world.cached(CACHE, "table of a circuit", bytes));
        }
    });
}

/// One job takes many times as long as all others, beside them.
fn long_job(world: &World, dice: &mut Dice) {
    let (begun, part) = (AtomicBool::new(false), 0.2 + 0.15 * dice.part());
    world.work(dice, |dice| {
        while !world.is_over() {
            if world.workers > 1 && world.progress() > 0.6 && !begun.swap(true, Ordering::Relaxed) {
                let profile = Profile::new().stage("make", demand(AUX, world.bytes), Demand::new());
                let mut job = world.ledger.submit(JobSpec::new("the long one", profile)).expect("it fits");
                let mut grant = job.enter(0).wait().expect("it is granted");
                let mut buffer = grant.vec::<u8>(AUX, world.bytes as usize).expect("it is paid");
                buffer.resize(world.bytes as usize, 1).expect("it has room");
                world.rest(world.length.mul_f64(part));
                drop((buffer, grant));
            }
            world.job(dice, 1.0, |_, _, _| {});
        }
    });
}

/// Addresses are asked for and never touched.
fn addresses(world: &World, dice: &mut Dice) {
    let asked = Mutex::new(Vec::new());
    // Large enough for mappings of their own, in any allocator.
    let piece = (world.bytes as usize).max(4 << 20);
    world.jobs(dice, |_, _, _| {
        asked.lock().unwrap().push(std::hint::black_box(Vec::<u8>::with_capacity(piece)));
    });
}
