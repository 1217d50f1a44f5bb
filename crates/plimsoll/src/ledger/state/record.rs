//! The changes that the state goes through, for observers. Nothing is recorded unless somebody has asked for it.

use std::sync::Arc;

use super::accounts::Kind;
use super::amounts::ComponentId;
use super::owner::{Declared, OwnerId, Want};
use super::{LedgerState, Resource};
use crate::Bytes;
use crate::observe::{Subject, What};

/// One change, before the shell gives it a number and a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Whom it happened to.
    pub subject: Option<Subject>,
    /// What happened.
    pub what: What,
}

/// What was recorded and not yet taken.
#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    on: bool,
    changes: Vec<Change>,
}

impl LedgerState {
    /// Records changes from now on, to be taken by [`drain_changes`](LedgerState::drain_changes) after each event.
    pub fn record_changes(&mut self, on: bool) {
        self.record.on = on;
        self.record.changes.clear();
    }

    pub(super) fn is_recording(&self) -> bool {
        self.record.on
    }

    /// Whether changes are recorded and were not taken yet.
    pub fn has_changes(&self) -> bool {
        !self.record.changes.is_empty()
    }

    /// Takes the changes recorded since the last call, in the order in which they happened.
    pub fn drain_changes(&mut self) -> impl Iterator<Item = Change> + '_ {
        self.record.changes.drain(..)
    }

    /// The stage that an owner is in, or waits to enter.
    pub(super) fn stage_of(&self, id: OwnerId) -> Option<&'static str> {
        let owner = &self.owners[id.0];
        let Declared::Job { plans, running, .. } = &owner.declared else { return None };
        let waited_for = owner.waiting.as_ref().and_then(|waiting| match waiting.want {
            Want::Stage(stage) => Some(stage),
            Want::More(..) => None,
        });
        running.or(waited_for).map(|stage| plans.profile().stages()[stage].name)
    }

    /// Records what has happened to a job outside of the ledger: where it runs, how it ended.
    pub fn note_of_job(&mut self, id: OwnerId, what: What) {
        self.note(id, what);
    }

    /// Records what has happened outside of the state machine, and concerns nobody in particular.
    pub fn note_of_ledger(&mut self, what: What) {
        self.note_all(what);
    }

    /// Notes what happened to an owner. Called while the owner is still as it was when it happened.
    pub(super) fn note(&mut self, id: OwnerId, what: What) {
        if !self.record.on {
            return;
        }
        let owner = &self.owners[id.0];
        let is_job = matches!(owner.declared, Declared::Job { .. });
        let subject = Subject { number: id.0, name: Arc::clone(&owner.name), is_job, stage: self.stage_of(id) };
        self.record.changes.push(Change { subject: Some(subject), what });
    }

    /// Notes what happened to the whole ledger.
    pub(super) fn note_all(&mut self, what: What) {
        if self.record.on {
            self.record.changes.push(Change { subject: None, what });
        }
    }

    /// Notes the limits that the root has set, for who begins to observe. Spaces and slots without a limit have no event.
    pub fn note_limits(&mut self) {
        let mut limits: Vec<(Kind, u64)> = Vec::new();
        for component in 0..self.accounts.components.len() {
            let (place, target) = (self.place(component as ComponentId), self.accounts.components[component].target);
            if place.child.is_some() {
                continue;
            }
            // The urgent reserve is a part of the limit.
            match limits.iter_mut().find(|limit| limit.0 == place.kind) {
                Some((_, limit)) => *limit = limit.saturating_add(target),
                None => limits.push((place.kind, target)),
            }
        }
        for (kind, limit) in limits.into_iter().filter(|limit| limit.1 < u64::MAX) {
            self.note_all(match kind {
                Kind::Space(space) => What::Resized { space, limit: Bytes(limit) },
                Kind::Slots(slots) => What::ResizedSlots { slots, limit },
            });
        }
    }

    /// Notes that more or less is held of a resource.
    pub(super) fn note_delta(&mut self, id: OwnerId, resource: Resource, delta: i128) {
        if self.record.on && delta != 0 {
            let held = self.totals(resource).held;
            self.note(id, What::Changed { resource, delta, held });
        }
    }
}
