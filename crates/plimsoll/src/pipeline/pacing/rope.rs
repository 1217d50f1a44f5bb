//! Where ropes are tied: at the source, and at each stage that multiplies a job's bytes.

use std::collections::BTreeMap;

use crate::{Profile, Resource, Space};

/// A stretch of stages of which only so many jobs may be in at once: each holds a token from the grant of the first stage
/// to the end of the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rope {
    /// The stage that a job needs the token for.
    pub first: usize,
    /// The stage whose end returns it.
    pub last: usize,
}

impl Rope {
    /// Whether a job in this stage holds a token of the rope.
    pub fn spans(self, stage: usize) -> bool {
        (self.first..=self.last).contains(&stage)
    }

    /// The ropes of jobs with this profile: first that of the source, which spans everything, then one from each stage
    /// that multiplies the job's bytes to the stage that gives (most of) them back.
    ///
    /// A stage multiplies if it takes a space's bytes to half as much again as the job brought along, or more, and the
    /// increase is at least a quarter of the most that the job ever holds there: other ropes would cost and save nothing.
    ///
    /// Where such a stage also needs scratch beyond what it hands on, an eighth of that most or more, it has a rope of its own,
    /// so that no more jobs are in it at once than it takes: when the drum has run dry for a moment, whoever may multiply would
    /// otherwise do so side by side, with all the scratch that takes, and then wait for the drum together.
    pub fn of(profile: &Profile) -> Vec<Rope> {
        let stages = profile.stages();
        let mut ropes = vec![Rope { first: 0, last: stages.len().saturating_sub(1) }];
        for (peaks, keeps) in by_space(profile).values() {
            let most = peaks.iter().copied().max().unwrap_or(0);
            for first in 1..stages.len() {
                let (brought, peak) = (keeps[first - 1], peaks[first]);
                let increase = peak.saturating_sub(brought);
                if increase == 0 || increase < brought / 2 || increase < most / 4 {
                    continue;
                }
                let last = (first..stages.len()).find(|&stage| keeps[stage] <= brought + increase / 2);
                let rope = Rope { first, last: last.unwrap_or(stages.len() - 1) };
                let scratch = peak.saturating_sub(keeps[first]);
                let own = (rope.last > first && scratch >= most.div_ceil(8)).then_some(Rope { first, last: first });
                for rope in std::iter::once(rope).chain(own) {
                    if !ropes.contains(&rope) {
                        ropes.push(rope);
                    }
                }
            }
        }
        ropes
    }
}

/// Bytes at the peak of each stage and after it, by space.
pub(super) type BySpace = BTreeMap<Space, (Vec<u64>, Vec<u64>)>;

/// What a profile holds, space by space.
pub(super) fn by_space(profile: &Profile) -> BySpace {
    let count = profile.stages().len();
    let mut spaces = BySpace::new();
    for (at, stage) in profile.stages().iter().enumerate() {
        for (demand, is_peak) in [(&stage.peak, true), (&stage.keep, false)] {
            for (resource, bytes) in demand.iter() {
                let Resource::Class(class) = resource else { continue };
                for space in [Some(class.space()), class.space().within()].into_iter().flatten() {
                    let (peaks, keeps) = spaces.entry(space).or_insert_with(|| (vec![0; count], vec![0; count]));
                    let sum = if is_peak { &mut peaks[at] } else { &mut keeps[at] };
                    *sum = sum.saturating_add(bytes);
                }
            }
        }
    }
    spaces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Class, Demand};

    const A: Class = Class::new("a", Space::HOST);
    const D: Class = Class::new("d", Space::device(0));

    fn profile(stages: &[(u64, u64)]) -> Profile {
        let bytes = |n: u64| Demand::new().bytes(A, Bytes(n));
        stages.iter().fold(Profile::new(), |profile, &(peak, keep)| profile.stage("s", bytes(peak), bytes(keep)))
    }

    #[test]
    fn ropes_are_tied_where_bytes_multiply() {
        for (stages, inner) in [
            // The shape of a proof: witness, evaluation, device, finish.
            (&[(4, 4), (20, 16), (16, 4), (7, 0)][..], &[(1, 2), (1, 1)][..]),
            // Hardly any scratch.
            (&[(4, 4), (17, 16), (16, 4), (7, 0)], &[(1, 2)]),
            (&[(4, 4), (4, 4), (4, 0)], &[]),
            // A little more, or much more of a little.
            (&[(4, 4), (5, 0)], &[]),
            (&[(100, 1), (3, 0)], &[]),
            // Never given back.
            (&[(4, 4), (16, 16), (16, 16)], &[(1, 2)]),
            // Twice.
            (&[(1, 1), (10, 1), (1, 1), (10, 0)], &[(1, 1), (3, 3)]),
            (&[(1, 1)], &[]),
        ] {
            let ropes = Rope::of(&profile(stages));
            assert_eq!(ropes[0], Rope { first: 0, last: stages.len() - 1 });
            let found: Vec<_> = ropes[1..].iter().map(|rope| (rope.first, rope.last)).collect();
            assert_eq!(found, inner, "{stages:?}");
        }
    }

    #[test]
    fn each_space_is_looked_at_by_itself() {
        let host = Demand::new().bytes(A, Bytes(100));
        let both = host.clone().bytes(D, Bytes(5));
        let profile = Profile::new().stage("s", host.clone(), host.clone()).stage("t", both, host);
        assert_eq!(Rope::of(&profile)[1..], [Rope { first: 1, last: 1 }]);
    }
}
