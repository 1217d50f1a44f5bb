//! What one event brought about, step by step, so that each step can be judged by the state in which it was taken.

use plimsoll::Resource;
use plimsoll::ledger::state::{Granted, LedgerState, Outcome, OwnerId, Refusal, ResidencyStand};
use plimsoll::observe::What;

use crate::setup::Setup;

/// One step of the pass that follows an event.
#[derive(Clone, Debug)]
pub(crate) enum Moment {
    Granted(OwnerId, Granted),
    Refused(OwnerId, Refusal),
    /// A job was admitted to the load of what it needs.
    Admitted(OwnerId),
    /// A residency stood otherwise before this.
    Stood(usize, ResidencyStand),
    /// So much more is held for a residency.
    Held(usize, i128),
}

/// Takes what the last event brought about. Worlds without residencies need no more than its outcomes.
pub(crate) fn take(setup: &Setup<'_>, ledger: &mut LedgerState, out: &mut Vec<Outcome>) -> Vec<Moment> {
    let mut outcomes = std::mem::take(out).into_iter();
    let of_outcome = |outcome: Outcome| match outcome {
        Outcome::Granted(id, granted) => Moment::Granted(id, granted),
        Outcome::Refused(id, refusal) => Moment::Refused(id, refusal),
    };
    if setup.world.residencies.is_empty() {
        return outcomes.map(of_outcome).collect();
    }
    let mut moments = Vec::new();
    // The state machine tells observers what it does as it does it.
    let changes: Vec<_> = ledger.drain_changes().collect();
    for change in changes {
        let Some(subject) = change.subject else { continue };
        let residency = || {
            let is_it = |kind: &crate::shared::ResidencyKind| !subject.is_job && *kind.name == *subject.name;
            setup.world.residencies.iter().position(is_it)
        };
        match change.what {
            What::Granted | What::Refused => moments.extend(outcomes.next().map(of_outcome)),
            What::Admitted => moments.extend(owner(ledger, subject.number).map(Moment::Admitted)),
            What::LoadStarted => moments.extend(residency().map(|at| Moment::Stood(at, ResidencyStand::Absent))),
            What::Loaded => moments.extend(residency().map(|at| Moment::Stood(at, ResidencyStand::Loading))),
            What::EvictionStarted => moments.extend(residency().map(|at| Moment::Stood(at, ResidencyStand::Resident))),
            What::Evicted => moments.extend(residency().map(|at| Moment::Stood(at, ResidencyStand::Evicting))),
            What::Changed { resource: Resource::Class(_), delta, .. } => {
                moments.extend(residency().map(|at| Moment::Held(at, delta)));
            }
            _ => {}
        }
    }
    moments.extend(outcomes.map(of_outcome));
    moments
}

fn owner(ledger: &LedgerState, number: usize) -> Option<OwnerId> {
    ledger.owners().find(|id| id.index() == number)
}
