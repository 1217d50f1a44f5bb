//! A device that is lost: its limits, and all that is held on it, go together and at once.
//!
//! Nothing of it returns to what is free, now or later. Those who held something there find out in their own time: what
//! they return is taken and vanishes, because it is not on the books any more. So that nobody counts on it either, it goes
//! out of every claim, every plan and everything that was set aside. What is left of the vector is as safe as it was: in
//! the same order each job in flight still finds what it needs of all the rest.
//!
//! A request that needs the device is refused, and so is every later one: an admission if any of its stages needs it, a
//! job in flight when it comes to a stage that does. Until then such a job goes on, since it may have another way: another
//! plan (`choice`), which it goes by from then on if the state is safe with what that promises.

use std::sync::Arc;

use smallvec::SmallVec;

use super::accounts::{Accounts, Kind};
use super::amounts::Amounts;
use super::choice::Plan;
use super::owner::{Declared, Owner, OwnerId, Phase, Want};
use super::residency::{Residencies, ResidencyId};
use super::{LedgerState, Outcome, Refusal};
use crate::ledger::error::{Lost, Reason, RetireError, Shortage};
use crate::observe::What;
use crate::{Bytes, Class, Profile, Resource, Space};

impl LedgerState {
    /// Takes a lost device off the books: its memory, its lanes and its lease, in all accounts. Returns how many bytes were
    /// held there; nothing if the device was retired before.
    ///
    /// # Errors
    ///
    /// If the space is not a device's, or the budget does not name it.
    pub fn retire(&mut self, space: Space, out: &mut Vec<Outcome>) -> Result<Bytes, RetireError> {
        let Some(device) = space.device_number() else { return Err(RetireError::NotADevice(space)) };
        let kind = Kind::Space(space);
        if self.accounts.is_lost(kind) {
            return Ok(Bytes::ZERO);
        }
        if !self.accounts.has(kind) {
            return Err(RetireError::Unbudgeted(space));
        }
        let holds: Vec<(OwnerId, Resource, u64)> = self
            .owners
            .iter()
            .flat_map(|(index, owner)| owner.holdings.iter().map(move |&(what, held)| (OwnerId(index), what, held)))
            .filter(|&(_, what, _)| Kind::from(what).device() == Some(device))
            .collect();
        let bytes = holds.iter().filter(|entry| matches!(entry.1, Resource::Class(_))).map(|entry| entry.2).sum();
        let bytes = Bytes(bytes);
        self.note_all(What::Retired { space, bytes });
        if !mutant!("lost-past-the-line") {
            // Whoever waits is taken off the queues below and put on them again.
            self.dissolve_line();
        }
        for (id, what, held) in holds {
            self.owners[id.0].unhold(what, held);
            self.count_out(id, what, held);
        }
        let lost = self.accounts.lose(device);
        let owners: Vec<OwnerId> = self.owners().collect();
        for &id in &owners {
            // The queues are told of what it wants again below.
            if self.owners[id.0].waiting.is_some() {
                self.unlist(id);
            }
            self.owners[id.0].forget_lost(&lost);
        }
        // What a part may go by depends on what its parent claims by now.
        for &id in &owners {
            self.give_up_lost_plans(id);
        }
        let residencies: Vec<ResidencyId> =
            self.residencies.entries.iter().map(|(index, _)| ResidencyId(index)).collect();
        let residencies: Vec<ResidencyId> = residencies.into_iter().filter(|id| self.is_lost_residency(*id)).collect();
        for id in &residencies {
            self.residencies.entries[id.0].amounts.clear();
        }
        self.account_retained();
        // Of several plans, those that are left may not fit the limits.
        self.recheck = true;
        for &id in &owners {
            if let Some(lost) = self.waits_for_lost(id) {
                self.refuse(id, Refusal::Lost(lost), out);
                if self.owners.get(id.0).is_some() {
                    self.leave_before_the_first_stage(id, out);
                    self.leave_loads(id);
                }
            }
        }
        for &id in &owners {
            if self.owners.get(id.0).is_some_and(|owner| owner.waiting.is_some()) {
                self.list(id);
            }
        }
        self.reorder();
        // What is left of them is of no use to anybody.
        residencies.into_iter().for_each(|id| self.evict_if_unwanted(id));
        self.settle(out);
        Ok(bytes)
    }

    /// What a waiting request needs of a lost device, if it cannot do without.
    fn waits_for_lost(&mut self, id: OwnerId) -> Option<Lost> {
        let owner = self.owners.get(id.0)?;
        match (owner.waiting.as_ref()?.want, &owner.declared) {
            (Want::Stage(stage), _) => self.lost_to(id, stage),
            (Want::More(class, _), _) => self.lost_class(&owner.name, class),
        }
    }

    /// What a job that wants to enter a stage needs of a lost device, and cannot do without: in this stage if it is in
    /// flight, otherwise in any.
    ///
    /// A job in flight is promised that it can finish by the plan that it goes by. Without that it must not be left to wait:
    /// either another plan gives it that promise now, or it is refused.
    pub(super) fn lost_to(&mut self, id: OwnerId, stage: usize) -> Option<Lost> {
        if !self.accounts.any_lost() {
            return None;
        }
        let owner = &self.owners[id.0];
        let Declared::Job { plans, .. } = &owner.declared else { unreachable!("only jobs have stages") };
        let until = if owner.in_flight() { stage + 1 } else { plans.profile().stages().len() };
        let lost = self
            .lost_needs(&owner.name, &owner.needs)
            .or_else(|| self.lost_stages(&owner.name, plans.profile(), stage..until))?;
        let can_change = owner.in_flight() && self.lost_needs(&owner.name, &owner.needs).is_none();
        (!can_change || !self.move_to_other_plan(id)).then_some(lost)
    }

    /// Lets a job in flight go by another of its plans, with what that promises.
    fn move_to_other_plan(&mut self, id: OwnerId) -> bool {
        for at in self.ways(id) {
            let Declared::Job { plans, .. } = &self.owners[id.0].declared else { unreachable!("only jobs have plans") };
            if plans.is_current(at) {
                continue;
            }
            let Some(before) = self.change_plan(id, at) else { continue };
            // Nor does it come where somebody runs alone.
            let comes_beside =
                !self.owners[id.0].is_part() && self.is_beside_alone(id) && !mutant!("moved-beside-alone");
            if !comes_beside && self.is_safe() {
                self.give_up_lost_plans(id);
                // It may claim less now, which others wait for, and limits that are on their way down.
                self.changed_plan |= !mutant!("moved-and-nobody-told");
                return true;
            }
            self.restore_plan(id, before);
        }
        false
    }

    /// Gives up the plans of a job that need a lost device in a stage that is still to come, as long as there are others and
    /// the job does not go by them already. What they needed there is not on the books, so they would seem to fit.
    pub(super) fn give_up_lost_plans(&mut self, id: OwnerId) {
        if !self.accounts.any_lost() {
            return;
        }
        let (accounts, residencies, owner) = (&self.accounts, &self.residencies, &mut self.owners[id.0]);
        let (in_flight, is_part) = (owner.in_flight(), owner.is_part());
        let from = if in_flight { owner.current_stage().unwrap_or(0) } else { 0 };
        let ended = owner.phase != Phase::Fresh && !in_flight;
        let Declared::Job { plans, .. } = &mut owner.declared else { return };
        let is_lost = |plan: &Plan| plan.is_lost(from, accounts, residencies);
        if ended {
            return;
        }
        if is_part && !in_flight {
            return self.choose_another_way(id);
        }
        plans.give_up(in_flight, is_lost);
        if !in_flight {
            self.reset_plan(id);
        }
    }

    /// Whether a plan needs a lost device from this stage on.
    pub(super) fn is_lost_plan(&self, plan: &Plan, from: usize) -> bool {
        self.accounts.any_lost() && plan.is_lost(from, &self.accounts, &self.residencies)
    }

    /// Lets a part that is not admitted go by the first plan without a lost device for which its parent has room, if there
    /// is one; otherwise it goes by the plan that it had, and is refused.
    fn choose_another_way(&mut self, id: OwnerId) {
        let Some(parent) = self.owners[id.0].family.parent else { return };
        let Declared::Job { plans, .. } = &self.owners[id.0].declared else { return };
        let is_left = |plan: &Plan| {
            !plan.is_lost(0, &self.accounts, &self.residencies)
                && plan.needs.iter().all(|need| self.owners[parent.0].needs.contains(need))
        };
        // With itself out of the sum of those that are not ended.
        let others = |state: &mut LedgerState| std::mem::take(&mut state.owners[parent.0].family.parts);
        let mut candidates: SmallVec<[(usize, Amounts, Amounts); 4]> = SmallVec::new();
        for (at, plan) in plans.left().filter(|(_, plan)| is_left(plan)) {
            candidates.push((at, plan.leaves.clone(), plan.needs_beside_its_leavings()));
        }
        let parts = others(self);
        self.owners[parent.0].family.parts = parts.iter().copied().filter(|part| *part != id).collect();
        let chosen = candidates.into_iter().find(|(_, leaves, needs)| {
            let need = self.family_need_with(parent, Some((leaves, needs)));
            let claim = &self.owners[parent.0].claim;
            need.iter().all(|(component, needed)| needed <= claim.of(component))
        });
        self.owners[parent.0].family.parts = parts;
        let Some((chosen, ..)) = chosen.filter(|_| !mutant!("part-without-another-way")) else { return };
        let (accounts, residencies, owner) = (&self.accounts, &self.residencies, &mut self.owners[id.0]);
        let Declared::Job { plans, .. } = &mut owner.declared else { unreachable!("looked at above") };
        plans.stand_for(chosen);
        plans.give_up(false, |plan| plan.is_lost(0, accounts, residencies));
        self.reset_plan(id);
    }

    /// The first thing that some stages need of a lost device.
    pub(super) fn lost_stages(
        &self,
        who: &Arc<str>,
        profile: &Profile,
        stages: std::ops::Range<usize>,
    ) -> Option<Lost> {
        if !self.accounts.any_lost() {
            return None;
        }
        let is_lost = |resource: Resource| self.accounts.is_lost(resource.into());
        profile.stages()[stages].iter().find_map(|stage| {
            let (resource, _) = stage.peak.iter().find(|entry| is_lost(entry.0))?;
            Some(Lost { who: who.clone(), stage: Some(stage.name), place: self.root_place(resource.into()) })
        })
    }

    /// The first residency that was lost, among those that a job needs.
    pub(super) fn lost_needs(&self, who: &Arc<str>, needs: &[ResidencyId]) -> Option<Lost> {
        let lost = needs.iter().find(|id| self.is_lost_residency(**id))?;
        self.lost_class(who, self.residencies.entry(*lost).declared.class)
    }

    pub(super) fn lost_class(&self, who: &Arc<str>, class: Class) -> Option<Lost> {
        let kind = Kind::Space(class.space());
        self.accounts.is_lost(kind).then(|| Lost { who: who.clone(), stage: None, place: self.root_place(kind) })
    }

    /// Why bytes of a class cannot be had at once, if that is because its device was lost.
    pub(super) fn lost_now(&self, id: OwnerId, class: Class) -> Result<(), Shortage> {
        match self.lost_class(&self.owners[id.0].name, class) {
            None => Ok(()),
            Some(Lost { who, place, .. }) => Err(Shortage { who, reason: Reason::Lost { place } }),
        }
    }
}

impl Plan {
    /// Whether a stage from this one on, or what the plan needs, was on a device that was lost.
    fn is_lost(&self, from: usize, accounts: &Accounts, residencies: &Residencies) -> bool {
        let mut resources = self.profile.stages()[from..].iter().flat_map(|stage| stage.peak.iter());
        let class = |need: &ResidencyId| residencies.entry(*need).declared.class;
        resources.any(|(resource, _)| accounts.is_lost(resource.into()))
            || self.needs.iter().any(|need| accounts.is_lost(Resource::Class(class(need)).into()))
    }
}

impl Owner {
    /// Forgets what it held, claimed and would have left in these components.
    fn forget_lost(&mut self, lost: &SmallVec<[u32; 4]>) {
        let forget = |amounts: &mut Amounts| amounts.retain(|component| !lost.contains(&component));
        let forget_plan = |plan: &mut Plan| plan.forget(lost);
        for amounts in [&mut self.held, &mut self.claim, &mut self.leaves, &mut self.family.inherits] {
            forget(amounts);
        }
        if let Some(waiting) = &mut self.waiting {
            waiting.more = None;
        }
        match &mut self.declared {
            Declared::Job { plans, .. } => plans.iter_mut().for_each(forget_plan),
            Declared::Standing { base, .. } => forget(base),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::JobSpec;
    use crate::ledger::state::accounts::AccountId;
    use crate::{Budget, Demand};

    const HOST: Class = Class::new("host", Space::HOST);
    const CARDS: [Class; 2] = [Class::new("card", Space::device(0)), Class::new("card", Space::device(1))];

    fn profile(card: Class) -> Profile {
        let on_card = Demand::new().bytes(card, Bytes(6));
        let nothing = Demand::new();
        Profile::new()
            .stage("make", on_card.clone(), nothing.clone())
            .stage("between", Demand::new().bytes(HOST, Bytes(3)), nothing.clone())
            .stage("prove", on_card, nothing)
    }

    /// A job goes by the plan of a device that is lost while the job does not need it, and then by another plan. It does not go back.
    #[test]
    fn a_plan_whose_device_is_lost_is_not_gone_back_to() {
        let spaces = [Space::HOST, Space::device(0), Space::device(1)];
        let budget = spaces.iter().fold(Budget::new(), |budget, space| budget.space(*space, Bytes(10)));
        let mut state = LedgerState::new(&budget);
        let mut out = Vec::new();
        let hold = |state: &mut LedgerState, class: Class, bytes: u64| {
            let only = Profile::new().stage("only", Demand::new().bytes(class, Bytes(bytes)), Demand::new());
            let id = state.submit(AccountId::ROOT, JobSpec::new("other", only)).unwrap();
            state.enter(0, id, 0, &mut Vec::new()).unwrap();
            id
        };
        let end = |state: &mut LedgerState, id: OwnerId, class: Class, bytes: u64, out: &mut Vec<Outcome>| {
            state.end_stage(id, &[(class, Bytes(bytes))], out);
            state.end(id, out);
        };
        let on_card = hold(&mut state, CARDS[0], 6);
        let job = JobSpec::new("job", profile(CARDS[0])).or(profile(CARDS[1]));
        let job = state.submit(AccountId::ROOT, job).unwrap();
        state.enter(0, job, 0, &mut out).unwrap();
        assert_eq!((out.len(), state.choice(job)), (1, 1), "the first card is full: {out:?}");
        state.end_stage(job, &[(CARDS[1], Bytes(6))], &mut out);
        state.retire(CARDS[1].space(), &mut out).unwrap();
        let on_host = hold(&mut state, HOST, 9);
        state.enter(0, job, 1, &mut out).unwrap();
        assert_eq!(out.len(), 1, "the host is full: {out:?}");
        end(&mut state, on_host, HOST, 9, &mut out);
        assert_eq!((out.len(), state.choice(job)), (2, 0), "the plan that is left: {out:?}");
        state.end_stage(job, &[(HOST, Bytes(3))], &mut out);
        state.enter(0, job, 2, &mut out).unwrap();
        assert_eq!(out.len(), 2, "the card that is left is full: {out:?}");
        end(&mut state, on_card, CARDS[0], 6, &mut out);
        assert_eq!((out.len(), state.choice(job)), (3, 0), "{out:?}");
        end(&mut state, job, CARDS[0], 6, &mut out);
        assert!(state.is_quiet());
    }
}
