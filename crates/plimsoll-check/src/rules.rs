//! What must hold in every reachable state.

use std::collections::BTreeSet;
use std::fmt;

use plimsoll::ledger::error::Reason;
use plimsoll::ledger::state::{AccountId, Kind as Limited};
use plimsoll::{Bytes, Class, Resource, Space};

use crate::again;
use crate::bypass;
use crate::choice;
use crate::event::{At, Event};
use crate::facts::{Facts, OwnerFacts, ResidencyFacts};
use crate::family;
use crate::lost;
use crate::setup::{Plan, Setup, Vector};
use crate::shared::{self, Memory, Residence};
use crate::state::State;
use crate::view::View;
use crate::world::Kind;

/// A rule that was broken: an invariant of the ledger, or one of the world's own.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rule {
    /// I1: what all owners hold is what the ledger counts as held; and each holds what it was granted and has not
    /// returned.
    Conservation,
    /// I1: a request is granted whole, exactly what was missing, or not at all.
    Whole,
    /// I2: nothing is held beyond a limit; nor really held, where a kind says that this differs.
    Line,
    /// The jobs in flight can be finished one after another: in some order, all of which are tried.
    Safety,
    /// Nothing waits that the rules of admission would let in now.
    Settled,
    /// Requests are granted in their order.
    Order,
    /// I4: whenever something waits, something runs that will return what it holds.
    Progress,
    /// I5: no waiting request is passed by more admissions than the budget says; and the ledger counts right.
    Bypass,
    /// I7: what has ended holds nothing, and is forgotten.
    NothingLost,
    /// I8: what never fits is refused at once, what fits is not, and nothing waits that never fits.
    NeverFits,
    /// Residencies: what is pinned is there or on its way, what is used is there, one load at a time, and nothing is
    /// evicted that is in nobody's way.
    Residency,
    /// I6: a lost device is off the books, whole; nobody waits for it.
    Lost,
    /// Nobody is in flight beside a job that runs alone.
    Alone,
    /// A lowered limit is as low as what is held and the safety of the state allow.
    Resize,
    /// The ledger answers what it was asked for, and nothing else.
    Answer,
    /// Whoever waits is told what is in the way. On [walks](crate::World::walk) alone: it costs a copy of each state.
    Explained,
    /// The ledger panicked.
    NoPanic,
    /// An invariant of the world's own.
    Invariant(String),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Conservation => "conservation",
            Rule::Whole => "whole grants",
            Rule::Line => "the line",
            Rule::Safety => "safety",
            Rule::Settled => "nothing grantable waits",
            Rule::Order => "order",
            Rule::Progress => "progress",
            Rule::Bypass => "bounded bypass",
            Rule::NothingLost => "nothing lost",
            Rule::NeverFits => "never-fits fails at once",
            Rule::Residency => "residencies",
            Rule::Lost => "lost devices",
            Rule::Alone => "alone",
            Rule::Resize => "stepwise resize",
            Rule::Answer => "the right answer",
            Rule::Explained => "waiting is explained",
            Rule::NoPanic => "no panic",
            Rule::Invariant(name) => name,
        })
    }
}

/// A rule that does not hold, and why.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) rule: Rule,
    pub(crate) why: String,
}

impl Broken {
    pub(crate) fn new(rule: Rule, why: String) -> Broken {
        Broken { rule, why }
    }
}

/// Checks everything in one state. `possible` are the events that can happen in it.
pub(crate) fn check(setup: &Setup<'_>, state: &State, possible: &[Event]) -> Result<(), Broken> {
    let facts = Facts::of(setup, state);
    books(setup, state, &facts)?;
    line(setup, state, &facts)?;
    shared::check(setup, state, &facts)?;
    lost::check(setup, state, &facts)?;
    again::check(setup, state, &facts)?;
    really(setup, state)?;
    claims(setup, state, &facts)?;
    if !facts.some_order_finishes() {
        return Err(Broken::new(Rule::Safety, "no order finishes everything in flight".into()));
    }
    resized(setup, &facts)?;
    for waiter in facts.owners.iter().filter(|owner| owner.need.is_some()) {
        waits_rightly(setup, state, &facts, waiter)?;
    }
    progress(setup, state, &facts, possible)?;
    // What is resident stays, for whoever comes next.
    let stays: Vec<&ResidencyFacts> =
        facts.residencies.iter().filter(|residency| residency.stand == Residence::Resident).collect();
    let held = |at: usize| facts.held[at] - stays.iter().map(|residency| residency.held[at]).sum::<u64>();
    let is_left = state.ledger.owners().count() > stays.len() || (0..facts.held.len()).any(|at| held(at) != 0);
    if possible.is_empty() && (is_left || !state.ledger.is_quiet()) {
        return Err(Broken::new(Rule::NothingLost, "nothing more can happen, but something is still held".into()));
    }
    let view = View { setup, state };
    for (name, holds) in &setup.world.invariants {
        holds(&view).map_err(|why| Broken::new(Rule::Invariant(name.clone()), why))?;
    }
    Ok(())
}

/// The first component whose limit, less what is retained there, is below what a plan claims, and that claim.
fn unattainable(setup: &Setup<'_>, state: &State, plan: &Plan) -> Option<(usize, u64)> {
    let components = state.ledger.components();
    let takes = |need: &usize| {
        let kind = &setup.world.residencies[*need];
        let takes = setup.vector(AccountId::ROOT, std::iter::once((kind.class.into(), kind.bytes.0)));
        setup.without_lost(state, takes)
    };
    let needs: Vec<Vector> = plan.needs.iter().map(takes).collect();
    let claim = setup.without_lost(state, plan.claims[0].clone());
    let claims = (0..components.len()).map(|at| (at, claim[at] + needs.iter().map(|takes| takes[at]).sum::<u64>()));
    claims.into_iter().find(|&(at, claim)| claim > components[at].target.saturating_sub(components[at].retained))
}

/// Whether a plan's claim can be served at all.
pub(crate) fn is_attainable(setup: &Setup<'_>, state: &State, plan: &Plan) -> bool {
    unattainable(setup, state, plan).is_none()
}

/// Whether an actor's claim can be served at all.
pub(crate) fn attainable(setup: &Setup<'_>, state: &State, actor: usize) -> Result<(), String> {
    let plans: Vec<&Plan> = setup.plans_left(state, actor).collect();
    if plans.iter().any(|plan| is_attainable(setup, state, plan)) {
        return Ok(());
    }
    let home = plans.iter().find(|plan| plan.account == setup.home(actor));
    let plan = home.or(plans.first()).expect("one is always left");
    let (at, claim) = unattainable(setup, state, plan).expect("none is within the limits");
    Err(format!("its claim of {claim} is more than {} can ever serve", setup.components[at].label))
}

/// I1 and I7: the ledger's books against what the actors have in their hands.
fn books(setup: &Setup<'_>, state: &State, facts: &Facts) -> Result<(), Broken> {
    for (actor, known) in state.actors.iter().enumerate() {
        let name = &setup.names[actor];
        let mine = state.holdings(setup, actor);
        let view = known.id.and_then(|id| state.ledger.owner(id));
        let books = view.as_ref().map(|view| view.holdings.clone()).unwrap_or_default();
        if mine != books {
            let why = format!("{name} has {mine:?} in its hands, the books say {books:?}");
            return Err(Broken::new(Rule::Conservation, why));
        }
        let waits = view.as_ref().is_some_and(|view| view.waiting.is_some());
        if waits != matches!(known.at, At::Waiting(_)) {
            return Err(Broken::new(
                Rule::Answer,
                format!("{name} stands at {:?}, its request waits: {waits}", known.at),
            ));
        }
    }
    // A part that has ended is known for as long as what it left has its name.
    let left_behind: BTreeSet<_> =
        state.actors.iter().flat_map(|actor| actor.inherited.iter().map(|entry| entry.0)).collect();
    let residencies = facts.residencies.iter().filter(|residency| residency.stand != Residence::Absent).count();
    let known = state.actors.iter().filter(|actor| actor.id.is_some()).count() + left_behind.len() + residencies;
    let there = state.ledger.owners().count();
    if known != there {
        let why = format!("the ledger remembers {there} jobs and reservations, of which {known} exist");
        return Err(Broken::new(Rule::NothingLost, why));
    }
    for (at, held) in facts.held.iter().enumerate() {
        let residencies: u64 = facts.residencies.iter().map(|residency| residency.held[at]).sum();
        let sum: u64 = facts.owners.iter().map(|owner| owner.held[at]).sum::<u64>() + residencies;
        if sum != *held {
            let label = &setup.components[at].label;
            let why = format!("{held} of {label} count as held, but what is held adds up to {sum}");
            return Err(Broken::new(Rule::Conservation, why));
        }
    }
    Ok(())
}

/// Nobody in flight claims less than it may still need: by its profile, and for its parts.
fn claims(setup: &Setup<'_>, state: &State, facts: &Facts) -> Result<(), Broken> {
    for owner in facts.owners.iter().filter(|owner| owner.in_flight) {
        let known = &state.actors[owner.actor];
        let (At::Running(stage) | At::Waiting(stage) | At::Between(stage)) = known.at else { continue };
        let is_current = |plan: &&Plan| plan.account == owner.account && plan.choice == known.choice;
        let plan = setup.plans(owner.actor).iter().find(is_current).expect("it goes by one of its plans");
        let from = if matches!(setup.kind(owner.actor), Kind::Job(job) if job.keeps) { 0 } else { stage };
        let mut needs = setup.without_lost(state, plan.claims[from.min(plan.claims.len() - 1)].clone());
        if family::has_unfinished_parts(setup, state, owner.actor) {
            let need = family::need(setup, state, facts, owner.actor, None);
            needs.iter_mut().zip(need).for_each(|(needs, need)| *needs = need.max(*needs));
        }
        if let Some(at) = (0..needs.len()).find(|&at| owner.claim[at] < needs[at]) {
            let (name, label) = (&setup.names[owner.actor], &setup.components[at].label);
            let why = format!("{name} claims {} of {label} but may need {}", owner.claim[at], needs[at]);
            return Err(Broken::new(Rule::Safety, why));
        }
    }
    Ok(())
}

/// I2, component by component, and the limits that were asked for.
fn line(setup: &Setup<'_>, state: &State, facts: &Facts) -> Result<(), Broken> {
    for (at, component) in setup.components.iter().enumerate() {
        if facts.held[at] > facts.limit[at] || facts.limit[at] < facts.target[at] {
            let (held, limit, target) = (facts.held[at], facts.limit[at], facts.target[at]);
            let why = format!("{held} of {} are held, the limit is {limit}, asked for {target}", component.label);
            return Err(Broken::new(Rule::Line, why));
        }
    }
    // The urgent reserve is a part of its space's limit, not something beside it.
    for (kind, asked_for) in asked_for(setup, state) {
        let is_part = |at: &usize| !setup.components[*at].child && setup.components[*at].kind == kind;
        let target: u64 = (0..facts.target.len()).filter(is_part).map(|at| facts.target[at]).sum();
        if target != asked_for {
            let why = format!("{kind:?} has a limit of {asked_for}, but {target} may be held");
            return Err(Broken::new(Rule::Line, why));
        }
    }
    Ok(())
}

/// The root's limit of each space and of all slots, as it was last set.
fn asked_for<'a>(setup: &'a Setup<'_>, state: &'a State) -> impl Iterator<Item = (Limited, u64)> + 'a {
    let own = setup.components.iter().filter(|component| !component.child && !component.urgent);
    own.map(move |component| {
        let resized = setup.resizes[..state.resizes_done].iter().rev();
        let resized =
            resized.filter(|(account, _, _)| *account == component.account).find(|entry| entry.1 == component.kind);
        let at_first = || match component.kind {
            Limited::Space(space) => setup.world.budget.limit(space).unwrap_or_default().0,
            Limited::Slots(slots) => setup.world.budget.slots_of(slots).unwrap_or_default(),
        };
        if component.kind.device().is_some_and(|device| state.lost.contains(&device)) {
            return (component.kind, 0);
        }
        (component.kind, resized.map_or_else(at_first, |entry| entry.2))
    })
}

/// I2 for what is really held.
fn really(setup: &Setup<'_>, state: &State) -> Result<(), Broken> {
    let any = setup.world.kinds.iter().any(|kind| matches!(kind, Kind::Job(job) if job.really.is_some()));
    if !any {
        return Ok(());
    }
    let view = View { setup, state };
    for (kind, limit) in asked_for(setup, state) {
        let Limited::Space(space) = kind else { continue };
        let real = view.really_in(space);
        if real.0 > limit {
            let why = format!("{real} of {space} are really held, the limit is {}", Bytes(limit));
            return Err(Broken::new(Rule::Line, why));
        }
    }
    Ok(())
}

/// A limit above the one that was asked for is there for a reason.
fn resized(setup: &Setup<'_>, facts: &Facts) -> Result<(), Broken> {
    for at in 0..facts.limit.len() {
        let (limit, target) = (facts.limit[at], facts.target[at]);
        if limit > target && limit > facts.held[at] {
            let mut lower = facts.clone();
            lower.limit[at] -= 1;
            if lower.some_order_finishes() {
                let label = &setup.components[at].label;
                let why = format!("the limit of {label} is still {limit}, but one less would do; asked for {target}");
                return Err(Broken::new(Rule::Resize, why));
            }
        }
    }
    Ok(())
}

/// Whoever waits is told what is in the way.
pub(crate) fn explained(state: &State) -> Result<(), Broken> {
    let mut ledger = state.ledger.clone();
    for waiter in ledger.snapshot().waiters {
        if waiter.shortage.reason == Reason::Queued {
            let why = format!("{} waits, and the ledger knows of nothing that is in its way", waiter.shortage.who);
            return Err(Broken::new(Rule::Explained, why));
        }
    }
    Ok(())
}

/// I5, I8, and that whatever waits cannot be granted.
fn waits_rightly(setup: &Setup<'_>, state: &State, facts: &Facts, waiter: &OwnerFacts) -> Result<(), Broken> {
    let name = &setup.names[waiter.actor];
    let bypass = setup.ledger.bypass();
    let passed = state.actors[waiter.actor].passed;
    if passed > bypass || waiter.passed != passed {
        let counted = waiter.passed;
        let why =
            format!("{name} was passed {passed} times, the ledger counted {counted}; at most {bypass} are allowed");
        return Err(Broken::new(Rule::Bypass, why));
    }
    if !waiter.goes_with_growth() {
        if state.closed {
            return Err(Broken::new(Rule::Answer, format!("{name} waits for admission to a closed ledger")));
        }
        if let Err(unattainable) = attainable(setup, state, waiter.actor)
            && !again::would_run_alone(setup, state, waiter.actor)
        {
            return Err(Broken::new(Rule::NeverFits, format!("{name} waits, but {unattainable}")));
        }
    }
    if is_grantable(setup, state, facts, waiter) {
        return Err(Broken::new(Rule::Settled, format!("{name} waits, but could be granted")));
    }
    Ok(())
}

/// Whether a waiting request could be granted now, by any of its plans.
pub(crate) fn is_grantable(setup: &Setup<'_>, state: &State, facts: &Facts, waiter: &OwnerFacts) -> bool {
    if !waiter.in_flight && again::would_run_alone(setup, state, waiter.actor) {
        let raised = again::raised(setup, state, facts, waiter);
        let is_in_the_way = again::is_in_the_way(setup, state, facts, waiter);
        return !is_in_the_way
            && !again::is_beside_alone(setup, state, facts, waiter)
            && is_safe_to_grant(setup, state, &raised, waiter)
            && may_pass(setup, state, facts, waiter);
    }
    setup.plans_left(state, waiter.actor).any(|plan| is_grantable_by(setup, state, facts, waiter, plan))
}

/// Whether a waiting request could be granted now by this plan. That it may join what others load, though it can go another way, is
/// nothing that it waits for: it may have to wait until that is there.
pub(crate) fn is_grantable_by(
    setup: &Setup<'_>,
    state: &State,
    facts: &Facts,
    waiter: &OwnerFacts,
    plan: &Plan,
) -> bool {
    if !waiter.goes_with_growth() && choice::only_joins(setup, state, facts, waiter.actor, plan) {
        return false;
    }
    let switches = waiter.in_flight
        && setup.parent(waiter.actor).is_none()
        && matches!(setup.kind(waiter.actor), Kind::Job(_))
        && plan.choice != state.actors[waiter.actor].choice;
    let changed = choice::by_plan(setup, state, facts, waiter, plan);
    changed.is_some_and(|(facts, waiter)| {
        !(switches && again::is_beside_alone(setup, state, &facts, &waiter))
            && is_grantable_as_it_is(setup, state, &facts, &waiter)
    })
}

fn is_grantable_as_it_is(setup: &Setup<'_>, state: &State, facts: &Facts, waiter: &OwnerFacts) -> bool {
    let is_growth = waiter.goes_with_growth();
    let more = if facts.has_all_it_needs(waiter) { waiter.need.clone() } else { facts.takes_to_load(waiter) };
    let Some(more) = more else { return false };
    // While a lowered limit waits for jobs to finish, new ones come in only below the limit that was asked for.
    let within_target = || facts.below_target(&more) && claims_below_target(state, facts, waiter);
    (is_growth || (within_target() && !again::is_beside_alone(setup, state, facts, waiter)))
        && is_safe_to_grant(setup, state, facts, waiter)
        && (is_growth || may_pass(setup, state, facts, waiter))
}

/// Whether a claim, with what is needed beside it, lies within the limits that were asked for.
fn claims_below_target(state: &State, facts: &Facts, waiter: &OwnerFacts) -> bool {
    let components = state.ledger.components();
    (0..facts.target.len()).all(|at| {
        let needs: u64 = waiter.needs.iter().map(|need| facts.residencies[*need].takes[at]).sum();
        let attainable = if waiter.needs.is_empty() {
            facts.target[at]
        } else {
            facts.target[at].saturating_sub(components[at].retained)
        };
        waiter.claim[at] + needs <= attainable
    })
}

/// Whether a request fits, or the load of what is needed for it, and leaves the state safe.
fn is_safe_to_grant(setup: &Setup<'_>, state: &State, facts: &Facts, waiter: &OwnerFacts) -> bool {
    let (more, mut after) = if facts.has_all_it_needs(waiter) {
        (waiter.need.clone().expect("it waits"), facts.with_granted(waiter.actor))
    } else {
        let Some(takes) = facts.takes_to_load(waiter) else { return false };
        (takes, facts.with_load(waiter.actor))
    };
    choice::with_family(setup, state, &mut after, waiter.actor);
    facts.fits(&more) && after.some_order_finishes()
}

/// Whether an admission passes nobody who may not be passed any more.
fn may_pass(setup: &Setup<'_>, state: &State, facts: &Facts, waiter: &OwnerFacts) -> bool {
    let held_back = |&other: &usize| {
        state.actors[other].passed >= setup.ledger.bypass() && !bypass::is_exempt(setup, facts, other, waiter.actor)
    };
    !bypass::passed_by(setup, state, waiter.actor).iter().any(held_back)
}

/// I4 as safety: a state in which something waits must have something that runs and will return what it holds.
///
/// Jobs in flight were promised to finish, so they may only have to wait for what runs. Admissions may also have to wait
/// for results that somebody is going to drop.
fn progress(setup: &Setup<'_>, state: &State, facts: &Facts, possible: &[Event]) -> Result<(), Broken> {
    let runs = |(actor, known): (usize, &crate::state::Actor)| match (known.at, setup.kind(actor)) {
        (At::Running(_), Kind::Reservation(kind)) => !kind.retained,
        (At::Running(_) | At::Between(_), _) if family::is_held_up(setup, state, actor) => false,
        (At::Running(_) | At::Between(_) | At::Freeing, _) => true,
        (At::Waiting(_), _) => shared::is_called(setup, state, actor),
        _ => false,
    };
    let is_moving = |shared: &shared::Shared| matches!(shared.memory, Memory::Filling | Memory::Going);
    if state.actors.iter().enumerate().any(runs) || state.shared.iter().any(is_moving) {
        return Ok(());
    }
    let drops = possible.iter().any(|event| matches!(event, Event::DropResults(_) | Event::DropAllResults(_)));
    let stuck = facts.owners.iter().find(|owner| owner.need.is_some() && (owner.goes_with_growth() || !drops));
    match stuck {
        Some(owner) => {
            let name = &setup.names[owner.actor];
            Err(Broken::new(Rule::Progress, format!("{name} waits, and nothing runs that could return anything")))
        }
        None => Ok(()),
    }
}

/// The space that bytes of a class are in, and whether they count in another one as well.
pub(crate) fn counts_in(class: Class, space: Space) -> bool {
    class.space() == space || (class.space() == Space::PINNED && space == Space::HOST)
}

/// The class of a resource, if it is bytes.
pub(crate) fn class_of(resource: Resource) -> Option<Class> {
    match resource {
        Resource::Class(class) => Some(class),
        Resource::Slots(_) => None,
    }
}
