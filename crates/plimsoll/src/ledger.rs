//! The ledger: the single source of truth about who holds which bytes and slots, and who waits for them.
//!
//! [`Ledger`] is a cheap handle. Behind it is a pure state machine ([`state`]) in one short critical section (`shell`).
//! Bytes are held through RAII types: [`Reservation`] for bytes alone, [`Charged`] for a buffer together with the bytes
//! that pay for it, [`Grant`] for everything that one stage of a job needs. `ledger/README.md` has the protocol and the
//! reasons why it holds.
//!
//! # What is counted, and what is not
//!
//! The ledger counts what is declared to it: it allocates nothing and measures nothing. Reserve before you allocate, and
//! return after you have freed; [`Charged`] does both in the right order. Small things that do not grow with the work
//! (headers, queues, this ledger itself) are not worth an entry; leave a margin in the budget for them.

pub mod error;
pub mod snapshot;
pub mod state;

mod charged;
mod clock;
mod get;
mod grant;
mod grow;
mod handle;
mod job;
mod load;
#[cfg(doctest)]
mod must_not_compile;
mod origin;
mod outbox;
mod reaper;
mod reservation;
mod reserve;
mod residency;
mod shell;
mod stall;
mod steer;
#[cfg(feature = "tokio")]
mod timeout;
mod used;

use std::fmt;
use std::sync::Arc as StdArc;
use std::time::Duration;

pub use self::charged::{Charged, Full, VecError};
pub use self::error::{
    EnterError, GrowError, NeverFits, ReserveError, ResizeError, RestartError, RetireError, SubmitError, TakeError,
    TooFew,
};
pub use self::get::Get;
pub use self::grant::{ExternalWait, Grant};
pub use self::grow::Growth;
pub use self::handle::{HandleError, HandleRecord, RawHandle, SPENT_KEPT};
pub use self::job::{Enter, Job, JobSpec};
pub use self::load::NextLoad;
pub use self::reaper::{Reap, Reaper};
pub use self::reservation::{NotMerged, NotMoved, Reservation};
pub use self::reserve::Reserve;
pub use self::residency::{AnyLoad, GetError, Got, Load, Need, Pin, Residency, Unwanted, Vacant};
use self::shell::Inner;
use self::snapshot::Snapshot;
pub use self::stall::Stall;
use self::state::{AccountId, Kind};
pub use self::steer::EvictError;
pub(crate) use self::steer::Steered;
use crate::observe::Observer;
use crate::sync::Arc;
use crate::{Budget, Bytes, Class, Slots, Space};

/// A handle to a ledger, or to a child of one. Clones share everything. A child ends with its last handle and the last of its
/// jobs and reservations; another one may then take its place in the books, so that children may come and go.
///
/// ```
/// use plimsoll::{Budget, Bytes, Class, Ledger, Space};
/// const SCRATCH: Class = Class::new("scratch", Space::HOST);
///
/// let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::MIB));
/// let held = ledger.reserve(SCRATCH, Bytes(600 << 10)).wait()?;
/// assert!(ledger.reserve(SCRATCH, Bytes(600 << 10)).try_now().is_err());
/// drop(held);
/// assert!(ledger.snapshot().is_empty());
/// # Ok::<(), plimsoll::ledger::ReserveError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ledger {
    inner: Arc<Inner>,
    account: Account,
}

/// The account that a handle stands for, which is held open as long as anybody may ask for something there.
#[derive(Clone, Debug)]
enum Account {
    Root,
    Child(StdArc<Child>),
}

/// A child's account, closed with its last handle.
struct Child {
    inner: Arc<Inner>,
    id: AccountId,
    /// Ends after it.
    _parent: Account,
}

impl Account {
    fn id(&self) -> AccountId {
        match self {
            Account::Root => AccountId::ROOT,
            Account::Child(child) => child.id,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.inner.read(|state| state.close_child(self.id));
    }
}

/// Observes a ledger until it is dropped: see [`Ledger::observe_while`].
pub struct Observing {
    inner: Arc<Inner>,
    // Gone after it was taken off: not under the ledger's lock.
    observer: StdArc<dyn Observer>,
}

impl fmt::Debug for Observing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observing")
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        if mutant!("observer-stays") {
            return;
        }
        self.inner.unobserve(&self.observer);
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl Ledger {
    /// A ledger with these limits.
    pub fn new(budget: Budget) -> Ledger {
        Ledger { inner: Arc::new(Inner::new(&budget)), account: Account::Root }
    }

    /// A ledger without limits: everything is counted and nothing waits.
    pub fn unlimited() -> Ledger {
        Ledger::new(Budget::unlimited())
    }

    /// A child with limits of its own, for a tenant or a proof. What is held through it counts here as well. A space
    /// that `budget` does not name is limited only here; how requests may pass each other is the root's to say.
    #[must_use]
    pub fn child(&self, name: &str, budget: &Budget) -> Ledger {
        let (inner, parent) = (self.inner.clone(), self.account.clone());
        let id = inner.read(|state| state.open_child(parent.id(), name.into(), budget));
        let child = Child { inner: inner.clone(), id, _parent: parent };
        Ledger { inner, account: Account::Child(StdArc::new(child)) }
    }

    /// How many components the vector has.
    #[cfg(all(test, not(plimsoll_loom)))]
    pub(crate) fn components(&self) -> usize {
        self.inner.read(|state| state.components().len())
    }

    /// Asks for bytes of a class, outside of any job. Nothing happens until the request is waited for:
    /// [`wait`](Reserve::wait), [`try_now`](Reserve::try_now) or `.await`.
    #[track_caller]
    pub fn reserve(&self, class: Class, bytes: Bytes) -> Reserve {
        Reserve::new(self.inner.clone(), self.account.clone(), class, bytes)
    }

    /// Takes on a job with a profile. It holds nothing until it [enters](Job::enter) its first stage.
    ///
    /// # Errors
    ///
    /// At once, never by waiting for ever, if the profile contradicts itself, if its claim is above a limit, or if the
    /// ledger is closed.
    #[track_caller]
    pub fn submit(&self, spec: JobSpec) -> Result<Job, SubmitError> {
        if !spec.belongs_to(&self.inner) {
            return Err(SubmitError::OtherLedger { job: spec.name });
        }
        let name = spec.name.clone();
        let profiles = std::iter::once(&spec.profile).chain(&spec.alternatives).cloned().collect();
        let (needs, needs_by) = (spec.needs.clone(), spec.needs_by.clone());
        if needs.iter().chain(needs_by.iter().map(|entry| &entry.1)).any(|need| !need.is_of(&self.inner)) {
            return Err(SubmitError::OtherLedger { job: name });
        }
        let id = self.inner.read(|state| state.submit(self.account.id(), spec))?;
        Ok(Job::new(self.inner.clone(), id, name, profiles).with_needs(needs, needs_by))
    }

    /// Sets a new limit for a space of this ledger or child. A lower one takes effect stepwise, as jobs finish, never
    /// below what the jobs in flight need to finish; waiting admissions that no longer fit are refused.
    ///
    /// # Errors
    ///
    /// If the budget did not name the space.
    pub fn resize(&self, space: Space, limit: Bytes) -> Result<(), ResizeError> {
        self.inner.event(|state, out| state.resize(self.account.id(), space, limit, out))
    }

    /// Sets a new number of slots of a kind, as [`resize`](Ledger::resize) does for the bytes of a space: more are there
    /// at once, fewer as jobs finish. With none left, waiting jobs that need some are refused, not kept.
    ///
    /// # Errors
    ///
    /// If the budget did not name the slots.
    pub fn resize_slots(&self, slots: Slots, count: u64) -> Result<(), ResizeError> {
        self.inner.event(|state, out| state.resize_slots(self.account.id(), slots, count, out))
    }

    /// Takes a lost device off the books, for this ledger and all that share it: its memory, its lanes and its lease. Returns
    /// how many bytes were held there; none if it was retired before.
    ///
    /// Limit and holdings go together, and nothing returns to what is free. Reservations of that memory stay in the hands of
    /// their holders, and vanish when they are dropped. Whatever waits for the device is refused, jobs that need it are
    /// refused from now on, and jobs in flight when they come to a stage that does. Host memory is never touched, pinned or
    /// not: what a job holds there it still holds.
    ///
    /// # Errors
    ///
    /// If the space is not a device's, or the budget does not name it.
    pub fn retire(&self, space: Space) -> Result<Bytes, RetireError> {
        self.inner.event(|state, out| state.retire(space, out))
    }

    /// Adds a kind of slots to this child, which nobody has asked for yet.
    pub(crate) fn open_slots(&self, slots: Slots, count: u64) {
        self.inner.read(|state| state.open_slots(self.account.id(), slots, count));
    }

    /// The most that jobs can ever hold of a space at once, as far as is known now; `None` where there is no limit.
    pub(crate) fn room(&self, space: Space) -> Option<Bytes> {
        self.inner.read(|state| state.room(self.account.id(), Kind::Space(space))).map(Bytes)
    }

    /// What of that the residencies take that jobs need which exist now.
    pub(crate) fn needed_residencies(&self, space: Space) -> Bytes {
        Bytes(self.inner.read(|state| state.needed_residencies(Kind::Space(space))))
    }

    /// What jobs of this profile hold of a space before a stage, and the limit in force, at one moment.
    pub(crate) fn backlog(&self, profile: &crate::Profile, stage: usize, space: Space) -> (u64, Option<u64>) {
        self.inner.read(|state| {
            (
                state.backlog(self.account.id(), profile, stage, space),
                state.in_force(self.account.id(), Kind::Space(space)),
            )
        })
    }

    /// The most slots of a kind that jobs can ever hold at once; `None` where there is no limit.
    pub(crate) fn slots_limit(&self, slots: Slots) -> Option<u64> {
        self.inner.read(|state| state.room(self.account.id(), Kind::Slots(slots)))
    }

    /// Frees large buffers on threads of its own, so that nobody waits for it. Their bytes stay charged until the memory is
    /// gone; [`snapshot`](Ledger::snapshot) shows what waits, and [`quiesce`](Ledger::quiesce) waits for it.
    ///
    /// Before a process ends, [`quiesce`](Ledger::quiesce): what is still to be freed then is not dropped.
    #[must_use]
    pub fn reaper(&self) -> Reaper {
        Reaper::new(self.inner.clone())
    }

    /// Refuses everything that is not in flight, now and from now on: of this ledger or child, and of its own children. Jobs in
    /// flight go on to their end.
    pub fn close(&self) {
        self.inner.event(|state, out| state.close(self.account.id(), out));
    }

    /// A picture of this moment: of the root and all its children.
    pub fn snapshot(&self) -> Snapshot {
        self.inner.snapshot()
    }

    /// Tells `observer` of every change from now on: of the root and all its children. See [`observe`](crate::observe).
    pub fn observe(&self, observer: StdArc<dyn Observer>) {
        self.inner.observe(observer);
    }

    /// As [`observe`](Self::observe), for as long as what is returned lives. What had happened before it is dropped may still be
    /// told afterwards, by another thread that is about to do so.
    #[must_use = "the observer is taken off when this is dropped"]
    pub fn observe_while(&self, observer: StdArc<dyn Observer>) -> Observing {
        self.inner.observe(observer.clone());
        Observing { inner: self.inner.clone(), observer }
    }

    /// Tells all observers each limit of the root as it is, as if it had just been set: for who has begun to write a trace, from
    /// which the limits should follow.
    pub fn announce_limits(&self) {
        self.inner.read(|state| state.note_limits());
    }

    /// Blocks until no job is in flight or waiting, nothing is held but by reservations declared as retained, and the
    /// [`reaper`](Ledger::reaper) has freed all that it was given.
    ///
    /// # Errors
    ///
    /// When the time is up: the picture of what is still held.
    pub fn quiesce(&self, timeout: Duration) -> Result<(), Box<Snapshot>> {
        if self.inner.quiesce(timeout) { Ok(()) } else { Err(Box::new(self.snapshot())) }
    }
}
