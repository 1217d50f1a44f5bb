//! Profiles as they were laid out last. Who submits many jobs with clones of one profile has it checked and laid out once.
//!
//! A layout depends on the profile and on which components there are, not on limits or on what is held. So it stays good until
//! a component is added, or lost with its device. A profile is known again by its place in memory: comparing it would cost what is
//! saved, and as long as a layout is remembered, its profile is kept and its place cannot become another's.

use std::sync::Arc;

use super::accounts::{Accounts, Kind};
use super::choice::{Ask, Plan};
use crate::Profile;

/// How many are remembered; those of a job are one for each device that it may go to, and twice that if it is urgent.
const REMEMBERED: usize = 32;

/// The layouts that are remembered.
#[derive(Clone, Debug, Default)]
pub(super) struct Layouts {
    plans: Vec<Arc<Plan>>,
    /// The one that goes first.
    oldest: usize,
    /// The accounts that they are laid out over.
    revision: u64,
}

impl Layouts {
    /// Whether this profile was laid out, and so checked, before.
    pub(super) fn knows(&self, profile: &Profile) -> bool {
        self.plans.iter().any(|plan| plan.profile.is_same(profile))
    }

    /// The profile, laid out over the components of an account.
    ///
    /// # Errors
    ///
    /// The kind that the root has no room for at all.
    pub(super) fn of(&mut self, ask: Ask<'_>, accounts: &mut Accounts) -> Result<Arc<Plan>, Kind> {
        if self.revision != accounts.revision() && !mutant!("layout-outlives-its-components") {
            self.plans.clear();
            self.oldest = 0;
        }
        self.revision = accounts.revision();
        let is_it = |plan: &&Arc<Plan>| {
            let same = plan.account == ask.account && plan.choice == ask.choice && plan.needs.as_slice() == ask.needs;
            same && plan.profile.is_same(ask.profile)
        };
        if let Some(plan) = self.plans.iter().find(is_it) {
            return Ok(plan.clone());
        }
        let plan = Arc::new(Plan::of(ask, accounts)?);
        // What has no limit gets its component when it is first named.
        if self.revision == accounts.revision() {
            self.remember(plan.clone());
        }
        Ok(plan)
    }

    fn remember(&mut self, plan: Arc<Plan>) {
        if self.plans.len() < REMEMBERED {
            self.plans.push(plan);
        } else {
            self.plans[self.oldest] = plan;
            self.oldest = (self.oldest + 1) % REMEMBERED;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::accounts::AccountId;
    use super::super::{LedgerState, Outcome};
    use super::REMEMBERED;
    use crate::{Budget, Bytes, Class, Demand, JobSpec, Profile, Slots, Space};

    const A: Class = Class::new("a", Space::HOST);
    const CARD: Class = Class::new("card", Space::device(0));
    const S: Slots = Slots::new("s");

    fn profile(demand: Demand) -> Profile {
        Profile::new().stage("only", demand, Demand::new())
    }

    fn run(state: &mut LedgerState, spec: &JobSpec) {
        let mut out: Vec<Outcome> = Vec::new();
        let job = state.submit(AccountId::ROOT, spec.clone()).expect("it fits");
        state.enter(0, job, 0, &mut out).expect("it is next");
        assert_eq!(out.len(), 1, "there is room: {out:?}");
        let held: Vec<_> = [A, CARD].map(|class| (class, Bytes(spec.profile.stages()[0].peak.of(class)))).into();
        state.end_stage(job, &held, &mut out);
        state.end(job, &mut out);
    }

    #[test]
    fn a_profile_is_laid_out_once() {
        let mut state = LedgerState::new(&Budget::new().space(Space::HOST, Bytes(10)));
        let spec = JobSpec::new("job", profile(Demand::new().bytes(A, Bytes(4))));
        (0..100).for_each(|_| run(&mut state, &spec));
        assert_eq!(state.layouts.plans.len(), 1);
        // An equal one at another place is another one; the oldest make room.
        for _ in 0..2 * REMEMBERED {
            run(&mut state, &JobSpec::new("job", profile(Demand::new().bytes(A, Bytes(4)))));
        }
        assert_eq!(state.layouts.plans.len(), REMEMBERED);
        assert!(!state.layouts.knows(&spec.profile));
    }

    #[test]
    fn a_component_that_is_new_or_lost_is_seen() {
        let budget = Budget::unlimited().space(Space::HOST, Bytes(10)).space(Space::device(0), Bytes(10));
        let mut state = LedgerState::new(&budget);
        let slots = JobSpec::new("slots", profile(Demand::new().bytes(A, Bytes(4)).slots(S, 1)));
        (0..3).for_each(|_| run(&mut state, &slots));
        let both = JobSpec::new("both", profile(Demand::new().bytes(A, Bytes(4)).bytes(CARD, Bytes(4))));
        run(&mut state, &both);
        assert!(state.layouts.knows(&both.profile));
        assert_eq!(state.retire(Space::device(0), &mut Vec::new()), Ok(Bytes(0)));
        let error = state.submit(AccountId::ROOT, both.clone());
        assert!(error.is_err(), "{error:?}");
        run(&mut state, &slots);
        assert!(!state.layouts.knows(&both.profile));
    }
}
