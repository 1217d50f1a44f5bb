//! Programs of other shapes: jobs of three stages, faults that are driven by jobs and not by the clock, so that a slow machine plants
//! them as well.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use plimsoll::{Charged, Demand, JobSpec, Profile};
use plimsoll_profile::diagnose::Verdict;

use super::dice::Dice;
use super::world::{AUX, CACHE, Made, World, demand, uncounted};
use super::{Needs, Program};

pub(crate) const PROGRAMS: &[Program] = &[
    any("table-of-all-jobs", Verdict::Leak, table_of_all_jobs),
    any("log-that-doubles", Verdict::Leak, log_that_doubles),
    any("cache-of-each-thread", Verdict::Leak, cache_of_each_thread),
    any("forgotten-charged", Verdict::StuckCharge, forgotten_charged),
    any("registry-of-results", Verdict::StuckCharge, registry_of_results),
    any("charge-that-grows", Verdict::StuckCharge, charge_that_grows),
    any("queue-between-stages", Verdict::Backlog, queue_between_stages),
    any("queue-of-results", Verdict::Backlog, queue_of_results),
    any("short-of-a-fifth", Verdict::Uncounted, short_of_a_fifth),
    any("short-in-the-last", Verdict::Uncounted, short_in_the_last),
    any("kept-undeclared", Verdict::Uncounted, kept_undeclared),
    Program { allocator: Needs::Jemalloc, ..any("survivors", Verdict::Fragmentation, survivors) },
    Program { allocator: Needs::Jemalloc, ..any("survivors-of-jobs", Verdict::Fragmentation, survivors_of_jobs) },
    Program {
        allocator: Needs::Hoarding,
        ..any("kept-after-large-jobs", Verdict::AllocatorRetention, large_jobs_first)
    },
    any("ceiling-of-many", Verdict::Ceiling, ceiling_of_many),
    any("three-stages", Verdict::Healthy, |world, dice| stages(world, dice, |_, _, _, _| None)),
    any("warm-up-of-half", Verdict::Healthy, warm_up_of_half),
    any("cache-full-at-half", Verdict::Healthy, cache_full_at_half),
    any("scratch-of-each-thread", Verdict::Healthy, scratch_of_each_thread),
    any("seldom-busy", Verdict::Healthy, seldom_busy),
    any("a-little-beside", Verdict::Healthy, a_little_beside),
    any("queue-that-is-bounded", Verdict::Healthy, queue_that_is_bounded),
];

const fn any(name: &'static str, verdict: Verdict, run: fn(&World, &mut Dice)) -> Program {
    Program { name, verdict, allocator: Needs::Any, run }
}

/// Jobs of three stages on every worker; `beside` gives what a stage holds that nobody counts.
fn stages(world: &World, dice: &mut Dice, beside: impl Fn(&World, &mut Dice, usize, u64) -> Option<Vec<u8>> + Sync) {
    let number = AtomicU64::new(0);
    world.work(dice, |dice| {
        while !world.is_over() {
            let bytes = dice.about(world.bytes, world.noise);
            let (first, last) = (bytes / 2, bytes / 4);
            let profile = Profile::new()
                .stage("read", demand(AUX, first), demand(AUX, first))
                .stage("compute", demand(AUX, bytes), demand(AUX, last))
                .stage("write", demand(AUX, last), Demand::new());
            let name = format!("trip {}", number.fetch_add(1, Ordering::Relaxed));
            let mut job = world.ledger.submit(JobSpec::new(&name, profile)).expect("it fits");
            let mut held: Vec<Charged<Vec<u8>>> = Vec::new();
            for (stage, more) in [first, bytes - first, 0].into_iter().enumerate() {
                let mut grant = job.enter(stage).wait().expect("it is granted");
                if stage == 2 {
                    held.truncate(1);
                }
                if more > 0 {
                    let parts = if stage == 0 { vec![last, more - last] } else { vec![more] };
                    for part in parts {
                        let mut buffer = grant.vec::<u8>(AUX, part as usize).expect("it is paid");
                        buffer.resize(part as usize, 3).expect("it has room");
                        held.push(buffer);
                    }
                }
                let more = beside(world, dice, stage, bytes);
                let time = Duration::from_nanos(dice.about(world.time.as_nanos() as u64 / 2, world.noise));
                world.rest(time);
                if stage == 1 {
                    held.truncate(1);
                }
                drop(more);
                if stage == 2 {
                    held.clear();
                }
                drop(grant);
            }
        }
    });
}

fn table_of_all_jobs(world: &World, dice: &mut Dice) {
    let table = Mutex::new(Vec::new());
    let entry = world.bytes / dice.between(20, 60);
    world.jobs(dice, |_, _, _| table.lock().unwrap().push(uncounted(entry)));
}

fn log_that_doubles(world: &World, dice: &mut Dice) {
    let log = Mutex::new(Vec::new());
    let (entry, noise) = (world.bytes / dice.between(20, 60), world.noise);
    world.jobs(dice, |_, dice, _| log.lock().unwrap().extend(vec![4_u8; dice.about(entry, noise) as usize]));
}

thread_local! {
    static MINE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

fn cache_of_each_thread(world: &World, dice: &mut Dice) {
    let (entry, seldom) = (world.bytes / dice.between(8, 20), dice.between(1, 3));
    world.jobs(dice, |_, dice, _| {
        if dice.one_in(seldom) {
            MINE.with_borrow_mut(|mine| mine.push(uncounted(entry)));
        }
    });
}

fn forgotten_charged(world: &World, dice: &mut Dice) {
    let (part, seldom) = (dice.between(8, 30), dice.between(1, 4));
    world.jobs(dice, |world, dice, bytes| {
        let result = world.cached(CACHE, "result", bytes / part);
        if dice.one_in(seldom) {
            std::mem::forget(result);
        }
    });
}

fn registry_of_results(world: &World, dice: &mut Dice) {
    let registry = Mutex::new(std::collections::HashMap::new());
    let part = dice.between(10, 40);
    let key = AtomicU64::new(0);
    world.jobs(dice, |world, _, bytes| {
        let result = world.cached(CACHE, "registered", bytes / part);
        registry.lock().unwrap().insert(key.fetch_add(1, Ordering::Relaxed), result);
    });
}

fn charge_that_grows(world: &World, dice: &mut Dice) {
    let part = world.bytes / dice.between(10, 40);
    let index = world.ledger.reserve(CACHE, plimsoll::Bytes(part)).name("index").wait().expect("there is room");
    let index = Mutex::new(index);
    world.jobs(dice, |_, _, _| index.lock().unwrap().try_grow(plimsoll::Bytes(part)).expect("there is room"));
}

/// Of so many that are made one is used later: what waits between the stages grows.
fn queue_between_stages(world: &World, dice: &mut Dice) {
    let (products, made) = mpsc::channel::<Made>();
    let behind = dice.between(2, 4);
    let made = Mutex::new((made, 0_u64));
    world.work(dice, |dice| {
        while !world.is_over() {
            let bytes = dice.about(world.bytes / 4, world.noise);
            products.send(world.make(dice, bytes)).expect("it is taken");
            let next = {
                let mut made = made.lock().unwrap();
                made.1 += 1;
                if made.1.is_multiple_of(behind) { made.0.try_recv().ok() } else { None }
            };
            if let Some(next) = next {
                world.consume(dice, next, world.time / 8);
            }
        }
    });
}

fn queue_of_results(world: &World, dice: &mut Dice) {
    let queue = Mutex::new((VecDeque::new(), 0_u64));
    let (part, of) = (dice.between(8, 20), dice.between(3, 5));
    world.jobs(dice, |world, _, bytes| {
        let result = world.cached(CACHE, "result", bytes / part);
        let mut queue = queue.lock().unwrap();
        queue.0.push_back(result);
        queue.1 += 1;
        if !queue.1.is_multiple_of(of) {
            queue.0.pop_front();
        }
        // The first ones are not taken at once.
        if queue.1 < 4 {
            queue.1 = 4;
        }
    });
}

/// The middle stage declares a fifth to a third too little, and there is never a rest.
fn short_of_a_fifth(world: &World, dice: &mut Dice) {
    let part = 0.2 + 0.13 * dice.part();
    stages(world, dice, |_, _, stage, bytes| (stage == 1).then(|| uncounted((bytes as f64 * part) as u64)));
}

fn short_in_the_last(world: &World, dice: &mut Dice) {
    let part = dice.between(2, 4);
    stages(world, dice, |_, _, stage, bytes| (stage == 2).then(|| uncounted(bytes / part)));
}

/// What a job keeps from its first to its second stage is more than it declares.
fn kept_undeclared(world: &World, dice: &mut Dice) {
    let part = dice.between(2, 4);
    world.work(dice, |dice| {
        while !world.is_over() {
            let bytes = dice.about(world.bytes, world.noise);
            let made = world.make(dice, bytes);
            let more = uncounted(bytes / part);
            world.rest(world.time / 2);
            world.consume(dice, made, world.time / 2);
            drop(more);
        }
    });
}

/// Small things of many sizes, of which few survive, and jobs go on.
fn survivors(world: &World, dice: &mut Dice) {
    let all = dice.between(60 << 20, 140 << 20);
    let (mut sum, mut pieces) = (0, Vec::new());
    while sum < all {
        let size = dice.between(48, 900);
        pieces.push(uncounted(size));
        sum += size;
    }
    let keep = dice.between(8, 20);
    let mut chance = dice.split(5);
    pieces.retain(|_| chance.one_in(keep));
    world.jobs(dice, |_, _, _| {});
    drop(pieces);
}

/// Each of the first jobs leaves a few small things behind among many; later ones use the same holes.
fn survivors_of_jobs(world: &World, dice: &mut Dice) {
    let kept = Mutex::new(Vec::new());
    let each = dice.between(4 << 20, 8 << 20);
    world.jobs(dice, |world, dice, _| {
        if world.progress() > 0.2 {
            return;
        }
        let mut pieces: Vec<Vec<u8>> = (0..each / 320).map(|_| uncounted(dice.between(128, 512))).collect();
        pieces.retain(|_| dice.one_in(24));
        kept.lock().unwrap().append(&mut pieces);
    });
}

fn large_jobs_first(world: &World, dice: &mut Dice) {
    let bytes = dice.between(60 << 20, 120 << 20);
    for _ in 0..3 {
        let made = world.make(dice, bytes);
        world.consume(dice, made, world.time / 8);
    }
    world.jobs(dice, |_, _, _| {});
}

fn ceiling_of_many(world: &World, dice: &mut Dice) {
    let room = (world.bytes as f64 * (1.1 + world.noise)) as u64;
    world.ledger.resize(plimsoll::Space::HOST, plimsoll::Bytes(room)).expect("the budget names it");
    stages(world, dice, |_, _, _, _| None);
}

/// Tables fill over half of the run.
fn warm_up_of_half(world: &World, dice: &mut Dice) {
    let tables = Mutex::new(Vec::new());
    let (ready, whole) = (0.4 + 0.1 * dice.part(), world.bytes * dice.between(2, 6));
    let filled = AtomicU64::new(0);
    world.jobs(dice, |world, _, _| {
        let due = (whole as f64 * (world.progress() / ready).min(1.0).sqrt()) as u64;
        let more = due.saturating_sub(filled.fetch_max(due, Ordering::Relaxed));
        if more > 0 {
            tables.lock().unwrap().push(uncounted(more));
        }
    });
}

/// A cache that nobody counts is full at the middle; from then on the oldest goes for the newest.
fn cache_full_at_half(world: &World, dice: &mut Dice) {
    let cache = Mutex::new(VecDeque::new());
    let (full, entry) = (0.35 + 0.15 * dice.part(), world.bytes / dice.between(8, 20));
    world.jobs(dice, |world, dice, _| {
        let mut cache = cache.lock().unwrap();
        cache.push_back(uncounted(dice.about(entry, world.noise)));
        if world.progress() > full {
            cache.pop_front();
        }
    });
}

/// Each thread keeps a buffer of the size of its largest job.
fn scratch_of_each_thread(world: &World, dice: &mut Dice) {
    world.jobs(dice, |_, _, bytes| {
        MINE.with_borrow_mut(|mine| {
            if mine.first().is_none_or(|buffer| (buffer.len() as u64) < bytes / 2) {
                *mine = vec![uncounted(bytes / 2)];
            }
        });
    });
}

fn seldom_busy(world: &World, dice: &mut Dice) {
    let pause = world.length / dice.between(12, 25) as u32;
    world.work(dice, |dice| {
        while !world.is_over() {
            for _ in 0..dice.between(1, 6) {
                world.job(dice, 1.0, |_, _, _| {});
            }
            world.rest(pause);
        }
    });
}

/// A little is always there beside the buffers.
fn a_little_beside(world: &World, dice: &mut Dice) {
    stages(world, dice, |_, dice, _, bytes| Some(uncounted(bytes / dice.between(40, 200))));
}

/// What is made waits for a while, but never more than a few.
fn queue_that_is_bounded(world: &World, dice: &mut Dice) {
    let most = dice.between(2, 8) as usize;
    let queue = Mutex::new(VecDeque::new());
    world.work(dice, |dice| {
        while !world.is_over() {
            let bytes = dice.about(world.bytes / 2, world.noise);
            let made = world.make(dice, bytes);
            let next = {
                let mut queue = queue.lock().unwrap();
                queue.push_back(made);
                if queue.len() > most { queue.pop_front() } else { None }
            };
            if let Some(next) = next {
                world.consume(dice, next, world.time / 3);
            }
        }
    });
    let left: Vec<Made> = queue.into_inner().unwrap().into();
    left.into_iter().for_each(|made| world.consume(dice, made, Duration::ZERO));
}
