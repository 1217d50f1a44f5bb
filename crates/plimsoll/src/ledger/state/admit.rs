//! Who is served next: bounded bypass, and the pass over the queues that follows each event.

use smallvec::SmallVec;

use super::accounts::{AccountId, Component};
use super::amounts::{Amounts, ComponentId};
use super::choice::Plan;
use super::family::FamilyBefore;
use super::owner::{Declared, OwnerId, Phase, Waiting, Want};
use super::queues::{AdmissionKey, GrowthKey};
use super::residency::Probed;
use super::safety;
use super::{Granted, LedgerState, Outcome, Refusal};
use crate::observe::What;

impl LedgerState {
    pub(super) fn enqueue(&mut self, now: u64, id: OwnerId, want: Want) {
        self.assert_unfolded();
        self.dissolve_line();
        let place = match &mut self.owners[id.0].declared {
            Declared::Job { again, .. } => again.place.take(),
            Declared::Standing { .. } => None,
        };
        let age = place.unwrap_or(self.next_age);
        self.next_age += 1;
        self.owners[id.0].waiting = Some(Waiting::new(want, age, now));
        self.note(id, What::Asked);
        self.advance(now);
        self.take_place(id);
    }

    /// Puts a request where its order says.
    pub(super) fn take_place(&mut self, id: OwnerId) {
        self.dissolve_line();
        if self.owners[id.0].goes_with_growth() {
            self.queues.growth.insert(self.growth_key(id));
        } else {
            self.queues.admission.insert(self.admission_key(id));
        }
        self.list(id);
    }

    /// Whether an owner has been admitted and has not ended.
    pub fn is_in_flight(&self, id: OwnerId) -> bool {
        self.owners[id.0].in_flight()
    }

    /// Changes a job's priority: a request that waits takes its new place, with its age.
    pub fn prioritise(&mut self, id: OwnerId, priority: i32, out: &mut Vec<Outcome>) {
        let waiting = self.dequeue(id);
        self.owners[id.0].priority = priority;
        if waiting.is_some() {
            self.owners[id.0].waiting = waiting;
            self.take_place(id);
        }
        self.settle(out);
    }

    /// Puts the requests of owners in flight in order again: shares are of limits, and a limit has changed.
    pub(super) fn reorder(&mut self) {
        self.queues.growth = self.queues.growths().into_iter().map(|id| self.growth_key(id)).collect();
    }

    /// Puts a request where its order says, and among those that are like it, after what its owner holds or claims has
    /// changed.
    pub(super) fn take_place_anew(&mut self, id: OwnerId) {
        if let Some(waiting) = self.dequeue(id) {
            self.owners[id.0].waiting = Some(waiting);
            self.take_place(id);
        }
    }

    /// Takes a request off its queue, if the owner has one there.
    pub(super) fn dequeue(&mut self, id: OwnerId) -> Option<Waiting> {
        let waiting = self.owners[id.0].waiting.as_ref()?;
        if !self.line.is_empty() {
            self.line.leave(waiting.age);
            return self.owners[id.0].waiting.take();
        }
        self.unlist(id);
        if self.owners[id.0].goes_with_growth() {
            let key = self.growth_key(id);
            // The key's share was taken when the request arrived; since then a part may have left something, or the
            // request may have been tried by another plan.
            if !self.queues.growth.remove(&key) {
                self.queues.growth.retain(|key| key.3 != id.0);
            }
        } else {
            let key = self.admission_key(id);
            self.queues.admission.remove(&key);
        }
        self.owners[id.0].waiting.take()
    }

    fn growth_key(&self, id: OwnerId) -> GrowthKey {
        let owner = &self.owners[id.0];
        let age = owner.waiting.as_ref().expect("it waits").age;
        (std::cmp::Reverse(owner.priority), self.share(&owner.claim), age, id.0)
    }

    fn admission_key(&self, id: OwnerId) -> AdmissionKey {
        let owner = &self.owners[id.0];
        let age = owner.waiting.as_ref().expect("it waits").age;
        (std::cmp::Reverse(owner.priority), age, id.0)
    }

    /// A claim as one number that can be compared across components: its largest share of a limit.
    fn share(&self, claim: &Amounts) -> u64 {
        let share = |(component, claim): (u32, u64)| {
            let limit = u128::from(self.accounts.component(component).target).max(1);
            u64::try_from((u128::from(claim) << 32) / limit).unwrap_or(u64::MAX)
        };
        claim.iter().map(share).max().unwrap_or(0)
    }

    /// Grants everything that can be granted, in order, and refuses what can no longer be. Called at the end of every event.
    pub(super) fn settle(&mut self, out: &mut Vec<Outcome>) {
        self.assert_unfolded();
        if self.settle_line(out) {
            return;
        }
        self.dissolve_line();
        self.forget_unsafe();
        self.account_reclaimable();
        loop {
            if std::mem::take(&mut self.recheck) {
                self.refuse_what_no_longer_fits(out);
            }
            self.refresh_nominal_plans();
            self.lower_limits();
            self.grant_growth(out);
            self.grant_admissions(out);
            // A retained reservation that was just admitted may have left too little for others that wait.
            if self.recheck {
                continue;
            }
            self.make_room();
            // An eviction takes its time, but what its load had returned before is back at once.
            if !std::mem::take(&mut self.residencies.came_back) || mutant!("nobody-told-of-loose-bytes") {
                break;
            }
            self.forget_unsafe();
            self.account_reclaimable();
        }
    }

    /// Grants an admission if it fits, is safe, and passes nobody who may not be passed, by the first plan by which all of
    /// this is so. Also says whether it was held back by the last of these alone.
    pub(super) fn try_admit(&mut self, id: OwnerId) -> (Option<Granted>, bool) {
        if self.paused && !mutant!("pause-holds-nothing-back") {
            return (None, false);
        }
        let mut held_back = false;
        let age = self.age(id);
        for at in self.turns(id) {
            if self.cannot_fit(id, at) || self.leaves_the_load_to_others(id, at) {
                continue;
            }
            self.adopt_plan(id, at);
            // By another plan it may have nothing to do with where somebody runs alone.
            if self.is_beside_alone(id) {
                continue;
            }
            let wholly_urgent = self.is_wholly_urgent(id);
            let exempt = if wholly_urgent { Some(Vec::new()) } else { self.may_pass(id) };
            let Some(exempt) = exempt else {
                held_back = true;
                continue;
            };
            let granted = self.try_grant(id);
            // Without a grant, it may have been admitted to the load of what it needs.
            if self.owners[id.0].in_flight() {
                if !wholly_urgent {
                    self.count_passed(id, age, &exempt);
                }
                return (granted, false);
            }
            if self.residencies.probed.is_some() {
                break;
            }
        }
        self.adopt_nominal_plan(id);
        if !(self.residencies.probing && mutant!("no-room-for-who-is-alone"))
            && let Some(alone) = self.try_admit_alone(id)
        {
            return alone;
        }
        (None, held_back)
    }

    /// Whether an admission would be served wholly from the urgent reserve, which counts as nobody else's budget. What it
    /// needs beside its claim is everybody's.
    fn is_wholly_urgent(&self, id: OwnerId) -> bool {
        let owner = &self.owners[id.0];
        let is_reserve = |component| self.accounts.is_urgent(self.accounts.component(component).account);
        self.accounts.is_urgent(owner.account)
            && owner.needs.is_empty()
            && owner.claim.iter().all(|(component, _)| is_reserve(component))
    }

    /// Whether an admission of `id` may pass everybody that it would pass; and then those older or in flight that are
    /// exempt, whom it does not pass. By whom a request is not held back now, it is not passed either: both go by what is
    /// free before the admission.
    pub(super) fn may_pass(&mut self, id: OwnerId) -> Option<Vec<OwnerId>> {
        let age = self.age(id);
        let bounded = !mutant!("bypass-without-bound");
        if !self.line.is_empty() {
            return (!self.line.holds_back(age, self.bypass)).then(Vec::new);
        }
        if bounded && self.queues.holds_back(age) {
            return None;
        }
        if bounded && self.queues.children_hold_back(age, &self.owners[id.0].claim) {
            return None;
        }
        let mut exempt = Vec::new();
        for other in self.queues.perhaps_exempt(&self.owners[id.0].claim) {
            if other == id || !(self.is_growth(other) || self.age(other) < age) {
                continue;
            }
            if self.is_short_only_in_its_child(other, id) {
                exempt.push(other);
            } else if bounded && self.owners[other.0].waiting.as_ref().is_some_and(|it| it.passed >= self.bypass) {
                return None;
            }
        }
        Some(exempt)
    }

    /// Counts an admission that had this age with everybody that it has passed. It may wait again, for a load.
    pub(super) fn count_passed(&mut self, id: OwnerId, age: u64, exempt: &[OwnerId]) {
        for other in self.queues.growths() {
            if other != id && !exempt.contains(&other) {
                self.count_passing(other);
            }
        }
        let mut last = None;
        loop {
            let batch = self.queues.admissions_after(last);
            let Some(end) = batch.last() else { return };
            last = Some(*end);
            for (priority, of, index) in batch {
                if of > age {
                    // On to the next priority.
                    last = Some((priority, u64::MAX, usize::MAX));
                    break;
                }
                if !exempt.contains(&OwnerId(index)) {
                    self.count_passing(OwnerId(index));
                }
            }
        }
    }

    pub(super) fn age(&self, id: OwnerId) -> u64 {
        self.owners[id.0].waiting.as_ref().expect("it waits").age
    }

    /// The limits of its own child, or reserve, that a request needs; none where it is held up by more than these in any case.
    pub(super) fn limits_of_its_child(&self, id: OwnerId) -> SmallVec<[ComponentId; 4]> {
        let owner = &self.owners[id.0];
        // What a job needs beside its claim is at the root.
        if owner.account == AccountId::ROOT || !owner.needs.is_empty() {
            return SmallVec::new();
        }
        owner.claim.iter().map(|entry| entry.0).filter(|component| self.accounts.is_childs(*component)).collect()
    }

    /// Whether an admission may come to go by a plan that needs other limits of a child.
    pub(super) fn may_change_its_child(&self, id: OwnerId) -> bool {
        let owner = &self.owners[id.0];
        let Declared::Job { plans, .. } = &owner.declared else { return false };
        let childs = |claim: &Amounts| -> SmallVec<[ComponentId; 4]> {
            claim.iter().map(|entry| entry.0).filter(|component| self.accounts.is_childs(*component)).collect()
        };
        let own = childs(&owner.claim);
        let differs = |plan: &Plan| {
            plan.account != owner.account
                || plan.needs.is_empty() != owner.needs.is_empty()
                || childs(&plan.claims[0]) != own
        };
        !owner.in_flight() && !self.has_one_way(id) && plans.iter().any(differs)
    }

    /// Whether `waiter` could be served at once if the limits of its own child were lifted, and only then, and `passer` takes
    /// nothing from that child: then the passing costs it nothing. Who could be served as it is loses what the passer takes:
    /// one that comes earlier in the order, by its priority, passes it like any other.
    fn is_short_only_in_its_child(&mut self, waiter: OwnerId, passer: OwnerId) -> bool {
        let childs = self.limits_of_its_child(waiter);
        if childs.is_empty() || self.owners[passer.0].claim.iter().any(|(component, _)| childs.contains(&component)) {
            return false;
        }
        let more = self.more_of(waiter);
        let accounts: Vec<AccountId> = childs.iter().map(|id| self.accounts.component(*id).account).collect();
        let lifted = |component: &Component| {
            if accounts.contains(&component.account) { u64::MAX } else { component.limit }
        };
        let fits = more.iter().all(|(component, amount)| {
            let component = self.accounts.component(component);
            amount <= lifted(component) - component.held
        });
        if !fits {
            return false;
        }
        self.with_granted(waiter, &more, |state, also| {
            let is_safe = |limit: &dyn Fn(&Component) -> u64| {
                let in_flight = state.in_flight.iter().copied().chain(also.map(|id| id.0));
                let owners = in_flight.map(|index| &state.owners[index]);
                safety::is_safe(&state.accounts.components, limit, owners, state.pins())
            };
            let as_it_is = |component: &Component| component.limit;
            is_safe(&lifted) && (mutant!("passed-for-nothing-though-not-short") || !is_safe(&as_it_is))
        })
    }

    /// Looks at the state as it would be with a waiting request granted. Whoever is not in flight yet is handed on: it
    /// counts as if it were.
    pub(super) fn with_granted<R>(
        &mut self,
        id: OwnerId,
        more: &Amounts,
        look: impl FnOnce(&LedgerState, Option<OwnerId>) -> R,
    ) -> R {
        self.charge(id, more);
        let joins = !self.owners[id.0].in_flight();
        let family = if joins { self.join_family(id) } else { FamilyBefore::default() };
        let seen = look(self, joins.then_some(id));
        if joins {
            self.leave_family(id, family);
        }
        self.discharge(id, more);
        seen
    }

    /// What a waiting request needs beyond what is held, by component.
    pub(super) fn more_of(&mut self, id: OwnerId) -> Amounts {
        let owner = &self.owners[id.0];
        let want = owner.waiting.as_ref().expect("it waits").want;
        let laid_out = match want {
            Want::Stage(stage) => owner.needed(stage),
            Want::More(..) => None,
        };
        if let Some(mut more) = laid_out.cloned() {
            more.sub_up_to(&owner.held);
            debug_assert_eq!(more, self.more_at_length(id, want), "the plan and the profile differ");
            return more;
        }
        self.more_at_length(id, want)
    }

    /// The same, resource by resource.
    fn more_at_length(&mut self, id: OwnerId, want: Want) -> Amounts {
        let owner = &self.owners[id.0];
        let (account, missing) = (owner.account, owner.missing(want));
        let mut more = Amounts::default();
        for (resource, amount) in missing {
            self.accounts.add(account, resource, amount, &mut more).expect("charged before, at submission");
        }
        more
    }

    pub(super) fn fits(&self, more: &Amounts) -> bool {
        more.iter().all(|(component, amount)| {
            let component = self.accounts.component(component);
            let reclaimable = if self.residencies.probing { component.reclaimable } else { 0 };
            amount <= component.free() + reclaimable
        })
    }

    pub(super) fn is_safe(&mut self) -> bool {
        self.is_safe_with(None)
    }

    /// Grants a waiting request whole if it fits and leaves the state safe; otherwise changes nothing, but that a job with
    /// needs may be admitted to the load of these.
    pub(super) fn try_grant(&mut self, id: OwnerId) -> Option<Granted> {
        if self.owners[id.0].needs.is_empty() { self.try_grant_whole(id) } else { self.try_grant_with_needs(id) }
    }

    /// Grants a waiting request whole if it fits and leaves the state safe; otherwise changes nothing.
    pub(super) fn try_grant_whole(&mut self, id: OwnerId) -> Option<Granted> {
        let more = self.more_of(id);
        if !self.fits(&more) {
            if mutant!("chunked-acquisition") || mutant!("lease-outside-vector") {
                self.take_what_there_is(id);
            }
            return None;
        }
        if mutant!("head-owed-bytes") && !self.leaves_room_for_the_head(id, &more) {
            return None;
        }
        let joins = !self.owners[id.0].in_flight();
        let admission = joins && !self.owners[id.0].is_part();
        if admission {
            let claim = self.with_needs(&self.owners[id.0].needs, &self.owners[id.0].claim);
            if !self.is_below_target(&more) || self.unattainable(&claim).is_some() {
                return None;
            }
        }
        if admission && self.is_known_to_be_unsafe(id, &more) {
            return None;
        }
        self.charge(id, &more);
        let family = if joins { self.join_family(id) } else { FamilyBefore::default() };
        let unchecked = mutant!("safety-for-growth-only") && admission;
        if !unchecked && !self.is_safe_with(joins.then_some(id)) {
            if joins {
                self.leave_family(id, family);
            }
            self.discharge(id, &more);
            if admission {
                self.remember_unsafe(id, &more);
            }
            return None;
        }
        if self.residencies.probing {
            if joins {
                self.leave_family(id, family);
            }
            self.discharge(id, &more);
            self.residencies.probed = Some(Probed { more, needs: self.owners[id.0].needs.clone() });
            return None;
        }
        Some(self.commit(id))
    }

    /// Turns a tentative charge into a grant.
    pub(super) fn commit(&mut self, id: OwnerId) -> Granted {
        let waiting = self.dequeue(id).expect("it waits");
        let owner = &mut self.owners[id.0];
        let granted = owner.missing(waiting.want);
        for &(resource, amount) in &granted {
            owner.hold(resource, amount);
        }
        let joins = owner.phase == Phase::Fresh;
        if let (Declared::Job { running, again, .. }, Want::Stage(stage)) = (&mut owner.declared, waiting.want) {
            *running = Some(stage);
            if joins {
                again.admitted = Some(waiting.age);
            }
        }
        owner.phase = Phase::InFlight;
        if joins {
            self.in_flight.push(id.0);
            if let Want::More(class, _) = waiting.want {
                self.attach(id, class);
            }
        }
        self.note(id, What::Granted);
        for &(resource, amount) in &granted {
            self.count_in(id, resource, amount);
        }
        self.account_retained();
        granted
    }

    /// Refuses an admission for good.
    pub(super) fn refuse(&mut self, id: OwnerId, refusal: Refusal, out: &mut Vec<Outcome>) {
        self.note(id, What::Refused);
        self.dequeue(id);
        out.push(Outcome::Refused(id, refusal));
        self.forget_if_gone(id);
    }

    /// Refuses the admissions whose claim no longer fits a limit.
    pub(super) fn refuse_what_no_longer_fits(&mut self, out: &mut Vec<Outcome>) {
        for id in self.queues.admissions() {
            if let Some(error) = self.never_fits(&self.owners[id.0]) {
                self.refuse(id, Refusal::NeverFits(error), out);
            }
        }
    }

    /// Lowers limits that were set lower at run time as far as what is held and the safety of the state allow.
    pub(super) fn lower_limits(&mut self) {
        for at in 0..self.accounts.components.len() {
            let Component { limit, target, held, .. } = self.accounts.components[at];
            if limit <= target {
                continue;
            }
            // The lowest safe limit: safety is monotone in the limit, so it is found by halving.
            let (mut unsafe_below, mut safe) = (target.max(held), limit);
            while unsafe_below < safe {
                let middle = unsafe_below + (safe - unsafe_below) / 2;
                self.accounts.components[at].limit = middle;
                if self.is_safe() { safe = middle } else { unsafe_below = middle + 1 }
            }
            self.accounts.components[at].limit = safe;
        }
    }

    /// A fault to be caught: part of a request is taken while the rest is waited for; or its slots are, such as the lease of
    /// a device, as if they were not in one vector with the bytes.
    fn take_what_there_is(&mut self, id: OwnerId) {
        for (resource, amount) in self.owners[id.0].missing(self.owners[id.0].waiting.as_ref().expect("it waits").want)
        {
            let charged = self.accounts.charged(self.owners[id.0].account, resource).expect("charged before");
            if mutant!("lease-outside-vector") && matches!(resource, crate::Resource::Class(_)) {
                continue;
            }
            let free = charged.iter().map(|at| self.accounts.component(*at).free()).min().unwrap_or(0).min(amount);
            let chunk = charged.into_iter().fold(Amounts::default(), |mut chunk, at| {
                chunk.add(at, free);
                chunk
            });
            self.charge(id, &chunk);
            self.owners[id.0].hold(resource, free);
        }
    }

    /// A fault to be caught: whoever comes first is owed the next bytes, whether or not it could use them.
    fn leaves_room_for_the_head(&mut self, id: OwnerId, more: &Amounts) -> bool {
        let Some(head) = self.queues.growths().into_iter().chain(self.queues.admissions()).next() else { return true };
        let owed = self.more_of(head);
        head == id || owed.iter().all(|(at, amount)| amount + more.of(at) <= self.accounts.component(at).free())
    }
}
