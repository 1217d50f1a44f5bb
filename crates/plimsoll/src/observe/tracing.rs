//! The event stream as events of the `tracing` crate.

use tracing::{debug, trace};

use super::{Event, Observer, Subject, What};
use crate::Resource;

/// Turns every event into a `tracing` event with the target `plimsoll::ledger`: `TRACE` for what comes and goes, `DEBUG`
/// for requests, stages and limits. Message and fields are those of the JSON lines.
///
/// ```
/// # use std::sync::Arc;
/// # use plimsoll::{Ledger, observe};
/// let ledger = Ledger::unlimited();
/// ledger.observe(Arc::new(observe::Tracing));
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Tracing;

impl Observer for Tracing {
    fn event(&self, event: &Event) {
        const TARGET: &str = "plimsoll::ledger";
        let seq = event.sequence;
        let owner = event.subject.as_ref();
        let job = owner.filter(|owner| owner.is_job).map(|owner| &*owner.name);
        let reservation = owner.filter(|owner| !owner.is_job).map(|owner| &*owner.name);
        let id = owner.map(|owner| owner.number);
        let stage = owner.and_then(|&Subject { stage, .. }| stage);
        match event.what {
            What::Changed { resource, delta, held } => {
                let (class, slots) = match resource {
                    Resource::Class(class) => (Some(class.name()), None),
                    Resource::Slots(slots) => (None, Some(slots.key().to_string())),
                };
                trace!(target: TARGET, seq, job, reservation, id, stage, class, slots, delta, held, "changed");
            }
            What::Resized { space, limit } => debug!(target: TARGET, seq, %space, limit = limit.0, "resized"),
            What::ResizedSlots { slots, limit } => debug!(target: TARGET, seq, %slots, limit, "resized"),
            What::Overdrawn { class, bytes } => {
                let (class, bytes) = (class.name(), bytes.0);
                debug!(target: TARGET, seq, job, reservation, id, stage, class, bytes, "overdrawn");
            }
            What::Reaping { space, bytes } => trace!(target: TARGET, seq, %space, bytes = bytes.0, "reaping"),
            What::Reaped { space, bytes, nanos, panicked } => {
                trace!(target: TARGET, seq, %space, bytes = bytes.0, took_ns = nanos, panicked, "reaped");
            }
            What::Retired { space, bytes } => debug!(target: TARGET, seq, %space, bytes = bytes.0, "retired"),
            ref what => debug!(target: TARGET, seq, job, reservation, id, stage, "{}", what.name()),
        }
    }
}
