//! Before every stage has been seen to its end: how many jobs are let in while nothing is known of times.
//!
//! As many as keep the smallest station busy and one ahead of it; and, where bytes multiply further on, what is cheap: as many
//! as hold together, before they multiply, no more than one of them does at its peak, which has to be there anyway. Then one more for
//! each that comes out of the first stage, until a station further on has more before it than it serves at once: it may be the
//! drum, and what is made ahead of it only holds bytes.

use std::collections::BTreeMap;

use super::{Layout, Rope};
use crate::Space;

/// However cheap a job is before it multiplies, no more than this are let in before anything is known.
const AHEAD_MAX: u64 = 8;

/// What has been seen so far.
#[derive(Clone, Debug)]
pub(super) struct WarmUp {
    /// How often each stage has ended well.
    ended: Vec<u64>,
    /// How many more were let in than at the beginning.
    grown: u64,
}

impl WarmUp {
    pub(super) fn new(stages: usize) -> WarmUp {
        WarmUp { ended: vec![0; stages], grown: 0 }
    }

    /// Whether any stage has.
    pub(super) fn has_begun(&self) -> bool {
        self.ended.iter().any(|ended| *ended > 0)
    }

    /// A stage of a job has ended well.
    pub(super) fn stage_ended(&mut self, stage: usize, layout: &Layout) {
        self.ended[stage] += 1;
        if stage == 0 && (!self.is_saturated(layout) || mutant!("warm-up-past-a-queue")) {
            self.grown += 1;
        }
    }

    /// Whether a station beyond the first stage has more jobs at it, or on their way back to the ledger for it, than it serves at
    /// once. A job that was lost on the way counts there for good: then fewer are let in than might be, but never fewer than at the
    /// beginning.
    fn is_saturated(&self, layout: &Layout) -> bool {
        let mut at = vec![0; layout.stations.len()];
        for (pair, site) in self.ended.windows(2).zip(&layout.stages[1..]) {
            at[site.station] += pair[0].saturating_sub(pair[1]);
        }
        (0..at.len()).any(|station| layout.servers(station).is_some_and(|servers| at[station] > servers))
    }

    /// How many tokens the source's rope has, and each other one.
    pub(super) fn tokens(
        &self,
        layout: &Layout,
        ropes: &[Rope],
        bytes: &BTreeMap<(u32, Space), Vec<u64>>,
        limits: &BTreeMap<Space, u64>,
    ) -> (u64, u64) {
        let mut stations: Vec<usize> = layout.stages.iter().map(|site| site.station).collect();
        let first = stations[0];
        stations.sort_unstable();
        stations.dedup();
        let servers = |station: usize| layout.servers(station);
        if let (&[only], Some(servers)) = (&stations[..], servers(first)) {
            // What is served at once, from the beginning, and never more.
            debug_assert_eq!(only, first);
            return (servers, servers);
        }
        let start = 1 + stations.iter().filter_map(|&station| servers(station)).min().unwrap_or(1);
        let at_once: u64 = stations.iter().map(|&station| servers(station).unwrap_or(1)).sum();
        let multiplies = ropes[1..].iter().map(|rope| rope.first).min();
        let mut ahead = AHEAD_MAX.min(servers(first).unwrap_or(AHEAD_MAX));
        let mut fit = u64::MAX;
        let mut is_cheap = false;
        for (&(_, space), peaks) in bytes {
            let Some(before) = multiplies.and_then(|at| peaks[..at].iter().max()).filter(|before| **before > 0) else {
                continue;
            };
            let most = peaks.iter().max().copied().unwrap_or(0);
            is_cheap = true;
            ahead = ahead.min(most / before);
            if let Some(limit) = limits.get(&space).filter(|limit| **limit > 0) {
                // Room is left for those that multiply.
                fit = fit.min(limit.saturating_sub(start.saturating_mul(most - before)) / before);
            }
        }
        let begin = if is_cheap && !mutant!("warm-up-by-ones") { start.max(ahead) } else { start };
        let source = (begin + self.grown).min(at_once.max(begin)).min(fit.max(start));
        (source, start.min(source))
    }
}
