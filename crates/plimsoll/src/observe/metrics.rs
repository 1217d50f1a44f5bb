//! The event stream as gauges and counters of the `metrics` crate.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::{Event, Observer, What};
use crate::Resource;

/// Keeps gauges and counters, in the recorder that is installed when an event comes.
///
/// | name | kind | labels | |
/// |---|---|---|---|
/// | `plimsoll_held_bytes` | gauge | `class`, `space` | bytes held now |
/// | `plimsoll_in_bytes_total`, `plimsoll_out_bytes_total` | counter | `class`, `space` | all that ever came, and went |
/// | `plimsoll_held_slots` | gauge | `slots` | slots held now |
/// | `plimsoll_limit_bytes` | gauge | `space` | a limit that was set at run time |
/// | `plimsoll_limit_slots` | gauge | `slots` | a number of slots that was set at run time |
/// | `plimsoll_retired_bytes_total` | counter | `space` | bytes that were lost with their device |
/// | `plimsoll_forced_total` | counter | | jobs that were admitted alone, above a limit |
/// | `plimsoll_overdrawn_total` | counter | `class`, `space` | reservations that were grown beyond what was declared |
/// | `plimsoll_outlived_total` | counter | | jobs that ended with more still held than they had declared to leave behind |
/// | `plimsoll_reaping_bytes` | gauge | `space` | bytes handed to the reaper and not gone yet |
/// | `plimsoll_reaped_total`, `plimsoll_reap_panics_total` | counter | `space` | buffers that the reaper has freed, and those that panicked |
/// | `plimsoll_reap_seconds` | histogram | `space` | how long each took |
/// | `plimsoll_waiting` | gauge | | requests made and not yet answered |
/// | `plimsoll_stages_retried_total`, `plimsoll_jobs_restarted_total` | counter | | what was to be run again |
/// | `plimsoll_granted_total`, `plimsoll_refused_total`, `plimsoll_withdrawn_total` | counter | | how requests ended |
///
/// Counters are there from the start, at zero: those of a space when a limit of it is told
/// ([`announce_limits`](crate::Ledger::announce_limits)), those of a class when it is first held.
///
/// Observe a ledger from its beginning: the gauge of what waits counts from when the observer came.
#[derive(Debug)]
pub struct Metrics(());

impl Metrics {
    /// Describes the metrics to the recorder that is installed.
    #[expect(clippy::new_without_default, reason = "it does something: the recorder should be installed before")]
    pub fn new() -> Metrics {
        describe_gauge!("plimsoll_held_bytes", Unit::Bytes, "bytes held now");
        describe_counter!("plimsoll_in_bytes_total", Unit::Bytes, "all bytes that ever came");
        describe_counter!("plimsoll_out_bytes_total", Unit::Bytes, "all bytes that ever went");
        describe_gauge!("plimsoll_held_slots", Unit::Count, "slots held now");
        describe_gauge!("plimsoll_limit_bytes", Unit::Bytes, "a limit that was set at run time");
        describe_gauge!("plimsoll_limit_slots", Unit::Count, "a number of slots that was set at run time");
        describe_counter!("plimsoll_retired_bytes_total", Unit::Bytes, "bytes that were lost with their device");
        describe_counter!("plimsoll_forced_total", Unit::Count, "jobs that were admitted alone, above a limit");
        describe_counter!(
            "plimsoll_overdrawn_total",
            Unit::Count,
            "reservations that were grown beyond what was declared"
        );
        describe_counter!(
            "plimsoll_outlived_total",
            Unit::Count,
            "jobs that ended with more held than they had declared"
        );
        describe_gauge!("plimsoll_reaping_bytes", Unit::Bytes, "bytes handed to the reaper and not gone yet");
        describe_counter!("plimsoll_reaped_total", Unit::Count, "buffers that the reaper has freed");
        describe_counter!("plimsoll_reap_panics_total", Unit::Count, "buffers whose destructor panicked in the reaper");
        describe_histogram!("plimsoll_reap_seconds", Unit::Seconds, "how long the reaper took to free a buffer");
        describe_gauge!("plimsoll_waiting", Unit::Count, "requests made and not yet answered");
        describe_counter!("plimsoll_stages_retried_total", Unit::Count, "stages that were to be run again");
        describe_counter!("plimsoll_jobs_restarted_total", Unit::Count, "jobs that began again");
        describe_counter!("plimsoll_granted_total", Unit::Count, "requests that were granted");
        describe_counter!("plimsoll_refused_total", Unit::Count, "requests that were refused for good");
        describe_counter!("plimsoll_withdrawn_total", Unit::Count, "requests that were taken back");
        // There from the start, at zero: a counter that appears with its first event has never risen, and what looks for a rise would
        // miss it. Those with labels are there when a limit of their space is told, or when their class is first held.
        for name in [
            "plimsoll_forced_total",
            "plimsoll_outlived_total",
            "plimsoll_stages_retried_total",
            "plimsoll_jobs_restarted_total",
            "plimsoll_granted_total",
            "plimsoll_refused_total",
            "plimsoll_withdrawn_total",
        ] {
            counter!(name).increment(0);
        }
        gauge!("plimsoll_waiting").increment(0);
        Metrics(())
    }
}

impl Observer for Metrics {
    fn event(&self, event: &Event) {
        match event.what {
            What::Changed { resource: Resource::Class(class), delta, held } => {
                let labels = [("class", class.name().to_owned()), ("space", class.space().key().to_string())];
                // Gauges are floating point numbers: exact up to 2^53 bytes, which is 8 PiB.
                gauge!("plimsoll_held_bytes", &labels).set(held as f64);
                let amount = u64::try_from(delta.unsigned_abs()).unwrap_or(u64::MAX);
                if i128::from(held) == delta {
                    counter!("plimsoll_out_bytes_total", &labels).increment(0);
                    counter!("plimsoll_overdrawn_total", &labels).increment(0);
                }
                if delta > 0 {
                    counter!("plimsoll_in_bytes_total", &labels).increment(amount);
                } else {
                    counter!("plimsoll_out_bytes_total", &labels).increment(amount);
                }
            }
            What::Changed { resource: Resource::Slots(slots), held, .. } => {
                gauge!("plimsoll_held_slots", "slots" => slots.key().to_string()).set(held as f64);
            }
            What::Resized { space, limit } => {
                let labels = [("space", space.key().to_string())];
                gauge!("plimsoll_limit_bytes", &labels).set(limit.0 as f64);
                for name in ["plimsoll_retired_bytes_total", "plimsoll_reaped_total", "plimsoll_reap_panics_total"] {
                    counter!(name, &labels).increment(0);
                }
            }
            What::ResizedSlots { slots, limit } => {
                gauge!("plimsoll_limit_slots", "slots" => slots.key().to_string()).set(limit as f64);
            }
            What::StageRetried => counter!("plimsoll_stages_retried_total").increment(1),
            What::Restarted => counter!("plimsoll_jobs_restarted_total").increment(1),
            What::Retired { space, bytes } => {
                gauge!("plimsoll_limit_bytes", "space" => space.key().to_string()).set(0.0);
                counter!("plimsoll_retired_bytes_total", "space" => space.key().to_string()).increment(bytes.0);
            }
            What::Overdrawn { class, .. } => {
                let labels = [("class", class.name().to_owned()), ("space", class.space().key().to_string())];
                counter!("plimsoll_overdrawn_total", &labels).increment(1);
            }
            What::Outlived => counter!("plimsoll_outlived_total").increment(1),
            What::Reaping { space, bytes } => {
                gauge!("plimsoll_reaping_bytes", "space" => space.key().to_string()).increment(bytes.0 as f64);
            }
            What::Reaped { space, bytes, nanos, panicked } => {
                let labels = [("space", space.key().to_string())];
                gauge!("plimsoll_reaping_bytes", &labels).decrement(bytes.0 as f64);
                counter!("plimsoll_reaped_total", &labels).increment(1);
                counter!("plimsoll_reap_panics_total", &labels).increment(u64::from(panicked));
                histogram!("plimsoll_reap_seconds", &labels).record(nanos as f64 / 1e9);
            }
            What::Forced => counter!("plimsoll_forced_total").increment(1),
            What::Asked => gauge!("plimsoll_waiting").increment(1),
            What::Granted => answered("plimsoll_granted_total"),
            What::Refused => answered("plimsoll_refused_total"),
            What::Withdrawn => answered("plimsoll_withdrawn_total"),
            _ => {}
        }
    }
}

fn answered(how: &'static str) {
    gauge!("plimsoll_waiting").decrement(1);
    counter!(how).increment(1);
}
