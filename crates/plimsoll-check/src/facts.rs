//! The facts of a state as dense vectors, and the safety of it, tried over all orders.

use plimsoll::Resource;
use plimsoll::ledger::state::{AccountId, OwnerId, Stand};

use crate::again;
use crate::event::At;
use crate::moment::Moment;
use crate::setup::{Setup, Vector};
use crate::shared::{self, Residence};
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
    /// The residencies that it needs: pinned while it is in flight.
    pub(crate) needs: Vec<usize>,
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
    pub(crate) residencies: Vec<ResidencyFacts>,
}

/// A residency, component by component.
#[derive(Clone, Debug)]
pub(crate) struct ResidencyFacts {
    pub(crate) stand: Residence,
    pub(crate) held: Vector,
    /// What it takes to load it.
    pub(crate) takes: Vector,
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
                // One that ends with its parts uses nothing any more.
                needs: if known.at == At::Ending { Vec::new() } else { setup.needs_now(state, actor).to_vec() },
                passed: view.waiting.map_or(0, |waiting| waiting.passed),
            })
        };
        Facts {
            limit: components.iter().map(|component| component.limit).collect(),
            target: components.iter().map(|component| component.target).collect(),
            held: components.iter().map(|component| component.held).collect(),
            owners: state.actors.iter().enumerate().filter_map(owner).collect(),
            residencies: (0..state.shared.len()).map(|residency| ResidencyFacts::of(setup, state, residency)).collect(),
        }
    }

    /// Takes back what happened from some moment on, so that these are the facts of that moment.
    pub(crate) fn before(mut self, setup: &Setup<'_>, state: &State, moments: &[Moment]) -> Facts {
        let find = |id: OwnerId| state.actors.iter().position(|actor| actor.id == Some(id));
        for moment in moments.iter().rev() {
            match moment {
                Moment::Granted(id, granted) => {
                    let Some(actor) = find(*id) else { continue };
                    let Some(owner) = self.owners.iter_mut().find(|owner| owner.actor == actor) else { continue };
                    let granted = setup.vector(owner.account, granted.iter().copied());
                    for (component, amount) in granted.iter().enumerate() {
                        owner.held[component] -= amount;
                        self.held[component] -= amount;
                    }
                    owner.in_flight &= state.actors[actor].in_flight() || was_admitted(moments, *id);
                    owner.need = Some(granted);
                    let owner = owner.clone();
                    if !owner.in_flight && again::would_run_alone(setup, state, actor) {
                        again::lower_again(setup, state, &mut self, &owner);
                    }
                }
                Moment::Admitted(id) => {
                    let owner = find(*id).and_then(|actor| self.owners.iter_mut().find(|owner| owner.actor == actor));
                    owner.into_iter().for_each(|owner| owner.in_flight = false);
                }
                Moment::Stood(residency, stand) => self.residencies[*residency].stand = shared::residence(*stand),
                Moment::Held(residency, delta) => {
                    let amount = u64::try_from(delta.unsigned_abs()).expect("amounts are small");
                    let class = setup.world.residencies[*residency].class;
                    let amounts = setup.vector(AccountId::ROOT, std::iter::once((class.into(), amount)));
                    for (at, amount) in amounts.into_iter().enumerate() {
                        for held in [&mut self.held[at], &mut self.residencies[*residency].held[at]] {
                            *held = if *delta > 0 { *held - amount } else { *held + amount };
                        }
                    }
                }
                Moment::Refused(..) => {}
            }
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

    /// Whether anybody in flight pins a residency.
    fn is_pinned(&self, residency: usize) -> bool {
        self.owners.iter().any(|owner| owner.in_flight && owner.needs.contains(&residency))
    }

    /// The facts as they would be if all residencies were gone that nobody pins, and that are none of these.
    pub(crate) fn without_unpinned(&self, needs: &[usize]) -> Facts {
        let mut facts = self.clone();
        for residency in 0..facts.residencies.len() {
            if !needs.contains(&residency) && !self.is_pinned(residency) {
                let held = std::mem::take(&mut facts.residencies[residency].held);
                facts.held.iter_mut().zip(&held).for_each(|(sum, held)| *sum -= held);
                facts.residencies[residency].held = vec![0; held.len()];
            }
        }
        facts
    }

    /// What it takes to load what an owner needs and nobody has loaded; `None` where that has to wait.
    pub(crate) fn takes_to_load(&self, owner: &OwnerFacts) -> Option<Vector> {
        let is = |need: &usize, stand| self.residencies[*need].stand == stand;
        if owner.in_flight || owner.needs.iter().any(|need| is(need, Residence::Evicting)) {
            return None;
        }
        let mut takes = vec![0; self.held.len()];
        for need in owner.needs.iter().filter(|need| is(need, Residence::Absent)) {
            takes.iter_mut().zip(&self.residencies[*need].takes).for_each(|(sum, takes)| *sum += takes);
        }
        Some(takes)
    }

    /// Whether all that an owner needs is there.
    pub(crate) fn has_all_it_needs(&self, owner: &OwnerFacts) -> bool {
        owner.needs.iter().all(|need| self.residencies[*need].stand == Residence::Resident)
    }

    /// The facts with an owner admitted to the load of what it needs.
    pub(crate) fn with_load(&self, actor: usize) -> Facts {
        let mut facts = self.clone();
        let at = facts.owners.iter().position(|owner| owner.actor == actor).expect("it waits");
        facts.owners[at].in_flight = true;
        for need in facts.owners[at].needs.clone() {
            let residency = &mut facts.residencies[need];
            if residency.stand == Residence::Absent {
                residency.stand = Residence::Called;
                residency.held.clone_from(&residency.takes);
                facts.held.iter_mut().zip(&residency.takes).for_each(|(sum, takes)| *sum += takes);
            }
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
            let unpinned = (0..self.residencies.len()).filter(|residency| !self.is_pinned(*residency));
            let reclaimable: u64 = unpinned.map(|residency| self.residencies[residency].held[at]).sum();
            match self.limit[at].checked_sub(self.held[at] - reclaimable + aside) {
                Some(left) => free.push(left),
                None => return false,
            }
        }
        self.finishes(&in_flight, &free, &in_flight)
    }

    /// Tries each of `left` as the next to finish, of all that were in flight at first.
    fn finishes(&self, all: &[&OwnerFacts], free: &[u64], left: &[&OwnerFacts]) -> bool {
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
                let rest: Vec<&OwnerFacts> = (0..left.len()).filter(|&at| at != next).map(|at| left[at]).collect();
                let mut after: Vec<u64> =
                    (0..free.len()).map(|at| free[at] + held[at].saturating_sub(owner.leaves[at])).collect();
                // What nobody else pins comes back with it.
                for need in owner.needs.iter().filter(|need| !rest.iter().any(|other| other.needs.contains(need))) {
                    after.iter_mut().zip(&self.residencies[*need].held).for_each(|(after, held)| *after += held);
                }
                self.finishes(all, &after, &rest)
            })
    }
}

impl ResidencyFacts {
    fn of(setup: &Setup<'_>, state: &State, residency: usize) -> ResidencyFacts {
        let view = shared::view(setup, state, residency);
        let kind = &setup.world.residencies[residency];
        let vector = |bytes: u64| setup.vector(AccountId::ROOT, std::iter::once((kind.class.into(), bytes)));
        ResidencyFacts {
            stand: shared::residence(view.stand),
            held: vector(view.held.0),
            takes: setup.without_lost(state, vector(kind.bytes.0)),
        }
    }
}

/// Whether an owner was admitted to a load among these moments, and not by its grant.
fn was_admitted(moments: &[Moment], id: OwnerId) -> bool {
    moments.iter().any(|moment| matches!(moment, Moment::Admitted(admitted) if *admitted == id))
}

/// What the parts of an owner, of those in flight, leave to it.
fn left_by_parts(in_flight: &[&OwnerFacts], parent: usize, at: usize) -> u64 {
    in_flight.iter().filter(|part| part.parent == Some(parent)).map(|part| part.leaves[at]).sum()
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
