//! A stage's grant: everything that it needs to run.

use std::sync::Arc as StdArc;

use smallvec::SmallVec;

use super::charged::{Charged, VecError};
use super::error::TakeError;
use super::reservation::Reservation;
use super::residency::{Need, Residency, Value, value_in};
use super::shell::Inner;
use super::state::{Granted, OwnerId, ResidencyId};
use super::used::Meter;
use crate::sync::Arc;
use crate::{Bytes, Class, Resource, Slots};

/// Everything that one stage of a job needs to run: bytes to take reservations from, and its slots.
///
/// Reservations taken from it live on by themselves and carry the bytes to the next stage. Dropping the grant ends the
/// stage: whatever was not taken goes back, and the slots that the stage does not keep.
#[must_use = "dropping a grant ends the stage"]
#[derive(Debug)]
pub struct Grant {
    inner: Arc<Inner>,
    id: OwnerId,
    job: StdArc<str>,
    stage: &'static str,
    left: SmallVec<[(Class, Bytes); 4]>,
    meter: Meter,
    /// The stage is to be run again.
    again: bool,
    choice: usize,
    /// The values of the residencies that the job needs.
    pins: Vec<(ResidencyId, Value)>,
    lane: Option<u16>,
}

impl Grant {
    pub(super) fn new(
        inner: Arc<Inner>,
        id: OwnerId,
        job: StdArc<str>,
        stage: &'static str,
        granted: &Granted,
    ) -> Grant {
        let left: SmallVec<_> = bytes_of(granted).collect();
        let lane = granted.iter().find_map(|&(resource, _)| match resource {
            Resource::Slots(slots) => slots.device().filter(|&device| slots == Slots::lane(device)),
            Resource::Class(_) => None,
        });
        let (meter, pins) = (Meter::new(&left), Vec::new());
        Grant { inner, id, job, stage, left, meter, again: false, choice: 0, pins, lane }
    }

    pub(super) fn with_choice(mut self, choice: usize) -> Grant {
        self.choice = choice;
        self
    }

    pub(super) fn with_pins<'a>(mut self, needs: impl Iterator<Item = &'a Need>) -> Grant {
        let value = |need: &Need| Some((need.id(), self.inner.value(need.id())?));
        self.pins = needs.filter_map(value).collect();
        self
    }

    /// The value of a residency that the job [needs](super::JobSpec::needs); `None` of any other one. It is there for as
    /// long as the job is in flight.
    pub fn pinned<T: Send + Sync + 'static>(&self, residency: &Residency<T>) -> Option<&T> {
        let of = Need::from(residency);
        let is_it = |entry: &&(ResidencyId, Value)| entry.0 == of.id() && residency.is_of(&self.inner);
        self.pins.iter().find(is_it).and_then(|(_, value)| value_in(value))
    }

    /// By which of the job's profiles the stage was granted: 0 is the one that is preferred, 1 the first
    /// [alternative](super::JobSpec::or).
    pub fn choice(&self) -> usize {
        self.choice
    }

    /// The job's name.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// The stage's name.
    pub fn stage(&self) -> &'static str {
        self.stage
    }

    /// How many slots of a kind the job holds in this stage; none that were lost with their device.
    pub fn slots(&self, slots: Slots) -> u64 {
        self.inner.read(|state| state.held_by(self.id, slots.into()))
    }

    /// The device of which the job was granted a lane for this stage; also when that device has been lost since.
    pub fn lane(&self) -> Option<u16> {
        self.lane
    }

    /// How many bytes of a class are left to be taken.
    pub fn left(&self, class: Class) -> Bytes {
        self.left.iter().find(|entry| entry.0 == class).map_or(Bytes::ZERO, |entry| entry.1)
    }

    /// How many bytes of a class came with the grant.
    pub fn given(&self, class: Class) -> Bytes {
        self.meter.of(class).map_or(Bytes::ZERO, |entry| entry.given)
    }

    /// The most bytes of a class that were out of the grant at once, or would have been had a refused
    /// [`take`](Grant::take) been served.
    pub fn used(&self, class: Class) -> Bytes {
        self.meter.of(class).map_or(Bytes::ZERO, |entry| entry.used)
    }

    /// Takes bytes of a class as a reservation.
    ///
    /// # Errors
    ///
    /// If the grant has not so many left: the stage's declared peak is too low.
    #[track_caller]
    pub fn take(&mut self, class: Class, bytes: Bytes) -> Result<Reservation, TakeError> {
        let left = self.left(class);
        let Some(rest) = left.checked_sub(bytes) else {
            self.meter.asked(class, bytes, left);
            return Err(TakeError { job: self.job.clone(), stage: self.stage, class, requested: bytes, left });
        };
        if let Some(entry) = self.left.iter_mut().find(|entry| entry.0 == class) {
            entry.1 = rest;
        }
        self.meter.asked(class, bytes, left);
        self.inner.read(|state| state.attach(self.id, class));
        Ok(Reservation::new(self.inner.clone(), self.id, class, bytes))
    }

    /// Takes everything that is left of a class.
    #[track_caller]
    pub fn take_all(&mut self, class: Class) -> Reservation {
        match self.take(class, self.left(class)) {
            Ok(reservation) => reservation,
            Err(error) => unreachable!("what is left can be taken: {error}"),
        }
    }

    /// A vector of this capacity, paid for from the grant.
    ///
    /// # Errors
    ///
    /// If the grant has not so many bytes left, or the allocator refuses; then the bytes are back in the grant.
    #[track_caller]
    pub fn vec<T>(&mut self, class: Class, capacity: usize) -> Result<Charged<Vec<T>>, VecError> {
        let reservation = self.take(class, Bytes::of::<T>(capacity)).map_err(VecError::Take)?;
        Charged::with_capacity(reservation, capacity).map_err(|error| match error {
            VecError::Alloc { source, reservation } if !mutant!("refused-and-carried-off") => {
                let bytes = reservation.bytes();
                // It is this job's own, so it is taken back.
                let _ = self.put_back(reservation);
                VecError::Refused { source, class, bytes }
            }
            other => other,
        })
    }

    /// Puts a reservation of this job, or what a part of it left, back, so that the stage can take the bytes again.
    ///
    /// # Errors
    ///
    /// The reservation, if another job or nobody's job holds it.
    pub fn put_back(&mut self, reservation: Reservation) -> Result<(), Reservation> {
        let (class, bytes) = reservation.dissolve(&self.inner, self.id)?;
        match self.left.iter_mut().find(|entry| entry.0 == class) {
            Some(entry) => entry.1 += bytes,
            None => self.left.push((class, bytes)),
        }
        Ok(())
    }
}

impl Grant {
    /// Ends the stage without its having been done: the job can [enter](super::Job::enter) it again. It stays in flight and
    /// keeps its claim, so that it can still be sure of what the stage needs; what was not taken goes back meanwhile, and
    /// the slots that it did not bring along.
    ///
    /// Reservations that were taken from the grant stay with whoever holds them, and count as brought along the next time.
    /// To run the stage from its input, keep that, and drop what the stage had made of it.
    pub fn retry(mut self) {
        self.again = true;
    }

    /// Declares that the stage waits for something outside of the ledger (a device, a network), so that a report of who
    /// is in whose way says so. It is over when the value is dropped. Several may overlap: the report names the one that began last
    /// of those that are not over.
    pub fn external_wait(&self, what: &'static str) -> ExternalWait<'_> {
        let since = self.inner.now();
        self.inner.waits_outside(self.id, what, since);
        ExternalWait { grant: self, what, since }
    }
}

/// A declared wait for something outside of the ledger: see [`Grant::external_wait`].
#[must_use = "the wait is over when this is dropped"]
#[derive(Debug)]
pub struct ExternalWait<'a> {
    grant: &'a Grant,
    what: &'static str,
    since: u64,
}

impl Drop for ExternalWait<'_> {
    fn drop(&mut self) {
        self.grant.inner.waited_outside(self.grant.id, self.what, self.since);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        self.inner.event(|state, out| match self.again {
            false => state.end_stage(self.id, &self.left, out),
            true => state.retry_stage(self.id, &self.left, out),
        });
    }
}

/// The bytes of a grant, by class; its slots come and go with the stage.
pub(super) fn bytes_of(granted: &Granted) -> impl Iterator<Item = (Class, Bytes)> + '_ {
    granted.iter().filter_map(|&(resource, amount)| match resource {
        Resource::Class(class) => Some((class, Bytes(amount))),
        Resource::Slots(_) => None,
    })
}
