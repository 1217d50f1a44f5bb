//! Jobs over host memory, a device's memory and cores, and what may happen to them. What each has in its hands is counted
//! here, apart from the ledger's books.

use std::collections::BTreeMap;

use plimsoll::ledger::state::{AccountId, Granted, LedgerState, Outcome, OwnerId, OwnerView, Refusal, Stand};
use plimsoll::ledger::{EnterError, SubmitError};
use plimsoll::{Budget, Bytes, Class, JobSpec, Profile, Resource, Slots, Space};

pub(crate) const A: Class = Class::new("a", Space::HOST);
pub(crate) const D: Class = Class::new("d", Space::device(0));
pub(crate) const CORE: Slots = Slots::new("cores");

type Vector = [u64; 3];

#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) profile: Profile,
    pub(crate) priority: i32,
    /// It runs alone where it is larger than a limit.
    pub(crate) alone: bool,
    /// It begins again with what it holds.
    pub(crate) keeps: bool,
    pub(crate) retries: u8,
    pub(crate) restarts: u8,
}

#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) limits: Vector,
    pub(crate) bypass: u32,
    pub(crate) jobs: Vec<Kind>,
    /// New limits, set in this order: of which component, and what.
    pub(crate) resizes: Vec<(usize, u64)>,
    pub(crate) loses: bool,
    pub(crate) cancels: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Arrive(usize),
    Ask(usize),
    EndStage(usize),
    Retry(usize),
    Restart(usize),
    Cancel(usize),
    Resize,
    Lose,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Job {
    arrived: bool,
    id: Option<OwnerId>,
    /// Bytes in its hands, lost ones as well.
    hands: BTreeMap<Class, u64>,
    /// The part of them that it brought along from earlier stages: one reservation a class.
    kept: BTreeMap<Class, u64>,
    retried: u8,
    restarted: u8,
    /// It was told that it needs a lost device.
    told: bool,
    /// It is in flight.
    admitted: bool,
    /// It was admitted alone.
    alone: bool,
}

#[derive(Clone)]
pub(crate) struct Run {
    state: LedgerState,
    jobs: Vec<Job>,
    resized: usize,
    lost: bool,
}

pub(crate) type Key = (Vec<[u64; 3]>, Vec<(Job, Option<OwnerView>)>, usize, bool);

impl World {
    pub(crate) fn start(&self) -> Run {
        let [a, d, cores] = self.limits;
        let budget = Budget::new().space(Space::HOST, Bytes(a)).space(Space::device(0), Bytes(d));
        let state = LedgerState::new(&budget.slots(CORE, cores).bypass(self.bypass));
        Run { state, jobs: vec![Job::default(); self.jobs.len()], resized: 0, lost: false }
    }

    pub(crate) fn key(&self, run: &Run) -> Key {
        let components = run.state.components().into_iter();
        let numbers = components.map(|component| [component.limit, component.target, component.held]).collect();
        let jobs = run.jobs.iter().map(|job| {
            let view = job.id.and_then(|id| run.state.owner(id));
            (Job { id: None, ..job.clone() }, view)
        });
        (numbers, jobs.collect(), run.resized, run.lost)
    }

    pub(crate) fn events(&self, run: &Run) -> Vec<Event> {
        let mut events = Vec::new();
        for (at, (job, kind)) in run.jobs.iter().zip(&self.jobs).enumerate() {
            let Some(view) = job.id.and_then(|id| run.state.owner(id)) else {
                if !job.arrived {
                    events.push(Event::Arrive(at));
                }
                continue;
            };
            let may_restart = job.restarted < kind.restarts;
            match (view.stand, view.waiting.is_some()) {
                (Stand::Running(_), _) => {
                    events.push(Event::EndStage(at));
                    if job.retried < kind.retries {
                        events.push(Event::Retry(at));
                    }
                }
                (Stand::Between(_), waits) => {
                    if may_restart {
                        events.push(Event::Restart(at));
                    }
                    if !waits && !job.told {
                        events.push(Event::Ask(at));
                    }
                    // Who cannot go on gives up.
                    if job.told && !self.cancels {
                        events.push(Event::Cancel(at));
                    }
                }
                (Stand::Fresh, false) => events.push(Event::Ask(at)),
                _ => {}
            }
            if self.cancels {
                events.push(Event::Cancel(at));
            }
        }
        if run.resized < self.resizes.len() {
            events.push(Event::Resize);
        }
        if self.loses && !run.lost {
            events.push(Event::Lose);
        }
        events
    }

    pub(crate) fn step(&self, run: &mut Run, event: Event) {
        let mut out = Vec::new();
        match event {
            Event::Arrive(at) => self.arrive(run, at, &mut out),
            Event::Ask(at) => self.ask(run, at, &mut out),
            Event::EndStage(at) => self.end_stage(run, at, &mut out),
            Event::Retry(at) => {
                run.jobs[at].retried += 1;
                let rest = run.jobs[at].rest();
                let id = run.id(at);
                run.state.retry_stage(id, &rest, &mut out);
                run.jobs[at].hands = run.jobs[at].kept.clone();
            }
            Event::Restart(at) => {
                let id = run.id(at);
                run.jobs[at].restarted += 1;
                run.jobs[at].told = false;
                if run.view(at).waiting.is_some() {
                    run.state.withdraw(id, &mut out);
                }
                if !self.jobs[at].keeps {
                    run.drop_pieces(at, &mut out);
                    (run.jobs[at].admitted, run.jobs[at].alone) = (false, false);
                }
                run.state.restart(id, &mut out).expect("it holds nothing, or may");
            }
            Event::Cancel(at) => self.cancel(run, at, &mut out),
            Event::Resize => {
                let (component, limit) = self.resizes[run.resized];
                run.resized += 1;
                let space = [Some(Space::HOST), Some(Space::device(0)), None][component];
                match space {
                    Some(space) => run.state.resize(AccountId::ROOT, space, Bytes(limit), &mut out),
                    None => run.state.resize_slots(AccountId::ROOT, CORE, limit, &mut out),
                }
                .expect("the budget names it");
            }
            Event::Lose => {
                run.lost = true;
                let held: u64 = run.jobs.iter().filter_map(|job| job.hands.get(&D)).sum();
                let bytes = run.state.retire(Space::device(0), &mut out).expect("the budget names it");
                assert_eq!(bytes, Bytes(held), "I6: what was held goes with it");
            }
        }
        self.learn(run, out);
    }

    fn arrive(&self, run: &mut Run, at: usize, out: &mut Vec<Outcome>) {
        let kind = &self.jobs[at];
        let mut spec = JobSpec::new(&format!("job {at}"), kind.profile.clone()).priority(kind.priority);
        (spec.alone_if_oversize, spec.restarts) = (kind.alone, kind.keeps);
        run.jobs[at].arrived = true;
        match run.state.submit(AccountId::ROOT, spec) {
            Ok(id) => {
                assert!(kind.alone || self.fits(run, at), "I8: job {at} can never be served");
                assert!(!self.needs_lost(run, at, 0..usize::MAX), "job {at} needs what is lost");
                run.jobs[at].id = Some(id);
                run.state.enter(0, id, 0, out).expect("it was just taken on");
            }
            Err(SubmitError::Lost(_)) => assert!(self.needs_lost(run, at, 0..usize::MAX)),
            Err(error) => assert!(!kind.alone && !self.fits(run, at), "job {at} was refused: {error}"),
        }
    }

    fn ask(&self, run: &mut Run, at: usize, out: &mut Vec<Outcome>) {
        let (id, stage) = match run.view(at).stand {
            Stand::Between(stage) => (run.id(at), stage),
            _ => (run.id(at), 0),
        };
        let in_flight = matches!(run.view(at).stand, Stand::Between(_));
        match run.state.enter(0, id, stage, out) {
            Ok(()) => {}
            Err(EnterError::Lost(_)) => {
                let until = if in_flight { stage + 1 } else { usize::MAX };
                assert!(self.needs_lost(run, at, stage..until));
                run.jobs[at].told = in_flight;
                if !in_flight {
                    self.gone(run, at, out);
                }
            }
            Err(error) => {
                assert!(!in_flight && !self.fits(run, at), "job {at} was refused: {error}");
                self.gone(run, at, out);
            }
        }
    }

    fn end_stage(&self, run: &mut Run, at: usize, out: &mut Vec<Outcome>) {
        let (id, view) = (run.id(at), run.view(at));
        let Stand::Running(Some(stage)) = view.stand else { panic!("a stage is running") };
        let stages = self.jobs[at].profile.stages();
        let job = &mut run.jobs[at];
        for &class in job.kept.keys() {
            run.state.detach(id, class);
        }
        let keep = &stages[stage].keep;
        let kept = job.hands.iter().map(|(class, held)| (*class, keep.of(*class).min(*held)));
        job.kept = kept.filter(|entry| entry.1 > 0).collect();
        let rest = job.rest();
        for &class in job.kept.keys() {
            run.state.attach(id, class);
        }
        run.state.end_stage(id, &rest, out);
        run.jobs[at].hands = run.jobs[at].kept.clone();
        if stage + 1 == stages.len() {
            run.state.end(id, out);
            run.drop_pieces(at, out);
            run.jobs[at].id = None;
        }
    }

    fn cancel(&self, run: &mut Run, at: usize, out: &mut Vec<Outcome>) {
        let (id, view) = (run.id(at), run.view(at));
        if view.waiting.is_some() {
            run.state.withdraw(id, out);
        }
        let rest = run.jobs[at].rest();
        run.drop_pieces(at, out);
        if matches!(view.stand, Stand::Running(_)) {
            run.state.end_stage(id, &rest, out);
        }
        self.gone(run, at, out);
    }

    fn gone(&self, run: &mut Run, at: usize, out: &mut Vec<Outcome>) {
        run.state.end(run.id(at), out);
        run.jobs[at] = Job { arrived: true, ..Job::default() };
    }

    fn learn(&self, run: &mut Run, mut out: Vec<Outcome>) {
        while !out.is_empty() {
            let outcome = out.remove(0);
            let (Outcome::Granted(id, _) | Outcome::Refused(id, _)) = &outcome;
            let Some(at) = run.jobs.iter().position(|job| job.id == Some(*id)) else { continue };
            match outcome {
                Outcome::Granted(_, granted) => self.granted(run, at, &granted),
                Outcome::Refused(_, Refusal::Lost(_)) if matches!(run.view(at).stand, Stand::Between(_)) => {
                    run.jobs[at].told = true;
                }
                Outcome::Refused(..) => self.gone(run, at, &mut out),
            }
        }
    }

    fn granted(&self, run: &mut Run, at: usize, granted: &Granted) {
        // To enter the first stage once more is not an admission.
        if !std::mem::replace(&mut run.jobs[at].admitted, true) {
            run.jobs[at].alone = !self.fits(run, at);
        }
        for &(resource, amount) in granted {
            if let Resource::Class(class) = resource {
                *run.jobs[at].hands.entry(class).or_default() += amount;
            }
        }
    }

    /// The limits that were asked for last.
    fn targets(&self, run: &Run) -> Vector {
        let mut limits = self.limits;
        for &(component, limit) in &self.resizes[..run.resized] {
            limits[component] = limit;
        }
        if run.lost {
            limits[1] = 0;
        }
        limits
    }

    fn claim(&self, run: &Run, at: usize, from: usize) -> Vector {
        let mut claim = [0; 3];
        for stage in &self.jobs[at].profile.stages()[from..] {
            let peak = vector(stage.peak.iter(), run.lost);
            claim.iter_mut().zip(peak).for_each(|(claim, peak)| *claim = peak.max(*claim));
        }
        claim
    }

    fn fits(&self, run: &Run, at: usize) -> bool {
        self.claim(run, at, 0).iter().zip(self.targets(run)).all(|(claim, limit)| *claim <= limit)
    }

    fn needs_lost(&self, run: &Run, at: usize, stages: std::ops::Range<usize>) -> bool {
        let all = self.jobs[at].profile.stages();
        run.lost && all.iter().enumerate().any(|(stage, of)| stages.contains(&stage) && of.peak.of(D) > 0)
    }

    pub(crate) fn check(&self, run: &Run) {
        let components = run.state.components();
        let targets = self.targets(run);
        let mut parties: Vec<(Vector, Vector)> = Vec::new();
        let mut sums = [0; 3];
        let (mut runs, mut waits, mut in_flight) = (false, false, 0);
        for (at, job) in run.jobs.iter().enumerate() {
            let Some(view) = job.id.and_then(|id| run.state.owner(id)) else { continue };
            let held = vector(view.holdings.iter().copied(), false);
            let hands = |class| job.hands.get(&class).copied().unwrap_or(0);
            let books = [hands(A), if run.lost { 0 } else { hands(D) }];
            assert_eq!(held[..2], books, "I1: job {at}'s hands and the books, without what is lost");
            sums.iter_mut().zip(held).for_each(|(sum, held)| *sum += held);
            if let Some(waiting) = &view.waiting {
                waits = true;
                assert!(waiting.passed <= self.bypass, "I5: job {at} was passed {} times", waiting.passed);
                let stage = waiting.stage.expect("jobs wait for stages");
                let until = if matches!(view.stand, Stand::Between(_)) { stage + 1 } else { usize::MAX };
                assert!(!self.needs_lost(run, at, stage..until), "job {at} waits for what is lost");
            }
            let from = match view.stand {
                Stand::Running(Some(stage)) | Stand::Between(stage) => stage,
                _ => continue,
            };
            in_flight += 1;
            runs |= view.waiting.is_none();
            let mut claim = [0; 3];
            view.claim.iter().for_each(|&(component, amount)| claim[component] = amount);
            let least = self.claim(run, at, if self.jobs[at].keeps { 0 } else { from });
            let covers = claim.iter().zip(least).all(|(claim, least)| *claim >= least);
            assert!(covers, "job {at} is promised {claim:?}, and may need {least:?}");
            parties.push((held, claim));
        }
        let mut free = [0; 3];
        for (at, component) in components.iter().enumerate() {
            assert_eq!(component.held, sums[at], "I1: what is held adds up");
            assert!(component.held <= component.limit, "I2: {component:?}");
            assert_eq!(component.target, targets[at]);
            assert_eq!(component.retired, run.lost && at == 1);
            assert!(!component.retired || component.limit == 0, "I6: nothing of a lost device is free");
            free[at] = component.limit - component.held;
        }
        let alone = run.jobs.iter().any(|job| job.alone && job.id.is_some_and(|id| is_in_flight(&run.state, id)));
        assert!(!alone || in_flight == 1, "somebody is in flight beside a job that runs alone");
        let is_over = components.iter().any(|component| component.limit > component.target);
        assert!(!is_over || alone || run.resized > 0, "a limit is above the one that was asked for, for no reason");
        assert!(order_exists(free, &parties), "the state is not safe");
        assert!(runs || !waits, "I4: something waits, and nothing runs");
        if in_flight == 0 && !waits {
            assert_eq!(sums, [0; 3], "I7: something was not returned");
        }
    }
}

impl Run {
    fn id(&self, at: usize) -> OwnerId {
        self.jobs[at].id.expect("the ledger knows it")
    }

    fn view(&self, at: usize) -> OwnerView {
        self.state.owner(self.id(at)).expect("the ledger knows it")
    }

    /// Drops what it brought along, class by class.
    fn drop_pieces(&mut self, at: usize, out: &mut Vec<Outcome>) {
        let id = self.id(at);
        for (class, bytes) in std::mem::take(&mut self.jobs[at].kept) {
            self.state.drop_piece(id, class, Bytes(bytes), out);
            let held = self.jobs[at].hands.get_mut(&class).expect("what is kept is held");
            *held -= bytes;
        }
        self.jobs[at].hands.retain(|_, held| *held > 0);
    }
}

impl Job {
    /// What it holds and did not bring along.
    fn rest(&self) -> Vec<(Class, Bytes)> {
        let kept = |class| self.kept.get(class).copied().unwrap_or(0);
        self.hands
            .iter()
            .map(|(class, held)| (*class, Bytes(held - kept(class))))
            .filter(|entry| entry.1.0 > 0)
            .collect()
    }
}

fn is_in_flight(state: &LedgerState, id: OwnerId) -> bool {
    state.owner(id).is_some_and(|view| matches!(view.stand, Stand::Running(_) | Stand::Between(_)))
}

fn vector(amounts: impl Iterator<Item = (Resource, u64)>, without_device: bool) -> Vector {
    let mut vector = [0; 3];
    for (resource, amount) in amounts {
        match resource {
            Resource::Class(class) if class == A => vector[0] += amount,
            Resource::Class(_) if without_device => {}
            Resource::Class(_) => vector[1] += amount,
            Resource::Slots(_) => vector[2] += amount,
        }
    }
    vector
}

/// Whether there is any order in which each of those in flight gets its claim and returns all: tries them all.
fn order_exists(free: Vector, parties: &[(Vector, Vector)]) -> bool {
    parties.is_empty()
        || (0..parties.len()).any(|first| {
            let (held, claim) = parties[first];
            let fits = (0..3).all(|at| claim[at].saturating_sub(held[at]) <= free[at]);
            let after = [free[0] + held[0], free[1] + held[1], free[2] + held[2]];
            let mut rest = parties.to_vec();
            rest.remove(first);
            fits && order_exists(after, &rest)
        })
}
