//! What holds jobs back beside their own demand: limits on how many are in a stage, or between two stages, at once.
//!
//! Each is a kind of slots in a child account of the pipeline's own, and a part of each job's profile. So it is in the same
//! vector as the bytes, is granted together with them, and cannot lock itself with them. As a child's limit it never holds
//! back anybody else's jobs.

use std::collections::BTreeMap;

use crate::{Budget, Profile, Slots};

/// A job holds one of the slots from the beginning of one stage to the end of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tie {
    slots: Slots,
    count: u64,
    from: usize,
    to: usize,
}

/// All ties of a line of stages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ties {
    ties: Vec<Tie>,
    /// Those of the parts into which a stage splits its jobs.
    of_parts: BTreeMap<usize, Ties>,
}

impl Ties {
    /// At most `count` jobs at once are in the stages `from..=to`, of which the last is called `name`.
    pub(super) fn add(&mut self, name: &str, count: u64, from: usize, to: usize) -> Slots {
        let is_taken = |slots: &Slots| self.ties.iter().any(|tie| tie.slots == *slots);
        let slots = Slots::new(slots_name(name));
        // Stages may be called the same; their limits are their own.
        let slots = match is_taken(&slots) && !mutant!("namesakes-share-a-limit") {
            true => Slots::new(slots_name(&format!("{name}, stage {}", from + 1))),
            false => slots,
        };
        self.ties.push(Tie { slots, count, from, to });
        slots
    }

    /// Adds the ties of the parts into which the stage `at` splits its jobs.
    pub(super) fn add_parts(&mut self, at: usize, ties: Ties) {
        if ties != Ties::default() {
            self.of_parts.insert(at, ties);
        }
    }

    /// The budget with the ties' limits.
    pub(super) fn limits(&self, budget: Budget) -> Budget {
        let own = self.ties.iter().fold(budget, |budget, tie| budget.slots(tie.slots, tie.count));
        self.of_parts.values().fold(own, |budget, ties| ties.limits(budget))
    }

    /// The profile with what the ties need on top.
    pub(super) fn with(&self, profile: &Profile) -> Profile {
        if *self == Ties::default() {
            return profile.clone();
        }
        profile.map(|index, stage| {
            let mut tied = stage.clone();
            for tie in &self.ties {
                if (tie.from..=tie.to).contains(&index) {
                    tied.peak = tied.peak.slots(tie.slots, 1);
                }
                if (tie.from..tie.to).contains(&index) {
                    tied.keep = tied.keep.slots(tie.slots, 1);
                }
            }
            if let Some(ties) = self.of_parts.get(&index) {
                for parts in &mut tied.parts {
                    parts.profile = ties.with(&parts.profile);
                }
            }
            tied
        })
    }
}

/// A name of its own for slots of a stage, so that they are not taken for a user's slots of the same name.
#[cfg(not(plimsoll_loom))]
fn slots_name(stage: &str) -> &'static str {
    use std::collections::BTreeSet;
    use std::sync::OnceLock;

    use crate::sync::{Mutex, lock};

    // Leaked once for each name of a stage in the program's text, however many pipelines are built.
    static NAMES: OnceLock<Mutex<BTreeSet<&'static str>>> = OnceLock::new();
    let name = format!("jobs in {stage}");
    let mut names = lock(NAMES.get_or_init(Mutex::default));
    if let Some(known) = names.get(&*name) {
        return known;
    }
    let name = String::leak(name);
    names.insert(name);
    name
}

/// Models build a pipeline anew in each iteration, and have no statics.
#[cfg(plimsoll_loom)]
fn slots_name(stage: &str) -> &'static str {
    String::leak(format!("jobs in {stage}"))
}
