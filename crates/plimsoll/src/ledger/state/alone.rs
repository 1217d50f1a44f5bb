//! Jobs that are larger than a limit and run alone, because whoever submitted them chose that over an error.
//!
//! Such a job waits among the admissions like any other: it is passed at most K times, and then nobody new comes in until
//! it is served. It is admitted when nothing else is in flight in the account whose limit it is above (in the whole ledger,
//! where that is the root's), but reservations that are declared as retained, which nobody waits for. Until it has ended
//! nobody is admitted beside it there.
//!
//! What it is promised, and what the limits still say:
//!
//! - At its admission the limit that holds now is *raised* to what is held and set aside already, plus its claim. From then
//!   on everything is as after a limit was lowered at run time: the limit that was asked for stands, and the one that holds
//!   comes down to it as far as is safe, with the claim, stage by stage (`lower_limits`).
//! - So it finishes as any job in flight, and nothing is ever held beyond the limit that holds. It is the limit that was
//!   asked for which is exceeded, by its will: each time is counted (`Snapshot::forced`) and told to observers.

use smallvec::SmallVec;

use super::accounts::AccountId;
use super::choice::Needs;
use super::owner::{Declared, Owner, OwnerId};
use super::residency::Probed;
use super::{Granted, LedgerState};
use crate::observe::What;

/// Whether a job may run alone, and whether it does.
#[derive(Clone, Debug, Default)]
pub(super) struct Alone {
    /// It may, where its claim is above a limit.
    pub(super) may: bool,
    /// The accounts in which it was last admitted alone.
    pub(super) within: SmallVec<[AccountId; 2]>,
}

impl Owner {
    /// Whether it would rather run alone than be refused. What a job needs beside its claim cannot be raised for it.
    pub(super) fn may_run_alone(&self) -> bool {
        matches!(&self.declared, Declared::Job { alone, plans, .. } if alone.may && plans.known_needs().is_empty())
    }
}

impl LedgerState {
    /// Admits a job alone, if that is how it has to be served and can be now. `None` if it is not a matter of that;
    /// otherwise the grant, and whether it was held back by those that it must not pass.
    pub(super) fn try_admit_alone(&mut self, id: OwnerId) -> Option<(Option<Granted>, bool)> {
        let within = self.to_run_alone_within(id)?;
        if self.is_beside_alone(id) {
            return Some((None, false));
        }
        if self.in_the_way_of_alone(&within).next().is_some() && !mutant!("alone-beside-others") {
            return Some((None, false));
        }
        let Some(exempt) = self.may_pass(id) else { return Some((None, true)) };
        let age = self.age(id);
        Some((self.grant_alone(id, within).inspect(|_| self.count_passed(id, age, &exempt)), false))
    }

    /// The accounts in which a job would have to run alone, as its claim is above a limit of theirs by all of its plans. `None`
    /// if it is not a matter of that.
    pub(super) fn to_run_alone_within(&self, id: OwnerId) -> Option<SmallVec<[AccountId; 2]>> {
        let owner = &self.owners[id.0];
        let Declared::Job { plans, .. } = &owner.declared else { return None };
        if !owner.may_run_alone() || plans.iter().any(|plan| self.unattainable(&plan.claims[0]).is_none()) {
            return None;
        }
        Some(self.accounts_below(owner))
    }

    /// Those in flight in these accounts, beside whom nobody runs alone.
    pub(super) fn in_the_way_of_alone(&self, within: &[AccountId]) -> impl Iterator<Item = &Owner> {
        let in_flight = self.in_flight.iter().map(|index| &self.owners[*index]);
        in_flight.filter(|other| !other.is_retained_standing() && self.is_within(other, within))
    }

    fn grant_alone(&mut self, id: OwnerId, within: SmallVec<[AccountId; 2]>) -> Option<Granted> {
        let claim = self.owners[id.0].claim.clone();
        let mut before: SmallVec<[(u32, u64); 4]> = SmallVec::new();
        for (component, amount) in claim.iter() {
            // Where it is not alone, its request has to fit like any other.
            if !within.contains(&self.accounts.component(component).account) && !mutant!("alone-raises-every-limit") {
                continue;
            }
            let aside: u64 = self.in_flight.iter().fold(0u64, |sum, index| {
                let other = &self.owners[*index];
                sum.saturating_add(other.leaves.of(component).saturating_sub(other.held.of(component)))
            });
            let place = self.accounts.component_mut(component);
            before.push((component, place.limit));
            place.limit = place.limit.max(place.held.saturating_add(aside).saturating_add(amount));
        }
        let mut more = self.more_of(id);
        let fits = self.fits(&more);
        if fits {
            self.charge(id, &more);
            let safe = self.is_safe_with(Some(id));
            if safe && !self.residencies.probing {
                self.forced += 1;
                self.note(id, What::Forced);
                let Declared::Job { alone, .. } = &mut self.owners[id.0].declared else { unreachable!("it is a job") };
                alone.within = within;
                self.alone.push(id);
                let granted = self.commit(id);
                if !mutant!("alone-keeps-the-limit-up") {
                    // What is there and can go was counted in.
                    self.lower_limits();
                }
                return Some(granted);
            }
            self.discharge(id, &more);
            if safe {
                // Room is made for it where it is not alone; elsewhere its limit is raised.
                let accounts = &self.accounts;
                more.retain(|component| !within.contains(&accounts.component(component).account));
                self.residencies.probed = Some(Probed { more, needs: Needs::new() });
            }
        }
        for (component, limit) in before {
            self.accounts.component_mut(component).limit = limit;
        }
        None
    }

    /// Whether an admission would come beside a job that runs alone.
    pub(super) fn is_beside_alone(&mut self, id: OwnerId) -> bool {
        self.runs_alone_beside(id).is_some()
    }

    /// The job that runs alone and beside which an admission would come.
    pub(super) fn runs_alone_beside(&mut self, id: OwnerId) -> Option<OwnerId> {
        if self.alone.is_empty() {
            return None;
        }
        let owners = &self.owners;
        self.alone.retain(|id| owners.get(id.0).is_some_and(|owner| owner.in_flight() && owner.may_run_alone()));
        let beside = |job: &&OwnerId| match &self.owners[job.0].declared {
            Declared::Job { alone, .. } => **job != id && self.is_within(&self.owners[id.0], &alone.within),
            Declared::Standing { .. } => false,
        };
        self.alone.iter().find(beside).copied()
    }

    /// The accounts whose limits are below what a job claims.
    fn accounts_below(&self, owner: &Owner) -> SmallVec<[AccountId; 2]> {
        let above = owner.claim.iter().map(|(at, claim)| (claim, self.accounts.component(at)));
        let above = above.filter(|(claim, component)| *claim > component.attainable());
        above.map(|(_, component)| component.account).collect()
    }

    /// Whether an owner has to do with one of these accounts: everybody with the root.
    fn is_within(&self, owner: &Owner, accounts: &[AccountId]) -> bool {
        let of = |component| self.accounts.component(component).account;
        accounts.contains(&AccountId::ROOT)
            || owner.claim.iter().chain(owner.held.iter()).any(|(component, _)| accounts.contains(&of(component)))
    }
}
