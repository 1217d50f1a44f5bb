//! The card itself: its memory, its engines, its clock, its faults, and what it counts.

use std::time::{Duration, Instant};

use super::{CardSpec, Clock};
use crate::Bytes;
use crate::device::driver::DriverError;
use crate::sync::{Condvar, Mutex, lock, wait};

/// A part of the card that does one thing at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Copies from the host.
    CopyIn,
    /// Copies to the host.
    CopyOut,
    /// Kernels.
    Compute,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Op {
    /// The lane that began it.
    pub lane: usize,
    /// What ran it.
    pub engine: Engine,
    /// How much was copied.
    pub bytes: Bytes,
    /// When the engine began, in nanoseconds of the card's time.
    pub begin: u64,
    /// When it was done.
    pub end: u64,
    /// Other lanes' operations on other engines that had been begun and not waited for when this one was begun.
    pub beside: usize,
}

/// What a card has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes that are allocated now, the neighbours' included.
    pub allocated_bytes: Bytes,
    /// The most that ever were.
    pub allocated_bytes_peak: Bytes,
    /// Successful allocations.
    pub allocations: u64,
    /// Allocations that failed for lack of room, or were made to.
    pub out_of_memory: u64,
    /// Frees of memory that an operation was using that nobody had waited for, on a card that is well: none, ever.
    pub freed_in_use: u64,
    /// Lanes that are open now.
    pub open_lanes: u64,
    /// All calls of the driver.
    pub calls: u64,
    /// How long kernels ran, in nanoseconds of the card's time.
    pub compute_ns: u64,
    /// How long copies ran, in nanoseconds of the card's time.
    pub copy_ns: u64,
    /// Copies that were begun while another lane's kernel was under way.
    pub copies_beside_kernels: u64,
    /// Kernels that were begun while another lane's kernel was under way: none, where there is a lease.
    pub kernels_beside_kernels: u64,
}

#[derive(Debug)]
pub(super) struct Card {
    spec: CardSpec,
    made: Instant,
    state: Mutex<State>,
    /// The card is gone.
    gone: Condvar,
}

#[derive(Debug, Default)]
struct State {
    stats: Stats,
    attempts: u64,
    lost: bool,
    /// It has said that it is of no more use: nothing is under way on it.
    dead: bool,
    /// When each engine is free again.
    free_at: [u64; 3],
    ops: Vec<Op>,
    /// Operations that nobody has waited for yet, by index into `ops`.
    under_way: Vec<usize>,
}

impl Card {
    pub(super) fn new(spec: CardSpec) -> Card {
        Card { spec, made: Instant::now(), state: Mutex::default(), gone: Condvar::new() }
    }

    pub(super) fn stats(&self) -> Stats {
        lock(&self.state).stats
    }

    pub(super) fn ops(&self) -> Vec<Op> {
        lock(&self.state).ops.clone()
    }

    pub(super) fn lose(&self) {
        let mut state = lock(&self.state);
        (state.lost, state.dead) = (true, true);
        drop(state);
        self.gone.notify_all();
    }

    /// Counts a call, and fails it if it is the turn of a fault.
    pub(super) fn call(&self) -> Result<(), DriverError> {
        let faults = &self.spec.faults;
        let mut state = lock(&self.state);
        state.stats.calls += 1;
        let call = state.stats.calls;
        if state.lost || faults.lost_at.is_some_and(|at| call >= at) {
            state.dead = true;
            return Err(lost());
        }
        if faults.broken_at.is_some_and(|at| call >= at) {
            state.dead = true;
            return Err(DriverError::Broken { message: format!("a fault at call {call} that sticks") });
        }
        if faults.refused_at == Some(call) {
            return Err(DriverError::Failed { message: format!("a fault at call {call}") });
        }
        Ok(())
    }

    pub(super) fn allocate(&self, bytes: Bytes) -> Result<(), DriverError> {
        let mut state = lock(&self.state);
        state.attempts += 1;
        let fault = self.spec.faults.out_of_memory_at == Some(state.attempts);
        self.take_from(&mut state, bytes, fault)
    }

    /// Takes memory without counting as a call: somebody else's.
    pub(super) fn take(&self, bytes: Bytes) -> Result<(), DriverError> {
        self.take_from(&mut lock(&self.state), bytes, false)
    }

    fn take_from(&self, state: &mut State, bytes: Bytes, fault: bool) -> Result<(), DriverError> {
        let stats = &mut state.stats;
        let free = self.spec.memory.saturating_sub(stats.allocated_bytes);
        if bytes > free || fault {
            stats.out_of_memory += 1;
            return Err(DriverError::OutOfMemory { wanted: bytes, free });
        }
        stats.allocations += 1;
        stats.allocated_bytes += bytes;
        stats.allocated_bytes_peak = stats.allocated_bytes_peak.max(stats.allocated_bytes);
        Ok(())
    }

    pub(super) fn free(&self, bytes: Bytes, used_by: &[usize]) {
        let mut state = lock(&self.state);
        let in_use = !state.dead && used_by.iter().any(|op| state.under_way.contains(op));
        let stats = &mut state.stats;
        stats.freed_in_use += u64::from(in_use);
        stats.allocated_bytes = stats.allocated_bytes.checked_sub(bytes).expect("freed what was allocated");
    }

    pub(super) fn lane_opened(&self) {
        lock(&self.state).stats.open_lanes += 1;
    }

    pub(super) fn lane_closed(&self) {
        lock(&self.state).stats.open_lanes -= 1;
    }

    pub(super) fn copy_time(&self, len: usize) -> Duration {
        Duration::from_secs_f64(len as f64 / self.spec.copy_bytes_per_second.max(1) as f64)
    }

    /// Begins an operation behind what its lane and its engine have begun before; returns its index, and when it will be
    /// done.
    pub(super) fn begin(&self, lane: usize, engine: Engine, bytes: Bytes, time: Duration, ready: u64) -> (usize, u64) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) * u64::from(self.spec.faults.slow.max(1));
        let mut state = lock(&self.state);
        let State { stats, free_at, ops, under_way, .. } = &mut *state;
        let begin = ready.max(free_at[engine as usize]).max(self.now());
        let end = begin.saturating_add(time);
        free_at[engine as usize] = end;
        let others = || under_way.iter().map(|&op| ops[op]).filter(|op| op.lane != lane);
        let beside_kernel = others().any(|op| op.engine == Engine::Compute);
        let beside = others().filter(|op| op.engine != engine).count();
        match engine {
            Engine::Compute => {
                stats.compute_ns += time;
                stats.kernels_beside_kernels += u64::from(beside_kernel);
            }
            Engine::CopyIn | Engine::CopyOut => {
                stats.copy_ns += time;
                stats.copies_beside_kernels += u64::from(beside_kernel);
            }
        }
        let index = ops.len();
        under_way.push(index);
        ops.push(Op { lane, engine, bytes, begin, end, beside });
        (index, end)
    }

    /// Waits for what a lane has begun.
    pub(super) fn wait_until(&self, lane: usize, ready: u64) -> Result<(), DriverError> {
        let mut state = lock(&self.state);
        while self.spec.clock == Clock::Real && !state.lost {
            let left = Duration::from_nanos(ready.saturating_sub(self.now()));
            if left.is_zero() {
                break;
            }
            state = wait(&self.gone, state, Some(left));
        }
        let State { ops, under_way, lost: gone, .. } = &mut *state;
        under_way.retain(|&op| ops[op].lane != lane);
        if *gone { Err(lost()) } else { Ok(()) }
    }

    /// The card's time, in nanoseconds; virtual time stands still where nothing is begun.
    fn now(&self) -> u64 {
        match self.spec.clock {
            Clock::Virtual => 0,
            Clock::Real => u64::try_from(self.made.elapsed().as_nanos()).unwrap_or(u64::MAX),
        }
    }
}

fn lost() -> DriverError {
    DriverError::Lost { message: "the card has fallen off the bus".to_owned() }
}
