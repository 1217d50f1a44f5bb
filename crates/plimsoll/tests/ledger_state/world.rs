//! Worlds: a budget, a few jobs, and everything that can happen to them, one event at a time. After each event the
//! invariants are asserted from the outside, by adding up what the owners hold.

use std::fmt;

use plimsoll::ledger::state::{AccountId, LedgerState, Outcome, OwnerId, OwnerView, Stand};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Profile, Resource, Slots, Space};

pub(crate) use crate::dice::Dice;

pub(crate) const A: Class = Class::new("a", Space::HOST);
pub(crate) const D: Class = Class::new("d", Space::device(0));
pub(crate) const CORE: Slots = Slots::new("core");

/// Limits of host memory and device memory, and the number of cores.
pub(crate) type Limits = [u64; 3];

/// A budget, jobs, and what may happen to them.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) limits: Limits,
    pub(crate) bypass: u32,
    /// Profile and priority of each job. Equal jobs arrive in order.
    pub(crate) jobs: Vec<(Profile, i32)>,
    /// Jobs may be cancelled while they wait, fail while they run, and take their request back.
    pub(crate) trouble: bool,
    /// This component's limit may be set to this once, while jobs run.
    pub(crate) resize: Option<(usize, u64)>,
    /// A stage may return everything it holds of host memory before it ends.
    pub(crate) early: bool,
}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    /// The job is submitted and asks for its first stage.
    Arrive(usize),
    /// The running stage ends and keeps what its profile says.
    EndStage(usize),
    /// The job asks for its next stage, or for its first one again.
    Enter(usize),
    /// The running stage returns its host memory before it ends.
    Early(usize),
    /// The waiting request is taken back.
    Withdraw(usize),
    /// The job ends wherever it stands, and drops all that it holds.
    Fail(usize),
    /// The caller drops the job's result.
    DropResult(usize),
    /// One component gets its other limit.
    Resize,
}

/// Where a job of the world is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    New,
    Refused,
    /// With the reservations that it keeps between stages.
    Live(Vec<(Class, u64)>),
    /// Ended, with a result that is still held.
    Left(Vec<(Class, u64)>),
    Done,
}

/// A world at one moment.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) state: LedgerState,
    pub(crate) jobs: Vec<(Place, Option<OwnerId>)>,
    pub(crate) resized: bool,
    /// What the last event granted, as jobs.
    pub(crate) granted: Vec<usize>,
    pub(crate) refused: Vec<usize>,
}

/// Two moments with equal keys behave alike.
pub(crate) type Key = (Vec<u64>, Vec<(Place, Option<OwnerView>)>, bool);

impl World {
    pub(crate) fn start(&self) -> Run {
        let budget = Budget::new()
            .space(Space::HOST, Bytes(self.limits[0]))
            .space(Space::device(0), Bytes(self.limits[1]))
            .slots(CORE, self.limits[2])
            .bypass(self.bypass);
        let jobs = vec![(Place::New, None); self.jobs.len()];
        Run { state: LedgerState::new(&budget), jobs, resized: false, granted: Vec::new(), refused: Vec::new() }
    }

    /// Everything that can happen now.
    pub(crate) fn events(&self, run: &Run) -> Vec<Event> {
        let mut events = Vec::new();
        for (job, (place, id)) in run.jobs.iter().enumerate() {
            match place {
                Place::New => {
                    let earlier_twin =
                        |other: usize| run.jobs[other].0 == Place::New && self.jobs[other] == self.jobs[job];
                    if !(0..job).any(earlier_twin) {
                        events.push(Event::Arrive(job));
                    }
                }
                Place::Live(kept) => {
                    let id = id.expect("it lives");
                    let view = run.state.owner(id).expect("it lives");
                    match (view.stand, &view.waiting) {
                        (Stand::Running(_), _) => {
                            events.push(Event::EndStage(job));
                            if self.early && kept.is_empty() && view.holdings.iter().any(|entry| entry.0 == A.into()) {
                                events.push(Event::Early(job));
                            }
                        }
                        (Stand::Between(_) | Stand::Fresh, None) => events.push(Event::Enter(job)),
                        (Stand::Fresh, Some(_)) if self.trouble => events.push(Event::Withdraw(job)),
                        _ => {}
                    }
                    if self.trouble {
                        events.push(Event::Fail(job));
                    }
                }
                Place::Left(_) => events.push(Event::DropResult(job)),
                Place::Refused | Place::Done => {}
            }
        }
        if self.resize.is_some() && !run.resized {
            events.push(Event::Resize);
        }
        events
    }

    /// Lets an event happen.
    pub(crate) fn step(&self, run: &mut Run, event: Event) {
        let mut out = Vec::new();
        match event {
            Event::Arrive(job) => {
                let (profile, priority) = self.jobs[job].clone();
                let spec = JobSpec::new(&format!("job {job}"), profile).priority(priority);
                let fits = self.claim(job, 0).iter().zip(self.targets(run)).all(|(claim, limit)| *claim <= limit);
                match run.state.submit(AccountId::ROOT, spec) {
                    Ok(id) => {
                        assert!(fits, "I8: job {job} can never be served, and was taken on");
                        run.jobs[job] = (Place::Live(Vec::new()), Some(id));
                        run.state.enter(0, id, 0, &mut out).expect("it was just taken on");
                    }
                    Err(error) => {
                        assert!(!fits, "job {job} was refused: {error}");
                        run.jobs[job].0 = Place::Refused;
                    }
                }
            }
            Event::Enter(job) => {
                let id = run.id(job);
                let stage = match run.view(job).stand {
                    Stand::Between(stage) => stage,
                    _ => 0,
                };
                if run.state.enter(0, id, stage, &mut out).is_err() {
                    // Only a job that is not in flight can be refused: a limit was lowered.
                    assert!(run.resized && stage == 0, "job {job} was refused in flight");
                    run.state.end(id, &mut out);
                    run.jobs[job] = (Place::Refused, None);
                }
            }
            Event::EndStage(job) => self.end_stage(run, job, &mut out),
            Event::Early(job) => {
                let held = run.holding(job, A);
                run.state.release(run.id(job), A, Bytes(held), &mut out);
            }
            Event::Withdraw(job) => run.state.withdraw(run.id(job), &mut out),
            Event::Fail(job) => {
                let id = run.id(job);
                let Place::Live(kept) = run.jobs[job].0.clone() else { panic!("it lives") };
                if run.view(job).waiting.is_some() {
                    run.state.withdraw(id, &mut out);
                }
                let view = run.view(job);
                for &(class, bytes) in &kept {
                    run.state.drop_piece(id, class, Bytes(bytes), &mut out);
                }
                if matches!(view.stand, Stand::Running(_)) {
                    let kept = |class| kept.iter().find(|entry| entry.0 == class).map_or(0, |entry| entry.1);
                    let rest: Vec<_> = classes(&view).map(|(class, held)| (class, Bytes(held - kept(class)))).collect();
                    run.state.end_stage(id, &rest, &mut out);
                }
                run.state.end(id, &mut out);
                run.jobs[job] = (Place::Done, None);
            }
            Event::DropResult(job) => {
                let Place::Left(left) = run.jobs[job].0.clone() else { panic!("it left something") };
                for (class, bytes) in left {
                    run.state.drop_piece(run.id(job), class, Bytes(bytes), &mut out);
                }
                run.jobs[job] = (Place::Done, None);
            }
            Event::Resize => {
                run.resized = true;
                let (at, limit) = self.resize.expect("it can be resized");
                let resized = match [Some(Space::HOST), Some(Space::device(0)), None][at] {
                    Some(space) => run.state.resize(AccountId::ROOT, space, Bytes(limit), &mut out),
                    None => run.state.resize_slots(AccountId::ROOT, CORE, limit, &mut out),
                };
                resized.expect("the budget names them all");
            }
        }
        self.learn(run, out);
    }

    /// The stage ends: the reservations of before go back into the grant, and what is kept is taken out again.
    fn end_stage(&self, run: &mut Run, job: usize, out: &mut Vec<Outcome>) {
        let id = run.id(job);
        let Place::Live(before) = run.jobs[job].0.clone() else { panic!("it lives") };
        for (class, _) in before {
            run.state.detach(id, class);
        }
        let view = run.view(job);
        let Stand::Running(Some(stage)) = view.stand else { panic!("a stage is running") };
        let keep = &self.jobs[job].0.stages()[stage].keep;
        let (mut kept, mut rest) = (Vec::new(), Vec::new());
        for (class, held) in classes(&view) {
            let keep = keep.of(class).min(held);
            rest.push((class, Bytes(held - keep)));
            if keep > 0 {
                run.state.attach(id, class);
                kept.push((class, keep));
            }
        }
        run.state.end_stage(id, &rest, out);
        run.jobs[job].0 = Place::Live(kept.clone());
        if stage + 1 == self.jobs[job].0.stages().len() {
            run.state.end(id, out);
            run.jobs[job] = if kept.is_empty() { (Place::Done, None) } else { (Place::Left(kept), Some(id)) };
        }
    }

    fn learn(&self, run: &mut Run, out: Vec<Outcome>) {
        run.granted.clear();
        run.refused.clear();
        for outcome in out {
            let (Outcome::Granted(owner, _) | Outcome::Refused(owner, _)) = outcome;
            let job = run.jobs.iter().position(|entry| entry.1 == Some(owner)).expect("it is one of the jobs");
            match outcome {
                Outcome::Granted(..) => run.granted.push(job),
                Outcome::Refused(..) => {
                    run.refused.push(job);
                    run.state.end(owner, &mut Vec::new());
                    run.jobs[job] = (Place::Refused, None);
                }
            }
        }
    }

    /// The claim of a job from a stage on: computed here, from the profile.
    pub(crate) fn claim(&self, job: usize, from: usize) -> Limits {
        let mut claim = [0; 3];
        for stage in &self.jobs[job].0.stages()[from..] {
            for (claim, peak) in claim.iter_mut().zip(vector(&stage.peak)) {
                *claim = peak.max(*claim);
            }
        }
        claim
    }

    /// The limits that were asked for last.
    pub(crate) fn targets(&self, run: &Run) -> Limits {
        let mut limits = self.limits;
        if run.resized {
            let (at, limit) = self.resize.expect("it was resized");
            limits[at] = limit;
        }
        limits
    }

    pub(crate) fn key(&self, run: &Run) -> Key {
        let components = run.state.components();
        let numbers = components.iter().flat_map(|component| [component.limit, component.held]).collect();
        let jobs = run.jobs.iter().map(|(place, id)| (place.clone(), id.and_then(|id| run.state.owner(id)))).collect();
        (numbers, jobs, run.resized)
    }

    /// Asserts I1, I2, I4, I5 and I7, and that the state is safe, from the outside.
    pub(crate) fn check(&self, run: &Run) {
        let components = run.state.components();
        let mut sums = [0; 3];
        for id in run.state.owners() {
            let view = run.state.owner(id).expect("it exists");
            for (sum, held) in sums.iter_mut().zip(vector_of(&view.holdings)) {
                *sum += held;
            }
            if let Some(waiting) = &view.waiting {
                assert!(waiting.passed <= self.bypass, "I5: {} admissions passed a waiting request", waiting.passed);
            }
        }
        for (component, sum) in components.iter().zip(sums) {
            assert_eq!(component.held, sum, "I1: what owners hold adds up");
            assert!(component.held <= component.limit, "I2: {component:?} is above the line");
        }
        let limits = [components[0].limit, components[1].limit, components[2].limit];
        let free = [limits[0] - sums[0], limits[1] - sums[1], limits[2] - sums[2]];
        assert!(order_exists(free, &self.in_flight(run)), "the state is not safe");
        self.check_progress(run);
        if run.jobs.iter().all(|(place, _)| matches!(place, Place::Done | Place::Refused)) {
            assert!(sums == [0; 3] && run.state.owners().next().is_none(), "I7: something was not returned");
        }
    }

    /// I4 as safety: there is no state in which jobs wait, none runs or is about to ask, and nobody outside holds
    /// anything that an admission may have to wait for.
    fn check_progress(&self, run: &Run) {
        let (mut going_on, mut growth, mut admission) = (false, false, false);
        for (place, id) in &run.jobs {
            if let (Place::Live(_), Some(id)) = (place, id) {
                let view = run.state.owner(*id).expect("it lives");
                match (view.stand, view.waiting.is_some()) {
                    (Stand::Between(_), true) => growth = true,
                    (Stand::Fresh, true) => admission = true,
                    (Stand::Running(_) | Stand::Between(_), _) => going_on = true,
                    (Stand::Fresh | Stand::Ended | Stand::HandedOver, _) => {}
                }
            }
        }
        let results_out = run.jobs.iter().any(|(place, _)| matches!(place, Place::Left(_)));
        assert!(going_on || !growth, "I4: jobs in flight wait, and nothing runs");
        assert!(going_on || results_out || !admission, "I4: jobs wait to be admitted, and nothing runs");
    }

    /// What each job in flight holds, may need and leaves behind.
    fn in_flight(&self, run: &Run) -> Vec<Party> {
        let mut parties = Vec::new();
        for (job, (place, id)) in run.jobs.iter().enumerate() {
            let (Place::Live(_), Some(id)) = (place, id) else { continue };
            let view = run.state.owner(*id).expect("it lives");
            let from = match view.stand {
                Stand::Running(Some(stage)) | Stand::Between(stage) => stage,
                _ => continue,
            };
            let held = vector_of(&view.holdings);
            let leaves = vector(&self.jobs[job].0.stages().last().expect("profiles have stages").keep);
            parties.push(Party { held, claim: self.claim(job, from), leaves });
        }
        parties
    }
}

impl Run {
    pub(crate) fn id(&self, job: usize) -> OwnerId {
        self.jobs[job].1.expect("the job has an owner")
    }

    pub(crate) fn view(&self, job: usize) -> OwnerView {
        self.state.owner(self.id(job)).expect("the job has an owner")
    }

    fn holding(&self, job: usize, class: Class) -> u64 {
        classes(&self.view(job)).find(|entry| entry.0 == class).map_or(0, |entry| entry.1)
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for component in self.state.components() {
            writeln!(f, "  {:?}: {} of {}", component.kind, component.held, component.limit)?;
        }
        for (job, (place, id)) in self.jobs.iter().enumerate() {
            let view = id.and_then(|id| self.state.owner(id));
            let view = view.map(|view| (view.stand, view.waiting, view.holdings));
            writeln!(f, "  job {job}: {place:?} {view:?}")?;
        }
        Ok(())
    }
}

fn classes(view: &OwnerView) -> impl Iterator<Item = (Class, u64)> + '_ {
    view.holdings.iter().filter_map(|&(resource, held)| match resource {
        Resource::Class(class) => Some((class, held)),
        Resource::Slots(_) => None,
    })
}

/// A demand over the three components of these worlds.
pub(crate) fn vector(demand: &Demand) -> Limits {
    vector_of(&demand.iter().collect::<Vec<_>>())
}

fn vector_of(amounts: &[(Resource, u64)]) -> Limits {
    let mut vector = [0; 3];
    for &(resource, amount) in amounts {
        let at = match resource {
            Resource::Class(class) if class.space() == Space::HOST => 0,
            Resource::Class(_) => 1,
            Resource::Slots(_) => 2,
        };
        vector[at] += amount;
    }
    vector
}

/// A job in flight, as brute force sees it.
#[derive(Clone, Debug)]
pub(crate) struct Party {
    pub(crate) held: Limits,
    pub(crate) claim: Limits,
    pub(crate) leaves: Limits,
}

/// Whether there is any order at all in which everybody can get its whole claim, end, and leave behind what it leaves:
/// tries them all.
pub(crate) fn order_exists(free: Limits, parties: &[Party]) -> bool {
    parties.is_empty()
        || (0..parties.len()).any(|first| {
            let party = &parties[first];
            let fits = (0..3).all(|at| party.claim[at].saturating_sub(party.held[at]) <= free[at]);
            let mut after = free;
            for (at, free) in after.iter_mut().enumerate() {
                // It may leave behind more than it holds now.
                match (*free + party.held[at]).checked_sub(party.leaves[at]) {
                    Some(left) => *free = left,
                    None => return false,
                }
            }
            let mut rest = parties.to_vec();
            rest.remove(first);
            fits && order_exists(after, &rest)
        })
}

/// A world of `jobs` jobs, everything switched on.
pub(crate) fn random_world(seed: u64, jobs: usize) -> World {
    let mut dice = Dice(seed);
    let limits = [dice.roll(3, 12), dice.roll(1, 4), dice.roll(1, 3)];
    // Some profiles are made for larger limits, and never fit.
    let wide = [limits[0] + 2, limits[1] + 1, limits[2]];
    let profiles: Vec<_> = (0..4)
        .map(|kind| {
            let (stages, result) = (dice.roll(1, 3) as usize, dice.roll(0, 3) == 0);
            dice.profile(if kind == 3 { wide } else { limits }, stages, result)
        })
        .collect();
    let jobs = (0..jobs).map(|_| (profiles[dice.roll(0, 3) as usize].clone(), dice.roll(0, 2) as i32 - 1)).collect();
    let at = dice.roll(0, 2) as usize;
    let resize = Some((at, if dice.roll(0, 3) == 0 { limits[at] + 3 } else { dice.roll(0, limits[at]) }));
    World { limits, bypass: dice.roll(0, 3) as u32, jobs, trouble: true, resize, early: true }
}

impl Dice {
    /// A profile of `stages` stages within the limits. `result`: the last stage leaves something behind.
    pub(crate) fn profile(&mut self, limits: Limits, stages: usize, result: bool) -> Profile {
        let mut profile = Profile::new();
        let mut held = [0, 0];
        for stage in 0..stages {
            let peak = [self.roll(held[0], limits[0]), self.roll(held[1], limits[1])];
            let cores = self.roll(0, limits[2]);
            let last = stage + 1 == stages;
            held = match (last, result) {
                (false, _) => [self.roll(0, peak[0]), self.roll(0, peak[1])],
                (true, true) => [self.roll(0, peak[0].min(2)), 0],
                (true, false) => [0, 0],
            };
            let demand = |amounts: [u64; 2]| Demand::new().bytes(A, Bytes(amounts[0])).bytes(D, Bytes(amounts[1]));
            profile = profile.stage(["s0", "s1", "s2"][stage], demand(peak).slots(CORE, cores), demand(held));
        }
        profile
    }
}
