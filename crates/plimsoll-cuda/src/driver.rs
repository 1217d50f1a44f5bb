//! The driver: a device, its arena, and the lanes that work on it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use blstrs::{G1Affine, G2Affine};
use plimsoll::device::{Driver, DriverError, DriverLane, Paid};
use plimsoll_groth16::backend::Transform;
use plimsoll_groth16::domain::Domain;

use crate::arena::{Arena, End, NoRoom};
use crate::clock::Clock;
use crate::error::{CudaError, Meaning, OpenError, version_text};
use crate::ffi::NttTables;
use crate::kernels::Scalars;
use crate::msm::{Buffers, DevicePoint, MsmMemory, PointSource};
use crate::plan::msm::{Choice, MsmPlan, Points, point_bytes};
use crate::plan::ntt::{Tables, workspace_bytes};
use crate::plan::proof::BUFFERS_MAX;
use crate::plan::{SCALAR_BYTES, Shape, aligned};
use crate::raw::{self, Allocation, Event, EventKind, Properties, Stream};
use crate::staging::Area;

#[expect(
    clippy::disallowed_types,
    reason = "the lock is held for a look at a map; nothing of the scheduler waits for it"
)]
pub(crate) type Lock<T> = std::sync::Mutex<T>;

/// How many devices there are.
///
/// # Errors
///
/// [`OpenError::NoDevice`] without a driver or a device.
pub fn device_count() -> Result<u16, OpenError> {
    match raw::device_count() {
        Ok(0) => Err(OpenError::NoDevice { detail: "the driver counts none".to_owned() }),
        Ok(count) => Ok(count),
        Err(error) => Err(opening(error, None)),
    }
}

/// What a device is. Makes it the calling thread's.
///
/// # Errors
///
/// If there is none with that number.
pub fn properties(device: u16) -> Result<Properties, OpenError> {
    let count = device_count()?;
    if device >= count {
        return Err(OpenError::NoSuchDevice { device, count });
    }
    raw::properties(device).map_err(|error| opening(error, None))
}

/// Whether this was built with machine code for a device. Makes it the calling thread's.
///
/// # Errors
///
/// [`OpenError::WrongArchitecture`], or as [`properties`].
pub fn has_kernels_for(device: u16) -> Result<(), OpenError> {
    let properties = properties(device)?;
    raw::has_kernels().map_err(|error| opening(error, Some(&properties)))
}

fn opening(error: CudaError, device: Option<&Properties>) -> OpenError {
    match (error.meaning(), device) {
        (Meaning::NoDevice, _) => OpenError::NoDevice { detail: error.to_string() },
        (Meaning::OldDriver, _) => old_driver(raw::versions()),
        (Meaning::WrongArchitecture, Some(device)) => {
            OpenError::WrongArchitecture { name: device.name.clone(), major: device.major, minor: device.minor }
        }
        _ => OpenError::Cuda(error),
    }
}

/// CUDA says that the driver is too old also where there is none.
fn old_driver(versions: Result<(i32, i32), CudaError>) -> OpenError {
    match versions {
        Ok((0, _)) => OpenError::NoDevice { detail: "no driver is installed".to_owned() },
        Ok((driver, runtime)) => OpenError::OldDriver { driver: version_text(driver), runtime: version_text(runtime) },
        Err(error) => OpenError::Cuda(error),
    }
}

/// A CUDA device with all the memory that it will be used with. Clones are the same device.
///
/// Opening it takes the arena and fills the transforms' tables at its top; after that the driver's free memory does not
/// move. [`CudaDriver::usable_bytes`] is what the ledger's budget names.
#[derive(Clone, Debug)]
pub struct CudaDriver {
    pub(crate) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(crate) struct Shared {
    device: u16,
    properties: Properties,
    arena: Lock<Arena>,
    tables: Range<u64>,
    memory: Allocation,
    /// For erasing what is given back.
    eraser: Stream,
    /// Nanoseconds for which proofs have kept the device computing.
    busy: AtomicU64,
    /// How many they were.
    proofs: AtomicU64,
    /// The staging memory, while somebody keeps it.
    staging: Lock<Weak<Area>>,
}

impl Shared {
    pub(crate) fn base(&self) -> u64 {
        self.memory.address()
    }

    fn lock(&self) -> impl std::ops::DerefMut<Target = Arena> + '_ {
        // Nothing panics while it is held except a double release, after which nobody should go on.
        self.arena.lock().unwrap_or_else(|_| panic!("the arena of device {} is in disorder", self.device))
    }

    /// Where copies pass through from now on.
    pub(crate) fn stage_through(&self, area: &Arc<Area>) {
        *self.staging.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(area);
    }

    fn staging(&self) -> Option<Arc<Area>> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }

    /// Erases a part of the arena that nothing uses any more, and waits for it. A context that is broken says no: then nobody
    /// reads there again.
    fn erase(&self, at: u64, bytes: u64) {
        let _ = raw::with_selected(self.device, || {
            self.eraser.fill(self.base() + at, 0, bytes)?;
            self.eraser.synchronise()
        });
    }

    pub(crate) fn tables(&self) -> NttTables {
        let plan = Tables::plan();
        let at = |offset: u64| (self.base() + self.tables.start + offset) as *mut _;
        NttTables {
            forward_inner: at(plan.forward_inner),
            forward_partial: at(plan.forward_partial),
            inverse_inner: at(plan.inverse_inner),
            inverse_stage: at(plan.inverse_stage),
            inverse_partial: at(plan.inverse_partial),
        }
    }
}

impl CudaDriver {
    /// Opens a device with an arena of so many bytes, the tables of [`Tables`] included.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(device: u16, arena_bytes: u64) -> Result<Self, OpenError> {
        has_kernels_for(device)?;
        let properties = properties(device)?;
        let memory = Allocation::new(device, arena_bytes).map_err(|error| match error.meaning() {
            Meaning::OutOfMemory => OpenError::OutOfMemory {
                wanted: plimsoll::Bytes(arena_bytes),
                free: plimsoll::Bytes(properties.free_bytes),
            },
            _ => opening(error, Some(&properties)),
        })?;
        let mut arena = Arena::new(arena_bytes);
        let bytes = Tables::plan().bytes;
        let too_small =
            |_: NoRoom| OpenError::OutOfMemory { wanted: plimsoll::Bytes(bytes), free: plimsoll::Bytes(arena_bytes) };
        let tables = arena.allocate(bytes, End::Top).map_err(too_small)?;
        let shared = Shared {
            device,
            properties,
            arena: Lock::new(arena),
            tables: tables..tables + bytes,
            memory,
            eraser: Stream::new()?,
            busy: AtomicU64::new(0),
            proofs: AtomicU64::new(0),
            staging: Lock::default(),
        };
        let stream = Stream::new()?;
        let raw_tables = shared.tables();
        crate::kernels::fill_tables(&raw_tables, &stream)?;
        stream.synchronise()?;
        let driver = Self { shared: Arc::new(shared) };
        driver.warm_up()?;
        Ok(driver)
    }

    /// Runs every kernel once: CUDA loads them, and takes memory for their stacks, when they are first launched.
    fn warm_up(&self) -> Result<(), OpenError> {
        let run = || -> Result<(), DriverError> {
            let mut lane = self.open_lane(0)?;
            lane.warm_up()?;
            lane.synchronise()
        };
        run().map_err(|error| match error {
            DriverError::OutOfMemory { wanted, free } => OpenError::OutOfMemory { wanted, free },
            error => OpenError::Cuda(CudaError {
                code: 0,
                name: "warm-up".to_owned(),
                text: error.to_string(),
                operation: "running each kernel once",
            }),
        })
    }

    fn open_lane(&self, lane: usize) -> Result<CudaLane, DriverError> {
        CudaLane::new(self.shared.clone(), lane).map_err(|error| error.for_driver(0, 0))
    }

    /// The device's number, as CUDA counts.
    pub fn device(&self) -> u16 {
        self.shared.device
    }

    /// What it is.
    pub fn properties(&self) -> &Properties {
        &self.shared.properties
    }

    /// What plans need to know of it.
    pub fn shape(&self) -> Shape {
        Shape { multiprocessors: self.shared.properties.multiprocessors }
    }

    /// The bytes that a ledger may give out: the arena without the tables.
    pub fn usable_bytes(&self) -> u64 {
        let arena = self.shared.lock();
        arena.capacity() - aligned(self.shared.tables.end - self.shared.tables.start)
    }

    /// The arena's bytes that are in use, without the tables.
    pub fn used_bytes(&self) -> u64 {
        let free = self.shared.lock().free_bytes();
        self.usable_bytes() - free
    }

    /// The most bytes of the arena that were in use at once, without the tables.
    pub fn used_peak_bytes(&self) -> u64 {
        self.shared.lock().used_peak_bytes() - aligned(self.shared.tables.end - self.shared.tables.start)
    }

    /// For how long proofs have kept the device computing so far, by its own clock: from a proof's first kernel to its last,
    /// less the time in which they wait for points that pass through. Nothing that the host does is in it.
    pub fn busy(&self) -> Duration {
        // Relaxed: a count that carries nothing with it.
        Duration::from_nanos(self.shared.busy.load(Ordering::Relaxed))
    }

    /// How many proofs it has computed so far.
    pub fn proofs(&self) -> u64 {
        // Relaxed: as above.
        self.shared.proofs.load(Ordering::Relaxed)
    }

    /// The device's free and total bytes as the driver says.
    ///
    /// # Errors
    ///
    /// If the device is lost.
    pub fn driver_memory(&self) -> Result<(u64, u64), CudaError> {
        raw::select(self.shared.device)?;
        raw::memory()
    }
}

impl Driver for CudaDriver {
    type Lane = CudaLane;
    type Memory = Piece;

    fn open(&self, lane: usize) -> Result<CudaLane, DriverError> {
        self.open_lane(lane)
    }
}

/// A piece of a device's arena.
///
/// Unless it was allocated for points, what a witness was or what was computed from it may be there: it is erased before the
/// bytes are anybody else's, whatever became of the job. Whoever drops it has waited for what uses it.
#[derive(Debug)]
pub struct Piece {
    shared: Arc<Shared>,
    at: u64,
    bytes: u64,
    secret: bool,
}

impl Piece {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The address of `offset`, from where `bytes` are this piece's.
    pub(crate) fn address(&self, offset: u64, bytes: u64) -> Result<u64, DriverError> {
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let message = format!("{bytes} bytes at {offset} lie beyond a piece of {}", self.bytes);
            return Err(DriverError::Failed { message });
        }
        Ok(self.shared.base() + self.at + offset)
    }
}

/// A piece from an offset on.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The piece.
    pub piece: &'a Piece,
    /// The offset in bytes.
    pub at: u64,
}

impl<'a> From<&'a Piece> for Part<'a> {
    fn from(piece: &'a Piece) -> Self {
        Self { piece, at: 0 }
    }
}

impl Part<'_> {
    /// The address of its beginning, from where `bytes` are the piece's.
    pub(crate) fn address(&self, bytes: u64) -> Result<u64, DriverError> {
        self.piece.address(self.at, bytes)
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.secret && self.bytes > 0 {
            self.shared.erase(self.at, self.bytes);
        }
        self.shared.lock().release(self.at, self.bytes);
    }
}

/// One lane's way to a device: streams of its own.
///
/// Stream 0 carries everything unless something else is said; stream 1 carries a second multiplication beside a first, and
/// the third carries copies that overlap with both.
#[derive(Debug)]
pub struct CudaLane {
    pub(crate) shared: Arc<Shared>,
    pub(crate) streams: [Stream; 2],
    pub(crate) copies: Stream,
    /// For chunks that pass through: the copy into a buffer is done; what reads the buffer is done.
    pub(crate) arrived: [Event; BUFFERS_MAX],
    pub(crate) consumed: [Event; BUFFERS_MAX],
    /// The buffers that chunks passed through last.
    pub(crate) passed: Buffers,
    /// Where a moment on one stream is waited for on another.
    pub(crate) handover: Event,
    /// For how long a proof's kernels have run.
    pub(crate) clock: Clock,
    number: usize,
}

/// One for each buffer.
fn events() -> Result<[Event; BUFFERS_MAX], CudaError> {
    let event = || Event::new(EventKind::Order);
    Ok([event()?, event()?, event()?])
}

impl CudaLane {
    fn new(shared: Arc<Shared>, number: usize) -> Result<Self, CudaError> {
        raw::select(shared.device)?;
        Ok(Self {
            shared,
            streams: [Stream::new()?, Stream::new()?],
            copies: Stream::new()?,
            arrived: events()?,
            consumed: events()?,
            passed: Buffers::default(),
            handover: Event::new(EventKind::Order)?,
            clock: Clock::new()?,
            number,
        })
    }

    /// A piece of the arena, for nothing secret.
    fn take(&self, bytes: u64, end: End) -> Result<Piece, DriverError> {
        let allocated = self.shared.lock().allocate(bytes, end);
        match allocated {
            Ok(at) => Ok(Piece { shared: self.shared.clone(), at, bytes, secret: false }),
            Err(NoRoom { wanted, largest, .. }) => Err(DriverError::OutOfMemory {
                wanted: plimsoll::Bytes(wanted),
                // In pieces there may be more.
                free: plimsoll::Bytes(largest),
            }),
        }
    }

    /// Every kernel once, on zeros.
    fn warm_up(&mut self) -> Result<(), DriverError> {
        let shape = Shape { multiprocessors: self.shared.properties.multiprocessors };
        for log_size in [8, 12, 20] {
            // Sizes of one, two and three steps.
            let Some(domain) = Domain::with_log_size(log_size) else { continue };
            let len = domain.size() as u64;
            let data = self.take(len * SCALAR_BYTES, End::Bottom)?;
            let workspace = self.take(workspace_bytes(true), End::Bottom)?;
            self.fill(&data, 0)?;
            let data = Scalars::of(&data, len);
            self.transform(&domain, data, Transform::CosetForward, &workspace)?;
            self.transform(&domain, data, Transform::CosetInverse, &workspace)?;
            self.mul(data, data, data)?;
            self.mul_sub_scale(data, data, data, &domain.omega())?;
            self.synchronise()?;
        }
        let index = self.take(256, End::Bottom)?;
        self.fill(&index, 0)?;
        self.gather(Scalars::of(&index, 1), Scalars::of(&index, 1), &index, 128)?;
        self.warm_up_msm::<G1Affine>(shape)?;
        self.warm_up_msm::<G2Affine>(shape)
    }

    fn warm_up_msm<P: DevicePoint>(&mut self, shape: Shape) -> Result<(), DriverError> {
        const TERMS: u64 = 64;
        let choice = Choice { window_bits: 14, windows_per_pass: 2, chunk: TERMS, points: Points::Resident };
        let Some(plan) = MsmPlan::new(P::GROUP, TERMS, choice, shape) else { return Ok(()) };
        let points = self.take(TERMS * point_bytes(P::GROUP), End::Bottom)?;
        let scalars = self.take(TERMS * SCALAR_BYTES, End::Bottom)?;
        let (buckets, workspace) =
            (self.take(plan.bucket_bytes, End::Bottom)?, self.take(plan.workspace_bytes, End::Bottom)?);
        self.fill(&points, 0)?;
        self.fill(&scalars, 0)?;
        let memory = MsmMemory::of(&buckets, &workspace);
        self.msm::<P>(&plan, PointSource::Resident(&points, 0), Scalars::of(&scalars, TERMS), memory)?;
        self.synchronise()
    }

    /// Which of the device's lanes this is.
    pub fn number(&self) -> usize {
        self.number
    }

    pub(crate) fn failed(&self, error: CudaError) -> DriverError {
        error.for_driver(0, 0)
    }

    /// How long the work that `f` begins takes on the device, in milliseconds, for measurements.
    ///
    /// # Errors
    ///
    /// As `f`, or as the device says.
    pub fn timed<R>(&mut self, f: impl FnOnce(&mut Self) -> Result<R, DriverError>) -> Result<(R, f64), DriverError> {
        let events = [Event::new(EventKind::Timed), Event::new(EventKind::Timed)];
        let [Ok(from), Ok(to)] = events else {
            return Err(DriverError::Failed { message: "no event to time with".to_owned() });
        };
        self.synchronise()?;
        from.record(&self.streams[0]).map_err(|e| self.failed(e))?;
        let result = f(self)?;
        self.join().map_err(|e| self.failed(e))?;
        to.record(&self.streams[0]).map_err(|e| self.failed(e))?;
        to.synchronise().map_err(|e| self.failed(e))?;
        let milliseconds = from.milliseconds_to(&to).map_err(|e| self.failed(e))?;
        Ok((result, milliseconds))
    }

    /// From here on the device computes, as far as [`CudaDriver::busy`] counts.
    pub(crate) fn clock_begins(&mut self) -> Result<(), CudaError> {
        self.clock.begins(&self.streams[0])
    }

    /// No more kernels are begun.
    pub(crate) fn clock_ends(&mut self) -> Result<(), CudaError> {
        self.clock.ends(&self.streams[0])
    }

    /// Adds up, once the device is done.
    pub(crate) fn clock_counts(&mut self) -> Result<(), CudaError> {
        let nanoseconds = self.clock.nanoseconds()?;
        self.shared.busy.fetch_add(nanoseconds, Ordering::Relaxed);
        self.shared.proofs.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Copies to the device in one of the lane's streams, by way of the staging memory if there is any.
    pub(crate) fn send(&self, address: u64, from: &[u8], secret: bool, stream: &Stream) -> Result<(), CudaError> {
        match self.shared.staging() {
            Some(area) => area.send(self.number, address, from, secret, stream),
            None => stream.copy_in(address, from),
        }
    }

    /// What comes next in stream 0 begins after all that was begun in the others.
    pub(crate) fn join(&self) -> Result<(), CudaError> {
        for other in [&self.streams[1], &self.copies] {
            self.handover.record(other)?;
            self.streams[0].wait(&self.handover)?;
        }
        Ok(())
    }

    /// What comes next in stream 1 begins after all that was begun in stream 0. Copies need not wait for it.
    pub(crate) fn fork(&self) -> Result<(), CudaError> {
        self.handover.record(&self.streams[0])?;
        self.streams[1].wait(&self.handover)
    }

    /// Fills a piece with a byte, for tests.
    ///
    /// # Errors
    ///
    /// As the device says.
    pub fn fill(&mut self, piece: &Piece, byte: u8) -> Result<(), DriverError> {
        let address = piece.address(0, piece.bytes)?;
        self.streams[0].fill(address, byte, piece.bytes).map_err(|e| self.failed(e))
    }

    /// One past the last byte of a piece, a multiple of 4 long, that differs from `byte`; `spare` is 8 bytes elsewhere. For
    /// tests.
    ///
    /// # Errors
    ///
    /// As the device says.
    pub fn touched(&mut self, piece: &Piece, byte: u8, spare: &Piece) -> Result<u64, DriverError> {
        let (address, spare) = (piece.address(0, piece.bytes)?, spare.address(0, 8)?);
        self.streams[0].touched(address, piece.bytes, byte, spare).map_err(|e| self.failed(e))
    }

    /// Breaks the device's context, for the tests of what follows.
    ///
    /// # Errors
    ///
    /// If it is broken already.
    pub fn break_context(&mut self) -> Result<(), DriverError> {
        self.streams[0].break_context().map_err(|e| self.failed(e))
    }
}

impl DriverLane for CudaLane {
    type Memory = Piece;

    fn allocate(&mut self, paid: Paid) -> Result<Piece, DriverError> {
        // Scalars wait for the lease, beside each other; what a lease works with comes and goes together, below the keys.
        let class = paid.class().name();
        let end = if class == "device.abc" { End::Bottom } else { End::Top };
        let mut piece = self.take(paid.bytes().0, end)?;
        piece.secret = class != "device.points";
        Ok(piece)
    }

    fn copy_in(&mut self, from: &[u8], to: &Piece, at: u64) -> Result<(), DriverError> {
        let address = to.address(at, from.len() as u64)?;
        self.send(address, from, to.secret, &self.streams[0]).map_err(|e| self.failed(e))
    }

    fn copy_out(&mut self, from: &Piece, at: u64, to: &mut [u8]) -> Result<(), DriverError> {
        let address = from.address(at, to.len() as u64)?;
        self.streams[0].copy_out(to, address).map_err(|e| self.failed(e))
    }

    fn synchronise(&mut self) -> Result<(), DriverError> {
        let mut outcome = Ok(());
        for stream in self.streams.iter().chain([&self.copies]) {
            outcome = outcome.and(stream.synchronise());
        }
        if let Some(area) = self.shared.staging() {
            area.wipe(self.number);
        }
        outcome.map_err(|e| self.failed(e))
    }
}

#[cfg(test)]
mod tests;
