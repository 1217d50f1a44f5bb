//! The pacer at work in a pipeline: what it is told, and how its ropes come into the ledger.
//!
//! 1. The first job (or the largest one, where that was declared) shows where bytes multiply. Ropes are tied there: kinds of
//!    slots in the pipeline's own account, so that nobody else's jobs ever wait for them.
//! 2. Each job's profile gets the tokens it needs on top, and is granted them together with everything else.
//! 3. When a stage has ended well, the pacer is told how long it took. If that changes the number of tokens, the ledger is
//!    told, by one thread at a time and with no lock of ours held: whoever is let in by it may run a user's waker.
//!
//! The pacer is never waited for and waits for nothing.

use std::fmt;
use std::time::{Duration, Instant};

use super::certificate::Certificate;
use super::pacing::{Berth, Layout, Pace, Pacer, Pacing, Rope, WorkClass};
use super::stage::{Place, Stage};
use super::ties::Ties;
use crate::ledger::state::Kind;
use crate::sync::{Mutex, lock};
use crate::{Budget, Ledger, Profile, Resource, Slots, Space};

pub(super) struct Paced {
    pacing: Pacing,
    threads: u64,
    made: Instant,
    stages: Vec<Berth>,
    state: Mutex<State>,
}

/// What sets a pipeline's pace, and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct PaceReport {
    /// The slowest station; `None` while times are not known.
    pub drum: Option<&'static str>,
    /// What was made of the times.
    pub pace: Pace,
    /// How many jobs may be where, the whole line first.
    pub ropes: Vec<RopeReport>,
}

/// How many jobs may be between the beginning of one stage and the end of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RopeReport {
    /// The stage that a job needs a token for.
    pub first: &'static str,
    /// The stage that returns it.
    pub last: &'static str,
    /// How many there are.
    pub tokens: u64,
}

#[derive(Default)]
struct State {
    pacer: Option<Pacer>,
    /// Of the first job.
    profile: Option<Profile>,
    /// The most profiles that a job had.
    alternatives: usize,
    /// The tokens that the ledger has been told.
    told: Vec<u64>,
    /// Somebody is telling it.
    telling: bool,
}

impl Paced {
    pub(super) fn new<E>(pacing: Pacing, threads: usize, stages: &[Stage<E>]) -> Self {
        let of = |stage: &Stage<E>| Berth { stage: stage.name, on_pool: runs_on_pool(stage), at_most: stage.at_most };
        Self {
            pacing,
            threads: threads as u64,
            made: Instant::now(),
            stages: stages.iter().map(of).collect(),
            state: Mutex::default(),
        }
    }

    /// Which class of work a job is that is served by one of these profiles. Ties the ropes if it is the first.
    pub(super) fn classify(&self, ledger: &Ledger, profiles: &[Profile]) -> Option<WorkClass> {
        let profile = &profiles[0];
        let mut state = lock(&self.state);
        if state.profile.is_none() {
            state.profile = Some(profile.clone());
        }
        if self.pacing == Pacing::Unpaced {
            return None;
        }
        if state.pacer.is_none() {
            let layout = self.layout(|slots| ledger.slots_limit(slots), profiles);
            let mut pacer = Pacer::new(self.pacing, layout, Rope::of(profile));
            pacer.classify_any(profiles);
            for (rope, &tokens) in pacer.tokens().iter().enumerate() {
                ledger.open_slots(pacer.slots(rope), tokens);
            }
            state.told = pacer.tokens().to_vec();
            state.pacer = Some(pacer);
            state.alternatives = profiles.len();
        }
        if profiles.len() > state.alternatives {
            // More devices serve these jobs than the first one showed.
            state.alternatives = profiles.len();
            let layout = self.layout(|slots| ledger.slots_limit(slots), profiles);
            state.pacer.as_mut().expect("made above").set_layout(layout);
        }
        let pacer = state.pacer.as_mut().expect("made above");
        for space in profiles.iter().flat_map(spaces) {
            if let Some(room) = ledger.room(space) {
                pacer.set_limit(space, room.saturating_sub(ledger.needed_residencies(space)));
            }
        }
        Some(pacer.classify_any(profiles))
    }

    /// The profile with the tokens that its jobs need. The ropes are tied by then.
    pub(super) fn tie(&self, profile: Profile) -> Profile {
        match &lock(&self.state).pacer {
            Some(pacer) if self.pacing != Pacing::Unpaced => pacer.tie(&profile),
            _ => profile,
        }
    }

    /// The profile without tokens: of a job that is too urgent to wait for its turn.
    pub(super) fn untie(&self, profile: &Profile) -> Profile {
        match &lock(&self.state).pacer {
            Some(pacer) if !mutant!("urgent-jobs-wait-for-tokens") => pacer.untie(profile),
            _ => profile.clone(),
        }
    }

    /// Nanoseconds since the pipeline was built.
    pub(super) fn nanos(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The moment so many nanoseconds after the pipeline was built.
    pub(super) fn at(&self, nanos: u64) -> Option<Instant> {
        self.made.checked_add(Duration::from_nanos(nanos))
    }

    /// A stage of a job has ended well.
    pub(super) fn stage_ended(
        &self,
        ledger: &Ledger,
        class: Option<WorkClass>,
        stage: usize,
        ran: Duration,
        waited: Duration,
    ) {
        let Some(class) = class else { return };
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut state = lock(&self.state);
        let State { pacer: Some(pacer), told, telling, .. } = &mut *state else { return };
        pacer.stage_ended(class, stage, nanos(ran), nanos(waited));
        if pacer.tokens() == &**told || *telling {
            return;
        }
        state.telling = true;
        loop {
            let State { pacer: Some(pacer), told, .. } = &mut *state else { unreachable!("it is there") };
            let changed = |rope: &usize| pacer.tokens()[*rope] != told[*rope];
            let Some(rope) = (0..told.len()).find(changed) else { break };
            let (slots, tokens) = (pacer.slots(rope), pacer.tokens()[rope]);
            told[rope] = tokens;
            drop(state);
            ledger.resize_slots(slots, tokens).expect("opened when the ropes were tied");
            state = lock(&self.state);
        }
        state.telling = false;
    }

    pub(super) fn report(&self) -> Option<PaceReport> {
        let state = lock(&self.state);
        let pacer = state.pacer.as_ref()?;
        let Layout { stations, stages } = pacer.layout();
        let ropes = pacer.ropes().iter().zip(pacer.tokens()).map(|(rope, &tokens)| RopeReport {
            first: stages[rope.first].stage,
            last: stages[rope.last].stage,
            tokens,
        });
        let pace = pacer.pace();
        Some(PaceReport { drum: pace.drum.map(|drum| stations[drum].name), pace, ropes: ropes.collect() })
    }

    /// The certificate of the first job, or the largest where that was declared, in another budget.
    pub(super) fn certify(&self, ties: &Ties, budget: &Budget, times: Option<&[Duration]>) -> Option<Certificate> {
        let (profile, pacer) = {
            let state = lock(&self.state);
            (state.profile.clone()?, state.pacer.clone())
        };
        let own = ties.limits(Budget::new());
        let limit = |kind| match kind {
            Kind::Slots(slots) if own.slots_of(slots).is_some() => own.slots_of(slots),
            _ => Certificate::limit_in(budget, kind),
        };
        let mut certificate = self.certificate(ties, &profile, limit);
        if !certificate.makes_progress() {
            return Some(certificate);
        }
        let pacer = match times {
            None => pacer.map(Pacer::without_limits),
            Some(times) => {
                let layout = self.layout(|slots| budget.slots_of(slots), std::slice::from_ref(&profile));
                let nanos: Vec<_> =
                    times.iter().map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)).collect();
                Some(Pacer::new(Pacing::Auto, layout, Rope::of(&profile)).with_times(&profile, &nanos))
            }
        };
        let limits = spaces(&profile).filter_map(|space| Some((space, budget.limit(space)?)));
        certificate.work = pacer.and_then(|mut pacer| {
            limits.for_each(|(space, limit)| pacer.set_limit(space, limit));
            pacer.forecast()
        });
        Some(certificate)
    }

    /// What limits mean for jobs of this profile in this pipeline.
    pub(super) fn certificate(
        &self,
        ties: &Ties,
        profile: &Profile,
        limit: impl Fn(Kind) -> Option<u64>,
    ) -> Certificate {
        let at_most = match self.pacing {
            Pacing::Fixed(jobs) => Some(jobs.max(1)),
            Pacing::Auto | Pacing::Unpaced => None,
        };
        Certificate::within(&ties.with(profile), limit, at_most)
    }

    /// Which station serves which stage.
    pub(super) fn layout(&self, limit: impl Fn(Slots) -> Option<u64>, profiles: &[Profile]) -> Layout {
        Layout::of(&self.stages, self.threads, limit, profiles)
    }
}

/// Whether the pool's threads are all that serves a stage. Parts that run on them are served by as many as their job would be.
fn runs_on_pool<E>(stage: &Stage<E>) -> bool {
    match &stage.place {
        Place::Worker(_) => true,
        Place::Parts(fan) => fan.stages.iter().all(runs_on_pool),
        Place::Carried(..) | Place::Either(..) | Place::Task(..) => false,
    }
}

/// The spaces that a profile names.
fn spaces(profile: &Profile) -> impl Iterator<Item = Space> + '_ {
    let demands = profile.stages().iter().map(|stage| &stage.peak);
    demands.flat_map(|peak| peak.iter()).filter_map(|(resource, _)| match resource {
        Resource::Class(class) => Some(class.space()),
        Resource::Slots(_) => None,
    })
}

impl fmt::Debug for Paced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Paced").field("pacing", &self.pacing).finish_non_exhaustive()
    }
}
