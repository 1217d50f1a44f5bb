//! The short way for what is asked of a ledger most often: free-standing reservations of the root of a few bytes, taken,
//! waited for and dropped while nothing else waits.
//!
//! It decides as `open` and `drop_piece` do, and leaves the same state behind; it only leaves out what has no
//! effect then:
//!
//! - *The queues.* Whoever waits is in the line ([`line`](super::line)), which knows of each request what it wants, and of
//!   nobody that he may be served in more ways than one.
//! - *The safety check.* Such a reservation claims what it holds and leaves nothing behind: it can end as it is. While
//!   nobody in flight needs more than it holds, what fits beside what is set aside is safe.
//! - *Making an owner.* While nobody in flight needs more than it holds, and nothing but the short way is gone, it is
//!   [`open`](Quick::open): owners are [light](super::light), and nothing has to be looked at again. Beside owners who need more, one
//!   that was dropped is kept, with everything in place but the amounts.
//!
//! Before anything else the light owners are unfolded ([`unfold`](LedgerState::unfold)); whoever forgets it finds out at once.
//!
//! Whatever is not as simple as that goes the long way: children, pinned memory, maxima, retained reservations, residencies,
//! observers, lost devices, limits on their way down. Before anything else is put on a queue the line is dissolved into the
//! queues ([`dissolve_line`](LedgerState::dissolve_line)), and formed again when nothing else waits any more.

use std::sync::Arc;

use smallvec::SmallVec;

use super::accounts::AccountId;
use super::amounts::{Amounts, ComponentId};
use super::light::{Light, LightStand, Mark};
use super::line::{Place, Stand};
use super::owner::{Declared, Owner, OwnerId, Phase, Waiting, Want};
use super::{LedgerState, Outcome};
use crate::ledger::error::{Reason, Shortage};
use crate::ledger::snapshot::ClassTotals;
use crate::{Bytes, Class, Resource};

/// How many owners are kept for each class.
const SPARE: usize = 64;

/// The owners that were served, in order.
pub type Served = SmallVec<[OwnerId; 8]>;

/// The answer to a request that went the short way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtOnce {
    /// It is granted.
    Granted(OwnerId),
    /// It waits.
    Waits(OwnerId),
    /// It would wait. Nothing has changed.
    WouldWait,
}

/// What the short way knows of the classes that came along it, and the owners that it keeps.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Quick {
    /// Nothing is asked or under way that the short way does not know, and nobody in flight needs more than it holds; and
    /// since that was seen nothing but the short way was gone.
    open: bool,
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
    /// Without the owners that are kept, which are no part of the state.
    fn clone(&self) -> Quick {
        let clone = |known: &Known| Known { name: known.name.clone(), spare: Vec::new(), ..*known };
        Quick { classes: self.classes.iter().map(clone).collect(), open: self.open }
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
    /// Asks for a reservation of the root with nothing declared but its bytes. `None`, and nothing has changed, where that
    /// is no matter of the short way: [`open`](LedgerState::open) decides, after [`unfold`](LedgerState::unfold).
    pub fn ask_at_once(
        &mut self,
        mark: Mark,
        class: Class,
        bytes: Bytes,
        priority: i32,
        may_wait: bool,
    ) -> Option<AtOnce> {
        if self.closed || bytes.is_zero() || !self.is_simple() {
            return None;
        }
        let at = match self.quick.find(class) {
            Some(at) => at,
            None => self.learn(class)?,
        };
        let component = self.quick.classes[at].component;
        if bytes.0 > self.accounts.component(component).attainable() {
            return None;
        }
        let fits = bytes.0 <= self.room_at_once(component);
        if self.line.is_empty() {
            if fits && self.quick.open {
                return Some(AtOnce::Granted(self.open_light(at, mark, bytes.0, priority)));
            }
            if fits && self.is_safe_with_more(component, bytes.0) {
                return Some(AtOnce::Granted(self.open_at_once(at, bytes.0, priority)));
            }
        } else if self.line.priority() != priority {
            return None;
        } else if fits && !self.line.holds_back(self.next_age, self.bypass) {
            self.line.mark_end(self.next_age);
            return Some(AtOnce::Granted(self.open_light(at, mark, bytes.0, priority)));
        }
        match may_wait {
            // Whoever needs more could be served before those in the line.
            _ if !self.quick.open => None,
            false => Some(AtOnce::WouldWait),
            true => Some(AtOnce::Waits(self.wait_at_once(at, mark, bytes.0, priority))),
        }
    }

    /// Why a request that [would wait](AtOnce::WouldWait) would do so. After [`unfold`](LedgerState::unfold).
    pub fn shortage_at_once(&mut self, class: Class, bytes: Bytes) -> Option<Shortage> {
        let known = &self.quick.classes[self.quick.find(class)?];
        let (who, component) = (known.name.clone(), known.component);
        let mut more = Amounts::default();
        more.add(component, bytes.0);
        let reason = if let Some(short) = self.short_of(&more, true) {
            short
        } else if self.line.holds_back(self.next_age, self.bypass) {
            let first = self.line.get(0).expect("somebody holds it back");
            Reason::Order { behind: self.owners[first.owner].name.clone() }
        } else {
            // Whoever would hold it needs nothing more, and is no part of the order.
            self.accounts.component_mut(component).held += bytes.0;
            let reason = self.why_unsafe(None);
            self.accounts.component_mut(component).held -= bytes.0;
            reason.unwrap_or(Reason::Queued)
        };
        Some(Shortage { who, reason })
    }

    /// Drops the only piece of a reservation that could have been opened so. `false`, and nothing has changed, where that is
    /// no matter of the short way: [`drop_piece`](LedgerState::drop_piece) decides, after [`unfold`](LedgerState::unfold).
    pub fn drop_at_once(&mut self, id: OwnerId, class: Class, bytes: Bytes, served: &mut Served) -> bool {
        if bytes.is_zero() || !self.is_simple() {
            return false;
        }
        let at = match self.owners.light(id.0) {
            Some(light) => {
                let at = light.known as usize;
                debug_assert_eq!(light.stand, LightStand::Holds);
                if light.bytes != bytes.0 || !is_identical(self.quick.classes[at].class, class) {
                    return false;
                }
                self.owners.end_light(id.0);
                at
            }
            None => match self.quick.find(class) {
                Some(at) if self.owners[id.0].is_simple_holder(class, bytes.0) => {
                    self.in_flight.remove(id.0);
                    let owner = self.owners.remove_unmarked(id.0, self.quick.open);
                    self.quick.classes[at].keep(owner);
                    at
                }
                _ => return false,
            },
        };
        let component = self.quick.classes[at].component;
        let it = self.accounts.component_mut(component);
        it.held = it.held.checked_sub(bytes.0).expect("more was returned than was held");
        let totals = self.totals_at_once(at);
        totals.sub(bytes.0);
        totals.count -= 1;
        self.forget_unsafe();
        if !self.line.is_empty() {
            self.serve_line(served);
        }
        true
    }

    /// Makes ordinary owners of the light ones, and tells what was kept with each. Comes before anything else that looks at
    /// the state, after the short way was gone.
    pub fn unfold(&mut self, told: impl FnMut(OwnerId, Mark)) {
        self.quick.open = false;
        if self.owners.has_lights() {
            self.unfold_all(told);
        }
    }

    #[cold]
    fn unfold_all(&mut self, mut told: impl FnMut(OwnerId, Mark)) {
        for Light { bytes, age, born, mark, owner: index, known, priority, stand } in self.owners.take_lights() {
            let index = index as usize;
            let known = &mut self.quick.classes[known as usize];
            let mut owner = known.owner();
            (owner.born, owner.priority) = (born, priority);
            match stand {
                LightStand::Holds => {
                    owner.give(known.class, known.component, bytes);
                    self.in_flight.push(index);
                }
                LightStand::Waits => {
                    (owner.phase, owner.pieces) = (Phase::Fresh, 0);
                    owner.holdings.clear();
                    owner.held.clear();
                    owner.claim.set_only(known.component, bytes);
                    owner.waiting = Some(Waiting::new(Want::More(known.class, bytes), age, mark.since));
                }
                LightStand::Ended(_) => unreachable!("those are not taken out"),
            }
            self.owners.unfold(index, owner);
            told(OwnerId(index), mark);
        }
    }

    /// # Panics
    ///
    /// While the short way is open.
    pub(super) fn assert_unfolded(&self) {
        assert!(!self.quick.open, "after requests that went the short way, `unfold` comes before anything else");
    }

    /// Tells a light owner since when it holds what it was granted; `false` if it is not a light one.
    pub fn holds_since(&mut self, id: OwnerId, now: u64) -> bool {
        self.owners.light(id.0).map(|light| light.mark.since = now).is_some()
    }

    /// Whether an owner is a light one.
    pub fn is_light(&mut self, id: OwnerId) -> bool {
        self.owners.light(id.0).is_some()
    }

    /// Serves the line where that is all that an event can have brought about. `false`, and nothing has changed, where the
    /// long way has to be gone.
    pub(super) fn settle_line(&mut self, out: &mut Vec<Outcome>) -> bool {
        if self.line.is_empty() || !self.is_simple_now() || !self.is_calm() {
            return false;
        }
        let mut served = Served::new();
        self.forget_unsafe();
        self.serve_line(&mut served);
        let granted = |id: OwnerId| Outcome::Granted(id, self.owners[id.0].holdings.clone());
        out.extend(served.into_iter().map(granted));
        true
    }

    /// Puts all that wait in the line on the queues, as if there had never been a line. Before anybody looks at the queues.
    pub(super) fn dissolve_line(&mut self) {
        if self.line.is_empty() {
            return;
        }
        for (index, passed) in self.line.dissolve() {
            self.owners.unmarked(index).waiting.as_mut().expect("it waits").passed = passed;
            self.take_place(OwnerId(index));
        }
    }

    /// Whether anybody waits in the line.
    pub fn is_anybody_in_the_line(&self) -> bool {
        !self.line.is_empty()
    }

    /// How often a waiting request was passed.
    pub(super) fn times_passed(&self, id: OwnerId) -> u32 {
        let waiting = self.owners[id.0].waiting.as_ref().expect("it waits");
        if self.line.is_empty() { waiting.passed } else { self.line.passed(waiting.age) }
    }

    /// Whether nothing is asked or under way that the short way does not know, and all that wait are in the line. Opens the
    /// short way where, on top of that, nobody in flight needs more than it holds.
    fn is_simple(&mut self) -> bool {
        if self.quick.open {
            return true;
        }
        let simple = self.is_simple_now();
        self.quick.open = simple && self.is_calm();
        simple
    }

    fn is_simple_now(&mut self) -> bool {
        let lowered = || self.accounts.components.iter().any(|component| component.limit > component.target);
        !self.is_recording()
            && !self.recheck
            && !self.paused
            && !self.has_residencies()
            && !self.accounts.any_lost()
            && (self.alone.is_empty() || mutant!("short-way-beside-alone"))
            && !lowered()
            && if self.line.is_empty() {
                self.queues.is_empty() || mutant!("short-way-past-those-who-wait") || self.form_line()
            } else {
                self.is_calm()
            }
    }

    /// Whether nobody in flight needs more than it holds.
    fn is_calm(&mut self) -> bool {
        self.update_book();
        self.book.is_calm()
    }

    /// What fits and, while nobody in flight needs more than it holds, is safe.
    fn room_at_once(&self, component: ComponentId) -> u64 {
        let it = self.accounts.component(component);
        it.limit.min(it.target).saturating_sub(it.held).saturating_sub(self.book.aside(component))
    }

    fn is_safe_with_more(&mut self, component: ComponentId, bytes: u64) -> bool {
        self.accounts.component_mut(component).held += bytes;
        // Whoever will hold it needs nothing more: in the order it ends first, and the book need not know it.
        let safe = self.is_safe_by_the_book();
        self.accounts.component_mut(component).held -= bytes;
        safe
    }

    /// Opens a reservation that was found possible.
    fn open_at_once(&mut self, at: usize, bytes: u64, priority: i32) -> OwnerId {
        let known = &mut self.quick.classes[at];
        let mut owner = known.owner();
        owner.give(known.class, known.component, bytes);
        self.born += 1;
        (owner.born, owner.priority) = (self.born, priority);
        // The age that it would have waited with.
        self.next_age += 1;
        let id = self.owners.insert_unmarked(owner);
        self.in_flight.push(id);
        self.count_at_once(at, bytes);
        OwnerId(id)
    }

    /// Opens a light reservation that was found possible.
    #[inline]
    fn open_light(&mut self, at: usize, mark: Mark, bytes: u64, priority: i32) -> OwnerId {
        self.born += 1;
        let (born, age) = (self.born, self.next_age);
        // The age that it would have waited with.
        self.next_age += 1;
        let (known, stand) = (at as u32, LightStand::Holds);
        let index = self.owners.insert_light(Light { bytes, age, born, mark, owner: 0, known, priority, stand });
        self.count_at_once(at, bytes);
        OwnerId(index)
    }

    /// Puts a request in the line.
    fn wait_at_once(&mut self, at: usize, mark: Mark, bytes: u64, priority: i32) -> OwnerId {
        self.born += 1;
        let (born, age) = (self.born, self.next_age);
        self.next_age += 1;
        let (known, stand) = (at as u32, LightStand::Waits);
        let owner = self.owners.insert_light(Light { bytes, age, born, mark, owner: 0, known, priority, stand });
        let component = self.quick.classes[at].component;
        let place = Place { age, bytes, owner, component, known, passed_before: 0, stand: Stand::Waits };
        self.line.push(place, priority);
        OwnerId(owner)
    }

    /// Serves whoever can be served, oldest first. Each that is served only makes it harder for others, so nobody has to be
    /// looked at twice; but whoever moves up to be the oldest may have been passed less often.
    fn serve_line(&mut self, served: &mut Served) {
        if !self.line.may_fit(|component| self.room_at_once(component)) {
            return;
        }
        let mut at = 0;
        while let Some(place) = self.line.get(at) {
            if at > 0 && self.line.holds_back(place.age, self.bypass) {
                return;
            }
            if place.stand != Stand::Waits || place.bytes > self.room_at_once(place.component) {
                at += 1;
                continue;
            }
            match self.owners.light(place.owner) {
                Some(light) => light.stand = LightStand::Holds,
                None => {
                    let owner = self.owners.unmarked(place.owner);
                    let Some(Waiting { want: Want::More(class, _), .. }) = owner.waiting else {
                        unreachable!("only free-standing reservations are in the line")
                    };
                    owner.waiting = None;
                    (owner.phase, owner.pieces) = (Phase::InFlight, 1);
                    owner.give(class, place.component, place.bytes);
                    self.in_flight.push(place.owner);
                }
            }
            self.count_at_once(place.known as usize, place.bytes);
            served.push(OwnerId(place.owner));
            self.line.serve(at);
            if !self.line.may_fit(|component| self.room_at_once(component)) {
                return;
            }
            at += usize::from(at > 0);
        }
        self.line.learn_least();
    }

    /// Counts a reservation in that holds what it asked for.
    #[inline]
    fn count_at_once(&mut self, at: usize, bytes: u64) {
        let it = self.accounts.component_mut(self.quick.classes[at].component);
        it.held += bytes;
        it.peak = it.peak.max(it.held);
        let totals = self.totals_at_once(at);
        totals.add(bytes);
        totals.count += 1;
        debug_assert!(self.is_safe_with(None), "and so is the check from the start");
    }

    fn totals_at_once(&mut self, at: usize) -> &mut ClassTotals {
        let totals = match self.quick.classes[at].totals {
            Some(totals) => totals,
            None => self.learn_totals(at),
        };
        &mut self.classes[totals].totals
    }

    /// Forms the line of all that wait, if nothing else does. `false`, and nothing has changed, if that cannot be.
    fn form_line(&mut self) -> bool {
        if !self.queues.may_be_a_line() || !self.is_calm() {
            return false;
        }
        let mut places: Vec<Place> = Vec::with_capacity(self.queues.admission.len());
        for id in self.queues.admissions() {
            let owner = &self.owners[id.0];
            let waiting = owner.waiting.as_ref().expect("it waits");
            let Want::More(class, bytes) = waiting.want else { return false };
            let (age, passed_before) = (waiting.age, waiting.passed);
            let known = self.quick.find(class).or_else(|| self.learn(class));
            let Some(known) = known else { return false };
            // An older one was passed by whoever passed a younger one.
            if places.last().is_some_and(|older| older.passed_before < passed_before) {
                return false;
            }
            let component = self.quick.classes[known].component;
            let (owner, known, stand) = (id.0, known as u32, Stand::Waits);
            places.push(Place { age, bytes, owner, component, known, passed_before, stand });
        }
        let priority = places.first().map_or(0, |place| self.owners[place.owner].priority);
        self.queues.clear();
        for place in places {
            self.owners.unmarked(place.owner).waiting.as_mut().expect("it waits").forget_listing();
            self.line.push(place, priority);
        }
        true
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
        let totals = self.classes.iter().position(|entry| entry.resource == resource).expect("just put there");
        self.quick.classes[at].totals = Some(totals);
        totals
    }
}

impl Known {
    /// An owner in flight that lacks nothing but its amounts.
    fn owner(&mut self) -> Box<Owner> {
        self.spare.pop().unwrap_or_else(|| {
            let declared =
                Declared::Standing { class: self.class, max: None, base: Amounts::default(), retained: false };
            let mut owner = Owner::new(self.name.clone(), AccountId::ROOT, 0, declared);
            (owner.phase, owner.pieces) = (Phase::InFlight, 1);
            Box::new(owner)
        })
    }

    /// Keeps an owner to be used again.
    fn keep(&mut self, mut owner: Box<Owner>) {
        if self.spare.len() == SPARE {
            return;
        }
        if !Arc::ptr_eq(&owner.name, &self.name) {
            owner.name = self.name.clone();
            if let Declared::Standing { class, .. } = &mut owner.declared {
                *class = self.class;
            }
        }
        self.spare.push(owner);
    }
}

impl Owner {
    /// Whether it is a reservation of the root that holds and claims so much and nothing else, in one piece, with nothing
    /// declared.
    fn is_simple_holder(&self, class: Class, bytes: u64) -> bool {
        self.pieces == 1
            && self.phase == Phase::InFlight
            && self.account == AccountId::ROOT
            && self.holdings.len() == 1
            && self.holdings[0].1 == bytes
            && matches!(self.holdings[0].0, Resource::Class(held) if is_identical(held, class))
            && matches!(self.declared, Declared::Standing { max: None, retained: false, .. })
            && self.leaves.is_zero()
            && self.held == self.claim
    }

    /// Puts these bytes in the owner's hands, and claims no more.
    fn give(&mut self, class: Class, component: ComponentId, bytes: u64) {
        match &mut self.holdings[..] {
            [only] => *only = (class.into(), bytes),
            _ => {
                self.holdings.clear();
                self.holdings.push((class.into(), bytes));
            }
        }
        self.held.set_only(component, bytes);
        self.claim.set_only(component, bytes);
    }
}
