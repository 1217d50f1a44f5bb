//! Programs with which nothing is the matter, though some look as if.

use std::sync::Mutex;
use std::time::Duration;

use plimsoll_profile::diagnose::Verdict;

use super::dice::Dice;
use super::world::{AUX, CACHE, World, demand, uncounted};
use super::{Needs, Program};
use plimsoll::{Demand, JobSpec, Profile};

pub(crate) const PROGRAMS: &[Program] = &[
    healthy("steady", steady),
    healthy("warm-up", warm_up),
    healthy("cache-to-its-limit", cache),
    healthy("bursts", bursts),
    healthy("sawtooth", sawtooth),
    healthy("half-touched", half_touched),
    healthy("rare-giants", rare_giants),
    healthy("heavy-tail", heavy_tail),
];

const fn healthy(name: &'static str, run: fn(&World, &mut Dice)) -> Program {
    Program { name, verdict: Verdict::Healthy, allocator: Needs::Any, run }
}

fn steady(world: &World, dice: &mut Dice) {
    world.jobs(dice, |_, _, _| {});
}

/// Tables that nobody counts are built by the first jobs, more slowly from job to job.
fn warm_up(world: &World, dice: &mut Dice) {
    let tables = Mutex::new(Vec::new());
    let ready = 0.3 + 0.08 * dice.part();
    let piece = world.bytes / dice.between(12, 30);
    world.jobs(dice, |world, dice, _| {
        let left = 1.0 - world.progress() / ready;
        if left > 0.0 && dice.part() < left {
            tables.lock().unwrap().push(uncounted(piece));
        }
    });
}

/// A cache in the ledger's books grows up to its limit; from then on the oldest goes for the newest.
fn cache(world: &World, dice: &mut Dice) {
    let entries = Mutex::new(std::collections::VecDeque::new());
    let (limit, piece) = (dice.between(15, 40) as usize, world.bytes / 10);
    world.jobs(dice, |world, dice, _| {
        if dice.one_in(2) {
            let entry = world.cached(CACHE, "cached table", piece);
            let mut entries = entries.lock().unwrap();
            entries.push_back(entry);
            if entries.len() > limit {
                entries.pop_front();
            }
        }
    });
}

/// Much at once, then nothing for a while.
fn bursts(world: &World, dice: &mut Dice) {
    let pause = world.time * dice.between(8, 20) as u32;
    world.work(dice, |dice| {
        while !world.is_over() {
            for _ in 0..dice.between(4, 12) {
                world.job(dice, 1.0, |_, _, _| {});
            }
            world.rest(pause);
        }
    });
}

/// Results are gathered and go all together.
fn sawtooth(world: &World, dice: &mut Dice) {
    let (gathered, batch) = (Mutex::new(Vec::new()), dice.between(10, 30) as usize);
    world.jobs(dice, |world, _, bytes| {
        let result = world.cached(CACHE, "result", bytes / 8);
        let mut gathered = gathered.lock().unwrap();
        gathered.push(result);
        if gathered.len() >= batch {
            gathered.clear();
        }
    });
}

/// Jobs are promised more than they ever touch.
fn half_touched(world: &World, dice: &mut Dice) {
    let part = 0.3 + 0.5 * dice.part();
    world.work(dice, |dice| {
        while !world.is_over() {
            let bytes = dice.about(world.bytes, world.noise);
            let profile = Profile::new().stage("make", demand(AUX, bytes), Demand::new());
            let name = format!("job {}", dice.between(0, 1 << 40));
            let mut job = world.ledger.submit(JobSpec::new(&name, profile)).expect("it fits");
            let mut grant = job.enter(0).wait().expect("it is granted");
            let mut buffer = grant.vec::<u8>(AUX, bytes as usize).expect("it is paid");
            buffer.resize((bytes as f64 * part) as usize, 1).expect("it has room");
            world.rest(world.time);
            drop((buffer, grant));
        }
    });
}

/// One job in forty is many times as large.
fn rare_giants(world: &World, dice: &mut Dice) {
    world.work(dice, |dice| {
        while !world.is_over() {
            let times = if dice.one_in(40) { 5.0 } else { 1.0 };
            world.job(dice, times, |_, _, _| {});
        }
    });
}

/// Some jobs wait long between their stages, and then go on.
fn heavy_tail(world: &World, dice: &mut Dice) {
    world.jobs(dice, |world, dice, _| {
        if dice.one_in(30) {
            world.rest((world.time * dice.between(5, 15) as u32).min(Duration::from_millis(500)));
        }
    });
}
