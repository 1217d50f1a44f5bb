//! A whole proof: the quotient, and five multiplications on one stream or on two.
//!
//! Two multiplications at once fill each other's gaps (the end of one has few threads), and take buckets and workspace twice.
//! What is handed in is laid out here: for each stream its own buckets and workspace, and behind the
//! workspaces a place for each multiplication's result, which is read when all are done. Points that pass through do so on one
//! stream, all by the same buffers in turn: with three of them the host is up to two chunks ahead, and what it does beside that (other
//! proofs' vectors) does not hold up the device; with two it is one ahead.

use plimsoll::Bytes;
use plimsoll_groth16::backend::CurveGroup;
use plimsoll_groth16::device::{DevicePlan, DeviceSizes, Residence};

use super::msm::{MsmPlan, Points, jacobian_bytes, point_bytes};
use super::ntt::{MAX_LOG_SIZE, workspace_bytes};
use super::{Layout, SCALAR_BYTES, Shape};

/// The multiplications of a proof, in the order of [`ProofPlan::msms`].
pub const H: usize = 0;
/// Of the private variables.
pub const L: usize = 1;
/// Of the a query.
pub const A: usize = 2;
/// Of the b query in G1.
pub const B_G1: usize = 3;
/// Of the b query in G2.
pub const B_G2: usize = 4;

/// Which multiplications go on which stream, when there are two: of about the same length together, the longest first.
const STREAMS: [&[usize]; 2] = [&[H, L, A], &[B_G2, B_G1]];
const ONE_STREAM: [&[usize]; 2] = [&[H, L, A, B_G1, B_G2], &[]];

/// How many ways to make a proof are offered, each with at most half the bytes of the one before.
const WAYS: usize = 6;

/// The most buffers that points pass through.
pub const BUFFERS_MAX: usize = 3;

/// How the multiplications come one after the other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    OneStream,
    TwoStreams,
    /// On one stream, with points that pass through so many buffers.
    Passing(usize),
}

/// One way to make a proof.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofPlan {
    /// The multiplications; `None` for one without terms.
    pub msms: [Option<MsmPlan>; 5],
    /// Whether two go on at once.
    pub two_streams: bool,
    /// For each stream, where its part of `device.buckets` and `device.workspace` begins.
    pub streams: [StreamAt; 2],
    /// Where the results lie in the workspace.
    pub results: [u64; 5],
    /// Where c lies in the workspace, which is its place until the quotient is made.
    pub product: u64,
    /// The buffers that points pass through: how many, and how large.
    pub buffers: (usize, u64),
    /// Which of them each multiplication's first points come to.
    pub turns: [usize; 5],
    /// The bytes of `device.points`.
    pub point_bytes: u64,
    /// The bytes of `device.buckets`.
    pub bucket_bytes: u64,
    /// The bytes of `device.workspace`.
    pub workspace_bytes: u64,
}

/// Where a stream's memory begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamAt {
    /// In `device.buckets`.
    pub buckets: u64,
    /// In `device.workspace`.
    pub workspace: u64,
}

impl ProofPlan {
    /// The plan with each multiplication the fastest within `each` bytes; `None` if one does not fit.
    fn new(sizes: &DeviceSizes, residence: Residence, way: Way, each: u64, shape: Shape) -> Option<Self> {
        let two_streams = way == Way::TwoStreams;
        if sizes.domain > 1 << MAX_LOG_SIZE || sizes.variables >= 1 << 31 {
            return None;
        }
        let points = match residence {
            Residence::Resident => Points::Resident,
            Residence::Streamed => Points::Streamed,
        };
        let terms = [sizes.h, sizes.l, sizes.a, sizes.b, sizes.b];
        let mut msms = [const { None }; 5];
        for (at, (terms, msm)) in terms.into_iter().zip(&mut msms).enumerate() {
            let group = if at == B_G2 { CurveGroup::G2 } else { CurveGroup::G1 };
            if terms > 0 {
                *msm = Some(MsmPlan::fastest(group, terms, points, shape, each)?);
            }
        }
        let mut layouts = [Layout::default(), Layout::default(), Layout::default()];
        let mut streams = [StreamAt::default(); 2];
        for (members, stream) in Self::members(two_streams).iter().zip(&mut streams) {
            let most = |bytes: fn(&MsmPlan) -> u64| {
                members.iter().filter_map(|&at| msms[at].as_ref()).map(bytes).max().unwrap_or(0)
            };
            stream.buckets = layouts[1].place(most(|msm| msm.bucket_bytes));
            stream.workspace = layouts[2].place(most(|msm| msm.workspace_bytes));
        }
        // The quotient comes before all of them, in the same memory.
        let product = super::aligned(workspace_bytes(true));
        layouts[2].end = layouts[2].end.max(product + sizes.domain * SCALAR_BYTES);
        let (buffers, turns) = passing(way, &msms);
        layouts[0].end = buffers.0 as u64 * buffers.1;
        let mut results = [0; 5];
        for (result, msm) in results.iter_mut().zip(&msms) {
            let bytes = msm.as_ref().map_or(0, |msm| u64::from(msm.windows) * jacobian_bytes(msm.group));
            *result = layouts[2].place(bytes);
        }
        let [point_bytes, bucket_bytes, workspace_bytes] = layouts.map(|layout| layout.end);
        Some(Self {
            msms,
            two_streams,
            streams,
            results,
            product,
            buffers,
            turns,
            point_bytes,
            bucket_bytes,
            workspace_bytes,
        })
    }

    /// Which multiplications go on which stream.
    pub fn members(two_streams: bool) -> &'static [&'static [usize]; 2] {
        if two_streams { &STREAMS } else { &ONE_STREAM }
    }

    /// Of all classes.
    pub fn bytes(&self) -> u64 {
        super::aligned(self.point_bytes) + super::aligned(self.bucket_bytes) + super::aligned(self.workspace_bytes)
    }

    /// About how long it takes, in seconds; see [`MsmPlan::seconds`].
    pub fn seconds(&self, shape: Shape) -> f64 {
        let all: f64 = self.msms.iter().flatten().map(|msm| msm.seconds(shape)).sum();
        match self.buffers.0 {
            // Now and then the device waits for the host.
            2 => all * 1.03,
            _ if self.two_streams => all * 0.92,
            _ => all,
        }
    }

    /// The fastest within `memory`; `None` if there is none.
    pub fn fastest(sizes: &DeviceSizes, residence: Residence, memory: u64, shape: Shape) -> Option<Self> {
        let ways: &[Way] = match residence {
            // They come one after the other, so a second stream would only wait.
            Residence::Streamed => &[Way::Passing(3), Way::Passing(2)],
            Residence::Resident => &[Way::TwoStreams, Way::OneStream],
        };
        let candidates = ways.iter().flat_map(|&way| {
            // Of what each multiplication may take, the largest with which all fit: the halves are near enough.
            let mut each = memory;
            std::iter::from_fn(move || {
                let plan = Self::new(sizes, residence, way, each, shape);
                each = each * 3 / 4;
                Some(plan)
            })
            .take(24)
            .flatten()
            .find(|plan| plan.bytes() <= memory)
        });
        candidates.min_by(|a, b| a.seconds(shape).total_cmp(&b.seconds(shape)))
    }

    /// Ways within `memory`, the fastest first, each of the others with at most half of the bytes.
    pub fn ways(sizes: &DeviceSizes, residence: Residence, memory: Bytes, shape: Shape) -> Vec<DevicePlan<Self>> {
        let mut ways = Vec::new();
        let mut memory = memory.0;
        while ways.len() < WAYS
            && let Some(plan) = Self::fastest(sizes, residence, memory, shape)
        {
            memory = plan.bytes() / 2;
            ways.push(DevicePlan {
                points: Bytes(plan.point_bytes),
                buckets: Bytes(plan.bucket_bytes),
                workspace: Bytes(plan.workspace_bytes),
                plan,
            });
        }
        ways
    }
}

/// The buffers that points pass through, and in which of them each multiplication begins.
fn passing(way: Way, msms: &[Option<MsmPlan>; 5]) -> ((usize, u64), [usize; 5]) {
    let mut turns = [0; 5];
    let Way::Passing(count) = way else { return ((0, 0), turns) };
    let mut chunks = 0;
    for &at in ONE_STREAM[0] {
        turns[at] = (chunks % count as u64) as usize;
        chunks += msms[at].as_ref().map_or(0, MsmPlan::chunks);
    }
    let chunk = |msm: &MsmPlan| super::aligned(msm.choice.chunk * point_bytes(msm.group));
    ((count, msms.iter().flatten().map(chunk).max().unwrap_or(0)), turns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(log: u32) -> DeviceSizes {
        let domain = 1 << log;
        DeviceSizes {
            domain,
            variables: domain - 1,
            inputs: 2,
            h: domain - 1,
            l: domain - 3,
            a: domain - 1,
            b: domain - 1,
        }
    }

    #[test]
    fn streams_do_not_share_memory_and_results_lie_behind_it() {
        for residence in [Residence::Resident, Residence::Streamed] {
            for memory in [1 << 28, 1 << 30, 1 << 33] {
                for way in ProofPlan::ways(&dense(20), residence, Bytes(memory), Shape::HOPPER) {
                    let plan = way.plan;
                    assert!(plan.bytes() <= memory);
                    let ends = [plan.streams[1].buckets, plan.streams[1].workspace];
                    for &at in ProofPlan::members(plan.two_streams)[0] {
                        let msm = plan.msms[at].as_ref().expect("it has terms");
                        assert!(msm.bucket_bytes <= ends[0] && msm.workspace_bytes <= ends[1]);
                    }
                    for &at in ProofPlan::members(plan.two_streams)[1] {
                        let msm = plan.msms[at].as_ref().expect("it has terms");
                        assert!(ends[0] + msm.bucket_bytes <= plan.bucket_bytes);
                        assert!(ends[1] + msm.workspace_bytes <= plan.results[0]);
                    }
                    assert!(plan.results.is_sorted());
                    assert!(workspace_bytes(true) <= plan.product && plan.product + (32 << 20) <= plan.results[0]);
                }
            }
        }
    }

    /// From the first multiplication's first chunk to the last one's last: no chunk comes where the one before it is.
    #[test]
    fn points_that_pass_through_take_turns_across_multiplications() {
        for memory in [1 << 28, 1 << 30, 1 << 33] {
            for way in ProofPlan::ways(&dense(20), Residence::Streamed, Bytes(memory), Shape::HOPPER) {
                let plan = way.plan;
                assert!(!plan.two_streams);
                let (count, bytes) = plan.buffers;
                assert!((2..=BUFFERS_MAX).contains(&count));
                let mut next = 0;
                for &at in ProofPlan::members(false)[0] {
                    let msm = plan.msms[at].as_ref().expect("it has terms");
                    assert_eq!(plan.turns[at], next);
                    next = (next + msm.chunks() as usize) % count;
                    assert!(msm.choice.chunk * point_bytes(msm.group) <= bytes);
                }
                assert_eq!(plan.point_bytes, count as u64 * bytes);
            }
        }
    }

    #[test]
    fn a_small_memory_makes_the_same_proof_more_slowly() {
        for (log, smallest) in [(16, 64 << 20), (20, 160 << 20), (22, 256 << 20)] {
            let ways = ProofPlan::ways(&dense(log), Residence::Streamed, Bytes(64 << 30), Shape::HOPPER);
            assert!(ways.len() >= 2);
            for pair in ways.windows(2) {
                assert!(pair[1].plan.bytes() <= pair[0].plan.bytes() / 2);
                assert!(pair[1].plan.seconds(Shape::HOPPER) >= pair[0].plan.seconds(Shape::HOPPER));
            }
            let small = ProofPlan::fastest(&dense(log), Residence::Streamed, smallest, Shape::HOPPER);
            assert!(small.is_some(), "2^{log}");
        }
    }

    #[test]
    fn what_the_kernels_cannot_index_has_no_plan() {
        assert!(ProofPlan::ways(&dense(29), Residence::Streamed, Bytes(1 << 40), Shape::HOPPER).is_empty());
        assert!(ProofPlan::ways(&dense(20), Residence::Resident, Bytes(1 << 20), Shape::HOPPER).is_empty());
    }
}
