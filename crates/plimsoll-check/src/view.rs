//! What an invariant of the user's own can look at.

use std::fmt;

use plimsoll::ledger::state::LedgerState;
use plimsoll::{Bytes, Class, Resource, Space};

use crate::event::At;
use crate::rules::{class_of, counts_in};
use crate::setup::Setup;
use crate::shared::{self, Residence};
use crate::state::State;
use crate::world::Kind;

/// A state of a world.
pub struct View<'a> {
    pub(crate) setup: &'a Setup<'a>,
    pub(crate) state: &'a State,
}

/// A job or reservation in a [`View`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActorView<'a> {
    /// Its own name: that of its kind, and a number where there are several.
    pub name: &'a str,
    /// Its kind's name.
    pub kind: &'a str,
    /// Where it stands.
    pub at: At,
}

/// A residency in a [`View`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidencyView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Where it stands.
    pub stands: Residence,
    /// How many jobs in flight pin it.
    pub pins: u32,
    /// What is held for it.
    pub held: Bytes,
}

impl<'a> View<'a> {
    /// Every residency of the world.
    pub fn residencies(&self) -> impl Iterator<Item = ResidencyView<'a>> + use<'a> {
        let (setup, state) = (self.setup, self.state);
        setup.world.residencies.iter().enumerate().map(move |(at, kind)| {
            let view = shared::view(setup, state, at);
            ResidencyView { name: &kind.name, stands: shared::residence(view.stand), pins: view.pins, held: view.held }
        })
    }

    /// The residency of this name.
    pub fn residency(&self, name: &str) -> Option<ResidencyView<'a>> {
        self.residencies().find(|residency| residency.name == name)
    }

    /// Whether a device was lost.
    pub fn is_lost(&self, device: Space) -> bool {
        device.device_number().is_some_and(|device| self.state.lost.contains(&device))
    }

    /// Every job and reservation of the world.
    pub fn actors(&self) -> impl Iterator<Item = ActorView<'a>> + use<'a> {
        let (setup, state) = (self.setup, self.state);
        state.actors.iter().enumerate().map(move |(actor, known)| ActorView {
            name: &setup.names[actor],
            kind: match setup.kind(actor) {
                Kind::Job(job) => &job.name,
                Kind::Reservation(kind) => &kind.name,
            },
            at: known.at,
        })
    }

    /// How many of a kind stand where `at` says.
    pub fn count(&self, kind: &str, at: impl Fn(At) -> bool) -> usize {
        self.actors().filter(|actor| actor.kind == kind && at(actor.at)).count()
    }

    /// What the ledger counts as held of a class or of slots.
    pub fn held(&self, resource: impl Into<Resource>) -> u64 {
        let resource = resource.into();
        let held = (0..self.state.actors.len()).flat_map(|actor| self.state.holdings(self.setup, actor));
        let held: u64 = held.filter(|entry| entry.0 == resource).map(|entry| entry.1).sum();
        let classes = self.setup.world.residencies.iter().map(|kind| Resource::from(kind.class));
        let residencies = classes.zip(self.residencies()).filter(|(class, _)| *class == resource);
        held + residencies.map(|(_, view)| view.held.0).sum::<u64>()
    }

    /// What is really held of a class, where a kind says that this differs from what it tells the ledger.
    pub fn really(&self, class: Class) -> Bytes {
        self.sum_really(|held| held == class)
    }

    /// What is really held in a space.
    pub fn really_in(&self, space: Space) -> Bytes {
        self.sum_really(|class| counts_in(class, space))
    }

    /// The ledger's state machine itself.
    pub fn ledger(&self) -> &LedgerState {
        &self.state.ledger
    }

    fn sum_really(&self, counts: impl Fn(Class) -> bool) -> Bytes {
        let held = (0..self.state.actors.len()).flat_map(|actor| self.really_held(actor));
        let held = held.filter_map(|(resource, amount)| class_of(resource).map(|class| (class, amount)));
        Bytes(held.filter(|entry| counts(entry.0)).map(|entry| entry.1).sum())
    }

    fn really_held(&self, actor: usize) -> Vec<(Resource, u64)> {
        let known = &self.state.actors[actor];
        let really = match self.setup.kind(actor) {
            Kind::Job(job) => job.really.as_ref(),
            Kind::Reservation(_) => None,
        };
        let Some(stages) = really.map(|really| really.stages()) else {
            return self.state.holdings(self.setup, actor);
        };
        let held = match known.at {
            At::Running(stage) if known.released => Some(&stages[stage].keep),
            At::Running(stage) => Some(&stages[stage].peak),
            At::Waiting(stage) | At::Between(stage) if stage > 0 => Some(&stages[stage - 1].keep),
            At::Results => stages.last().map(|stage| &stage.keep),
            _ => None,
        };
        held.map(|held| held.iter().collect()).unwrap_or_default()
    }
}

impl fmt::Debug for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.actors()).finish()
    }
}
