//! Which residencies go: the rule, written a second time, with fractions instead of rounded numbers.

use proptest::prelude::*;

use plimsoll::ledger::state::{AccountId, LedgerState, Order, Outcome, OwnerId, ResidencyId, Resident, Standing};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Profile, Space};

use crate::dice::Dice;

const KEY: Class = Class::new("key", Space::HOST);
const STAGED: Class = Class::new("staged", Space::PINNED);
const BUFFER: Class = Class::new("buffer", Space::HOST);
const PINNED_BUFFER: Class = Class::new("pinned buffer", Space::PINNED);

/// A residency that is loaded, as the rule sees it.
#[derive(Clone, Debug)]
struct Loaded {
    id: ResidencyId,
    pinned_memory: bool,
    bytes: u64,
    rebuild: u64,
    used: u64,
    in_use: bool,
}

impl Loaded {
    /// What goes with it: of host memory, and of pinned memory.
    fn takes(&self) -> [u64; 2] {
        [self.bytes, if self.pinned_memory { self.bytes } else { 0 }]
    }

    /// Numerator and denominator of bytes × idle time / cost of loading it again.
    fn worth(&self, now: u64) -> (u128, u128) {
        (u128::from(self.bytes) * u128::from(now - self.used + 1), u128::from(self.rebuild))
    }
}

/// What goes to make up for what is short of each: largest worth first, of equals what was not used for longest; and what
/// the others cover stays, of which what is worth least is looked at first. Nothing where all together would not do.
fn victims(loaded: &[Loaded], now: u64, short: [u64; 2]) -> Vec<ResidencyId> {
    let mut order: Vec<&Loaded> = loaded.iter().filter(|it| !it.in_use).collect();
    // They were used in the order in which they are listed.
    order.sort_by(|one, other| {
        let ((a, b), (c, d)) = (one.worth(now), other.worth(now));
        (c * b).cmp(&(a * d))
    });
    let covered = |chosen: &[&Loaded], at: usize| chosen.iter().map(|it| it.takes()[at]).sum::<u64>() >= short[at];
    let mut chosen: Vec<&Loaded> = Vec::new();
    for it in order {
        let helps = (0..2).any(|at| it.takes()[at] > 0 && !covered(&chosen, at));
        if helps {
            chosen.push(it);
        }
    }
    if !(0..2).all(|at| covered(&chosen, at)) {
        return Vec::new();
    }
    for at in (0..chosen.len()).rev() {
        let mut without = chosen.clone();
        without.remove(at);
        if (0..2).all(|at| covered(&without, at)) {
            chosen = without;
        }
    }
    let mut ids: Vec<ResidencyId> = chosen.into_iter().map(|it| it.id).collect();
    ids.sort();
    ids
}

struct Shelf {
    state: LedgerState,
    now: u64,
    out: Vec<Outcome>,
}

impl Shelf {
    /// A job of one stage that needs one residency and nothing else; in flight, its stage granted.
    fn user(&mut self, residency: ResidencyId) -> OwnerId {
        let profile = Profile::new().stage("use", Demand::new(), Demand::new());
        let spec = JobSpec::new("user", profile).needs(residency);
        let job = self.state.submit(AccountId::ROOT, spec).expect("it fits");
        self.state.enter(self.now, job, 0, &mut self.out).expect("it is the first stage");
        if let Some((id, _)) = self.state.take_load(job) {
            assert!(self.state.loaded(id, &mut self.out), "somebody waits for it");
        }
        assert!(matches!(self.out[..], [Outcome::Granted(granted, _)] if granted == job), "{:?}", self.out);
        self.out.clear();
        job
    }

    fn end(&mut self, job: OwnerId) {
        self.state.end_stage(job, &[], &mut self.out);
        self.state.end(job, &mut self.out);
        assert_eq!(self.out, []);
    }
}

/// Loads and uses a few, some of which stay in use, then asks for more than there is. How many went.
fn run(seed: u64) -> usize {
    let mut dice = Dice(seed);
    let kinds: Vec<(bool, u64, u64)> =
        (0..dice.roll(2, 6)).map(|_| (dice.roll(0, 2) == 0, dice.roll(1, 8), dice.roll(1, 6))).collect();
    let host = kinds.iter().map(|kind| kind.1).sum::<u64>() + dice.roll(0, 3);
    let pinned = kinds.iter().filter(|kind| kind.0).map(|kind| kind.1).sum::<u64>() + dice.roll(0, 3);
    let budget = Budget::new().space(Space::HOST, Bytes(host)).space(Space::PINNED, Bytes(pinned));
    let mut shelf = Shelf { state: LedgerState::new(&budget), now: 1, out: Vec::new() };
    let mut loaded: Vec<Loaded> = Vec::new();
    for (number, (pinned_memory, bytes, rebuild)) in kinds.into_iter().enumerate() {
        let class = if pinned_memory { STAGED } else { KEY };
        let name = format!("{number}").into();
        let declared = Resident { name, class, bytes: Bytes(bytes), rebuild };
        let id = shelf.state.declare_residency(declared).expect("its space has a limit");
        loaded.push(Loaded { id, pinned_memory, bytes, rebuild, used: 0, in_use: false });
    }
    // All are loaded, and some are used again.
    let ids: Vec<ResidencyId> = loaded.iter().map(|it| it.id).collect();
    let again: Vec<ResidencyId> =
        (0..dice.roll(0, 4)).map(|_| ids[dice.roll(0, ids.len() as u64 - 1) as usize]).collect();
    for id in ids.into_iter().chain(again) {
        shelf.now += dice.roll(0, 3);
        let job = shelf.user(id);
        shelf.end(job);
        let place = loaded.iter().position(|it| it.id == id).expect("it exists");
        let mut it = loaded.remove(place);
        it.used = shelf.now;
        loaded.push(it);
    }
    for it in &mut loaded {
        it.in_use = dice.roll(0, 4) == 0;
        if it.in_use {
            shelf.user(it.id);
        }
    }
    assert_eq!(shelf.state.drain_orders().filter(|order| matches!(order, Order::Evict(_))).count(), 0, "all fit");

    shelf.now += dice.roll(0, 3);
    let wants_pinned = dice.roll(0, 2) == 0;
    let class = if wants_pinned { PINNED_BUFFER } else { BUFFER };
    let bytes = dice.roll(1, if wants_pinned { pinned.min(host) } else { host }.max(1));
    let held = |at: usize| loaded.iter().map(|it| it.takes()[at]).sum::<u64>();
    let wanted = [bytes, if wants_pinned { bytes } else { 0 }];
    let short = [(held(0) + wanted[0]).saturating_sub(host), (held(1) + wanted[1]).saturating_sub(pinned)];
    let (name, max) = ("buffer".into(), None);
    let standing = Standing { name, class, bytes: Bytes(bytes), max, priority: 0, retained: false };
    if shelf.state.open(shelf.now, AccountId::ROOT, standing, &mut shelf.out).is_err() {
        assert!(bytes > host || (wants_pinned && bytes > pinned), "it fits the limits, and was refused");
        return 0;
    }
    let mut went: Vec<ResidencyId> = Vec::new();
    for order in shelf.state.drain_orders() {
        let Order::Evict(id) = order else { panic!("nothing is to be loaded") };
        went.push(id);
    }
    went.sort();
    let expected = if short == [0, 0] { Vec::new() } else { victims(&loaded, shelf.now, short) };
    assert_eq!(went, expected, "seed {seed}: short of {short:?} of {loaded:?} at {}", shelf.now);
    went.len()
}

#[test]
fn evictions_are_not_rare() {
    let (some, several) = (0..500)
        .map(run)
        .fold((0, 0), |(some, several), went| (some + usize::from(went > 0), several + usize::from(went > 1)));
    println!("of 500 requests {some} had room made for them, {several} by more than one eviction");
    assert!(some > 150 && several > 80, "{some} {several}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_goes_is_what_the_rule_says(seed in any::<u64>()) {
        run(seed);
    }
}
