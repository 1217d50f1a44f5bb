//! Jobs that belong together: the parts of a job, and what they leave to it.
//!
//! A part is a job of its own, with claim and leavings of its own. Three things make it a part:
//!
//! - *Its parent's claim has room for it.* At each moment, of a parent in flight
//!
//!   > held, or to be held in the stage that it waits for + what its unfinished parts leave + the largest that one of them needs beside what it leaves ≤ claim
//!
//!   so whenever the rest of the parent's claim is free, any one of its parts can run from its beginning to its end. It
//!   is checked when a part is submitted and when the parent asks for another stage ([`family_need`]); it goes on to hold
//!   because a part that ends moves what it leaves from the middle of the sum to the left.
//! - *Its requests go with those of jobs in flight*, its first one too: its parent is in flight and can only finish after
//!   it. As an admission it would be held back by the bypass rule, behind a request that waits for the parent's bytes.
//! - *What it leaves is the parent's from the event in which it ends on.* Until then the safety check counts it as the
//!   parent's already: set aside once, not twice, and never free in between.
//!
//! In the safety check a parent can finish only after its parts in flight, and then needs its claim less what it holds by
//! then. For a part that goes by the plan for which there is room this says nothing new: by the sum above, what is enough
//! for the parent is enough for the part. One that was admitted by a larger plan, since there was more free, may need more. Parts that wait to be admitted, or are not submitted yet, are within that claim.
//!
//! [`family_need`]: LedgerState::family_need

use smallvec::SmallVec;

use super::amounts::{Amounts, ComponentId};
use super::choice::Plan;
use super::owner::{Declared, Owner, OwnerId, Phase, Waiting};
use super::{LedgerState, Outcome, Refusal};
use crate::Resource;
use crate::ledger::error::{EnterError, SubmitError};
use crate::ledger::job::JobSpec;
use crate::observe::What;

/// A job in flight, as the parent of parts that are about to be submitted.
///
/// It stays that job's when the job has ended and its [`OwnerId`] names another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Parent {
    id: OwnerId,
    born: u64,
}

/// What ties an owner to others.
#[derive(Clone, Debug, Default)]
pub(super) struct Family {
    /// The job that it is a part of.
    pub(super) parent: Option<OwnerId>,
    /// Which owner that is, of all there ever were.
    parent_born: u64,
    /// Its parent ended before it was admitted.
    pub(super) orphan: bool,
    /// Its own parts that have not ended.
    pub(super) parts: Vec<OwnerId>,
    /// How many of them are in flight.
    pub(super) running: u32,
    /// What those in flight are going to leave to it.
    pub(super) inherits: Amounts,
}

/// How many parts each parent has that a safety check has not finished yet.
pub(super) struct Unfinished(SmallVec<[(u64, u32); 4]>);

impl Unfinished {
    pub(super) fn of<'a>(in_flight: impl Iterator<Item = &'a Owner>) -> Unfinished {
        let parents = in_flight.filter(|owner| owner.family.running > 0);
        Unfinished(parents.map(|owner| (owner.born, owner.family.running)).collect())
    }

    /// Whether a job has to wait for parts of it.
    pub(super) fn has_parts(&self, owner: &Owner) -> bool {
        let unfinished = |entry: &(u64, u32)| entry.0 == owner.born && entry.1 > 0;
        !mutant!("parent-before-its-parts") && owner.family.running > 0 && self.0.iter().any(unfinished)
    }

    pub(super) fn finish(&mut self, owner: &Owner) {
        if owner.is_part()
            && let Some(parent) = self.0.iter_mut().find(|entry| entry.0 == owner.family.parent_born)
        {
            parent.1 -= 1;
        }
    }
}

/// What a part's grant changed at its parent.
#[derive(Debug, Default)]
pub(super) struct FamilyBefore {
    /// The parent's claim, where it was raised.
    claim: Option<Amounts>,
}

impl Owner {
    pub(super) fn is_part(&self) -> bool {
        self.family.parent.is_some()
    }

    /// Its requests are looked at with those of jobs in flight, and nothing but safety holds them back.
    pub(super) fn goes_with_growth(&self) -> bool {
        self.in_flight() || (self.is_part() && !mutant!("parts-queue-as-admissions"))
    }

    /// What it holds and what its parts in flight will leave to it.
    pub(super) fn held_with_parts(&self, component: ComponentId) -> u64 {
        self.held.of(component) + self.family.inherits.of(component)
    }
}

impl LedgerState {
    /// A job as the parent of parts. They can be submitted while it is in flight.
    pub fn as_parent(&self, id: OwnerId) -> Parent {
        Parent { id, born: self.owners[id.0].born }
    }

    /// The parent's owner, if it is still there and goes on.
    pub(super) fn living_parent(&self, parent: Parent) -> Option<OwnerId> {
        let owner = self.owners.get(parent.id.0)?;
        let goes_on = matches!(owner.declared, Declared::Job { ending: false, .. });
        (owner.born == parent.born && owner.in_flight() && goes_on).then_some(parent.id)
    }

    /// Makes an owner that was just laid out a part of `parent`: by the first plan for which the parent has room.
    pub(super) fn check_part(&self, parent: OwnerId, part: &mut Owner, spec: &JobSpec) -> Result<(), SubmitError> {
        part.family.parent = Some(parent);
        part.family.parent_born = self.owners[parent.0].born;
        part.priority = part.priority.max(self.owners[parent.0].priority);
        let Declared::Job { plans, .. } = &mut part.declared else { unreachable!("only jobs are parts") };
        let (mut first, mut foreign) = (None, None);
        let fits = plans.choose(|plan| {
            if let Some(need) = plan.needs.iter().find(|need| !self.owners[parent.0].needs.contains(need)) {
                foreign = foreign.or(Some(*need));
                return false;
            }
            let need = self.family_need_with(parent, Some((&plan.leaves, &plan.needs_beside_its_leavings())));
            let claim = &self.owners[parent.0].claim;
            let beyond = need.iter().find(|&(component, needed)| needed > claim.of(component));
            if let Some((component, needed)) = beyond {
                // The one that is preferred is what a report should speak of.
                first.get_or_insert((component, needed, claim.of(component)));
            }
            beyond.is_none()
        });
        if fits {
            let Plan { claims, leaves, needs, .. } = plans.current();
            (part.claim, part.leaves, part.needs) = (claims[0].clone(), leaves.clone(), needs.clone());
            return Ok(());
        }
        let Some((component, needed, claim)) = first else {
            let foreign = foreign.expect("every plan needs something else, or goes beyond the claim");
            let residency = self.residencies.entry(foreign).declared.name.clone();
            let parent = self.owners[parent.0].name.clone();
            return Err(SubmitError::NotParentsNeed { job: spec.name.clone(), parent, residency });
        };
        let parent = self.owners[parent.0].name.clone();
        let place = self.place(component);
        Err(SubmitError::BeyondParent { job: spec.name.clone(), parent, place, needed, claim })
    }

    /// What a job holds, or will hold in the stage that it waits for, what its unfinished parts leave, and the most that
    /// one of them needs beside what it leaves.
    pub(super) fn family_need(&self, id: OwnerId) -> Amounts {
        self.family_need_with(id, None)
    }

    /// The same, with one more part: what it leaves, and what it needs beside that.
    pub(super) fn family_need_with(&self, id: OwnerId, more: Option<(&Amounts, &Amounts)>) -> Amounts {
        let owner = &self.owners[id.0];
        let mut need = owner.held.clone();
        if let Some(Waiting { want, .. }) = owner.waiting.as_ref().filter(|_| owner.in_flight()) {
            // It may be granted before its parts are.
            for (resource, missing) in owner.missing(*want) {
                self.accounts.add_known(owner.account, resource, missing, &mut need);
            }
        }
        let mut largest = Amounts::default();
        for part in &self.owners[id.0].family.parts {
            let part = &self.owners[part.0];
            let Declared::Job { plans, .. } = &part.declared else { unreachable!("only jobs are parts") };
            // A part in flight that takes its first request back goes by its nominal plan again. That it may be lost with its
            // device by then, and the part refused, makes it no less what was set aside: nothing else was.
            let mut leaves = plans.nominal().leaves.clone();
            leaves.raise_to(&part.leaves);
            need.add_all(&leaves);
            largest.raise_to(&plans.nominal().needs_beside_its_leavings());
        }
        if let Some((leaves, needs)) = more {
            need.add_all(leaves);
            largest.raise_to(needs);
        }
        need.add_all(&largest);
        need
    }

    /// Whether a job that enters a stage still has room in its claim for its unfinished parts.
    pub(super) fn check_parts_beside(&self, id: OwnerId, stage: usize, needed: &Amounts) -> Result<(), EnterError> {
        let owner = &self.owners[id.0];
        if owner.family.parts.is_empty() {
            return Ok(());
        }
        let mut need = self.family_need(id);
        for (component, needed) in needed.iter() {
            need.add(component, needed - owner.held.of(component));
        }
        let beyond = need.iter().find(|&(component, needed)| needed > owner.claim.of(component));
        let Some((component, needed)) = beyond else { return Ok(()) };
        let Declared::Job { plans, .. } = &owner.declared else { unreachable!("only jobs have parts") };
        let (job, stage) = (owner.name.clone(), plans.profile().stages()[stage].name);
        let claim = owner.claim.of(component);
        Err(EnterError::PartsUnfinished { job, stage, place: self.place(component), needed, claim })
    }

    /// Raises a job's claim to what it needs for its unfinished parts. Where nothing was taken beyond what was declared,
    /// it is there already.
    pub(super) fn cover_parts(&mut self, id: OwnerId) {
        if !self.owners[id.0].family.parts.is_empty() {
            let need = self.family_need(id);
            self.owners[id.0].claim.raise_to(&need);
        }
    }

    /// A part joins those in flight: what it will leave is its parent's from now on in the safety check.
    pub(super) fn join_family(&mut self, id: OwnerId) -> FamilyBefore {
        let Some(parent) = self.owners[id.0].family.parent else { return FamilyBefore::default() };
        let leaves = self.owners[id.0].leaves.clone();
        let family = &mut self.owners[parent.0].family;
        family.running += 1;
        family.inherits.add_all(&leaves);
        let need = self.family_need(parent);
        let claim = &mut self.owners[parent.0].claim;
        // Only where it leaves more by this plan than by the one for which there is room.
        let raised = need.iter().any(|(component, needed)| needed > claim.of(component));
        let before = raised.then(|| claim.clone());
        claim.raise_to(&need);
        FamilyBefore { claim: before }
    }

    /// The opposite of [`join_family`](Self::join_family).
    pub(super) fn leave_family(&mut self, id: OwnerId, before: FamilyBefore) {
        let Some(parent) = self.owners[id.0].family.parent else { return };
        let leaves = self.owners[id.0].leaves.clone();
        let owner = &mut self.owners[parent.0];
        owner.family.running -= 1;
        for (component, leaves) in leaves.iter() {
            owner.family.inherits.sub(component, leaves);
        }
        if let Some(claim) = before.claim {
            owner.claim = claim;
        }
    }

    /// A part has ended: whatever it still holds is its parent's, in this event.
    pub(super) fn hand_over(&mut self, id: OwnerId, was_in_flight: bool) {
        let Some(parent) = self.owners[id.0].family.parent else { return };
        self.owners[parent.0].family.parts.retain(|part| *part != id);
        if !was_in_flight {
            return;
        }
        self.leave_family(id, FamilyBefore::default());
        self.owners[id.0].phase = Phase::HandedOver;
        let part = &mut self.owners[id.0];
        let (held, holdings) = (std::mem::take(&mut part.held), std::mem::take(&mut part.holdings));
        let pieces = part.pieces;
        let heir = &mut self.owners[parent.0];
        heir.pieces += pieces;
        heir.held.add_all(&held);
        for &(resource, amount) in &holdings {
            heir.hold(resource, amount);
        }
        for &(resource, amount) in &holdings {
            self.note_moved(id, parent, resource, amount);
        }
        self.lower_claim(parent);
        // It may wait for a stage; its claim is what its place in the order is made of.
        self.take_place_anew(parent);
    }

    /// Whoever answers for what was reserved under this name: the owner itself, or whoever took over from it.
    pub(super) fn payer(&self, id: OwnerId) -> OwnerId {
        let mut payer = id;
        while self.owners[payer.0].phase == Phase::HandedOver {
            payer = self.owners[payer.0].family.parent.expect("who hands over has a parent");
        }
        payer
    }

    /// Does something to each owner that answers for what was reserved under this name: a part that has ended, and its
    /// parent.
    pub(super) fn each_answerable(&mut self, id: OwnerId, mut f: impl FnMut(&mut Owner)) {
        let mut at = Some(id);
        while let Some(id) = at {
            let owner = &mut self.owners[id.0];
            f(owner);
            at = owner.family.parent.filter(|_| owner.phase == Phase::HandedOver);
        }
    }

    /// A job stands where it stood before its admission: it holds nothing and is not in flight. Where parts of it have been
    /// submitted meanwhile it stays in flight, before its first stage.
    pub(super) fn step_back(&mut self, id: OwnerId, out: &mut Vec<Outcome>) {
        let owner = &self.owners[id.0];
        // What its parts have left to it, or will, is its own: it stays in flight to answer for that.
        if !owner.family.parts.is_empty() || (!owner.held.is_zero() && !mutant!("leavings-forgotten-in-stepping-back"))
        {
            let Declared::Job { again, .. } = &mut self.owners[id.0].declared else { unreachable!("it has parts") };
            again.stays = true;
            return;
        }
        self.owners[id.0].phase = Phase::Fresh;
        self.in_flight.remove(id.0);
        self.leave_needs(id);
        if let Some(parent) = self.owners[id.0].family.parent {
            self.leave_family(id, FamilyBefore::default());
            self.give_up_lost_plans(id);
            self.reset_plan(id);
            self.lower_claim(parent);
            if matches!(self.owners[parent.0].declared, Declared::Job { ending: true, .. }) {
                self.owners[parent.0].family.parts.retain(|part| *part != id);
                self.orphan(id, out);
                self.end_if_done(parent, out);
            }
        } else {
            self.give_up_lost_plans(id);
            self.reset_plan(id);
        }
    }

    /// Whether two names stand for one owner: a job, and a part that has left what it held to it.
    pub fn is_same_owner(&self, one: OwnerId, other: OwnerId) -> bool {
        one == other || self.payer(one) == self.payer(other)
    }

    /// Parts that are not in flight when their parent ends will never be.
    pub(super) fn orphan_parts(&mut self, id: OwnerId, out: &mut Vec<Outcome>) {
        let parts = std::mem::take(&mut self.owners[id.0].family.parts);
        let (running, waiting) = parts.into_iter().partition(|part| self.owners[part.0].in_flight());
        self.owners[id.0].family.parts = running;
        for part in waiting {
            self.orphan(part, out);
        }
    }

    fn orphan(&mut self, part: OwnerId, out: &mut Vec<Outcome>) {
        if self.owners[part.0].waiting.is_some() {
            self.refuse(part, Refusal::ParentEnded, out);
        }
        let family = &mut self.owners[part.0].family;
        (family.parent, family.orphan) = (None, true);
    }

    /// Ends a job whose handle is gone as soon as nothing of it runs any more: neither a stage nor a part.
    pub(super) fn end_if_done(&mut self, id: OwnerId, out: &mut Vec<Outcome>) {
        let owner = &self.owners[id.0];
        if let Declared::Job { running: None, ending: true, .. } = owner.declared {
            if owner.family.running > 0 {
                // It uses nothing any more, and loads nothing for its parts: these pin what they need themselves.
                if !mutant!("ended-parent-keeps-its-load") {
                    self.leave_needs(id);
                }
                self.lower_claim(id);
            } else {
                self.finish(id, out);
            }
        }
    }

    /// A fault to be caught: what a part leaves is free before its parent has it.
    pub(super) fn free_for_a_moment(&mut self, id: OwnerId, out: &mut Vec<Outcome>) {
        let held = self.owners[id.0].held.clone();
        for (component, held) in held.iter() {
            self.accounts.component_mut(component).held -= held;
        }
        self.settle(out);
        for (component, held) in held.iter() {
            self.accounts.component_mut(component).held += held;
        }
    }

    /// Notes that what one owner held is held by another now.
    fn note_moved(&mut self, from: OwnerId, to: OwnerId, resource: Resource, amount: u64) {
        let held = self.totals(resource).held;
        let delta = i128::from(amount);
        self.note(from, What::Changed { resource, delta: -delta, held: held - amount });
        self.note(to, What::Changed { resource, delta, held });
    }
}
