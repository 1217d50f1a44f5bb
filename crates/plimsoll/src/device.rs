//! Devices: the lanes that feed them, the lease to compute on them, and memory that cannot outlive it.
//!
//! A [`Device`] is a few threads, its *lanes*, around a [`Driver`]. A job's work on it is two stages of its profile (or three,
//! with results to fetch):
//!
//! | stage | its peak names | on the device |
//! |---|---|---|
//! | stage in | [a lane](Demand::on_lane), the bytes of the inputs | [`Device::stage`]: inputs are copied in and [kept](LaneCx::keep) |
//! | compute | [a lane and the lease](Demand::on_lease), inputs, workspace, results | [`Device::compute`]: they are [adopted](LaneCx::adopt) |
//!
//! Lanes and lease are slots in the ledger's vector, so it is the ledger that decides who is next: whole grants, the
//! job's priority, and safety, as for bytes. While one lane computes under the lease, another stages in.
//!
//! - **Device memory cannot outlive the lease.** A [`DeviceBuffer`] cannot leave the closure of the stage: that is a
//!   compile error. What is let go is freed after the device is synchronised, and then the lease returns, so the next to
//!   compute finds the memory free.
//! - **What is staged in belongs to the job** ([`Staged`]) and is charged to it, wherever it is dropped.
//! - **A device that breaks is given up whole.** Its limits and what is held of them go together; work that waited is
//!   refused with a typed error, and may go elsewhere.
//!
//! `device/README.md` tells the protocol and why it holds.
//!
//! ```
//! use plimsoll::device::simulate::{CardSpec, Simulated};
//! use plimsoll::device::{Device, DeviceConfig, DeviceError};
//! use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Space};
//!
//! const INPUT: Class = Class::new("device.input", Space::device(0));
//! const SCRATCH: Class = Class::new("device.scratch", Space::device(0));
//!
//! let ledger = Ledger::new(Budget::new().device(0, Bytes::MIB, 2));
//! let card = Simulated::new(CardSpec { memory: Bytes::MIB, ..CardSpec::default() });
//! let device = Device::start(0, card, &ledger, DeviceConfig::default())?;
//!
//! let input = Demand::new().bytes(INPUT, Bytes(4));
//! let profile = Profile::new()
//!     .stage("in", input.clone().on_lane(0), input.clone())
//!     .stage("compute", input.on_lease(0).bytes(SCRATCH, Bytes(4)), Demand::new());
//! let mut job = ledger.submit(JobSpec::new("job", profile))?;
//!
//! let staged = device.stage(job.enter(0).wait()?, |cx| {
//!     let buffer = cx.upload(INPUT, &[1, 2, 3, 4])?;
//!     Ok::<_, DeviceError>(cx.keep(buffer))
//! });
//! let staged = staged.wait()?;
//! let sum = device.compute(job.enter(1).wait()?, |cx| {
//!     let input = cx.adopt(staged)?;
//!     let scratch = cx.allocate(SCRATCH, Bytes(4))?;
//!     let mut host = [0; 4];
//!     cx.copy_out(&input, 0, &mut host)?;
//!     drop(scratch);
//!     Ok::<_, DeviceError>(host.iter().sum::<u8>())
//! });
//! assert_eq!(sum.wait()?, 10);
//! drop(job);
//! assert!(ledger.snapshot().is_empty());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

mod buffer;
mod cx;
mod driver;
mod error;
mod lanes;
pub mod preference;
mod running;
mod set;
pub mod simulate;

pub use buffer::{DeviceBuffer, NotAdopted, Staged};
pub use cx::{LaneCx, LeaseCx};
pub use driver::{Driver, DriverError, DriverLane, Paid};
pub use error::{DeviceError, Loss, StageError, StartError};
pub use running::Running;
pub use set::DeviceSet;

use lanes::{Lanes, Seat};

use crate::contain::contain;
use crate::ledger::{Grant, Ledger, Reservation};
use crate::sync::{Arc, thread};
use crate::{Budget, Bytes, Demand, Slots, Space};

/// How a [`Device`] is run.
#[derive(Clone, Debug)]
pub struct DeviceConfig {
    /// How many lanes: as many as the budget has slots [`Slots::lane`] for it. Two by default, so that one stages in while
    /// the other computes.
    pub lanes: usize,
    /// What the threads are called, before the device's number and the lane's: `device0-lane1` by default.
    pub name: String,
}

impl Default for DeviceConfig {
    fn default() -> Self {
        Self { lanes: 2, name: "device".to_owned() }
    }
}

/// A device and the threads that feed it. Cloning is cheap; the last handle dropped lets the lanes finish what is queued,
/// and waits for them, unless it is one of them that drops it: then they end by themselves.
pub struct Device<D: Driver> {
    crew: Arc<Crew>,
    driver: Arc<D>,
}

impl<D: Driver> Device<D> {
    /// Starts the lanes; each opens the driver on its own thread. `ledger` is the one whose budget names the device
    /// ([`Budget::device`]).
    ///
    /// # Errors
    ///
    /// If a thread is refused or cannot open the device; those already started have ended.
    pub fn start(number: u16, driver: D, ledger: &Ledger, config: DeviceConfig) -> Result<Self, StartError> {
        let DeviceConfig { lanes: count, name } = config;
        let driver = Arc::new(driver);
        let lanes = Arc::new(Lanes::new(number, ledger.clone()));
        let threads = lanes::start(&lanes, &driver, count, &name)?;
        Ok(Self { crew: Arc::new(Crew { lanes, threads }), driver })
    }

    /// The device's number.
    pub fn number(&self) -> u16 {
        self.crew.lanes.number
    }

    /// The driver, for what it tells of itself.
    pub fn driver(&self) -> &D {
        &self.driver
    }

    /// Whether it was given up: to choose among devices, without a look at why.
    fn is_lost(&self) -> bool {
        self.crew.lanes.is_lost()
    }

    /// Why the device was given up, if it was.
    pub fn loss(&self) -> Option<Loss> {
        self.crew.lanes.loss()
    }

    /// Gives the device up, as if it had broken: for a watchdog that knows better than the driver.
    pub fn give_up(&self, message: &str) -> Loss {
        self.crew.lanes.give_up(DriverError::Lost { message: message.to_owned() })
    }

    /// Runs a stage on a lane: to copy in or out. The grant names [a lane](Demand::on_lane) of this device; it ends with the
    /// stage.
    pub fn stage<R, E, F>(&self, grant: Grant, f: F) -> Running<R, E>
    where
        F: for<'lease> FnOnce(&mut LaneCx<'lease, D>) -> Result<R, E> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        self.run(grant, |seat, grant| cx::on_lane(seat, grant, None, f))
    }

    /// Runs a stage that computes. The grant names [a lane and the lease](Demand::on_lease) of this device; all of it, and
    /// whatever was allocated in the stage and not kept, returns with the end of the stage: memory first, the lease last.
    pub fn compute<R, E, F>(&self, grant: Grant, f: F) -> Running<R, E>
    where
        F: for<'lease> FnOnce(&mut LeaseCx<'lease, D>) -> Result<R, E> + Send + 'static,
        R: Send + 'static,
        E: Send + 'static,
    {
        self.run(grant, |seat, grant| cx::on_lease(seat, grant, None, f))
    }

    /// Allocates memory for a reservation that is there already, that of a residency that is being loaded, and has it filled by
    /// calls of the driver, on the thread of a lane. A load must wait for nothing that is granted, so this takes no lane of the
    /// ledger's; but it occupies the thread, and work that was granted a lane meanwhile may have to wait for its end.
    ///
    /// # Errors
    ///
    /// [`StageError::Stage`] with what the device said; the reservation has returned by then, the memory before it.
    pub fn fill<F>(&self, paid: Reservation, calls: F) -> Running<Staged<D>, DeviceError>
    where
        F: FnOnce(&mut D::Lane, &D::Memory) -> Result<(), DriverError> + Send + 'static,
    {
        let (promise, running) = running::promise(&self.crew.lanes);
        self.crew.lanes.submit(Box::new(move || {
            let fill = || {
                lanes::seated::<D, _>(|seat| cx::fill(seat, paid, calls)).expect("this is a lane, between two stages")
            };
            promise.keep(match contain(fill) {
                Ok(filled) => filled.map_err(StageError::Stage),
                Err(panic) => Err(StageError::Panicked { message: panic.message() }),
            });
        }));
        running
    }

    /// Whether the calling thread is one of its lanes, between two stages.
    fn is_here(&self) -> bool {
        lanes::is_lane_of::<D>(&self.crew.lanes)
    }

    fn run<R, E>(
        &self,
        mut grant: Grant,
        f: impl FnOnce(&mut Seat<D>, &mut Grant) -> cx::Ended<D, R, E> + Send + 'static,
    ) -> Running<R, E>
    where
        R: Send + 'static,
        E: Send + 'static,
    {
        let (promise, running) = running::promise(&self.crew.lanes);
        self.crew.lanes.submit(Box::new(move || {
            let ended = lanes::seated::<D, _>(|seat| f(seat, &mut grant)).expect("this is a lane, between two stages");
            let cx::Ended { result, left } = ended;
            if mutant!("lease-before-buffers") {
                drop(grant);
                drop(left);
            } else {
                drop(left);
                drop(grant);
            }
            promise.keep(result);
        }));
        running
    }
}

impl<D: Driver> Clone for Device<D> {
    fn clone(&self) -> Self {
        Self { crew: self.crew.clone(), driver: self.driver.clone() }
    }
}

impl<D: Driver> fmt::Debug for Device<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device")
            .field("number", &self.number())
            .field("is_lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// The threads, joined by the last handle.
#[derive(Debug)]
struct Crew {
    lanes: Arc<Lanes>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.lanes.close();
        // A stage may have held the last handle. Its lane cannot wait for itself, and another one may be waiting for what this
        // one does: they end by themselves.
        let me = thread::current().id();
        if self.threads.iter().any(|thread| thread.thread().id() == me) {
            return;
        }
        for thread in self.threads.drain(..) {
            // A lane contains the panics of its stages, so this error has no content.
            let _ = thread.join();
        }
    }
}

impl Budget {
    /// Sets the limits of a device: its memory, and as many lanes as [`DeviceConfig::lanes`]; its lease is one.
    ///
    /// Of the memory, leave out what the device takes for itself (a CUDA context is about half a GiB).
    #[must_use]
    pub fn device(self, number: u16, memory: Bytes, lanes: u64) -> Budget {
        self.space(Space::device(number), memory).slots(Slots::lane(number), lanes).slots(Slots::lease(number), 1)
    }
}

impl Demand {
    /// Adds a lane of a device: for a stage that copies to it or from it.
    #[must_use]
    pub fn on_lane(self, device: u16) -> Demand {
        self.slots(Slots::lane(device), 1)
    }

    /// Adds a lane of a device and its lease: for a stage that computes on it.
    #[must_use]
    pub fn on_lease(self, device: u16) -> Demand {
        self.on_lane(device).slots(Slots::lease(device), 1)
    }
}
