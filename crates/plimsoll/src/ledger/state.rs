//! [`LedgerState`]: the policy of the ledger as a deterministic state machine, without threads, clock or I/O.
//!
//! Each method is an event. It changes the state and appends to `out` what was granted or refused by it; the shell (or a
//! simulator, or a checker) passes that on. Time comes in with the events and only as an opaque rising number.
//!
//! # The life of an owner
//!
//! ```text
//!             submit             request(stage 0)          grant                  end_stage
//!  job:      ───────▶ Fresh ───────────────────▶ Waiting ───────▶ InFlight: running ───────▶ InFlight: between stages
//!                                                  │  ▲                        ▲                  │ request(stage i)
//!                                         withdraw │  │                        └──────────────────┘
//!                                                  ▼  │
//!  standing: open ──▶ Waiting ──▶ InFlight        Fresh          end / last piece dropped: Ended ─▶ gone, once all is back
//! ```
//!
//! # Rules
//!
//! The components (spaces, children's limits, slots) form one vector (`accounts`); a request names all it needs and is
//! granted whole. Every grant must leave the state safe (`safety`). Requests of owners in flight go first, by priority,
//! then least remaining claim, then age, and are held back by nothing but safety; then come admissions, by priority, then
//! age, each of which may pass waiting requests only while none of them has been passed K times (`admit`).

mod accounts;
mod admit;
mod alone;
mod amounts;
mod backlog;
mod book;
mod children;
mod choice;
mod entries;
mod evict;
mod explain;
mod family;
mod flight;
mod layouts;
mod light;
mod line;
mod loads;
mod owner;
mod owners;
mod pause;
mod queues;
mod quick;
mod record;
mod residency;
mod resize;
mod retire;
mod retry;
mod safety;
mod view;

use std::sync::Arc;

use smallvec::SmallVec;

pub use self::accounts::{AccountId, Kind};
use self::accounts::{Accounts, Component, LARGEST};
use self::alone::Alone;
use self::amounts::{Amounts, ComponentId};
use self::book::Book;
use self::choice::Plan;
pub use self::family::Parent;
use self::flight::InFlight;
use self::layouts::Layouts;
pub use self::light::Mark;
use self::line::Line;
pub use self::owner::OwnerId;
use self::owner::{Declared, Owner, Phase, Want};
use self::owners::Owners;
use self::queues::Queues;
use self::quick::Quick;
pub use self::quick::{AtOnce, Served};
pub use self::record::Change;
use self::record::Record;
use self::residency::Residencies;
pub use self::residency::{Order, ResidencyId, ResidencyStand, ResidencyView, Resident};
use self::retry::Again;
pub use self::view::{ComponentView, OwnerView, Stand, WaitView};
use super::error::{EnterError, GrowError, Lost, NeverFits, ReserveError, Shortage, SubmitError};
use super::snapshot::ClassTotals;
use crate::observe::What;
use crate::{Budget, Bytes, Class, JobSpec, Resource};

/// Amounts by resource, as a grant hands them out.
pub type Granted = SmallVec<[(Resource, u64); 4]>;

/// What an event brought about for a waiting owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request is granted: the owner now holds these amounts more.
    Granted(OwnerId, Granted),
    /// The request is refused for good.
    Refused(OwnerId, Refusal),
}

/// Why a waiting request is refused for good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A limit was lowered and it no longer fits.
    NeverFits(NeverFits),
    /// A device that it needs was lost.
    Lost(Lost),
    /// The ledger was closed.
    Closed,
    /// A residency that the job needs could not be loaded.
    LoadFailed {
        /// The residency.
        residency: Arc<str>,
        /// Why, as whoever loaded it says.
        why: Arc<str>,
    },
    /// The job that it is a part of has ended.
    ParentEnded,
}

/// A free-standing reservation, as it is declared.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The name, as reports show it.
    pub name: Arc<str>,
    /// The class.
    pub class: Class,
    /// What is asked for first.
    pub bytes: Bytes,
    /// The most it may be grown to by waiting; `None` where it will not be.
    pub max: Option<Bytes>,
    /// Higher goes first.
    pub priority: i32,
    /// It is not expected to come back while others wait.
    pub retained: bool,
}

/// The state machine. See the [module documentation](self).
///
/// What plain reservations write stands first, together: what another core has written is fetched by the cache line.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct LedgerState {
    next_age: u64,
    /// How many owners there ever were.
    born: u64,
    quick: Quick,
    bypass: u32,
    /// Something was retained that may keep a waiting admission from ever being served.
    recheck: bool,
    closed: bool,
    /// Nothing new is admitted for now.
    paused: bool,
    owners: Owners,
    line: Line,
    accounts: Accounts,
    classes: Vec<Counted>,
    in_flight: InFlight,
    /// All that wait are on the queues, or all are in the line.
    queues: Queues,
    /// Derived from the owners.
    book: Book,
    /// How many free-standing reservations are declared as retained.
    retained_owners: usize,
    /// A job in flight has changed its plan with a grant, and may claim less of something.
    changed_plan: bool,
    /// How often a job ended with more still held than its profile says that it leaves behind.
    outlived: u64,
    /// How often a reservation was grown beyond what its owner had declared.
    overdrawn: u64,
    /// How often a job was admitted alone, above a limit.
    forced: u64,
    /// The jobs that were admitted so, until they are looked at after their end.
    alone: Vec<OwnerId>,
    /// How often a stage was to be run again.
    retried: u64,
    /// How often a job began again.
    restarted: u64,
    residencies: Residencies,
    /// Derived from profiles and accounts.
    layouts: Layouts,
    record: Record,
}

/// What there was of a class or of slots. The totals stand first, on one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Counted {
    totals: ClassTotals,
    resource: Resource,
}

impl LedgerState {
    /// A ledger with these limits, of which nothing is held.
    pub fn new(budget: &Budget) -> LedgerState {
        LedgerState {
            accounts: Accounts::new(budget),
            owners: Owners::default(),
            book: Book::default(),
            layouts: Layouts::default(),
            quick: Quick::default(),
            retained_owners: 0,
            in_flight: InFlight::default(),
            queues: Queues::default(),
            line: Line::default(),
            classes: Vec::new(),
            bypass: budget.bypass,
            next_age: 0,
            born: 0,
            changed_plan: false,
            recheck: false,
            closed: false,
            paused: false,
            outlived: 0,
            overdrawn: 0,
            forced: 0,
            alone: Vec::new(),
            retried: 0,
            restarted: 0,
            residencies: Residencies::default(),
            record: Record::default(),
        }
    }

    /// Opens a child account with limits of its own.
    pub fn open_child(&mut self, parent: AccountId, name: Arc<str>, budget: &Budget) -> AccountId {
        match self.idle_child(parent).filter(|_| budget.urgent.is_empty()) {
            Some(account) => {
                self.accounts.open_again(account, name, budget);
                account
            }
            None => self.accounts.open(Some(parent), name, budget),
        }
    }

    /// Takes a job on. It holds nothing and is in nobody's way until it asks for its first stage. A part is charged to the
    /// account of its parent.
    pub fn submit(&mut self, account: AccountId, spec: JobSpec) -> Result<OwnerId, SubmitError> {
        if (self.closed || self.accounts.refuses(account)) && spec.parent.is_none() {
            return Err(SubmitError::Closed { job: spec.name });
        }
        let parent = match spec.parent.map(|parent| self.living_parent(parent)) {
            Some(None) => return Err(SubmitError::NoParent { job: spec.name }),
            parent => parent.flatten(),
        };
        let account = parent.map_or(account, |parent| self.owners[parent.0].account);
        let plans = self.plans_of(account, &spec)?;
        let Plan { claims, leaves, needs, .. } = plans.current();
        let (claim, leaves, needs) = (claims[0].clone(), leaves.clone(), needs.clone());
        let (again, next, restarts) = (Again::default(), 0, spec.restarts);
        let alone = Alone { may: spec.alone_if_oversize && parent.is_none(), ..Alone::default() };
        let declared = Declared::Job { plans, running: None, next, ending: false, restarts, again, alone };
        let mut owner =
            Owner { claim, leaves, needs, ..Owner::new(spec.name.clone(), account, spec.priority, declared) };
        if let Some(parent) = parent {
            self.check_part(parent, &mut owner, &spec)?;
        } else if let Some(error) = self.never_fits(&owner)
            && !mutant!("oversize-waits")
        {
            return Err(SubmitError::NeverFits(error));
        }
        let id = self.insert(owner);
        self.add_needs(id);
        match parent {
            Some(parent) => self.owners[parent.0].family.parts.push(id),
            None => self.adopt_nominal_plan(id),
        }
        self.note(id, What::Submitted);
        Ok(id)
    }

    /// Declares a free-standing reservation and asks for its first bytes: an admission.
    pub fn open(
        &mut self,
        now: u64,
        account: AccountId,
        standing: Standing,
        out: &mut Vec<Outcome>,
    ) -> Result<OwnerId, ReserveError> {
        let Standing { name, class, bytes, max, priority, retained } = standing;
        if self.closed || self.accounts.refuses(account) {
            return Err(ReserveError::Closed { who: name });
        }
        if let Some(max) = max.filter(|max| *max < bytes) {
            return Err(ReserveError::AboveMax { who: name, class, requested: bytes, max });
        }
        if let Some(lost) = self.lost_class(&name, class) {
            return Err(ReserveError::Lost(lost));
        }
        let mut claim = Amounts::default();
        if let Err(kind) = self.accounts.add(account, class.into(), max.unwrap_or(bytes).0, &mut claim) {
            return Err(ReserveError::Unbudgeted { who: name, place: self.root_place(kind) });
        }
        let leaves = if retained { claim.clone() } else { Amounts::default() };
        let base = if max.is_some() { claim.clone() } else { Amounts::default() };
        let declared = Declared::Standing { class, max: max.map(|max| max.0), base, retained };
        let owner = Owner { claim, leaves, ..Owner::new(name, account, priority, declared) };
        if let Some(error) = self.never_fits(&owner)
            && !mutant!("oversize-waits")
        {
            return Err(ReserveError::NeverFits(error));
        }
        self.retained_owners += usize::from(retained);
        let id = self.insert(owner);
        self.enqueue(now, id, Want::More(class, bytes.0));
        self.settle_request(id, out);
        Ok(id)
    }

    /// Asks for what a stage needs. Entering the first one is the job's admission; later ones are growth.
    pub fn enter(&mut self, now: u64, id: OwnerId, stage: usize, out: &mut Vec<Outcome>) -> Result<(), EnterError> {
        let owner = &self.owners[id.0];
        let job = owner.name.clone();
        let Declared::Job { plans, running, next, .. } = &owner.declared else {
            panic!("a reservation has no stages to enter")
        };
        if let Some(stage) = *running {
            return Err(EnterError::StillInStage { job, stage });
        }
        let stages = plans.profile().stages().len();
        if stage < *next || stage >= stages {
            return Err(EnterError::NoSuchStage { job, stage, next: *next, stages });
        }
        assert!(owner.waiting.is_none(), "a job waits for one stage at a time");
        if let Some(lost) = self.lost_to(id, stage) {
            return Err(EnterError::Lost(lost));
        }
        let owner = &self.owners[id.0];
        if owner.in_flight() {
            // What it kept beyond its profile may have eaten up the room of classes that come later.
            let needed = match owner.needed(stage) {
                Some(needed) => needed.clone(),
                None => {
                    let (account, mut needed) = (owner.account, owner.held.clone());
                    for (resource, missing) in owner.missing(Want::Stage(stage)) {
                        self.accounts
                            .add(account, resource, missing, &mut needed)
                            .expect("charged before, at submission");
                    }
                    needed
                }
            };
            let owner = &self.owners[id.0];
            if let Some((component, needed)) =
                needed.iter().find(|&(component, needed)| needed > owner.claim.of(component))
            {
                let claim = owner.claim.of(component);
                let Declared::Job { plans, .. } = &owner.declared else { unreachable!("checked above") };
                let stage = plans.profile().stages()[stage].name;
                return Err(EnterError::BeyondClaim { job, stage, place: self.place(component), needed, claim });
            }
            self.check_parts_beside(id, stage, &needed)?;
        } else if owner.family.orphan {
            return Err(EnterError::ParentEnded { job });
        } else if !owner.is_part() {
            if self.closed || self.accounts.refuses(owner.account) {
                return Err(EnterError::Closed { job });
            }
            if let Some(error) = self.never_fits(&self.owners[id.0]) {
                return Err(EnterError::NeverFits(error));
            }
        }
        self.enqueue(now, id, Want::Stage(stage));
        self.answer_calls(id);
        self.settle_request(id, out);
        Ok(())
    }

    /// Asks for more bytes of a free-standing reservation, within its declared maximum.
    pub fn grow(
        &mut self,
        now: u64,
        id: OwnerId,
        class: Class,
        bytes: Bytes,
        out: &mut Vec<Outcome>,
    ) -> Result<(), GrowError> {
        let owner = &self.owners[id.0];
        let who = owner.name.clone();
        let Declared::Standing { class: declared, max, .. } = &owner.declared else {
            return Err(GrowError::CannotWait { who });
        };
        if let Some(lost) = self.lost_class(&who, class) {
            return Err(GrowError::Lost(lost));
        }
        if *declared != class || owner.waiting.is_some() || !owner.in_flight() {
            return Err(GrowError::CannotWait { who });
        }
        let held: u64 = owner.holdings.iter().map(|entry| entry.1).sum();
        let needed = Bytes(held) + bytes;
        let max = Bytes(max.unwrap_or(held));
        if needed > max {
            return Err(GrowError::AboveMax { who, class, needed, max });
        }
        self.enqueue(now, id, Want::More(class, bytes.0));
        self.settle_request(id, out);
        Ok(())
    }

    /// Takes a waiting request back. A job that was not admitted may ask again.
    pub fn withdraw(&mut self, id: OwnerId, out: &mut Vec<Outcome>) {
        self.note(id, What::Withdrawn);
        self.dequeue(id);
        self.leave_before_the_first_stage(id, out);
        self.leave_loads(id);
        self.forget_if_gone(id);
        self.settle(out);
    }

    /// Takes `bytes` more at once, beyond the claim if need be, or leaves everything as it was.
    pub fn try_grow(
        &mut self,
        id: OwnerId,
        class: Class,
        bytes: Bytes,
        out: &mut Vec<Outcome>,
    ) -> Result<(), Shortage> {
        let id = self.payer(id);
        self.lost_now(id, class)?;
        let resource = Resource::Class(class);
        let mut more = Amounts::default();
        let account = self.owners[id.0].account;
        let charged = self.accounts.add(account, resource, bytes.0, &mut more);
        if let Err(kind) = charged {
            return Err(self.unbudgeted(id, kind));
        }
        if !self.fits(&more) {
            return Err(self.shortage_now(id, &more));
        }
        let before = (self.owners[id.0].claim.clone(), self.owners[id.0].leaves.clone());
        self.charge(id, &more);
        self.owners[id.0].hold(resource, bytes.0);
        self.reclaim(id);
        if !self.is_safe() {
            let shortage = self.shortage_now(id, &Amounts::default());
            self.discharge(id, &more);
            let owner = &mut self.owners[id.0];
            owner.unhold(resource, bytes.0);
            (owner.claim, owner.leaves) = before;
            return Err(shortage);
        }
        self.count_in(id, resource, bytes.0);
        self.take_place_anew(id);
        let declared = &before.0;
        if self.owners[id.0].held.iter().any(|(component, held)| held > declared.of(component)) {
            self.overdrawn += 1;
            self.note(id, What::Overdrawn { class, bytes });
        }
        self.account_retained();
        // Of what is retained now, others may have waited for some.
        if self.recheck {
            self.settle(out);
        }
        Ok(())
    }

    /// Moves bytes from one class to another at once, or leaves everything as it was.
    pub fn convert(
        &mut self,
        id: OwnerId,
        from: Class,
        to: Class,
        bytes: Bytes,
        out: &mut Vec<Outcome>,
    ) -> Result<(), Shortage> {
        let id = self.payer(id);
        self.lost_now(id, from)?;
        self.lost_now(id, to)?;
        let account = self.owners[id.0].account;
        if self.owners[id.0].residency.is_some() {
            // A residency is known by its class.
            return Err(Shortage { who: self.owners[id.0].name.clone(), reason: super::error::Reason::Resident });
        }
        let (mut less, mut more) = (Amounts::default(), Amounts::default());
        self.accounts.add(account, from.into(), bytes.0, &mut less).expect("what is held was charged");
        if let Err(kind) = self.accounts.add(account, to.into(), bytes.0, &mut more) {
            return Err(self.unbudgeted(id, kind));
        }
        if less != more {
            let before = (self.owners[id.0].claim.clone(), self.owners[id.0].leaves.clone());
            self.discharge(id, &less);
            let fits = self.fits(&more);
            if fits {
                self.charge(id, &more);
                self.claim_after_move(id);
            }
            if !fits || !self.is_safe() {
                let none = Amounts::default();
                let shortage = self.shortage_now(id, if fits { &none } else { &more });
                if fits {
                    self.discharge(id, &more);
                }
                self.charge(id, &less);
                (self.owners[id.0].claim, self.owners[id.0].leaves) = before;
                return Err(shortage);
            }
        }
        let owner = &mut self.owners[id.0];
        owner.unhold(from.into(), bytes.0);
        owner.hold(to.into(), bytes.0);
        self.count_out(id, from.into(), bytes.0);
        self.count_in(id, to.into(), bytes.0);
        self.totals(from.into()).count -= 1;
        self.totals(to.into()).count += 1;
        self.account_retained();
        self.take_place_anew(id);
        self.settle(out);
        Ok(())
    }

    /// A reservation was made of bytes that its owner holds: taken from a grant, or split off another one.
    pub fn attach(&mut self, id: OwnerId, class: Class) {
        self.each_answerable(id, |owner| owner.pieces += 1);
        self.totals(class.into()).count += 1;
    }

    /// A reservation was merged into another one of its owner, or put back into a grant.
    pub fn detach(&mut self, id: OwnerId, class: Class) {
        self.each_answerable(id, |owner| owner.pieces -= 1);
        self.totals(class.into()).count -= 1;
    }

    /// Bytes come back. It never fails and never waits.
    pub fn release(&mut self, id: OwnerId, class: Class, bytes: Bytes, out: &mut Vec<Outcome>) {
        self.give_back(self.payer(id), class.into(), bytes.0);
        self.settle(out);
    }

    /// A reservation was dropped, with the bytes it had left.
    pub fn drop_piece(&mut self, id: OwnerId, class: Class, bytes: Bytes, out: &mut Vec<Outcome>) {
        self.give_back(self.payer(id), class.into(), bytes.0);
        self.detach(id, class);
        self.forget_if_gone(id);
        self.settle(out);
    }

    /// The running stage has ended: `unattached` bytes of its grant come back, and the slots that it does not keep.
    pub fn end_stage(&mut self, id: OwnerId, unattached: &[(Class, Bytes)], out: &mut Vec<Outcome>) {
        for &(class, bytes) in unattached {
            self.give_back(id, class.into(), bytes.0);
        }
        let owner = &self.owners[id.0];
        let Declared::Job { plans, running, .. } = &owner.declared else { panic!("a reservation has no stage to end") };
        let stage = running.expect("a stage is running");
        let keep = plans.profile().stages()[stage].keep.clone();
        let is_late = !mutant!("permit-back-at-stage-end");
        self.give_back_slots(id, |slots| if is_late { keep.of(slots) } else { 0 });
        self.note(id, What::StageEnded);
        let Declared::Job { running, next, again, .. } = &mut self.owners[id.0].declared else {
            unreachable!("checked above")
        };
        (*running, *next) = (None, stage + 1);
        again.stays = false;
        self.lower_claim(id);
        self.end_if_done(id, out);
        self.settle(out);
    }

    /// A stage was granted, but whoever asked has gone: everything goes back, and the job stands where it stood before.
    pub fn undo_enter(&mut self, id: OwnerId, stage: usize, granted: &Granted, out: &mut Vec<Outcome>) {
        for &(resource, amount) in granted {
            self.give_back(id, resource, amount);
        }
        self.note(id, What::Withdrawn);
        let owner = &mut self.owners[id.0];
        let Declared::Job { running, next, again, .. } = &mut owner.declared else {
            panic!("a reservation has no stage to undo")
        };
        assert_eq!(running.take(), Some(stage), "the stage that was granted is undone");
        // Before its first stage ends a job holds nothing, and is as good as new without the grant.
        if *next == 0 && !again.stays {
            self.step_back(id, out);
        }
        self.settle(out);
    }

    /// The job has ended, with a result, an error or a panic. What is still out counts as retained until it is dropped.
    /// Where a stage is still running or parts are in flight, the job ends with the last of these; parts that have not been
    /// admitted never will be. What a part still holds is its parent's.
    pub fn end(&mut self, id: OwnerId, out: &mut Vec<Outcome>) {
        self.dequeue(id);
        let Declared::Job { ending, .. } = &mut self.owners[id.0].declared else {
            panic!("a reservation ends when it is dropped")
        };
        *ending = true;
        self.orphan_parts(id, out);
        self.end_if_done(id, out);
        self.settle(out);
    }

    /// Refuses everything that is not in flight, now and from now on: of the whole ledger, or of one child and its own
    /// children. Jobs in flight go on to their end.
    pub fn close(&mut self, account: AccountId, out: &mut Vec<Outcome>) {
        if account != AccountId::ROOT {
            return self.refuse_child(account, out);
        }
        self.closed = true;
        self.note_all(What::Closed);
        self.dissolve_line();
        for id in self.queues.admissions() {
            self.refuse(id, Refusal::Closed, out);
        }
        self.evict_all_unwanted();
        self.settle(out);
    }

    /// Whether nothing is in flight or waiting, and nothing is held but by retained reservations.
    ///
    /// Residencies are held for the next job that needs them: the ledger is quiet with them, but not while one of them is
    /// being loaded or evicted.
    pub fn is_quiet(&self) -> bool {
        let is_quiet = |owner: &Owner| {
            owner.waiting.is_none()
                && match owner.declared {
                    Declared::Standing { retained, .. } => retained,
                    Declared::Job { .. } => owner.phase == Phase::Fresh,
                }
        };
        !self.residencies.is_busy() && self.owners.iter().all(|(_, owner)| is_quiet(owner))
    }
}
