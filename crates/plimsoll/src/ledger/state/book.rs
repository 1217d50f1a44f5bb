//! The safety check, kept up to date instead of begun anew: the same answer as `safety::is_safe`, in less time.
//!
//! Most owners in flight need nothing more: they can end as they are, whatever is free. The order may begin with all of
//! them, so the book counts them as ended already, and keeps a list only of the *needy*, who need more than they hold
//! before they can end. What it holds:
//!
//! - `locked`: what does not come back when all who need nothing have ended: of these what they leave behind, of everybody
//!   else what they hold;
//! - `aside`: what is set aside for leavings that do not exist yet;
//! - the needy, by what they need and what they return: jobs of one kind in one stage are one entry, and how many they are;
//! - an upper bound of what any of them needs.
//!
//! With free = limit − locked − aside, a state is safe at once if no needy owner needs more than that (the bound), and
//! is otherwise decided by finishing needy owners as long as there is one whose need is free; the bound is looked at again
//! after each. The order in which they are tried does not matter (`safety`), and of those that are alike all can finish as soon as
//! one can. So a check costs as much as there are kinds of them, not as many as they are.
//!
//! What residencies hold is locked for as long as a needy owner pins it: those who need nothing end first, and with the last
//! of the needy that pin it, it comes back. So each entry of the needy says what they pin.
//!
//! In debug builds, and so in every test, each answer is compared with that of `safety::is_safe`.

use smallvec::SmallVec;

use super::accounts::Component;
use super::amounts::{Amounts, ComponentId, digest};
use super::choice::Needs;
use super::owner::{Owner, OwnerId, Phase};
use super::owners::Owners;
use super::residency::{Residencies, ResidencyId};
use super::safety::Unsafe;
use super::{LedgerState, safety};

/// What the safety check needs to know, derived from the owners.
#[derive(Clone, Debug, Default)]
pub(super) struct Book {
    /// What each owner counts for, by its index.
    parts: Vec<Part>,
    needy: Alike,
    /// How many owners have parts in flight.
    parents: usize,
    locked: Vec<u64>,
    aside: Vec<u64>,
    /// At least what any needy owner needs, by component.
    most_needed: Vec<u64>,
    /// Admissions that were found unsafe, since something was last returned.
    refused: SmallVec<[Refused; REFUSED]>,
    /// For the check alone; kept for their room.
    free: Vec<u64>,
    left: Vec<u32>,
}

/// A residency while the check ends one owner after another: how many of the needy pin it, and what comes back with the last.
type Pinned<'a> = SmallVec<[(ResidencyId, u64, &'a Amounts); 4]>;

/// How many refused admissions are remembered.
const REFUSED: usize = 4;

/// What one owner counts for; most count for nothing.
#[derive(Clone, Debug, Default)]
struct Part {
    locked: Amounts,
    aside: Amounts,
    /// The needy that it is one of.
    needy: Option<u64>,
    is_parent: bool,
}

/// Owners in flight that need more than they hold: the same of everything, and return the same.
#[derive(Clone, Debug)]
struct Needy {
    count: u64,
    need: Amounts,
    /// What each returns when it has ended.
    returns: Amounts,
    /// The residencies that each pins.
    pins: Needs,
}

/// The needy, by a number of what they need and return.
#[derive(Clone, Debug, Default)]
struct Alike {
    /// Looked through from end to end: there are as many as there are kinds of jobs and stages.
    numbers: Vec<u64>,
    needy: Vec<Needy>,
}

impl Alike {
    /// Counts one more. Returns the number of those that it is one of.
    fn add(&mut self, need: Amounts, returns: Amounts, pins: Needs) -> u64 {
        let mut number = digest(&[&need, &returns]);
        for pin in &pins {
            number = (number ^ pin.index() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let is_alike = |other: &Needy| other.need == need && other.returns == returns && other.pins == pins;
        loop {
            match self.numbers.iter().position(|other| *other == number) {
                Some(at) if is_alike(&self.needy[at]) => {
                    self.needy[at].count += 1;
                    return number;
                }
                // Others have this number by accident.
                Some(_) => number = number.wrapping_add(1),
                None => {
                    self.numbers.push(number);
                    self.needy.push(Needy { count: 1, need, returns, pins });
                    return number;
                }
            }
        }
    }

    fn remove(&mut self, number: u64) {
        let at = self.numbers.iter().position(|other| *other == number).expect("who is needy is counted");
        self.needy[at].count -= 1;
        if self.needy[at].count == 0 {
            self.numbers.swap_remove(at);
            self.needy.swap_remove(at);
        }
    }
}

/// An admission that was unsafe.
#[derive(Clone, Debug)]
struct Refused {
    takes: Amounts,
    need: Amounts,
    leaves: Amounts,
}

impl Book {
    /// Brings what an owner counts for up to date. `None` if it is gone.
    fn update(&mut self, index: usize, owner: Option<&Owner>, in_flight: bool) {
        if self.parts.len() <= index {
            self.parts.resize(index + 1, Part::default());
        }
        let part = &mut self.parts[index];
        part.locked.iter().for_each(|(at, amount)| self.locked[at as usize] -= amount);
        part.aside.iter().for_each(|(at, amount)| self.aside[at as usize] -= amount);
        self.parents -= usize::from(part.is_parent);
        if let Some(number) = part.needy.take() {
            self.needy.remove(number);
        }
        part.locked.clear();
        part.aside.clear();
        part.is_parent = false;
        let Some(owner) = owner else { return };
        let need = part.fill(owner, in_flight);
        if !need.is_zero() {
            for (at, amount) in need.iter() {
                let most = &mut self.most_needed[at as usize];
                *most = amount.max(*most);
            }
            let mut returns = Amounts::default();
            for (at, held) in owner.held.iter() {
                returns.add(at, held.saturating_sub(owner.leaves.of(at)));
            }
            let pins = if owner.pins && !mutant!("book-without-pins") { owner.needs.clone() } else { Needs::new() };
            part.needy = Some(self.needy.add(need, returns, pins));
        }
        self.parents += usize::from(part.is_parent);
        part.locked.iter().for_each(|(at, amount)| self.locked[at as usize] += amount);
        part.aside.iter().for_each(|(at, amount)| self.aside[at as usize] += amount);
    }

    /// Whether nobody in flight needs more than it holds.
    pub(super) fn is_calm(&self) -> bool {
        self.needy.numbers.is_empty() && self.parents == 0
    }

    /// What is set aside of a component for leavings that do not exist yet.
    pub(super) fn aside(&self, component: ComponentId) -> u64 {
        self.aside.get(component as usize).copied().unwrap_or(0)
    }

    /// Whether everything in flight can be finished one after another.
    fn is_safe(&mut self, components: &[Component], residencies: &Residencies, owners: &Owners) -> bool {
        let Book { needy, locked, aside, most_needed, free, left, .. } = self;
        let needy = &needy.needy;
        // First what stays locked when all who need nothing have ended.
        free.clear();
        free.extend_from_slice(locked);
        let mut pinned = Pinned::new();
        for (index, entry) in &residencies.entries {
            let id = ResidencyId(index);
            let pinning = needy.iter().filter(|needy| needy.pins.contains(&id)).map(|needy| needy.count).sum();
            match (entry.owner.map(|owner| &owners[owner.0].held), pinning) {
                (Some(held), 0) => held.iter().for_each(|(at, bytes)| free[at as usize] -= bytes),
                // A load that is only tried has no owner yet, and its bytes are in nobody's name.
                (None, 1..) => entry.amounts.iter().for_each(|(at, bytes)| free[at as usize] += bytes),
                _ => {}
            }
            if pinning > 0 {
                pinned.push((id, pinning, entry.owner.map_or(&entry.amounts, |owner| &owners[owner.0].held)));
            }
        }
        let mut enough = true;
        for (at, component) in components.iter().enumerate() {
            // What is set aside must be free now, before anybody ends; what nobody pins can go without anybody's progress.
            let held = component.held.saturating_sub(component.reclaimable);
            if component.limit < held || component.limit - held < aside[at] {
                return false;
            }
            let Some(after_all_that_need_nothing) = (component.limit - aside[at]).checked_sub(free[at]) else {
                return false;
            };
            enough &= after_all_that_need_nothing >= most_needed[at];
            free[at] = after_all_that_need_nothing;
        }
        if enough {
            return true;
        }
        // The bound may be that of owners who have ended.
        most_needed.fill(0);
        left.clear();
        left.extend(0..needy.len() as u32);
        for (at, amount) in needy.iter().flat_map(|needy| needy.need.iter()) {
            most_needed[at as usize] = amount.max(most_needed[at as usize]);
        }
        loop {
            if free.iter().zip(&*most_needed).all(|(free, most)| free >= most) {
                return true;
            }
            let before = left.len();
            left.retain(|at| {
                let Needy { need, returns, count, pins } = &needy[*at as usize];
                let can_finish = need.iter().all(|(at, amount)| amount <= free[at as usize]);
                if can_finish {
                    returns.iter().for_each(|(at, amount)| free[at as usize] += amount * count);
                    for pin in pins {
                        let of = pinned.iter_mut().find(|of| of.0 == *pin).expect("what is pinned exists");
                        of.1 -= count;
                        if of.1 == 0 {
                            of.2.iter().for_each(|(at, bytes)| free[at as usize] += bytes);
                        }
                    }
                }
                !can_finish
            });
            if left.is_empty() || left.len() == before {
                return left.is_empty();
            }
        }
    }

    /// Whether no less was refused already: an admission that takes, needs and leaves no less than one that was unsafe is
    /// unsafe as well, since a safe order for the one would be a safe order for the other.
    fn is_refused(&self, takes: &Amounts, need: &Amounts, leaves: &Amounts) -> bool {
        let no_less = |of: &Amounts, than: &Amounts| than.iter().all(|(at, amount)| of.of(at) >= amount);
        self.refused.iter().any(|refused| {
            no_less(takes, &refused.takes) && no_less(need, &refused.need) && no_less(leaves, &refused.leaves)
        })
    }
}

impl Part {
    /// What an owner counts for, put into an empty entry; returns what it needs.
    fn fill(&mut self, owner: &Owner, in_flight: bool) -> Amounts {
        self.is_parent = owner.family.running > 0;
        let mut need = Amounts::default();
        if !in_flight {
            self.locked.clone_from(&owner.held);
            return need;
        }
        for (at, leaves) in owner.leaves.iter() {
            self.aside.add(at, leaves.saturating_sub(owner.held.of(at)));
        }
        for (at, claim) in owner.claim.iter() {
            need.add(at, claim.saturating_sub(owner.held.of(at).max(owner.leaves.of(at))));
        }
        if need.is_zero() {
            for (at, leaves) in owner.leaves.iter() {
                self.locked.add(at, leaves.min(owner.held.of(at)));
            }
        } else {
            self.locked.clone_from(&owner.held);
        }
        need
    }
}

impl LedgerState {
    /// Whether all in flight, and `also` as if it were admitted, can be finished one after another.
    pub(super) fn is_safe_with(&mut self, also: Option<OwnerId>) -> bool {
        self.update_book();
        if !self.is_kept_in_the_book() {
            return self.is_safe_at_length(also);
        }
        if let Some(id) = also {
            self.book.update(id.0, Some(&self.owners[id.0]), true);
        }
        let safe = self.book.is_safe(&self.accounts.components, &self.residencies, &self.owners);
        debug_assert_eq!(safe, self.is_safe_at_length(also), "the book and the check from the start differ");
        safe
    }

    /// Whether the state is safe as far as the book alone can tell, which has no entry for what was just charged.
    pub(super) fn is_safe_by_the_book(&mut self) -> bool {
        self.update_book();
        self.is_kept_in_the_book() && self.book.is_safe(&self.accounts.components, &self.residencies, &self.owners)
    }

    /// The same from the start, as `safety` has it.
    fn is_safe_at_length(&self, also: Option<OwnerId>) -> bool {
        self.check_at_length(also).is_ok()
    }

    /// And if it is not safe, why.
    pub(super) fn check_at_length(&self, also: Option<OwnerId>) -> Result<(), Unsafe<'_>> {
        let owners = self.in_flight.iter().copied().chain(also.map(|id| id.0)).map(|index| &self.owners[index]);
        safety::check(&self.accounts.components, |component| component.limit, owners, self.pins())
    }

    /// Whether the book knows all that counts for safety: it knows nothing of parts in flight.
    fn is_kept_in_the_book(&self) -> bool {
        self.book.parents == 0
    }

    pub(super) fn update_book(&mut self) {
        let components = self.accounts.components.len();
        if self.book.locked.len() != components {
            for of in [&mut self.book.locked, &mut self.book.aside, &mut self.book.most_needed] {
                of.resize(components, 0);
            }
        }
        while let Some(index) = self.owners.next_touched() {
            let owner = self.owners.get(index);
            let in_flight = owner.is_some_and(|owner| owner.phase == Phase::InFlight);
            self.book.update(index, owner, in_flight);
        }
    }

    /// Whether an admission is known to be unsafe, from another one that is no larger.
    pub(super) fn is_known_to_be_unsafe(&mut self, id: OwnerId, more: &Amounts) -> bool {
        if self.book.refused.is_empty() {
            return false;
        }
        self.update_book();
        // An admission that pins other residencies is no larger or smaller than this one.
        if !self.is_kept_in_the_book() || self.has_residencies() {
            return false;
        }
        let (takes, need) = self.takes_and_needs(id, more);
        self.book.is_refused(&takes, &need, &self.owners[id.0].leaves)
    }

    /// Remembers that an admission is unsafe, until something is returned.
    pub(super) fn remember_unsafe(&mut self, id: OwnerId, more: &Amounts) {
        let (takes, need) = self.takes_and_needs(id, more);
        let leaves = self.owners[id.0].leaves.clone();
        if self.book.refused.len() == REFUSED {
            self.book.refused.remove(0);
        }
        self.book.refused.push(Refused { takes, need, leaves });
    }

    /// What was unsafe may be safe from here on.
    pub(super) fn forget_unsafe(&mut self) {
        self.book.refused.clear();
    }

    /// What an admission takes out of what is free, leavings included, and what it needs after that.
    fn takes_and_needs(&self, id: OwnerId, more: &Amounts) -> (Amounts, Amounts) {
        let owner = &self.owners[id.0];
        let mut takes = more.clone();
        takes.raise_to(&owner.leaves);
        let mut need = Amounts::default();
        for (at, claim) in owner.claim.iter() {
            need.add(at, claim.saturating_sub(takes.of(at)));
        }
        (takes, need)
    }
}
