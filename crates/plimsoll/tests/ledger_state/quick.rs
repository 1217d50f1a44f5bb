//! The short way decides as the long way does, and leaves the same state behind.

use proptest::prelude::*;

use plimsoll::ledger::state::{AccountId, LedgerState, Outcome, OwnerId, Standing};
use plimsoll::{Budget, Bytes, Class, Space};

use crate::world::Dice;

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::HOST);
const PINNED: Class = Class::new("pinned", Space::PINNED);

/// The same requests, of one state the short way where there is one, of the other always the long way.
struct Twins {
    short: LedgerState,
    long: LedgerState,
    /// What is held by whom.
    held: Vec<(OwnerId, Class, u64)>,
    waiting: Vec<(OwnerId, Class, u64)>,
    /// How often the short way was taken.
    taken: usize,
}

impl Twins {
    fn new(dice: &mut Dice) -> Twins {
        let budget = Budget::new()
            .space(Space::HOST, Bytes(dice.roll(1, 20)))
            .space(Space::PINNED, Bytes(dice.roll(1, 5)))
            .bypass(dice.roll(0, 2) as u32);
        let state = LedgerState::new(&budget);
        Twins { short: state.clone(), long: state, held: Vec::new(), waiting: Vec::new(), taken: 0 }
    }

    fn open(&mut self, dice: &mut Dice) {
        let class = [A, B, PINNED][dice.roll(0, 2) as usize];
        let bytes = dice.roll(0, 6);
        // A few are not as simple: they may grow, or are retained, or have a name.
        let max = (dice.roll(0, 5) == 0).then_some(Bytes(bytes + dice.roll(0, 3)));
        let retained = dice.roll(0, 9) == 0;
        let standing = Standing { name: class.name().into(), class, bytes: Bytes(bytes), max, priority: 0, retained };
        let is_simple = max.is_none() && !retained;
        let (mut out, mut long_out) = (Vec::new(), Vec::new());
        let long = self.long.open(0, AccountId::ROOT, standing.clone(), &mut long_out);
        let short = match is_simple.then(|| self.short.open_at_once(class, Bytes(bytes), 0)).flatten() {
            Some(id) => {
                self.taken += 1;
                out.push(Outcome::Granted(id, [(class.into(), bytes)].into_iter().collect()));
                Ok(id)
            }
            None => self.short.open(0, AccountId::ROOT, standing, &mut out),
        };
        assert_eq!(out, long_out);
        let id = match (short, long) {
            (Ok(id), Ok(long)) => {
                assert_eq!(id, long);
                id
            }
            (Err(short), Err(long)) => return assert_eq!(short.to_string(), long.to_string()),
            differ => panic!("{differ:?}"),
        };
        self.waiting.push((id, class, bytes));
        self.learn(&out);
    }

    fn drop_one(&mut self, dice: &mut Dice) {
        if self.held.is_empty() {
            return;
        }
        let (id, class, bytes) = self.held.swap_remove(dice.roll(0, self.held.len() as u64 - 1) as usize);
        let (mut out, mut long_out) = (Vec::new(), Vec::new());
        self.long.drop_piece(id, class, Bytes(bytes), &mut long_out);
        if self.short.drop_at_once(id, class, Bytes(bytes)) {
            self.taken += 1;
        } else {
            self.short.drop_piece(id, class, Bytes(bytes), &mut out);
        }
        assert_eq!(out, long_out);
        self.learn(&out);
    }

    fn resize(&mut self, dice: &mut Dice) {
        let limit = Bytes(dice.roll(1, 20));
        let (mut out, mut long_out) = (Vec::new(), Vec::new());
        self.long.resize(AccountId::ROOT, Space::HOST, limit, &mut long_out).expect("it is limited");
        self.short.resize(AccountId::ROOT, Space::HOST, limit, &mut out).expect("it is limited");
        assert_eq!(out, long_out);
        self.learn(&out);
    }

    fn learn(&mut self, out: &[Outcome]) {
        for outcome in out {
            let (Outcome::Granted(id, _) | Outcome::Refused(id, _)) = outcome;
            let at = self.waiting.iter().position(|entry| entry.0 == *id).expect("it waited");
            let entry = self.waiting.swap_remove(at);
            if let Outcome::Granted(..) = outcome {
                self.held.push(entry);
            }
        }
    }

    fn compare(&mut self) {
        assert_eq!(self.short.components(), self.long.components());
        assert_eq!(self.short.snapshot(), self.long.snapshot());
        for (id, ..) in self.held.iter().chain(&self.waiting) {
            assert_eq!(self.short.owner(*id), self.long.owner(*id));
        }
    }
}

/// Runs a trace of as many events; how often the short way was taken.
fn run(seed: u64, events: usize) -> usize {
    let mut dice = Dice(seed);
    let mut twins = Twins::new(&mut dice);
    for _ in 0..events {
        match dice.roll(0, 19) {
            0..=9 => twins.open(&mut dice),
            10..=18 => twins.drop_one(&mut dice),
            _ => twins.resize(&mut dice),
        }
        twins.compare();
    }
    twins.taken
}

/// One trace may have nothing that is simple; a hundred have.
#[test]
fn the_short_way_is_taken() {
    let taken: usize = (0..100).map(|seed| run(seed, 100)).sum();
    println!("the short way was taken {taken} times");
    assert!(taken >= 1000, "{taken}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_short_way_decides_as_the_long_way_does(seed in any::<u64>(), events in 10usize..150) {
        run(seed, events);
    }
}
