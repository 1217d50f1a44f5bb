//! Explores every state that your jobs, limits and policies can bring `plimsoll`'s ledger into.
#![forbid(unsafe_code)]

mod bypass;
mod event;
mod facts;
mod key;
mod order;
mod report;
mod rules;
mod search;
mod setup;
mod state;
mod trace;
mod view;
mod world;

pub use event::{At, Event};
pub use report::{CheckError, Report, Violation};
pub use rules::Rule;
pub use trace::{Step, Trace};
pub use view::{ActorView, View};
pub use world::{JobKind, ReservationKind, World};
