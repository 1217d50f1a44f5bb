//! The short way for what is asked of a ledger most often: a free-standing reservation of a few bytes, taken and dropped
//! while nobody waits.
//!
//! It decides as `open` and `drop_piece` do, and leaves the same state behind; it only leaves out what has no effect
//! then:
//!
//! - *The queues.* Nobody waits, so the request is the only one that could be served; and what is returned serves nobody.
//!   Limits on their way down are looked at the long way.
//! - *The owner's place in the book.* It claims what it holds and leaves nothing behind, so it counts for nothing there.
//! - *Making an owner.* One that was dropped is kept, with everything in place but the amounts.
//!
//! Whatever is not as simple as that goes the long way: children, pinned memory, maxima, retained or named reservations,
//! residencies, observers, lost devices.

use std::sync::Arc;

use super::LedgerState;
use super::accounts::AccountId;
use super::amounts::{Amounts, ComponentId};
use super::owner::{Declared, Owner, OwnerId, Phase};
use crate::{Bytes, Class, Resource};

/// How many owners are kept for each class.
const SPARE: usize = 64;

/// What the short way knows of the classes that came along it, and the owners that it keeps.
#[derive(Debug, Default)]
pub(super) struct Quick {
    classes: Vec<Known>,
}

/// A class that is charged to one component of the root.
#[derive(Debug)]
struct Known {
    class: Class,
    component: ComponentId,
    /// Its place among the totals, once something of it was granted.
    totals: Option<usize>,
    name: Arc<str>,
    #[expect(clippy::vec_box, reason = "owners are kept in boxes, and it is the boxes that are used again")]
    spare: Vec<Box<Owner>>,
}

impl Clone for Quick {
    /// Begins anew: nothing here is part of the state.
    fn clone(&self) -> Quick {
        Quick::default()
    }
}

impl Quick {
    /// By the name's address, which is enough: another one is another entry.
    fn find(&self, class: Class) -> Option<usize> {
        self.classes.iter().position(|known| is_identical(known.class, class))
    }
}

fn is_identical(one: Class, other: Class) -> bool {
    std::ptr::eq(one.name(), other.name()) && one.space() == other.space()
}

impl LedgerState {
    /// Takes a reservation of the root with an ordinary name and nothing declared but its bytes, if it is granted at once
    /// and simple enough. With `None` nothing has changed: [`open`](LedgerState::open) decides.
    pub fn open_at_once(&mut self, class: Class, bytes: Bytes, priority: i32) -> Option<OwnerId> {
        if self.closed || bytes.is_zero() || !self.nobody_waits_or_watches() {
            return None;
        }
        let at = match self.quick.find(class) {
            Some(at) => at,
            None => self.learn(class)?,
        };
        let component = self.quick.classes[at].component;
        let it = self.accounts.component_mut(component);
        let fits = it.held.checked_add(bytes.0).is_some_and(|held| held <= it.limit.min(it.target));
        if !fits || bytes.0 > it.attainable() {
            return None;
        }
        it.held += bytes.0;
        // Whoever will hold it needs nothing more: in the order it ends first, and the book need not know it.
        if !self.is_safe_by_the_book() {
            self.accounts.component_mut(component).held -= bytes.0;
            return None;
        }
        let it = self.accounts.component_mut(component);
        it.peak = it.peak.max(it.held);
        let totals = match self.quick.classes[at].totals {
            Some(totals) => totals,
            None => self.learn_totals(at),
        };
        let totals = &mut self.classes[totals].1;
        totals.add(bytes.0);
        totals.count += 1;
        let known = &mut self.quick.classes[at];
        let mut owner = match known.spare.pop() {
            Some(owner) => owner,
            None => known.owner(),
        };
        owner.holdings[0].1 = bytes.0;
        owner.held.set_only(bytes.0);
        owner.claim.set_only(bytes.0);
        self.born += 1;
        (owner.born, owner.priority) = (self.born, priority);
        // The age that it would have waited with.
        self.next_age += 1;
        let id = self.owners.insert_unmarked(owner);
        self.in_flight.push(id);
        debug_assert!(self.is_safe_with(None), "and so is the check from the start");
        Some(OwnerId(id))
    }

    /// Drops the only piece of a reservation that could have been opened at once. With `false` nothing has changed.
    pub fn drop_at_once(&mut self, id: OwnerId, class: Class, bytes: Bytes) -> bool {
        if bytes.is_zero() || !self.nobody_waits_or_watches() {
            return false;
        }
        let Some(at) = self.quick.find(class) else { return false };
        let (known, owner) = (&mut self.quick.classes[at], &self.owners[id.0]);
        let is_simple = owner.pieces == 1
            && owner.phase == Phase::InFlight
            && Arc::ptr_eq(&owner.name, &known.name)
            && owner.holdings.len() == 1
            && owner.holdings[0].1 == bytes.0
            && matches!(owner.holdings[0].0, Resource::Class(held) if is_identical(held, class))
            && matches!(owner.declared, Declared::Standing { max: None, retained: false, .. });
        if !is_simple {
            return false;
        }
        let Some(totals) = known.totals else { return false };
        debug_assert!(owner.leaves.is_zero() && owner.held == owner.claim, "it claims what it holds");
        let it = self.accounts.component_mut(known.component);
        it.held = it.held.checked_sub(bytes.0).expect("more was returned than was held");
        let totals = &mut self.classes[totals].1;
        totals.sub(bytes.0);
        totals.count -= 1;
        let at = self.in_flight.iter().rposition(|index| *index == id.0).expect("it is in flight");
        self.in_flight.swap_remove(at);
        let owner = self.owners.remove_unmarked(id.0);
        if known.spare.len() < SPARE {
            known.spare.push(owner);
        }
        self.forget_unsafe();
        true
    }

    fn nobody_waits_or_watches(&self) -> bool {
        let lowered = || self.accounts.components.iter().any(|component| component.limit > component.target);
        let nobody_waits = self.queues.growth.is_empty() && self.queues.admission.is_empty();
        (nobody_waits || mutant!("short-way-past-those-who-wait"))
            && !self.is_recording()
            && !self.recheck
            && !self.has_residencies()
            && !self.accounts.any_lost()
            && !lowered()
    }

    /// Gets to know a class, unless it is charged to more than one component.
    fn learn(&mut self, class: Class) -> Option<usize> {
        let charged = self.accounts.charged(AccountId::ROOT, class.into()).ok()?;
        let [component] = charged[..] else { return None };
        let name = class.name().into();
        self.quick.classes.push(Known { class, component, totals: None, name, spare: Vec::new() });
        Some(self.quick.classes.len() - 1)
    }

    #[cold]
    fn learn_totals(&mut self, at: usize) -> usize {
        let resource = Resource::Class(self.quick.classes[at].class);
        self.totals(resource);
        let totals = self.classes.iter().position(|entry| entry.0 == resource).expect("just put there");
        self.quick.classes[at].totals = Some(totals);
        totals
    }
}

impl Known {
    /// An owner that lacks nothing but its amounts.
    fn owner(&self) -> Box<Owner> {
        let declared = Declared::Standing { class: self.class, max: None, base: Amounts::default(), retained: false };
        let mut owner = Owner::new(self.name.clone(), AccountId::ROOT, 0, declared);
        owner.phase = Phase::InFlight;
        owner.pieces = 1;
        owner.holdings.push((self.class.into(), 1));
        owner.held.add(self.component, 1);
        owner.claim.add(self.component, 1);
        Box::new(owner)
    }
}
