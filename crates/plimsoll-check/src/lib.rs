//! Explores every state that your jobs, limits and policies can bring [`plimsoll`]'s ledger into, and shows a shortest way
//! to one that breaks a rule.
//!
//! Who admits jobs by hand finds out in production what the order of events can do: a backlog that no permit bounds, two
//! jobs that wait for each other's bytes. [`World`] says what may come and what may happen to it; [`World::explore`] lets
//! it all happen, in every order, on the state machine that ships in `plimsoll` (not on a model of it).
//!
//! ```
//! use plimsoll::{Budget, Bytes, Class, Demand, Profile, Slots, Space};
//! use plimsoll_check::{At, JobKind, World};
//!
//! const PROVERS: Class = Class::new("provers", Space::HOST);
//! const GPU: Slots = Slots::new("gpu");
//!
//! let held = Demand::new().bytes(PROVERS, Bytes(1));
//! let profile = Profile::new()
//!     .stage("synthesise", held.clone(), held.clone())
//!     .stage("prove", held.slots(GPU, 1), Demand::new());
//! let report = World::new(Budget::new().space(Space::HOST, Bytes(3)).slots(GPU, 1))
//!     .jobs(4, JobKind::new("partition", profile).cancels().retries(1))
//!     .invariant("the backlog is bounded", |view| {
//!         let backlog = view.count("partition", |at| matches!(at, At::Waiting(1)));
//!         if backlog <= 2 { Ok(()) } else { Err(format!("{backlog} partitions wait for the GPU")) }
//!     })
//!     .explore()?;
//! println!("{report}");
//! # assert!(report.states > 300, "{report}");
//! # Ok::<(), plimsoll_check::CheckError>(())
//! ```
//!
//! # What is checked
//!
//! The [rules](Rule) of the ledger, in every reachable state, and your own invariants. The checks keep their own books
//! and use the most naive means: safety is tried over all orders, passing is counted from the wording of the rule. If one
//! of the ledger's own rules breaks, that is a bug in `plimsoll`. If [`Rule::Line`] breaks for what is
//! [really held](JobKind::really), or [`Rule::Progress`] for [results held together](JobKind::holds_results_together),
//! or an [invariant](World::invariant), the world's own policy is at fault.
//!
//! Events are whole: jobs and reservations do with the state machine what the crate's handles do, call for call, and each
//! call is one critical section there. What threads do between them is for loom; [`model`] helps with that.
//!
//! # What is explored
//!
//! Everything that the world allows, for any number of steps; each world is finite, because its actors and what they may
//! do are counted. States that differ only in the names of jobs of one kind, or in ages of the same order, are one state.
//! Deadlines are not explored: the state machine has no clock, and a time-out is a job that
//! [withdraws](JobKind::withdraws).
//!
//! [Residencies](World::residency) are loaded by one of the jobs that [need](JobKind::needs) them, given up, taken over and
//! evicted; the memory of what is to go is gone at any later moment, as are buffers that are [freed later](JobKind::frees_later).
//! When a [device is lost](World::loses), jobs go by another profile or are told; whoever cannot go on gives up. Use counts
//! in the order of uses only, so of two residencies that cost the same, the one that was used last stays.
//!
//! [Parts](JobKind::part_of) come while their parent is in flight, and a stage of it that has room for them goes on until
//! they have ended; a job with [several profiles](JobKind::or) is held against the first by which it could have been served.
//!
//! # Why its own search
//!
//! stateright 0.31 (July 2025) was the alternative. Its symmetry reduction works depth first only, where the first
//! counter-example is not a shortest one, and it tells states apart by a 64-bit hash, where a collision hides a state.
//! Here the search is breadth first over canonical forms that are kept whole, in a few dozen lines and without the
//! dependencies of its web explorer.
#![forbid(unsafe_code)]

mod again;
mod bypass;
mod choice;
mod event;
mod facts;
mod family;
mod key;
mod lost;
pub mod model;
mod moment;
mod order;
mod report;
mod rules;
mod search;
mod setup;
mod shared;
mod state;
mod trace;
mod view;
mod walk;
mod world;

pub use event::{At, Event};
pub use report::{CheckError, Report, Violation};
pub use rules::Rule;
pub use shared::{Residence, ResidencyKind};
pub use trace::{Step, Trace};
pub use view::{ActorView, ResidencyView, View};
pub use world::{JobKind, ReservationKind, World};
