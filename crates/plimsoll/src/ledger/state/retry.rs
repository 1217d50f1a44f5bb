//! A stage that is to be run again, and a job that is to begin again.
//!
//! Both are events of a job that goes on. What they must not do is promise anything anew: a claim is never raised here,
//! so nobody has to look whether that would be safe.
//!
//! - *The stage again.* The claim stays what it was when the stage was granted, and what the stage was given on top of what
//!   the job had brought goes back. The stage can be asked for again as any stage of a job in flight, also the first one.
//! - *From the start, holding nothing.* The job leaves those in flight and may ask for admission once more. It has the age
//!   of its first admission, so that it does not queue behind those who came after it. A party that holds nothing can be
//!   taken out of any safe order.
//! - *From the start, holding its input.* Whoever holds something and queues for admission holds what others may wait for,
//!   and nobody knows until when. So such a job stays in flight, and for that its claim must not have fallen meanwhile:
//!   it declares that ([`JobSpec::restarts`](crate::JobSpec::restarts)), and claims as much in its last stage as before its first.

use smallvec::SmallVec;

use super::owner::{Declared, OwnerId};
use super::{LedgerState, Outcome};
use crate::ledger::error::RestartError;
use crate::observe::What;
use crate::{Bytes, Class, Resource};

/// What is remembered of a job so that it, or a stage of it, can be run again.
#[derive(Clone, Debug, Default)]
pub(super) struct Again {
    /// It stands before a stage that it has been in, and stays in flight: also where that is the first one.
    pub(super) stays: bool,
    /// The age of the request that it was admitted by.
    pub(super) admitted: Option<u64>,
    /// The age that its next request has, instead of that of a newcomer.
    pub(super) place: Option<u64>,
}

impl LedgerState {
    /// The running stage ends and is to be entered again: `unattached` bytes of its grant come back, and the slots that the
    /// job did not bring along. The claim stays.
    pub fn retry_stage(&mut self, id: OwnerId, unattached: &[(Class, Bytes)], out: &mut Vec<Outcome>) {
        for &(class, bytes) in unattached {
            self.give_back(id, class.into(), bytes.0);
        }
        let Declared::Job { plans, running, next, .. } = &self.owners[id.0].declared else {
            panic!("a reservation has no stage to retry")
        };
        assert!(running.is_some(), "the stage that is to be retried is running");
        // What it brought: `next` still names the stage after the last one that has ended.
        let brought = next.checked_sub(1).map(|last| plans.profile().stages()[last].keep.clone()).unwrap_or_default();
        self.give_back_slots(id, |slots| brought.of(slots));
        self.note(id, What::StageRetried);
        self.retried += 1;
        let Declared::Job { running, again, .. } = &mut self.owners[id.0].declared else {
            unreachable!("checked above")
        };
        *running = None;
        again.stays = true;
        self.lower_claim(id);
        self.end_if_done(id, out);
        self.settle(out);
    }

    /// The job begins again. One that declared that it may stays in flight with what it holds; any other must hold nothing,
    /// and asks for admission again.
    ///
    /// # Errors
    ///
    /// If it is still in a stage, or holds something and has not declared that it may.
    pub fn restart(&mut self, id: OwnerId, out: &mut Vec<Outcome>) -> Result<(), RestartError> {
        let owner = &self.owners[id.0];
        let job = owner.name.clone();
        assert!(owner.waiting.is_none(), "a request is taken back before the job begins again");
        let Declared::Job { plans, running, restarts, .. } = &owner.declared else {
            panic!("a reservation has no start to go back to")
        };
        if let Some(stage) = *running {
            return Err(RestartError::StillInStage { job, stage: plans.profile().stages()[stage].name });
        }
        if !owner.in_flight() {
            return Ok(());
        }
        let stays = *restarts;
        if !stays && !owner.family.parts.is_empty() {
            return Err(RestartError::PartsUnfinished { job, parts: owner.family.parts.len() });
        }
        let held = owner.holdings.iter().filter_map(|&(resource, amount)| match resource {
            Resource::Class(class) => Some((class, Bytes(amount))),
            Resource::Slots(_) => None,
        });
        if !stays && owner.pieces > 0 {
            return Err(RestartError::StillHolds { job, reservations: owner.pieces, held: held.collect() });
        }
        self.give_back_slots(id, |_| 0);
        self.note(id, What::Restarted);
        self.restarted += 1;
        let owner = &mut self.owners[id.0];
        let Declared::Job { next, again, .. } = &mut owner.declared else { unreachable!("checked above") };
        *next = 0;
        again.stays = stays;
        if !stays {
            again.place = again.admitted;
            self.step_back(id, out);
        }
        self.settle(out);
        Ok(())
    }

    /// Gives back a job's slots, of each kind all but `kept`.
    pub(super) fn give_back_slots(&mut self, id: OwnerId, kept: impl Fn(Resource) -> u64) {
        let holdings = &self.owners[id.0].holdings;
        let slots = holdings.iter().filter(|entry| matches!(entry.0, Resource::Slots(_)));
        let surplus: SmallVec<[_; 4]> =
            slots.map(|&(resource, held)| (resource, held.saturating_sub(kept(resource)))).collect();
        for (resource, surplus) in surplus {
            self.give_back(id, resource, surplus);
        }
    }
}
