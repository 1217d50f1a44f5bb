//! A state of the world: the shipped [`LedgerState`], and beside it what each job has in its hands.
//!
//! The actors do with the state machine what the crate's handles (`Job`, `Grant`, `Reservation`) do with it, call for
//! call. What comes out of it is held against what each of them asked for.

use std::sync::Arc;

use plimsoll::ledger::error::{EnterError, ReserveError, SubmitError};
use plimsoll::ledger::state::{AccountId, Granted, Kind as Limited, LedgerState, Outcome, OwnerId, Refusal, Standing};
use plimsoll::{Bytes, Class, Demand, JobSpec, Resource};

use crate::event::{At, Event};
use crate::facts::Facts;
use crate::family;
use crate::lost;
use crate::rules::{self, Broken, Rule};
use crate::setup::{Plan, Setup, Vector};
use crate::shared::Shared;
use crate::world::{Kind, ReservationKind};

mod answers;
mod endings;

/// Bytes by class, sorted, without zeros.
pub(crate) type Held = Vec<(Class, u64)>;

/// A job or reservation of the world, and what it has in its hands.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) at: At,
    pub(crate) id: Option<OwnerId>,
    /// What its reservations hold: one reservation a class.
    pub(crate) pieces: Held,
    /// What the grant of the running stage has left.
    pub(crate) left: Held,
    /// What it took beyond what it declared.
    pub(crate) extra: Option<(Class, u64)>,
    /// It has tried to.
    pub(crate) tried: bool,
    /// It has released early in the running stage.
    pub(crate) released: bool,
    /// It was given up; the stage runs on for nobody.
    pub(crate) abandoned: bool,
    pub(crate) withdraws_left: u8,
    pub(crate) retries_left: u8,
    /// When its waiting request arrived: later ones are larger.
    pub(crate) arrived: u64,
    /// The later admissions that passed its waiting request, by the check's own count.
    pub(crate) passed: u32,
    /// Which of its profiles it goes by.
    pub(crate) choice: usize,
    /// Which of them it went by when it last ended a stage: what slots it kept then. A job whose device is lost may change its
    /// profile without a grant.
    pub(crate) kept_by: usize,
    /// Of a part, the plan for which its parent had room when it was submitted.
    pub(crate) surety: Option<usize>,
    /// What its parts have left to it, under their names.
    pub(crate) inherited: Vec<(OwnerId, Class, u64)>,
    /// Account, profile, claim and leavings when it last asked for something.
    pub(crate) asked: Option<(AccountId, usize, Vector, Vector)>,
    /// Of one that ends with its parts: the stage whose slots it still has.
    pub(crate) ended_in: Option<usize>,
    /// It is in flight, although it stands before its first stage: admitted to a load, or to enter that stage once more.
    pub(crate) admitted: bool,
    /// It stays so when it takes its request back.
    pub(crate) stays: bool,
    /// The age of the request that it was admitted by, and the one that its next request has.
    pub(crate) admitted_at: Option<u64>,
    pub(crate) place: Option<u64>,
    /// It was told that it cannot go on.
    pub(crate) told: bool,
    /// It runs alone, in these accounts.
    pub(crate) alone: Vec<AccountId>,
    pub(crate) stage_retries_left: u8,
    pub(crate) restarts_left: u8,
    /// The plans that it cannot go by any more since a device was lost, bit by bit.
    pub(crate) forgotten: u32,
}

impl Actor {
    /// It was admitted and has not ended.
    pub(crate) fn in_flight(&self) -> bool {
        match self.at {
            At::Running(_) | At::Ending => true,
            At::Waiting(stage) | At::Between(stage) => stage > 0 || self.admitted,
            _ => false,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) ledger: LedgerState,
    pub(crate) actors: Vec<Actor>,
    pub(crate) shared: Vec<Shared>,
    /// The devices that were lost.
    pub(crate) lost: Vec<u16>,
    pub(crate) resizes_done: usize,
    pub(crate) closed: bool,
    arrivals: u64,
}

/// What an event brought about.
#[derive(Clone, Debug)]
pub(crate) enum Happened {
    Granted(usize, usize),
    /// To the load of what it needs.
    Admitted(usize),
    Refused(usize, String),
}

impl State {
    pub(crate) fn new(setup: &Setup<'_>) -> State {
        let actor = |actor: usize| {
            let [withdraws_left, retries_left, stage_retries_left, restarts_left] = match setup.kind(actor) {
                Kind::Job(job) => [job.withdraws, job.retries, job.stage_retries, job.restarts],
                Kind::Reservation(_) => [0; 4],
            };
            Actor {
                at: At::Absent,
                id: None,
                pieces: Held::new(),
                left: Held::new(),
                extra: None,
                tried: false,
                released: false,
                abandoned: false,
                withdraws_left,
                retries_left,
                arrived: 0,
                passed: 0,
                choice: 0,
                kept_by: 0,
                surety: None,
                inherited: Vec::new(),
                asked: None,
                ended_in: None,
                admitted: false,
                stays: false,
                admitted_at: None,
                place: None,
                told: false,
                alone: Vec::new(),
                stage_retries_left,
                restarts_left,
                forgotten: 0,
            }
        };
        let actors = (0..setup.names.len()).map(actor).collect();
        let shared = setup.world.residencies.iter().map(Shared::new).collect();
        let ledger = setup.ledger.clone();
        State { ledger, actors, shared, lost: Vec::new(), resizes_done: 0, closed: false, arrivals: 0 }
    }

    /// What an actor should hold by its own account.
    pub(crate) fn holdings(&self, setup: &Setup<'_>, actor: usize) -> Vec<(Resource, u64)> {
        let state = &self.actors[actor];
        let mut demand = Demand::new();
        let inherited = state.inherited.iter().map(|&(_, class, bytes)| (class, bytes));
        for (class, bytes) in state.pieces.iter().chain(&state.left).chain(&state.extra).copied().chain(inherited) {
            demand = demand.bytes(class, Bytes(bytes));
        }
        if let Kind::Job(_) = setup.kind(actor) {
            let slots = match state.at {
                At::Running(stage) => Some(&setup.profile(self, actor).stages()[stage].peak),
                _ => setup.kept(state, actor),
            };
            for (resource, count) in slots.into_iter().flat_map(Demand::iter) {
                if let Resource::Slots(slots) = resource {
                    demand = demand.slots(slots, count);
                }
            }
        }
        demand.iter().filter(|entry| !lost::is_lost_resource(self, entry.0)).collect()
    }

    /// A job that is not admitted goes by the profile that stands for it until then.
    fn follow_choice(&mut self, actor: usize) {
        if let (At::Waiting(0) | At::Between(0) | At::Absent, Some(id)) = (self.actors[actor].at, self.actors[actor].id)
        {
            self.actors[actor].choice = self.ledger.choice(id);
        }
    }

    /// Whether parts of a job have been admitted and have not ended.
    pub(crate) fn has_parts_in_flight(&self, setup: &Setup<'_>, actor: usize) -> bool {
        setup.parts(actor).any(|part| self.actors[part].in_flight())
    }

    /// Lets an event happen, which must be possible here.
    pub(crate) fn apply(&mut self, setup: &Setup<'_>, event: Event) -> Result<Vec<Happened>, Broken> {
        let mut step = Step { setup, state: self, out: Vec::new(), happened: Vec::new() };
        match event {
            Event::Arrive(actor) | Event::Retry(actor) => {
                if event == Event::Retry(actor) {
                    step.state.actors[actor].retries_left -= 1;
                }
                match setup.kind(actor) {
                    Kind::Job(_) => step.submit(actor)?,
                    Kind::Reservation(kind) => step.open(actor, kind)?,
                }
            }
            Event::EndStage(actor) => step.end_stage(actor)?,
            Event::ReleaseEarly(actor) => step.release_early(actor)?,
            Event::TryGrow(actor) => step.try_grow(actor)?,
            Event::Grow(actor) => step.grow(actor)?,
            Event::Cancel(actor) => step.cancel(actor)?,
            Event::Withdraw(actor) => step.withdraw(actor)?,
            Event::Ask(actor) => {
                let At::Between(stage) = step.state.actors[actor].at else { unreachable!("it stands between stages") };
                step.ask(actor, stage)?;
            }
            Event::Fail(actor) => step.fail(actor)?,
            Event::DropResults(actor) | Event::Return(actor) | Event::Freed(actor) => step.let_go(actor)?,
            Event::DropAllResults(actor) => {
                for sibling in setup.siblings(actor) {
                    if step.state.actors[sibling].at == At::Results {
                        step.let_go(sibling)?;
                    }
                }
            }
            Event::RetryStage(actor) => step.retry_stage(actor)?,
            Event::Restart(actor) => step.restart(actor)?,
            Event::TakeLoad(actor) => step.take_load(actor)?,
            Event::ReturnFromLoad(residency) => step.return_from_load(residency)?,
            Event::Loaded(residency) => step.loaded(residency)?,
            Event::GiveUpLoad(residency) => step.give_up_load(residency, false)?,
            Event::FailLoad(residency) => step.give_up_load(residency, true)?,
            Event::Gone(residency) => step.memory_gone(residency)?,
            Event::Lose(number) => step.lose(number)?,
            Event::Resize(number) => {
                step.state.resizes_done += 1;
                let (account, of, limit) = setup.resizes[number];
                let (ledger, out) = (&mut step.state.ledger, &mut step.out);
                let resized = match of {
                    Limited::Space(space) => ledger.resize(account, space, Bytes(limit), out),
                    Limited::Slots(slots) => ledger.resize_slots(account, slots, limit, out),
                };
                resized.map_err(|error| Broken::new(Rule::Answer, error.to_string()))?;
                step.pass_on()?;
            }
            Event::Close => {
                step.state.closed = true;
                step.state.ledger.close(AccountId::ROOT, &mut step.out);
                step.pass_on()?;
            }
        }
        Ok(step.happened)
    }
}

/// One event on its way.
pub(crate) struct Step<'a> {
    pub(crate) setup: &'a Setup<'a>,
    pub(crate) state: &'a mut State,
    pub(crate) out: Vec<Outcome>,
    happened: Vec<Happened>,
}

impl Step<'_> {
    pub(crate) fn id(&self, actor: usize) -> OwnerId {
        self.state.actors[actor].id.expect("the ledger knows it")
    }

    /// Puts an actor on the waiting list.
    fn waits(&mut self, actor: usize, stage: usize) {
        self.state.arrivals += 1;
        let waiting = &mut self.state.actors[actor];
        waiting.at = At::Waiting(stage);
        waiting.arrived = waiting.place.take().unwrap_or(self.state.arrivals);
        waiting.passed = 0;
    }

    fn submit(&mut self, actor: usize) -> Result<(), Broken> {
        let job = self.setup.job(actor);
        let mut spec = JobSpec::new(&self.setup.names[actor], job.profile.clone()).priority(job.priority);
        spec.urgent = job.urgent;
        spec.alternatives.clone_from(&job.alternatives);
        (spec.restarts, spec.alone_if_oversize) = (job.keeps, job.alone);
        for plan in self.setup.plans(actor) {
            for need in &plan.needs {
                // What all plans need is declared for all of them.
                let residency = self.setup.residencies[*need];
                if self.setup.plans(actor).iter().all(|plan| plan.needs.contains(need)) {
                    spec = spec.needs(residency);
                } else {
                    spec.needs_by.push((plan.choice, residency.into()));
                }
            }
        }
        let lost = |plan: &Plan| self.setup.needs_lost(self.state, plan, 0..self.setup.stages(actor));
        let plans = self.setup.plans(actor).iter().enumerate();
        let forgotten = plans.filter(|(_, plan)| lost(plan)).fold(0, |gone, (at, _)| gone | 1 << at);
        let is_lost = lost::is_refused_at_once(self.setup, self.state, actor);
        let known = &mut self.state.actors[actor];
        (known.admitted, known.stays, known.told) = (false, false, false);
        (known.admitted_at, known.place, known.forgotten) = (None, None, if is_lost { 0 } else { forgotten });
        known.alone.clear();
        if let Some(parent) = self.setup.parent(actor) {
            return self.submit_part(actor, parent, spec);
        }
        let account = self.setup.home(actor);
        let fits = rules::attainable(self.setup, self.state, actor);
        let alone = self.setup.job(actor).alone && self.setup.needs(actor).is_empty();
        match self.state.ledger.submit(account, spec) {
            Ok(_) if is_lost => Err(Broken::new(Rule::Lost, "a job that needs a lost device is taken on".into())),
            Err(SubmitError::Lost(_)) if is_lost => self.gone(actor, "needs a device that was lost"),
            Ok(id) => {
                (self.state.actors[actor].id, self.state.actors[actor].choice) =
                    (Some(id), self.state.ledger.choice(id));
                if let Err(unattainable) = fits
                    && !alone
                {
                    return Err(Broken::new(
                        Rule::NeverFits,
                        format!("{} is taken on, but {unattainable}", self.setup.names[actor]),
                    ));
                }
                self.ask(actor, 0)
            }
            Err(SubmitError::NeverFits(_)) if fits.is_err() => self.gone(actor, "never fits"),
            Err(SubmitError::Closed { .. }) if self.state.closed => self.gone(actor, "closed"),
            Err(error) => Err(Broken::new(Rule::NeverFits, format!("refused although it fits: {error}"))),
        }
    }

    fn submit_part(&mut self, actor: usize, parent: usize, spec: JobSpec) -> Result<(), Broken> {
        let name = &self.setup.names[actor];
        let is_lost = lost::is_refused_at_once(self.setup, self.state, actor);
        let room = family::plan_with_room(self.setup, self.state, actor).filter(|_| !is_lost);
        let spec = spec.part_of_owner(self.state.ledger.as_parent(self.id(parent)));
        match (self.state.ledger.submit(self.setup.home(actor), spec), room) {
            (Ok(id), Some(plan)) => {
                let part = &mut self.state.actors[actor];
                (part.id, part.surety) = (Some(id), Some(plan));
                self.state.follow_choice(actor);
                self.ask(actor, 0)
            }
            (Err(SubmitError::Lost(_)), None) if is_lost => self.gone(actor, "needs a device that was lost"),
            (Err(SubmitError::BeyondParent { .. } | SubmitError::NotParentsNeed { .. }), None) => {
                self.gone(actor, "beyond its parent's claim")
            }
            (Ok(_), None) => {
                Err(Broken::new(Rule::NeverFits, format!("{name} is taken on, but its parent has no room for it")))
            }
            (Err(error), _) => Err(Broken::new(Rule::NeverFits, format!("{name} is refused: {error}"))),
        }
    }

    fn open(&mut self, actor: usize, kind: &ReservationKind) -> Result<(), Broken> {
        let standing = Standing {
            name: self.setup.names[actor].clone(),
            class: kind.class,
            bytes: kind.levels[0],
            max: (kind.levels.len() > 1).then(|| kind.levels[kind.levels.len() - 1]),
            priority: kind.priority,
            retained: kind.retained,
        };
        let account = self.setup.home(actor);
        let fits = rules::attainable(self.setup, self.state, actor);
        self.waits(actor, 0);
        match self.state.ledger.open(0, account, standing, &mut self.out) {
            Ok(id) => {
                self.state.actors[actor].id = Some(id);
                if let Err(unattainable) = fits {
                    return Err(Broken::new(
                        Rule::NeverFits,
                        format!("{} waits or is granted, but {unattainable}", self.setup.names[actor]),
                    ));
                }
                self.pass_on()
            }
            Err(ReserveError::Lost(_)) if self.setup.is_lost(self.state, kind.class) => {
                self.gone(actor, "needs a device that was lost")
            }
            Err(ReserveError::NeverFits(_)) if fits.is_err() => self.gone(actor, "never fits"),
            Err(ReserveError::Closed { .. }) if self.state.closed => self.gone(actor, "closed"),
            Err(error) => Err(Broken::new(Rule::NeverFits, format!("refused although it fits: {error}"))),
        }
    }

    fn gone(&mut self, actor: usize, why: &str) -> Result<(), Broken> {
        self.state.actors[actor].at = At::Gone;
        self.happened.push(Happened::Refused(actor, why.into()));
        Ok(())
    }

    pub(crate) fn ask(&mut self, actor: usize, stage: usize) -> Result<(), Broken> {
        let in_flight = self.state.actors[actor].in_flight();
        let must_change = lost::is_out_of_reach(self.setup, self.state, actor, stage);
        let is_lost = must_change && !lost::has_another_way(self.setup, self.state, actor);
        let in_the_way = in_flight && family::is_in_the_way_of_its_parts(self.setup, self.state, actor, stage);
        let parent = self.setup.parent(actor);
        let is_orphan = parent.is_some_and(|parent| !family::has_room_for_parts(self.state, parent));
        self.waits(actor, stage);
        let id = self.id(actor);
        let facts = Facts::of(self.setup, self.state);
        let me = facts.owners.into_iter().find(|owner| owner.actor == actor).expect("the ledger knows it");
        let beyond = |at: usize| me.held[at] + me.need.as_ref().map_or(0, |need| need[at]) > me.claim[at];
        let is_beyond = in_flight && (0..me.held.len()).any(beyond);
        self.state.actors[actor].asked = Some((me.account, self.state.ledger.choice(id), me.claim, me.leaves));
        match self.state.ledger.enter(0, id, stage, &mut self.out) {
            Ok(()) if must_change && !is_lost => {
                self.state.changes_its_way(self.setup, actor);
                self.pass_on()
            }
            Ok(()) if is_lost => Err(Broken::new(Rule::Lost, "a stage that needs a lost device is waited for".into())),
            Err(EnterError::Lost(_)) if is_lost => {
                self.state.actors[actor].at = At::Between(stage);
                self.cannot_go_on(actor, "needs a device that was lost")
            }
            Err(EnterError::BeyondClaim { .. }) if is_beyond => {
                self.state.actors[actor].at = At::Between(stage);
                self.cannot_go_on(actor, "goes beyond its claim with what it kept")
            }
            Ok(()) if in_the_way => {
                let why = "it enters a stage beside which there is no room for its unfinished parts".into();
                Err(Broken::new(Rule::Answer, why))
            }
            Err(EnterError::PartsUnfinished { .. }) if in_the_way => {
                self.state.actors[actor].at = At::Between(stage);
                self.happened.push(Happened::Refused(actor, "its parts have not ended".into()));
                Ok(())
            }
            Err(EnterError::ParentEnded { .. }) if is_orphan && !in_flight => {
                self.gone(actor, "its parent has ended")?;
                self.forget(actor)
            }
            Ok(()) => self.pass_on(),
            Err(error)
                if !in_flight && (self.state.closed || rules::attainable(self.setup, self.state, actor).is_err()) =>
            {
                // A limit was lowered, or the ledger closed, since it was submitted.
                self.gone(actor, &error.to_string())?;
                self.forget(actor)
            }
            Err(error) => Err(Broken::new(Rule::Answer, error.to_string())),
        }
    }

    fn end_stage(&mut self, actor: usize) -> Result<(), Broken> {
        let At::Running(stage) = self.state.actors[actor].at else { unreachable!("a stage is running") };
        let id = self.id(actor);
        self.return_extra(actor)?;
        if self.state.actors[actor].abandoned {
            self.end_grant(actor);
            self.ends_with_its_parts(actor, Some(stage));
            if !matches!(self.state.actors[actor].at, At::Ending) {
                self.state.actors[actor].at = At::Gone;
            }
            if let Some(parent) = self.setup.parent(actor) {
                self.wind_up(parent);
            }
            self.pass_on()?;
            return self.drop_all(actor);
        }
        self.take_in(actor)?;
        let stages = self.setup.profile(self.state, actor).stages();
        let keep = &stages[stage].keep;
        let mut classes: Vec<Class> = stages[stage].peak.iter().filter_map(|entry| class_of(entry.0)).collect();
        classes.extend(self.state.actors[actor].pieces.iter().map(|entry| entry.0));
        classes.sort();
        classes.dedup();
        for class in classes {
            let (piece, left) = (self.piece(actor, class), of(&self.state.actors[actor].left, class));
            // Slots aside, what is kept is what is there: an early release leaves exactly that.
            let keep = keep.of(class).min(piece + left);
            if keep > piece {
                if piece == 0 {
                    self.state.ledger.attach(id, class);
                }
                set(&mut self.state.actors[actor].left, class, left - (keep - piece));
            } else if keep == 0 && piece > 0 {
                self.state.ledger.drop_piece(id, class, Bytes(piece), &mut self.out);
            } else if keep < piece {
                self.state.ledger.release(id, class, Bytes(piece - keep), &mut self.out);
            }
            set(&mut self.state.actors[actor].pieces, class, keep);
            self.pass_on()?;
        }
        self.end_grant(actor);
        if stage + 1 < stages.len() {
            self.state.actors[actor].at = At::Between(stage + 1);
            self.pass_on()?;
            if !self.setup.job(actor).pauses {
                self.ask(actor, stage + 1)?;
            }
            return Ok(());
        }
        self.pass_on()?;
        if let Some(parent) = self.setup.parent(actor) {
            return self.end_part(actor, parent);
        }
        self.state.actors[actor].at = At::Results;
        self.state.ledger.end(id, &mut self.out);
        if self.state.actors[actor].pieces.is_empty() {
            self.state.actors[actor].id = None;
            let really = self.setup.job(actor).really.as_ref().and_then(|profile| profile.stages().last());
            if really.is_none_or(|stage| stage.keep.is_empty()) {
                self.state.actors[actor].at = At::Gone;
            }
        }
        self.pass_on()
    }

    /// The grant is dropped, with what it has left.
    fn end_grant(&mut self, actor: usize) {
        let id = self.id(actor);
        let left = std::mem::take(&mut self.state.actors[actor].left);
        let unattached: Vec<(Class, Bytes)> = left.into_iter().map(|(class, bytes)| (class, Bytes(bytes))).collect();
        let known = &mut self.state.actors[actor];
        (known.released, known.stays, known.admitted) = (false, false, false);
        known.kept_by = known.choice;
        self.state.ledger.end_stage(id, &unattached, &mut self.out);
    }

    fn release_early(&mut self, actor: usize) -> Result<(), Broken> {
        let id = self.id(actor);
        let keep = match self.state.actors[actor].at {
            At::Running(stage) => {
                self.state.actors[actor].released = true;
                self.setup.profile(self.state, actor).stages()[stage].keep.clone()
            }
            _ => Demand::new(),
        };
        for (class, left) in self.state.actors[actor].left.clone() {
            let piece = self.piece(actor, class);
            let surplus = (piece + left).saturating_sub(keep.of(class)).min(left);
            if surplus > 0 {
                set(&mut self.state.actors[actor].left, class, left - surplus);
                self.state.ledger.attach(id, class);
                self.state.ledger.drop_piece(id, class, Bytes(surplus), &mut self.out);
                self.pass_on()?;
            }
        }
        for (class, piece) in self.state.actors[actor].pieces.clone() {
            let surplus = piece.saturating_sub(keep.of(class));
            if surplus > 0 {
                set(&mut self.state.actors[actor].pieces, class, piece - surplus);
                if piece == surplus {
                    self.state.ledger.drop_piece(id, class, Bytes(surplus), &mut self.out);
                } else {
                    self.state.ledger.release(id, class, Bytes(surplus), &mut self.out);
                }
                self.pass_on()?;
            }
        }
        Ok(())
    }

    fn try_grow(&mut self, actor: usize) -> Result<(), Broken> {
        let id = self.id(actor);
        self.state.actors[actor].tried = true;
        let (class, bytes) = match self.setup.kind(actor) {
            Kind::Job(job) => job.grows.expect("it tries to grow"),
            Kind::Reservation(kind) => (kind.class, kind.tries.expect("it tries to grow")),
        };
        let is_job = matches!(self.setup.kind(actor), Kind::Job(_));
        if is_job {
            self.state.ledger.attach(id, class);
        }
        match self.state.ledger.try_grow(id, class, bytes, &mut self.out) {
            Ok(()) if is_job => self.state.actors[actor].extra = Some((class, bytes.0)),
            Ok(()) => {
                let piece = self.piece(actor, class);
                set(&mut self.state.actors[actor].pieces, class, piece + bytes.0);
            }
            Err(_) if is_job => self.state.ledger.drop_piece(id, class, Bytes::ZERO, &mut self.out),
            Err(_) => {}
        }
        self.pass_on()
    }

    pub(crate) fn return_extra(&mut self, actor: usize) -> Result<(), Broken> {
        if let Some((class, bytes)) = self.state.actors[actor].extra.take() {
            let id = self.id(actor);
            self.state.ledger.drop_piece(id, class, Bytes(bytes), &mut self.out);
            self.pass_on()?;
        }
        Ok(())
    }

    fn grow(&mut self, actor: usize) -> Result<(), Broken> {
        let (Kind::Reservation(kind), At::Running(level)) = (self.setup.kind(actor), self.state.actors[actor].at)
        else {
            unreachable!("only a reservation that is held grows")
        };
        let id = self.id(actor);
        let more = kind.levels[level + 1].checked_sub(kind.levels[level]).expect("levels rise");
        self.waits(actor, level + 1);
        let asked = self.state.ledger.grow(0, id, kind.class, more, &mut self.out);
        asked.map_err(|error| Broken::new(Rule::Answer, error.to_string()))?;
        self.pass_on()
    }

    pub(crate) fn piece(&self, actor: usize, class: Class) -> u64 {
        of(&self.state.actors[actor].pieces, class)
    }
}

fn class_of(resource: Resource) -> Option<Class> {
    match resource {
        Resource::Class(class) => Some(class),
        Resource::Slots(_) => None,
    }
}

fn of(held: &Held, class: Class) -> u64 {
    held.iter().find(|entry| entry.0 == class).map_or(0, |entry| entry.1)
}

fn set(held: &mut Held, class: Class, bytes: u64) {
    held.retain(|entry| entry.0 != class);
    if bytes > 0 {
        held.push((class, bytes));
        held.sort();
    }
}
