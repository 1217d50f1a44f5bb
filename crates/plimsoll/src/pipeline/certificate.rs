//! What a budget means for a pipeline, computed before anything runs.
//!
//! Three of its numbers follow from the profile and the limits alone, and hold in every order of events: the smallest budget
//! with which a job gets through, the most that can pile up behind a stage, and the most that is held at all. The fourth, how
//! fast it will go, follows from times as well.
//!
//! **The backlog.** Let j jobs have left stage i, holding k each, and not have begun the next one, from which on a job claims
//! c. The ledger keeps a state from which everybody can finish, one after another. When the first of the j has its turn the
//! others still hold k each, so (j − 1)·k + c is not above the limit.

use std::collections::BTreeMap;
use std::fmt;

use super::pacing::Work;
use crate::ledger::state::Kind;
use crate::observe::quoted;
use crate::{Budget, Bytes, Class, Demand, Profile, Resource, Slots, Space, StageProfile};

/// What a budget means for jobs of one profile: the least that makes progress, the most that can pile up, and how fast it
/// will go.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Certificate {
    /// The smallest limit of each space with which one job gets through: its claim.
    pub smallest_spaces: Vec<(Space, Bytes)>,
    /// The same of each kind of slots.
    pub smallest_slots: Vec<(Slots, u64)>,
    /// What of that the budget does not have: empty where the pipeline makes progress.
    pub obstacles: Vec<Obstacle>,
    /// What can pile up behind each stage but the last, whatever the order of events.
    pub backlogs: Vec<Backlog>,
    /// The most that jobs can hold in each space: its limit, unless fewer jobs may be under way. `None` without a limit.
    pub peaks: Vec<(Space, Option<Bytes>)>,
    /// How many jobs keep the slowest station busy, and how fast that is. `None` while nothing is known of times.
    pub work: Option<Work>,
}

/// What a job needs in a stage and the budget does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// The stage that needs the most.
    pub stage: &'static str,
    /// What most of that is.
    pub resource: Resource,
    /// How much the stage needs: bytes of the resource's space, or slots.
    pub needed: u64,
    /// How much the budget has.
    pub limit: u64,
}

/// The most that can be produced by a stage and not yet consumed by the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// The stage.
    pub stage: &'static str,
    /// How many jobs, if they hold what they declared; `None` if nothing that they keep is limited.
    pub jobs: Option<u64>,
    /// How many bytes of each class they then hold.
    pub bytes: Vec<(Class, Bytes)>,
}

impl Certificate {
    /// The certificate of jobs with this profile, alone in this budget.
    pub fn new(profile: &Profile, budget: &Budget) -> Self {
        Self::within(profile, |kind| Self::limit_in(budget, kind), None)
    }

    pub(super) fn limit_in(budget: &Budget, kind: Kind) -> Option<u64> {
        match kind {
            _ if budget.unlimited => None,
            Kind::Space(space) => Some(budget.limit(space).map_or(0, |limit| limit.0)),
            Kind::Slots(slots) => Some(budget.slots_of(slots).unwrap_or(0)),
        }
    }

    /// The same, with limits from elsewhere (`None` for none) and at most so many jobs under way.
    pub(super) fn within(profile: &Profile, limit: impl Fn(Kind) -> Option<u64>, at_most: Option<u64>) -> Self {
        let claims = claims(profile);
        let whole = claims.first().cloned().unwrap_or_default();
        let (mut smallest_spaces, mut smallest_slots, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
        for (&kind, &claim) in &whole {
            match kind {
                Kind::Space(space) => {
                    smallest_spaces.push((space, Bytes(claim)));
                    let jobs = at_most.map(|jobs| claim.saturating_mul(jobs));
                    peaks.push((space, [limit(kind), jobs].into_iter().flatten().min().map(Bytes)));
                }
                Kind::Slots(slots) => smallest_slots.push((slots, claim)),
            }
        }
        let short =
            whole.iter().filter_map(|(&kind, &needed)| Some((kind, needed, limit(kind).filter(|has| *has < needed)?)));
        let obstacles = short.map(|(kind, needed, limit)| obstacle(profile, kind, needed, limit)).collect();
        let behind = profile.stages().iter().zip(claims.iter().skip(1));
        let backlogs = behind.map(|(stage, next)| backlog(stage.name, &stage.keep, next, &limit, at_most)).collect();
        Self { smallest_spaces, smallest_slots, obstacles, backlogs, peaks, work: None }
    }

    /// Whether the pipeline makes progress: there are no [obstacles](Certificate::obstacles).
    pub fn makes_progress(&self) -> bool {
        self.obstacles.is_empty()
    }

    /// The certificate as one line of JSON. Bytes are plain numbers; what has no limit is `null`.
    pub fn json(&self) -> String {
        let list = |items: Vec<String>| format!("[{}]", items.join(","));
        let number = |n: Option<u64>| n.map_or("null".to_owned(), |n| n.to_string());
        let space = |space: Space| quoted(&space.key().to_string()).to_string();
        let smallest =
            self.smallest_spaces.iter().map(|(at, n)| format!(r#"{{"space":{},"bytes":{}}}"#, space(*at), n.0));
        let slots = |slots: Slots| quoted(&slots.key().to_string()).to_string();
        let smallest_slots =
            self.smallest_slots.iter().map(|(of, n)| format!(r#"{{"slots":{},"count":{n}}}"#, slots(*of)));
        let peaks = self
            .peaks
            .iter()
            .map(|(at, n)| format!(r#"{{"space":{},"bytes":{}}}"#, space(*at), number(n.map(|n| n.0))));
        let obstacles = self.obstacles.iter().map(|Obstacle { stage, resource, needed, limit }| {
            format!(
                r#"{{"stage":{},"resource":{},"needed":{needed},"limit":{limit}}}"#,
                quoted(stage),
                quoted(&resource.to_string())
            )
        });
        let backlogs = self.backlogs.iter().map(|Backlog { stage, jobs, bytes }| {
            let bytes =
                bytes.iter().map(|(class, n)| format!(r#"{{"class":{},"bytes":{}}}"#, quoted(class.name()), n.0));
            format!(r#"{{"stage":{},"jobs":{},"bytes":{}}}"#, quoted(stage), number(*jobs), list(bytes.collect()))
        });
        let work = self.work.as_ref().map_or("null".to_owned(), |work| {
            let expected = work.expected.iter().map(|(at, n)| format!(r#"{{"space":{},"bytes":{}}}"#, space(*at), n.0));
            let Work { drum, jobs, utilisation, rate, .. } = work;
            let memory = work.memory.map_or("null".to_owned(), space);
            let (drum, expected) = (quoted(drum), list(expected.collect()));
            format!(
                r#"{{"drum":{drum},"memory":{memory},"jobs":{jobs},"utilisation":{utilisation},"jobs_per_second":{rate},"expected":{expected}}}"#
            )
        });
        format!(
            r#"{{"smallest":{},"smallest_slots":{},"obstacles":{},"backlogs":{},"peaks":{},"work":{work}}}"#,
            list(smallest.collect()),
            list(smallest_slots.collect()),
            list(obstacles.collect()),
            list(backlogs.collect()),
            list(peaks.collect()),
        )
    }
}

/// As a table.
impl fmt::Display for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { smallest_spaces, smallest_slots, obstacles, backlogs, peaks, work } = self;
        for obstacle in obstacles {
            writeln!(f, "makes no progress: {obstacle}")?;
        }
        for ((space, smallest), (_, peak)) in smallest_spaces.iter().zip(peaks) {
            let peak = peak.map_or("no limit".to_owned(), |peak| peak.to_string());
            writeln!(f, "{:<28} smallest {smallest:>12}   at most {peak:>12}", space.to_string())?;
        }
        for (slots, smallest) in smallest_slots {
            writeln!(f, "{:<28} smallest {smallest:>12}", slots.to_string())?;
        }
        for Backlog { stage, jobs, bytes } in backlogs {
            let jobs = jobs.map_or("no limit".to_owned(), |jobs| format!("{jobs} jobs"));
            let bytes: Vec<_> = bytes.iter().map(|(class, bytes)| format!("{bytes} of {class}")).collect();
            writeln!(f, "{:<28} at most  {jobs:>12}   {}", format!("piled up behind {stage}"), bytes.join(", "))?;
        }
        if let Some(Work { drum, memory, jobs, utilisation, rate, expected }) = work {
            let by = memory.map_or(format!("by {drum}"), |space| format!("by {space}"));
            writeln!(f, "{:<28} {rate:.3} jobs/s, set {by}", "throughput")?;
            writeln!(
                f,
                "{:<28} {jobs} jobs keep {drum} busy {:.1} % of the time",
                "work in progress",
                100.0 * utilisation
            )?;
            for (space, bytes) in expected {
                writeln!(f, "{:<28} about {bytes}", format!("expected in {space}"))?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Obstacle { stage, resource, needed, limit } = self;
        match resource {
            Resource::Class(class) => {
                let (needed, limit, space) = (Bytes(*needed), Bytes(*limit), class.space());
                write!(f, "stage {stage} needs {needed} of {space}, most of it {class}, and the limit is {limit}")
            }
            Resource::Slots(slots) => write!(f, "stage {stage} needs {needed} of {slots}, and there are {limit}"),
        }
    }
}

fn obstacle(profile: &Profile, kind: Kind, needed: u64, limit: u64) -> Obstacle {
    let most = |demand: &Demand| {
        let of_kind = demand.iter().filter(|&(resource, _)| kinds(resource).any(|of| of == kind));
        of_kind.max_by_key(|entry| entry.1).map(|entry| entry.0)
    };
    let mut stages = profile.stages().iter().filter(|stage| claim_of(stage).get(&kind) == Some(&needed));
    // A stage whose parts need more than it does itself names what it holds, or whatever its parts hold.
    let stage = stages.next_back().or(profile.stages().first()).expect("what is needed is needed in a stage");
    let parts = stage.parts.iter().flat_map(|part| part.profile.stages()).find_map(|stage| most(&stage.peak));
    let of_kind = match kind {
        Kind::Space(space) => Resource::Class(Class::new("parts", space)),
        Kind::Slots(slots) => Resource::Slots(slots),
    };
    Obstacle { stage: stage.name, resource: most(&stage.peak).or(parts).unwrap_or(of_kind), needed, limit }
}

fn backlog(
    stage: &'static str,
    keep: &Demand,
    next: &BTreeMap<Kind, u64>,
    limit: &impl Fn(Kind) -> Option<u64>,
    at_most: Option<u64>,
) -> Backlog {
    let fit = |(kind, kept): (Kind, u64)| {
        let claim = next.get(&kind).copied().unwrap_or(kept).max(kept);
        // The ledger lets nobody in who does not fit alone.
        Some(limit(kind)?.checked_sub(claim).map_or(0, |beside| beside / kept + 1))
    };
    let jobs = by_kind(keep).into_iter().filter_map(fit).chain(at_most).min();
    let of_class = |(resource, kept)| match resource {
        Resource::Class(class) => Some((class, Bytes(kept).times(jobs.unwrap_or(u64::MAX)))),
        Resource::Slots(_) => None,
    };
    Backlog { stage, jobs, bytes: keep.iter().filter_map(of_class).collect() }
}

/// What a job claims from each stage on.
pub(super) fn claims(profile: &Profile) -> Vec<BTreeMap<Kind, u64>> {
    let mut claim: BTreeMap<Kind, u64> = BTreeMap::new();
    let mut claims = Vec::new();
    for stage in profile.stages().iter().rev() {
        for (kind, amount) in claim_of(stage) {
            let least = claim.entry(kind).or_default();
            *least = amount.max(*least);
        }
        claims.push(claim.clone());
    }
    claims.reverse();
    claims
}

/// The most that a job and its parts claim in one stage: its peak, what all parts leave to it, and the largest part beside
/// what that leaves.
fn claim_of(stage: &StageProfile) -> BTreeMap<Kind, u64> {
    let mut claim = by_kind(&stage.peak);
    let mut largest: BTreeMap<Kind, u64> = BTreeMap::new();
    for part in &stage.parts {
        let leaves = part.profile.stages().last().map(|last| by_kind(&last.keep)).unwrap_or_default();
        for (kind, needs) in claims(&part.profile).into_iter().next().unwrap_or_default() {
            let left = match kind {
                Kind::Space(_) => leaves.get(&kind).copied().unwrap_or(0),
                Kind::Slots(_) => 0,
            };
            let all = claim.entry(kind).or_default();
            *all = all.saturating_add(left.saturating_mul(part.count));
            let one = largest.entry(kind).or_default();
            *one = needs.saturating_sub(left).max(*one);
        }
    }
    for (kind, one) in largest {
        let all = claim.entry(kind).or_default();
        *all = all.saturating_add(one);
    }
    claim
}

/// What limits a resource; pinned memory counts as host memory too.
fn kinds(resource: Resource) -> impl Iterator<Item = Kind> {
    let kind = Kind::from(resource);
    let within = match kind {
        Kind::Space(space) => space.within(),
        Kind::Slots(_) => None,
    };
    [Some(kind), within.map(Kind::Space)].into_iter().flatten()
}

/// A demand by what limits it.
pub(super) fn by_kind(demand: &Demand) -> BTreeMap<Kind, u64> {
    let mut amounts: BTreeMap<Kind, u64> = BTreeMap::new();
    for (resource, amount) in demand.iter() {
        for kind in kinds(resource) {
            let sum = amounts.entry(kind).or_default();
            *sum = sum.saturating_add(amount);
        }
    }
    amounts
}
