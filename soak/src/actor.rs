//! What a program may do with a ledger, at random: reserve, wait, give up, grow, split, convert, run jobs and abandon them.
//!
//! An actor never blocks while it holds something by another request; beyond that it is careless. All it does is decided
//! by its seed and by what it is granted.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Reservation, Slots, Space};

use crate::world::Dice;

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::HOST);
const P: Class = Class::new("p", Space::PINNED);
const CORE: Slots = Slots::new("core");

/// What a ledger for actors has at least; resizes stay above it, so that everything that is asked for always fits.
pub const FLOOR: u64 = 16;

/// A ledger for actors.
pub fn ledger(seed: u64) -> Ledger {
    let mut dice = Dice(seed);
    let budget = Budget::new()
        .space(Space::HOST, Bytes(FLOOR + dice.roll(0, 16)))
        .space(Space::PINNED, Bytes(FLOOR))
        .slots(CORE, dice.roll(1, 3))
        .bypass(dice.roll(0, 3) as u32);
    Ledger::new(budget)
}

/// Does `times` things with the ledger, and gives everything back.
pub fn act(ledger: &Ledger, seed: u64, times: usize) {
    let mut dice = Dice(seed);
    for _ in 0..times {
        match dice.roll(0, 9) {
            0..=1 => drop(ledger.reserve(class(&mut dice), bytes(&mut dice)).try_now()),
            2..=3 => {
                let held = ledger.reserve(class(&mut dice), bytes(&mut dice)).wait().expect("it fits");
                toss(held, &mut dice);
            }
            4 => grow(ledger, &mut dice),
            5 => give_up(ledger, &mut dice),
            6..=8 => job(ledger, &mut dice),
            _ => resize(ledger, &mut dice),
        }
    }
}

fn class(dice: &mut Dice) -> Class {
    [A, B, P][dice.roll(0, 2) as usize]
}

fn bytes(dice: &mut Dice) -> Bytes {
    Bytes(dice.roll(0, 8))
}

/// Takes a reservation to pieces.
fn toss(mut held: Reservation, dice: &mut Dice) {
    let part = held.split(Bytes(dice.roll(0, held.bytes().0))).expect("it holds as much");
    match dice.roll(0, 4) {
        0 => held.merge(part).expect("they were one"),
        1 => drop(part.into_class(if part_is_pinned(&held) { P } else { B })),
        2 => {
            let _ = held.try_grow(bytes(dice));
            drop(part);
        }
        3 => held.shrink_to(Bytes::ZERO).expect("nothing is always held"),
        _ => drop(part),
    }
}

fn part_is_pinned(held: &Reservation) -> bool {
    held.class() == P
}

fn grow(ledger: &Ledger, dice: &mut Dice) {
    let first = bytes(dice);
    let max = Bytes(first.0 + dice.roll(0, 6));
    let mut held = ledger.reserve(A, first).max(max).wait().expect("it fits");
    held.grow(Bytes(dice.roll(0, max.0 - first.0))).expect("it was declared");
    toss(held, dice);
}

/// Asks, looks once or twice, and leaves.
fn give_up(ledger: &Ledger, dice: &mut Dice) {
    let mut asked = pin!(ledger.reserve(class(dice), bytes(dice)));
    for _ in 0..dice.roll(1, 2) {
        if let Poll::Ready(held) = asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return toss(held.expect("it fits"), dice);
        }
    }
}

fn job(ledger: &Ledger, dice: &mut Dice) {
    let [first, second] = [dice.roll(1, 8), dice.roll(0, 6)];
    let make = Demand::new().bytes(A, Bytes(first)).slots(CORE, dice.roll(0, 1));
    let keep = dice.roll(0, first);
    let kept = Demand::new().bytes(A, Bytes(keep));
    let finish = kept.clone().bytes(B, Bytes(second)).slots(CORE, 1);
    let profile = Profile::new().stage("make", make, kept).stage("finish", finish, Demand::new());
    let mut job = ledger.submit(JobSpec::new("job", profile).priority(dice.roll(0, 2) as i32)).expect("it fits");
    if dice.roll(0, 7) == 0 {
        // Gives up, perhaps when the grant is on its way.
        let _ = job.poll_enter(&mut Context::from_waker(Waker::noop()), 0);
        return;
    }
    let mut grant = job.enter(0).wait().expect("it fits");
    let carried = grant.take(A, Bytes(keep)).expect("it was granted");
    if dice.roll(0, 7) == 0 {
        // Fails, and drops things in an odd order.
        drop(job);
        drop(grant);
        return;
    }
    drop(grant);
    let grant = job.enter(1).wait().expect("it fits");
    toss(carried, dice);
    drop(grant);
}

fn resize(ledger: &Ledger, dice: &mut Dice) {
    ledger.resize(Space::HOST, Bytes(FLOOR + dice.roll(0, 16))).expect("it has a limit");
    ledger.resize_slots(CORE, dice.roll(1, 3)).expect("it has a limit");
    check(ledger);
}

/// Asserts of a picture of the ledger that what is held adds up, and stays below the line.
pub fn check(ledger: &Ledger) {
    let snapshot = ledger.snapshot();
    for space in &snapshot.spaces {
        assert!(space.held <= space.limit, "above the line: {space:?}");
    }
    let held = snapshot.holders.iter().flat_map(|holder| &holder.held);
    let host: u64 = held
        .filter_map(|(resource, amount)| match resource {
            plimsoll::Resource::Class(_) => Some(*amount),
            plimsoll::Resource::Slots(_) => None,
        })
        .sum();
    assert_eq!(snapshot.space(Space::HOST).expect("it has a limit").held, Bytes(host), "{snapshot:?}");
}
