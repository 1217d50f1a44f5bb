//! Programs with a fault that is their own.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use plimsoll_profile::diagnose::Verdict;

use super::dice::Dice;
use super::world::{CACHE, Made, World, uncounted};
use super::{Needs, Program};

pub(crate) const PROGRAMS: &[Program] = &[
    fault("leak-small", Verdict::Leak, leak_small),
    fault("leak-large", Verdict::Leak, leak_large),
    fault("leak-seldom", Verdict::Leak, leak_seldom),
    fault("backlog-steady", Verdict::Backlog, backlog_steady),
    fault("backlog-late", Verdict::Backlog, backlog_late),
    fault("backlog-stalls", Verdict::Backlog, backlog_stalls),
    fault("stuck-forgotten", Verdict::StuckCharge, stuck_forgotten),
    fault("stuck-kept", Verdict::StuckCharge, stuck_kept),
    fault("stuck-hung", Verdict::StuckCharge, stuck_hung),
    fault("uncounted-making", Verdict::Uncounted, uncounted_making),
    fault("uncounted-using", Verdict::Uncounted, uncounted_using),
    fault("uncounted-little", Verdict::Uncounted, uncounted_little),
    Program { allocator: Needs::Hoarding, ..fault("kept-after-a-burst", Verdict::AllocatorRetention, burst_at_first) },
    Program { allocator: Needs::Hoarding, ..fault("kept-small-pieces", Verdict::AllocatorRetention, pieces_at_first) },
    Program { allocator: Needs::Glibc, ..fault("kept-by-glibc", Verdict::AllocatorRetention, pieces_at_first) },
    Program { allocator: Needs::Jemalloc, ..fault("holes-of-256", Verdict::Fragmentation, holes_small) },
    Program { allocator: Needs::Jemalloc, ..fault("holes-of-320", Verdict::Fragmentation, holes_uneven) },
    Program { allocator: Needs::Jemalloc, ..fault("holes-mixed", Verdict::Fragmentation, holes_mixed) },
];

const fn fault(name: &'static str, verdict: Verdict, run: fn(&World, &mut Dice)) -> Program {
    Program { name, verdict, allocator: Needs::Any, run }
}

fn leak_small(world: &World, dice: &mut Dice) {
    let pieces = dice.between(40, 200);
    world.jobs(dice, |_, dice, _| {
        for _ in 0..dice.about(pieces, 0.5) {
            std::mem::forget(uncounted(2048));
        }
    });
}

fn leak_large(world: &World, dice: &mut Dice) {
    let part = dice.between(20, 60);
    world.jobs(dice, |_, _, bytes| std::mem::forget(uncounted(bytes / part)));
}

fn leak_seldom(world: &World, dice: &mut Dice) {
    let (seldom, part) = (dice.between(3, 6), dice.between(8, 16));
    world.jobs(dice, |_, dice, bytes| {
        if dice.one_in(seldom) {
            std::mem::forget(uncounted(bytes / part));
        }
    });
}

/// Workers make, one thread uses what they have made, in order, with what it takes for each as the run goes on.
pub(crate) fn behind_one_consumer(world: &World, dice: &mut Dice, time: impl Fn(&World, &mut Dice) -> Duration + Sync) {
    let (products, made) = mpsc::channel::<Made>();
    let mut consumer = dice.split(99);
    std::thread::scope(|scope| {
        let time = &time;
        scope.spawn(move || {
            while let Ok(made) = made.recv() {
                if world.is_over() {
                    // What is still there has shown what it was to show.
                    drop(made);
                    continue;
                }
                let time = time(world, &mut consumer);
                world.consume(&mut consumer, made, time);
            }
        });
        world.work(dice, |dice| {
            let products = products.clone();
            while !world.is_over() {
                let bytes = dice.about(world.bytes / 2, world.noise);
                let made = world.make(dice, bytes);
                products.send(made).expect("it is taken");
            }
        });
        drop(products);
    });
}

fn backlog_steady(world: &World, dice: &mut Dice) {
    let slower = 1.3 + 0.4 * dice.part();
    let each = world.time.mul_f64(slower / world.workers as f64);
    behind_one_consumer(world, dice, |_, _| each);
}

fn backlog_late(world: &World, dice: &mut Dice) {
    let (fast, slow) = (world.time.mul_f64(0.5 / world.workers as f64), world.time.mul_f64(1.8 / world.workers as f64));
    let late = 0.25 + 0.1 * dice.part();
    behind_one_consumer(world, dice, |world, _| if world.progress() < late { fast } else { slow });
}

fn backlog_stalls(world: &World, dice: &mut Dice) {
    let each = world.time.mul_f64(0.8 / world.workers as f64);
    behind_one_consumer(world, dice, |_, dice| if dice.one_in(12) { each * 14 } else { each });
}

/// The counter never goes down, and the memory does.
fn stuck_forgotten(world: &World, dice: &mut Dice) {
    let (seldom, part) = (dice.between(3, 8), dice.between(4, 10));
    world.jobs(dice, |world, dice, bytes| {
        if dice.one_in(seldom) {
            let (buffer, reservation) = world.cached(CACHE, "result", bytes / part).into_parts();
            drop(buffer);
            std::mem::forget(reservation);
        }
    });
}

/// Both stay.
fn stuck_kept(world: &World, dice: &mut Dice) {
    let (seldom, part) = (dice.between(3, 8), dice.between(6, 14));
    let kept = Mutex::new(Vec::new());
    world.jobs(dice, |world, dice, bytes| {
        let result = world.cached(CACHE, "result", bytes / part);
        if dice.one_in(seldom) {
            kept.lock().unwrap().push(result);
        }
    });
}

/// A job goes into a stage and does not come out.
fn stuck_hung(world: &World, dice: &mut Dice) {
    let (hung, when) = (AtomicBool::new(false), 0.2 + 0.15 * dice.part());
    world.jobs(dice, |world, _, _| {
        if world.progress() > when && !hung.swap(true, Ordering::Relaxed) {
            while !world.is_over() {
                world.rest(world.time);
            }
        }
    });
}

fn uncounted_making(world: &World, dice: &mut Dice) {
    let part = dice.between(2, 3);
    world.work(dice, |dice| {
        while !world.is_over() {
            let more = uncounted(dice.about(world.bytes, world.noise).max(6 << 20) / part);
            let bytes = dice.about(world.bytes, world.noise);
            let made = world.make(dice, bytes);
            drop(more);
            world.consume(dice, made, world.time);
            // Now and then there is nothing to do.
            if dice.one_in(4) {
                world.rest(world.time * 2);
            }
        }
    });
}

fn uncounted_using(world: &World, dice: &mut Dice) {
    world.work(dice, |dice| {
        while !world.is_over() {
            let bytes = dice.about(world.bytes, world.noise);
            let made = world.make(dice, bytes);
            let more = uncounted(bytes.max(6 << 20));
            world.consume(dice, made, world.time);
            drop(more);
            if dice.one_in(3) {
                world.rest(world.time * 2);
            }
        }
    });
}

/// Not much each, but each has it for all of its time.
fn uncounted_little(world: &World, dice: &mut Dice) {
    let part = dice.between(3, 4);
    world.work(dice, |dice| {
        while !world.is_over() {
            let bytes = dice.about(world.bytes.max(8 << 20), world.noise);
            let more = uncounted(bytes.max(12 << 20) / part);
            let made = world.make(dice, bytes);
            world.consume(dice, made, world.time / 2);
            drop(more);
            if dice.one_in(3) {
                world.rest(world.time * 2);
            }
        }
    });
}

/// Much for a moment, little from then on; what is freed is kept by an allocator that is told to.
fn burst_at_first(world: &World, dice: &mut Dice) {
    let much: Vec<_> =
        (0..dice.between(10, 20)).map(|_| world.cached(CACHE, "burst", world.bytes.max(4 << 20))).collect();
    world.rest(world.length / 20);
    drop(much);
    little_at_a_time(world, dice);
}

fn pieces_at_first(world: &World, dice: &mut Dice) {
    let each = dice.between(4 << 10, 60 << 10);
    let mut much: Vec<Vec<u8>> = (0..dice.between(80 << 20, 160 << 20) / each).map(|_| uncounted(each)).collect();
    let last = much.pop();
    world.rest(world.length / 20);
    drop(much);
    little_at_a_time(world, dice);
    // It lies behind all the others, so that the heap does not shrink.
    drop(last);
}

fn little_at_a_time(world: &World, dice: &mut Dice) {
    while !world.is_over() {
        let made = world.make(dice, dice.clone().about(world.bytes / 2, world.noise));
        world.consume(dice, made, world.time / 3);
    }
}

fn holes(world: &World, dice: &mut Dice, sizes: &[u64]) {
    let (all, keep) = (dice.between(60 << 20, 110 << 20), dice.between(12, 24));
    let mut pieces = Vec::new();
    let mut sum = 0;
    while sum < all {
        let size = sizes[dice.between(0, sizes.len() as u64 - 1) as usize];
        pieces.push(uncounted(size));
        sum += size;
    }
    let mut at = 0;
    pieces.retain(|_| {
        at += 1;
        at % keep == 0
    });
    little_at_a_time(world, dice);
    drop(pieces);
}

fn holes_small(world: &World, dice: &mut Dice) {
    holes(world, dice, &[256]);
}

fn holes_uneven(world: &World, dice: &mut Dice) {
    holes(world, dice, &[320]);
}

fn holes_mixed(world: &World, dice: &mut Dice) {
    holes(world, dice, &[128, 192, 256, 384]);
}
