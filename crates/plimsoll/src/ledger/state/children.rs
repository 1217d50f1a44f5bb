//! Children's accounts that are done with, and serve again.
//!
//! Components and accounts are numbered, and what is charged names them by their numbers, so that none is ever taken out. A
//! process that builds a pipeline for each request would have more of them each time. So an account that is closed is given
//! to the next child of the same parent, once nobody is charged there or further down any more; until then its limits stand.
//! What the next one does not name has no limit.

use std::sync::Arc;

use super::accounts::{AccountId, Accounts, Kind};
use super::owner::{Declared, Owner};
use super::{LedgerState, Outcome, Refusal};
use crate::Budget;

impl LedgerState {
    /// Nobody asks for anything in a child's account from now on. What is still charged there comes back as ever.
    pub fn close_child(&mut self, account: AccountId) {
        self.accounts.close(account);
        self.let_go_of_closed();
    }

    /// Takes their limits off closed accounts in which nobody is charged any more: there is nothing to be said of them.
    pub(super) fn let_go_of_closed(&mut self) {
        for account in self.accounts.closed.clone() {
            if self.accounts.is_limited(account)
                && !self.owners.iter().any(|(_, owner)| self.is_charged_to(owner, account))
            {
                self.accounts.relimit(account, |_| None);
            }
        }
    }

    /// Refuses everything of a child, and of its own children, that is not in flight: now, and until it is opened again.
    pub(super) fn refuse_child(&mut self, account: AccountId, out: &mut Vec<Outcome>) {
        self.accounts.set_refusing(account, true);
        self.dissolve_line();
        for id in self.queues.admissions() {
            if self.is_charged_to(&self.owners[id.0], account) {
                self.refuse(id, Refusal::Closed, out);
            }
        }
        self.settle(out);
    }

    /// A closed account below `parent` in which nobody is charged any more.
    pub(super) fn idle_child(&self, parent: AccountId) -> Option<AccountId> {
        let mut closed = self.accounts.closed_below(parent);
        closed.find(|account| !self.owners.iter().any(|(_, owner)| self.is_charged_to(owner, *account)))
    }

    /// Whether an owner is charged to an account, itself or by way of one of its children.
    fn is_charged_to(&self, owner: &Owner, account: AccountId) -> bool {
        let is_it = |at| self.accounts.is_at_or_below(at, account);
        let planned = match &owner.declared {
            Declared::Job { plans, .. } => plans.iter().any(|plan| is_it(plan.account)),
            Declared::Standing { .. } => false,
        };
        is_it(owner.account) || planned
    }
}

impl Accounts {
    fn close(&mut self, account: AccountId) {
        if mutant!("closed-with-its-limits-gone") {
            self.relimit(account, |_| None);
        }
        self.closed.push(account);
    }

    /// Whether an account has a limit of its own.
    fn is_limited(&self, account: AccountId) -> bool {
        self.own_components(account).iter().any(|(_, id)| {
            let component = self.component(*id);
            component.account == account && component.retired.is_none() && component.limit != u64::MAX
        })
    }

    /// Whether an account, or the urgent one beside it, is another one or below it.
    fn is_at_or_below(&self, at: AccountId, account: AccountId) -> bool {
        let urgent = self.urgent(account);
        let mut up = Some(at);
        std::iter::from_fn(|| {
            let at = up?;
            up = self.parent(at);
            Some(at)
        })
        .any(|at| at == account || Some(at) == urgent)
    }

    fn closed_below(&self, parent: AccountId) -> impl Iterator<Item = AccountId> + '_ {
        self.closed.iter().copied().filter(move |account| self.parent(*account) == Some(parent))
    }

    /// Opens an account that was closed anew, with these limits.
    pub(super) fn open_again(&mut self, account: AccountId, name: Arc<str>, budget: &Budget) {
        self.closed.retain(|closed| *closed != account);
        self.set_refusing(account, false);
        self.rename(account, &name);
        let named = |kind| match kind {
            Kind::Space(space) => budget.limit(space).map(|limit| limit.0),
            Kind::Slots(slots) => budget.slots_of(slots),
        };
        self.relimit(account, named);
        let spaces = budget.spaces.iter().map(|&(space, limit)| (Kind::Space(space), limit));
        let slots = budget.slots.iter().map(|&(slots, count)| (Kind::Slots(slots), count));
        let kinds: Vec<_> = spaces.chain(slots).collect();
        for (kind, limit) in kinds {
            if self.own(account, kind).is_none() {
                self.add_shared(account, kind, limit);
            }
        }
    }

    /// Gives each of an account's own components the limit that is named for it, or none.
    fn relimit(&mut self, account: AccountId, named: impl Fn(Kind) -> Option<u64>) {
        for (kind, id) in self.own_components(account) {
            let component = self.component_mut(id);
            if component.account == account && component.retired.is_none() {
                let limit = named(kind).unwrap_or(u64::MAX);
                (component.limit, component.target, component.peak) = (limit, limit, component.held);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::JobSpec;
    use crate::ledger::state::OwnerId;
    use crate::{Bytes, Class, Demand, Profile, Slots, Space};

    const A: Class = Class::new("a", Space::HOST);
    const S: Slots = Slots::new("s");

    fn end(state: &mut LedgerState, job: OwnerId, out: &mut Vec<Outcome>) {
        state.end_stage(job, &[(A, Bytes(4))], out);
        state.end(job, out);
    }

    #[test]
    fn a_closed_account_serves_again_when_nobody_is_charged_there() {
        let mut state =
            LedgerState::new(&Budget::new().space(Space::HOST, Bytes(10)).urgent_reserve(Space::HOST, Bytes(2)));
        let tied = Budget::new().slots(S, 1);
        let open = |state: &mut LedgerState| state.open_child(AccountId::ROOT, "child".into(), &tied);
        let first = open(&mut state);
        let spec =
            JobSpec::new("job", Profile::new().stage("s", Demand::new().bytes(A, Bytes(4)).slots(S, 1), Demand::new()));
        let (mut out, components) = (Vec::new(), state.accounts.components.len());
        let job = state.submit(first, spec.clone()).unwrap();
        state.enter(0, job, 0, &mut out).unwrap();
        state.close_child(first);
        assert_ne!(open(&mut state), first, "a job is still there");
        end(&mut state, job, &mut out);
        let both = state.accounts.components.len();
        assert_eq!(both, components + 1);
        for _ in 0..3 {
            let again = state.open_child(AccountId::ROOT, "again".into(), &Budget::new().slots(S, 1));
            assert_eq!((again, state.accounts.components.len()), (first, both));
            // Its limit is in force again.
            let [one, two] = [(); 2].map(|()| state.submit(again, spec.clone()).unwrap());
            out.clear();
            for job in [one, two] {
                state.enter(0, job, 0, &mut out).unwrap();
            }
            assert_eq!(out.len(), 1, "{out:?}");
            // It was not let in, so it has no stage to end.
            state.end(two, &mut out);
            end(&mut state, one, &mut out);
            state.close_child(again);
        }
        // Other limits than before: those that are not named are gone, and others come.
        let other = state.open_child(AccountId::ROOT, "other".into(), &Budget::new().space(Space::HOST, Bytes(4)));
        assert_eq!(other, first);
        let jobs = [(); 2].map(|()| state.submit(other, spec.clone()));
        assert!(jobs.iter().all(Result::is_ok), "{jobs:?}");
    }
}
