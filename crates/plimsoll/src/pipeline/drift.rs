//! Drift: what stages really held, against what was declared for them; and what is learned from it for later jobs.
//!
//! A stage's peak is computed from sizes by whoever wrote the stage, and may be wrong. What a run took from its grant at
//! most, or asked for in vain, is put in relation to what was declared. The largest relation of the last [`WINDOW`] runs of
//! a stage corrects what later jobs are admitted with: upwards always, downwards only if that was asked for, and never because of
//! runs that failed. A correction
//! never makes a job impossible that would fit as declared, and one odd job is forgotten after [`WINDOW`] others.

use std::collections::{BTreeMap, VecDeque};

use crate::sync::{Mutex, lock};
use crate::{Bytes, Class, Demand, Grant, Profile, Resource, StageProfile};

/// How many runs of a stage a correction is learned from.
pub const WINDOW: usize = 32;

/// What is learned from drift.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Learning {
    /// Nothing; it is only reported.
    Nothing,
    /// Stages that held more than was declared are given more.
    #[default]
    More,
    /// Also, stages that held less in each of the last [`WINDOW`] runs are given less, and more of them fit.
    MoreAndLess,
}

/// What a stage held of a class, against what was declared for it, in the one of its last [`WINDOW`] runs in which the
/// relation of the two was the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The stage.
    pub stage: &'static str,
    /// The class.
    pub class: Class,
    /// What the job's profile declared as the stage's peak.
    pub declared: Bytes,
    /// The most that it held, or would have held had it got what it asked for.
    pub held: Bytes,
    /// Of how many runs.
    pub runs: usize,
}

impl Drift {
    /// More was needed than was declared.
    pub fn is_short(&self) -> bool {
        self.held > self.declared
    }
}

/// What one run held, against what was declared.
#[derive(Clone, Copy, Debug)]
struct Seen {
    declared: u64,
    held: u64,
}

impl Seen {
    /// Whether it held relatively more than the other.
    fn is_above(&self, other: &Seen) -> bool {
        u128::from(self.held) * u128::from(other.declared) > u128::from(other.held) * u128::from(self.declared)
    }

    fn correct(&self, declared: u64) -> u64 {
        let corrected = (u128::from(declared) * u128::from(self.held)).div_ceil(u128::from(self.declared));
        u64::try_from(corrected).unwrap_or(u64::MAX)
    }
}

/// The drift of all stages of a pipeline.
#[derive(Debug)]
pub(super) struct Drifts {
    learning: Learning,
    seen: Mutex<BTreeMap<(usize, Class), VecDeque<Seen>>>,
}

impl Drifts {
    pub(super) fn new(learning: Learning) -> Self {
        Self { learning, seen: Mutex::new(BTreeMap::new()) }
    }

    /// A run of a stage has ended. `declared` is its profile as the user made it, `granted` the one it was admitted with.
    /// One that failed (not `well`) may have done so before it took what it needs: it counts if it asked for more than it was given.
    pub(super) fn ran(&self, index: usize, declared: &StageProfile, granted: &StageProfile, grant: &Grant, well: bool) {
        for (resource, peak) in declared.peak.iter() {
            let Resource::Class(class) = resource else { continue };
            // What it brought along is the peak that was admitted, less what came with the grant.
            let brought = granted.peak.of(class).saturating_sub(grant.given(class).0);
            let held = brought.saturating_add(grant.used(class).0);
            if !well && grant.used(class) <= grant.given(class) && !mutant!("less-from-failed-runs") {
                continue;
            }
            let mut seen = lock(&self.seen);
            let runs = seen.entry((index, class)).or_default();
            if runs.len() == WINDOW {
                runs.pop_front();
            }
            runs.push_back(Seen { declared: peak, held });
        }
    }

    /// The profiles as they should have been declared, by what is known now; `None` if as they are.
    pub(super) fn correct(&self, profiles: &[Profile]) -> Option<Vec<Profile>> {
        if self.learning == Learning::Nothing {
            return None;
        }
        let seen = lock(&self.seen);
        if seen.is_empty() {
            return None;
        }
        let corrected: Vec<Profile> = profiles.iter().map(|profile| self.corrected(&seen, profile)).collect();
        (corrected != profiles).then_some(corrected)
    }

    fn corrected(&self, seen: &BTreeMap<(usize, Class), VecDeque<Seen>>, profile: &Profile) -> Profile {
        profile.map(|index, stage| {
            let nothing = Demand::new();
            let brought = index.checked_sub(1).map_or(&nothing, |before| &profile.stages()[before].keep);
            let peak = stage.peak.iter().fold(Demand::new(), |peak, (resource, declared)| match resource {
                Resource::Slots(slots) => peak.slots(slots, declared),
                Resource::Class(class) => {
                    let runs = seen.get(&(index, class));
                    let learned = runs.and_then(|runs| self.learned(runs)).map_or(declared, |s| s.correct(declared));
                    // A peak is never below what is brought along, or kept and not left by parts.
                    let left_by_parts = stage.own(resource).saturating_sub(declared);
                    let kept = stage.keep.of(class).saturating_sub(left_by_parts);
                    peak.bytes(class, Bytes(learned.max(brought.of(class)).max(kept)))
                }
            });
            StageProfile { peak, ..stage.clone() }
        })
    }

    fn learned(&self, runs: &VecDeque<Seen>) -> Option<Seen> {
        let worst = worst(runs)?;
        let less = worst.held < worst.declared;
        let known = mutant!("correction-below-declared")
            || !less
            || (self.learning == Learning::MoreAndLess && runs.len() == WINDOW);
        known.then_some(worst)
    }

    pub(super) fn report(&self, index: usize, stage: &'static str) -> Vec<Drift> {
        let seen = lock(&self.seen);
        let drift = |(&(_, class), runs): (&(usize, Class), &VecDeque<Seen>)| {
            let worst = worst(runs)?;
            let (declared, held) = (Bytes(worst.declared), Bytes(worst.held));
            Some(Drift { stage, class, declared, held, runs: runs.len() })
        };
        seen.iter().filter(|((of, _), _)| *of == index).filter_map(drift).collect()
    }
}

fn worst(runs: &VecDeque<Seen>) -> Option<Seen> {
    runs.iter().copied().reduce(|worst, seen| if seen.is_above(&worst) { seen } else { worst })
}
