//! Jobs that are parts of others, by the wording of the rules.
//!
//! Of a job in flight holds at each moment: what it holds, what its unfinished parts leave, and the most that one of them
//! needs beside what it leaves, is within its claim. A job is finished after its parts.

use crate::event::At;
use crate::facts::Facts;
use crate::setup::{Plan, Setup, Vector};
use crate::state::State;

/// Whether a job has been admitted and goes on: parts of it may be submitted.
pub(crate) fn has_room_for_parts(state: &State, parent: usize) -> bool {
    let parent = &state.actors[parent];
    parent.in_flight() && parent.at != At::Ending && !parent.abandoned
}

/// Whether a job was submitted and has not ended.
pub(crate) fn is_unfinished(state: &State, actor: usize) -> bool {
    matches!(state.actors[actor].at, At::Waiting(_) | At::Running(_) | At::Between(_) | At::Ending)
}

/// Whether parts of a job were submitted and have not ended.
pub(crate) fn has_unfinished_parts(setup: &Setup<'_>, state: &State, actor: usize) -> bool {
    setup.parts(actor).any(|part| is_unfinished(state, part))
}

/// Whether a stage of a job goes on until parts of it have ended.
pub(crate) fn waits_for_parts(setup: &Setup<'_>, state: &State, actor: usize) -> bool {
    let At::Running(stage) = state.actors[actor].at else { return false };
    let stages = setup.profile(state, actor).stages();
    // Nor does a job end with a result before its parts have.
    let has_room = !stages[stage].parts.is_empty() || stage + 1 == stages.len();
    has_room && !state.actors[actor].abandoned && has_unfinished_parts(setup, state, actor)
}

/// Whether a job only goes on when parts of it have ended.
pub(crate) fn is_held_up(setup: &Setup<'_>, state: &State, actor: usize) -> bool {
    let next_is_held_up = match state.actors[actor].at {
        At::Between(stage) if state.actors[actor].in_flight() => is_in_the_way_of_its_parts(setup, state, actor, stage),
        _ => false,
    };
    waits_for_parts(setup, state, actor) || next_is_held_up
}

/// The plan that a part goes by until it is admitted: the first one for which its parent has room.
fn surety<'s>(setup: &'s Setup<'_>, state: &State, part: usize) -> Option<&'s Plan> {
    let at = state.actors[part].surety?;
    Some(&setup.plans(part)[at])
}

/// What a job holds, what its unfinished parts leave, and the most that one of them needs beside what it leaves. With `more`,
/// as if there were one more part that goes by that plan.
pub(crate) fn need(setup: &Setup<'_>, state: &State, facts: &Facts, parent: usize, more: Option<&Plan>) -> Vector {
    let owner = facts.owners.iter().find(|owner| owner.actor == parent).expect("it is in flight");
    let mut need = owner.held.clone();
    if let Some(asked) = owner.need.as_ref().filter(|_| owner.in_flight) {
        need.iter_mut().zip(asked).for_each(|(need, asked)| *need += asked);
    }
    let mut largest = vec![0; need.len()];
    for part in setup.parts(parent).filter(|part| is_unfinished(state, *part)) {
        let Some(plan) = surety(setup, state, part) else { continue };
        let now = facts.owners.iter().find(|owner| owner.actor == part).map(|owner| &owner.leaves);
        let (claims, leaves) = left_of(setup, state, plan);
        for at in 0..need.len() {
            need[at] += leaves[at].max(now.map_or(0, |leaves| leaves[at]));
            largest[at] = largest[at].max(claims[at] - leaves[at]);
        }
    }
    let more = more.map(|plan| left_of(setup, state, plan));
    for at in 0..need.len() {
        if let Some((claims, leaves)) = &more {
            need[at] += leaves[at];
            largest[at] = largest[at].max(claims[at] - leaves[at]);
        }
        need[at] += largest[at];
    }
    need
}

/// Claim and leavings of a plan, without what is on a lost device.
fn left_of(setup: &Setup<'_>, state: &State, plan: &Plan) -> (Vector, Vector) {
    (setup.without_lost(state, plan.claims[0].clone()), setup.without_lost(state, plan.leaves.clone()))
}

/// The first plan of a part for which its parent's claim has room, if there is one.
pub(crate) fn plan_with_room(setup: &Setup<'_>, state: &State, part: usize) -> Option<usize> {
    let parent = setup.parent(part)?;
    let facts = Facts::of(setup, state);
    let owner = facts.owners.iter().find(|owner| owner.actor == parent)?;
    let forgotten = state.actors[part].forgotten;
    let has_room = |(at, plan): (usize, &Plan)| {
        if forgotten & (1 << at) != 0 {
            return false;
        }
        let need = need(setup, state, &facts, parent, Some(plan));
        let pinned = plan.needs.iter().all(|need| owner.needs.contains(need));
        pinned && plan.account == owner.account && need.iter().zip(&owner.claim).all(|(need, claim)| need <= claim)
    };
    setup.plans(part).iter().enumerate().position(has_room)
}

/// Whether a job that enters a stage has no room left beside it for its unfinished parts.
pub(crate) fn is_in_the_way_of_its_parts(setup: &Setup<'_>, state: &State, actor: usize, stage: usize) -> bool {
    let facts = Facts::of(setup, state);
    let Some(owner) = facts.owners.iter().find(|owner| owner.actor == actor) else { return false };
    let mut need = need(setup, state, &facts, actor, None);
    for (at, more) in setup.missing(state, actor, owner.account, stage).into_iter().enumerate() {
        need[at] += more;
    }
    has_unfinished_parts(setup, state, actor) && need.iter().zip(&owner.claim).any(|(need, claim)| need > claim)
}
