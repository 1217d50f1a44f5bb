//! Residencies: long-lived buffers that are worth keeping, and that go when somebody needs the room.
//!
//! ```text
//!            a job that needs it is          the loader               room is needed, and nobody pins it
//!            admitted to load it             fills it                 (or closed, or retired)
//!  Absent ─────────────────────▶ Loading ──────────────▶ Resident ──────────────▶ Evicting
//!    ▲                             │  ▲ │                                            │
//!    │   nobody wants it any more  │  └─┘ the loader gives up: another one takes over│
//!    └─────────────────────────────┴────────────────────────────────────────────────┘ its last byte is back
//! ```
//!
//! A job whose needs are all resident is admitted whole, and pins them. One of whose needs is not is *admitted to the
//! load*: it is in flight from there on, pins what it needs, pays for what nobody has loaded yet (at the root, for all),
//! and asks for its first stage as a job in flight. So whoever pins is in flight, and in the safety check: a pin is never
//! held by somebody who may have to wait for its end.
//!
//! The bytes are held by an owner of their own, which is in no order of safety. Those of an entry that nobody pins count as
//! free there, since eviction needs nobody's progress; but they are granted to nobody before they are back.

use std::borrow::Cow;
use std::sync::Arc;

use slab::Slab;
use smallvec::SmallVec;

use super::accounts::AccountId;
use super::amounts::Amounts;
use super::choice::Needs;
use super::owner::{Declared, Owner, OwnerId, Phase, Waiting};
use super::{LedgerState, Outcome};
use crate::ledger::error::ReserveError;
use crate::observe::What;
use crate::{Bytes, Class, Resource};

/// A residency, as the state machine names it: until it is retired, nobody needs it and its bytes are back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResidencyId(pub(super) usize);

impl ResidencyId {
    /// A small number, unique among the residencies that exist now.
    pub fn index(self) -> usize {
        self.0
    }
}

/// What is to be done about a residency, outside of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// This job is to load it: see [`LedgerState::take_load`].
    Load(OwnerId, ResidencyId),
    /// Its value is to be dropped. The eviction ends when its reservations come back.
    Evict(ResidencyId),
}

/// A residency, as it is declared.
#[derive(Clone, Debug)]
pub struct Resident {
    /// The name, as reports show it.
    pub name: Arc<str>,
    /// The class.
    pub class: Class,
    /// What it takes.
    pub bytes: Bytes,
    /// What it costs to load it again, in nanoseconds: dear entries stay for longer.
    pub rebuild: u64,
}

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residence {
    Absent,
    Loading(Loader),
    Resident,
    /// Whoever has the value was told to drop it.
    Evicting,
}

/// Who loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loader {
    /// It falls to this job, which has not begun.
    Called(OwnerId),
    /// Somebody is at it: this job, unless it has ended meanwhile.
    Busy(Option<OwnerId>),
    /// Given up (by this job), and what it had made is not gone yet. Until then the next one must not begin: its bytes
    /// are those that the rest of the last attempt still uses.
    Unwinding(Option<OwnerId>),
}

/// A residency, as simulators, checkers and tests see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ResidencyView {
    /// Where it stands.
    pub stand: ResidencyStand,
    /// How many jobs in flight pin it.
    pub pins: u32,
    /// What is held for it.
    pub held: Bytes,
    /// How many residencies were used less recently.
    pub rank: usize,
}

/// Where a residency stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResidencyStand {
    /// Nothing of it is there.
    Absent,
    /// It falls to this job to load it.
    Called(OwnerId),
    /// It is being loaded.
    Loading,
    /// A load was given up, and what that had made is not gone yet.
    Unwinding,
    /// It is there.
    Resident,
    /// It is to go, and is not gone yet.
    Evicting,
}

/// What is known of one residency.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) declared: Resident,
    /// Its bytes, by component.
    pub(super) amounts: Amounts,
    pub(super) residence: Residence,
    /// Whose reservations hold its bytes, while it has any.
    pub(super) owner: Option<OwnerId>,
    /// Bytes that came back during the load: they stay with the entry until the load is over, so that whoever takes over
    /// need not ask for them again.
    pub(super) loose: u64,
    /// How many jobs in flight pin it.
    pub(super) pins: u32,
    /// How many jobs exist that need it.
    users: u32,
    /// When it was last used, and the rank of that use.
    pub(super) used: u64,
    pub(super) rank: u64,
    pub(super) loads: u64,
    pub(super) evictions: u64,
    /// Nobody will ask for it any more.
    retired: bool,
}

/// All residencies of a ledger.
#[derive(Clone, Debug, Default)]
pub(super) struct Residencies {
    pub(super) entries: Slab<Entry>,
    pub(super) orders: Vec<Order>,
    /// The latest time that an event brought.
    pub(super) now: u64,
    next_rank: u64,
    /// Eviction is tried: what could be evicted counts as free, and nothing is granted (`evict`).
    pub(super) probing: bool,
    pub(super) probed: Option<Probed>,
    /// An eviction has returned something at once.
    pub(super) came_back: bool,
}

/// What a request takes that could be granted if everything went that can go, and what it needs: that must stay.
#[derive(Clone, Debug)]
pub(super) struct Probed {
    pub(super) more: Amounts,
    pub(super) needs: Needs,
}

impl Residencies {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Something is being loaded or evicted.
    pub(super) fn is_busy(&self) -> bool {
        self.entries.iter().any(|(_, entry)| matches!(entry.residence, Residence::Loading(_) | Residence::Evicting))
    }

    pub(super) fn entry(&self, id: ResidencyId) -> &Entry {
        &self.entries[id.0]
    }
}

impl Entry {
    /// Whether a job exists that needs it.
    pub(super) fn is_needed(&self) -> bool {
        self.users > 0
    }

    /// Whether an eviction would free something that is not on its way already.
    pub(super) fn can_be_evicted(&self) -> bool {
        matches!(self.residence, Residence::Resident | Residence::Loading(Loader::Busy(_)))
    }
}

/// Who pins what, while the safety check ends one owner after another.
pub(super) struct Pins<'a>(SmallVec<[(ResidencyId, u32, &'a Amounts); 4]>);

impl Pins<'_> {
    /// An owner ends: what nobody else pins comes back.
    pub(super) fn finish(&mut self, owner: &Owner, free: &mut [u64]) {
        if !owner.pins {
            return;
        }
        for id in &owner.needs {
            let entry = self.0.iter_mut().find(|entry| entry.0 == *id).expect("all that is pinned is listed");
            entry.1 -= 1;
            if entry.1 == 0 {
                for (component, bytes) in entry.2.iter() {
                    free[component as usize] += bytes;
                }
            }
        }
    }
}

/// Whether a job can go on with what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// All of it is resident.
    Ready,
    /// Some is not, and it must be admitted to the load.
    MustLoad,
    /// Some is being loaded, and it is pinned already; or some is being evicted.
    NotYet,
}

impl LedgerState {
    /// Declares a residency. Nothing is loaded before a job needs it.
    ///
    /// # Errors
    ///
    /// If the root's budget does not name its space.
    pub fn declare_residency(&mut self, declared: Resident) -> Result<ResidencyId, ReserveError> {
        let mut amounts = Amounts::default();
        let Resident { class, bytes, .. } = declared;
        if let Err(kind) = self.accounts.add(AccountId::ROOT, class.into(), bytes.0, &mut amounts) {
            return Err(ReserveError::Unbudgeted { who: declared.name, place: self.root_place(kind) });
        }
        let entry = Entry {
            declared,
            amounts,
            residence: Residence::Absent,
            owner: None,
            loose: 0,
            pins: 0,
            users: 0,
            used: self.residencies.now,
            rank: 0,
            loads: 0,
            evictions: 0,
            retired: false,
        };
        Ok(ResidencyId(self.residencies.entries.insert(entry)))
    }

    /// Nobody will ask for a residency any more: it goes when the jobs that need it have ended.
    pub fn retire_residency(&mut self, id: ResidencyId, out: &mut Vec<Outcome>) {
        self.residencies.entries[id.0].retired = true;
        self.evict_if_unwanted(id);
        self.forget_residency(id);
        self.settle(out);
    }

    /// Tells the time, by which it is known what has not been used for how long. Requests tell it too.
    pub fn advance(&mut self, now: u64) {
        self.residencies.now = self.residencies.now.max(now);
    }

    /// Whether there are any residencies.
    pub fn has_residencies(&self) -> bool {
        !self.residencies.is_empty()
    }

    /// One residency; `None` once it is retired and gone.
    pub fn residency(&self, id: ResidencyId) -> Option<ResidencyView> {
        let entry = self.residencies.entries.get(id.0)?;
        let stand = match entry.residence {
            Residence::Absent => ResidencyStand::Absent,
            Residence::Loading(Loader::Called(job)) => ResidencyStand::Called(job),
            Residence::Loading(Loader::Busy(_)) => ResidencyStand::Loading,
            Residence::Loading(Loader::Unwinding(_)) => ResidencyStand::Unwinding,
            Residence::Resident => ResidencyStand::Resident,
            Residence::Evicting => ResidencyStand::Evicting,
        };
        let held = entry.owner.map_or(0, |owner| self.owners[owner.0].holding(entry.declared.class.into()));
        let rank = self.residencies.entries.iter().filter(|(_, other)| other.rank < entry.rank).count();
        Some(ResidencyView { stand, pins: entry.pins, held: Bytes(held), rank })
    }

    /// A residency as it was declared; `None` once it is retired and gone.
    pub fn resident(&self, id: ResidencyId) -> Option<&Resident> {
        self.residencies.entries.get(id.0).map(|entry| &entry.declared)
    }

    /// Whether there is something to be done about residencies.
    pub fn has_orders(&self) -> bool {
        !self.residencies.orders.is_empty()
    }

    /// Takes what is to be done about residencies since the last call.
    pub fn drain_orders(&mut self) -> impl Iterator<Item = Order> + '_ {
        self.residencies.orders.drain(..)
    }

    // What follows is called from within the events of others.

    /// A job is taken on.
    pub(super) fn add_needs(&mut self, id: OwnerId) {
        let Declared::Job { plans, .. } = &self.owners[id.0].declared else { return };
        for need in plans.known_needs() {
            self.residencies.entries[need.0].users += 1;
        }
    }

    /// A claim, with what is needed beside it: what the limits must have room for.
    pub(super) fn with_needs<'a>(&self, needs: &[ResidencyId], claim: &'a Amounts) -> Cow<'a, Amounts> {
        if needs.is_empty() {
            return Cow::Borrowed(claim);
        }
        let mut claim = claim.clone();
        for id in needs {
            for (component, bytes) in self.residencies.entry(*id).amounts.iter() {
                claim.add(component, bytes);
            }
        }
        Cow::Owned(claim)
    }

    /// Whether all of it is loaded.
    pub(super) fn are_resident(&self, needs: &[ResidencyId]) -> bool {
        needs.iter().all(|id| self.residencies.entry(*id).residence == Residence::Resident)
    }

    pub(super) fn readiness(&self, id: OwnerId) -> Readiness {
        let owner = &self.owners[id.0];
        let residence = |id: &ResidencyId| self.residencies.entry(*id).residence;
        if self.are_resident(&owner.needs) {
            Readiness::Ready
        } else if owner.pins || owner.needs.iter().any(|id| residence(id) == Residence::Evicting) {
            Readiness::NotYet
        } else {
            Readiness::MustLoad
        }
    }

    /// What a job that is to be admitted to the load has to pay for.
    pub(super) fn amounts_to_load(&self, id: OwnerId) -> Amounts {
        let mut amounts = Amounts::default();
        for id in &self.owners[id.0].needs {
            let entry = self.residencies.entry(*id);
            if entry.residence == Residence::Absent {
                entry.amounts.iter().for_each(|(component, bytes)| amounts.add(component, bytes));
            }
        }
        amounts
    }

    /// Everything that is pinned.
    pub(super) fn pins(&self) -> Pins<'_> {
        let pinned = self.residencies.entries.iter().filter(|(_, entry)| entry.pins > 0);
        // A load that is only tried has no owner yet.
        let amounts = |entry: &'_ Entry| entry.owner.map(|owner| &self.owners[owner.0].held);
        let listed =
            pinned.map(|(index, entry)| (ResidencyId(index), entry.pins, amounts(entry).unwrap_or(&entry.amounts)));
        Pins(listed.collect())
    }

    /// Pins what an owner needs. Does nothing where it does already.
    pub(super) fn pin(&mut self, id: OwnerId) -> bool {
        let owner = &mut self.owners[id.0];
        if owner.needs.is_empty() || std::mem::replace(&mut owner.pins, true) {
            return false;
        }
        for id in &owner.needs {
            self.residencies.entries[id.0].pins += 1;
        }
        self.account_reclaimable();
        true
    }

    /// Keeps residencies where they are, whoever needs them, or lets go of them again.
    pub(super) fn hold_still(&mut self, needs: &[ResidencyId], hold: bool) {
        for need in needs {
            let pins = &mut self.residencies.entries[need.0].pins;
            *pins = if hold { *pins + 1 } else { *pins - 1 };
        }
        self.account_reclaimable();
    }

    /// An owner that has pinned all of `before` goes on with what it needs now, which is less.
    pub(super) fn unpin_all_but_needs(&mut self, id: OwnerId, before: &[ResidencyId]) {
        let owner = &mut self.owners[id.0];
        if !owner.pins || owner.needs.as_slice() == before {
            return;
        }
        let dropped: Needs = before.iter().copied().filter(|need| !owner.needs.contains(need)).collect();
        owner.pins = !owner.needs.is_empty();
        self.unpin(id, &dropped);
        self.account_reclaimable();
    }

    /// An owner that does not need these any more no longer pins them: what fell to it to be loaded falls to others.
    fn unpin(&mut self, id: OwnerId, needs: &[ResidencyId]) {
        for &need in needs {
            self.residencies.entries[need.0].pins -= 1;
            self.touch(need);
            let entry = &mut self.residencies.entries[need.0];
            match &mut entry.residence {
                Residence::Loading(Loader::Called(by)) if *by == id => self.take_over(need, None),
                Residence::Loading(Loader::Busy(by) | Loader::Unwinding(by)) if *by == Some(id) => *by = None,
                _ => {}
            }
            self.evict_if_unwanted(need);
        }
    }

    /// Takes back a pin that was only tried.
    pub(super) fn unpin_tried(&mut self, id: OwnerId) {
        let owner = &mut self.owners[id.0];
        owner.pins = false;
        for id in &owner.needs {
            self.residencies.entries[id.0].pins -= 1;
        }
        self.account_reclaimable();
    }

    /// Admits a job to the load of what it needs: from here on it is in flight and waits for its first stage as such.
    pub(super) fn commit_to_load(&mut self, id: OwnerId) {
        let waiting = self.dequeue(id).expect("it waits");
        let owner = &mut self.owners[id.0];
        owner.phase = Phase::InFlight;
        if let Declared::Job { again, .. } = &mut owner.declared {
            again.admitted = Some(waiting.age);
        }
        self.in_flight.push(id.0);
        self.requeue(id, waiting);
        self.note(id, What::Admitted);
        for need in self.owners[id.0].needs.clone() {
            if self.residencies.entry(need).residence == Residence::Absent {
                self.begin_load(need, id);
            }
        }
        self.answer_calls(id);
        self.account_reclaimable();
    }

    /// An owner no longer pins what it needs: it has ended, or was not admitted after all.
    pub(super) fn leave_needs(&mut self, id: OwnerId) {
        if !std::mem::replace(&mut self.owners[id.0].pins, false) {
            return;
        }
        let needs = self.owners[id.0].needs.clone();
        self.unpin(id, &needs);
    }

    /// An owner has ended: nothing of it is needed any more.
    pub(super) fn forget_needs(&mut self, id: OwnerId) {
        self.leave_needs(id);
        self.owners[id.0].needs.clear();
        let Declared::Job { plans, .. } = &self.owners[id.0].declared else { return };
        for need in plans.known_needs().clone() {
            self.residencies.entries[need.0].users -= 1;
            self.forget_residency(need);
        }
    }

    /// A job that was admitted to a load and is not to enter its first stage stands where it stood before.
    pub(super) fn leave_before_the_first_stage(&mut self, id: OwnerId, out: &mut Vec<Outcome>) {
        let owner = &self.owners[id.0];
        let Declared::Job { running: None, next: 0, again, .. } = &owner.declared else { return };
        if owner.pins && !again.stays && owner.in_flight() {
            self.step_back(id, out);
        }
    }

    pub(super) fn touch(&mut self, id: ResidencyId) {
        let rank = self.residencies.next_rank;
        self.residencies.next_rank += 1;
        let now = self.residencies.now;
        let entry = &mut self.residencies.entries[id.0];
        (entry.used, entry.rank) = (now, rank);
    }

    /// Its bytes were lost with their device.
    pub(super) fn is_lost_residency(&self, id: ResidencyId) -> bool {
        self.accounts.is_lost(Resource::Class(self.residencies.entry(id).declared.class).into())
    }

    /// Evicts what nobody pins and nobody will ask for again.
    pub(super) fn evict_if_unwanted(&mut self, id: ResidencyId) {
        let entry = self.residencies.entry(id);
        if (entry.retired || self.closed || self.is_lost_residency(id)) && entry.pins == 0 && entry.can_be_evicted() {
            self.evict(id);
        }
    }

    /// Evicts all that nobody pins: nothing new is admitted any more.
    pub(super) fn evict_all_unwanted(&mut self) {
        let all: Vec<ResidencyId> = self.residencies.entries.iter().map(|(index, _)| ResidencyId(index)).collect();
        all.into_iter().for_each(|id| self.evict_if_unwanted(id));
    }

    /// Begins an eviction: what comes back is granted when it is back.
    pub(super) fn evict(&mut self, id: ResidencyId) {
        let entry = &mut self.residencies.entries[id.0];
        let is_there = entry.residence == Residence::Resident;
        let owner = entry.owner.expect("its bytes are held");
        entry.residence = Residence::Evicting;
        let (class, loose) = (entry.declared.class, std::mem::take(&mut entry.loose));
        self.note(owner, What::EvictionStarted);
        // Of a load that nobody wants any more: what is not in use goes back at once.
        self.give_back(owner, class.into(), loose);
        self.residencies.came_back |= loose > 0;
        if is_there {
            self.residencies.orders.push(Order::Evict(id));
        }
        self.account_reclaimable();
    }

    pub(super) fn forget_residency(&mut self, id: ResidencyId) {
        let entry = self.residencies.entry(id);
        if entry.retired && entry.users == 0 && entry.residence == Residence::Absent {
            self.residencies.entries.remove(id.0);
        }
    }

    /// Sums up what evictions could free or are about to: what nobody pins.
    pub(super) fn account_reclaimable(&mut self) {
        if self.residencies.is_empty() {
            return;
        }
        for component in &mut self.accounts.components {
            component.reclaimable = 0;
        }
        for (index, entry) in &self.residencies.entries {
            if let Some(owner) = entry.owner
                && !self.is_pinned(ResidencyId(index))
            {
                for (component, bytes) in self.owners[owner.0].held.iter() {
                    self.accounts.components[component as usize].reclaimable += bytes;
                }
            }
        }
    }

    pub(super) fn is_pinned(&self, id: ResidencyId) -> bool {
        if mutant!("eviction-of-pinned") {
            return false;
        }
        if mutant!("load-evict-ping-pong") {
            return self.pinners(id).any(|job| self.owners[job.0].waiting.is_none());
        }
        self.residencies.entry(id).pins > 0
    }

    fn requeue(&mut self, id: OwnerId, waiting: Waiting) {
        self.owners[id.0].waiting = Some(waiting);
        self.take_place(id);
    }
}
