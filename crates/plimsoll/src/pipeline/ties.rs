//! What holds jobs back beside their own demand: limits on how many are in a stage, or between two stages, at once.
//!
//! Each is a kind of slots in a child account of the pipeline's own, and a part of each job's profile. So it is in the same
//! vector as the bytes, is granted together with them, and cannot lock itself with them. As a child's limit it never holds
//! back anybody else's jobs.

use crate::{Budget, Ledger, Profile, Slots};

/// A job holds one of the slots from the beginning of one stage to the end of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tie {
    slots: Slots,
    count: u64,
    from: usize,
    to: usize,
}

/// All ties of a pipeline.
#[derive(Clone, Debug, Default)]
pub(super) struct Ties(Vec<Tie>);

impl Ties {
    /// At most `count` jobs at once are in the stages `from..=to`, of which the last is called `name`.
    pub(super) fn add(&mut self, name: &'static str, count: u64, from: usize, to: usize) -> Slots {
        let slots = Slots::new(slots_name(name));
        self.0.push(Tie { slots, count, from, to });
        slots
    }

    /// The ledger that jobs are taken on in: the given one where nothing will be tied.
    pub(super) fn ledger(&self, ledger: &Ledger, paced: bool) -> Ledger {
        if self.0.is_empty() && !paced {
            return ledger.clone();
        }
        ledger.child("pipeline", &self.0.iter().fold(Budget::new(), |budget, tie| budget.slots(tie.slots, tie.count)))
    }

    /// The profile with what the ties need on top.
    pub(super) fn with(&self, profile: &Profile) -> Profile {
        profile.with(|index, stage| {
            let (mut peak, mut keep) = (stage.peak.clone(), stage.keep.clone());
            for tie in &self.0 {
                if (tie.from..=tie.to).contains(&index) {
                    peak = peak.slots(tie.slots, 1);
                }
                if (tie.from..tie.to).contains(&index) {
                    keep = keep.slots(tie.slots, 1);
                }
            }
            (peak, keep)
        })
    }
}

/// A name of its own for slots of a stage, so that they are not taken for a user's slots of the same name.
#[cfg(not(plimsoll_loom))]
fn slots_name(stage: &'static str) -> &'static str {
    use std::collections::BTreeMap;
    use std::sync::OnceLock;

    use crate::sync::{Mutex, lock};

    // Leaked once for each name of a stage in the program's text, however many pipelines are built.
    static NAMES: OnceLock<Mutex<BTreeMap<&'static str, &'static str>>> = OnceLock::new();
    let names = NAMES.get_or_init(Mutex::default);
    lock(names).entry(stage).or_insert_with(|| String::leak(format!("jobs in {stage}")))
}

/// Models build a pipeline anew in each iteration, and have no statics.
#[cfg(plimsoll_loom)]
fn slots_name(stage: &'static str) -> &'static str {
    stage
}
