//! Stages that are run again, jobs that begin again, jobs that run alone, and what is freed later.

use plimsoll::Bytes;
use plimsoll::ledger::state::AccountId;

use crate::event::At;
use crate::facts::{Facts, OwnerFacts};
use crate::rules::{Broken, Rule};
use crate::setup::{Setup, Vector};
use crate::state::{State, Step};
use crate::world::Kind;

impl Step<'_> {
    pub(crate) fn retry_stage(&mut self, actor: usize) -> Result<(), Broken> {
        let id = self.id(actor);
        let At::Running(stage) = self.state.actors[actor].at else { unreachable!("a stage is running") };
        self.return_extra(actor)?;
        let known = &mut self.state.actors[actor];
        known.stage_retries_left -= 1;
        known.released = false;
        let left = std::mem::take(&mut known.left);
        let unattached: Vec<_> = left.into_iter().map(|(class, bytes)| (class, Bytes(bytes))).collect();
        (known.at, known.admitted, known.stays) = (At::Between(stage), true, true);
        known.kept_by = known.choice;
        self.state.ledger.retry_stage(id, &unattached, &mut self.out);
        self.pass_on()?;
        if self.setup.job(actor).pauses { Ok(()) } else { self.ask(actor, stage) }
    }

    pub(crate) fn restart(&mut self, actor: usize) -> Result<(), Broken> {
        let id = self.id(actor);
        let keeps = self.setup.job(actor).keeps;
        let known = &mut self.state.actors[actor];
        known.restarts_left -= 1;
        known.told = false;
        if let At::Waiting(stage) = known.at {
            known.at = At::Between(stage);
            self.state.ledger.withdraw(id, &mut self.out);
            self.pass_on()?;
        }
        if !keeps {
            self.return_everything(actor)?;
        }
        let known = &mut self.state.actors[actor];
        (known.at, known.admitted, known.stays) = (At::Between(0), keeps, keeps);
        if !keeps {
            known.alone.clear();
        }
        // It does not queue behind those who came after its first admission.
        known.place = known.admitted_at.filter(|_| !keeps);
        let restarted = self.state.ledger.restart(id, &mut self.out);
        restarted.map_err(|error| Broken::new(Rule::Answer, error.to_string()))?;
        if !keeps {
            self.state.forget_lost_plans(self.setup, actor);
        }
        self.pass_on()?;
        if self.setup.job(actor).pauses { Ok(()) } else { self.ask(actor, 0) }
    }

    /// Drops every reservation of a job that goes on.
    fn return_everything(&mut self, actor: usize) -> Result<(), Broken> {
        for (part, class, bytes) in std::mem::take(&mut self.state.actors[actor].inherited) {
            self.state.ledger.drop_piece(part, class, Bytes(bytes), &mut self.out);
            self.pass_on()?;
        }
        let id = self.id(actor);
        for (class, bytes) in std::mem::take(&mut self.state.actors[actor].pieces) {
            self.state.ledger.drop_piece(id, class, Bytes(bytes), &mut self.out);
            self.pass_on()?;
        }
        Ok(())
    }

    /// Results or a reservation are dropped: at once, or by the reaper.
    pub(crate) fn let_go(&mut self, actor: usize) -> Result<(), Broken> {
        let frees_later = match self.setup.kind(actor) {
            Kind::Job(job) => job.frees_later,
            Kind::Reservation(kind) => kind.frees_later,
        };
        if frees_later && self.state.actors[actor].at != At::Freeing {
            self.state.actors[actor].at = At::Freeing;
            return Ok(());
        }
        self.drop_all(actor)
    }
}

/// Whether a job runs alone if it is served at all: each of its plans is above a limit, and it may.
pub(crate) fn would_run_alone(setup: &Setup<'_>, state: &State, actor: usize) -> bool {
    let may = matches!(setup.kind(actor), Kind::Job(job) if job.alone);
    may && setup.parent(actor).is_none()
        && setup.needs(actor).is_empty()
        && crate::rules::attainable(setup, state, actor).is_err()
}

/// The accounts whose limits are below what an owner claims.
pub(crate) fn accounts_below(setup: &Setup<'_>, state: &State, owner: &OwnerFacts) -> Vec<AccountId> {
    let components = state.ledger.components();
    let is_above = |at: &usize| owner.claim[*at] > components[*at].target.saturating_sub(components[*at].retained);
    (0..components.len()).filter(is_above).map(|at| setup.components[at].account).collect()
}

/// Whether an owner has to do with one of these accounts: everybody with the root.
fn is_within(setup: &Setup<'_>, owner: &OwnerFacts, accounts: &[AccountId]) -> bool {
    let touches = |amounts: &Vector| {
        (0..amounts.len()).any(|at| amounts[at] > 0 && accounts.contains(&setup.components[at].account))
    };
    accounts.contains(&AccountId::ROOT) || touches(&owner.claim) || touches(&owner.held)
}

/// Whether somebody in flight is in the way of a job that is to run alone.
pub(crate) fn is_in_the_way(setup: &Setup<'_>, state: &State, facts: &Facts, waiter: &OwnerFacts) -> bool {
    let within = accounts_below(setup, state, waiter);
    facts.owners.iter().any(|other| {
        let stays = matches!(setup.kind(other.actor), Kind::Reservation(kind) if kind.retained);
        other.in_flight && !stays && is_within(setup, other, &within)
    })
}

/// Whether an admission would come beside a job that runs alone.
pub(crate) fn is_beside_alone(setup: &Setup<'_>, state: &State, facts: &Facts, waiter: &OwnerFacts) -> bool {
    facts.owners.iter().filter(|other| other.in_flight && other.actor != waiter.actor).any(|other| {
        let alone = &state.actors[other.actor].alone;
        !alone.is_empty() && is_within(setup, waiter, alone)
    })
}

/// The facts with the limits raised to what a job claims that is admitted alone.
pub(crate) fn raised(setup: &Setup<'_>, state: &State, facts: &Facts, waiter: &OwnerFacts) -> Facts {
    let mut facts = facts.clone();
    for (at, taken) in raised_for(setup, state, &facts, waiter) {
        facts.limit[at] = facts.limit[at].max(taken + waiter.claim[at]);
    }
    facts
}

/// The limits as they were before they were raised to what a job claims that was admitted alone: nobody else had a part in them, so
/// they were as low as was asked for, or as what is held and set aside.
pub(crate) fn lower_again(setup: &Setup<'_>, state: &State, facts: &mut Facts, admitted: &OwnerFacts) {
    for (at, taken) in raised_for(setup, state, facts, admitted) {
        facts.limit[at] = facts.limit[at].min(facts.target[at].max(taken));
    }
}

/// The components whose limit is raised for a job that runs alone, and what is held and set aside there without it.
fn raised_for(setup: &Setup<'_>, state: &State, facts: &Facts, waiter: &OwnerFacts) -> Vec<(usize, u64)> {
    let within = accounts_below(setup, state, waiter);
    let is_raised = |at: &usize| waiter.claim[*at] > 0 && within.contains(&setup.components[*at].account);
    let taken = |at: usize| {
        let others = facts.owners.iter().filter(|owner| owner.in_flight && owner.actor != waiter.actor);
        facts.held[at] + others.map(|owner| owner.leaves[at].saturating_sub(owner.held[at])).sum::<u64>()
    };
    (0..facts.limit.len()).filter(is_raised).map(|at| (at, taken(at))).collect()
}

/// Nobody is in flight beside a job that runs alone, where its limit holds.
pub(crate) fn check(setup: &Setup<'_>, state: &State, facts: &Facts) -> Result<(), Broken> {
    for owner in facts.owners.iter().filter(|owner| owner.in_flight) {
        let within = &state.actors[owner.actor].alone;
        let beside = |other: &&OwnerFacts| {
            let stays = matches!(setup.kind(other.actor), Kind::Reservation(kind) if kind.retained);
            other.actor != owner.actor && other.in_flight && !stays && is_within(setup, other, within)
        };
        if !within.is_empty()
            && let Some(other) = facts.owners.iter().find(beside)
            && setup.parent(other.actor).is_none()
        {
            let (name, other) = (&setup.names[owner.actor], &setup.names[other.actor]);
            return Err(Broken::new(Rule::Alone, format!("{other} is in flight beside {name}, which runs alone")));
        }
    }
    Ok(())
}
