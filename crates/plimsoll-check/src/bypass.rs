//! Who is passed by an admission: counted here once more, by the wording of the rule.
//!
//! An admission passes every request of a job in flight that waits, and every older admission that waits. Two are exempt:
//! an admission that is served wholly from the urgent reserve passes nobody; and a request that is short only in the limit
//! of its own child is not passed by those who take nothing from that child.

use plimsoll::ledger::state::AccountId;

use crate::event::At;
use crate::facts::{Facts, OwnerFacts};
use crate::moment::Moment;
use crate::setup::Setup;
use crate::state::State;

/// Counts the grant to `passer`, if it is an admission. `moments` are this one and all that follow.
pub(crate) fn count(setup: &Setup<'_>, state: &mut State, passer: usize, moments: &[Moment]) {
    if state.actors[passer].in_flight() || setup.parent(passer).is_some() {
        return;
    }
    let passed = passed_by(setup, state, passer);
    if passed.is_empty() {
        return;
    }
    let special = setup.components.iter().any(|component| component.child || component.urgent);
    // Working out the moment is only worth it where there are exemptions.
    let facts = special.then(|| Facts::of(setup, state).before(setup, state, moments));
    let exempt = |waiter| facts.as_ref().is_some_and(|facts| is_exempt(setup, facts, waiter, passer));
    let passed: Vec<usize> = passed.into_iter().filter(|&waiter| !exempt(waiter)).collect();
    for waiter in passed {
        state.actors[waiter].passed += 1;
    }
}

/// The waiting requests that an admission passes, exemptions aside.
pub(crate) fn passed_by(setup: &Setup<'_>, state: &State, passer: usize) -> Vec<usize> {
    let arrived = state.actors[passer].arrived;
    let is_passed = |(waiter, actor): (usize, &crate::state::Actor)| match actor.at {
        At::Waiting(_) if setup.parent(waiter).is_none() && !actor.in_flight() => {
            (waiter != passer && actor.arrived < arrived).then_some(waiter)
        }
        At::Waiting(_) if waiter != passer => Some(waiter),
        _ => None,
    };
    state.actors.iter().enumerate().filter_map(is_passed).collect()
}

/// Whether passing does not count, by the facts of the moment before the admission.
pub(crate) fn is_exempt(setup: &Setup<'_>, facts: &Facts, waiter: usize, passer: usize) -> bool {
    let find = |actor| facts.owners.iter().find(|owner| owner.actor == actor);
    let (Some(waiter), Some(passer)) = (find(waiter), find(passer)) else { return false };
    is_wholly_urgent(setup, passer) || is_short_only_in_its_child(setup, facts, waiter, passer)
}

/// Whether an owner is served from nothing but the urgent reserve.
fn is_wholly_urgent(setup: &Setup<'_>, owner: &OwnerFacts) -> bool {
    owner.account != setup.home(owner.actor)
        && owner.needs.is_empty()
        && owner.claim.iter().zip(&setup.components).all(|(claim, component)| *claim == 0 || component.urgent)
}

fn is_short_only_in_its_child(setup: &Setup<'_>, facts: &Facts, waiter: &OwnerFacts, passer: &OwnerFacts) -> bool {
    let components = setup.components.iter().enumerate();
    let childs: Vec<usize> =
        components.filter(|(at, component)| component.child && waiter.claim[*at] > 0).map(|(at, _)| at).collect();
    // What a job needs beside its claim is at the root.
    if waiter.account == AccountId::ROOT
        || !waiter.needs.is_empty()
        || childs.is_empty()
        || childs.iter().any(|&at| passer.claim[at] > 0)
    {
        return false;
    }
    let accounts: Vec<AccountId> = childs.iter().map(|&at| setup.components[at].account).collect();
    let mut lifted = facts.clone();
    for (at, component) in setup.components.iter().enumerate() {
        if accounts.contains(&component.account) {
            // Room enough for any sum of small amounts.
            lifted.limit[at] = u64::from(u32::MAX);
        }
    }
    let need = waiter.need.as_ref().expect("it waits");
    let can_be_served = |facts: &Facts| facts.fits(need) && facts.with_granted(waiter.actor).some_order_finishes();
    // Who could be served as it is, is short of nothing, and loses what is taken before it.
    can_be_served(&lifted) && !can_be_served(facts)
}
