//! Multi-scalar multiplications: every buffer, and which way to make one is fastest within the bytes that are free.
//!
//! `cuda/msm.cuh` tells what the buffers are for. Three numbers are free to choose, and trade bytes for time:
//!
//! - `window_bits`: wider windows mean fewer additions and more buckets;
//! - `windows_per_pass`: how many windows are sorted and added up at once; more keep more of the device busy;
//! - `chunk`: how many terms at once. Points that are not resident pass through in chunks, two of which are there at a
//!   time: one that is being computed with, and one that is on its way.

use plimsoll_groth16::backend::CurveGroup;

use super::{Layout, SCALAR_BYTES, Shape, aligned};

/// Scalars are below 2^255, and signed digits need no bit more: their absolute value is below 2^254.
const SCALAR_BITS: u32 = 255;
/// Threads of a block of the accumulation; one block fits on a multiprocessor.
const SLICE_THREADS: u32 = 384;
/// A slice has at least so many entries, or there are fewer slices.
const ENTRIES_PER_SLICE_MIN: u64 = 8;
/// Slots that one thread of a carry level adds up.
const CARRY_STEP: u64 = 8;
/// Buckets that one thread of a reduction adds up.
const REDUCE_STEP: u64 = 4;
/// Counters that one block of the prefix sums takes.
const SCAN_BLOCK: u64 = 4096;
/// The prefix sums have two levels.
const BUCKETS_PER_PASS_MAX: u64 = SCAN_BLOCK * SCAN_BLOCK;
/// Entries are numbered with 32 bits, and so are a chunk's points, less the sign.
const ENTRIES_PER_PASS_MAX: u64 = 1 << 31;

/// The window widths that plans are chosen from.
pub const WINDOW_BITS: std::ops::RangeInclusive<u32> = 4..=20;

/// Where the points are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Points {
    /// On the device, all of them: not this plan's.
    Resident,
    /// In host memory: they pass through buffers of this plan.
    Streamed,
}

/// The numbers that a plan is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Choice {
    /// The width of a window.
    pub window_bits: u32,
    /// How many windows are sorted and added up at once.
    pub windows_per_pass: u32,
    /// How many terms at once.
    pub chunk: u64,
    /// Where the points are.
    pub points: Points,
}

/// One multiplication, to the byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MsmPlan {
    /// The group.
    pub group: CurveGroup,
    /// The number of terms.
    pub terms: u64,
    /// What was chosen.
    pub choice: Choice,
    /// How many windows there are.
    pub windows: u32,
    /// How many slices the entries of a pass are cut into.
    pub slices: u32,
    /// Offsets into the workspace.
    pub regions: Regions,
    /// The bytes of class `device.buckets`.
    pub bucket_bytes: u64,
    /// The bytes of class `device.workspace`.
    pub workspace_bytes: u64,
    /// The bytes of class `device.points`: two chunks when they are streamed.
    pub point_bytes: u64,
}

/// Where things lie in the workspace. The reduction comes after the last pass, and uses the same memory again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Regions {
    /// The scalars of a chunk, out of Montgomery form.
    pub canonical: u64,
    /// A counter for each bucket of a pass.
    pub ends: u64,
    /// The prefix sums' second level.
    pub sums: u64,
    /// The sorted entries of a pass.
    pub entries: u64,
    /// The carries of the levels, in turn.
    pub carries: [u64; 2],
    /// Which buckets they belong to.
    pub carry_keys: [u64; 2],
    /// The reduction's plain sums, in turn.
    pub reduce_sums: [u64; 2],
    /// The reduction's weighted sums, in turn.
    pub reduce_weighted: [u64; 2],
    /// A point for each window, at the very end.
    pub result: u64,
}

/// A bucket in memory: four coordinates.
pub const fn bucket_bytes(group: CurveGroup) -> u64 {
    match group {
        CurveGroup::G1 => 192,
        CurveGroup::G2 => 384,
    }
}

/// An affine point in memory.
pub const fn point_bytes(group: CurveGroup) -> u64 {
    match group {
        CurveGroup::G1 => 96,
        CurveGroup::G2 => 192,
    }
}

/// A point in Jacobian coordinates.
pub const fn jacobian_bytes(group: CurveGroup) -> u64 {
    match group {
        CurveGroup::G1 => 144,
        CurveGroup::G2 => 288,
    }
}

/// How many windows of a width there are.
pub const fn windows(window_bits: u32) -> u32 {
    SCALAR_BITS.div_ceil(window_bits)
}

impl MsmPlan {
    /// The plan for `terms` terms with a choice; `None` where the choice makes no sense for that size.
    pub fn new(group: CurveGroup, terms: u64, choice: Choice, shape: Shape) -> Option<Self> {
        let Choice { window_bits, windows_per_pass, chunk, points } = choice;
        let windows = windows(window_bits);
        if terms == 0 || chunk == 0 || chunk > terms || !WINDOW_BITS.contains(&window_bits) {
            return None;
        }
        let each = 1_u64 << (window_bits - 1);
        let pass = u64::from(windows_per_pass);
        if windows_per_pass == 0
            || windows_per_pass > windows
            || pass * each > BUCKETS_PER_PASS_MAX
            || pass * chunk > ENTRIES_PER_PASS_MAX
        {
            return None;
        }
        let bucket = bucket_bytes(group);
        let slices = slices(group, pass * chunk, shape);

        let mut layout = Layout::default();
        let canonical = layout.place(chunk * SCALAR_BYTES);
        let ends = layout.place(pass * each * 4);
        let sums = layout.place((pass * each).div_ceil(SCAN_BLOCK) * 4);
        let entries = layout.place(pass * chunk * 4);
        let slots = [2 * slices, next_slots(2 * slices)];
        let carries = slots.map(|slots| layout.place(slots * bucket));
        let carry_keys = slots.map(|slots| layout.place(slots * 4));
        let passes_end = layout.end;

        let mut layout = Layout::default();
        let first = u64::from(windows) * (each / REDUCE_STEP.min(each));
        let second = first.div_ceil(REDUCE_STEP).max(u64::from(windows));
        let reduce_sums = [first, second].map(|count| layout.place(count * bucket));
        let reduce_weighted = [first, second].map(|count| layout.place(count * bucket));
        layout.end = layout.end.max(passes_end);
        let result = layout.place(u64::from(windows) * jacobian_bytes(group));

        let regions =
            Regions { canonical, ends, sums, entries, carries, carry_keys, reduce_sums, reduce_weighted, result };
        Some(Self {
            group,
            terms,
            choice,
            windows,
            slices: u32::try_from(slices).ok()?,
            regions,
            bucket_bytes: u64::from(windows) * each * bucket,
            workspace_bytes: layout.end,
            point_bytes: match points {
                Points::Resident => 0,
                Points::Streamed => {
                    // The second buffer gets the second chunk first, which may be the last.
                    let second = chunk.min(terms - chunk) * point_bytes(group);
                    let first = chunk * point_bytes(group);
                    if second > 0 { aligned(first) + second } else { first }
                }
            },
        })
    }

    /// The fastest plan within `free` bytes of device memory, by the model of [`MsmPlan::seconds`]; `None` if there is none.
    pub fn fastest(group: CurveGroup, terms: u64, points: Points, shape: Shape, free: u64) -> Option<Self> {
        let fits = |plan: &MsmPlan| plan.bytes() <= free;
        Self::all(group, terms, points, shape).filter(fits).min_by(|a, b| {
            // Of equals the smaller one.
            a.seconds(shape).total_cmp(&b.seconds(shape)).then(a.bytes().cmp(&b.bytes()))
        })
    }

    /// The plan that takes the fewest bytes.
    pub fn smallest(group: CurveGroup, terms: u64, points: Points, shape: Shape) -> Option<Self> {
        Self::all(group, terms, points, shape).min_by_key(MsmPlan::bytes)
    }

    fn all(group: CurveGroup, terms: u64, points: Points, shape: Shape) -> impl Iterator<Item = Self> {
        let chunks = (0..=10).map(move |log| terms.div_ceil(1 << log).next_multiple_of(32).min(terms));
        chunks.flat_map(move |chunk| {
            WINDOW_BITS.flat_map(move |window_bits| {
                let all = windows(window_bits);
                [1, 2, 4, 8, 16, all].into_iter().filter_map(move |windows_per_pass| {
                    let choice = Choice { window_bits, windows_per_pass, chunk, points };
                    Self::new(group, terms, choice, shape)
                })
            })
        })
    }

    /// How many chunks there are.
    pub fn chunks(&self) -> u64 {
        self.terms.div_ceil(self.choice.chunk)
    }

    /// What the plan takes of all classes, each aligned.
    pub fn bytes(&self) -> u64 {
        aligned(self.bucket_bytes) + aligned(self.workspace_bytes) + aligned(self.point_bytes)
    }

    /// Where the second buffer of streamed points begins.
    pub fn second_points(&self) -> u64 {
        if self.chunks() > 1 { aligned(self.choice.chunk * point_bytes(self.group)) } else { 0 }
    }

    /// About how long it takes, in seconds, on a device of Hopper's kind: a time for each addition and each bucket
    /// and a fixed one for each pass and each level that has few threads, all fitted to measurements on an H200
    /// (docs/gpu.md). It orders plans; it promises nothing.
    pub fn seconds(&self, shape: Shape) -> f64 {
        let (weight, point) = match self.group {
            CurveGroup::G1 => (1.0, 96.0),
            CurveGroup::G2 => (2.7, 192.0),
        };
        let windows = f64::from(self.windows);
        let terms = self.terms as f64;
        let each = 2_f64.powi(self.choice.window_bits as i32 - 1);
        let chunks = self.chunks() as f64;
        let pass = f64::from(self.choice.windows_per_pass);
        let passes = (windows / pass).ceil() * chunks;
        let additions = windows * terms * 0.44e-9;
        let carries = passes * f64::from(self.slices) * 0.6e-9;
        let reduction = windows * each * 3e-9;
        // A bucket that goes on in the next chunk is read again.
        let reading = windows * each * (chunks - 1.0) * 0.2e-9;
        let computing = weight * (additions + carries + reduction + reading);
        let levels = f64::from(self.choice.window_bits) / 2.0;
        let latency = weight.min(2.0) * (levels * 0.1e-3 + passes * 0.15e-3 + 0.5e-3);
        // Entries that do not stay in the cache are sorted more slowly.
        let entries = pass * self.choice.chunk as f64 * 4.0;
        let sorting = windows * terms / 6e10 * (1.0 + (entries / 256e6 - 1.0).max(0.0) * 0.4);
        let work = (computing + sorting) * 132.0 / f64::from(shape.multiprocessors) + latency;
        match self.choice.points {
            Points::Resident => work,
            // The first chunk is waited for, the others come while the one before is computed with.
            Points::Streamed => {
                let upload = self.terms as f64 * point / 50e9;
                upload / chunks + work.max(upload * (chunks - 1.0) / chunks)
            }
        }
    }
}

/// How many slices: as many as run at once, and fewer for few entries.
fn slices(group: CurveGroup, entries: u64, shape: Shape) -> u64 {
    let degree = match group {
        CurveGroup::G1 => 1,
        CurveGroup::G2 => 2,
    };
    let at_once = u64::from(shape.multiprocessors) * u64::from(SLICE_THREADS / degree);
    entries.div_ceil(ENTRIES_PER_SLICE_MIN).clamp(1, at_once)
}

/// The slots of the level after one with `slots`.
fn next_slots(slots: u64) -> u64 {
    2 * (slots / CARRY_STEP + 1)
}

#[cfg(test)]
mod tests;
