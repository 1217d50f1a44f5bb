//! Who goes first: whatever is granted, nobody before it in the order could have been granted in its place.
//!
//! Requests of jobs in flight go first, by priority, then least remaining claim, then age; then admissions, by priority,
//! then age.

use std::cmp::{Ordering, Reverse};

use crate::again;
use crate::choice;
use crate::event::At;
use crate::facts::{Facts, OwnerFacts};
use crate::moment::Moment;
use crate::rules::{self, Broken, Rule};
use crate::setup::{Plan, Setup};
use crate::shared::Residence;
use crate::state::State;
use crate::world::Kind;

/// Checks the first of `moments`, which are it and all that follow.
pub(crate) fn check(setup: &Setup<'_>, state: &State, granted: usize, moments: &[Moment]) -> Result<(), Broken> {
    let waits = |actor: &crate::state::Actor| matches!(actor.at, At::Waiting(_));
    if state.actors.iter().filter(|actor| waits(actor)).count() < 2 && setup.plans(granted).len() == 1 {
        return Ok(());
    }
    let facts = Facts::of(setup, state).before(setup, state, moments);
    let now = facts.owners.iter().find(|owner| owner.actor == granted).expect("it was granted something");
    let (account, id) = (now.account, state.actors[granted].id.expect("it was granted something"));
    let facts = facts.with_what_was_asked(state);
    let mine = facts.owners.iter().find(|owner| owner.actor == granted).expect("it was granted something");
    let is_taken = |plan: &&Plan| plan.account == account && plan.choice == state.ledger.choice(id);
    // Who runs alone goes by the plan that stands for it.
    let alone = !mine.in_flight && again::would_run_alone(setup, state, granted);
    let before_it = in_turn(setup, state, &facts, mine).into_iter().take_while(|plan| !alone && !is_taken(plan));
    for plan in before_it {
        if rules::is_grantable_by(setup, state, &facts, mine, plan) {
            let (mine, choice) = (&setup.names[granted], plan.choice);
            return Err(Broken::new(Rule::Order, format!("{mine} could have been granted by its profile {choice}")));
        }
    }
    let taken = setup.plans_left(state, granted).find(is_taken).filter(|_| !mine.goes_with_growth());
    if let Some(plan) = taken
        && choice::only_joins(setup, state, &facts, granted, plan)
        && !more_go_elsewhere(setup, state, &facts, granted, plan)
    {
        let mine = &setup.names[granted];
        return Err(Broken::new(Rule::Order, format!("{mine} joins a load, and could have waited to go elsewhere")));
    }
    for other in facts.owners.iter().filter(|other| other.actor != granted && other.need.is_some()) {
        if goes_before(setup, state, &facts, other, mine) && rules::is_grantable(setup, state, &facts, other) {
            let (other, mine) = (&setup.names[other.actor], &setup.names[granted]);
            return Err(Broken::new(
                Rule::Order,
                format!("{mine} is granted first, before it {other} could have been"),
            ));
        }
    }
    Ok(())
}

/// The plans of a waiting owner, as they are tried: an admission by a plan whose residencies fewer jobs in flight need comes first;
/// among equals one whose residencies are all there before one that has to load some; what needs none keeps its turn.
fn in_turn<'s>(setup: &'s Setup<'_>, state: &State, facts: &Facts, waiter: &OwnerFacts) -> Vec<&'s Plan> {
    let plans: Vec<&Plan> = setup.plans_left(state, waiter.actor).collect();
    if waiter.goes_with_growth() {
        return plans;
    }
    let is_absent = |plan: &Plan| plan.needs.iter().any(|need| facts.residencies[*need].stand != Residence::Resident);
    let mut needy: Vec<&Plan> = plans.iter().copied().filter(|plan| !plan.needs.is_empty()).collect();
    needy.sort_by_key(|plan| (going(facts, plan), is_absent(plan)));
    let mut needy = needy.into_iter();
    let turn = |plan: &&'s Plan| if plan.needs.is_empty() { *plan } else { needy.next().expect("as many") };
    plans.iter().map(turn).collect()
}

/// How many in flight need all that a plan needs, or more: as many as need the least needed of it.
fn going(facts: &Facts, plan: &Plan) -> usize {
    let pins = |need: usize| facts.owners.iter().filter(|owner| owner.in_flight && owner.needs.contains(&need)).count();
    plan.needs.iter().map(|need| pins(*need)).min().unwrap_or(0)
}

/// Whether what a job needs is there for another of its plans, and more jobs in flight go by each of those.
fn more_go_elsewhere(setup: &Setup<'_>, state: &State, facts: &Facts, actor: usize, plan: &Plan) -> bool {
    let is_there = |other: &&Plan| other.needs.iter().all(|need| facts.residencies[*need].stand == Residence::Resident);
    let needs_other = |other: &&Plan| !other.needs.is_empty() && other.needs != plan.needs;
    let there = setup.plans_left(state, actor).filter(needs_other).filter(is_there);
    there.map(|other| going(facts, other)).min().is_some_and(|there| there > going(facts, plan))
}

fn goes_before(setup: &Setup<'_>, state: &State, facts: &Facts, one: &OwnerFacts, other: &OwnerFacts) -> bool {
    let rank = |owner: &OwnerFacts| {
        let priority = match setup.kind(owner.actor) {
            Kind::Job(_) => setup.priority(owner.actor),
            Kind::Reservation(kind) => kind.priority,
        };
        (!owner.goes_with_growth(), Reverse(priority))
    };
    let arrived = |owner: &OwnerFacts| state.actors[owner.actor].arrived;
    let claims = || if one.goes_with_growth() { compare_shares(facts, one, other) } else { Ordering::Equal };
    let order = rank(one).cmp(&rank(other)).then_with(claims).then(arrived(one).cmp(&arrived(other)));
    order == Ordering::Less
}

/// Compares the largest share that each claims of a limit.
fn compare_shares(facts: &Facts, one: &OwnerFacts, other: &OwnerFacts) -> Ordering {
    let share = |owner: &OwnerFacts| {
        let shares = owner.claim.iter().zip(&facts.target).map(|(claim, target)| (*claim, (*target).max(1)));
        shares.max_by(|a, b| compare_fractions(*a, *b)).unwrap_or((0, 1))
    };
    compare_fractions(share(one), share(other))
}

fn compare_fractions(one: (u64, u64), other: (u64, u64)) -> Ordering {
    (u128::from(one.0) * u128::from(other.1)).cmp(&(u128::from(other.0) * u128::from(one.1)))
}
