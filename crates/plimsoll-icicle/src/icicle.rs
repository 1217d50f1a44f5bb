//! A device of ICICLE's as a [`Backend`], with every byte of its memory under a ledger.
//!
//! Each operation is a job of its own on the device's ledger. Its alternatives are plans, the fastest first; the first that fits is
//! granted, and those that fit together run beside each other, on streams of one owner's thread. An operation that does not fit
//! whole is cut; one that does not fit beside others waits.
//!
//! | class (each `device.…`) | what | from when to when |
//! |---|---|---|
//! | `abc` | vectors and scalars of an operation | the operation |
//! | `points` | a key's points, in standard form | resident: until others need the room; passing through: the operation |
//! | `workspace`, `buckets` | what ICICLE allocates for a multiplication, as [predicted](crate::memory) | the operation |
//! | `margin` | what has to be free so that ICICLE keeps to its plan | until it has made up its mind |
//! | `overrun` | what an operation has allocated beyond its prediction | while it runs |
//! | `domain` | the roots of unity that ICICLE keeps for transforms | until the device is closed; grows |
//! | `tables` | the powers of a coset's generator, in standard form | until others need the room |
//! | `check` | what checking the device takes | always |
//! | `leaked` | what failed calls of ICICLE's have left behind | always; less, if it is seen to be free after all |
//! | `foreign` | what others were seen to hold on the device | until it is seen to be gone |
//!
//! What goes wrong:
//!
//! - **More was allocated than predicted.** Booked while the call runs, as far as there is room; counted, reported
//!   ([`Icicle::learned`]), and learned: the next prediction is larger.
//! - **Less is free than a call needs to keep to its plan.** It is not made; a smaller plan is, and what is missing is booked.
//! - **Out of memory**, an exception, an unknown code. What it left half done is drained, what it leaked is booked, and the device
//!   must give the known answers again before the next call; then the operation is made once more, with a corrected prediction.
//!   A device that fails the check, or has leaked more than a quarter of its budget, is given up, and its limits go with it. What it
//!   still holds is erased and freed all the same, unless it does not say any more when it is done.
//!
//! **What counts as leaked.** A device tells what is free, and not who has the rest. So a failed call has leaked what is gone since
//! the device was last seen with nothing under way, and no more than it was predicted to allocate: the rest is a neighbour's, who
//! may have come in that very moment, and may be why it failed. What is seen to be free later was no leak.

mod bases;
mod books;
mod multiply;
mod open;
mod transforms;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use plimsoll::ledger::{EnterError, Job, NeverFits, SubmitError};
use plimsoll::{Bytes, Class, Demand, Grant, JobSpec, Ledger, Profile, Reservation, Space};
use plimsoll_groth16::backend::{
    Backend, BackendError, CurveGroup, Transform, require_same_length, require_vectors_of,
};
use plimsoll_groth16::device::{abc, buckets, points, workspace};
use plimsoll_groth16::domain::Domain;
use plimsoll_groth16::keys::ProvingKey;

pub(crate) use self::bases::KeyCurve;
use self::bases::KnownKey;
use self::books::Books;
pub use self::books::Reconciliation;
pub use self::open::{Device, Options};
use self::transforms::{DomainBook, Table};
use crate::account::Account;
pub use crate::account::Learned;
use crate::error::{CallError, Fault};
use crate::memory::Scratch;
use crate::owner::{DeviceMemory, Owner};
use crate::trust::Scaling;

/// Held for a moment, by nobody who waits for the ledger meanwhile, unless it says so.
#[expect(clippy::disallowed_types, reason = "nothing that a model looks at")]
type Lock<T> = std::sync::Mutex<T>;

fn lock<T>(mutex: &Lock<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Device memory and what pays for it: freed first, returned after.
#[derive(Debug)]
struct Buffer {
    memory: DeviceMemory,
    _paid: Reservation,
}

/// A device of ICICLE's that computes with vectors in host memory, under a ledger. Clones are the same device.
#[derive(Clone, Debug)]
pub struct Icicle {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    // Dropped in this order: what is on the device, then the device.
    keys: Lock<Vec<KnownKey>>,
    tables: Lock<Vec<Table>>,
    domain: Lock<DomainBook>,
    books: Lock<Books>,
    /// Held by who looks at a device that is in doubt.
    looking: Lock<()>,
    account: Account,
    owner: Arc<Owner>,
    ledger: Ledger,
    number: u16,
    limit: u64,
    /// What was free when the device was put under the ledger, and nothing was held.
    free_at_first: Option<u64>,
    /// What was gone when the device was last seen with nothing under way and nothing half done.
    besides: AtomicI64,
    /// What the domain was seen to take when it was made, where the device tells.
    domain_seen: AtomicU64,
    scratch: Scratch,
    scaling: Scaling,
    _check: Reservation,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.let_go_of_domain();
    }
}

impl Icicle {
    /// The device's number in the ledger.
    pub fn number(&self) -> u16 {
        self.inner.number
    }

    /// The ledger that grants its memory.
    pub fn ledger(&self) -> &Ledger {
        &self.inner.ledger
    }

    /// The thread that calls it.
    pub fn owner(&self) -> &Arc<Owner> {
        &self.inner.owner
    }

    /// What was counted and learned.
    pub fn learned(&self) -> Learned {
        self.inner.account.learned()
    }

    /// As [`Backend::ntt`]; `touched` says after an error whether something may have been written. The next two likewise.
    pub(crate) fn transform(
        &self,
        domain: &Domain,
        data: &mut [Scalar],
        transform: Transform,
        touched: &mut bool,
    ) -> Result<(), BackendError> {
        self.inner.transform(domain, data, transform, touched)
    }

    pub(crate) fn quotient(
        &self,
        domain: &Domain,
        vectors: [&mut [Scalar]; 3],
        factor: &Scalar,
        touched: &mut bool,
    ) -> Result<(), BackendError> {
        self.inner.quotient(domain, vectors, factor, touched)
    }

    pub(crate) fn mul_sub_scale_noting(
        &self,
        a: &mut [Scalar],
        b: &[Scalar],
        c: &[Scalar],
        factor: &Scalar,
        touched: &mut bool,
    ) -> Result<(), BackendError> {
        self.inner.mul_sub_scale(a, b, c, factor, touched)
    }

    pub(crate) fn multiply<C: KeyCurve>(&self, bases: &[C], scalars: &[Scalar]) -> Result<C::Curve, BackendError> {
        self.inner.msm(bases, scalars)
    }

    /// Whether these points are on the device.
    pub(crate) fn has_points<C: KeyCurve>(&self, bases: &[C]) -> bool {
        self.inner.known(bases).is_some_and(|known| known.residency.is_resident())
    }

    /// Asks for known answers, after a call on the owner's thread that was out of memory, threw, or said something odd, and books what
    /// it has left behind. Operations do this by themselves before the next of them begins.
    ///
    /// # Errors
    ///
    /// What failed, or that an answer was wrong: the device is given up then.
    pub fn look(&self) -> Result<(), CallError> {
        self.inner.look_by_hand()
    }

    /// Compares what the device says of its memory with the books, and books what others hold. `None` where the device tells
    /// nothing. It waits until nothing is under way.
    pub fn reconcile(&self) -> Option<Reconciliation> {
        self.inner.reconcile()
    }
}

/// A class of this device's memory.
fn class(name: &'static str, number: u16) -> Class {
    Class::new(name, Space::device(number))
}

fn margin(number: u16) -> Class {
    class("device.margin", number)
}

/// What is kept for good, and the limit, leave no room for it.
fn too_little(operation: &'static str, never: &NeverFits) -> BackendError {
    let free = never.limit.saturating_sub(never.retained);
    BackendError::DeviceOutOfMemory { operation, wanted: never.claim, free }
}

/// What an operation was granted, by which of its profiles.
struct Admitted {
    // The stage ends, then the job.
    grant: Grant,
    _job: Job,
}

/// How an operation fails, with the device looked at.
#[derive(Debug)]
enum Failure {
    /// An allocation failed, and nothing was written.
    OutOfMemory(BackendError),
    /// Somebody else's call had failed before it, or somebody was making a larger domain: this one was not begun.
    NotBegun(BackendError),
    /// It is not to be made again.
    Final(BackendError),
}

impl From<BackendError> for Failure {
    fn from(error: BackendError) -> Self {
        Failure::Final(error)
    }
}

impl From<Failure> for BackendError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::OutOfMemory(error) | Failure::NotBegun(error) | Failure::Final(error) => error,
        }
    }
}

/// How often an operation is not begun for what others do, before it gives up.
const DOUBTS_MAX: u32 = 64;

impl Inner {
    /// Waits for what the first of `demands` that fits says, and for the residencies of `spec`, which `load` loads if that falls to
    /// this job.
    fn admit(
        &self,
        operation: &'static str,
        demands: impl Iterator<Item = Demand>,
        needs: impl FnOnce(JobSpec) -> JobSpec,
        mut load: impl FnMut(plimsoll::ledger::AnyLoad) -> Result<(), CallError>,
    ) -> Result<Admitted, Failure> {
        let mut profiles =
            demands.map(|demand| Profile::new().stage(operation, demand.on_lane(self.number), Demand::new()));
        let first = profiles.next().unwrap_or_default();
        let spec = needs(profiles.fold(JobSpec::new(operation, first), JobSpec::or));
        let free = self.limit;
        let mut job = self.ledger.submit(spec).map_err(|error| match error {
            SubmitError::NeverFits(never) => too_little(operation, &never),
            other => self.refused(operation, other.to_string()),
        })?;
        let refused = |error: EnterError| match error {
            // Something was booked for good while it waited.
            EnterError::NeverFits(never) => too_little(operation, &never),
            other => self.refused(operation, other.to_string()),
        };
        while let Some(next) = job.load().wait().map_err(refused)? {
            if let Err(error) = load(next) {
                // Everything is given back before the device is looked at.
                drop(job);
                return Err(self.told(operation, error, free));
            }
        }
        let grant = job.enter(0).wait().map_err(refused)?;
        Ok(Admitted { grant, _job: job })
    }

    fn refused(&self, operation: &'static str, message: String) -> BackendError {
        match self.owner.lost() {
            Some(lost) => BackendError::DeviceLost { operation, message: lost.to_owned() },
            None => BackendError::Device { operation, message },
        }
    }

    /// A failed call in the words of backends; before that the device is looked at, if it is in doubt.
    fn told(&self, operation: &'static str, error: CallError, free: u64) -> Failure {
        match self.settle(&error) {
            Ok(()) if matches!(error.fault, Fault::Doubted | Fault::DomainTooSmall) => {
                Failure::NotBegun(error.for_backend(operation, free))
            }
            Ok(()) if error.is_out_of_memory() => Failure::OutOfMemory(error.for_backend(operation, free)),
            Ok(()) => Failure::Final(error.for_backend(operation, free)),
            Err(lost) => Failure::Final(lost.for_backend(operation, free)),
        }
    }

    /// Device memory that is paid for out of a grant.
    fn buffer(&self, grant: &mut Grant, class: Class, bytes: u64) -> Result<Buffer, CallError> {
        let paid = grant.take(class, Bytes(bytes)).map_err(|_| {
            CallError::refused("allocate", "the job was granted less than it declared; this is a bug of this crate")
        })?;
        self.buffer_for(paid)
    }

    /// Device memory that this reservation pays for.
    fn buffer_for(&self, paid: Reservation) -> Result<Buffer, CallError> {
        Ok(Buffer { memory: self.owner.allocate(paid.bytes().0)?, _paid: paid })
    }

    /// Overwrites what was in a buffer: the witness does not stay in the device's memory, whatever came of the operation.
    fn erased<R>(&self, buffer: &Buffer, outcome: Result<R, CallError>) -> Result<R, CallError> {
        if mutant!("icicle-erases-nothing") {
            return outcome;
        }
        let erased = self.owner.tidy("erase", |scope| scope.erase(buffer.memory.all()));
        let result = outcome?;
        match erased {
            Ok(()) => Ok(result),
            // The operation is made, and making it again would make it twice.
            Err(error) if mutant!("icicle-erasing-is-tried-again") => Err(error),
            Err(error) => Err(error.after_all()),
        }
    }

    /// Makes an operation again: once if its device was out of memory, and whenever it came to a device that was in doubt and has
    /// been looked at since, or that had let go of its domain for a larger one. None of these has written anything.
    fn again<R>(&self, mut operation: impl FnMut() -> Result<R, Failure>) -> Result<R, BackendError> {
        let (mut failures, mut doubts) = (0, 0);
        loop {
            match operation() {
                Ok(result) => return Ok(result),
                Err(Failure::OutOfMemory(_)) if failures == 0 => failures += 1,
                Err(Failure::NotBegun(_)) if doubts < DOUBTS_MAX && !mutant!("icicle-begins-once") => doubts += 1,
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Bytes in the ledger until they are dropped, taken outside of any job.
    fn keep(&self, name: &'static str, bytes: u64) -> Result<Reservation, CallError> {
        let reserved = self.ledger.reserve(class(name, self.number), Bytes(bytes)).retained().wait();
        reserved.map_err(|_| CallError { operation: name, fault: Fault::OutOfMemory { code: 0, wanted: Bytes(bytes) } })
    }
}

impl Backend for Icicle {
    fn name(&self) -> &'static str {
        "icicle"
    }

    fn adopt_key(&self, key: &Arc<ProvingKey>) {
        self.inner.adopt_key(key);
    }

    /// A device that gave every known answer can still compute a wrong sum later: users report proofs that do not verify after an
    /// out-of-memory, without an error.
    fn wants_verification(&self) -> bool {
        true
    }

    fn remarks(&self) -> Option<String> {
        self.inner.account.learned().remarks()
    }

    fn ntt_scratch_bytes(&self, _n: usize, _threads: usize) -> u64 {
        0
    }

    fn quotient_scratch_bytes(&self, _n: usize, _threads: usize) -> u64 {
        0
    }

    fn msm_scratch_bytes(&self, _group: CurveGroup, _n: usize, _threads: usize) -> u64 {
        0
    }

    fn ntt(
        &self,
        domain: &Domain,
        data: &mut [Scalar],
        transform: Transform,
        _scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_same_length("ntt", domain.size(), data.len())?;
        self.inner.transform(domain, data, transform, &mut false)
    }

    fn quotient_on_coset(
        &self,
        domain: &Domain,
        a: &mut [Scalar],
        b: &mut [Scalar],
        c: &mut [Scalar],
        factor: &Scalar,
        _scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_vectors_of(domain, [a, b, c])?;
        self.inner.quotient(domain, [a, b, c], factor, &mut false)
    }

    fn mul_sub_scale(&self, a: &mut [Scalar], b: &[Scalar], c: &[Scalar], factor: &Scalar) -> Result<(), BackendError> {
        require_same_length("mul_sub_scale", a.len(), b.len())?;
        require_same_length("mul_sub_scale", a.len(), c.len())?;
        self.inner.mul_sub_scale(a, b, c, factor, &mut false)
    }

    fn msm_g1(
        &self,
        bases: &[G1Affine],
        scalars: &[Scalar],
        _scratch: &mut Reservation,
    ) -> Result<G1Projective, BackendError> {
        require_same_length("msm", bases.len(), scalars.len())?;
        self.inner.msm(bases, scalars)
    }

    fn msm_g2(
        &self,
        bases: &[G2Affine],
        scalars: &[Scalar],
        _scratch: &mut Reservation,
    ) -> Result<G2Projective, BackendError> {
        require_same_length("msm", bases.len(), scalars.len())?;
        self.inner.msm(bases, scalars)
    }
}
