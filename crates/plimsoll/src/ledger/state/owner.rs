//! Owners: what the ledger knows of each job and of each free-standing reservation.

use std::sync::Arc;

use smallvec::SmallVec;

use super::accounts::{AccountId, Accounts};
use super::alone::Alone;
use super::amounts::Amounts;
use super::choice::{Needs, Plans};
use super::family::Family;
use super::queues::Listing;
use super::residency::ResidencyId;
use super::retry::Again;
use crate::{Class, Resource};

/// A job or a free-standing reservation, as the state machine names it.
///
/// It names the owner from the call that made it until the owner has ended and returned everything; then the name may
/// be given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub(super) usize);

impl OwnerId {
    /// A small number, unique among the owners that exist now.
    pub fn index(self) -> usize {
        self.0
    }
}

/// Where an owner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    /// Made, and has not asked for anything yet.
    Fresh,
    /// In flight: admitted, and expected to end.
    InFlight,
    /// Ended; what it still holds is retained until it is dropped.
    Ended,
    /// Ended, and what it still held is its parent's.
    HandedOver,
}

/// What an owner waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Want {
    /// Everything that a stage of its profile needs beyond what is held.
    Stage(usize),
    /// More bytes of the class.
    More(Class, u64),
}

/// A waiting request.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) want: Want,
    /// Rank of arrival: smaller is older.
    pub(super) age: u64,
    /// When it arrived.
    pub(super) since: u64,
    /// The later admissions that passed it.
    pub(super) passed: u32,
    /// What it needs beyond what is held, by component, once somebody has asked; until something else is held.
    pub(super) more: Option<Amounts>,
    pub(super) listing: Listing,
}

impl Waiting {
    pub(super) fn new(want: Want, age: u64, since: u64) -> Waiting {
        Waiting { want, age, since, passed: 0, more: None, listing: Listing::default() }
    }
}

impl Waiting {
    /// It is on no queue any more.
    pub(super) fn forget_listing(&mut self) {
        (self.more, self.listing) = (None, Listing::default());
    }
}

/// What kind of owner it is, and what it declared.
#[derive(Clone, Debug)]
pub(super) enum Declared {
    /// A job with a profile, or with several of which one is chosen.
    Job {
        plans: Plans,
        /// The stage that is running.
        running: Option<usize>,
        /// The first stage that may be entered next.
        next: usize,
        /// The job's handle is gone: it ends with the stage that is running and the parts that are in flight.
        ending: bool,
        /// It may begin again while it holds something, so its claim does not fall from stage to stage.
        restarts: bool,
        /// What is remembered for running it, or a stage of it, again.
        again: Again,
        /// Whether it runs alone where it is larger than a limit.
        alone: Alone,
    },
    /// A free-standing reservation.
    Standing {
        class: Class,
        /// The most it may be grown to by waiting, where that was declared.
        max: Option<u64>,
        /// The claim that goes with `max`; nothing where it was not declared.
        base: Amounts,
        /// It is not expected to come back while others wait.
        retained: bool,
    },
}

/// A job or a free-standing reservation.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) name: Arc<str>,
    pub(super) account: AccountId,
    pub(super) priority: i32,
    pub(super) declared: Declared,
    pub(super) phase: Phase,
    pub(super) waiting: Option<Waiting>,
    /// What is held, by resource; without zeros.
    pub(super) holdings: SmallVec<[(Resource, u64); 4]>,
    /// The same, by component.
    pub(super) held: Amounts,
    /// The most that it may still need, what it holds included.
    pub(super) claim: Amounts,
    /// What is set aside because it will not be returned when the owner ends.
    pub(super) leaves: Amounts,
    /// How many reservations are out.
    pub(super) pieces: u32,
    /// What it needs beside its claim.
    pub(super) needs: Needs,
    /// It pins that.
    pub(super) pins: bool,
    /// It is nobody's: it holds the bytes of this.
    pub(super) residency: Option<ResidencyId>,
    pub(super) family: Family,
    /// Which owner it is, of all there ever were.
    pub(super) born: u64,
}

impl Owner {
    /// An owner that holds nothing and has claimed nothing yet.
    pub(super) fn new(name: Arc<str>, account: AccountId, priority: i32, declared: Declared) -> Owner {
        Owner {
            name,
            account,
            priority,
            declared,
            phase: Phase::Fresh,
            waiting: None,
            holdings: SmallVec::new(),
            held: Amounts::default(),
            claim: Amounts::default(),
            leaves: Amounts::default(),
            pieces: 0,
            needs: SmallVec::new(),
            pins: false,
            residency: None,
            family: Family::default(),
            born: 0,
        }
    }

    pub(super) fn holding(&self, resource: Resource) -> u64 {
        self.holdings.iter().find(|entry| entry.0 == resource).map_or(0, |entry| entry.1)
    }

    pub(super) fn hold(&mut self, resource: Resource, amount: u64) {
        if amount == 0 {
            return;
        }
        self.forget_more();
        match self.holdings.iter_mut().find(|entry| entry.0 == resource) {
            Some(entry) => entry.1 += amount,
            None => self.holdings.push((resource, amount)),
        }
    }

    fn forget_more(&mut self) {
        if let Some(waiting) = &mut self.waiting {
            waiting.more = None;
        }
    }

    /// # Panics
    ///
    /// When more is taken than is held.
    pub(super) fn unhold(&mut self, resource: Resource, amount: u64) {
        if amount == 0 {
            return;
        }
        self.forget_more();
        let at = self
            .holdings
            .iter()
            .position(|entry| entry.0 == resource)
            .expect("a resource was returned that is not held");
        let entry = &mut self.holdings[at];
        entry.1 = entry.1.checked_sub(amount).expect("more was returned than was held");
        if entry.1 == 0 {
            self.holdings.remove(at);
        }
    }

    /// The stage that counts now: the running one, the one waited for, or the next.
    pub(super) fn current_stage(&self) -> Option<usize> {
        let Declared::Job { running, next, .. } = self.declared else { return None };
        let waited_for = self.waiting.as_ref().and_then(|waiting| match waiting.want {
            Want::Stage(stage) => Some(stage),
            Want::More(..) => None,
        });
        Some(running.or(waited_for).unwrap_or(next))
    }

    /// The most that it may still need by what it declared and what it holds: the plan's claim, and on top what it holds
    /// beyond the current stage's peak, since nothing says when that will be returned.
    pub(super) fn claim_by_plan(&self, accounts: &mut Accounts) -> Amounts {
        let mut claim = match (&self.declared, self.current_stage()) {
            (Declared::Job { ending: true, running: None, .. }, _) => Amounts::default(),
            (Declared::Job { plans, restarts, .. }, Some(stage)) if stage < plans.current().claims.len() => {
                let mut claim = plans.current().claims[if *restarts { 0 } else { stage }].clone();
                let profile = &plans.profile().stages()[stage];
                for &(resource, held) in &self.holdings {
                    let surplus = held.saturating_sub(profile.own(resource));
                    accounts.add(self.account, resource, surplus, &mut claim).expect("what is held was charged");
                }
                claim
            }
            (Declared::Standing { base, .. }, _) => base.clone(),
            _ => Amounts::default(),
        };
        claim.raise_to(&self.held);
        claim
    }

    /// Whether it is a reservation that is not expected to come back while others wait.
    pub(super) fn is_retained_standing(&self) -> bool {
        matches!(self.declared, Declared::Standing { retained: true, .. })
    }

    pub(super) fn in_flight(&self) -> bool {
        self.phase == Phase::InFlight
    }

    /// All that a job holds when it is in a stage, by component, as it was laid out. `None` where it holds more of something than the
    /// stage's peak, so that this is not all.
    pub(super) fn needed(&self, stage: usize) -> Option<&Amounts> {
        let Declared::Job { plans, .. } = &self.declared else { return None };
        let peak = &plans.profile().stages()[stage].peak;
        let within = self.holdings.iter().all(|&(resource, held)| held <= peak.of(resource));
        within.then(|| &plans.current().peaks[stage])
    }

    /// What the waiting request needs beyond what is held, by resource.
    pub(super) fn missing(&self, want: Want) -> SmallVec<[(Resource, u64); 4]> {
        match want {
            Want::More(class, bytes) => std::iter::once((Resource::Class(class), bytes)).collect(),
            Want::Stage(stage) => {
                let Declared::Job { plans, .. } = &self.declared else { unreachable!("only jobs have stages") };
                let peak = &plans.profile().stages()[stage].peak;
                peak.iter()
                    .map(|(resource, peak)| (resource, peak.saturating_sub(self.holding(resource))))
                    .filter(|entry| entry.1 != 0)
                    .collect()
            }
        }
    }
}
