//! Lost devices: what is on none any more, and which plans are left.
//!
//! A plan that needs a lost device in a stage to come is forgotten, as long as there is another one; a job in flight keeps
//! the one that it goes by, and changes when it comes to such a stage, if another one is safe.

use plimsoll::ledger::state::Kind as Limited;
use plimsoll::{Class, Resource, Space};

use crate::again;
use crate::choice;
use crate::event::At;
use crate::facts::Facts;
use crate::family;
use crate::rules::{Broken, Rule};
use crate::setup::{Plan, Setup, Vector};
use crate::state::{State, Step};
use crate::world::Kind;

impl Setup<'_> {
    /// Whether what a class is in was lost.
    pub(crate) fn is_lost(&self, state: &State, class: Class) -> bool {
        is_of_lost(state, Limited::Space(class.space()))
    }

    /// An amount for each component, without those that were lost.
    pub(crate) fn without_lost(&self, state: &State, mut vector: Vector) -> Vector {
        if !state.lost.is_empty() {
            for (component, amount) in self.components.iter().zip(&mut vector) {
                if is_of_lost(state, component.kind) {
                    *amount = 0;
                }
            }
        }
        vector
    }

    /// Whether a plan needs a lost device in one of these stages, or for what it needs beside its claim.
    pub(crate) fn needs_lost(&self, state: &State, plan: &Plan, stages: std::ops::Range<usize>) -> bool {
        let Some(profile) = plan.profile.as_ref().filter(|_| !state.lost.is_empty()) else { return false };
        let mut resources = profile.stages()[stages].iter().flat_map(|stage| stage.peak.iter());
        resources.any(|(resource, _)| is_lost_resource(state, resource)) || self.any_lost(state, &plan.needs)
    }

    fn any_lost(&self, state: &State, needs: &[usize]) -> bool {
        needs.iter().any(|need| self.is_lost(state, self.world.residencies[*need].class))
    }

    /// The plans by which an actor may still be served, in order of preference.
    pub(crate) fn plans_left<'s>(&'s self, state: &State, actor: usize) -> impl Iterator<Item = &'s Plan> {
        let forgotten = state.actors[actor].forgotten;
        let plans = self.plans(actor).iter().enumerate();
        plans.filter(move |(at, _)| forgotten & (1 << at) == 0).map(|entry| entry.1)
    }

    /// The plan that a job goes by.
    pub(crate) fn current_plan(&self, state: &State, actor: usize) -> Option<&Plan> {
        let known = &state.actors[actor];
        let account = state.ledger.owner(known.id?)?.account;
        self.plans(actor).iter().find(|plan| plan.account == account && plan.choice == known.choice)
    }
}

pub(crate) fn is_lost_resource(state: &State, resource: Resource) -> bool {
    let kind = match resource {
        Resource::Class(class) => Limited::Space(class.space()),
        Resource::Slots(slots) => Limited::Slots(slots),
    };
    is_of_lost(state, kind)
}

fn is_of_lost(state: &State, kind: Limited) -> bool {
    !state.lost.is_empty() && kind.device().is_some_and(|device| state.lost.contains(&device))
}

/// Whether what an actor asks for, or is about to, cannot be had because of a lost device.
pub(crate) fn is_out_of_reach(setup: &Setup<'_>, state: &State, actor: usize, stage: usize) -> bool {
    let known = &state.actors[actor];
    match setup.kind(actor) {
        _ if state.lost.is_empty() => false,
        Kind::Reservation(kind) => setup.is_lost(state, kind.class),
        Kind::Job(_) => {
            let until = if known.in_flight() { stage + 1 } else { setup.stages(actor) };
            setup.current_plan(state, actor).is_some_and(|plan| setup.needs_lost(state, plan, stage..until))
        }
    }
}

/// Whether an actor that has not arrived would be refused because of a lost device.
pub(crate) fn is_refused_at_once(setup: &Setup<'_>, state: &State, actor: usize) -> bool {
    match setup.kind(actor) {
        _ if state.lost.is_empty() => false,
        Kind::Reservation(kind) => setup.is_lost(state, kind.class),
        Kind::Job(_) => {
            let lost = |plan: &Plan| setup.needs_lost(state, plan, 0..setup.stages(actor));
            setup.plans(actor).iter().all(lost)
        }
    }
}

/// Whether a job in flight that comes to a stage which needs a lost device could go by another plan.
pub(crate) fn has_another_way(setup: &Setup<'_>, state: &State, actor: usize) -> bool {
    if setup.any_lost(state, setup.needs_now(state, actor)) || !state.actors[actor].in_flight() {
        return false;
    }
    let facts = Facts::of(setup, state);
    let Some(me) = facts.owners.iter().find(|owner| owner.actor == actor) else { return false };
    setup.plans_left(state, actor).any(|plan| {
        let is_current = plan.account == me.account && plan.choice == state.actors[actor].choice;
        let is_possible = |facts: Facts| {
            let me = facts.owners.iter().find(|owner| owner.actor == actor).expect("it is known");
            let is_part = setup.parent(actor).is_some();
            (is_part || !again::is_beside_alone(setup, state, &facts, me)) && facts.some_order_finishes()
        };
        !is_current && choice::changed(setup, state, &facts, me, plan).is_some_and(is_possible)
    })
}

impl State {
    /// A job in flight that cannot go on by its plan may have changed to another one; it then never comes back to it.
    pub(crate) fn changes_its_way(&mut self, setup: &Setup<'_>, actor: usize) {
        if let (Some(id), Kind::Job(_)) = (self.actors[actor].id, setup.kind(actor)) {
            let choice = self.ledger.choice(id);
            if std::mem::replace(&mut self.actors[actor].choice, choice) != choice {
                self.forget_lost_plans(setup, actor);
                // Its request takes the place that goes with what it claims now.
                let me = Facts::of(setup, self).owners.into_iter().find(|owner| owner.actor == actor);
                self.actors[actor].asked = me.map(|me| (me.account, choice, me.claim, me.leaves));
            }
        }
    }

    /// Forgets the plans of a job that need a lost device, as the state machine does when the device is lost and when a job
    /// stands where it stood before its admission.
    pub(crate) fn forget_lost_plans(&mut self, setup: &Setup<'_>, actor: usize) {
        let known = &self.actors[actor];
        if self.lost.is_empty() || known.id.is_none() || !matches!(setup.kind(actor), Kind::Job(_)) {
            return;
        }
        let in_flight = known.in_flight();
        let from = match known.at {
            At::Running(stage) | At::Waiting(stage) | At::Between(stage) if in_flight => stage,
            At::Waiting(_) | At::Between(_) => 0,
            _ => return,
        };
        let stages = setup.stages(actor);
        let current = setup.current_plan(self, actor).map(|plan| (plan.account, plan.choice));
        let goes_by = |plan: &Plan| in_flight && current == Some((plan.account, plan.choice));
        let is_gone = |plan: &Plan| !goes_by(plan) && setup.needs_lost(self, plan, from..stages);
        let plans = setup.plans(actor).iter().enumerate();
        let gone = plans.filter(|(_, plan)| is_gone(plan)).fold(known.forgotten, |gone, (at, _)| gone | 1 << at);
        if gone.count_ones() as usize == setup.plans(actor).len() {
            return;
        }
        self.actors[actor].forgotten = gone;
        if setup.parent(actor).is_some() && !in_flight {
            // It is not counted with itself, and without another way it stands by the one that it had.
            let before = self.actors[actor].surety.take();
            self.actors[actor].surety = family::plan_with_room(setup, self, actor).or(before);
        }
    }
}

impl Step<'_> {
    pub(crate) fn lose(&mut self, number: usize) -> Result<(), Broken> {
        let space: Space = self.setup.world.losses[number];
        let device = space.device_number().expect("the set-up has looked");
        let held = |actor: usize| self.state.holdings(self.setup, actor);
        let on_it = |resource: Resource| matches!(resource, Resource::Class(class) if class.space() == space);
        let held = (0..self.state.actors.len()).flat_map(held).filter(|entry| on_it(entry.0)).map(|entry| entry.1);
        let mut held: u64 = held.sum();
        for (residency, kind) in self.setup.world.residencies.iter().enumerate() {
            if kind.class.space() == space {
                held += crate::shared::view(self.setup, self.state, residency).held.0;
            }
        }
        let retired = self.state.ledger.retire(space, &mut self.out);
        let bytes = retired.map_err(|error| Broken::new(Rule::Answer, error.to_string()))?;
        if bytes.0 != held {
            let why = format!("{held} bytes were held on the device that was lost, and {} went with it", bytes.0);
            return Err(Broken::new(Rule::Lost, why));
        }
        self.state.lost.push(device);
        self.state.lost.sort();
        for actor in 0..self.state.actors.len() {
            self.state.forget_lost_plans(self.setup, actor);
        }
        for actor in 0..self.state.actors.len() {
            let known = &self.state.actors[actor];
            if let At::Waiting(stage) = known.at
                && known.in_flight()
                && is_out_of_reach(self.setup, self.state, actor, stage)
            {
                // Either it is refused, or it has changed its way.
                self.state.actors[actor].told = true;
                self.state.changes_its_way(self.setup, actor);
            }
        }
        let told: Vec<usize> = (0..self.state.actors.len()).filter(|actor| self.state.actors[*actor].told).collect();
        self.pass_on()?;
        for actor in told {
            if !matches!(self.state.actors[actor].at, At::Between(_)) {
                self.state.actors[actor].told = false;
            }
        }
        Ok(())
    }
}

/// A lost device has no limit, and nothing is held there; nobody waits for it.
pub(crate) fn check(setup: &Setup<'_>, state: &State, facts: &Facts) -> Result<(), Broken> {
    for (at, component) in state.ledger.components().iter().enumerate() {
        let label = &setup.components[at].label;
        if component.retired != is_of_lost(state, component.kind) {
            return Err(Broken::new(Rule::Lost, format!("{label} is off the books: {}", component.retired)));
        }
        if component.retired && (component.limit, component.target, component.held) != (0, 0, 0) {
            return Err(Broken::new(Rule::Lost, format!("something of {label} is left: {component:?}")));
        }
    }
    for owner in facts.owners.iter().filter(|owner| owner.need.is_some()) {
        let At::Waiting(stage) = state.actors[owner.actor].at else { continue };
        if is_out_of_reach(setup, state, owner.actor, stage) {
            return Err(Broken::new(Rule::Lost, format!("{} waits for what was lost", setup.names[owner.actor])));
        }
    }
    Ok(())
}
