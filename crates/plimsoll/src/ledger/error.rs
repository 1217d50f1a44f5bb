//! What can go wrong, one type per operation. Each names who asked for how much of what, what was in the way and who
//! held it, and says what to do next.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;

use super::state::{AccountId, Kind};
use crate::{Bytes, Class, ProfileError, Space};

/// One component of the ledger's vector, as reports name it: `host memory`, `threads`, `host memory of "tenant 7"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// What is counted.
    pub kind: Kind,
    /// The account whose limit it is.
    pub account: AccountId,
    /// The child's name; `None` for the root.
    pub child: Option<Arc<str>>,
    /// It is the urgent reserve.
    pub urgent: bool,
}

impl Place {
    /// An amount of what this place counts: `1.50 GiB of host memory`, `2 threads`.
    pub(super) fn amount(&self, amount: u64) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.kind {
            Kind::Space(_) => write!(f, "{} of {self}", Bytes(amount)),
            Kind::Slots(_) => write!(f, "{amount} {self}"),
        })
    }

    /// The bare number: `1.50 GiB`, `2`.
    pub(super) fn number(&self, amount: u64) -> impl fmt::Display {
        fmt::from_fn(move |f| match self.kind {
            Kind::Space(_) => write!(f, "{}", Bytes(amount)),
            Kind::Slots(_) => write!(f, "{amount}"),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Space(space) => write!(f, "{space}")?,
            Kind::Slots(slots) => write!(f, "{slots}")?,
        }
        if self.urgent {
            write!(f, " (urgent reserve)")?;
        }
        match &self.child {
            Some(child) => write!(f, " of {child:?}"),
            None => Ok(()),
        }
    }
}

/// A claim that no amount of waiting can serve.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{who:?} needs {}{} but the limit is {}{}; raise it to at least {}, or make the job smaller",
    place.amount(*claim),
    fmt::from_fn(|f| stage.map_or(Ok(()), |stage| write!(f, " in stage {stage}"))),
    place.number(*limit),
    fmt::from_fn(|f| if *retained == 0 { Ok(()) } else { write!(f, ", of which {} are retained", place.number(*retained)) }),
    place.number(claim.saturating_add(*retained))
)]
pub struct NeverFits {
    /// The job or reservation.
    pub who: Arc<str>,
    /// The first stage that needs so much, for a job.
    pub stage: Option<&'static str>,
    /// The component that is too small.
    pub place: Place,
    /// The most that is needed of it.
    pub claim: u64,
    /// Its limit.
    pub limit: u64,
    /// The part of the limit that retained reservations hold.
    pub retained: u64,
}

/// A request for what was lost with its device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{who:?} needs {place}{}, which was lost with its device; use another device",
    fmt::from_fn(|f| stage.map_or(Ok(()), |stage| write!(f, " in stage {stage}"))),
)]
pub struct Lost {
    /// The job or reservation.
    pub who: Arc<str>,
    /// The first stage that needs it, for a job.
    pub stage: Option<&'static str>,
    /// What was lost.
    pub place: Place,
}

/// Somebody who holds some of what a request is short of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The job's or reservation's name.
    pub name: Arc<str>,
    /// How much of it is held.
    pub held: u64,
}

/// A job in flight that could no longer be sure to finish if a request were served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    /// Its name. It may be the one that asks, whose first stage fits and whose later ones might not.
    pub name: Arc<str>,
    /// What there would be too little of.
    pub place: Place,
    /// What it may still need of it, beyond what it holds then.
    pub needed: u64,
    /// What would be left of it, when everybody who could finish has.
    pub left: u64,
    /// Who else holds most of it, largest first.
    pub holders: Vec<Holder>,
}

/// Why a request is not served now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is less free than it needs.
    Short {
        /// What there is too little of.
        place: Place,
        /// What the request needs of it, beyond what is held already.
        needed: u64,
        /// What is free of it.
        free: u64,
        /// Its limit.
        limit: u64,
        /// Who holds most of it, largest first.
        holders: Vec<Holder>,
    },
    /// It would fit, but jobs in flight could then no longer be sure to finish.
    Unsafe {
        /// One of these jobs; `None` where it is what ended jobs are to leave behind that there would be no room for.
        stuck: Option<Stuck>,
    },
    /// It would fit, but would pass a request that has been passed as often as the budget allows.
    Order {
        /// That request, the oldest of those.
        behind: Arc<str>,
    },
    /// A job that is larger than a limit runs alone, and nobody is admitted beside it.
    Alone {
        /// That job.
        job: Arc<str>,
    },
    /// It is larger than a limit, and waits until it can run alone.
    ToRunAlone {
        /// Some of those that have to end before, the oldest.
        behind: Vec<Arc<str>>,
    },
    /// It waits for its turn: nothing is in its way, and the next event serves it.
    Queued,
    /// Admission is paused from outside.
    Paused,
    /// It waits for a residency that it needs.
    Loading {
        /// The residency.
        residency: Arc<str>,
        /// The job that loads it, or that this falls to; `None` where what is left of an attempt that was given up, or of
        /// an eviction, is not gone yet.
        loader: Option<Arc<str>>,
    },
    /// The bytes are a residency's, and stay in its class.
    Resident,
    /// The budget names no limit for it.
    Unbudgeted {
        /// What has no limit.
        place: Place,
    },
    /// What it needs was lost with its device.
    Lost {
        /// What was lost.
        place: Place,
    },
}

/// A request that is not served now, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The job or reservation that asked.
    pub who: Arc<str>,
    /// Why it is not served.
    pub reason: Reason,
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ", self.who)?;
        match &self.reason {
            Reason::Short { place, needed, free, limit, holders } => {
                write!(f, "needs {}, but of {} only ", place.amount(*needed), place.number(*limit))?;
                write!(f, "{} are free", place.number(*free))?;
                held_by(f, place, holders)
            }
            Reason::Unsafe { stuck: None } => write!(f, "fits, but would keep jobs in flight from finishing"),
            Reason::Unsafe { stuck: Some(Stuck { name, place, needed, left, holders }) } => {
                write!(f, "fits, but {name:?} may then still need {}, and ", place.amount(*needed))?;
                write!(f, "{} would be left for it to finish", place.number(*left))?;
                held_by(f, place, holders)
            }
            Reason::Order { behind } => {
                write!(f, "fits, but would pass {behind:?}, which was passed as often as the budget allows")
            }
            Reason::ToRunAlone { behind } => {
                write!(f, "is larger than a limit, and runs alone when these have ended:")?;
                names(f, behind)
            }
            Reason::Alone { job } => write!(f, "is not admitted beside {job:?}, which runs alone"),
            Reason::Queued => write!(f, "waits for its turn"),
            Reason::Paused => write!(f, "is not admitted while admission is paused; resume it"),
            Reason::Loading { residency, loader: Some(loader) } => {
                write!(f, "waits for {residency:?}, which {loader:?} loads")
            }
            Reason::Loading { residency, loader: None } => {
                write!(f, "waits for {residency:?}, of which the last one is not gone yet")
            }
            Reason::Unbudgeted { place } => {
                write!(f, "needs {place}, which the budget does not name; give it a limit in the Budget")
            }
            Reason::Resident => write!(f, "pays for a residency, whose bytes stay in their class"),
            Reason::Lost { place } => write!(f, "needs {place}, which was lost with its device"),
        }
    }
}

/// ` "first", "second"`
pub(super) fn names(f: &mut fmt::Formatter<'_>, names: &[Arc<str>]) -> fmt::Result {
    names.iter().enumerate().try_for_each(|(at, name)| write!(f, "{}{name:?}", if at == 0 { " " } else { ", " }))
}

fn held_by(f: &mut fmt::Formatter<'_>, place: &Place, holders: &[Holder]) -> fmt::Result {
    for (at, holder) in holders.iter().enumerate() {
        let lead = if at == 0 { "; held by" } else { "," };
        write!(f, "{lead} {:?} ({})", holder.name, place.number(holder.held))?;
    }
    Ok(())
}

/// A free-standing reservation was not made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReserveError {
    /// The budget names no limit for this.
    #[error("{who:?} asks for {place}, which the budget does not name; give it a limit in the Budget")]
    Unbudgeted {
        /// The reservation.
        who: Arc<str>,
        /// What has no limit.
        place: Place,
    },
    /// It asks for more than it declared as its maximum.
    #[error(
        "{who:?} asks for {requested} of {class} but declared a maximum of {max}; declare what it may grow to with .max()"
    )]
    AboveMax {
        /// The reservation.
        who: Arc<str>,
        /// The class.
        class: Class,
        /// What was asked for.
        requested: Bytes,
        /// The declared maximum.
        max: Bytes,
    },
    /// It is more than the limit: waiting would never end.
    #[error(transparent)]
    NeverFits(NeverFits),
    /// It asks for memory of a device that was lost.
    #[error(transparent)]
    Lost(Lost),
    /// `try_now` found that it would have to wait.
    #[error("{0}; wait for it with .wait() or .await, or release something first")]
    WouldWait(Box<Shortage>),
    /// The time-out passed first.
    #[error("gave up after {after:?}: {shortage}; wait longer, release something or raise the budget")]
    TimedOut {
        /// The time-out.
        after: Duration,
        /// What it was waiting for at the end.
        shortage: Box<Shortage>,
    },
    /// The ledger was closed.
    #[error("{who:?} was refused because the ledger is closed; nothing new is admitted")]
    Closed {
        /// The reservation.
        who: Arc<str>,
    },
}

/// A job was not taken on.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Its profile contradicts itself.
    #[error("job {job:?}: {source}")]
    Profile {
        /// The job.
        job: Arc<str>,
        /// The contradiction.
        source: ProfileError,
    },
    /// The budget names no limit for this.
    #[error("job {job:?} asks for {place}, which the budget does not name; give it a limit in the Budget")]
    Unbudgeted {
        /// The job.
        job: Arc<str>,
        /// What has no limit.
        place: Place,
    },
    /// Its claim is more than the limit: it could never be admitted.
    #[error("job {0}")]
    NeverFits(NeverFits),
    /// One of its stages needs a device that was lost.
    #[error("job {0}")]
    Lost(Lost),
    /// The ledger was closed.
    #[error("job {job:?} was refused because the ledger is closed; nothing new is admitted")]
    Closed {
        /// The job.
        job: Arc<str>,
    },
    /// An alternative has other stages than the job's first profile.
    #[error("job {job:?}: alternative {choice} has other stages than the first profile; give both the same, in order")]
    OtherStages {
        /// The job.
        job: Arc<str>,
        /// The alternative: 1 is the first one after the profile that is preferred.
        choice: usize,
    },
    /// The job that it is to be a part of is not in flight.
    #[error(
        "job {job:?} is to be a part of a job that is not in flight; \
         submit parts after their parent's first stage was granted and before the parent ends"
    )]
    NoParent {
        /// The part.
        job: Arc<str>,
    },
    /// The job that it is to be a part of belongs to another ledger.
    #[error("job {job:?} is to be a part of a job of another ledger; submit it to the ledger of its parent")]
    OtherLedger {
        /// The part.
        job: Arc<str>,
    },
    /// It needs a residency that its parent does not need. While the parent is in flight, everything that it needs is kept;
    /// for anything else its parts might wait for ever.
    #[error("job {job:?} needs {residency:?}, but {parent:?} does not; declare it with JobSpec::needs there too")]
    NotParentsNeed {
        /// The part.
        job: Arc<str>,
        /// The job that it is to be a part of.
        parent: Arc<str>,
        /// The residency.
        residency: Arc<str>,
    },
    /// Its parent has not declared so much for its parts: with the parts that have not ended yet, they might wait for
    /// each other for ever.
    #[error(
        "job {job:?} and the other parts of {parent:?} need {}, beyond their parent's claim of {}; \
         declare all of them with Profile::parts",
        place.amount(*needed), place.number(*claim)
    )]
    BeyondParent {
        /// The part.
        job: Arc<str>,
        /// The job that it is to be a part of.
        parent: Arc<str>,
        /// The component.
        place: Place,
        /// What the parent holds, what its other parts leave to it, and what this one needs.
        needed: u64,
        /// What the parent claimed.
        claim: u64,
    },
}

/// A job may not enter a stage.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EnterError {
    /// The profile has no such stage, or it has passed.
    #[error("job {job:?} has {stages} stages and stands before stage {next}; it cannot enter stage {stage}")]
    NoSuchStage {
        /// The job.
        job: Arc<str>,
        /// The stage asked for.
        stage: usize,
        /// The first stage that can be entered.
        next: usize,
        /// The number of stages.
        stages: usize,
    },
    /// The grant of the stage before is still alive.
    #[error("job {job:?} is still in stage {stage}; drop that stage's grant before it enters the next")]
    StillInStage {
        /// The job.
        job: Arc<str>,
        /// The stage that it is in.
        stage: usize,
    },
    /// It holds more than its profile says, so that this stage would take it beyond its claim.
    #[error(
        "job {job:?} would hold {} in stage {stage}, beyond its claim of {}; \
         it kept more from earlier stages than its profile says",
        place.amount(*needed), place.number(*claim)
    )]
    BeyondClaim {
        /// The job.
        job: Arc<str>,
        /// The stage's name.
        stage: &'static str,
        /// The component.
        place: Place,
        /// What it would hold.
        needed: u64,
        /// What it claimed.
        claim: u64,
    },
    /// Parts of it have not ended, and beside what this stage holds there would be no room for them within its claim.
    #[error(
        "job {job:?} would hold {} in stage {stage} beside its unfinished parts, beyond its claim of {}; \
         wait for its parts first, or make room for them in this stage with Profile::parts",
        place.amount(*needed), place.number(*claim)
    )]
    PartsUnfinished {
        /// The job.
        job: Arc<str>,
        /// The stage's name.
        stage: &'static str,
        /// The component.
        place: Place,
        /// What it and its parts might hold.
        needed: u64,
        /// What it claimed.
        claim: u64,
    },
    /// The job that it is a part of has ended.
    #[error("job {job:?} was refused because the job that it is a part of has ended; nobody needs its result")]
    ParentEnded {
        /// The part.
        job: Arc<str>,
    },
    /// A limit was lowered, and the job no longer fits.
    #[error("job {0}")]
    NeverFits(NeverFits),
    /// A device that it needs was lost. A job in flight stays so, and may enter a stage that does without.
    #[error("job {0}")]
    Lost(Lost),
    /// `try_now` found that it would have to wait.
    #[error("job {0}; wait for it with .wait() or .await")]
    WouldWait(Box<Shortage>),
    /// The time-out passed first.
    #[error("gave up after {after:?}: job {shortage}; wait longer or raise the budget")]
    TimedOut {
        /// The time-out.
        after: Duration,
        /// What it was waiting for at the end.
        shortage: Box<Shortage>,
    },
    /// The ledger was closed before the job was admitted.
    #[error("job {job:?} was refused because the ledger is closed; nothing new is admitted")]
    Closed {
        /// The job.
        job: Arc<str>,
    },
    /// A residency that it needs could not be loaded.
    #[error("job {job:?} needs {residency:?}, which could not be loaded: {why}")]
    LoadFailed {
        /// The job.
        job: Arc<str>,
        /// The residency.
        residency: Arc<str>,
        /// Why, as whoever loaded it says.
        why: Arc<str>,
    },
    /// It fell to the job to load what it needs, and it asked for the stage instead.
    #[error("job {job:?} is to load {residency:?} before it enters a stage; take the load with Job::load")]
    NotLoaded {
        /// The job.
        job: Arc<str>,
        /// The residency.
        residency: Arc<str>,
    },
}

/// A job cannot begin again as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RestartError {
    /// The grant of a stage is still alive.
    #[error("job {job:?} is still in stage {stage}; drop that stage's grant before the job begins again")]
    StillInStage {
        /// The job.
        job: Arc<str>,
        /// The stage's name.
        stage: &'static str,
    },
    /// Reservations of it are still out, and it has not declared that it may begin again while they are.
    #[error(
        "job {job:?} has {reservations} reservations out{}; drop them before it begins again, \
         or declare with JobSpec::restarts that it keeps its input",
        fmt::from_fn(|f| held.iter().try_for_each(|(class, bytes)| write!(f, ", {bytes} of {class}")))
    )]
    StillHolds {
        /// The job.
        job: Arc<str>,
        /// How many reservations are out.
        reservations: u32,
        /// What they hold.
        held: Vec<(Class, Bytes)>,
    },
    /// Parts of it have not ended, and it has not declared that it stays in flight when it begins again.
    #[error("job {job:?} has {parts} parts that have not ended; wait for them or drop them before it begins again")]
    PartsUnfinished {
        /// The job.
        job: Arc<str>,
        /// How many there are.
        parts: usize,
    },
}

/// A reservation was not grown.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GrowError {
    /// It would wait beyond what was declared; beyond that there is only `try_grow`.
    #[error(
        "{who:?} would hold {needed} of {class}, beyond its declared maximum of {max}; \
         declare more with .max(), or use try_grow"
    )]
    AboveMax {
        /// The reservation.
        who: Arc<str>,
        /// The class.
        class: Class,
        /// What it would hold.
        needed: Bytes,
        /// The declared maximum.
        max: Bytes,
    },
    /// Growing a job's reservation, or one of which another piece is waiting already, cannot wait.
    #[error("{who:?} cannot wait here; use try_grow, or enter a stage whose peak covers it")]
    CannotWait {
        /// The reservation's owner.
        who: Arc<str>,
    },
    /// It is in the memory of a device that was lost.
    #[error(transparent)]
    Lost(Lost),
    /// It is not served now.
    #[error("{0}; release something first or wait with .grow()")]
    WouldWait(Box<Shortage>),
    /// The time-out passed first.
    #[error("gave up after {after:?}: {shortage}; wait longer, release something or raise the budget")]
    TimedOut {
        /// The time-out.
        after: Duration,
        /// What it was waiting for at the end.
        shortage: Box<Shortage>,
    },
}

/// A stage asks for more of a class than its grant has left.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{job:?} asks for {requested} of {class} in stage {stage} but its grant has {left} left; \
     raise the stage's peak in its profile, or put back what is done with"
)]
pub struct TakeError {
    /// The job.
    pub job: Arc<str>,
    /// The stage's name.
    pub stage: &'static str,
    /// The class.
    pub class: Class,
    /// What was asked for.
    pub requested: Bytes,
    /// What the grant has left of it.
    pub left: Bytes,
}

/// A reservation holds fewer bytes than were asked of it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{requested} of {class} were asked of a reservation of {held}; reserve more first")]
pub struct TooFew {
    /// The class.
    pub class: Class,
    /// What was asked for.
    pub requested: Bytes,
    /// What the reservation holds.
    pub held: Bytes,
}

/// A limit could not be set.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResizeError {
    /// There is no limit that could be changed.
    #[error("the budget does not name {0}; limits can be changed at run time, not added")]
    Unbudgeted(Place),
    /// It was lost with its device.
    #[error("{0} was lost with its device; what is lost has no limit")]
    Lost(Place),
}

/// A device was not retired.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RetireError {
    /// The space is not a device's.
    #[error("{0} is not a device's and cannot be lost with one; name the device's memory")]
    NotADevice(Space),
    /// There is no such device.
    #[error("the budget does not name {0}; nothing was retired")]
    Unbudgeted(Space),
}
