//! What a job is told to do, from the seed and its number alone.

use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll::device::DeviceError;

/// Where a job can be told to misbehave.
const STAGES: u64 = 8;
/// The stage that is run again from its input.
const AGAIN: usize = 5;

/// Random numbers, the same for the same seed (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What a job is told to do, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Nothing,
    Fail(usize),
    /// Only the first so many runs of the stage fail.
    FailFirst(usize, u32),
    OutOfMemory(usize, u32),
    Panic(usize),
}

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) order: Order,
    /// How often the stage in which it misbehaves has run.
    runs: AtomicU32,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Told {
    #[error("told to fail")]
    Fail,
    #[error("told to fail this time")]
    Transient,
    #[error("told to be out of memory")]
    OutOfMemory,
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Vec(#[from] plimsoll::ledger::VecError),
    #[error(transparent)]
    Take(#[from] plimsoll::ledger::TakeError),
}

impl Job {
    pub(crate) fn obey(&self, stage: usize) -> Result<(), Told> {
        let (Order::Fail(at) | Order::FailFirst(at, _) | Order::OutOfMemory(at, _) | Order::Panic(at)) = self.order
        else {
            return Ok(());
        };
        if at != stage {
            return Ok(());
        }
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        match self.order {
            Order::Fail(_) => Err(Told::Fail),
            Order::FailFirst(_, runs) if run < runs => Err(Told::Transient),
            Order::OutOfMemory(_, runs) if run < runs => Err(Told::OutOfMemory),
            Order::Panic(_) => panic!("told to"),
            _ => Ok(()),
        }
    }

    /// The order at a job's number: half of the jobs are well behaved.
    pub(crate) fn with_number(random: &mut Random) -> Job {
        let stage = random.below(STAGES) as usize;
        let order = match random.below(10) {
            0 => Order::Fail(stage),
            1 => Order::Panic(stage),
            2 => Order::FailFirst(AGAIN, 1 + random.below(4) as u32),
            // In time, or so long that the stage is asked for less.
            3 => Order::OutOfMemory(AGAIN, [1, 2, 12][random.below(3) as usize]),
            4 => Order::FailFirst(stage, 1),
            _ => Order::Nothing,
        };
        Job { order, runs: AtomicU32::new(0) }
    }
}
