//! A job's demand, stage by stage.

use std::sync::Arc;

use thiserror::Error;

use crate::{Demand, Resource, Space};

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
    /// The parts of the job that may run while it is in this stage, beside what the job itself holds.
    pub parts: Vec<Parts>,
}

/// So many parts of one shape, for which a stage of their parent makes room: see [`Profile::parts`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Parts {
    /// How many there are.
    pub count: u64,
    /// What the largest of them needs.
    pub profile: Profile,
}

impl StageProfile {
    /// The most that the job itself holds of a resource in this stage: its peak, and what its parts have left to it.
    pub(crate) fn own(&self, resource: Resource) -> u64 {
        let left = self.parts.iter().map(|parts| parts.profile.leaves(resource).saturating_mul(parts.count));
        left.fold(self.peak.of(resource), u64::saturating_add)
    }
}

impl Profile {
    /// A job without stages yet.
    pub fn new() -> Profile {
        Profile::default()
    }

    /// Adds a stage at the end.
    #[must_use]
    pub fn stage(mut self, name: &'static str, peak: Demand, keep: Demand) -> Profile {
        Arc::make_mut(&mut self.stages).push(StageProfile { name, peak, keep, parts: Vec::new() });
        self
    }

    /// Makes room in the last stage for `count` parts that need no more than `part`: jobs of their own that are submitted
    /// with [`JobSpec::part_of`](crate::JobSpec::part_of) while this one is in flight. What a part leaves behind is this
    /// job's from the moment in which the part ends, so the stage may keep it.
    ///
    /// The room is as much as it takes to run them one after another: the results of all of them and the largest one
    /// without its own. More run at the same time when there is more free. Calls for parts of different shapes add up.
    ///
    /// ```
    /// use plimsoll::{Bytes, Class, Demand, Profile, Space};
    /// const CIRCUIT: Class = Class::new("circuit", Space::HOST);
    /// const ABC: Class = Class::new("abc", Space::HOST);
    /// const PROOFS: Class = Class::new("proofs", Space::HOST);
    /// let (circuit, proof) = (Demand::new().bytes(CIRCUIT, Bytes(2)), Demand::new().bytes(PROOFS, Bytes(1)));
    /// let partition = Profile::new().stage("prove", Demand::new().bytes(ABC, Bytes(16)).bytes(PROOFS, Bytes(1)), proof);
    /// let proofs = Demand::new().bytes(PROOFS, Bytes(10));
    /// // In the first stage, 2 are held by the job itself, and up to 9 + 17 by its ten partitions.
    /// let job = Profile::new()
    ///     .stage("prove partitions", circuit, proofs.clone())
    ///     .parts(10, &partition)
    ///     .stage("assemble", proofs, Demand::new());
    /// assert!(job.check().is_ok());
    /// ```
    ///
    /// # Panics
    ///
    /// Without a stage to belong to.
    #[must_use]
    pub fn parts(mut self, count: u64, part: &Profile) -> Profile {
        let stage = Arc::make_mut(&mut self.stages).last_mut().expect("parts belong to a stage; add one first");
        if count > 0 {
            stage.parts.push(Parts { count, profile: part.clone() });
        }
        self
    }

    /// Whether it is a clone of the other one, without a look at what it says.
    pub(crate) fn is_same(&self, other: &Profile) -> bool {
        Arc::ptr_eq(&self.stages, &other.stages)
    }

    /// What a job with this profile leaves behind of a resource when it ends. Slots are not left behind.
    pub(crate) fn leaves(&self, resource: Resource) -> u64 {
        match (resource, self.stages.last()) {
            (Resource::Class(_), Some(last)) => last.keep.of(resource),
            _ => 0,
        }
    }

    /// The profile with other stages in the place of each.
    pub(crate) fn map(&self, with: impl Fn(usize, &StageProfile) -> StageProfile) -> Profile {
        let with = |(index, stage): (usize, &StageProfile)| with(index, stage);
        Profile { stages: Arc::new(self.stages.iter().enumerate().map(with).collect()) }
    }

    /// The profile with other demands, peak and keep.
    pub(crate) fn with(&self, of: impl Fn(usize, &StageProfile) -> (Demand, Demand)) -> Profile {
        let with = |(index, stage): (usize, &StageProfile)| {
            let (peak, keep) = of(index, stage);
            StageProfile { peak, keep, ..stage.clone() }
        };
        Profile { stages: Arc::new(self.stages.iter().enumerate().map(with).collect()) }
    }

    /// The stages in order.
    pub fn stages(&self) -> &[StageProfile] {
        &self.stages
    }

    /// Whether a stage, or one of its parts, needs something of a device: its memory, a lane, the lease.
    pub fn is_on(&self, device: u16) -> bool {
        let of_it = |(resource, _): (Resource, u64)| match resource {
            Resource::Class(class) => class.space() == Space::device(device),
            Resource::Slots(slots) => slots.device() == Some(device),
        };
        let stage_is = |stage: &StageProfile| {
            stage.peak.iter().any(of_it) || stage.parts.iter().any(|parts| parts.profile.is_on(device))
        };
        self.stages.iter().any(stage_is)
    }

    /// Checks that the profile describes something that can happen.
    ///
    /// # Errors
    ///
    /// A profile has at least one stage; no stage keeps more of a resource than its peak and what its parts leave to it,
    /// nor has a peak below what the stage before it kept. The same goes for the profiles of parts.
    pub fn check(&self) -> Result<(), ProfileError> {
        if self.stages.is_empty() {
            return Err(ProfileError::NoStages);
        }
        let nothing = Demand::new();
        let mut brought = &nothing;
        for stage in self.stages.iter() {
            for parts in &stage.parts {
                parts.profile.check()?;
            }
            for (held, what) in [(brought, Held::Brought), (&stage.keep, Held::Kept)] {
                for (resource, amount) in held.iter() {
                    let peak = if what == Held::Kept { stage.own(resource) } else { stage.peak.of(resource) };
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
