//! I5 counted a second time, from outside: who waits and who was admitted after each event, and no counter of the ledger's.
//!
//! Of what happens within one event the order is not seen. So a passing is counted only where there is no doubt: a younger job came
//! into flight, an older admission waits on, and before the event as after it that one was short of something at the root, so that
//! no limit of its own child excuses the passing. What is counted is at most what the ledger counts, and a bound that it breaks is
//! broken.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll::ledger::state::{AccountId, LedgerState, OwnerId, Stand};

/// What was seen after the last event.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bypass {
    waiting: BTreeMap<OwnerId, Waiting>,
    in_flight: BTreeSet<OwnerId>,
    /// How many admissions were ever seen waiting.
    seen: u64,
    /// There is an urgent reserve, whose admissions pass nobody: nothing is counted.
    off: bool,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// When it asked: another time is another request.
    since: u64,
    /// The order in which admissions were first seen.
    place: u64,
    /// It is short of something at the root.
    is_short: bool,
    passed: u32,
}

impl Bypass {
    /// Of a world with an urgent reserve, or without.
    pub(crate) fn new(urgent_reserve: bool) -> Bypass {
        Bypass { off: urgent_reserve, ..Bypass::default() }
    }

    /// Looks after an event; says what is broken.
    pub(crate) fn look(&mut self, now: u64, state: &mut LedgerState) -> Option<String> {
        if self.off {
            return None;
        }
        let mut in_flight = BTreeSet::new();
        let mut ranks = BTreeMap::new();
        for id in state.owners() {
            let Some(owner) = state.owner(id) else { continue };
            match owner.stand {
                Stand::Running(Some(_)) | Stand::Between(_) => _ = in_flight.insert(id),
                Stand::Fresh => _ = owner.waiting.map(|waiting| ranks.insert(id, waiting.rank)),
                _ => {}
            }
        }
        // Those that came into flight with the event: who was not seen waiting before is younger than all who were.
        let came = in_flight.difference(&self.in_flight);
        let came: Vec<u64> = came.map(|id| self.waiting.get(id).map_or(u64::MAX, |waiting| waiting.place)).collect();
        let waiters = state.snapshot().waiters;
        let mut still: Vec<_> = waiters.iter().filter(|waiter| ranks.contains_key(&waiter.owner)).collect();
        still.sort_by_key(|waiter| ranks[&waiter.owner]);
        let mut waiting = BTreeMap::new();
        let mut broken = None;
        for waiter in still {
            let is_short = is_short(state, waiter.owner, &waiter.needs);
            let before = self.waiting.get(&waiter.owner).filter(|before| before.since == waiter.since).copied();
            let mut entry = before.unwrap_or_else(|| {
                self.seen += 1;
                Waiting { since: waiter.since, place: self.seen, is_short, passed: 0 }
            });
            if before.is_some() && entry.is_short && is_short {
                entry.passed += came.iter().filter(|place| **place > entry.place).count() as u32;
            }
            entry.is_short = is_short;
            if entry.passed > state.bypass() {
                let (passed, bypass) = (entry.passed, state.bypass());
                let who = &waiter.shortage.who;
                broken.get_or_insert_with(|| {
                    format!("I5 at {now}, counted from outside: {who:?} was passed {passed} times, K is {bypass}")
                });
            }
            waiting.insert(waiter.owner, entry);
        }
        (self.waiting, self.in_flight) = (waiting, in_flight);
        broken
    }
}

/// Whether a request is short of something at the root.
fn is_short(state: &mut LedgerState, id: OwnerId, needs: &[(plimsoll::Resource, u64)]) -> bool {
    let Some(owner) = state.owner(id) else { return false };
    let mut wanted: BTreeMap<usize, u64> = BTreeMap::new();
    for &(resource, amount) in needs {
        for component in state.charged(owner.account, resource) {
            *wanted.entry(component).or_default() += amount;
        }
    }
    let components = state.components();
    wanted.into_iter().any(|(at, amount)| {
        let component = &components[at];
        component.account == AccountId::ROOT && amount > component.limit.saturating_sub(component.held)
    })
}
