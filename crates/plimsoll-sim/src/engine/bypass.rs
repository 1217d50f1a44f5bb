//! I5 counted a second time, from outside: who waits and who was admitted in each call of the ledger, and no counter of its own.
//!
//! A passing is counted where there is no doubt about it. A younger job came into flight while an older admission waited, and
//! right before that the older one was short of something at the root, so that it was not its own child's limit alone that
//! held it up (DESIGN's rule of children's limits: such a one is passed for nothing). What was free right before is worked out from what is
//! held after the call, less what was granted in it from there on, in the order of the answers: within a call everything
//! that comes back does so before the first grant. To look only after a whole event is not enough: between two calls of one
//! event an older request may be short of a token alone, be passed for nothing, and be short of memory after it.
//!
//! What cannot be told apart counts in the ledger's favour: a load that was admitted found what was free before the first grant of its
//! call, and passed nobody who was served in it; a limit that moved counts as the higher one; and each residency is taken to have been
//! loaded after all others had gone. So what is counted is at most what the ledger counts, and a bound that it breaks is broken.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll::Class;
use plimsoll::ledger::state::{AccountId, ComponentView, LedgerState, Outcome, OwnerId, ResidencyId, Stand};

/// Amounts at the root, by index of the component.
type Amounts = Vec<(usize, u64)>;

/// What was seen after the last call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bypass {
    waiting: BTreeMap<OwnerId, Waiting>,
    in_flight: BTreeSet<OwnerId>,
    limits: Vec<u64>,
    /// What each residency holds.
    resident: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Waiting {
    /// How many of those that waited were older.
    rank: usize,
    needs: Amounts,
    passed: u32,
}

impl Bypass {
    /// Looks after a call that was answered with `answers`; says what is broken. Who `is_exempt` (served from the urgent
    /// reserve, perhaps) passes nobody.
    pub(crate) fn look(
        &mut self,
        now: u64,
        state: &mut LedgerState,
        answers: &[Outcome],
        stores: &[(ResidencyId, Class)],
        is_exempt: &dyn Fn(OwnerId) -> bool,
    ) -> Option<String> {
        let components = state.components();
        let limits: Vec<u64> = components.iter().map(|component| component.limit).collect();
        let resident: Vec<u64> =
            stores.iter().map(|(id, _)| state.residency(*id).map_or(0, |residency| residency.held.0)).collect();
        let loaded = self.loaded(state, stores, &resident, components.len());
        let (mut waiting, mut in_flight) = (BTreeMap::new(), BTreeSet::new());
        let owners: Vec<OwnerId> = state.owners().collect();
        for id in owners {
            let Some(owner) = state.owner(id) else { continue };
            match (owner.stand, owner.waiting) {
                (Stand::Running(Some(_)) | Stand::Between(_), _) => _ = in_flight.insert(id),
                (Stand::Fresh, Some(wait)) => {
                    let wants = state.wants(id);
                    let needs = at_root(state, owner.account, &wants, &components);
                    let passed = self.waiting.get(&id).map_or(0, |before| before.passed);
                    waiting.insert(id, Waiting { rank: wait.rank, needs, passed });
                }
                _ => {}
            }
        }
        let free = self.free_before_each(state, answers, &components, &loaded);
        let place =
            |id: OwnerId| answers.iter().position(|answer| matches!(answer, Outcome::Granted(of, _) if *of == id));
        // With the place of its grant among the answers, which a load that was admitted has not.
        let came: Vec<(OwnerId, Option<usize>)> =
            in_flight.difference(&self.in_flight).filter(|id| !is_exempt(**id)).map(|id| (*id, place(*id))).collect();
        let mut broken = None;
        for (id, before) in &self.waiting {
            let is_before_it = |at: Option<usize>| match (waiting.contains_key(id), place(*id)) {
                (true, _) => true,
                (false, Some(place)) => at.is_some_and(|at| at < place),
                (false, None) => false,
            };
            let is_short = |at: usize, needs: &Amounts| needs.iter().any(|&(of, amount)| amount > free[at][of]);
            let is_younger = |other: OwnerId| self.waiting.get(&other).is_none_or(|other| other.rank > before.rank);
            let passes = came.iter().filter(|&&(other, place)| {
                let at = place.unwrap_or(0);
                let still = waiting.get(id).is_none_or(|now| is_short(at, &now.needs));
                other != *id && is_before_it(place) && is_younger(other) && is_short(at, &before.needs) && still
            });
            let passed = before.passed + passes.count() as u32;
            if passed > state.bypass() {
                let bypass = state.bypass();
                broken.get_or_insert_with(|| {
                    format!("I5 at {now}, counted from outside: {id:?} was passed {passed} times, K is {bypass}")
                });
            }
            if let Some(now) = waiting.get_mut(id) {
                now.passed = passed;
            }
        }
        (self.waiting, self.in_flight, self.limits, self.resident) = (waiting, in_flight, limits, resident);
        broken
    }

    /// What was free right before each of the answers, by component: at least.
    fn free_before_each(
        &self,
        state: &mut LedgerState,
        answers: &[Outcome],
        components: &[ComponentView],
        loaded: &[u64],
    ) -> Vec<Vec<u64>> {
        let before = |of: &[u64], at: usize, default: u64| of.get(at).copied().unwrap_or(default);
        let free = |(at, component): (usize, &ComponentView)| {
            let limit = component.limit.max(before(&self.limits, at, component.limit));
            limit.saturating_sub(component.held.saturating_sub(loaded[at]))
        };
        // From the last answer back to the first.
        let mut free: Vec<u64> = components.iter().enumerate().map(free).collect();
        let mut each = vec![free.clone()];
        for answer in answers.iter().rev() {
            if let Outcome::Granted(id, granted) = answer
                && let Some(owner) = state.owner(*id)
            {
                for (at, amount) in at_root(state, owner.account, granted, components) {
                    free[at] = free[at].saturating_add(amount);
                }
            }
            each.push(free.clone());
        }
        each.reverse();
        each
    }

    /// What residencies have come to hold more, by component, whatever others that have gone held less.
    fn loaded(
        &self,
        state: &mut LedgerState,
        stores: &[(ResidencyId, Class)],
        resident: &[u64],
        components: usize,
    ) -> Vec<u64> {
        let mut loaded = vec![0; components];
        for (store, &(_, class)) in stores.iter().enumerate() {
            let more = resident[store].saturating_sub(self.resident.get(store).copied().unwrap_or(0));
            state.charged(AccountId::ROOT, class).into_iter().for_each(|at| loaded[at] += more);
        }
        loaded
    }
}

/// What is charged to the root for some resources of an account.
fn at_root(
    state: &mut LedgerState,
    account: AccountId,
    resources: &[(plimsoll::Resource, u64)],
    components: &[ComponentView],
) -> Amounts {
    let mut amounts: BTreeMap<usize, u64> = BTreeMap::new();
    for &(resource, amount) in resources {
        for at in state.charged(account, resource) {
            if components[at].account == AccountId::ROOT {
                *amounts.entry(at).or_default() += amount;
            }
        }
    }
    amounts.into_iter().collect()
}
