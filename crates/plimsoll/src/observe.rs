//! The ledger's event stream: everything that changes in it, in order.
//!
//! A ledger without observers records nothing: all that is left of this module then is one test of a flag per change.
//!
//! # Order
//!
//! Events get their sequence number and their time under the ledger's lock, so their order is the order of the changes,
//! and time never runs back. Observers are called outside of the lock, by one thread at a time: whoever made a change
//! while nobody was delivering delivers, its own events and those that others leave meanwhile. So an observer
//!
//! - sees every event once, in order, never two at a time;
//! - may call the ledger (the events that this makes are delivered after it returns);
//! - should be quick, because some thread that uses the ledger is calling it;
//! - has seen all events of a set of threads once these have returned from the ledger, if no other thread uses it.
//!
//! What waits for a slow observer is bounded ([`BACKLOG`]): beyond that events are lost, and the gap in the sequence
//! numbers says so. An observer that panics is not called again.
//!
//! # Formats
//!
//! [`JsonLines`] writes the stream to a file, in the schema that `docs/trace.md` describes. The features `tracing` and
//! `metrics` add observers that speak to those crates.

mod json;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

use std::sync::Arc;

pub(crate) use self::json::quoted;
pub use self::json::{JsonLines, SCHEMA};
#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
use crate::{Bytes, Class, Resource, Slots, Space};

/// How many events may wait for a slow observer before further ones are lost.
pub const BACKLOG: usize = 1 << 16;

/// Is told of every change in a ledger: see [`Ledger::observe`](crate::Ledger::observe).
pub trait Observer: Send + Sync {
    /// Something has changed. See the [module documentation](self) for the order of calls, and what may be done in them.
    fn event(&self, event: &Event);
}

/// One change in a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Rises by one from event to event of a ledger. A gap means that events were lost.
    pub sequence: u64,
    /// When it happened, in nanoseconds since the ledger was made. Never falls from event to event.
    pub time: u64,
    /// Whom it happened to; nobody in particular for what concerns the whole ledger.
    pub subject: Option<Subject>,
    /// What happened.
    pub what: What,
}

/// A job or a free-standing reservation, as events name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Its number. After [`What::Ended`], when it holds nothing any more, the number may be given to another.
    pub number: usize,
    /// Its name.
    pub name: Arc<str>,
    /// It is a job, not a free-standing reservation.
    pub is_job: bool,
    /// The stage that it is in, or waits to enter.
    pub stage: Option<&'static str>,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum What {
    /// A job was taken on.
    Submitted,
    /// A request was made: to enter a stage, or for bytes.
    Asked,
    /// A request was granted. What came with it follows as [`What::Changed`].
    Granted,
    /// A job that is larger than a limit is admitted all the same, alone. [`What::Granted`] follows.
    Forced,
    /// A job was admitted to the load of what it needs: it is in flight from here on, and its request waits for that.
    /// [`What::LoadStarted`] follows for each residency that nobody loads yet.
    Admitted,
    /// A request was taken back: cancelled, or out of time.
    Withdrawn,
    /// A request was refused for good.
    Refused,
    /// A stage has ended.
    StageEnded,
    /// A stage has ended without its having been done, and is to be entered again.
    StageRetried,
    /// A job has gone back to before its first stage.
    Restarted,
    /// A stage of a pipeline begins to run. It was granted before; in between its job waited for a place to run.
    Began {
        /// Where: on a `worker` of the pool, a `carrier`'s thread, or a `runtime`.
        place: &'static str,
    },
    /// A job of a pipeline has its result, or its error. [`What::Ended`] follows, once it is off the ledger's books.
    Finished {
        /// How: with a `result`, or `failed`, `panicked`, `cancelled`, `timed_out`, `shut_down`, `forsaken`, `not_entered`.
        how: &'static str,
        /// Its deadline had passed.
        late: bool,
    },
    /// A job has ended, or the last part of a reservation was returned. A job's buffers may outlive it.
    Ended,
    /// More or less is held of a resource than before.
    Changed {
        /// The resource.
        resource: Resource,
        /// What came (positive) or went (negative): bytes or slots.
        delta: i128,
        /// What all owners together hold of the resource now.
        held: u64,
    },
    /// A reservation was grown beyond what its owner had declared, with `try_`: nobody was promised that this is possible.
    Overdrawn {
        /// The class.
        class: Class,
        /// What it was grown by.
        bytes: Bytes,
    },
    /// A job ends while more is held of it than its profile says that it leaves behind. [`What::Ended`] follows.
    Outlived,
    /// A buffer was handed to the reaper. It stays charged until it is gone.
    Reaping {
        /// The space that it is in.
        space: Space,
        /// Its size.
        bytes: Bytes,
    },
    /// The reaper has freed a buffer.
    Reaped {
        /// The space that it was in.
        space: Space,
        /// Its size.
        bytes: Bytes,
        /// How long that took, in nanoseconds.
        nanos: u64,
        /// Its destructor panicked.
        panicked: bool,
    },
    /// A limit was set.
    Resized {
        /// The space.
        space: Space,
        /// The new limit.
        limit: Bytes,
    },
    /// A number of slots was set.
    ResizedSlots {
        /// The slots.
        slots: Slots,
        /// How many there are to be.
        limit: u64,
    },
    /// A device was lost, and went off the books with all that was held on it. What each owner loses follows as
    /// [`What::Changed`].
    Retired {
        /// The device's memory.
        space: Space,
        /// How many bytes were held there.
        bytes: Bytes,
    },
    /// Nothing new is admitted from now on.
    Closed,
    /// Admission is paused from outside: what is new waits.
    Paused,
    /// It is no longer.
    Resumed,
    /// A residency is to be loaded: its bytes are held from here on.
    LoadStarted,
    /// A residency is there.
    Loaded,
    /// The load of a residency was given up. Another one may follow.
    LoadFailed,
    /// A residency is to go. Its bytes are held until its memory is gone.
    EvictionStarted,
    /// A residency is gone, with all its bytes.
    Evicted,
}

impl What {
    /// The word that traces use.
    pub fn name(&self) -> &'static str {
        match self {
            What::Submitted => "submitted",
            What::Asked => "asked",
            What::Granted => "granted",
            What::Admitted => "admitted",
            What::Withdrawn => "withdrawn",
            What::Refused => "refused",
            What::StageEnded => "stage_ended",
            What::StageRetried => "stage_retried",
            What::Restarted => "restarted",
            What::Began { .. } => "began",
            What::Finished { .. } => "finished",
            What::Ended => "ended",
            What::Changed { .. } => "changed",
            What::Resized { .. } | What::ResizedSlots { .. } => "resized",
            What::Retired { .. } => "retired",
            What::Forced => "forced",
            What::Overdrawn { .. } => "overdrawn",
            What::Outlived => "outlived",
            What::Reaping { .. } => "reaping",
            What::Reaped { .. } => "reaped",
            What::Closed => "closed",
            What::Paused => "paused",
            What::Resumed => "resumed",
            What::LoadStarted => "load_started",
            What::Loaded => "loaded",
            What::LoadFailed => "load_failed",
            What::EvictionStarted => "eviction_started",
            What::Evicted => "evicted",
        }
    }
}
