//! What comes from outside of the program: samples, other processes, cards, a limit that is low.

use std::io;
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::sleep; // tidy: sleep, another process that takes its time
use std::time::{Duration, Instant};

use plimsoll::{Bytes, Class, Space};
use plimsoll_profile::diagnose::Verdict;
use plimsoll_profile::sample::device::{DeviceMemory, Devices};
use plimsoll_profile::sample::machine::MachineMemory;
use plimsoll_profile::sample::{Reader, Sampler, holder_lines};

use super::dice::Dice;
use super::world::World;
use super::{Needs, Program};

pub(crate) const PROGRAMS: &[Program] = &[
    outside("neighbour-at-once", Verdict::Neighbour, neighbour_at_once),
    outside("neighbour-late", Verdict::Neighbour, neighbour_late),
    outside("neighbour-slowly", Verdict::Neighbour, neighbour_slowly),
    outside("card-leak", Verdict::CardLeak, card_leak),
    outside("card-leak-slow", Verdict::CardLeak, card_leak_slow),
    outside("card-leak-beside-work", Verdict::CardLeak, card_leak_beside_work),
    outside("ceiling-of-two", Verdict::Ceiling, ceiling_of_two),
    outside("ceiling-of-three", Verdict::Ceiling, ceiling_of_three),
    outside("ceiling-with-noise", Verdict::Ceiling, ceiling_with_noise),
];

const fn outside(name: &'static str, verdict: Verdict, run: fn(&World, &mut Dice)) -> Program {
    Program { name, verdict, allocator: Needs::Any, run }
}

/// What the machine of `neighbour` programs has: small enough that a neighbour can take all of it and harm nobody.
const MACHINE_BYTES: u64 = 600 << 20;

/// The neighbour, while there is one.
static NEIGHBOUR: AtomicU64 = AtomicU64::new(0);
/// What is used of the card, beside and in the ledger's books.
static CARD: AtomicI64 = AtomicI64::new(0);

const CARD_BYTES: u64 = 1 << 30;
const BUCKETS: Class = Class::new("buckets", Space::device(0));

/// A card whose driver says what is used of it.
#[derive(Debug)]
struct Card;

impl Devices for Card {
    fn name(&self) -> &str {
        "planted"
    }

    fn read(&mut self) -> Vec<DeviceMemory> {
        let used = CARD.load(Ordering::Relaxed).unsigned_abs();
        vec![DeviceMemory {
            device: 0,
            name: "planted card".into(),
            total_bytes: CARD_BYTES,
            free_bytes: CARD_BYTES - used,
            own_bytes: None,
        }]
    }
}

/// Samples into the trace, with gaps.
pub(crate) fn watch(world: &World, verdict: Verdict) -> io::Result<Sampler> {
    let reader = Reader::new().without_others();
    let reader = if verdict == Verdict::CardLeak { reader.with_devices(Box::new(Card)) } else { reader };
    let (lines, gaps, mut number) = (Arc::downgrade(&world.lines), world.gaps, 0_u64);
    Sampler::start(&world.ledger, reader, world.period, move |mut sample, snapshot| {
        number += 1;
        let Some(lines) = lines.upgrade().filter(|_| !number.is_multiple_of(gaps)) else { return };
        if verdict == Verdict::Neighbour {
            let own = sample.process.map_or(0, |process| process.resident_bytes);
            let others = resident_bytes(NEIGHBOUR.load(Ordering::Relaxed)).unwrap_or(0);
            let available_bytes = Some(MACHINE_BYTES.saturating_sub(own + others));
            sample.machine =
                Some(MachineMemory { total_bytes: MACHINE_BYTES, available_bytes, ..MachineMemory::default() });
            sample.group = None;
        }
        lines.line(sample.json());
        for line in holder_lines(snapshot) {
            lines.line(line);
        }
    })
}

fn resident_bytes(process: u64) -> Option<u64> {
    if process == 0 {
        return None;
    }
    let text = std::fs::read_to_string(format!("/proc/{process}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

/// Another process: takes so much, bit by bit over so many seconds, and holds it until it is killed.
pub(crate) fn eat(bytes: u64, seconds: f64) {
    let started = Instant::now();
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        let due = bytes as f64 * (started.elapsed().as_secs_f64() / seconds.max(1e-3)).min(1.0);
        while (eaten.len() as u64 + 1) * (4 << 20) <= due as u64 {
            eaten.push(vec![1; 4 << 20]);
        }
        // Should nobody come to kill it.
        if started.elapsed() > Duration::from_secs(60) {
            return;
        }
        sleep(Duration::from_millis(20));
    }
}

/// Killed when it is dropped.
struct Neighbour(Child);

impl Neighbour {
    fn start(bytes: u64, seconds: f64) -> Neighbour {
        let me = std::env::current_exe().expect("it was started from a file");
        let child = Command::new(me).args(["eat", &bytes.to_string(), &seconds.to_string()]).spawn();
        let child = child.expect("it starts");
        NEIGHBOUR.store(u64::from(child.id()), Ordering::Relaxed);
        Neighbour(child)
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn beside(world: &World, dice: &mut Dice, after: f64, seconds: f64) {
    // It leaves 3 to 8 %, this process's own being there as well.
    let share = 0.92 + 0.05 * dice.part();
    std::thread::scope(|scope| {
        let neighbour = scope.spawn(move || {
            sleep(world.length.mul_f64(after));
            let own = resident_bytes(u64::from(std::process::id())).unwrap_or(0);
            let neighbour = Neighbour::start((MACHINE_BYTES as f64 * share) as u64 - own.min(200 << 20), seconds);
            while !world.is_over() {
                sleep(Duration::from_millis(20));
            }
            drop(neighbour);
        });
        world.jobs(dice, |_, _, _| {});
        neighbour.join().expect("it only waits");
    });
}

fn neighbour_at_once(world: &World, dice: &mut Dice) {
    beside(world, dice, 0.3, 0.1);
}

fn neighbour_late(world: &World, dice: &mut Dice) {
    beside(world, dice, 0.5, 0.3);
}

fn neighbour_slowly(world: &World, dice: &mut Dice) {
    let seconds = world.length.as_secs_f64() * 0.45;
    beside(world, dice, 0.1, seconds);
}

fn card(world: &World, dice: &mut Dice, leak: impl Fn(&mut Dice) -> i64 + Sync) {
    let before = dice.between(10 << 20, 60 << 20) as i64;
    CARD.store(before, Ordering::Relaxed);
    world.jobs(dice, |world, dice, bytes| {
        let on_card = bytes / 2;
        let held = world.ledger.reserve(BUCKETS, Bytes(on_card)).name("buckets").wait();
        CARD.fetch_add(on_card as i64, Ordering::Relaxed);
        world.rest(world.time / 4);
        CARD.fetch_add(leak(dice) - on_card as i64, Ordering::Relaxed);
        drop(held);
    });
}

fn card_leak(world: &World, dice: &mut Dice) {
    let each = dice.between(128 << 10, 512 << 10);
    card(world, dice, |dice| dice.about(each, 0.3) as i64);
}

fn card_leak_slow(world: &World, dice: &mut Dice) {
    let each = dice.between(40 << 10, 90 << 10);
    card(world, dice, |_| each as i64);
}

fn card_leak_beside_work(world: &World, dice: &mut Dice) {
    let (each, seldom) = (dice.between(1 << 20, 2 << 20), dice.between(4, 8));
    card(world, dice, |dice| if dice.one_in(seldom) { each as i64 } else { 0 });
}

/// More workers than memory.
fn ceiling(world: &World, dice: &mut Dice, jobs: f64, more: impl Fn(&World, &mut Dice, u64) + Sync) {
    // For the largest job at least, and for so many of the usual size.
    let room = (world.bytes as f64 * jobs).max(world.bytes as f64 * (1.01 + world.noise));
    world.ledger.resize(Space::HOST, Bytes(room as u64)).expect("the budget names it");
    world.jobs(dice, more);
}

fn ceiling_of_two(world: &World, dice: &mut Dice) {
    ceiling(world, dice, 1.05, |_, _, _| {});
}

fn ceiling_of_three(world: &World, dice: &mut Dice) {
    let jobs = world.workers as f64 - 0.6;
    ceiling(world, dice, jobs, |_, _, _| {});
}

fn ceiling_with_noise(world: &World, dice: &mut Dice) {
    ceiling(world, dice, 1.4, |world, dice, _| {
        if dice.one_in(10) {
            world.rest(world.time * 2);
        }
    });
}
