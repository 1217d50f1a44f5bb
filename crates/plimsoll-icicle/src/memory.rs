//! How much of a device's memory a call takes: pure functions of sizes.
//!
//! ICICLE allocates an operation's scratch by itself, while it runs, and decides on its own how: its CUDA backend lowers the
//! window, and cuts the call into chunks, when it finds too little memory free at that moment. So a call is predicted before it
//! is made; the window and the number of chunks are chosen here and passed explicitly; and for as long as the call makes up its
//! mind, a [margin](MsmPlan::margin_bytes) is kept free with which it finds that everything fits.
//!
//! Two formulas for the scratch of a multiplication of n terms with windows of c bits, W = ⌈255/c⌉ of them, and points of P
//! bytes (144 or 288) in the buckets:
//!
//! - *documented*: indices 24·W·n and buckets P·W·2^c, of which the larger, with their inputs, is the peak;
//! - *measured* on a CUDA backend of the v3.8 line, within 0.2 % on 51 shapes: max(A, 3·arr + T), with arr = P·W·2^c,
//!   T = 2·P·W·2^⌈c/2⌉, A = 24.116·n·W + 12·W·2^c. It comes from a pool that grows in steps of 32 MiB, so that ⌈A⌉ steps
//!   suffice where arr ≤ A/6, and ⌈⌈A⌉ + 3·arr + T⌉ steps always.
//!
//! What is charged is the larger of the two, times a correction learned from what the device reported.
//!
//! ICICLE's own device, the processor, allocates otherwise, from host memory; its sources say how (v3.1 to v4.0): each of t
//! threads has buckets of its own, half as many since digits are signed, and a bit for each; runs of buckets are summed up in
//! pairs of points. Nothing is sorted, nothing is converted beforehand. The roots of unity lie there twice, the second time as
//! keys of a hash table. [`Scratch::Host`] stands for that.

use plimsoll_groth16::backend::CurveGroup;

use crate::abi::SCALAR_BYTES;
use crate::convert::{affine_bytes, projective_bytes};
use crate::name::DeviceName;

/// The bits of a scalar.
const SCALAR_BITS: u64 = 255;
/// The step in which the CUDA backend's pool grows.
pub const POOL_STEP: u64 = 32 << 20;
/// The widest window. Buckets are 2^c.
pub const WINDOW_MAX: u32 = 20;
/// How many alternatives a multiplication has, each with at most three quarters of the bytes of the one before.
const ALTERNATIVES_MAX: usize = 24;
/// A multiplication is not cut into pieces of fewer terms.
const PIECE_MIN: u64 = 1 << 8;

/// What kind of allocator a device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scratch {
    /// Out of a pool that grows in steps, as on CUDA.
    Pooled,
    /// To the byte.
    Exact,
    /// Host memory, as ICICLE's own device for processors takes it, with so many threads for a multiplication.
    Host {
        /// Threads.
        threads: u32,
    },
}

impl Scratch {
    /// Of a device by its name; and whether it tells how much memory it has.
    pub fn of(name: &DeviceName, tells: bool) -> Self {
        match (name.is_host(), tells) {
            (true, _) => {
                let threads = std::thread::available_parallelism().map_or(1, usize::from);
                Scratch::Host { threads: threads as u32 }
            }
            (false, true) => Scratch::Pooled,
            (false, false) => Scratch::Exact,
        }
    }

    /// How many threads a multiplication is told to share; 0 where that is the device's own affair.
    pub fn threads(self) -> u32 {
        match self {
            Scratch::Host { threads } => threads,
            Scratch::Pooled | Scratch::Exact => 0,
        }
    }
}

/// One way to make a multiplication, and what it takes of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsmPlan {
    /// The group.
    pub group: CurveGroup,
    /// The terms of the whole multiplication.
    pub terms: u64,
    /// The most terms of one call; the calls follow each other.
    pub piece: u64,
    /// The window's bits.
    pub window: u32,
    /// Whether the points are on the device already.
    pub resident: bool,
    /// For the scalars of one call.
    pub scalar_bytes: u64,
    /// For the points of one call, where they are not resident.
    pub point_bytes: u64,
    /// What the call takes for sorting: the scalars out of Montgomery form, and A.
    pub workspace_bytes: u64,
    /// What the call takes for its buckets, beyond that.
    pub bucket_bytes: u64,
    /// What has to be free besides, while the call makes up its mind.
    pub margin_bytes: u64,
    /// The correction that its scratch was predicted with, in thousandths.
    pub correction: u64,
    /// The threads that share one call, where the device is the processor; otherwise 0.
    pub threads: u32,
}

impl MsmPlan {
    /// Of `terms` in pieces of at most `piece`, with this window. `correction` is in thousandths, 1000 at least.
    pub fn new(
        group: CurveGroup,
        terms: u64,
        piece: u64,
        window: u32,
        resident: bool,
        scratch: Scratch,
        correction: u64,
    ) -> Self {
        let piece = piece.min(terms).max(1);
        let (workspace, buckets) = scratch_bytes(group, piece, window, scratch);
        let corrected = |bytes: u64| scale(bytes, correction);
        let converted = if scratch.threads() > 0 { 0 } else { piece * SCALAR_BYTES };
        let (workspace_bytes, bucket_bytes) = (corrected(workspace) + converted, corrected(buckets));
        let scalar_bytes = piece * SCALAR_BYTES;
        let point_bytes = if resident { 0 } else { piece * affine_bytes(group) };
        let inputs = scalar_bytes + piece * affine_bytes(group);
        let margin_bytes = match scratch {
            _ if mutant!("icicle-no-margin") => 0,
            Scratch::Pooled => {
                enough_free(group, piece, window).saturating_sub(inputs + workspace_bytes + bucket_bytes)
            }
            Scratch::Exact | Scratch::Host { .. } => 0,
        };
        Self {
            group,
            terms,
            piece,
            window,
            resident,
            scalar_bytes,
            point_bytes,
            workspace_bytes,
            bucket_bytes,
            margin_bytes,
            correction,
            threads: scratch.threads(),
        }
    }

    /// What ICICLE allocates in one call.
    pub fn scratch_bytes(&self) -> u64 {
        self.workspace_bytes + self.bucket_bytes
    }

    /// Everything, the margin included.
    pub fn bytes(&self) -> u64 {
        self.scalar_bytes + self.point_bytes + self.scratch_bytes() + self.margin_bytes
    }

    /// How much has to be free when the call is made, besides its inputs, so that it keeps to the plan.
    pub fn free_bytes_needed(&self) -> u64 {
        self.scratch_bytes() + self.margin_bytes
    }

    /// How many calls it is.
    pub fn calls(&self) -> u64 {
        self.terms.div_ceil(self.piece)
    }

    /// About how long it takes, in additions: what alternatives are ordered by.
    fn cost(&self) -> u64 {
        let windows = SCALAR_BITS.div_ceil(u64::from(self.window));
        if self.threads > 0 {
            // Its threads share the terms; the buckets of all of them are summed up.
            let terms = self.piece.div_ceil(u64::from(self.threads));
            return self.calls() * ((1 << 10) + windows * (terms + (3 << (self.window - 1))));
        }
        // The serial tail of each call is about as long as 2^19 additions (10 ms in G1 where 2^20 terms take 18).
        self.calls() * ((1 << 19) + windows * (self.piece + (3 << (self.window - 1))))
    }

    /// The ways to make a multiplication within `limit` bytes, the fastest first, and each of the others with fewer bytes.
    /// Empty if even the smallest piece does not fit.
    pub fn ways(
        group: CurveGroup,
        terms: u64,
        resident: bool,
        scratch: Scratch,
        correction: u64,
        limit: u64,
    ) -> Vec<MsmPlan> {
        let mut all: Vec<MsmPlan> = Vec::new();
        let mut piece = terms.max(1);
        loop {
            let widest = (piece.max(2).ilog2() + 1).clamp(2, WINDOW_MAX);
            all.extend(
                (2..=widest).map(|window| Self::new(group, terms, piece, window, resident, scratch, correction)),
            );
            if piece <= PIECE_MIN {
                break;
            }
            piece = piece.div_ceil(2).max(PIECE_MIN);
        }
        all.retain(|plan| plan.bytes() <= limit);
        all.sort_by_key(|plan| (plan.cost(), plan.bytes()));
        let mut ways: Vec<MsmPlan> = Vec::new();
        for plan in all {
            if ways.len() < ALTERNATIVES_MAX && ways.last().is_none_or(|last| plan.bytes() <= last.bytes() / 4 * 3) {
                ways.push(plan);
            }
        }
        ways
    }

    /// What the smallest of all ways takes: for the message where none fits.
    pub fn smallest(group: CurveGroup, terms: u64, resident: bool, scratch: Scratch, correction: u64) -> u64 {
        let ways = Self::ways(group, terms, resident, scratch, correction, u64::MAX);
        let piece = terms.clamp(1, PIECE_MIN);
        let last = (2..=9).map(|window| Self::new(group, terms, piece, window, resident, scratch, correction).bytes());
        ways.iter().map(MsmPlan::bytes).chain(last).min().unwrap_or(u64::MAX)
    }
}

/// The thousandths of `bytes`, rounded up.
pub fn scale(bytes: u64, thousandths: u64) -> u64 {
    u64::try_from((u128::from(bytes) * u128::from(thousandths)).div_ceil(1000)).unwrap_or(u64::MAX)
}

/// What ICICLE allocates for one multiplication, without its inputs: for sorting, and beyond that for buckets.
fn scratch_bytes(group: CurveGroup, terms: u64, window: u32, scratch: Scratch) -> (u64, u64) {
    let windows = SCALAR_BITS.div_ceil(u64::from(window));
    let point = projective_bytes(group);
    let buckets = (point * windows) << window;
    let a = scale(24_116 * terms * windows, 1) + ((12 * windows) << window);
    let t = (2 * point * windows) << window.div_ceil(2);
    let sums = 3 * buckets + t;
    let documented = (24 * windows * terms).max(buckets);
    match scratch {
        Scratch::Host { threads } => (0, host_scratch_bytes(group, window, threads)),
        Scratch::Exact => (a.max(documented), sums.saturating_sub(a.max(documented))),
        Scratch::Pooled => {
            let steps = |bytes: u64| bytes.div_ceil(POOL_STEP) * POOL_STEP;
            let sorting = steps(a.max(documented));
            if buckets <= a / 6 { (sorting, 0) } else { (sorting, steps(sorting + sums) - sorting) }
        }
    }
}

/// What a multiplication on the processor allocates: all for its buckets, whatever the number of terms.
fn host_scratch_bytes(group: CurveGroup, window: u32, threads: u32) -> u64 {
    /// A task's own bytes in the library that runs them, at the most.
    const TASK: u64 = 512;
    /// What is there whatever the window: the threads' stacks, the decision of how to go about it.
    const FIXED: u64 = 1 << 20;
    let (point, threads) = (projective_bytes(group), u64::from(threads.max(1)));
    let windows = SCALAR_BITS.div_ceil(u64::from(window));
    let half = 1_u64 << (window - 1);
    let last = 1_u64 << (SCALAR_BITS - (windows - 1) * u64::from(window));
    let buckets = (windows - 1) * half + last;
    // A run is as long as leaves sixteen of them to a thread, and no longer than a window has buckets.
    let run =
        (buckets / threads).checked_ilog2().and_then(|log| log.checked_sub(4)).map_or(1, |log| half.min(1 << log));
    FIXED + threads * (buckets * point + buckets.div_ceil(8)) + buckets.div_ceil(run) * (2 * point + TASK)
}

/// What a backend of the v3.8 line estimates for itself, with its inputs.
fn own_estimate(group: CurveGroup, terms: u64, window: u32) -> u64 {
    let windows = SCALAR_BITS.div_ceil(u64::from(window));
    let indices = 28 * terms * windows;
    let buckets = (4 * projective_bytes(group) * windows) << window;
    terms * (SCALAR_BYTES + affine_bytes(group)) + indices + buckets
}

/// With so much free or taken by its inputs, that backend keeps to the window and the chunks that it is told: it uses at most
/// seven tenths of what it finds.
fn enough_free(group: CurveGroup, terms: u64, window: u32) -> u64 {
    own_estimate(group, terms, window).div_ceil(7) * 10
}

/// The domain's roots on the device, for transforms up to 2^`log_size`.
pub fn domain_bytes(log_size: u32, scratch: Scratch) -> u64 {
    /// A root in the processor's hash table: its node as the allocator rounds it up, and its share of a table that has just
    /// grown, the old one beside the new one.
    const KEY: u64 = 64 + 32;
    let roots = ((1 << log_size) + 1) * SCALAR_BYTES;
    if scratch.threads() > 0 { roots + (KEY << log_size) } else { roots }
}

/// What a transform of a vector in place takes besides.
pub fn transform_scratch_bytes(log_size: u32, scratch: Scratch) -> u64 {
    /// Above this size the processor's transform reorders by way of copies: one as long as it runs, one at its beginning and end.
    const IN_PLACE_MAX: u32 = 26;
    let copies = scratch.threads() > 0 && log_size > IN_PLACE_MAX;
    if copies { (2 * SCALAR_BYTES) << log_size } else { 0 }
}

/// A vector of scalars.
pub fn vector_bytes(len: u64) -> u64 {
    len * SCALAR_BYTES
}

#[cfg(test)]
mod tests;
