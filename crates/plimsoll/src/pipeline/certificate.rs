//! What a budget means for a pipeline, computed before anything runs.

use std::collections::BTreeMap;

use crate::ledger::snapshot::Snapshot;
use crate::ledger::state::Kind;
use crate::{Bytes, Class, Demand, Profile, Resource, Slots, Space};

/// What a budget means for jobs of one profile: the least that makes progress, and the most that can pile up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The smallest limit of each space with which one job gets through: its claim.
    pub smallest_spaces: Vec<(Space, Bytes)>,
    /// The same of each kind of slots.
    pub smallest_slots: Vec<(Slots, u64)>,
    /// What can pile up behind each stage but the last, whatever the order of events.
    pub backlogs: Vec<Backlog>,
}

/// The most that can be produced by a stage and not yet consumed by the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// The stage.
    pub stage: &'static str,
    /// How many jobs; `None` if nothing that they keep is limited.
    pub jobs: Option<u64>,
    /// How many bytes of each class they then hold.
    pub bytes: Vec<(Class, Bytes)>,
}

impl Certificate {
    /// The certificate of jobs with this profile, alone under the limits that `ledger` shows.
    pub fn new(profile: &Profile, ledger: &Snapshot) -> Self {
        let mut smallest = BTreeMap::new();
        for stage in profile.stages() {
            for (kind, amount) in by_kind(&stage.peak) {
                let least: &mut u64 = smallest.entry(kind).or_default();
                *least = amount.max(*least);
            }
        }
        let (mut smallest_spaces, mut smallest_slots) = (Vec::new(), Vec::new());
        for (kind, amount) in smallest {
            match kind {
                Kind::Space(space) => smallest_spaces.push((space, Bytes(amount))),
                Kind::Slots(slots) => smallest_slots.push((slots, amount)),
            }
        }
        let consumed = profile.stages().split_last().map_or(&[][..], |(_last, before)| before);
        let backlogs = consumed.iter().map(|stage| backlog(stage.name, &stage.keep, ledger)).collect();
        Self { smallest_spaces, smallest_slots, backlogs }
    }
}

fn backlog(stage: &'static str, keep: &Demand, ledger: &Snapshot) -> Backlog {
    let jobs = by_kind(keep).into_iter().filter_map(|(kind, kept)| Some(limit(kind, ledger)? / kept)).min();
    let of_class = |(resource, kept)| match resource {
        Resource::Class(class) => Some((class, Bytes(kept).times(jobs.unwrap_or(u64::MAX)))),
        Resource::Slots(_) => None,
    };
    Backlog { stage, jobs, bytes: keep.iter().filter_map(of_class).collect() }
}

/// A demand by what limits it; pinned memory counts as host memory too.
fn by_kind(demand: &Demand) -> BTreeMap<Kind, u64> {
    let mut amounts = BTreeMap::new();
    let mut add = |kind, amount| {
        let sum: &mut u64 = amounts.entry(kind).or_default();
        *sum = sum.saturating_add(amount);
    };
    for (resource, amount) in demand.iter() {
        let kind = Kind::from(resource);
        add(kind, amount);
        if let Kind::Space(space) = kind
            && let Some(within) = space.within()
        {
            add(Kind::Space(within), amount);
        }
    }
    amounts
}

/// The root's limit; `None` where there is none.
fn limit(kind: Kind, ledger: &Snapshot) -> Option<u64> {
    let limit = match kind {
        Kind::Space(space) => ledger.space(space)?.target.0,
        Kind::Slots(_) => {
            ledger.slots.iter().find(|usage| usage.place.kind == kind && usage.place.child.is_none())?.limit
        }
    };
    (limit != u64::MAX).then_some(limit)
}
