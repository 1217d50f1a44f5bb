//! Everything that waits, in the order in which it is looked at, and what lets a pass leave most of it alone.
//!
//! A pass over all that wait looks at each request only as far as it must:
//! - Where all waiting admissions want some of a component, and the least that any of them wants is not free, none can be
//!   served ([`Least`]).
//! - A request that has been passed as often as it may be holds back every younger admission ([`Spent`]). Among
//!   admissions of one priority, which are looked at by age, the first that is held back ends the pass.
//! - Admissions that are alike (of one account and priority, that want, claim and leave the same) stand together in a
//!   [`Kind`]. Within a pass it only gets harder for each: whoever is short, unsafe or held back speaks for all of its kind
//!   that are younger. So a pass looks at one of each kind, and at one more for each that it grants.
//! - What a request needs beyond what is held is kept with it (`Waiting::more`) until its owner holds something else.
//!
//! All of this is for *plain* requests: those that can be served in one way only. While others wait (urgent jobs, which
//! may be served from the reserve, passing nobody) every admission is looked at.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ops::Bound;

use slab::Slab;
use smallvec::SmallVec;

use super::accounts::{AccountId, Accounts};
use super::amounts::{Amounts, ComponentId, digest};
use super::owner::{Declared, Owner, OwnerId};
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
    kinds: Kinds,
    least: Least,
    spent: Spent,
    /// How many admissions wait that are not plain.
    not_plain: usize,
    /// How many admissions wait that could not stand in the line.
    not_simple: usize,
    /// Those that wait and are charged to a child, or to an urgent reserve, by whose limits they need.
    of_children: Vec<OfChild>,
}

/// Waiting admissions, by what they are like.
#[derive(Clone, Debug, Default)]
struct Kinds {
    kinds: Slab<Kind>,
    /// The numbers of the kinds there are, to be looked through.
    numbers: Vec<(u64, usize)>,
    /// The first of each kind, in the order of all.
    heads: BTreeSet<HeadKey>,
}

/// Admissions that are alike.
#[derive(Clone, Debug)]
struct Kind {
    number: u64,
    shape: Shape,
    /// Those that wait, oldest first.
    members: BTreeSet<(u64, usize)>,
}

/// What admissions of one kind have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    priority: i32,
    account: AccountId,
    wants: Amounts,
    claim: Amounts,
    leaves: Amounts,
}

/// The first of a kind: its priority, its age, its kind.
type HeadKey = (Reverse<i32>, u64, usize);

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

/// Limits of a child; `None` where they depend on the plan that is tried, so that it has to be looked at each time.
pub(super) type ChildLimits = Option<SmallVec<[ComponentId; 4]>>;

/// Those that wait and need the same limits of a child: whoever takes of these passes all of them, and who does not may
/// pass them for nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct OfChild {
    /// The children's limits that they need; none where passing them is never for nothing.
    limits: ChildLimits,
    members: BTreeSet<usize>,
    spent: Spent,
}

/// What a queue remembers of a request that is on it.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    /// What an admission wants, while it is counted in `Least`.
    wants: Option<Amounts>,
    spent: Option<SpentAs>,
    /// The kind of an admission.
    kind: usize,
    /// Which of the children's.
    of_child: Option<ChildLimits>,
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

    /// The next in order; or the next of those that are the first of their kind. Either key begins with priority and age.
    fn admission_after(&self, last: Option<AdmissionKey>, by_kind: bool) -> Option<(AdmissionKey, OwnerId)> {
        if by_kind {
            return self.kinds.head_after(last);
        }
        let range = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        self.admission.range(range).next().map(|key| (*key, OwnerId(key.2)))
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
        self.spent.holds_back(age)
    }

    /// Whether all that wait to be admitted are plain.
    pub(super) fn are_plain(&self) -> bool {
        self.not_plain == 0
    }

    /// Whether an admission of this age and claim would pass somebody charged to a child who must not be passed any more,
    /// whatever that one is short of.
    pub(super) fn children_hold_back(&self, age: u64, claim: &Amounts) -> bool {
        self.of_children.iter().any(|of_child| !of_child.may_be_exempt(claim) && of_child.spent.holds_back(age))
    }

    /// Those that wait, are charged to a child, and may be passed by somebody with this claim for nothing.
    pub(super) fn perhaps_exempt(&self, claim: &Amounts) -> Vec<OwnerId> {
        let exempt = self.of_children.iter().filter(|of_child| of_child.may_be_exempt(claim));
        exempt.flat_map(|of_child| of_child.members.iter()).map(|index| OwnerId(*index)).collect()
    }
}

impl Spent {
    fn holds_back(&self, age: u64) -> bool {
        self.growths > 0 || self.ages.first().is_some_and(|oldest| *oldest < age)
    }
}

impl OfChild {
    /// Whether somebody with this claim may pass them for nothing: takes nothing of the limits that they need.
    fn may_be_exempt(&self, claim: &Amounts) -> bool {
        let Some(limits) = &self.limits else { return true };
        if mutant!("child-holds-back-others") {
            return false;
        }
        !limits.is_empty() && claim.iter().all(|(component, _)| !limits.contains(&component))
    }
}

impl Kinds {
    /// Puts a request among its kind. Returns which that is.
    fn add(&mut self, shape: Shape, age: u64, owner: usize) -> usize {
        let mut number = digest(&[&shape.wants, &shape.claim, &shape.leaves])
            ^ (u64::from(shape.account.0) << 32 | u64::from(shape.priority as u32));
        let at = loop {
            match self.numbers.iter().find(|entry| entry.0 == number) {
                Some(&(_, at)) if self.kinds[at].shape == shape => break at,
                // Others have this number by accident.
                Some(_) => number = number.wrapping_add(1),
                None => {
                    let at = self.kinds.insert(Kind { number, shape, members: BTreeSet::new() });
                    self.numbers.push((number, at));
                    break at;
                }
            }
        };
        let kind = &mut self.kinds[at];
        let priority = Reverse(kind.shape.priority);
        match kind.members.first() {
            Some(first) if first.0 < age => {}
            first => {
                if let Some(first) = first {
                    self.heads.remove(&(priority, first.0, at));
                }
                self.heads.insert((priority, age, at));
            }
        }
        kind.members.insert((age, owner));
        at
    }

    fn remove(&mut self, at: usize, age: u64, owner: usize) {
        let kind = &mut self.kinds[at];
        let priority = Reverse(kind.shape.priority);
        kind.members.remove(&(age, owner));
        if self.heads.remove(&(priority, age, at))
            && let Some(first) = kind.members.first()
        {
            self.heads.insert((priority, first.0, at));
        }
        if kind.members.is_empty() {
            let number = kind.number;
            self.numbers.retain(|entry| entry.0 != number);
            self.kinds.remove(at);
        }
    }

    /// The first of the kind that comes next in the order.
    fn head_after(&self, last: Option<HeadKey>) -> Option<(HeadKey, OwnerId)> {
        let range = (last.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let key = *self.heads.range(range).next()?;
        let first = self.kinds[key.2].members.first().expect("a kind has members");
        Some((key, OwnerId(first.1)))
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
        self.has_one_way(id)
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
        debug_assert!(self.line.is_empty(), "whoever is in the line is on no queue");
        let mut listing = Listing { not_plain: !self.is_plain(id), ..Listing::default() };
        if self.owners[id.0].account != AccountId::ROOT {
            let limits = (!self.may_change_its_child(id)).then(|| self.limits_of_its_child(id));
            let of_children = &mut self.queues.of_children;
            let at = of_children.iter().position(|of_child| of_child.limits == limits).unwrap_or_else(|| {
                of_children.push(OfChild { limits: limits.clone(), ..OfChild::default() });
                of_children.len() - 1
            });
            of_children[at].members.insert(id.0);
            listing.of_child = Some(limits);
        }
        if !self.is_growth(id) {
            self.queues.not_plain += usize::from(listing.not_plain);
            let wants = self.more_of(id);
            listing.not_simple = !self.is_simple_request(id) || wants.iter().count() != 1;
            self.queues.not_simple += usize::from(listing.not_simple);
            self.queues.least.add(&wants);
            let Owner { priority, account, ref claim, ref leaves, .. } = self.owners[id.0];
            let (claim, leaves) = (claim.clone(), leaves.clone());
            let shape = Shape { priority, account, wants: wants.clone(), claim, leaves };
            listing.kind = self.queues.kinds.add(shape, self.age(id), id.0);
            listing.wants = Some(wants);
        }
        self.owners.unmarked(id.0).waiting.as_mut().expect("it waits").listing = listing;
        self.list_if_spent(id);
    }

    pub(super) fn unlist(&mut self, id: OwnerId) {
        debug_assert!(self.line.is_empty(), "whoever is in the line is on no queue");
        let waiting = self.owners.unmarked(id.0).waiting.as_mut().expect("it waits");
        let (listing, age) = (std::mem::take(&mut waiting.listing), waiting.age);
        if let Some(wants) = listing.wants {
            self.queues.least.remove(&wants);
            self.queues.kinds.remove(listing.kind, age, id.0);
            self.queues.not_plain -= usize::from(listing.not_plain);
            self.queues.not_simple -= usize::from(listing.not_simple);
        }
        let Queues { spent, of_children, .. } = &mut self.queues;
        let at = listing.of_child.map(|limits| of_children.iter().position(|of_child| of_child.limits == limits));
        let at = at.map(|at| at.expect("it is listed there"));
        let spent = at.map_or(spent, |at| &mut of_children[at].spent);
        match listing.spent {
            Some(SpentAs::Growth) => spent.growths -= 1,
            Some(SpentAs::Admission) => _ = spent.ages.remove(&age),
            None => {}
        }
        if let Some(at) = at {
            of_children[at].members.remove(&id.0);
            if of_children[at].members.is_empty() {
                of_children.swap_remove(at);
            }
        }
    }

    /// Counts one more admission that passes a waiting request.
    pub(super) fn count_passing(&mut self, id: OwnerId) {
        self.owners.unmarked(id.0).waiting.as_mut().expect("it waits").passed += 1;
        self.list_if_spent(id);
    }

    /// Lists a request as one that must not be passed any more: among those of its child, where it may be some child's affair.
    fn list_if_spent(&mut self, id: OwnerId) {
        let is_growth = self.is_growth(id);
        let (bypass, owner) = (self.bypass, self.owners.unmarked(id.0));
        let waiting = owner.waiting.as_mut().expect("it waits");
        if waiting.passed < bypass || waiting.listing.spent.is_some() {
            return;
        }
        let Queues { spent, of_children, .. } = &mut self.queues;
        let of_child = waiting.listing.of_child.as_ref();
        let of_child = of_child.and_then(|limits| of_children.iter_mut().find(|of_child| of_child.limits == *limits));
        let spent = of_child.map_or(spent, |of_child| &mut of_child.spent);
        if is_growth {
            spent.growths += 1;
            waiting.listing.spent = Some(SpentAs::Growth);
        } else {
            spent.ages.insert(waiting.age);
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
        if self.may_make_room() {
            // It may have room made for it.
            return self.settle(out);
        }
        let was_in_flight = self.is_in_flight(id);
        let mut admitted_to_load = false;
        if !self.recheck {
            let granted = match self.is_short(id) {
                true => None,
                false if self.is_growth(id) => self.try_grant_by_any_plan(id),
                false => self.try_admit(id).0,
            };
            admitted_to_load = granted.is_none() && self.is_in_flight(id) != was_in_flight;
            out.extend(granted.map(|granted| Outcome::Granted(id, granted)));
        }
        // What is retained with this grant may leave too little for others that wait; a job that changed its plan may have
        // left more; and what is being loaded for one need not be paid for by another that needs it.
        if self.recheck || self.changed_plan || admitted_to_load {
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

    /// The pass over admissions. Where each of them can be served in one way only, it looks at one of each kind.
    pub(super) fn grant_admissions(&mut self, out: &mut Vec<Outcome>) {
        let by_kind = self.queues.are_plain();
        'again: loop {
            let mut held_back = false;
            let mut last = None;
            while !self.queues.nobody_fits(&self.accounts) {
                let Some((key, id)) = self.queues.admission_after(last, by_kind) else { return };
                last = Some(key);
                let (priority, age, _) = key;
                if by_kind && self.queues.holds_back(age) {
                    // And with it all that are younger: on to the next priority.
                    held_back = true;
                    last = Some((priority, u64::MAX, usize::MAX));
                    continue;
                }
                // If it is granted, the next of its kind is at the head of it, and comes later in the order.
                if self.admit_next(id, &mut held_back, out) {
                    continue 'again;
                }
            }
            return;
        }
    }

    /// Admits the next in order if that is possible, and says whether the pass has to begin again: only one thing can open
    /// up within a pass, that the request which held an earlier one back was itself served. That one is due now, before those
    /// that come after it.
    fn admit_next(&mut self, id: OwnerId, held_back: &mut bool, out: &mut Vec<Outcome>) -> bool {
        if self.is_short(id) {
            return false;
        }
        let is_spent = self.is_spent(id);
        let (granted, was_held_back) = self.try_admit(id);
        *held_back |= was_held_back;
        let Some(granted) = granted else { return false };
        out.push(Outcome::Granted(id, granted));
        *held_back && is_spent && !mutant!("pass-goes-on-behind-the-head")
    }

    fn is_spent(&self, id: OwnerId) -> bool {
        self.owners[id.0].waiting.as_ref().is_some_and(|waiting| waiting.passed >= self.bypass)
    }
}
