//! What the state machine answers: grants, admissions to loads and refusals, each held against what was asked for.

use super::*;
use crate::again;
use crate::bypass;
use crate::moment::{self, Moment};
use crate::order;

impl Step<'_> {
    /// Passes what was granted or refused on to the actors.
    pub(crate) fn pass_on(&mut self) -> Result<(), Broken> {
        let mut moments = moment::take(self.setup, &mut self.state.ledger, &mut self.out);
        if !moments.is_empty() {
            self.refresh_what_is_asked();
        }
        while let Some(moment) = moments.first() {
            let (Moment::Granted(id, _) | Moment::Refused(id, _) | Moment::Admitted(id)) = moment else {
                moments.remove(0);
                continue;
            };
            let actor = self.state.actors.iter().position(|actor| actor.id == Some(*id));
            let Some(actor) = actor else {
                return Err(Broken::new(Rule::Answer, format!("an answer for nobody: {moment:?}")));
            };
            let At::Waiting(stage) = self.state.actors[actor].at else {
                let name = &self.setup.names[actor];
                return Err(Broken::new(Rule::Answer, format!("{name} does not wait, but: {moment:?}")));
            };
            match moment {
                Moment::Granted(_, granted) => {
                    order::check(self.setup, self.state, actor, &moments)?;
                    bypass::count(self.setup, self.state, actor, &moments);
                    self.granted(actor, stage, granted)?;
                }
                Moment::Admitted(_) => {
                    order::check(self.setup, self.state, actor, &moments)?;
                    bypass::count(self.setup, self.state, actor, &moments);
                    self.admitted_to_load(actor);
                }
                Moment::Refused(_, refusal) => self.refused(actor, stage, refusal)?,
                Moment::Stood(..) | Moment::Held(..) => unreachable!("looked at above"),
            }
            moments.remove(0);
            moments.extend(moment::take(self.setup, &mut self.state.ledger, &mut self.out));
        }
        for actor in 0..self.state.actors.len() {
            self.state.follow_choice(actor);
        }
        self.follow_orders()
    }

    /// Whoever waits to be admitted, and may go more than one way, goes by the first one that the limits allow until then; and
    /// what they allow may have changed since it asked.
    fn refresh_what_is_asked(&mut self) {
        for actor in 0..self.state.actors.len() {
            let known = &self.state.actors[actor];
            let waits = matches!(known.at, At::Waiting(_)) && !known.in_flight();
            let is_job = matches!(self.setup.kind(actor), Kind::Job(_));
            if !waits || !is_job || self.setup.parent(actor).is_some() || self.setup.plans(actor).len() == 1 {
                continue;
            }
            let home = self.setup.home(actor);
            let left = self.setup.plans_left(self.state, actor);
            let ordinary: Vec<&Plan> = left.filter(|plan| plan.account == home).collect();
            let attainable = |plan: &&&Plan| rules::is_attainable(self.setup, self.state, plan);
            let Some(plan) = ordinary.iter().find(attainable).or(ordinary.first()) else { continue };
            let there = |vector: &Vector| self.setup.without_lost(self.state, vector.clone());
            let asked = (plan.account, plan.choice, there(&plan.claims[0]), there(&plan.leaves));
            self.state.actors[actor].asked = Some(asked);
        }
    }

    fn admitted_to_load(&mut self, actor: usize) {
        let facts = Facts::of(self.setup, self.state);
        let me = facts.owners.into_iter().find(|owner| owner.actor == actor).expect("it was just admitted");
        let choice = self.state.ledger.choice(self.id(actor));
        let known = &mut self.state.actors[actor];
        (known.admitted, known.admitted_at, known.choice) = (true, Some(known.arrived), choice);
        known.asked = Some((me.account, choice, me.claim, me.leaves));
        self.happened.push(Happened::Admitted(actor));
    }

    /// A job stands where it stood before its admission, unless parts of it were submitted meanwhile and have not ended, or have
    /// left something to it.
    pub(crate) fn step_back(&mut self, actor: usize) {
        let is_there = |class: Class| !lost::is_lost_resource(self.state, class.into());
        let has_inherited =
            self.state.actors[actor].inherited.iter().any(|&(_, class, bytes)| bytes > 0 && is_there(class));
        if has_inherited || family::has_unfinished_parts(self.setup, self.state, actor) {
            (self.state.actors[actor].stays, self.state.actors[actor].admitted) = (true, true);
            return;
        }
        self.state.actors[actor].admitted = false;
        self.state.actors[actor].alone.clear();
        self.state.forget_lost_plans(self.setup, actor);
    }

    /// A job was told that it cannot go on. Who was not admitted is refused; who is in flight ends some other way.
    pub(super) fn cannot_go_on(&mut self, actor: usize, why: &str) -> Result<(), Broken> {
        if self.state.actors[actor].in_flight() {
            self.state.actors[actor].told = true;
            self.happened.push(Happened::Refused(actor, why.into()));
            return Ok(());
        }
        self.gone(actor, why)?;
        self.forget(actor)
    }

    fn granted(&mut self, actor: usize, stage: usize, granted: &Granted) -> Result<(), Broken> {
        // What it holds has not changed yet, but for what it goes by from here on.
        let before = self.state.holdings(self.setup, actor);
        self.state.actors[actor].choice = self.state.ledger.choice(self.id(actor));
        let missing: Vec<(Resource, u64)> = match self.setup.kind(actor) {
            Kind::Reservation(kind) => {
                let held = self.piece(actor, kind.class);
                vec![(kind.class.into(), kind.levels[stage].0 - held)]
            }
            Kind::Job(_) => self.setup.profile(self.state, actor).stages()[stage]
                .peak
                .iter()
                .map(|(resource, peak)| {
                    let held = before.iter().find(|entry| entry.0 == resource).map_or(0, |entry| entry.1);
                    (resource, peak.saturating_sub(held))
                })
                .filter(|entry| entry.1 != 0)
                .collect(),
        };
        let mut got = granted.to_vec();
        got.sort();
        if got != missing {
            let name = &self.setup.names[actor];
            return Err(Broken::new(Rule::Whole, format!("{name} is missing {missing:?} and was granted {got:?}")));
        }
        let is_job = matches!(self.setup.kind(actor), Kind::Job(_));
        if !self.state.actors[actor].in_flight() {
            self.state.actors[actor].admitted_at = Some(self.state.actors[actor].arrived);
            if is_job && again::would_run_alone(self.setup, self.state, actor) {
                let facts = Facts::of(self.setup, self.state);
                let me = facts.owners.iter().find(|owner| owner.actor == actor).expect("it was granted something");
                self.state.actors[actor].alone = again::accounts_below(self.setup, self.state, me);
            }
        }
        let granted_actor = &mut self.state.actors[actor];
        granted_actor.at = At::Running(stage);
        for (resource, amount) in got {
            if let Some(class) = class_of(resource) {
                let held = if is_job { &mut granted_actor.left } else { &mut granted_actor.pieces };
                let before = of(held, class);
                set(held, class, before + amount);
            }
        }
        // A plan that needs a lost device was kept only as long as the job went by it.
        self.state.forget_lost_plans(self.setup, actor);
        self.happened.push(Happened::Granted(actor, stage));
        Ok(())
    }

    fn refused(&mut self, actor: usize, stage: usize, refusal: &Refusal) -> Result<(), Broken> {
        let name = Arc::clone(&self.setup.names[actor]);
        let justified = match refusal {
            Refusal::Closed => self.state.closed,
            Refusal::ParentEnded => {
                self.setup.parent(actor).is_some_and(|parent| !family::has_room_for_parts(self.state, parent))
            }
            Refusal::NeverFits(_) => {
                rules::attainable(self.setup, self.state, actor).is_err()
                    && !again::would_run_alone(self.setup, self.state, actor)
            }
            Refusal::LoadFailed { .. } => !self.setup.needs(actor).is_empty(),
            // Whether another plan was safe then counts those who had not been told yet, and are gone by now.
            Refusal::Lost(_) => {
                self.state.actors[actor].told || lost::is_out_of_reach(self.setup, self.state, actor, stage)
            }
        };
        let may_be_in_flight = matches!(refusal, Refusal::Lost(_) | Refusal::LoadFailed { .. });
        if !justified || (!may_be_in_flight && self.state.actors[actor].in_flight()) {
            return Err(Broken::new(Rule::Answer, format!("{name} is refused for no good reason: {refusal:?}")));
        }
        let why = match refusal {
            Refusal::Closed => "closed",
            Refusal::ParentEnded => "its parent has ended",
            Refusal::NeverFits(_) => "never fits any more",
            Refusal::Lost(_) => "needs a device that was lost",
            Refusal::LoadFailed { .. } => "what it needs could not be loaded",
        };
        if let (Kind::Reservation(_), Some(level)) = (self.setup.kind(actor), stage.checked_sub(1)) {
            self.state.actors[actor].at = At::Running(level);
            self.happened.push(Happened::Refused(actor, why.into()));
            return Ok(());
        }
        if self.state.actors[actor].in_flight() {
            self.state.actors[actor].at = At::Between(stage);
            if stage == 0 && !self.state.actors[actor].stays {
                self.step_back(actor);
            }
        }
        if self.state.actors[actor].in_flight() {
            self.state.actors[actor].told = matches!(refusal, Refusal::Lost(_));
            self.happened.push(Happened::Refused(actor, why.into()));
            return Ok(());
        }
        self.gone(actor, why)?;
        match self.setup.kind(actor) {
            Kind::Job(_) => {
                let id = self.id(actor);
                self.state.actors[actor].id = None;
                self.state.ledger.end(id, &mut self.out);
            }
            Kind::Reservation(_) => self.state.actors[actor].id = None,
        }
        // A parent that was given up may have waited for nothing but this part.
        if let Some(parent) = self.setup.parent(actor) {
            self.wind_up(parent);
        }
        Ok(())
    }
}
