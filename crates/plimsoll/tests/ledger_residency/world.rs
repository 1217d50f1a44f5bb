//! Small worlds of jobs that need residencies, and what can happen in them.

use std::fmt;

use plimsoll::ledger::state::{
    AccountId, LedgerState, Order, Outcome, OwnerId, OwnerView, Refusal, ResidencyId, ResidencyStand, ResidencyView,
    Resident, Stand,
};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Profile, Resource, Space};

pub(crate) const A: Class = Class::new("a", Space::HOST);
pub(crate) const D: Class = Class::new("d", Space::device(0));
pub(crate) const KEY: Class = Class::new("key", Space::HOST);
pub(crate) const TABLE: Class = Class::new("table", Space::device(0));

/// Bytes of host and of device memory.
pub(crate) type Vector = [u64; 2];

/// What is loaded once and shared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shared {
    pub(crate) on_device: bool,
    pub(crate) bytes: u64,
    pub(crate) rebuild: u64,
}

/// A job: stages with what each holds at most and keeps, and what it needs. Without stages: somebody who takes a residency
/// by itself.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) stages: Vec<(Vector, Vector)>,
    pub(crate) needs: Vec<usize>,
    pub(crate) priority: i32,
}

/// A world, and what may go wrong in it.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub(crate) limits: Vector,
    pub(crate) bypass: u32,
    pub(crate) shared: Vec<Shared>,
    pub(crate) jobs: Vec<Kind>,
    /// Jobs fail in their stages, and take their requests back.
    pub(crate) trouble: bool,
    /// How many loads are given up in all, and how many fail for all who wait.
    pub(crate) give_ups: u8,
    pub(crate) failures: u8,
    pub(crate) resize: Option<u64>,
    pub(crate) closes: bool,
}

/// Where a job stands, by its own account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Place {
    Away,
    /// The ledger knows it; what it has kept.
    Live(Vector),
    Done,
    Refused,
}

/// What is in memory of a residency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    Nothing,
    /// A load fills it.
    Filling,
    Value,
    /// Told to go, or left behind by a load that was given up.
    Going,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Event {
    Arrive(usize),
    Ask(usize),
    EndStage(usize),
    Fail(usize),
    Withdraw(usize),
    /// A job begins the load that falls to it.
    TakeLoad(usize),
    Fill(usize),
    GiveUp(usize),
    FailLoad(usize),
    /// The memory of a residency is gone.
    Gone(usize),
    Resize,
    Close,
}

#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) state: LedgerState,
    pub(crate) residencies: Vec<ResidencyId>,
    pub(crate) memory: Vec<Memory>,
    /// Whose reservation a residency's bytes are, while they are out.
    payer: Vec<Option<OwnerId>>,
    pub(crate) jobs: Vec<(Place, Option<OwnerId>)>,
    withdrawn: Vec<bool>,
    give_ups: u8,
    failures: u8,
    pub(crate) resized: bool,
    pub(crate) closed: bool,
    /// What the last event ordered.
    pub(crate) orders: Vec<Order>,
}

/// What tells two states apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    numbers: Vec<u64>,
    residencies: Vec<(Option<ResidencyView>, Memory)>,
    jobs: Vec<(Place, Option<OwnerView>, bool)>,
    left: (u8, u8, bool, bool),
}

impl World {
    pub(crate) fn start(&self) -> Run {
        let budget = Budget::new()
            .space(Space::HOST, Bytes(self.limits[0]))
            .space(Space::device(0), Bytes(self.limits[1]))
            .bypass(self.bypass);
        let mut state = LedgerState::new(&budget);
        let declare = |(at, shared): (usize, &Shared)| {
            let class = if shared.on_device { TABLE } else { KEY };
            let name = format!("residency {at}").into();
            let declared = Resident { name, class, bytes: Bytes(shared.bytes), rebuild: shared.rebuild };
            state.declare_residency(declared).expect("the budget names both spaces")
        };
        let residencies: Vec<ResidencyId> = self.shared.iter().enumerate().map(declare).collect();
        Run {
            state,
            memory: vec![Memory::Nothing; residencies.len()],
            payer: vec![None; residencies.len()],
            residencies,
            jobs: vec![(Place::Away, None); self.jobs.len()],
            withdrawn: vec![false; self.jobs.len()],
            give_ups: self.give_ups,
            failures: self.failures,
            resized: false,
            closed: false,
            orders: Vec::new(),
        }
    }

    pub(crate) fn bytes(&self, residency: usize) -> Vector {
        let Shared { on_device, bytes, .. } = self.shared[residency];
        if on_device { [0, bytes] } else { [bytes, 0] }
    }

    /// What a job may still need from a stage on.
    pub(crate) fn claim(&self, job: usize, from: usize) -> Vector {
        let stages = self.jobs[job].stages.iter().skip(from);
        stages.fold([0, 0], |claim, (peak, _)| [claim[0].max(peak[0]), claim[1].max(peak[1])])
    }

    pub(crate) fn limits_asked_for(&self, run: &Run) -> Vector {
        [if run.resized { self.resize.unwrap_or_default() } else { self.limits[0] }, self.limits[1]]
    }

    /// Whether a job fits the limits that were asked for, alone with all that it needs.
    pub(crate) fn fits_alone(&self, run: &Run, job: usize) -> bool {
        let mut claim = self.claim(job, 0);
        for &need in &self.jobs[job].needs {
            claim = sum(claim, self.bytes(need));
        }
        fits(claim, self.limits_asked_for(run))
    }

    fn profile(&self, job: usize) -> Profile {
        let demand = |[host, device]: Vector| Demand::new().bytes(A, Bytes(host)).bytes(D, Bytes(device));
        let names = ["s0", "s1", "s2"];
        let stages = &self.jobs[job].stages;
        if stages.is_empty() {
            return Profile::new().stage("use", Demand::new(), Demand::new());
        }
        stages
            .iter()
            .zip(names)
            .fold(Profile::new(), |profile, ((peak, keep), name)| profile.stage(name, demand(*peak), demand(*keep)))
    }

    pub(crate) fn stages(&self, job: usize) -> usize {
        self.jobs[job].stages.len().max(1)
    }

    /// Everything that can happen now.
    pub(crate) fn events(&self, run: &Run) -> Vec<Event> {
        let mut events = Vec::new();
        for (job, (place, id)) in run.jobs.iter().enumerate() {
            let Place::Live(_) = place else {
                if *place == Place::Away {
                    events.push(Event::Arrive(job));
                }
                continue;
            };
            let id = id.expect("it lives");
            let view = run.view(job);
            match (view.stand, view.waiting.is_some()) {
                (_, true) => {
                    if run.state.next_load(id).is_some() {
                        events.push(Event::TakeLoad(job));
                    }
                    if self.trouble {
                        events.push(Event::Fail(job));
                        if !run.withdrawn[job] {
                            events.push(Event::Withdraw(job));
                        }
                    }
                }
                (Stand::Running(_), _) => {
                    events.push(Event::EndStage(job));
                    if self.trouble {
                        events.push(Event::Fail(job));
                    }
                }
                (Stand::Fresh | Stand::Between(_), false) => events.push(Event::Ask(job)),
                (Stand::Ended | Stand::HandedOver, false) => unreachable!("nothing is left behind here"),
            }
        }
        for (residency, memory) in run.memory.iter().enumerate() {
            match memory {
                Memory::Filling => {
                    events.push(Event::Fill(residency));
                    if run.give_ups > 0 {
                        events.push(Event::GiveUp(residency));
                    }
                    if run.failures > 0 {
                        events.push(Event::FailLoad(residency));
                    }
                }
                Memory::Going => events.push(Event::Gone(residency)),
                Memory::Nothing | Memory::Value => {}
            }
        }
        if self.resize.is_some() && !run.resized {
            events.push(Event::Resize);
        }
        if self.closes && !run.closed {
            events.push(Event::Close);
        }
        events
    }

    /// Lets an event happen.
    pub(crate) fn step(&self, run: &mut Run, event: Event) {
        let mut out = Vec::new();
        match event {
            Event::Arrive(job) => {
                let Kind { needs, priority, .. } = &self.jobs[job];
                let spec = JobSpec::new(&format!("job {job}"), self.profile(job)).priority(*priority);
                let spec = needs.iter().fold(spec, |spec, need| spec.needs(run.residencies[*need]));
                let fits = self.fits_alone(run, job) && !run.closed;
                match run.state.submit(AccountId::ROOT, spec) {
                    Ok(id) => {
                        assert!(fits, "I8: job {job} can never be served, and was taken on");
                        run.jobs[job] = (Place::Live([0; 2]), Some(id));
                        run.state.enter(0, id, 0, &mut out).expect("it was just taken on");
                    }
                    Err(error) => {
                        assert!(!fits, "job {job} was refused: {error}");
                        run.jobs[job].0 = Place::Refused;
                    }
                }
            }
            Event::Ask(job) => {
                let id = run.id(job);
                let stage = match run.view(job).stand {
                    Stand::Between(stage) => stage,
                    _ => 0,
                };
                if run.state.enter(0, id, stage, &mut out).is_err() {
                    assert!((run.resized || run.closed) && stage == 0, "job {job} was refused in flight");
                    run.state.end(id, &mut out);
                    run.jobs[job] = (Place::Refused, None);
                }
            }
            Event::EndStage(job) => self.end_stage(run, job, &mut out),
            Event::Fail(job) => self.fail(run, job, &mut out),
            Event::Withdraw(job) => {
                run.withdrawn[job] = true;
                run.state.withdraw(run.id(job), &mut out);
            }
            Event::TakeLoad(job) => {
                let (id, payer) = run.state.take_load(run.id(job)).expect("it falls to the job");
                let residency = run.residencies.iter().position(|other| *other == id).expect("it is known");
                assert_eq!(run.memory[residency], Memory::Nothing, "one load at a time");
                run.memory[residency] = Memory::Filling;
                run.payer[residency] = Some(payer);
            }
            Event::Fill(residency) => {
                let wanted = run.state.loaded(run.residencies[residency], &mut out);
                run.memory[residency] = if wanted { Memory::Value } else { Memory::Going };
            }
            Event::GiveUp(residency) => {
                run.give_ups -= 1;
                run.memory[residency] = Memory::Going;
                run.state.give_up_load(run.residencies[residency], None, &mut out);
            }
            Event::FailLoad(residency) => {
                run.failures -= 1;
                run.memory[residency] = Memory::Going;
                run.state.give_up_load(run.residencies[residency], Some("unreadable".into()), &mut out);
            }
            Event::Gone(residency) => {
                run.memory[residency] = Memory::Nothing;
                let payer = run.payer[residency].take().expect("somebody pays for it");
                let Shared { on_device, bytes, .. } = self.shared[residency];
                let class = if on_device { TABLE } else { KEY };
                run.state.drop_piece(payer, class, Bytes(bytes), &mut out);
            }
            Event::Resize => {
                run.resized = true;
                let limit = Bytes(self.resize.expect("it can be resized"));
                run.state.resize(AccountId::ROOT, Space::HOST, limit, &mut out).expect("host memory has a limit");
            }
            Event::Close => {
                run.closed = true;
                run.state.close(plimsoll::ledger::state::AccountId::ROOT, &mut out);
            }
        }
        self.learn(run, out);
    }

    fn end_stage(&self, run: &mut Run, job: usize, out: &mut Vec<Outcome>) {
        let id = run.id(job);
        let Place::Live(before) = run.jobs[job].0.clone() else { panic!("it lives") };
        let Stand::Running(Some(stage)) = run.view(job).stand else { panic!("a stage is running") };
        for (class, kept) in [A, D].into_iter().zip(before) {
            if kept > 0 {
                run.state.detach(id, class);
            }
        }
        let (peak, keep) = self.jobs[job].stages.get(stage).copied().unwrap_or_default();
        let mut rest = Vec::new();
        for (at, class) in [A, D].into_iter().enumerate() {
            rest.push((class, Bytes(peak[at] - keep[at])));
            if keep[at] > 0 {
                run.state.attach(id, class);
            }
        }
        run.state.end_stage(id, &rest, out);
        run.jobs[job].0 = Place::Live(keep);
        if stage + 1 == self.stages(job) {
            run.state.end(id, out);
            run.jobs[job] = (Place::Done, None);
        }
    }

    fn fail(&self, run: &mut Run, job: usize, out: &mut Vec<Outcome>) {
        let id = run.id(job);
        let Place::Live(kept) = run.jobs[job].0.clone() else { panic!("it lives") };
        if run.view(job).waiting.is_some() {
            run.state.withdraw(id, out);
        }
        for (class, kept) in [A, D].into_iter().zip(kept) {
            if kept > 0 {
                run.state.drop_piece(id, class, Bytes(kept), out);
            }
        }
        let view = run.view(job);
        if matches!(view.stand, Stand::Running(_)) {
            let rest = view.holdings.iter().map(|&(resource, held)| match resource {
                Resource::Class(class) => (class, Bytes(held)),
                Resource::Slots(_) => unreachable!("there are no slots here"),
            });
            let rest: Vec<(Class, Bytes)> = rest.collect();
            run.state.end_stage(id, &rest, out);
        }
        run.state.end(id, out);
        run.jobs[job] = (Place::Done, None);
    }

    fn learn(&self, run: &mut Run, out: Vec<Outcome>) {
        for outcome in out {
            if let Outcome::Refused(owner, refusal) = outcome {
                let job = run.jobs.iter().position(|entry| entry.1 == Some(owner)).expect("it is one of the jobs");
                match refusal {
                    Refusal::LoadFailed { .. } => assert!(self.failures > 0, "no load has failed"),
                    Refusal::NeverFits(_) => assert!(!self.fits_alone(run, job), "job {job} fits, and was refused"),
                    _ => assert!(run.closed, "job {job} was refused: {refusal:?}"),
                }
                run.state.end(owner, &mut Vec::new());
                run.jobs[job] = (Place::Refused, None);
            }
        }
        run.orders = run.state.drain_orders().collect();
        for order in run.orders.clone() {
            if let Order::Evict(id) = order {
                let residency = run.residencies.iter().position(|other| *other == id).expect("it is known");
                assert_eq!(run.memory[residency], Memory::Value, "only what is there can go");
                run.memory[residency] = Memory::Going;
            }
        }
    }

    pub(crate) fn key(&self, run: &Run) -> Key {
        let view = |residency: usize| {
            let mut view = run.residency(residency);
            if view.stand == ResidencyStand::Absent {
                // When something was used that is gone makes no difference.
                view.rank = 0;
            }
            Some(view)
        };
        Key {
            numbers: run.state.components().iter().flat_map(|component| [component.limit, component.held]).collect(),
            residencies: (0..run.memory.len()).map(|at| (view(at), run.memory[at])).collect(),
            jobs: (0..run.jobs.len())
                .map(|job| {
                    let (place, id) = run.jobs[job].clone();
                    (place, id.and_then(|id| run.state.owner(id)), run.withdrawn[job])
                })
                .collect(),
            left: (run.give_ups, run.failures, run.resized, run.closed),
        }
    }
}

impl Run {
    pub(crate) fn id(&self, job: usize) -> OwnerId {
        self.jobs[job].1.expect("the job has an owner")
    }

    pub(crate) fn view(&self, job: usize) -> OwnerView {
        self.state.owner(self.id(job)).expect("the job has an owner")
    }

    pub(crate) fn residency(&self, residency: usize) -> ResidencyView {
        self.state.residency(self.residencies[residency]).expect("it is not retired")
    }

    pub(crate) fn in_flight(&self, job: usize) -> bool {
        matches!(self.jobs[job].0, Place::Live(_))
            && matches!(self.view(job).stand, Stand::Running(_) | Stand::Between(_))
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for component in self.state.components() {
            writeln!(f, "  {:?}: {} of {}", component.kind, component.held, component.limit)?;
        }
        for (at, memory) in self.memory.iter().enumerate() {
            writeln!(f, "  residency {at}: {memory:?} {:?}", self.residency(at))?;
        }
        for (job, (place, id)) in self.jobs.iter().enumerate() {
            let view = id.and_then(|id| self.state.owner(id));
            let view = view.map(|view| (view.stand, view.waiting, view.holdings));
            writeln!(f, "  job {job}: {place:?} {view:?}")?;
        }
        Ok(())
    }
}

pub(crate) fn sum(one: Vector, other: Vector) -> Vector {
    [one[0] + other[0], one[1] + other[1]]
}

pub(crate) fn fits(need: Vector, room: Vector) -> bool {
    need[0] <= room[0] && need[1] <= room[1]
}
