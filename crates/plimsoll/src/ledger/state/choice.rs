//! Alternatives: the plans by which a job may be served, in order of preference, and which of them it goes by.
//!
//! A plan is a profile laid out over the components of one account. A job has one for each profile that it was given, and
//! an urgent job one more for each over the urgent reserve. A waiting request tries them in order; the first that fits and
//! is safe is granted, and from then on the job goes by it.
//!
//! - *The plan it goes by is its guarantee.* What the safety check knows of a job in flight is the claim of one plan, so
//!   the proof of progress is that of a job with that plan alone. The others only add chances.
//! - *Changing the plan is a grant like any other.* The claim and the leavings of the other plan are put in place before
//!   the state is checked; if it is not safe with them, the job goes by its old plan as if nothing had been tried.
//! - *A change may open something up for others*: the job may claim less of something from then on. So the pass over the
//!   requests in flight begins again after it. Each change is a grant, so this comes to an end.
//! - *A job in flight changes to a plan only if what it holds is within what that plan brings to the stage*, in the same
//!   account: nothing that it holds is then foreign to the plan.
//! - *What a plan needs is pinned with it*: a job in flight changes to a plan that needs the same residencies, or gives some up
//!   for good (`go_smaller`). Others it would have to pin, and perhaps to load, and nobody has made room for that.
//! - *A plan whose claim is above a limit drops out* for as long as it is. A job of which no plan is left never fits.
//! - *A plan that is given up keeps its number.* What was set aside for a part goes by one of its plans, also when that has been lost
//!   with its device and the part goes by another one (`family`).

use std::sync::Arc;

use smallvec::SmallVec;

use super::accounts::{AccountId, Accounts, Kind};
use super::amounts::Amounts;
use super::family::FamilyBefore;
use super::owner::{Declared, OwnerId, Want};
use super::residency::{Readiness, Residence, ResidencyId};
use super::{Granted, LedgerState, Outcome};
use crate::ledger::error::SubmitError;
use crate::ledger::job::JobSpec;
use crate::ledger::residency::Need;
use crate::profile::StageProfile;
use crate::{Demand, Profile, Resource};

/// A profile, laid out over the components of one account.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) profile: Profile,
    /// Which of the job's profiles it is, in order of preference.
    pub(super) choice: usize,
    pub(super) account: AccountId,
    /// The claim when stage i is the next or the current one: the most that is held from i on, by the job itself and by
    /// those of its parts for which the profile makes room.
    pub(super) claims: Vec<Amounts>,
    /// What the job itself holds at most in each stage.
    pub(super) peaks: Vec<Amounts>,
    /// What the job leaves behind.
    pub(super) leaves: Amounts,
    /// The residencies that a job needs which goes by it, in order.
    pub(super) needs: Needs,
}

/// One of the plans of a job.
#[derive(Clone, Debug)]
struct Way {
    plan: Arc<Plan>,
    /// The job does not come to go by it any more.
    is_given_up: bool,
}

/// The numbers of some plans of a job.
pub(super) type Ways = SmallVec<[usize; 8]>;

/// Residencies that are needed together.
pub(super) type Needs = SmallVec<[ResidencyId; 2]>;

/// What a plan is made from.
#[derive(Clone, Copy)]
pub(super) struct Ask<'a> {
    pub(super) profile: &'a Profile,
    pub(super) choice: usize,
    pub(super) account: AccountId,
    pub(super) needs: &'a [ResidencyId],
}

impl Plan {
    /// Lays a profile out.
    ///
    /// # Errors
    ///
    /// The kind that the root has no room for at all.
    pub(super) fn of(ask: Ask<'_>, accounts: &mut Accounts) -> Result<Plan, Kind> {
        let Ask { profile, choice, account, needs } = ask;
        let mut claims = Vec::with_capacity(profile.stages().len());
        let mut peaks = Vec::with_capacity(profile.stages().len());
        let mut claim = Amounts::default();
        for stage in profile.stages().iter().rev() {
            let own = vector(&stage.peak, account, accounts)?;
            let mut all_leave = Amounts::default();
            let mut largest = Amounts::default();
            for parts in &stage.parts {
                let part = Plan::of(Ask { profile: &parts.profile, choice: 0, account, needs: &[] }, accounts)?;
                for (component, leaves) in part.leaves.iter() {
                    all_leave.add(component, leaves.saturating_mul(parts.count));
                }
                largest.raise_to(&part.needs_beside_its_leavings());
            }
            for (component, amount) in own.iter().chain(largest.iter()) {
                all_leave.add(component, amount);
            }
            claim.raise_to(&all_leave);
            claims.push(claim.clone());
            peaks.push(own);
        }
        claims.reverse();
        peaks.reverse();
        // Slots come back with the end, whatever the last stage keeps: only bytes are left behind.
        let mut leaves = Amounts::default();
        for (resource, amount) in profile.stages().last().into_iter().flat_map(|stage| stage.keep.iter()) {
            if let Resource::Class(_) = resource {
                accounts.add(account, resource, amount, &mut leaves)?;
            }
        }
        Ok(Plan { profile: profile.clone(), choice, account, claims, peaks, leaves, needs: needs.into() })
    }

    /// Forgets what it would need of some components.
    pub(super) fn forget(&mut self, lost: &[u32]) {
        for amounts in self.claims.iter_mut().chain(&mut self.peaks).chain([&mut self.leaves]) {
            amounts.retain(|component| !lost.contains(&component));
        }
    }

    /// The whole claim less what is left behind: what it needs beside the place where its leavings will be.
    pub(super) fn needs_beside_its_leavings(&self) -> Amounts {
        let mut needs = Amounts::default();
        for (component, claim) in self.claims[0].iter() {
            needs.add(component, claim.saturating_sub(self.leaves.of(component)));
        }
        needs
    }
}

fn vector(demand: &Demand, account: AccountId, accounts: &mut Accounts) -> Result<Amounts, Kind> {
    let mut amounts = Amounts::default();
    for (resource, amount) in demand.iter() {
        accounts.add(account, resource, amount, &mut amounts)?;
    }
    Ok(amounts)
}

/// The plans of one job, in order of preference; at least one.
#[derive(Clone, Debug)]
pub(super) struct Plans {
    /// Those that are given up are left in their places.
    all: SmallVec<[Way; 1]>,
    /// The one that it goes by.
    at: usize,
    /// The one that it goes by until it is admitted; of a part also the one for which its parent has set something aside, to its
    /// end.
    nominal: usize,
    /// What is needed by any of those that it was submitted with.
    known: Needs,
}

impl Plans {
    /// The plan that the job goes by.
    pub(super) fn current(&self) -> &Plan {
        &self.all[self.at].plan
    }

    pub(super) fn is_current(&self, at: usize) -> bool {
        self.at == at
    }

    /// The residencies that the job may come to need.
    pub(super) fn known_needs(&self) -> &Needs {
        &self.known
    }

    /// The profile that the job goes by.
    pub(super) fn profile(&self) -> &Profile {
        &self.current().profile
    }

    /// The plan that a job goes by until it is admitted; for a part, the one for which its parent has room.
    pub(super) fn nominal(&self) -> &Plan {
        &self.all[self.nominal].plan
    }

    /// Makes the first plan that `fits` the one that stands for a job that was just laid out.
    pub(super) fn choose(&mut self, mut fits: impl FnMut(&Plan) -> bool) -> bool {
        let at = self.left().find(|(_, plan)| fits(plan)).map(|(at, _)| at);
        if let Some(at) = at {
            (self.at, self.nominal) = (at, at);
        }
        at.is_some()
    }

    /// Makes a plan the one that stands for the job until it is admitted.
    pub(super) fn stand_for(&mut self, at: usize) {
        self.nominal = at;
    }

    /// Gives up the plans that `are_gone`, but not the one that a job in flight goes by; none, if no other would be left.
    pub(super) fn give_up(&mut self, in_flight: bool, are_gone: impl Fn(&Plan) -> bool) {
        let going_by = in_flight.then_some(self.at);
        let stays = |at: usize, plan: &Plan| Some(at) == going_by || !are_gone(plan);
        if !self.left().any(|(at, plan)| stays(at, plan)) {
            return;
        }
        for (at, way) in self.all.iter_mut().enumerate() {
            way.is_given_up |= !stays(at, &way.plan);
        }
        if mutant!("counted-by-a-plan-of-no-surety") && self.all[self.nominal].is_given_up {
            self.nominal = self.all.iter().position(|way| !way.is_given_up).unwrap_or(0);
        }
    }

    /// Gives up all plans before one. False, and nothing has changed, if what is set aside for a part would go with them, and this
    /// one is not within that.
    fn give_up_before(&mut self, at: usize, is_part: bool) -> bool {
        let (nominal, plan) = (&self.all[self.nominal], &self.all[at].plan);
        if at > self.nominal && !nominal.is_given_up {
            let is_surety = |plan: &Plan| (plan.leaves.clone(), plan.needs_beside_its_leavings());
            let ((leaves, needs), (leaves_before, needs_before)) = (is_surety(plan), is_surety(&nominal.plan));
            let is_within = leaves.is_within(&leaves_before) && needs.is_within(&needs_before);
            if is_part && !is_within && !mutant!("smaller-but-not-for-its-parent") {
                return false;
            }
            self.nominal = at;
        }
        self.all[..at].iter_mut().for_each(|way| way.is_given_up = true);
        true
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Plan> {
        self.all.iter_mut().map(|way| Arc::make_mut(&mut way.plan))
    }

    /// The plans that are not given up, with their numbers.
    pub(super) fn left(&self) -> impl Iterator<Item = (usize, &Plan)> {
        self.all.iter().enumerate().filter(|(_, way)| !way.is_given_up).map(|(at, way)| (at, &*way.plan))
    }

    /// The plans that are not given up.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Plan> {
        self.left().map(|(_, plan)| plan)
    }
}

impl JobSpec {
    /// What a job needs that goes by one of its profiles.
    fn needs_of(&self, choice: usize) -> Needs {
        let by_choice = self.needs_by.iter().filter(|entry| entry.0 == choice).map(|entry| &entry.1);
        let mut needs: Needs = self.needs.iter().chain(by_choice).map(Need::id).collect();
        needs.sort();
        needs.dedup();
        needs
    }
}

/// What an owner went by before another plan was tried.
pub(super) struct Before {
    at: usize,
    claim: Amounts,
    leaves: Amounts,
    family: FamilyBefore,
}

impl LedgerState {
    /// Lays out all profiles of a job, over the urgent reserve as well where it may use that.
    pub(super) fn plans_of(&mut self, account: AccountId, spec: &JobSpec) -> Result<Plans, SubmitError> {
        let name = &spec.name;
        let mut all: SmallVec<[Way; 1]> = SmallVec::new();
        let (mut unbudgeted, mut lost, mut known) = (None, None, Needs::new());
        let urgent = (spec.urgent && spec.parent.is_none()).then(|| self.accounts.urgent(account)).flatten();
        for (choice, profile) in std::iter::once(&spec.profile).chain(&spec.alternatives).enumerate() {
            if !self.layouts.knows(profile) {
                profile.check().map_err(|source| SubmitError::Profile { job: name.clone(), source })?;
            }
            let same_stages = || {
                let name = |stage: &StageProfile| stage.name;
                profile.stages().iter().map(name).eq(spec.profile.stages().iter().map(name))
            };
            if choice > 0 && !same_stages() {
                return Err(SubmitError::OtherStages { job: name.clone(), choice });
            }
            if spec.without.contains(&choice) {
                continue;
            }
            let needs = spec.needs_of(choice);
            let stages_lost = self.lost_stages(name, profile, 0..profile.stages().len());
            if let Some(other) = stages_lost.or_else(|| self.lost_needs(name, &needs)) {
                lost = lost.or(Some(other));
                continue;
            }
            for account in urgent.into_iter().chain([account]) {
                let ask = Ask { profile, choice, account, needs: &needs };
                match self.layouts.of(ask, &mut self.accounts) {
                    Ok(plan) => {
                        known.extend_from_slice(&needs);
                        all.push(Way { plan, is_given_up: false });
                    }
                    // The budget has no such device, say: this one cannot be chosen.
                    Err(kind) => unbudgeted = unbudgeted.or(Some(kind)),
                }
            }
        }
        if let Some(lost) = lost.filter(|_| all.is_empty()) {
            return Err(SubmitError::Lost(lost));
        }
        match unbudgeted {
            Some(kind) if all.is_empty() => {
                Err(SubmitError::Unbudgeted { job: name.clone(), place: self.root_place(kind) })
            }
            _ => {
                let nominal = all.iter().position(|way| way.plan.account == account).unwrap_or(0);
                known.sort();
                known.dedup();
                Ok(Plans { all, at: nominal, nominal, known })
            }
        }
    }

    /// Which of the job's profiles it goes by: 0 is the one that is preferred.
    pub fn choice(&self, id: OwnerId) -> usize {
        match &self.owners[id.0].declared {
            Declared::Job { plans, .. } => plans.current().choice,
            Declared::Standing { .. } => 0,
        }
    }

    /// The numbers of the plans that a request may be granted by; one for a free-standing reservation.
    pub(super) fn ways(&self, id: OwnerId) -> Ways {
        match &self.owners[id.0].declared {
            Declared::Job { plans, .. } => plans.left().map(|(at, _)| at).collect(),
            Declared::Standing { .. } => Ways::from_elem(0, 1),
        }
    }

    /// Whether a request may be granted in one way only.
    pub(super) fn has_one_way(&self, id: OwnerId) -> bool {
        match &self.owners[id.0].declared {
            Declared::Job { plans, .. } => plans.all.len() == 1 || plans.iter().nth(1).is_none(),
            Declared::Standing { .. } => true,
        }
    }

    /// Lets a job that holds nothing go by one of its plans.
    pub(super) fn adopt_plan(&mut self, id: OwnerId, at: usize) {
        if let Declared::Job { plans, .. } = &self.owners[id.0].declared
            && plans.at != at
        {
            self.go_by(id, at);
            self.claim_all(id);
        }
    }

    /// In which order an admission tries its plans: of those that need something, first those by which the fewest jobs in flight go, and of equals those for which all of it is there. So a job goes where its
    /// key is, and has it loaded elsewhere only when somebody is there already: also where its first stages are on the host, and
    /// what is taken on a device does not show. A plan that needs nothing keeps its turn: which is better, slowly or with a table
    /// that must be loaded, is said by the order of preference alone.
    pub(super) fn turns(&self, id: OwnerId) -> Ways {
        let mut turns = self.ways(id);
        let Declared::Job { plans, .. } = &self.owners[id.0].declared else { return turns };
        if turns.len() == 1 || plans.known.is_empty() || mutant!("loaded-elsewhere-first") {
            return turns;
        }
        let needs = |at: usize| &plans.all[at].plan.needs;
        let mut sorted: Ways = turns.iter().copied().filter(|at| !needs(*at).is_empty()).collect();
        // A stable sort: the order of preference stands among equals.
        sorted.sort_by_key(|at| {
            let going = if mutant!("idle-devices-stay-idle") { 0 } else { self.going_with(needs(*at)) };
            (going, !self.are_resident(needs(*at)))
        });
        let needy = turns.iter_mut().filter(|turn| !needs(**turn).is_empty());
        needy.zip(sorted).for_each(|(turn, at)| *turn = at);
        turns
    }

    /// How many jobs in flight go by what needs this, at most: what plans have in common is pinned by all of them.
    fn going_with(&self, needs: &Needs) -> u32 {
        needs.iter().map(|need| self.residencies.entry(*need).pins).min().unwrap_or(0)
    }

    /// Whether an admission leaves one of its plans alone for now, because all that is missing of what that needs is being loaded
    /// by others. Who joins a load is in flight and bound to it, with nothing taken that would keep the next one from joining: all
    /// that wait would, and the first other device that is free would find nobody. So a job that can go elsewhere waits for the
    /// end of the load before its admission, unless more go already wherever what it needs is there.
    pub(super) fn leaves_the_load_to_others(&self, id: OwnerId, at: usize) -> bool {
        let Declared::Job { plans, .. } = &self.owners[id.0].declared else { return false };
        let needs = &plans.all[at].plan.needs;
        let is_on_its_way = |need: &ResidencyId| {
            matches!(self.residencies.entry(*need).residence, Residence::Resident | Residence::Loading(_))
        };
        if plans.all.len() == 1 || self.are_resident(needs) || !needs.iter().all(is_on_its_way) {
            return false;
        }
        let others = || plans.iter().filter(|plan| !plan.needs.is_empty() && plan.needs != *needs);
        let there =
            others().filter(|plan| self.are_resident(&plan.needs)).map(|plan| self.going_with(&plan.needs)).min();
        others().next().is_some()
            && there.is_none_or(|there| there <= self.going_with(needs))
            && !mutant!("all-join-a-load")
    }

    /// Lets a job that is not in flight any more claim what it claimed at first.
    pub(super) fn reset_plan(&mut self, id: OwnerId) {
        self.adopt_nominal_plan(id);
        self.claim_all(id);
    }

    fn claim_all(&mut self, id: OwnerId) {
        let owner = &mut self.owners[id.0];
        let Declared::Job { plans, .. } = &owner.declared else { unreachable!("only jobs have plans") };
        owner.claim = plans.current().claims[0].clone();
        owner.leaves = plans.current().leaves.clone();
    }

    /// Lets a job that is not admitted go by the plan that stands for it until then: a part by the one for which its
    /// parent has room, others by the first one beside the urgent reserve that the limits allow.
    pub(super) fn adopt_nominal_plan(&mut self, id: OwnerId) {
        let owner = &self.owners[id.0];
        let Declared::Job { plans, .. } = &owner.declared else { return };
        let mut nominal = plans.nominal;
        if !owner.is_part() && plans.all.len() > 1 {
            let ordinary = |plan: &Plan| !self.accounts.is_urgent(plan.account);
            let fits = |plan: &Plan| ordinary(plan) && self.is_attainable(plan);
            let first = |is_it: &dyn Fn(&Plan) -> bool| plans.left().find(|(_, plan)| is_it(plan)).map(|(at, _)| at);
            nominal = first(&fits).or_else(|| first(&ordinary)).or_else(|| first(&|_| true)).expect("one is left");
        }
        self.adopt_plan(id, nominal);
    }

    /// What the limits allow may have changed since: everybody that waits to be admitted goes by the plan that stands for
    /// it now, so that it is known what it is short of while others are looked at.
    pub(super) fn refresh_nominal_plans(&mut self) {
        if !self.queues.are_plain() {
            self.queues.admissions().into_iter().for_each(|id| self.adopt_nominal_plan(id));
        }
    }

    /// Grants the waiting request of a job in flight, or of a part of one, by the first plan by which that is possible.
    pub(super) fn try_grant_by_any_plan(&mut self, id: OwnerId) -> Option<Granted> {
        let ways = self.ways(id);
        if let [only] = ways[..] {
            return if self.cannot_fit(id, only) { None } else { self.try_grant(id) };
        }
        let was_in_flight = self.owners[id.0].in_flight();
        for at in ways {
            if self.cannot_fit(id, at) {
                continue;
            }
            let Some(before) = self.change_plan(id, at) else { continue };
            // Nor does who is in flight come where somebody runs alone by going another way.
            let comes_beside = at != before.at
                && !self.owners[id.0].is_part()
                && self.is_beside_alone(id)
                && !mutant!("switch-beside-alone");
            if comes_beside {
                self.restore_plan(id, before);
                continue;
            }
            let granted = self.try_grant(id);
            if granted.is_some() {
                self.changed_plan |= self.owners[id.0].in_flight() && before.at != at;
                // It was kept as long as the job went by it.
                if !mutant!("lost-plan-left-behind") {
                    self.give_up_lost_plans(id);
                }
                return granted;
            }
            // Without a grant, a part may have been admitted to the load of what it needs, by this plan.
            if self.owners[id.0].in_flight() != was_in_flight && !mutant!("admitted-to-load-by-another-plan") {
                return None;
            }
            self.restore_plan(id, before);
            if self.residencies.probed.is_some() {
                break;
            }
        }
        None
    }

    /// Whether it is plain to see that a waiting job's stage does not fit by one of its plans: by component, less its peak
    /// than what is held is free. What it really needs is no less: of one class more may be held than the peak, but that does not
    /// pay for another.
    pub(super) fn cannot_fit(&self, id: OwnerId, at: usize) -> bool {
        if mutant!("chunked-acquisition") || mutant!("lease-outside-vector") {
            return false;
        }
        let owner = &self.owners[id.0];
        let Declared::Job { plans, .. } = &owner.declared else { return false };
        let Some(Want::Stage(stage)) = owner.waiting.as_ref().map(|waiting| waiting.want) else { return false };
        // Who is admitted to a load is not asked for its stage yet.
        let needs = &plans.all[at].plan.needs;
        if !needs.is_empty() && (*needs != owner.needs || self.readiness(id) != Readiness::Ready) {
            return false;
        }
        plans.all[at].plan.peaks[stage].iter().any(|(of, peak)| {
            let component = self.accounts.component(of);
            let probing = self.residencies.probing && !mutant!("cannot-fit-beside-what-can-go");
            let reclaimable = if probing { component.reclaimable } else { 0 };
            peak.saturating_sub(owner.held.of(of)) > component.free() + reclaimable
        })
    }

    /// Lets a job that waits for a stage go by another plan, if what it holds allows that. Whoever grants the request
    /// checks safety; otherwise [`restore_plan`](Self::restore_plan) undoes it.
    pub(super) fn change_plan(&mut self, id: OwnerId, at: usize) -> Option<Before> {
        let owner = &self.owners[id.0];
        let Declared::Job { plans, restarts, .. } = &owner.declared else { return None };
        let (before, claim, leaves) = (plans.at, owner.claim.clone(), owner.leaves.clone());
        let (plan, stage) = (&plans.all[at].plan, owner.current_stage()?);
        let is_possible = at == before
            || plan.account == owner.account
                && self.may_come_to_need(id, &plan.needs)
                && self.unattainable(&plan.claims[if *restarts { 0 } else { stage }]).is_none()
                && owner.holdings.iter().all(|&(resource, held)| held <= brought(&plan.profile, stage, resource));
        if !is_possible {
            return None;
        }
        debug_assert!(at == before || !self.is_lost_plan(plan, stage), "a job goes by a plan without a device");
        let in_flight = owner.in_flight();
        let mut family = FamilyBefore::default();
        if at != before && in_flight {
            self.leave_family(id, FamilyBefore::default());
            self.go_by(id, at);
            let claim = self.owners[id.0].claim_by_plan(&mut self.accounts);
            if !mutant!("switch-without-safety") {
                self.owners[id.0].claim = claim;
            }
            family = self.join_family(id);
            self.cover_parts(id);
        } else if at != before {
            self.adopt_plan(id, at);
        }
        Some(Before { at: before, claim, leaves, family })
    }

    /// Whether a job may go by a plan that needs this. One in flight pins what it needs, and so goes on with that; a part needs
    /// nothing that its parent does not pin.
    fn may_come_to_need(&self, id: OwnerId, needs: &Needs) -> bool {
        let owner = &self.owners[id.0];
        if owner.in_flight() && !mutant!("switch-with-other-needs") {
            return *needs == owner.needs;
        }
        let pinned = |parent: OwnerId| needs.iter().all(|need| self.owners[parent.0].needs.contains(need));
        owner.family.parent.is_none_or(pinned)
    }

    /// Whether the limits allow a plan, with what it needs beside its claim.
    pub(super) fn is_attainable(&self, plan: &Plan) -> bool {
        self.unattainable(&self.with_needs(&plan.needs, &plan.claims[0])).is_none()
    }

    /// Lets a job in flight that stands between stages go by the next plan that claims and needs no more of anything, and gives
    /// up those before it; a part only by one for which its parent has room. That lowers its claim, so nobody has to look
    /// whether it is safe. False, and nothing has changed, if there is no such plan.
    pub fn go_smaller(&mut self, id: OwnerId, out: &mut Vec<Outcome>) -> bool {
        let owner = &self.owners[id.0];
        let Declared::Job { plans, running: None, .. } = &owner.declared else { return false };
        if !owner.in_flight() || owner.waiting.is_some() {
            return false;
        }
        let (from, claim, leaves) = (plans.at, owner.claim.clone(), owner.leaves.clone());
        let (needs, is_parent) = (owner.needs.clone(), !owner.family.parts.is_empty());
        for at in self.ways(id).into_iter().filter(|at| *at > from) {
            let Declared::Job { plans, .. } = &self.owners[id.0].declared else { unreachable!("checked above") };
            let less = &plans.all[at].plan.needs;
            // Its parts may need what it has pinned.
            if *less != needs && (is_parent || !less.iter().all(|need| needs.contains(need))) {
                continue;
            }
            // As if it had needed no more from the start: what it pins beside that is let go of below.
            self.owners[id.0].needs = less.clone();
            let Some(before) = self.change_plan(id, at) else {
                self.owners[id.0].needs = needs.clone();
                continue;
            };
            let owner = &mut self.owners[id.0];
            let is_part = owner.is_part();
            let is_less = owner.claim.is_within(&claim) && owner.leaves.is_within(&leaves);
            let Declared::Job { plans, .. } = &mut owner.declared else { unreachable!("checked above") };
            if is_less && plans.give_up_before(at, is_part) {
                self.unpin_all_but_needs(id, &needs);
                self.settle(out);
                return true;
            }
            self.restore_plan(id, before);
        }
        false
    }

    pub(super) fn restore_plan(&mut self, id: OwnerId, before: Before) {
        let Declared::Job { plans, .. } = &self.owners[id.0].declared else { unreachable!("only jobs have plans") };
        if plans.at == before.at {
            return;
        }
        let in_flight = self.owners[id.0].in_flight();
        if in_flight {
            self.leave_family(id, before.family);
        }
        self.go_by(id, before.at);
        let owner = &mut self.owners[id.0];
        (owner.claim, owner.leaves) = (before.claim, before.leaves);
        if in_flight {
            self.join_family(id);
        }
    }

    fn go_by(&mut self, id: OwnerId, at: usize) {
        let owner = &mut self.owners[id.0];
        let Declared::Job { plans, .. } = &mut owner.declared else { unreachable!("only jobs have plans") };
        plans.at = at;
        let Plan { account, leaves, needs, .. } = plans.current();
        (owner.account, owner.leaves) = (*account, leaves.clone());
        owner.needs.clone_from(needs);
    }
}

/// What a job that goes by this profile has in its hands when it asks for a stage.
fn brought(profile: &Profile, stage: usize, resource: Resource) -> u64 {
    stage.checked_sub(1).map_or(0, |before| profile.stages()[before].keep.of(resource))
}
