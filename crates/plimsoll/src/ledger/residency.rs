//! Residencies: what is loaded once, used by many jobs, and evicted when somebody needs its room.
//!
//! [`Residency`] is the key: a name, a class, a size, and what it costs to load it again. Nothing is held for it before
//! somebody needs it, and the ledger evicts it, when nobody does, for whoever is first in the order of requests and cannot
//! be served otherwise.
//!
//! There are two ways to it:
//!
//! - by itself: [`Residency::get`] gives a [`Pin`], or a [`Vacant`] to fill, to one of those who ask at a time;
//! - for a job: [`JobSpec::needs`](super::JobSpec::needs) pins it for as long as the job is in flight.
//!   [`Job::load`](super::Job::load) says what falls to this job to be loaded, and [`Grant::pinned`](super::Grant::pinned) reads it.
//!
//! A load is paid for when it begins, by the ledger's root and once for all. Whoever loads takes its buffers out of the
//! [`Load`]'s bytes; what is not taken stays with the value until that is dropped. A load that is dropped unfilled is taken
//! over by another one who waits.

use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::Arc as StdArc;
use std::time::Duration;

use thiserror::Error;

use super::charged::{Charged, VecError};
use super::error::{EnterError, ReserveError, TooFew};
use super::get::Get;
use super::grant::Grant;
use super::job::Job;
use super::reservation::Reservation;
use super::shell::Inner;
use super::state::{OwnerId, ResidencyId, Resident};
use crate::sync::Arc;
use crate::{Bytes, Class, Ledger};

/// What a residency's value is kept as: of any type, together with what pays for it.
pub(super) type Value = StdArc<dyn Any + Send + Sync>;

/// A value and what is left of the reservation that pays for it.
pub(super) struct Kept<T> {
    // Fields are dropped in this order: freed, then returned.
    #[cfg(not(plimsoll_mutant = "evicted-bytes-before-free"))]
    value: T,
    _rest: Reservation,
    #[cfg(plimsoll_mutant = "evicted-bytes-before-free")]
    value: T,
}

impl<T> Kept<T> {
    /// The ledger that it is in.
    pub(super) fn home(&self) -> Arc<Inner> {
        self._rest.ledger().clone()
    }
}

/// Something that is loaded once and shared: a proving key, points of a structured reference string, a pre-compiled matrix.
/// Clones are the same residency.
///
/// When the last clone is gone, and the last job that needs it has ended, it is evicted for good.
///
/// ```
/// use std::time::Duration;
/// use plimsoll::ledger::Got;
/// use plimsoll::{Budget, Bytes, Charged, Class, Ledger, Space};
/// const KEYS: Class = Class::new("keys", Space::HOST);
///
/// let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes::MIB));
/// let key = ledger.residency::<Charged<Vec<u8>>>("key", KEYS, Bytes(600 << 10), Duration::from_secs(15))?;
/// let pinned = match key.get().wait()? {
///     Got::Pinned(pinned) => pinned,
///     Got::Vacant(mut vacant) => {
///         let mut bytes = vacant.vec(600 << 10)?;
///         bytes.resize(600 << 10, 7)?;
///         vacant.fill(bytes)?
///     }
/// };
/// assert_eq!(pinned[0], 7);
/// drop(pinned);
/// // Nobody uses it: it goes when its room is needed.
/// let scratch = ledger.reserve(KEYS, Bytes(700 << 10)).wait()?;
/// # drop(scratch);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Residency<T> {
    pub(super) key: StdArc<Key>,
    of: PhantomData<fn() -> T>,
}

/// What all clones share.
pub(super) struct Key {
    pub(super) inner: Arc<Inner>,
    pub(super) id: ResidencyId,
    pub(super) name: StdArc<str>,
    pub(super) class: Class,
    pub(super) bytes: Bytes,
}

impl Drop for Key {
    fn drop(&mut self) {
        self.inner.event(|state, out| state.retire_residency(self.id, out));
    }
}

impl Ledger {
    /// Declares a residency: `bytes` of a class, of which it takes `rebuild_cost` to load the value again. It is charged to
    /// the root ledger, also through a child: what is shared counts once, and for nobody in particular.
    ///
    /// # Errors
    ///
    /// If the budget does not name the class's space.
    pub fn residency<T: Send + Sync + 'static>(
        &self,
        name: &str,
        class: Class,
        bytes: Bytes,
        rebuild_cost: Duration,
    ) -> Result<Residency<T>, ReserveError> {
        let name: StdArc<str> = name.into();
        let rebuild = u64::try_from(rebuild_cost.as_nanos()).unwrap_or(u64::MAX);
        let declared = Resident { name: name.clone(), class, bytes, rebuild };
        let id = self.inner.read(|state| state.declare_residency(declared))?;
        let key = StdArc::new(Key { inner: self.inner.clone(), id, name, class, bytes });
        Ok(Residency { key, of: PhantomData })
    }
}

impl<T: Send + Sync + 'static> Residency<T> {
    /// The name.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// The class that its bytes belong to.
    pub fn class(&self) -> Class {
        self.key.class
    }

    /// What it takes.
    pub fn bytes(&self) -> Bytes {
        self.key.bytes
    }

    /// Asks for the value, outside of any job. Nothing happens until the request is waited for: [`wait`](Get::wait),
    /// [`try_now`](Get::try_now) or `.await`.
    #[track_caller]
    pub fn get(&self) -> Get<T> {
        Get::new(self.clone(), Location::caller())
    }

    /// Blocks the thread until the value is there, and loads it by `load` if that falls to this caller.
    ///
    /// # Errors
    ///
    /// If the request is refused (see [`Get::wait`]), or `load` fails: then another one who waits takes over.
    #[track_caller]
    pub fn get_or_load<E>(&self, load: impl FnOnce(&mut Load<T>) -> Result<T, E>) -> Result<Pin<T>, GetError<E>> {
        match self.get().wait().map_err(GetError::Refused)? {
            Got::Pinned(pin) => Ok(pin),
            Got::Vacant(mut vacant) => match load(&mut vacant) {
                Ok(value) => vacant.fill(value).map_err(GetError::Refused),
                Err(source) => Err(GetError::Load(source)),
            },
        }
    }

    /// Whether it is loaded now. It may be evicted before one has looked, unless one pins it.
    pub fn is_resident(&self) -> bool {
        self.key.inner.value(self.key.id).is_some()
    }
}

impl<T> Residency<T> {
    /// Whether it is this ledger's.
    pub(super) fn is_of(&self, ledger: &Arc<Inner>) -> bool {
        Arc::ptr_eq(&self.key.inner, ledger)
    }
}

impl<T> Clone for Residency<T> {
    fn clone(&self) -> Residency<T> {
        Residency { key: self.key.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for Residency<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Residency({:?}, {} of {})", self.key.name, self.key.bytes, self.key.class)
    }
}

/// A residency was not to be had.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GetError<E> {
    /// The request was refused.
    #[error(transparent)]
    Refused(EnterError),
    /// The caller's own load failed.
    #[error("{0}")]
    Load(E),
}

/// What a request for a residency gives.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is taken apart where it is given")]
pub enum Got<T: Send + Sync + 'static> {
    /// It is there.
    Pinned(Pin<T>),
    /// It is not, and to load it falls to this caller, while others wait.
    Vacant(Vacant<T>),
}

/// A residency that is there, and stays there until this is dropped. Gives out the value by reference.
pub struct Pin<T> {
    // Fields are dropped in this order: the value is let go of before the ledger is told.
    value: StdArc<Kept<T>>,
    /// Ended in this order.
    _by: Box<(Grant, Job)>,
}

impl<T: Send + Sync + 'static> Pin<T> {
    /// What a job has pinned that does nothing else, and that was granted its only stage.
    pub(super) fn new(key: &Key, mut job: Job) -> Result<Pin<T>, EnterError> {
        let grant = job.enter(0).wait()?;
        let value = key.inner.value(key.id).expect("what is pinned is there");
        let value = value.downcast().unwrap_or_else(|_| unreachable!("a residency has one type"));
        Ok(Pin { value, _by: Box::new((grant, job)) })
    }
}

impl<T> Deref for Pin<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value.value
    }
}

impl<T> fmt::Debug for Pin<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pin").finish_non_exhaustive()
    }
}

/// The value that a job's grant has pinned.
pub(super) fn value_in<T: Send + Sync + 'static>(value: &Value) -> Option<&T> {
    value.downcast_ref::<Kept<T>>().map(|kept| &kept.value)
}

/// A load that fell to somebody who asked for a residency by itself: see [`Residency::get`].
#[must_use = "dropping it leaves the load to another one who waits"]
#[derive(Debug)]
pub struct Vacant<T: Send + Sync + 'static> {
    load: Load<T>,
    job: Job,
}

impl<T: Send + Sync + 'static> Vacant<T> {
    pub(super) fn new(load: Load<T>, job: Job) -> Vacant<T> {
        Vacant { load, job }
    }

    /// The value is there: all who wait get it.
    ///
    /// # Errors
    ///
    /// [`EnterError::Lost`] if its device was lost meanwhile: the value is dropped.
    pub fn fill(self, value: T) -> Result<Pin<T>, EnterError> {
        let Vacant { load, job } = self;
        let key = load.claim.key.clone();
        // Whoever asked for it pins it, but for one whose device is gone, and who is told so.
        drop(load.fill(value));
        Pin::new(&key, job)
    }

    /// The load has failed, for all who wait: they are told of it, and nobody tries again.
    pub fn fail(self, why: impl fmt::Display) {
        self.load.fail(why);
    }
}

impl<T: Send + Sync + 'static> Deref for Vacant<T> {
    type Target = Load<T>;

    fn deref(&self) -> &Load<T> {
        &self.load
    }
}

impl<T: Send + Sync + 'static> DerefMut for Vacant<T> {
    fn deref_mut(&mut self) -> &mut Load<T> {
        &mut self.load
    }
}

/// The right and the duty to load a residency: its bytes, to take buffers from.
///
/// Dropped unfilled it leaves the load to another one who waits, as soon as the buffers that were taken are gone too.
#[must_use = "dropping it leaves the load to another one who waits"]
pub struct Load<T> {
    claim: Claim,
    of: PhantomData<fn() -> T>,
}

/// A load of a residency of any type.
struct Claim {
    key: StdArc<Key>,
    /// `None` once it is filled or given up.
    reservation: Option<Reservation>,
}

impl Claim {
    fn give_up(&mut self, failure: Option<StdArc<str>>) {
        if let Some(reservation) = self.reservation.take() {
            self.key.inner.event(|state, out| state.give_up_load(self.key.id, failure, out));
            drop(reservation);
        }
    }

    fn reservation(&mut self) -> &mut Reservation {
        self.reservation.as_mut().expect("it is there until the load is over")
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.give_up(None);
    }
}

impl<T: Send + Sync + 'static> Load<T> {
    /// The residency's name.
    pub fn name(&self) -> &str {
        &self.claim.key.name
    }

    /// How many bytes are left to be taken.
    pub fn left(&self) -> Bytes {
        self.claim.reservation.as_ref().map_or(Bytes::ZERO, Reservation::bytes)
    }

    /// The highest priority among those who wait for it: the load should run with it.
    pub fn priority(&self) -> i32 {
        self.claim.key.inner.read(|state| state.load_priority(self.claim.key.id)).unwrap_or(0)
    }

    /// Whether anybody waits for it.
    pub(crate) fn is_wanted(&self) -> bool {
        self.claim.key.inner.read(|state| state.load_priority(self.claim.key.id)).is_some()
    }

    /// Takes bytes as a reservation, for a part of the value.
    ///
    /// # Errors
    ///
    /// If fewer are left.
    pub fn take(&mut self, bytes: Bytes) -> Result<Reservation, TooFew> {
        self.claim.reservation().split(bytes)
    }

    /// A vector of this capacity, paid for by the residency.
    ///
    /// # Errors
    ///
    /// If fewer bytes are left, or the allocator refuses.
    pub fn vec<U>(&mut self, capacity: usize) -> Result<Charged<Vec<U>>, VecError> {
        let needed = Bytes::of::<U>(capacity);
        match self.take(needed) {
            Ok(reservation) => Charged::with_capacity(reservation, capacity),
            // An empty part: what is left stays with the load.
            Err(_) => match self.take(Bytes::ZERO) {
                Ok(reservation) => Err(VecError::TooFew { needed, reservation }),
                Err(error) => unreachable!("nothing can always be taken: {error}"),
            },
        }
    }

    /// The value is there: all who wait go on. What is left of the bytes stays with it; to return some of them, take and
    /// drop them first.
    ///
    /// # Errors
    ///
    /// If nobody wants it any more: the jobs that waited have ended, and its room was needed.
    pub fn fill(mut self, value: T) -> Result<(), Unwanted<T>> {
        let rest = self.claim.reservation.take().expect("it is there until the load is over");
        let kept = Kept { value, _rest: rest };
        self.claim.key.inner.fill(self.claim.key.id, kept).map_err(|kept| {
            let Kept { value, _rest: reservation } = kept;
            Unwanted { value, reservation }
        })
    }

    /// The load has failed, for all who wait: they are told of it, and nobody tries again. (Dropping the load instead
    /// leaves it to the next one who waits.)
    pub fn fail(mut self, why: impl fmt::Display) {
        self.claim.give_up(Some(why.to_string().into()));
    }
}

impl<T> fmt::Debug for Load<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Load({:?}, {:?})", self.claim.key.name, self.claim.reservation)
    }
}

/// A value that was loaded, and that nobody wants any more. Dropping it frees the value first and returns the bytes after.
#[derive(thiserror::Error)]
#[error("nobody wants what was loaded any more, or the ledger was closed; take `value` out of the error, or drop it")]
pub struct Unwanted<T> {
    /// The value.
    pub value: T,
    /// What pays for it, beside what it holds itself.
    pub reservation: Reservation,
}

/// Without the value: it may be a secret, and need not be printable.
impl<T> fmt::Debug for Unwanted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwanted").field("reservation", &self.reservation).finish_non_exhaustive()
    }
}

/// A load that falls to a job, of one of the residencies that it needs: [`of`](AnyLoad::of) says of which.
#[must_use = "dropping it leaves the load to another one who waits"]
pub struct AnyLoad {
    claim: Claim,
}

impl AnyLoad {
    pub(super) fn new(key: StdArc<Key>, payer: OwnerId, place: &'static Location<'static>) -> AnyLoad {
        let reservation = Reservation::new(key.inner.clone(), payer, key.class, key.bytes).with_place(place);
        AnyLoad { claim: Claim { key, reservation: Some(reservation) } }
    }

    /// The highest priority among those who wait for it: the load should run with it.
    pub fn priority(&self) -> i32 {
        self.claim.key.inner.read(|state| state.load_priority(self.claim.key.id)).unwrap_or(0)
    }

    /// The residency's name.
    pub fn name(&self) -> &str {
        &self.claim.key.name
    }

    /// The load of this residency.
    ///
    /// # Errors
    ///
    /// The load itself, if it is another one's.
    pub fn of<T>(self, residency: &Residency<T>) -> Result<Load<T>, AnyLoad> {
        if StdArc::ptr_eq(&self.claim.key, &residency.key) {
            Ok(Load { claim: self.claim, of: PhantomData })
        } else {
            Err(self)
        }
    }
}

impl fmt::Debug for AnyLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AnyLoad({:?})", self.claim.key.name)
    }
}

/// A residency that a job needs: see [`JobSpec::needs`](super::JobSpec::needs).
#[derive(Clone)]
pub struct Need {
    id: ResidencyId,
    /// Keeps it from being retired as long as the job may ask for it.
    pub(super) key: Option<StdArc<Key>>,
}

impl Need {
    pub(crate) fn id(&self) -> ResidencyId {
        self.id
    }

    /// The residency's name, where it is one of a ledger's.
    pub(crate) fn name(&self) -> Option<&str> {
        self.key.as_deref().map(|key| &*key.name)
    }

    /// Whether it is this ledger's.
    pub(super) fn is_of(&self, ledger: &Arc<Inner>) -> bool {
        self.key.as_ref().is_some_and(|key| Arc::ptr_eq(&key.inner, ledger))
    }
}

impl From<ResidencyId> for Need {
    /// For simulators and checkers, which drive the state machine themselves.
    fn from(id: ResidencyId) -> Need {
        Need { id, key: None }
    }
}

impl<T> From<&Residency<T>> for Need {
    fn from(residency: &Residency<T>) -> Need {
        Need { id: residency.key.id, key: Some(residency.key.clone()) }
    }
}

impl fmt::Debug for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "Need({:?})", key.name),
            None => write!(f, "Need({})", self.id.index()),
        }
    }
}
