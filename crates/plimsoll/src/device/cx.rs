//! What a stage on a device sees, and how a lane runs one.
//!
//! The order at the end of a stage is what everything else relies on:
//!
//! 1. the closure has returned, so that no [`DeviceBuffer`] of it is left; those it let go are in the yard;
//! 2. the lane synchronises: nothing that the stage began is under way any more;
//! 3. the yard is emptied: memory is freed, its bytes return;
//! 4. the grant is dropped: the lease, the lane and what was not taken return, in one event of the ledger.
//!
//! So whoever is granted the lease next finds the memory free. *(mutant `lease-before-buffers`)*

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::buffer::{DeviceBuffer, NotAdopted, Piece, Staged, Yard};
use super::driver::{Driver, DriverError, DriverLane, Paid};
use super::error::{DeviceError, StageError};
use super::lanes::{Lanes, Seat};
use crate::contain::contain;
use crate::ledger::{Charged, Grant, Reservation};
use crate::pipeline::Stop;
use crate::sync::Arc;
use crate::{Bytes, Class, Slots, Space};

/// What a stage on a lane sees: the device's memory and copies, and its own grant.
///
/// `'lease` is the one call of the stage's closure; see [`DeviceBuffer`].
pub struct LaneCx<'lease, D: Driver> {
    lanes: &'lease Arc<Lanes>,
    lane: &'lease mut D::Lane,
    grant: &'lease mut Grant,
    yard: Yard<D>,
    stop: Option<&'lease Stop>,
    /// The device was out of memory in this stage, and said so.
    out_of_memory: Option<Short>,
    brand: PhantomData<fn(&'lease ()) -> &'lease ()>,
}

/// What a device had too little of.
#[derive(Clone, Copy)]
struct Short {
    wanted: Bytes,
    free: Bytes,
}

impl<'lease, D: Driver> LaneCx<'lease, D> {
    /// The device's number.
    pub fn device(&self) -> u16 {
        self.lanes.number
    }

    /// Everything that the stage was granted, for what it needs in host memory. Memory of the device is taken with
    /// [`allocate`](LaneCx::allocate).
    pub fn grant(&mut self) -> &mut Grant {
        self.grant
    }

    /// Whether somebody wants the job to end: a long stage looks now and then, and returns any error. Only a pipeline's job
    /// can be told so.
    pub fn is_cancelled(&self) -> bool {
        self.stop.is_some_and(Stop::is_set)
    }

    /// Allocates device memory, paid for from the grant.
    ///
    /// Where the grant or the device has too little left because of buffers that this stage has dropped already, those are
    /// freed first.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Take`] if the stage's declared peak is too low, and [`DriverError::OutOfMemory`] if the device has
    /// less than the ledger was told. What was taken from the grant is back in it.
    #[track_caller]
    pub fn allocate(&mut self, class: Class, bytes: Bytes) -> Result<DeviceBuffer<'lease, D>, DeviceError> {
        if class.space() != Space::device(self.device()) {
            return Err(DeviceError::OtherSpace { class, device: self.device() });
        }
        if self.grant.left(class) < bytes {
            self.reap()?;
        }
        let reservation = self.grant.take(class, bytes)?;
        self.allocate_for(reservation).map_err(|(error, reservation)| {
            // It is this job's own, so it is taken back.
            let _ = self.grant.put_back(reservation);
            error
        })
    }

    /// Allocates device memory for a reservation that is there already: that of a residency that is being loaded, say.
    ///
    /// # Errors
    ///
    /// As [`allocate`](LaneCx::allocate); the reservation comes back.
    pub fn allocate_for(
        &mut self,
        reservation: Reservation,
    ) -> Result<DeviceBuffer<'lease, D>, (DeviceError, Reservation)> {
        let (class, bytes) = (reservation.class(), reservation.bytes());
        if class.space() != Space::device(self.device()) {
            return Err((DeviceError::OtherSpace { class, device: self.device() }, reservation));
        }
        let memory = match self.call(|lane| lane.allocate(Paid::new(class, bytes))) {
            Err(DeviceError::Driver { source: DriverError::OutOfMemory { .. }, .. }) if self.reap() != Ok(false) => {
                self.call(|lane| lane.allocate(Paid::new(class, bytes)))
            }
            other => other,
        };
        match memory {
            Ok(memory) => {
                self.out_of_memory = None;
                Ok(DeviceBuffer::new(Charged::new(memory, reservation), self.yard.clone(), self.lanes.clone()))
            }
            Err(error) => Err((error, reservation)),
        }
    }

    /// Copies to the device. When it returns, `from` may be reused; the device may still be at it.
    ///
    /// # Errors
    ///
    /// If it does not fit, or the device says no.
    pub fn copy_in(&mut self, from: &[u8], to: &mut DeviceBuffer<'lease, D>, at: u64) -> Result<(), DeviceError> {
        self.call(|lane| lane.copy_in(from, to.memory(), at))
    }

    /// Copies from the device, after what was begun before.
    ///
    /// # Errors
    ///
    /// If there is not so much, or the device says no.
    pub fn copy_out(&mut self, from: &DeviceBuffer<'lease, D>, at: u64, to: &mut [u8]) -> Result<(), DeviceError> {
        self.call(|lane| lane.copy_out(from.memory(), at, to))
    }

    /// Allocates device memory for a slice and copies it in.
    ///
    /// # Errors
    ///
    /// As [`allocate`](LaneCx::allocate) and [`copy_in`](LaneCx::copy_in).
    #[track_caller]
    pub fn upload(&mut self, class: Class, from: &[u8]) -> Result<DeviceBuffer<'lease, D>, DeviceError> {
        let mut buffer = self.allocate(class, Bytes(from.len() as u64))?;
        self.copy_in(from, &mut buffer, 0)?;
        Ok(buffer)
    }

    /// Hands a buffer on to the job's next stage, which [adopts](LaneCx::adopt) it. The stage's profile declares it in
    /// `keep`.
    pub fn keep(&self, buffer: DeviceBuffer<'lease, D>) -> Staged<D> {
        buffer.into_staged()
    }

    /// Takes on what an earlier stage kept.
    ///
    /// # Errors
    ///
    /// With the memory: if its device was lost ([`DeviceError::Lost`], also where that is not this one: then the job begins
    /// again), it is another device's, or another stage is still at it.
    pub fn adopt(&self, staged: Staged<D>) -> Result<DeviceBuffer<'lease, D>, NotAdopted<D>> {
        staged.into_buffer(self.yard.clone(), self.lanes)
    }

    /// Uses what an earlier stage kept and leaves it where it is: an input that is kept for another try, or a resident key
    /// that other stages use at the same time. Should it be dropped meanwhile, it is freed after this stage.
    ///
    /// # Errors
    ///
    /// If its device was lost, or is another one.
    pub fn lend<'a>(&self, staged: &'a Staged<D>) -> Result<&'a D::Memory, DeviceError> {
        staged.lend(&self.yard, self.lanes)
    }

    /// Waits until everything that was begun on this lane is done.
    ///
    /// # Errors
    ///
    /// What went wrong in any of it.
    pub fn synchronise(&mut self) -> Result<(), DeviceError> {
        let _waits = self.grant.external_wait("its device");
        call(self.lanes, self.lane, &mut self.out_of_memory, DriverLane::synchronise)
    }

    /// Calls the driver: for what a backend can do beyond this interface. Every call goes through here, so that a device
    /// that breaks in any of them is given up at once.
    ///
    /// # Errors
    ///
    /// As the call; [`DeviceError::Lost`] without calling, once the device has been given up.
    pub fn call<R>(&mut self, f: impl FnOnce(&mut D::Lane) -> Result<R, DriverError>) -> Result<R, DeviceError> {
        call(self.lanes, self.lane, &mut self.out_of_memory, f)
    }

    /// Frees what the stage has dropped so far, and puts its bytes back into the grant. Whether there was anything.
    fn reap(&mut self) -> Result<bool, DeviceError> {
        let dropped = self.yard.empty();
        if dropped.is_empty() {
            return Ok(false);
        }
        let settled = self.settle();
        for piece in dropped {
            let Some(held) = piece.into_held(&self.yard) else { continue };
            let (memory, reservation) = held.into_parts();
            drop(memory);
            // Another job's (a shared input, say) cannot be taken again here; it returns to the ledger.
            let _ = self.grant.put_back(reservation);
        }
        settled.map(|()| true)
    }

    /// Synchronises for certain: afterwards either nothing of this lane is under way any more, or the device was given up.
    ///
    /// # Errors
    ///
    /// The first thing that went wrong.
    fn settle(&mut self) -> Result<(), DeviceError> {
        if mutant!("free-before-synchronise") {
            return Ok(());
        }
        let Self { lanes, lane, out_of_memory, .. } = self;
        settle(lanes, *lane, out_of_memory)
    }
}

fn settle<L: DriverLane>(lanes: &Lanes, lane: &mut L, out_of_memory: &mut Option<Short>) -> Result<(), DeviceError> {
    let mut synchronise = || call(lanes, lane, out_of_memory, L::synchronise);
    let synchronised = synchronise();
    if matches!(synchronised, Err(DeviceError::Driver { .. }))
        && let Err(DeviceError::Driver { source, .. }) = synchronise()
    {
        // Memory that may be in use cannot be freed, so it goes with the device.
        let message = format!("it does not say any more when it is done: {source}");
        lanes.give_up(DriverError::Broken { message });
    }
    synchronised
}

/// Allocates memory that is paid for, and has it filled by calls of the driver. In any case nothing of that is under way any
/// more when this returns.
pub(super) fn fill<D: Driver>(
    seat: &mut Seat<D>,
    paid: Reservation,
    calls: impl FnOnce(&mut D::Lane, &D::Memory) -> Result<(), DriverError>,
) -> Result<Staged<D>, DeviceError> {
    let Seat { lanes, lane } = seat;
    let (class, bytes) = (paid.class(), paid.bytes());
    if class.space() != Space::device(lanes.number) {
        return Err(DeviceError::OtherSpace { class, device: lanes.number });
    }
    let short = &mut None;
    let memory = call(lanes, lane, short, |lane| lane.allocate(Paid::new(class, bytes)))?;
    let yard = Yard::open();
    let buffer = DeviceBuffer::new(Charged::new(memory, paid), yard.clone(), lanes.clone());
    let filled = contain(|| call(lanes, lane, short, |lane| calls(lane, buffer.memory())));
    let settled = contain(|| settle(lanes, lane, short)).unwrap_or_else(|panic| {
        Err(DeviceError::Lost(lanes.give_up(DriverError::Broken { message: panic.message() })))
    });
    let staged = buffer.into_staged();
    drop(yard.close());
    match filled {
        Ok(filled) => filled.and(settled).map(|()| staged),
        Err(panic) => {
            drop(staged);
            panic.resume()
        }
    }
}

/// What a stage that holds the lease sees: all that a [lane](LaneCx) sees, and the right to compute. A backend's kernels
/// take this type, so that nothing computes without the lease.
pub struct LeaseCx<'lease, D: Driver> {
    lane: LaneCx<'lease, D>,
}

impl<'lease, D: Driver> Deref for LeaseCx<'lease, D> {
    type Target = LaneCx<'lease, D>;

    fn deref(&self) -> &Self::Target {
        &self.lane
    }
}

impl<D: Driver> DerefMut for LeaseCx<'_, D> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.lane
    }
}

impl<D: Driver> fmt::Debug for LaneCx<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneCx").field("device", &self.device()).field("grant", &self.grant).finish_non_exhaustive()
    }
}

impl<D: Driver> fmt::Debug for LeaseCx<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseCx").field("lane", &self.lane).finish()
    }
}

fn call<L, R>(
    lanes: &Lanes,
    lane: &mut L,
    out_of_memory: &mut Option<Short>,
    f: impl FnOnce(&mut L) -> Result<R, DriverError>,
) -> Result<R, DeviceError> {
    if let Some(loss) = lanes.loss() {
        return Err(DeviceError::Lost(loss));
    }
    f(lane).map_err(|source| match source {
        fatal if fatal.is_fatal() => DeviceError::Lost(lanes.give_up(fatal)),
        source => {
            if let DriverError::OutOfMemory { wanted, free } = source {
                *out_of_memory = Some(Short { wanted, free });
            }
            DeviceError::Driver { device: lanes.number, source }
        }
    })
}

/// How a stage ended. What is left on the device is freed when this is dropped: before the grant.
pub(super) struct Ended<D: Driver, R, E> {
    pub(super) result: Result<R, StageError<E>>,
    pub(super) left: Vec<Piece<D>>,
}

/// Runs a stage on the lane whose seat this is. The caller drops what is left, and then the grant.
pub(super) fn on_lane<D: Driver, R, E>(
    seat: &mut Seat<D>,
    grant: &mut Grant,
    stop: Option<&Stop>,
    f: impl for<'lease> FnOnce(&mut LaneCx<'lease, D>) -> Result<R, E>,
) -> Ended<D, R, E> {
    run(seat, grant, stop, &[("lane", Slots::lane)], |cx| f(&mut cx.lane))
}

/// The same for a stage that computes.
pub(super) fn on_lease<D: Driver, R, E>(
    seat: &mut Seat<D>,
    grant: &mut Grant,
    stop: Option<&Stop>,
    f: impl for<'lease> FnOnce(&mut LeaseCx<'lease, D>) -> Result<R, E>,
) -> Ended<D, R, E> {
    run(seat, grant, stop, &[("lane", Slots::lane), ("lease", Slots::lease)], f)
}

type Needed = (&'static str, fn(u16) -> Slots);

fn run<D: Driver, R, E>(
    seat: &mut Seat<D>,
    grant: &mut Grant,
    stop: Option<&Stop>,
    needed: &[Needed],
    f: impl for<'lease> FnOnce(&mut LeaseCx<'lease, D>) -> Result<R, E>,
) -> Ended<D, R, E> {
    let Seat { lanes, lane } = seat;
    let device = lanes.number;
    let refuse = |error| Ended { result: Err(StageError::Device(error)), left: Vec::new() };
    for &(what, slots) in needed {
        if grant.slots(slots(device)) == 0 && !lanes.is_lost() {
            let (job, stage) = (grant.job().to_owned(), grant.stage());
            return refuse(DeviceError::NotGranted { job, stage, what, device });
        }
    }
    // After that: a lost device's slots are nobody's, and its loss is known before they are.
    if let Some(loss) = lanes.loss() {
        return refuse(DeviceError::Lost(loss));
    }
    lanes.begin();
    let yard = Yard::open();
    // Who was granted no lease gets to see the lane alone.
    let lane = LaneCx { lanes, lane, grant, yard: yard.clone(), stop, out_of_memory: None, brand: PhantomData };
    let mut cx = LeaseCx { lane };
    let outcome = contain(|| f(&mut cx));
    let settled = match contain(|| cx.settle()) {
        Ok(settled) => settled,
        Err(panic) => Err(DeviceError::Lost(lanes.give_up(DriverError::Broken { message: panic.message() }))),
    };
    let result = match (outcome, settled, cx.lane.out_of_memory) {
        (Ok(Ok(result)), Ok(()), _) => Ok(result),
        // Whatever the stage made of it, this is why.
        (_, Err(error @ DeviceError::Lost(_)), _) => Err(StageError::Device(error)),
        (Err(panic), _, _) => Err(StageError::Panicked { message: panic.message() }),
        (Ok(Ok(_)), Err(error), _) => Err(StageError::Device(error)),
        (Ok(Err(source)), _, Some(Short { wanted, free })) => {
            Err(StageError::OutOfMemory { device, wanted, free, source })
        }
        (Ok(Err(source)), _, None) => Err(StageError::Stage(source)),
    };
    Ended { result, left: yard.close() }
}
