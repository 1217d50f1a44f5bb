//! The load of a residency: who does it, who takes over, and where its bytes are meanwhile.
//!
//! One load at a time: it falls to one job (`Called`), which begins it (`Busy`) and fills it, or gives it up. Then another
//! job that pins the entry takes over, the first in the order of requests, so that a load always has the priority of the
//! most urgent job that waits for it; but not before what the last attempt had made is gone (`Unwinding`). Where nobody
//! pins it any more the bytes go back.
//!
//! The bytes are charged from the start of the load to its end, also those that a loader gives back on the way: whoever
//! takes over finds them there, and need not ask for them again.

use std::sync::Arc;

use super::accounts::AccountId;
use super::amounts::Amounts;
use super::owner::{Declared, Owner, OwnerId, Phase};
use super::residency::{Loader, Order, Residence, ResidencyId, Resident};
use super::{LedgerState, Outcome, Refusal};
use crate::observe::What;

impl LedgerState {
    /// The residency that falls to this job to be loaded and was not taken yet.
    pub fn next_load(&self, job: OwnerId) -> Option<ResidencyId> {
        let is_called =
            |id: &ResidencyId| self.residencies.entry(*id).residence == Residence::Loading(Loader::Called(job));
        self.owners[job.0].needs.iter().copied().find(is_called)
    }

    /// Begins the load that falls to this job: the owner whose reservation of the residency's bytes is now out.
    pub fn take_load(&mut self, job: OwnerId) -> Option<(ResidencyId, OwnerId)> {
        let id = self.next_load(job)?;
        let entry = &mut self.residencies.entries[id.0];
        entry.residence = Residence::Loading(Loader::Busy(Some(job)));
        entry.loose = 0;
        let (owner, class) = (entry.owner.expect("its bytes are held"), entry.declared.class);
        self.attach(owner, class);
        Some((id, owner))
    }

    /// The highest priority among the jobs that wait for a residency.
    pub fn load_priority(&self, id: ResidencyId) -> Option<i32> {
        self.pinners(id).map(|job| self.owners[job.0].priority).max()
    }

    /// The load is done: the value is there. `false` if nobody wants it any more, and it is to be dropped.
    pub fn loaded(&mut self, id: ResidencyId, out: &mut Vec<Outcome>) -> bool {
        let entry = &mut self.residencies.entries[id.0];
        let wanted = match entry.residence {
            Residence::Loading(Loader::Busy(_)) => true,
            Residence::Evicting => false,
            other => panic!("a load ended that was not begun: {other:?}"),
        };
        if wanted {
            entry.residence = Residence::Resident;
            entry.loads += 1;
            let (owner, class) = (entry.owner.expect("its bytes are held"), entry.declared.class);
            let loose = std::mem::take(&mut entry.loose);
            self.touch(id);
            self.note(owner, What::Loaded);
            self.give_back(owner, class.into(), loose);
            self.evict_if_unwanted(id);
        }
        self.settle(out);
        wanted
    }

    /// The load was given up, before its reservations come back. Another job that waits takes over once they are; with
    /// `failure` all that wait are told of it instead, and are refused.
    pub fn give_up_load(&mut self, id: ResidencyId, failure: Option<Arc<str>>, out: &mut Vec<Outcome>) {
        let entry = &mut self.residencies.entries[id.0];
        let by = match entry.residence {
            Residence::Loading(Loader::Busy(by)) => by,
            Residence::Evicting => return,
            other => panic!("a load was given up that was not begun: {other:?}"),
        };
        entry.residence = Residence::Loading(Loader::Unwinding(by));
        let owner = entry.owner.expect("its bytes are held");
        self.note(owner, What::LoadFailed);
        if let Some(why) = failure {
            let name = self.residencies.entry(id).declared.name.clone();
            let waiting: Vec<OwnerId> = self.pinners(id).filter(|job| self.owners[job.0].waiting.is_some()).collect();
            for job in waiting {
                self.refuse(job, Refusal::LoadFailed { residency: name.clone(), why: why.clone() }, out);
                self.leave_before_the_first_stage(job, out);
                self.leave_loads(job);
            }
        }
        self.settle(out);
    }

    pub(super) fn begin_load(&mut self, id: ResidencyId, loader: OwnerId) {
        let Resident { name, class, bytes, .. } = self.residencies.entry(id).declared.clone();
        let declared = Declared::Standing { class, max: None, base: Amounts::default(), retained: true };
        let owner = Owner { phase: Phase::Ended, ..Owner::new(name, AccountId::ROOT, 0, declared) };
        let owner = self.insert(Owner { residency: Some(id), ..owner });
        let amounts = self.residencies.entry(id).amounts.clone();
        self.charge(owner, &amounts);
        self.owners[owner.0].hold(class.into(), bytes.0);
        let entry = &mut self.residencies.entries[id.0];
        entry.owner = Some(owner);
        entry.loose = bytes.0;
        self.note(owner, What::LoadStarted);
        self.count_in(owner, class.into(), bytes.0);
        self.call(id, loader);
    }

    /// Calls a job to load. The bytes are all there: it gets them with the load.
    fn call(&mut self, id: ResidencyId, loader: OwnerId) {
        let entry = &mut self.residencies.entries[id.0];
        entry.residence = Residence::Loading(Loader::Called(loader));
        self.residencies.orders.push(Order::Load(loader, id));
    }

    /// The jobs in flight that pin a residency.
    pub(super) fn pinners(&self, id: ResidencyId) -> impl Iterator<Item = OwnerId> + '_ {
        let pins = move |index: &usize| self.owners[*index].pins && self.owners[*index].needs.contains(&id);
        self.in_flight.iter().copied().filter(pins).map(OwnerId)
    }

    /// Calls the first job that waits for a load, another one than `before` if there is one; without any, the bytes go
    /// back.
    pub(super) fn take_over(&mut self, id: ResidencyId, before: Option<OwnerId>) {
        if mutant!("loader-cancelled-without-takeover") {
            return;
        }
        if self.is_lost_residency(id) {
            return self.bytes_are_back(id);
        }
        let order = |job: &OwnerId| {
            let owner = &self.owners[job.0];
            let age = owner.waiting.as_ref().map_or(u64::MAX, |waiting| waiting.age);
            // Who does not wait will not look whether a load falls to it, before it asks again.
            (owner.waiting.is_none(), Some(*job) == before, std::cmp::Reverse(owner.priority), age)
        };
        match self.pinners(id).min_by_key(order) {
            Some(next) => self.call(id, next),
            None => self.bytes_are_back(id),
        }
    }

    /// A job that stays in flight has taken its request back: what falls to it to be loaded falls to another one that waits.
    pub(super) fn leave_loads(&mut self, id: OwnerId) {
        if !self.owners.get(id.0).is_some_and(|owner| owner.pins) || mutant!("withdrawn-keeps-its-load") {
            return;
        }
        for need in self.owners[id.0].needs.clone() {
            let is_called = self.residencies.entry(need).residence == Residence::Loading(Loader::Called(id));
            if is_called {
                self.take_over(need, Some(id));
            }
        }
    }

    /// A job waits for what it pins: a load that fell to somebody who does not, for want of another, falls to it.
    pub(super) fn answer_calls(&mut self, id: OwnerId) {
        if !self.owners[id.0].pins || mutant!("withdrawn-keeps-its-load") {
            return;
        }
        for need in self.owners[id.0].needs.clone() {
            if let Residence::Loading(Loader::Called(job)) = self.residencies.entry(need).residence
                && self.owners[job.0].waiting.is_none()
            {
                self.call(need, id);
            }
        }
    }

    /// An entry's bytes go back: nothing of it is in memory any more.
    fn bytes_are_back(&mut self, id: ResidencyId) {
        let entry = &mut self.residencies.entries[id.0];
        entry.evictions += u64::from(entry.residence == Residence::Evicting);
        entry.residence = Residence::Absent;
        entry.loose = 0;
        let owner = entry.owner.take().expect("its bytes are held");
        let class = entry.declared.class;
        self.note(owner, What::Evicted);
        let left = self.owners[owner.0].holding(class.into());
        self.give_back(owner, class.into(), left);
        self.owners.remove(owner.0);
        self.forget_residency(id);
    }

    /// Bytes of a residency come back during its load: they stay with it. `true` if so.
    pub(super) fn keeps_for_load(&mut self, owner: OwnerId, bytes: u64) -> bool {
        let Some(id) = self.owners[owner.0].residency else { return false };
        let entry = &mut self.residencies.entries[id.0];
        let is_loading = matches!(entry.residence, Residence::Loading(_));
        if is_loading {
            entry.loose += bytes;
        }
        is_loading
    }

    /// The last reservation of a residency's bytes has come back.
    pub(super) fn last_piece_is_back(&mut self, id: ResidencyId) {
        match self.residencies.entry(id).residence {
            Residence::Loading(Loader::Unwinding(by)) => {
                let entry = self.residencies.entry(id);
                let (owner, class) = (entry.owner.expect("its bytes are held"), entry.declared.class);
                // What the attempt had grown beyond the declared size goes back.
                let surplus = self.owners[owner.0].holding(class.into()).saturating_sub(entry.declared.bytes.0);
                let entry = &mut self.residencies.entries[id.0];
                entry.loose = entry.declared.bytes.0;
                if surplus > 0 {
                    let loading = std::mem::replace(&mut entry.residence, Residence::Absent);
                    self.give_back(owner, class.into(), surplus);
                    self.residencies.entries[id.0].residence = loading;
                }
                self.take_over(id, by);
            }
            Residence::Resident | Residence::Evicting => self.bytes_are_back(id),
            Residence::Loading(_) | Residence::Absent => {}
        }
    }
}
