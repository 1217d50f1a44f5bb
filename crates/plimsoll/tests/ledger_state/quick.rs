//! The short way decides as the long way does, and leaves the same state behind.

use proptest::prelude::*;

use plimsoll::ledger::state::{AccountId, AtOnce, LedgerState, Mark, Outcome, OwnerId, Served, Standing};
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
    /// One of as many is not simple, in each of three ways.
    odd: u64,
    /// How often the short way was taken.
    taken: usize,
    /// How many waited in the line for it, and how many it served from there.
    lined_up: usize,
    served: usize,
    /// How many were light at once.
    unfolded: usize,
}

impl Twins {
    fn new(dice: &mut Dice) -> Twins {
        let budget = Budget::new()
            .space(Space::HOST, Bytes(dice.roll(1, 20)))
            .space(Space::PINNED, Bytes(dice.roll(1, 5)))
            .bypass(dice.roll(0, 2) as u32);
        let state = LedgerState::new(&budget);
        Twins {
            short: state.clone(),
            long: state,
            held: Vec::new(),
            odd: [3, 20, 1000][dice.roll(0, 2) as usize],
            waiting: Vec::new(),
            taken: 0,
            lined_up: 0,
            served: 0,
            unfolded: 0,
        }
    }

    fn open(&mut self, dice: &mut Dice) {
        let class = [A, A, A, B, B, PINNED][dice.roll(0, 5) as usize];
        let least = u64::from(dice.roll(0, 9) > 0);
        let bytes = dice.roll(least, 6);
        // A few are not as simple: they may grow, or are retained, have a priority, or are tried only.
        let is_odd = |dice: &mut Dice| dice.roll(0, self.odd) == 0;
        let max = is_odd(dice).then_some(Bytes(bytes + dice.roll(0, 3)));
        let (retained, priority) = (is_odd(dice), i32::from(is_odd(dice)));
        let standing = Standing { name: class.name().into(), class, bytes: Bytes(bytes), max, priority, retained };
        let is_simple = max.is_none() && !retained;
        if is_simple && dice.roll(0, 3) == 0 && !self.can_be_had(&standing) {
            let tried = self.short.ask_at_once(Mark::default(), class, Bytes(bytes), priority, false);
            if tried == Some(AtOnce::WouldWait) {
                let mut out = Vec::new();
                let id = self.long.open(0, AccountId::ROOT, standing, &mut out).expect("it waits");
                let shortage = self.long.shortage(id);
                self.long.withdraw(id, &mut out);
                assert_eq!(self.long_way().shortage_at_once(class, Bytes(bytes)), Some(shortage));
                assert_eq!(out, []);
                self.taken += 1;
                return;
            }
            assert_eq!(tried, None);
        }
        let (mut out, mut long_out) = (Vec::new(), Vec::new());
        let long = self.long.open(0, AccountId::ROOT, standing.clone(), &mut long_out);
        let short = match is_simple
            .then(|| self.short.ask_at_once(Mark::default(), class, Bytes(bytes), priority, true))
            .flatten()
        {
            Some(AtOnce::Granted(id)) => {
                self.taken += 1;
                out.push(granted(id, class, bytes));
                Ok(id)
            }
            Some(AtOnce::Waits(id)) => {
                self.taken += 1;
                self.lined_up += 1;
                Ok(id)
            }
            Some(AtOnce::WouldWait) => panic!("it may wait"),
            None => self.long_way().open(0, AccountId::ROOT, standing, &mut out),
        };
        assert_eq!(out, long_out, "{short:?}");
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
        let mut served = Served::new();
        if self.short.drop_at_once(id, class, Bytes(bytes), &mut served) {
            self.taken += 1;
            self.served += served.len();
            out.extend(served.into_iter().map(|id| self.granted(id)));
        } else {
            self.long_way().drop_piece(id, class, Bytes(bytes), &mut out);
        }
        assert_eq!(out, long_out);
        self.learn(&out);
    }

    /// Gives up waiting.
    fn withdraw(&mut self, dice: &mut Dice) {
        if self.waiting.is_empty() {
            return;
        }
        let (id, ..) = self.waiting.swap_remove(dice.roll(0, self.waiting.len() as u64 - 1) as usize);
        let (mut out, mut long_out) = (Vec::new(), Vec::new());
        self.long.withdraw(id, &mut long_out);
        self.long_way().withdraw(id, &mut out);
        assert_eq!(out, long_out);
        self.learn(&out);
    }

    /// Returns a part.
    fn shrink(&mut self, dice: &mut Dice) {
        if self.held.is_empty() {
            return;
        }
        let at = dice.roll(0, self.held.len() as u64 - 1) as usize;
        let (id, class, bytes) = self.held[at];
        let less = dice.roll(0, bytes);
        self.held[at].2 -= less;
        let (mut out, mut long_out) = (Vec::new(), Vec::new());
        self.long.release(id, class, Bytes(less), &mut long_out);
        self.long_way().release(id, class, Bytes(less), &mut out);
        assert_eq!(out, long_out);
        self.learn(&out);
    }

    /// Whether a request would be granted at once, or refused.
    fn can_be_had(&self, standing: &Standing) -> bool {
        let mut out = Vec::new();
        self.long.clone().open(0, AccountId::ROOT, standing.clone(), &mut out).is_err() || !out.is_empty()
    }

    /// What a request that waits is granted.
    fn granted(&self, id: OwnerId) -> Outcome {
        let (_, class, bytes) = *self.waiting.iter().find(|entry| entry.0 == id).expect("it waits");
        granted(id, class, bytes)
    }

    fn resize(&mut self, dice: &mut Dice) {
        let limit = Bytes(dice.roll(1, 20));
        let (mut out, mut long_out) = (Vec::new(), Vec::new());
        self.long.resize(AccountId::ROOT, Space::HOST, limit, &mut long_out).expect("it is limited");
        self.long_way().resize(AccountId::ROOT, Space::HOST, limit, &mut out).expect("it is limited");
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
        // Of a copy, so that what is light stays so until something goes the long way.
        let mut short = self.short.clone();
        let mut unfolded = 0;
        short.unfold(|_, _| unfolded += 1);
        self.unfolded = self.unfolded.max(unfolded);
        assert_eq!(short.components(), self.long.components());
        assert_eq!(short.snapshot(), self.long.snapshot());
        for (id, ..) in self.held.iter().chain(&self.waiting) {
            assert_eq!(short.owner(*id), self.long.owner(*id));
        }
    }

    fn long_way(&mut self) -> &mut LedgerState {
        self.short.unfold(|_, _| ());
        &mut self.short
    }
}

fn granted(id: OwnerId, class: Class, bytes: u64) -> Outcome {
    Outcome::Granted(id, [(class.into(), bytes)].into_iter().collect())
}

/// Runs a trace of as many events.
fn run(seed: u64, events: usize) -> Twins {
    let mut dice = Dice(seed);
    let mut twins = Twins::new(&mut dice);
    for _ in 0..events {
        match dice.roll(0, 19) {
            0..=9 => twins.open(&mut dice),
            10..=16 => twins.drop_one(&mut dice),
            17 => twins.withdraw(&mut dice),
            18 => twins.shrink(&mut dice),
            _ if dice.roll(0, 2) == 0 => twins.resize(&mut dice),
            _ => {}
        }
        twins.compare();
    }
    twins
}

/// One trace may have nothing that is simple; a hundred have.
#[test]
fn the_short_way_is_taken() {
    let runs: Vec<Twins> = (0..100).map(|seed| run(seed, 100)).collect();
    let sum = |of: fn(&Twins) -> usize| runs.iter().map(of).sum::<usize>();
    let (taken, lined_up, served) = (sum(|it| it.taken), sum(|it| it.lined_up), sum(|it| it.served));
    let light = runs.iter().map(|run| run.unfolded).max().unwrap_or(0);
    println!("the short way was taken {taken} times, {lined_up} waited there, {served} were served from there");
    assert!(taken >= 1000 && lined_up >= 300 && served >= 200, "{taken} {lined_up} {served}");
    assert!(light >= 8, "{light} at once were light");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_short_way_decides_as_the_long_way_does(seed in any::<u64>(), events in 10usize..150) {
        run(seed, events);
    }
}
