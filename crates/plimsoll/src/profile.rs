//! A job's demand, stage by stage.

use std::sync::Arc;

use thiserror::Error;

use crate::{Demand, Resource};

/// A job's demand stage by stage, known before it starts and computed from its sizes.
///
/// Of each stage it says the `peak`, the most that the job holds while in the stage (what it brought along included),
/// and the `keep`, what it still holds afterwards. The last stage's `keep` is what the job leaves behind when it ends:
/// results that live on in the caller's hands until they are dropped.
///
/// ```
/// use plimsoll::{Bytes, Class, Demand, Profile, Space};
/// const AUX: Class = Class::new("aux", Space::HOST);
/// const PROVERS: Class = Class::new("provers", Space::HOST);
/// let aux = Demand::new().bytes(AUX, Bytes::GIB);
/// let profile = Profile::new()
///     .stage("synthesise", aux.clone(), aux.clone())
///     .stage("evaluate", aux.bytes(PROVERS, Bytes(3 << 30)), Demand::new());
/// assert!(profile.check().is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Profile {
    stages: Arc<Vec<StageProfile>>,
}

/// One stage of a [`Profile`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StageProfile {
    /// The stage's name, as reports show it.
    pub name: &'static str,
    /// The most that the job holds while in the stage.
    pub peak: Demand,
    /// What the job still holds afterwards.
    pub keep: Demand,
}

impl Profile {
    /// A job without stages yet.
    pub fn new() -> Profile {
        Profile::default()
    }

    /// Adds a stage at the end.
    #[must_use]
    pub fn stage(mut self, name: &'static str, peak: Demand, keep: Demand) -> Profile {
        Arc::make_mut(&mut self.stages).push(StageProfile { name, peak, keep });
        self
    }

    /// The stages in order.
    pub fn stages(&self) -> &[StageProfile] {
        &self.stages
    }

    /// Checks that the profile describes something that can happen.
    ///
    /// # Errors
    ///
    /// A profile has at least one stage; no stage keeps more of a resource than its peak, nor has a peak below what
    /// the stage before it kept.
    pub fn check(&self) -> Result<(), ProfileError> {
        if self.stages.is_empty() {
            return Err(ProfileError::NoStages);
        }
        let nothing = Demand::new();
        let mut brought = &nothing;
        for stage in self.stages.iter() {
            for (held, what) in [(brought, Held::Brought), (&stage.keep, Held::Kept)] {
                for (resource, amount) in held.iter() {
                    let peak = stage.peak.of(resource);
                    if amount > peak {
                        return Err(ProfileError::PeakTooLow { stage: stage.name, resource, peak, what, amount });
                    }
                }
            }
            brought = &stage.keep;
        }
        Ok(())
    }
}

/// Which holding of a stage lies above its declared peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// What the stage before it kept.
    Brought,
    /// What the stage itself keeps.
    Kept,
}

/// A profile that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// There is nothing to run.
    #[error("the profile has no stages; add at least one with Profile::stage")]
    NoStages,
    /// A stage holds more of a resource, at its start or at its end, than its peak says.
    #[error(
        "stage {stage} {} {}, above its declared peak of {peak}; \
         count what a stage brings along and keeps in its peak",
        if *what == Held::Brought { "starts with" } else { "keeps" },
        resource.amount(*amount)
    )]
    PeakTooLow {
        /// The stage.
        stage: &'static str,
        /// The resource.
        resource: Resource,
        /// Its amount in the stage's peak.
        peak: u64,
        /// Which holding lies above the peak.
        what: Held,
        /// That holding.
        amount: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bytes, Class, Space};

    const A: Class = Class::new("a", Space::HOST);

    fn bytes(n: u64) -> Demand {
        Demand::new().bytes(A, Bytes(n))
    }

    #[test]
    fn contradictions_are_named() {
        assert_eq!(Profile::new().check(), Err(ProfileError::NoStages));
        let keeps_too_much = Profile::new().stage("s", bytes(1), bytes(2));
        assert!(keeps_too_much.check().unwrap_err().to_string().starts_with("stage s keeps 2 B of a, above"));
        let brings_too_much = Profile::new().stage("s", bytes(2), bytes(2)).stage("t", bytes(1), bytes(0));
        assert!(brings_too_much.check().unwrap_err().to_string().starts_with("stage t starts with 2 B of a"));
        assert_eq!(Profile::new().stage("s", bytes(2), bytes(2)).stage("t", bytes(2), bytes(0)).check(), Ok(()));
    }
}
