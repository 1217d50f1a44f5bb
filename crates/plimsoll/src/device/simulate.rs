//! A simulated card: everything about devices without one.
//!
//! Its memory is a hard limit that fails as a card's does. Copies and kernels take time, by the clock or virtually; they
//! happen in order on each lane, and on the card one copy in each direction and one kernel at a time, like a real one's
//! engines. It counts what it does, so that tests can say what overlapped, in which order, and how full it was. And it
//! breaks where it is told to.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use super::driver::{Driver, DriverError, DriverLane, Paid};
use crate::Bytes;
use crate::sync::{Arc, Mutex, lock};

mod card;

use card::Card;
pub use card::{Engine, Op, Stats};

/// What a [`Simulated`] card is like.
#[derive(Clone, Debug)]
pub struct CardSpec {
    /// Its memory.
    pub memory: Bytes,
    /// How many bytes it copies a second, in each direction.
    pub copy_bytes_per_second: u64,
    /// How its time passes.
    pub clock: Clock,
    /// Where it fails.
    pub faults: Faults,
}

impl Default for CardSpec {
    /// A card of 1 GiB that copies 50 GiB a second, in virtual time, without faults.
    fn default() -> Self {
        Self { memory: Bytes::GIB, copy_bytes_per_second: 50 << 30, clock: Clock::Virtual, faults: Faults::default() }
    }
}

/// How a card's time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Nobody waits: durations are added up on each lane and engine.
    Virtual,
    /// [`synchronise`](DriverLane::synchronise) and copies out wait for as long as a card would.
    Real,
}

/// Where a card fails. Calls are opening, allocation, copies, kernels and synchronising, counted over all lanes from 1.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// This allocation fails, though there is room.
    pub out_of_memory_at: Option<u64>,
    /// This call fails, and nothing else comes of it.
    pub refused_at: Option<u64>,
    /// From this call on, each says that the context is broken.
    pub broken_at: Option<u64>,
    /// From this call on, each says that the card is gone.
    pub lost_at: Option<u64>,
    /// How many times as long everything takes; 0 and 1 are as specified.
    pub slow: u32,
}

/// A simulated card. Clones are the same card.
#[derive(Clone, Debug)]
pub struct Simulated {
    card: Arc<Card>,
}

impl Simulated {
    /// A card as specified.
    pub fn new(spec: CardSpec) -> Simulated {
        Simulated { card: Arc::new(Card::new(spec)) }
    }

    /// What it has done so far.
    pub fn stats(&self) -> Stats {
        self.card.stats()
    }

    /// Each operation, in the order in which they were begun.
    pub fn ops(&self) -> Vec<Op> {
        self.card.ops()
    }

    /// Memory that somebody else takes on the same card, until it is dropped. `None` if there is not so much.
    pub fn neighbour(&self, bytes: Bytes) -> Option<Neighbour> {
        self.card.take(bytes).ok()?;
        Some(Neighbour { card: self.card.clone(), bytes })
    }

    /// From now on the card is gone.
    pub fn lose(&self) {
        self.card.lose();
    }
}

impl Driver for Simulated {
    type Lane = SimulatedLane;
    type Memory = SimulatedMemory;

    fn open(&self, lane: usize) -> Result<SimulatedLane, DriverError> {
        self.card.call()?;
        self.card.lane_opened();
        Ok(SimulatedLane { card: self.card.clone(), lane, ready: 0, thread_bound: PhantomData })
    }
}

/// One lane's way to a simulated card.
#[derive(Debug)]
pub struct SimulatedLane {
    card: Arc<Card>,
    lane: usize,
    /// When what it has begun will be done.
    ready: u64,
    /// Like a real one's, it belongs to its thread.
    thread_bound: PhantomData<*const ()>,
}

impl SimulatedLane {
    /// Begins a kernel that keeps the card computing for `time`, and uses this memory. `work` does to it, at once, what the
    /// kernel would.
    ///
    /// # Errors
    ///
    /// As the card's faults say.
    pub fn kernel(
        &mut self,
        time: Duration,
        uses: &[&SimulatedMemory],
        work: impl FnOnce(),
    ) -> Result<(), DriverError> {
        self.card.call()?;
        work();
        self.begin(Engine::Compute, Bytes::ZERO, time, uses);
        Ok(())
    }

    fn copy(&mut self, engine: Engine, len: usize, memory: &SimulatedMemory) {
        self.begin(engine, Bytes(len as u64), self.card.copy_time(len), &[memory]);
    }

    fn begin(&mut self, engine: Engine, bytes: Bytes, time: Duration, uses: &[&SimulatedMemory]) {
        let (op, ready) = self.card.begin(self.lane, engine, bytes, time, self.ready);
        self.ready = ready;
        for memory in uses {
            lock(&memory.used_by).push(op);
        }
    }
}

impl Drop for SimulatedLane {
    fn drop(&mut self) {
        self.card.lane_closed();
    }
}

impl DriverLane for SimulatedLane {
    type Memory = SimulatedMemory;

    fn allocate(&mut self, paid: Paid) -> Result<SimulatedMemory, DriverError> {
        self.card.call()?;
        self.card.allocate(paid.bytes())?;
        Ok(SimulatedMemory {
            card: self.card.clone(),
            bytes: paid.bytes(),
            contents: Mutex::default(),
            used_by: Mutex::default(),
        })
    }

    fn copy_in(&mut self, from: &[u8], to: &SimulatedMemory, at: u64) -> Result<(), DriverError> {
        self.card.call()?;
        to.write(|contents| place(contents, at, to.bytes, from))?;
        self.copy(Engine::CopyIn, from.len(), to);
        Ok(())
    }

    fn copy_out(&mut self, from: &SimulatedMemory, at: u64, to: &mut [u8]) -> Result<(), DriverError> {
        self.card.call()?;
        if at.checked_add(to.len() as u64).is_none_or(|end| end > from.bytes.0) {
            return Err(beyond(at, to.len(), from.bytes));
        }
        from.read(|contents| {
            to.fill(0);
            let there = contents.get(at as usize..).unwrap_or_default();
            let len = there.len().min(to.len());
            to[..len].copy_from_slice(&there[..len]);
        });
        self.copy(Engine::CopyOut, to.len(), from);
        self.card.wait_until(self.lane, self.ready)
    }

    fn synchronise(&mut self) -> Result<(), DriverError> {
        self.card.call()?;
        self.card.wait_until(self.lane, self.ready)
    }
}

fn beyond(at: u64, len: usize, bytes: Bytes) -> DriverError {
    DriverError::Failed { message: format!("{len} bytes at {at} lie beyond a buffer of {bytes}") }
}

fn place(contents: &mut Vec<u8>, at: u64, bytes: Bytes, from: &[u8]) -> Result<(), DriverError> {
    let end = at.checked_add(from.len() as u64).filter(|end| *end <= bytes.0).ok_or(beyond(at, from.len(), bytes))?;
    // Zeros that were never written take no room.
    if (contents.len() as u64) < end {
        contents.resize(end as usize, 0);
    }
    contents[at as usize..end as usize].copy_from_slice(from);
    Ok(())
}

/// A piece of a simulated card's memory.
pub struct SimulatedMemory {
    card: Arc<Card>,
    bytes: Bytes,
    contents: Mutex<Vec<u8>>,
    /// The operations that use it, by their index.
    used_by: Mutex<Vec<usize>>,
}

impl SimulatedMemory {
    /// Calls `f` with what has been written; what lies behind its end is zero.
    pub fn read<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        f(&lock(&self.contents))
    }

    /// Calls `f` to change what has been written. Longer than the memory it must not become.
    pub fn write<R>(&self, f: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let mut contents = lock(&self.contents);
        let result = f(&mut contents);
        assert!(contents.len() as u64 <= self.bytes.0, "a kernel wrote beyond a buffer of {}", self.bytes);
        result
    }
}

impl Drop for SimulatedMemory {
    fn drop(&mut self) {
        self.card.free(self.bytes, &lock(&self.used_by));
    }
}

impl fmt::Debug for SimulatedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedMemory({})", self.bytes)
    }
}

/// Somebody else's memory on the same card.
#[derive(Debug)]
pub struct Neighbour {
    card: Arc<Card>,
    bytes: Bytes,
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.card.free(self.bytes, &[]);
    }
}
