//! The facts of a state as dense vectors, and the safety of it, tried over all orders.

use plimsoll::Resource;
use plimsoll::ledger::state::{AccountId, Outcome, Stand};

use crate::event::At;
use crate::setup::{Setup, Vector};
use crate::state::State;
use crate::world::Kind;

/// An owner that the ledger knows.
#[derive(Clone, Debug)]
pub(crate) struct OwnerFacts {
    pub(crate) actor: usize,
    pub(crate) account: AccountId,
    pub(crate) in_flight: bool,
    /// The actor that it is a part of, while that one goes on.
    pub(crate) parent: Option<usize>,
    pub(crate) held: Vector,
    pub(crate) claim: Vector,
    pub(crate) leaves: Vector,
    /// What its waiting request needs beyond what is held.
    pub(crate) need: Option<Vector>,
    /// By the ledger's count.
    pub(crate) passed: u32,
}

/// A state, component by component.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) limit: Vector,
    pub(crate) target: Vector,
    pub(crate) held: Vector,
    pub(crate) owners: Vec<OwnerFacts>,
}

impl OwnerFacts {
    /// Its requests are looked at with those of jobs in flight.
    pub(crate) fn goes_with_growth(&self) -> bool {
        self.in_flight || self.parent.is_some()
    }
}

impl Facts {
    pub(crate) fn of(setup: &Setup<'_>, state: &State) -> Facts {
        let components = state.ledger.components();
        let dense = |sparse: &[(usize, u64)]| {
            let mut vector = vec![0; components.len()];
            for &(component, amount) in sparse {
                vector[component] = amount;
            }
            vector
        };
        let owner = |(actor, known): (usize, &crate::state::Actor)| {
            let view = state.ledger.owner(known.id?)?;
            let need = match known.at {
                At::Waiting(stage) => {
                    Some(setup.vector(view.account, missing(setup, state, actor, stage, &view.holdings)))
                }
                _ => None,
            };
            Some(OwnerFacts {
                actor,
                account: view.account,
                in_flight: matches!(view.stand, Stand::Running(_) | Stand::Between(_)),
                parent: view.parent.and(setup.parent(actor)),
                held: setup.vector(view.account, view.holdings.iter().copied()),
                claim: dense(&view.claim),
                leaves: dense(&view.leaves),
                need,
                passed: view.waiting.map_or(0, |waiting| waiting.passed),
            })
        };
        Facts {
            limit: components.iter().map(|component| component.limit).collect(),
            target: components.iter().map(|component| component.target).collect(),
            held: components.iter().map(|component| component.held).collect(),
            owners: state.actors.iter().enumerate().filter_map(owner).collect(),
        }
    }

    /// Takes back the grants that were made from some moment on, so that these are the facts of that moment.
    pub(crate) fn before(mut self, setup: &Setup<'_>, state: &State, grants: &[Outcome]) -> Facts {
        for grant in grants {
            let Outcome::Granted(id, granted) = grant else { continue };
            let Some(actor) = state.actors.iter().position(|actor| actor.id == Some(*id)) else { continue };
            let Some(owner) = self.owners.iter_mut().find(|owner| owner.actor == actor) else { continue };
            let granted = setup.vector(owner.account, granted.iter().copied());
            for (component, amount) in granted.iter().enumerate() {
                owner.held[component] -= amount;
                self.held[component] -= amount;
            }
            if state.actors[actor].at == At::Waiting(0) {
                owner.in_flight = false;
            }
            owner.need = Some(granted);
        }
        self
    }

    /// The facts with everybody going by the plan that it went by when it asked, whatever it was granted by since.
    pub(crate) fn with_what_was_asked(mut self, state: &State) -> Facts {
        for owner in &mut self.owners {
            let actor = &state.actors[owner.actor];
            if let (At::Waiting(_), Some((account, choice, claim, leaves))) = (actor.at, &actor.asked)
                && let Some(id) = actor.id
                && (*account, *choice) != (owner.account, state.ledger.choice(id))
            {
                owner.account = *account;
                owner.claim.clone_from(claim);
                owner.leaves.clone_from(leaves);
            }
        }
        self
    }

    pub(crate) fn fits(&self, need: &[u64]) -> bool {
        (0..need.len()).all(|at| self.held[at] + need[at] <= self.limit[at])
    }

    pub(crate) fn below_target(&self, need: &[u64]) -> bool {
        (0..need.len()).all(|at| need[at] == 0 || self.held[at] + need[at] <= self.target[at])
    }

    /// Whether a claim lies within the limits that were asked for.
    pub(crate) fn claims_below_target(&self, owner: &OwnerFacts) -> bool {
        owner.claim.iter().zip(&self.target).all(|(claim, target)| claim <= target)
    }

    /// The facts with the waiting request of an owner granted.
    pub(crate) fn with_granted(&self, actor: usize) -> Facts {
        let mut facts = self.clone();
        let owner = facts.owners.iter_mut().find(|owner| owner.actor == actor).expect("it waits");
        owner.in_flight = true;
        let need = owner.need.take().expect("it waits");
        for (at, need) in need.iter().enumerate() {
            owner.held[at] += need;
            facts.held[at] += need;
        }
        facts
    }

    /// Whether some order finishes all owners in flight one after another, each within what is free by then.
    ///
    /// All orders are tried. What owners leave behind is set aside from the start, as the ledger documents it.
    pub(crate) fn some_order_finishes(&self) -> bool {
        let in_flight: Vec<&OwnerFacts> = self.owners.iter().filter(|owner| owner.in_flight).collect();
        let mut free = Vec::with_capacity(self.limit.len());
        for at in 0..self.limit.len() {
            // What a part will leave is set aside once: at the part, and as something that its parent has.
            let has = |owner: &OwnerFacts| owner.held[at] + left_by_parts(&in_flight, owner.actor, at);
            let aside: u64 = in_flight.iter().map(|owner| owner.leaves[at].saturating_sub(has(owner))).sum();
            match self.limit[at].checked_sub(self.held[at] + aside) {
                Some(left) => free.push(left),
                None => return false,
            }
        }
        finishes(&in_flight, &free, &in_flight)
    }
}

/// What the parts of an owner, of those in flight, leave to it.
fn left_by_parts(in_flight: &[&OwnerFacts], parent: usize, at: usize) -> u64 {
    in_flight.iter().filter(|part| part.parent == Some(parent)).map(|part| part.leaves[at]).sum()
}

/// Tries each of `left` as the next to finish, of all that were in flight at first.
fn finishes(all: &[&OwnerFacts], free: &[u64], left: &[&OwnerFacts]) -> bool {
    left.is_empty()
        || (0..left.len()).any(|next| {
            let owner = left[next];
            // Its parts have left to it what they leave.
            let held: Vec<u64> =
                (0..free.len()).map(|at| owner.held[at] + left_by_parts(all, owner.actor, at)).collect();
            let has = |at: usize| held[at].max(owner.leaves[at]);
            if left.iter().any(|part| part.parent == Some(owner.actor)) {
                return false;
            }
            if !(0..free.len()).all(|at| owner.claim[at].saturating_sub(has(at)) <= free[at]) {
                return false;
            }
            let after: Vec<u64> =
                (0..free.len()).map(|at| free[at] + held[at].saturating_sub(owner.leaves[at])).collect();
            let rest: Vec<&OwnerFacts> = (0..left.len()).filter(|&at| at != next).map(|at| left[at]).collect();
            finishes(all, &after, &rest)
        })
}

/// What a request for a stage or level needs beyond what is held.
fn missing(
    setup: &Setup<'_>,
    state: &State,
    actor: usize,
    stage: usize,
    holdings: &[(Resource, u64)],
) -> impl Iterator<Item = (Resource, u64)> {
    let held = |resource| holdings.iter().find(|entry| entry.0 == resource).map_or(0, |entry| entry.1);
    let needed: Vec<(Resource, u64)> = match setup.kind(actor) {
        Kind::Job(_) => setup.profile(state, actor).stages()[stage].peak.iter().collect(),
        Kind::Reservation(kind) => vec![(kind.class.into(), kind.levels[stage].0)],
    };
    let missing = needed.into_iter().map(move |(resource, needed)| (resource, needed.saturating_sub(held(resource))));
    missing.collect::<Vec<_>>().into_iter()
}
