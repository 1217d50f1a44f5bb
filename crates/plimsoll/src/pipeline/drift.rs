//! Drift: what stages really held, against what was declared for them; and what is learned from it for later jobs.
//!
//! A stage's peak is computed from sizes by whoever wrote the stage, and may be wrong. What a run took from its grant at
//! most, or asked for in vain, is put in relation to what was declared; and what the job still held after the stage to what it
//! was to keep, or, where nothing was, to the peak. The largest relation of the last [`WINDOW`] runs of
//! a stage corrects what later jobs are admitted with: upwards always, downwards only if that was asked for, and never because of
//! runs that failed; what is kept only upwards, for a stage that keeps too much leaves too little room for the next one, which is
//! then given as much more. A correction
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
    /// What it is about.
    pub of: DriftOf,
    /// What the job's profile declared.
    pub declared: Bytes,
    /// The most that it held, or would have held had it got what it asked for; or what the job still held after the stage.
    pub held: Bytes,
    /// Of how many runs.
    pub runs: usize,
}

/// What of a stage's declaration was held against what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DriftOf {
    /// The most that it holds.
    Peak,
    /// What the job still holds after it.
    Keep,
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
    /// Of a keep that was not declared: the peak.
    beside: u64,
}

impl Seen {
    /// Whether it held relatively more than the other.
    fn is_above(&self, other: &Seen) -> bool {
        let (mine, others) = (self.measure(), other.measure());
        u128::from(self.held) * u128::from(others) > u128::from(other.held) * u128::from(mine)
    }

    /// What is scaled.
    fn measure(&self) -> u64 {
        if self.declared > 0 { self.declared } else { self.beside }.max(1)
    }

    fn correct(&self, declared: u64, beside: u64) -> u64 {
        let measure = if self.declared > 0 { declared } else { beside };
        let corrected = (u128::from(measure) * u128::from(self.held)).div_ceil(u128::from(self.measure()));
        u64::try_from(corrected).unwrap_or(u64::MAX)
    }
}

/// The drift of all stages of a pipeline.
#[derive(Debug)]
pub(super) struct Drifts {
    learning: Learning,
    seen: Mutex<Runs>,
}

/// The last runs, by stage, class, and what of it.
type Runs = BTreeMap<(usize, Class, DriftOf), VecDeque<Seen>>;

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
            self.note((index, class, DriftOf::Peak), Seen { declared: peak, held, beside: peak });
        }
    }

    /// A stage has ended well: what the job holds now, what it hands on included.
    pub(super) fn kept(&self, index: usize, declared: &StageProfile, held: &[(Resource, u64)]) {
        for &(resource, held) in held {
            let Resource::Class(class) = resource else { continue };
            let (keep, own) = (declared.keep.of(class), declared.own(resource));
            // Too little is no harm, and what parts leave is theirs to say.
            if own > 0 && declared.parts.is_empty() && !mutant!("keeps-are-not-learned") {
                self.note((index, class, DriftOf::Keep), Seen { declared: keep, held: held.max(keep), beside: own });
            }
        }
    }

    fn note(&self, of: (usize, Class, DriftOf), run: Seen) {
        let mut seen = lock(&self.seen);
        let runs = seen.entry(of).or_default();
        if runs.len() == WINDOW {
            runs.pop_front();
        }
        runs.push_back(run);
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

    fn corrected(&self, seen: &Runs, profile: &Profile) -> Profile {
        // What the stage before keeps beyond what was declared, by class.
        let mut more: Vec<(Class, u64)> = Vec::new();
        let stages = profile.stages().iter().enumerate().map(|(index, stage)| {
            let nothing = Demand::new();
            let brought = index.checked_sub(1).map_or(&nothing, |before| &profile.stages()[before].keep);
            let brings = std::mem::take(&mut more);
            let more_brought = |class| brings.iter().find(|entry| entry.0 == class).map_or(0, |entry| entry.1);
            let learned_keep = |class: Class| {
                let declared = stage.keep.of(class);
                let runs = seen.get(&(index, class, DriftOf::Keep)).and_then(worst_of);
                runs.map_or(declared, |seen| seen.correct(declared, stage.own(class.into()))).max(declared)
            };
            let mut peak = Demand::new();
            let mut keep = stage.keep.clone();
            for (resource, declared) in stage.peak.iter() {
                let Resource::Class(class) = resource else {
                    let Resource::Slots(slots) = resource else { unreachable!("a resource is one of two") };
                    peak = peak.slots(slots, declared);
                    continue;
                };
                let runs = seen.get(&(index, class, DriftOf::Peak));
                let learned =
                    runs.and_then(|runs| self.learned(runs)).map_or(declared, |s| s.correct(declared, declared));
                let kept = learned_keep(class);
                let beyond = kept - stage.keep.of(class);
                if beyond > 0 {
                    keep = keep.bytes(class, Bytes(beyond));
                    more.push((class, beyond));
                }
                // A peak is never below what is brought along, or kept and not left by parts.
                let left_by_parts = stage.own(resource).saturating_sub(declared);
                let least = brought.of(class).saturating_add(more_brought(class));
                let learned = if learned > declared { learned } else { learned.saturating_add(more_brought(class)) };
                peak = peak.bytes(class, Bytes(learned.max(least).max(kept.saturating_sub(left_by_parts))));
            }
            for &(class, beyond) in brings.iter().filter(|(class, _)| stage.peak.of(*class) == 0) {
                // Brought along without being named here.
                peak = peak.bytes(class, Bytes(beyond));
            }
            StageProfile { peak, keep, ..stage.clone() }
        });
        let stages: Vec<_> = stages.collect();
        profile.map(|index, _| stages[index].clone())
    }

    fn learned(&self, runs: &VecDeque<Seen>) -> Option<Seen> {
        let worst = worst_of(runs)?;
        let less = worst.held < worst.declared;
        let known = mutant!("correction-below-declared")
            || !less
            || (self.learning == Learning::MoreAndLess && runs.len() == WINDOW);
        known.then_some(worst)
    }

    pub(super) fn report(&self, index: usize, stage: &'static str) -> Vec<Drift> {
        let seen = lock(&self.seen);
        let drift = |(&(_, class, of), runs): (&(usize, Class, DriftOf), &VecDeque<Seen>)| {
            let worst = worst_of(runs)?;
            let (declared, held) = (Bytes(worst.declared), Bytes(worst.held));
            Some(Drift { stage, class, of, declared, held, runs: runs.len() })
        };
        seen.iter().filter(|((of, ..), _)| *of == index).filter_map(drift).collect()
    }
}

fn worst_of(runs: &VecDeque<Seen>) -> Option<Seen> {
    runs.iter().copied().reduce(|worst, seen| if seen.is_above(&worst) { seen } else { worst })
}
