//! Everything that waits, in the order in which it is looked at, and what lets a pass leave most of it alone.
//!
//! A pass over all that wait looks at each request only as far as it must:
//! - Where all waiting admissions want some of a component, and the least that any of them wants is not free, none can be
//!   served ([`Least`]).
//! - A request that has been passed as often as it may be holds back every younger admission ([`Spent`]). Among
//!   admissions of one priority, which are looked at by age, the first that is held back ends the pass.
//! - What a request needs beyond what is held is kept with it (`Waiting::more`) until its owner holds something else.
//!
//! All of this is for *plain* requests: those that can be served in one way only. While others wait (urgent jobs, which
//! may be served from the reserve, passing nobody) every admission is looked at.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;

use smallvec::SmallVec;

use super::accounts::{AccountId, Accounts};
use super::amounts::Amounts;
use super::owner::{Declared, OwnerId};
use super::{LedgerState, Outcome};

/// The order of requests of owners in flight: by priority, then least remaining claim, then age.
pub(super) type GrowthKey = (Reverse<i32>, u64, u64, usize);
/// The order of admissions: by priority, then age.
pub(super) type AdmissionKey = (Reverse<i32>, u64, usize);

/// How many requests a pass takes off a queue at a time.
const BATCH: usize = 32;

/// Everything that waits, in the order in which it is looked at.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues {
    pub(super) growth: BTreeSet<GrowthKey>,
    pub(super) admission: BTreeSet<AdmissionKey>,
    least: Least,
    spent: Spent,
    /// How many admissions wait that are not plain.
    not_plain: usize,
    /// How many admissions wait that could not stand in the line.
    not_simple: usize,
    /// Those that wait and are charged to a child, or to an urgent reserve.
    of_children: BTreeSet<usize>,
}

/// Requests that must not be passed any more.
#[derive(Clone, Debug, Default)]
struct Spent {
    growths: usize,
    /// The ages of admissions.
    ages: BTreeSet<u64>,
}

/// The least that waiting admissions want, by component.
#[derive(Clone, Debug, Default)]
struct Least(Vec<(usize, u64)>);

/// What a queue remembers of a request that is on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    /// What an admission wants, while it is counted in `Least`.
    wants: Option<Amounts>,
    spent: Option<SpentAs>,
    not_plain: bool,
    not_simple: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SpentAs {
    Growth,
    Admission,
}

impl Queues {
    pub(super) fn is_empty(&self) -> bool {
        self.growth.is_empty() && self.admission.is_empty()
    }

    /// Whether all that wait are free-standing reservations of one priority, of the root, with nothing declared.
    pub(super) fn may_be_a_line(&self) -> bool {
        let priority = |key: Option<&AdmissionKey>| key.map(|key| key.0);
        self.growth.is_empty()
            && self.not_simple == 0
            && priority(self.admission.first()) == priority(self.admission.last())
    }

    /// Forgets all that wait: they are in the line.
    pub(super) fn clear(&mut self) {
        debug_assert!(self.may_be_a_line() && self.of_children.is_empty() && self.not_plain == 0);
        *self = Queues::default();
    }

    pub(super) fn admissions(&self) -> Vec<OwnerId> {
        self.admission.iter().map(|key| OwnerId(key.2)).collect()
    }

    pub(super) fn growths(&self) -> Vec<OwnerId> {
        self.growth.iter().map(|key| OwnerId(key.3)).collect()
    }

    /// The next few in order.
    pub(super) fn growths_after(&self, last: Option<GrowthKey>) -> SmallVec<[GrowthKey; BATCH]> {
        self.growth
            .range((last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded))
            .take(BATCH)
            .copied()
            .collect()
    }

    /// The next few in order.
    pub(super) fn admissions_after(&self, last: Option<AdmissionKey>) -> SmallVec<[AdmissionKey; BATCH]> {
        let range = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.admission.range(range).take(BATCH).copied().collect()
    }

    /// Whether every waiting admission is short of the same component.
    pub(super) fn nobody_fits(&self, accounts: &Accounts) -> bool {
        let waiting = self.admission.len();
        let short = |(at, &(users, least)): (usize, &(usize, u64))| {
            users == waiting && least > accounts.components[at].limit.saturating_sub(accounts.components[at].held)
        };
        self.not_plain == 0 && self.least.0.iter().enumerate().any(short)
    }

    /// Whether a plain request of this age is held back by one that must not be passed any more and that is charged to
    /// nobody's child. Then so is every younger one.
    pub(super) fn holds_back(&self, age: u64) -> bool {
        if mutant!("growth-passed-without-end") {
            return self.spent.ages.first().is_some_and(|oldest| *oldest < age);
        }
        self.spent.growths > 0 || self.spent.ages.first().is_some_and(|oldest| *oldest < age)
    }

    /// Whether all that wait to be admitted are plain.
    pub(super) fn are_plain(&self) -> bool {
        self.not_plain == 0
    }

    /// Those that wait and are charged to a child, or to an urgent reserve.
    pub(super) fn of_children(&self) -> Vec<OwnerId> {
        self.of_children.iter().map(|index| OwnerId(*index)).collect()
    }
}

impl Least {
    fn add(&mut self, wants: &Amounts) {
        for (at, amount) in wants.iter() {
            let at = at as usize;
            if self.0.len() <= at {
                self.0.resize(at + 1, (0, u64::MAX));
            }
            self.0[at] = (self.0[at].0 + 1, self.0[at].1.min(amount));
        }
    }

    /// Leaves the bound where it is, unless nobody is left: too low a bound only costs time.
    fn remove(&mut self, wants: &Amounts) {
        for (at, _) in wants.iter() {
            let entry = &mut self.0[at as usize];
            entry.0 -= 1;
            if entry.0 == 0 {
                entry.1 = u64::MAX;
            }
        }
    }
}

impl LedgerState {
    /// Whether a request can be served in one way only, by what it waits for alone.
    fn is_plain(&self, id: OwnerId) -> bool {
        let owner = &self.owners[id.0];
        self.plan_count(id) == 1
            && owner.needs.is_empty()
            && !owner.may_run_alone()
            && !self.accounts.is_urgent(owner.account)
    }

    /// Whether it is a free-standing reservation of the root with nothing declared but its bytes.
    fn is_simple_request(&self, id: OwnerId) -> bool {
        let owner = &self.owners[id.0];
        owner.account == AccountId::ROOT
            && owner.residency.is_none()
            && matches!(owner.declared, Declared::Standing { max: None, retained: false, .. })
    }

    /// Lists a request that has just been put on its queue. Call [`unlist`](LedgerState::unlist) before it leaves.
    pub(super) fn list(&mut self, id: OwnerId) {
        let mut listing = Listing { not_plain: !self.is_plain(id), ..Listing::default() };
        if self.owners[id.0].account != AccountId::ROOT {
            self.queues.of_children.insert(id.0);
        }
        if !self.is_growth(id) {
            self.queues.not_plain += usize::from(listing.not_plain);
            let wants = self.more_of(id);
            listing.not_simple = !self.is_simple_request(id) || wants.iter().count() != 1;
            self.queues.not_simple += usize::from(listing.not_simple);
            self.queues.least.add(&wants);
            listing.wants = Some(wants);
        }
        self.owners.unmarked(id.0).waiting.as_mut().expect("it waits").listing = listing;
        self.list_if_spent(id);
    }

    pub(super) fn unlist(&mut self, id: OwnerId) {
        let waiting = self.owners.unmarked(id.0).waiting.as_mut().expect("it waits");
        let (listing, age) = (std::mem::take(&mut waiting.listing), waiting.age);
        self.queues.of_children.remove(&id.0);
        if let Some(wants) = listing.wants {
            self.queues.least.remove(&wants);
            self.queues.not_plain -= usize::from(listing.not_plain);
            self.queues.not_simple -= usize::from(listing.not_simple);
        }
        match listing.spent {
            Some(SpentAs::Growth) => self.queues.spent.growths -= 1,
            Some(SpentAs::Admission) => _ = self.queues.spent.ages.remove(&age),
            None => {}
        }
    }

    /// Counts one more admission that passes a waiting request.
    pub(super) fn count_passing(&mut self, id: OwnerId) {
        self.owners.unmarked(id.0).waiting.as_mut().expect("it waits").passed += 1;
        self.list_if_spent(id);
    }

    /// Lists a request as one that must not be passed any more, unless it may be some child's affair: those are looked
    /// at one by one.
    fn list_if_spent(&mut self, id: OwnerId) {
        let is_growth = self.is_growth(id);
        let (bypass, owner) = (self.bypass, self.owners.unmarked(id.0));
        let waiting = owner.waiting.as_mut().expect("it waits");
        if waiting.passed < bypass || owner.account != AccountId::ROOT || waiting.listing.spent.is_some() {
            return;
        }
        if is_growth {
            self.queues.spent.growths += 1;
            waiting.listing.spent = Some(SpentAs::Growth);
        } else {
            self.queues.spent.ages.insert(waiting.age);
            waiting.listing.spent = Some(SpentAs::Admission);
        }
    }

    /// Whether it waits among the requests of owners in flight.
    pub(super) fn is_growth(&self, id: OwnerId) -> bool {
        self.owners[id.0].goes_with_growth()
    }

    /// Whether a waiting request cannot be served now, seen without looking at anybody else.
    pub(super) fn is_short(&mut self, id: OwnerId) -> bool {
        if mutant!("chunked-acquisition") || mutant!("lease-outside-vector") {
            return false;
        }
        let waiting = self.owners[id.0].waiting.as_ref().expect("it waits");
        if waiting.listing.not_plain {
            return false;
        }
        if waiting.more.is_none() {
            let more = self.more_of(id);
            self.owners.unmarked(id.0).waiting.as_mut().expect("it waits").more = Some(more);
        }
        let waiting = self.owners[id.0].waiting.as_ref().expect("it waits");
        !self.fits(waiting.more.as_ref().expect("just put there"))
    }

    /// Ends an event that did nothing but put one request on its queue: only that one can be served by it. All others
    /// were looked at when the last event ended, nothing has been returned since, and one more that waits, or is
    /// served, makes it no easier for anybody.
    pub(super) fn settle_request(&mut self, id: OwnerId, out: &mut Vec<Outcome>) {
        if self.has_residencies() {
            // A request may have room made for it.
            return self.settle(out);
        }
        if !self.recheck {
            let granted = match self.is_short(id) {
                true => None,
                false if self.is_growth(id) => self.try_grant_by_any_plan(id),
                false => self.try_admit(id).0,
            };
            out.extend(granted.map(|granted| Outcome::Granted(id, granted)));
        }
        // What is retained with this grant may leave too little for others that wait; a job that changed its plan may have
        // left more.
        if self.recheck || self.changed_plan {
            self.settle(out);
        }
    }

    pub(super) fn grant_growth(&mut self, out: &mut Vec<Outcome>) {
        // Grants only get harder (`safety`), so whoever is passed over here need not be looked at again; unless a job
        // changes its plan with a grant, and claims less of something from then on (`choice`).
        self.changed_plan = false;
        let mut last = None;
        'pass: loop {
            let batch = self.queues.growths_after(last);
            let Some(end) = batch.last() else { return };
            last = Some(*end);
            for key in batch {
                let id = OwnerId(key.3);
                if !self.is_short(id)
                    && let Some(granted) = self.try_grant_by_any_plan(id)
                {
                    out.push(Outcome::Granted(id, granted));
                    if std::mem::take(&mut self.changed_plan) {
                        self.forget_unsafe();
                        self.lower_limits();
                        last = None;
                        continue 'pass;
                    }
                }
            }
        }
    }

    pub(super) fn grant_admissions(&mut self, out: &mut Vec<Outcome>) {
        'again: loop {
            let mut held_back = false;
            let mut last = None;
            'pass: while !self.queues.nobody_fits(&self.accounts) {
                let batch = self.queues.admissions_after(last);
                let Some(end) = batch.last() else { break };
                last = Some(*end);
                for key in batch {
                    let (Reverse(priority), age, index) = key;
                    if self.queues.are_plain() && self.queues.holds_back(age) {
                        // And with it all that are younger: on to the next priority.
                        held_back = true;
                        last = Some((Reverse(priority), u64::MAX, usize::MAX));
                        continue 'pass;
                    }
                    let id = OwnerId(index);
                    if self.is_short(id) {
                        continue;
                    }
                    let is_spent =
                        self.owners[id.0].waiting.as_ref().is_some_and(|waiting| waiting.passed >= self.bypass);
                    let (granted, was_held_back) = self.try_admit(id);
                    held_back |= was_held_back;
                    if let Some(granted) = granted {
                        out.push(Outcome::Granted(id, granted));
                        // Only one thing can open up within a pass: the request that held an earlier one back was itself
                        // served. That one is due now, before those that come after it.
                        if held_back && is_spent && !mutant!("pass-goes-on-behind-the-head") {
                            continue 'again;
                        }
                    }
                }
            }
            return;
        }
    }
}
