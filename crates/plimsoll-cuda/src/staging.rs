//! Staging memory: pinned host memory that copies to a device pass through.
//!
//! From pageable memory CUDA copies at a tenth of what the bus can do. So what goes to a device is copied by several threads
//! into memory that is registered with CUDA, and from there by the device, which does not stop computing for it. A
//! [`Staging`] is one piece of such memory for each device, on huge pages, registered once, with a part for each lane.
//!
//! It is a residency: charged in pinned and so in host memory, loaded for the first job that needs it, pinned by those in
//! flight, and evicted when nobody needs it and somebody else the room. A device for which nobody asked for it copies from where
//! the bytes are, slowly. Who asks for it and cannot have it is told so: a job that needs it fails.
//!
//! Scalars that have passed through are erased when the lane synchronises, at the latest at the end of the stage that copied
//! them; points of keys stay until something else comes, or the memory goes.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use plimsoll::ledger::{Load, ReserveError, Residency, VecError};
use plimsoll::pipeline::Builder;
use plimsoll::{Bytes, Class, Ledger, Space};

use crate::driver::{CudaDriver, Lock};
use crate::error::CudaError;
use crate::raw::{self, Registered, Slot, Stream};

/// What staging memory is charged as.
const STAGING: Class = Class::new("staging", Space::PINNED);

/// How many threads fill a lane's slots: so many keep up with the bus.
const COPIERS: usize = 4;
/// While one of a thread's slots is copied from, another is filled.
const SLOTS_EACH: usize = 2;
/// Long enough that starting the copy costs nothing.
const SLOT_BYTES: usize = 4 << 20;
/// What one lane has.
const LANE_BYTES: usize = COPIERS * SLOTS_EACH * SLOT_BYTES;
/// Below this, other threads would come too late to help.
const ALONE_BYTES: usize = 2 * SLOT_BYTES;

/// A device's staging memory, as a ledger knows it.
#[derive(Clone, Debug)]
pub struct Staging {
    driver: CudaDriver,
    lanes: usize,
    residency: Residency<StagingArea>,
}

/// There is no staging memory.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StagingError {
    /// The allocator refuses, or there are too few bytes.
    #[error("no host memory for staging: {0}")]
    Memory(String),
    /// CUDA refuses.
    #[error("staging memory could not be registered with the driver; is there a limit on locked memory (`ulimit -l`)?")]
    Cuda(#[from] CudaError),
}

impl Staging {
    /// For a device with so many lanes.
    ///
    /// # Errors
    ///
    /// If the ledger's budget does not name pinned memory.
    pub fn new(driver: &CudaDriver, lanes: usize, ledger: &Ledger) -> Result<Self, ReserveError> {
        let cost = Duration::from_millis(30);
        let residency = ledger.residency("staging", STAGING, Self::bytes(lanes), cost)?;
        Ok(Self { driver: driver.clone(), lanes, residency })
    }

    /// What it takes of pinned, and so of host memory.
    pub const fn bytes(lanes: usize) -> Bytes {
        Bytes(Registered::allocation_bytes(lanes * LANE_BYTES) as u64)
    }

    /// For jobs that need it.
    pub fn residency(&self) -> &Residency<StagingArea> {
        &self.residency
    }

    /// Allocates and registers the memory; from then on copies to the device pass through it.
    ///
    /// # Errors
    ///
    /// If the allocator or the driver refuses.
    pub fn load(&self, load: &mut Load<StagingArea>) -> Result<StagingArea, StagingError> {
        let bytes = self.lanes * LANE_BYTES;
        let memory = load.vec(Registered::allocation_bytes(bytes));
        let memory = memory.map_err(|error: VecError| StagingError::Memory(error.to_string()))?;
        raw::select(self.driver.device())?;
        let mut slots = Registered::new(self.driver.device(), memory, bytes)?.slots(SLOT_BYTES)?.into_iter();
        let each = || Lock::new(slots.by_ref().take(COPIERS * SLOTS_EACH).collect());
        let area = Arc::new(Area {
            device: self.driver.device(),
            lanes: std::iter::repeat_with(each).take(self.lanes).collect(),
        });
        self.driver.shared.stage_through(&area);
        Ok(StagingArea { area })
    }

    /// Has each job of a pipeline need it that goes by a profile on the device.
    pub fn with<In, Out, E>(&self, builder: Builder<In, Out, E>) -> Builder<In, Out, E>
    where
        In: Send + 'static,
        Out: Send + 'static,
        E: Send + 'static,
    {
        let (this, number) = (self.clone(), self.driver.device());
        builder.needs_by(&self.residency, move |profile| profile.is_on(number), move |load| this.load(load))
    }
}

/// Staging memory that is there. Copies that are under way keep it a little longer than this.
#[derive(Clone, Debug)]
pub struct StagingArea {
    area: Arc<Area>,
}

impl StagingArea {
    /// How many bytes of it are not zero: for the tests of what is erased. Waits for copies.
    pub fn written_bytes(&self) -> usize {
        let lanes = self.area.lanes.iter().map(|slots| slots.lock().unwrap_or_else(PoisonError::into_inner));
        lanes.map(|slots| slots.iter().map(Slot::written_bytes).sum::<usize>()).sum()
    }
}

#[derive(Debug)]
pub(crate) struct Area {
    device: u16,
    /// Each lane's slots.
    lanes: Vec<Lock<Vec<Slot>>>,
}

impl Area {
    /// Copies to the device by way of a lane's slots. When it returns, `from` may be reused.
    pub(crate) fn send(
        &self,
        lane: usize,
        address: u64,
        from: &[u8],
        secret: bool,
        stream: &Stream,
    ) -> Result<(), CudaError> {
        let Some(slots) = self.lanes.get(lane) else { return stream.copy_in(address, from) };
        // Nobody else takes a lane's slots, and what is in them is worth nothing.
        let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
        if from.len() < ALONE_BYTES {
            return pass(&mut slots, (0, 1), address, from, secret, stream);
        }
        let (mine, others) = slots.split_at_mut(SLOTS_EACH);
        std::thread::scope(|scope| {
            let others: Vec<_> = others
                .chunks_mut(SLOTS_EACH)
                .zip(1..)
                .map(|(slots, first)| {
                    scope.spawn(move || {
                        raw::select(self.device)?;
                        pass(slots, (first, COPIERS), address, from, secret, stream)
                    })
                })
                .collect();
            let outcome = pass(mine, (0, COPIERS), address, from, secret, stream);
            let panicked = |panic| std::panic::resume_unwind(panic);
            others.into_iter().map(|other| other.join().unwrap_or_else(panicked)).fold(outcome, Result::and)
        })
    }

    /// Erases what is secret in a lane's slots.
    pub(crate) fn wipe(&self, lane: usize) {
        let Some(slots) = self.lanes.get(lane) else { return };
        let mut slots = slots.lock().unwrap_or_else(PoisonError::into_inner);
        let wipe = |slots: &mut [Slot]| slots.iter_mut().for_each(Slot::wipe);
        if slots.iter().map(Slot::secret_bytes).sum::<usize>() < ALONE_BYTES {
            return wipe(&mut slots);
        }
        std::thread::scope(|scope| {
            let (mine, others) = slots.split_at_mut(SLOTS_EACH);
            for slots in others.chunks_mut(SLOTS_EACH) {
                scope.spawn(move || {
                    // For the events that it waits for; a lost device says no.
                    let _ = raw::select(self.device);
                    wipe(slots);
                });
            }
            wipe(mine);
        });
    }
}

/// Every `step`th piece from the `first` on, through these slots in turn.
fn pass(
    slots: &mut [Slot],
    (first, step): (usize, usize),
    address: u64,
    from: &[u8],
    secret: bool,
    stream: &Stream,
) -> Result<(), CudaError> {
    let count = slots.len();
    for (turn, (index, piece)) in from.chunks(SLOT_BYTES).enumerate().skip(first).step_by(step).enumerate() {
        slots[turn % count].send(piece, secret, address + (index * SLOT_BYTES) as u64, stream)?;
    }
    Ok(())
}
