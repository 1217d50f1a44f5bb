//! The short way decides as the long way does, and leaves the same state behind.

use proptest::prelude::*;

use plimsoll::ledger::state::{AccountId, AtOnce, LedgerState, Mark, Outcome, OwnerId, Served, Standing};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Profile, Resource, Space};

use crate::world::Dice;

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::HOST);
const PINNED: Class = Class::new("pinned", Space::PINNED);
const ON_CARD: Class = Class::new("on card 0", Space::device(0));
const ON_OTHER: Class = Class::new("on card 1", Space::device(1));
const CLASSES: [Class; 5] = [A, B, PINNED, ON_CARD, ON_OTHER];

/// A job that is larger than the limit, as often as not, and would rather run alone than be refused.
struct Alone {
    id: OwnerId,
    /// The stage that it is in or waits for, and what it keeps of the first one.
    stage: usize,
    keeps: u64,
    is_running: bool,
}

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
    alone: Option<Alone>,
    /// Whether devices may be lost: after that nothing goes the short way.
    loses: bool,
    /// Events that are no matter of the short way, each of which had something to do: moves between spaces, growth, jobs that
    /// ran alone, devices lost while somebody waited in the line.
    moved: usize,
    grown: usize,
    ran_alone: usize,
    lost: usize,
}

impl Twins {
    fn new(dice: &mut Dice) -> Twins {
        let budget = Budget::new()
            .space(Space::HOST, Bytes(dice.roll(1, 20)))
            .space(Space::PINNED, Bytes(dice.roll(1, 5)))
            .space(Space::device(0), Bytes(dice.roll(1, 5)))
            .space(Space::device(1), Bytes(dice.roll(1, 5)))
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
            alone: None,
            loses: dice.roll(0, 3) == 0,
            moved: 0,
            grown: 0,
            ran_alone: 0,
            lost: 0,
        }
    }

    fn open(&mut self, dice: &mut Dice) {
        let class = [A, A, A, B, B, PINNED, ON_CARD, ON_OTHER][dice.roll(0, 7) as usize];
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

    /// The same event for both, which answer the same and serve the same.
    fn both<R: PartialEq + std::fmt::Debug>(&mut self, event: impl Fn(&mut LedgerState, &mut Vec<Outcome>) -> R) -> R {
        let (mut out, mut long_out) = (Vec::new(), Vec::new());
        let long = event(&mut self.long, &mut long_out);
        let short = event(self.long_way(), &mut out);
        assert_eq!(short, long);
        assert_eq!(out, long_out);
        self.learn(&out);
        short
    }

    /// A reservation that is held, if there is one, by its place.
    fn any_held(&self, dice: &mut Dice) -> Option<usize> {
        let last = self.held.len().checked_sub(1)?;
        Some(dice.roll(0, last as u64) as usize)
    }

    /// Gives up waiting.
    fn withdraw(&mut self, dice: &mut Dice) {
        if self.waiting.is_empty() {
            return;
        }
        let (id, ..) = self.waiting.swap_remove(dice.roll(0, self.waiting.len() as u64 - 1) as usize);
        self.both(|state, out| state.withdraw(id, out));
    }

    /// Returns a part.
    fn shrink(&mut self, dice: &mut Dice) {
        let Some(at) = self.any_held(dice) else { return };
        let (id, class, bytes) = self.held[at];
        let less = dice.roll(0, bytes);
        self.held[at].2 -= less;
        self.both(|state, out| state.release(id, class, Bytes(less), out));
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
        self.both(|state, out| state.resize(AccountId::ROOT, Space::HOST, limit, out)).expect("it is limited");
    }

    /// Moves a reservation to another class, which may be of another space.
    fn convert(&mut self, dice: &mut Dice) {
        let Some(at) = self.any_held(dice) else { return };
        let (id, from, bytes) = self.held[at];
        let to = CLASSES[dice.roll(0, 4) as usize];
        let moved = self.both(|state, out| state.convert(id, from, to, Bytes(bytes), out));
        if moved.is_ok() {
            let entry = self.held.iter_mut().find(|entry| entry.0 == id).expect("it is held");
            entry.1 = to;
            self.moved += usize::from(from.space() != to.space());
        }
    }

    fn grow(&mut self, dice: &mut Dice) {
        let Some(at) = self.any_held(dice) else { return };
        let (id, class, _) = self.held[at];
        let more = dice.roll(1, 2);
        if self.both(|state, out| state.try_grow(id, class, Bytes(more), out)).is_ok() {
            self.held.iter_mut().find(|entry| entry.0 == id).expect("it is held").2 += more;
            self.grown += 1;
        }
    }

    /// A device is lost. What was reserved of it stays with its holder, off the books.
    fn lose(&mut self, dice: &mut Dice) {
        let device = Space::device(dice.roll(0, 1) as u16);
        self.lost += usize::from(self.short.is_anybody_in_the_line());
        self.both(|state, out| state.retire(device, out)).expect("the budget names it");
    }

    /// A job that may run alone comes, or takes its next step.
    fn step_alone(&mut self, dice: &mut Dice) {
        let (mut out, mut long_out) = (Vec::new(), Vec::new());
        let Some(Alone { id, stage, keeps, is_running }) = self.alone else {
            let (first, keeps) = (dice.roll(4, 30), dice.roll(0, 3));
            let bytes = |amount| Demand::new().bytes(A, Bytes(amount));
            let profile = Profile::new().stage("first", bytes(first), bytes(keeps)).stage("last", bytes(4), bytes(0));
            let spec = JobSpec::new("alone", profile).alone_if_oversize();
            let long = self.long.submit(AccountId::ROOT, spec.clone());
            let short = self.long_way().submit(AccountId::ROOT, spec);
            let id = match (short, long) {
                (Ok(short), Ok(long)) => {
                    assert_eq!(short, long);
                    short
                }
                (short, long) => return assert_eq!(short.is_ok(), long.is_ok()),
            };
            self.long.enter(0, id, 0, &mut long_out).expect("it was just taken on");
            self.short.enter(0, id, 0, &mut out).expect("it was just taken on");
            assert_eq!(out, long_out);
            self.alone = Some(Alone { id, stage: 0, keeps, is_running: false });
            return self.learn(&out);
        };
        if !is_running {
            return;
        }
        let held = self.long.held_by(id, Resource::Class(A));
        let back = [(A, Bytes(if stage == 0 { held - keeps } else { held }))];
        self.long.end_stage(id, &back, &mut long_out);
        self.long_way().end_stage(id, &back, &mut out);
        if stage == 0 {
            self.alone = Some(Alone { id, stage: 1, keeps, is_running: false });
            self.long.enter(0, id, 1, &mut long_out).expect("it is in flight");
            self.short.enter(0, id, 1, &mut out).expect("it is in flight");
        } else {
            self.alone = None;
            self.long.end(id, &mut long_out);
            self.short.end(id, &mut out);
        }
        assert_eq!(out, long_out);
        self.learn(&out);
    }

    fn learn(&mut self, out: &[Outcome]) {
        for outcome in out {
            let (Outcome::Granted(id, _) | Outcome::Refused(id, _)) = outcome;
            if let Some(alone) = self.alone.as_mut().filter(|alone| alone.id == *id) {
                alone.is_running = matches!(outcome, Outcome::Granted(..));
                self.ran_alone += usize::from(alone.is_running);
                if !alone.is_running {
                    self.alone = None;
                    let (mut out, mut long_out) = (Vec::new(), Vec::new());
                    self.long.end(*id, &mut long_out);
                    self.long_way().end(*id, &mut out);
                    assert_eq!(out, long_out);
                    self.learn(&out);
                }
                continue;
            }
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
            _ => match dice.roll(0, 11) {
                0..=3 => twins.resize(&mut dice),
                4..=6 => twins.convert(&mut dice),
                7..=8 => twins.grow(&mut dice),
                _ => (0..dice.roll(1, 3)).for_each(|_| twins.step_alone(&mut dice)),
            },
        }
        if twins.loses && dice.roll(0, if twins.short.is_anybody_in_the_line() { 5 } else { 200 }) == 0 {
            twins.lose(&mut dice);
        }
        twins.compare();
    }
    twins
}

/// One trace may have nothing that is simple; a hundred have.
#[test]
fn the_short_way_is_taken() {
    let runs: Vec<Twins> = (0..200).map(|seed| run(seed, 100)).collect();
    let sum = |of: fn(&Twins) -> usize| runs.iter().map(of).sum::<usize>();
    let (taken, lined_up, served) = (sum(|it| it.taken), sum(|it| it.lined_up), sum(|it| it.served));
    let light = runs.iter().map(|run| run.unfolded).max().unwrap_or(0);
    println!("the short way was taken {taken} times, {lined_up} waited there, {served} were served from there");
    assert!(taken >= 1000 && lined_up >= 300 && served >= 200, "{taken} {lined_up} {served}");
    assert!(light >= 8, "{light} at once were light");
    let others = [sum(|it| it.moved), sum(|it| it.grown), sum(|it| it.ran_alone), sum(|it| it.lost)];
    println!("moved between spaces, grown, run alone, lost with somebody in the line: {others:?}");
    assert!(others.iter().all(|times| *times >= 10), "{others:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_short_way_decides_as_the_long_way_does(seed in any::<u64>(), events in 10usize..150) {
        run(seed, events);
    }
}

fn standing(class: Class, bytes: u64, retained: bool) -> Standing {
    Standing { name: class.name().into(), class, bytes: Bytes(bytes), max: None, priority: 0, retained }
}

/// Where its bytes were before is no matter of a reservation that was moved: others have all of that room, also what is kept
/// for good.
#[test]
fn a_reservation_that_was_moved_claims_nothing_where_it_was() {
    let budget = Budget::new().space(Space::HOST, Bytes(10)).space(Space::device(0), Bytes(5));
    for retained in [false, true] {
        let (mut state, mut out) = (LedgerState::new(&budget), Vec::new());
        let id = state.open(0, AccountId::ROOT, standing(ON_CARD, 5, retained), &mut out).unwrap();
        state.convert(id, ON_CARD, A, Bytes(5), &mut out).unwrap();
        assert_eq!(out.len(), 1);
        state.open(0, AccountId::ROOT, standing(ON_CARD, 5, true), &mut out).unwrap();
        assert_eq!(out.len(), 2, "the card has room");
        // Moved to where another waits for that room, it is refused if it is kept for good.
        let waits = state.open(0, AccountId::ROOT, standing(A, 6, false), &mut out).map(|_| out.len());
        match retained {
            true => assert!(waits.is_err(), "what is kept leaves 5 of 10"),
            false => assert_eq!(waits, Ok(2)),
        }
    }
}

/// Bytes that are kept for good and move to another space leave too little for somebody who waits there, who is told so.
#[test]
fn whoever_waits_for_what_is_now_kept_elsewhere_is_refused() {
    let budget = Budget::new().space(Space::HOST, Bytes(10)).space(Space::device(0), Bytes(5));
    let (mut state, mut out) = (LedgerState::new(&budget), Vec::new());
    let kept = state.open(0, AccountId::ROOT, standing(ON_CARD, 3, true), &mut out).unwrap();
    state.open(0, AccountId::ROOT, standing(A, 4, false), &mut out).unwrap();
    let waits = state.open(0, AccountId::ROOT, standing(A, 8, false), &mut out).unwrap();
    out.clear();
    state.convert(kept, ON_CARD, A, Bytes(3), &mut out).unwrap();
    assert!(matches!(out[..], [Outcome::Refused(id, _)] if id == waits), "{out:?}");
    // So is whoever waits for what grows.
    let (mut state, mut out) = (LedgerState::new(&budget), Vec::new());
    let kept = state.open(0, AccountId::ROOT, standing(A, 3, true), &mut out).unwrap();
    state.open(0, AccountId::ROOT, standing(A, 3, false), &mut out).unwrap();
    let waits = state.open(0, AccountId::ROOT, standing(A, 7, false), &mut out).unwrap();
    out.clear();
    state.try_grow(kept, A, Bytes(1), &mut out).unwrap();
    assert!(matches!(out[..], [Outcome::Refused(id, _)] if id == waits), "{out:?}");
}
