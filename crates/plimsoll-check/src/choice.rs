//! Jobs that may be served in more than one way, by the wording of the rules: a request is granted by the first plan by
//! which that is possible (`order` says in which turn they are tried). A job that is not admitted may go by any; one in flight, or a part of one, by those of its own
//! account that bring along at least what it holds.

use crate::event::At;
use crate::facts::{Facts, OwnerFacts};
use crate::family;
use crate::setup::{Plan, Setup};
use crate::shared::Residence;
use crate::state::State;
use crate::world::Kind;

/// The facts as they would be if a waiting owner went by a plan; `None` where it cannot.
pub(crate) fn by_plan(
    setup: &Setup<'_>,
    state: &State,
    facts: &Facts,
    waiter: &OwnerFacts,
    plan: &Plan,
) -> Option<(Facts, OwnerFacts)> {
    let At::Waiting(stage) = state.actors[waiter.actor].at else { return None };
    let (Kind::Job(_), Some(profile)) = (setup.kind(waiter.actor), &plan.profile) else {
        return Some((facts.clone(), waiter.clone()));
    };
    let mut facts = changed(setup, state, facts, waiter, plan)?;
    let peak = &profile.stages()[stage].peak;
    let missing = peak.iter().map(|(resource, peak)| {
        let held =
            state.holdings(setup, waiter.actor).iter().find(|entry| entry.0 == resource).map_or(0, |entry| entry.1);
        (resource, peak.saturating_sub(held))
    });
    let need = setup.without_lost(state, setup.vector(plan.account, missing));
    let owner = facts.owners.iter_mut().find(|owner| owner.actor == waiter.actor).expect("it waits");
    owner.need = Some(need);
    let owner = owner.clone();
    Some((facts, owner))
}

/// The facts as they would be if a job went by a plan; `None` where it cannot.
pub(crate) fn changed(
    setup: &Setup<'_>,
    state: &State,
    facts: &Facts,
    owner: &OwnerFacts,
    plan: &Plan,
) -> Option<Facts> {
    let (At::Waiting(stage) | At::Between(stage)) = state.actors[owner.actor].at else { return None };
    let profile = plan.profile.as_ref()?;
    let mut facts = facts.clone();
    if is_current(state, owner, plan) && owner.in_flight {
        // It goes by this plan already, with whatever claim it has by now.
        return Some(facts);
    }
    // Whoever is in flight has pinned what it needs; a part needs nothing that its job has not.
    let parent = setup.parent(owner.actor).and_then(|parent| facts.owners.iter().find(|owner| owner.actor == parent));
    let may_need = if owner.in_flight {
        plan.needs == owner.needs
    } else {
        parent.is_none_or(|parent| plan.needs.iter().all(|need| parent.needs.contains(need)))
    };
    if !may_need {
        return None;
    }
    // Who may begin again with what it holds may need all of it again.
    let from = if !owner.in_flight || setup.job(owner.actor).keeps { 0 } else { stage };
    let claim = setup.without_lost(state, plan.claims[from].clone());
    if owner.in_flight || setup.parent(owner.actor).is_some() {
        let held = state.holdings(setup, owner.actor);
        let brought = |resource| stage.checked_sub(1).map_or(0, |before| profile.stages()[before].keep.of(resource));
        let fits_in = held.iter().all(|&(resource, held)| held <= brought(resource));
        let attainable = setup.without_lost(state, plan.claims[if owner.in_flight { from } else { stage }].clone());
        let attainable = attainable.iter().zip(&facts.target).all(|(claim, target)| claim <= target);
        let is_surety = state.actors[owner.actor].surety.is_some_and(|at| {
            let surety = &setup.plans(owner.actor)[at];
            (surety.account, surety.choice) == (plan.account, plan.choice)
        });
        if plan.account != owner.account || !fits_in || !(attainable || (is_surety && !owner.in_flight)) {
            return None;
        }
    }
    let it = facts.owners.iter_mut().find(|other| other.actor == owner.actor).expect("it is known");
    it.account = plan.account;
    it.leaves = setup.without_lost(state, plan.leaves.clone());
    it.claim = claim;
    it.needs.clone_from(&plan.needs);
    Some(facts)
}

/// Whether all that is missing of what a plan needs is being loaded by others, while another plan needs something else.
pub(crate) fn only_joins(setup: &Setup<'_>, state: &State, facts: &Facts, actor: usize, plan: &Plan) -> bool {
    let stand = |need: &usize| facts.residencies[*need].stand;
    let is_loading =
        |need: &usize| matches!(stand(need), Residence::Called | Residence::Loading | Residence::Unwinding);
    let is_there = |need: &usize| stand(need) == Residence::Resident;
    plan.needs.iter().any(is_loading)
        && plan.needs.iter().all(|need| is_loading(need) || is_there(need))
        && setup.plans_left(state, actor).any(|other| !other.needs.is_empty() && other.needs != plan.needs)
}

fn is_current(state: &State, waiter: &OwnerFacts, plan: &Plan) -> bool {
    state.actors[waiter.actor].choice == plan.choice && waiter.account == plan.account
}

/// Raises the claims that the rules about parts raise when a request is granted: that of its parent, where it leaves more
/// than was reckoned with, and its own, where it has parts.
pub(crate) fn with_family(setup: &Setup<'_>, state: &State, facts: &mut Facts, actor: usize) {
    for parent in setup.parent(actor).into_iter().chain([actor]) {
        let is_parent = setup.parts(parent).any(|part| family::is_unfinished(state, part));
        let known = facts.owners.iter().position(|owner| owner.actor == parent && owner.in_flight);
        if let Some(at) = known.filter(|_| is_parent) {
            let need = family::need(setup, state, facts, parent, None);
            for (claim, need) in facts.owners[at].claim.iter_mut().zip(need) {
                *claim = need.max(*claim);
            }
        }
    }
}
