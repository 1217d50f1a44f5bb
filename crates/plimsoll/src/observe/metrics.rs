//! The event stream as gauges and counters of the `metrics` crate.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

use super::{Event, Observer, What};
use crate::Resource;

/// Keeps gauges and counters, in the recorder that is installed when an event comes.
///
/// | name | kind | labels | |
/// |---|---|---|---|
/// | `plimsoll_held_bytes` | gauge | `class`, `space` | bytes held now |
/// | `plimsoll_bytes_in`, `plimsoll_bytes_out` | counter | `class`, `space` | all that ever came, and went |
/// | `plimsoll_held_slots` | gauge | `slots` | slots held now |
/// | `plimsoll_limit_bytes` | gauge | `space` | a limit that was set at run time |
/// | `plimsoll_limit_slots` | gauge | `slots` | a number of slots that was set at run time |
/// | `plimsoll_retired_bytes` | counter | `space` | bytes that were lost with their device |
/// | `plimsoll_forced` | counter | | jobs that were admitted alone, above a limit |
/// | `plimsoll_overdrawn` | counter | `class`, `space` | reservations that were grown beyond what was declared |
/// | `plimsoll_outlived` | counter | | jobs that ended with more still held than they had declared to leave behind |
/// | `plimsoll_reaping_bytes` | gauge | `space` | bytes handed to the reaper and not gone yet |
/// | `plimsoll_reaped`, `plimsoll_reap_panics` | counter | `space` | buffers that the reaper has freed, and those that panicked |
/// | `plimsoll_reap_seconds` | histogram | `space` | how long each took |
/// | `plimsoll_waiting` | gauge | | requests made and not yet answered |
/// | `plimsoll_stages_retried`, `plimsoll_jobs_restarted` | counter | | what was to be run again |
/// | `plimsoll_granted`, `plimsoll_refused`, `plimsoll_withdrawn` | counter | | how requests ended |
///
/// Observe a ledger from its beginning: the gauge of what waits counts from when the observer came.
#[derive(Debug)]
pub struct Metrics(());

impl Metrics {
    /// Describes the metrics to the recorder that is installed.
    #[expect(clippy::new_without_default, reason = "it does something: the recorder should be installed before")]
    pub fn new() -> Metrics {
        describe_gauge!("plimsoll_held_bytes", Unit::Bytes, "bytes held now");
        describe_counter!("plimsoll_bytes_in", Unit::Bytes, "all bytes that ever came");
        describe_counter!("plimsoll_bytes_out", Unit::Bytes, "all bytes that ever went");
        describe_gauge!("plimsoll_held_slots", Unit::Count, "slots held now");
        describe_gauge!("plimsoll_limit_bytes", Unit::Bytes, "a limit that was set at run time");
        describe_gauge!("plimsoll_limit_slots", Unit::Count, "a number of slots that was set at run time");
        describe_counter!("plimsoll_retired_bytes", Unit::Bytes, "bytes that were lost with their device");
        describe_counter!("plimsoll_forced", Unit::Count, "jobs that were admitted alone, above a limit");
        describe_counter!("plimsoll_overdrawn", Unit::Count, "reservations that were grown beyond what was declared");
        describe_counter!("plimsoll_outlived", Unit::Count, "jobs that ended with more held than they had declared");
        describe_gauge!("plimsoll_reaping_bytes", Unit::Bytes, "bytes handed to the reaper and not gone yet");
        describe_counter!("plimsoll_reaped", Unit::Count, "buffers that the reaper has freed");
        describe_counter!("plimsoll_reap_panics", Unit::Count, "buffers whose destructor panicked in the reaper");
        describe_histogram!("plimsoll_reap_seconds", Unit::Seconds, "how long the reaper took to free a buffer");
        describe_gauge!("plimsoll_waiting", Unit::Count, "requests made and not yet answered");
        describe_counter!("plimsoll_stages_retried", Unit::Count, "stages that were to be run again");
        describe_counter!("plimsoll_jobs_restarted", Unit::Count, "jobs that began again");
        describe_counter!("plimsoll_granted", Unit::Count, "requests that were granted");
        describe_counter!("plimsoll_refused", Unit::Count, "requests that were refused for good");
        describe_counter!("plimsoll_withdrawn", Unit::Count, "requests that were taken back");
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
                if delta > 0 {
                    counter!("plimsoll_bytes_in", &labels).increment(amount);
                } else {
                    counter!("plimsoll_bytes_out", &labels).increment(amount);
                }
            }
            What::Changed { resource: Resource::Slots(slots), held, .. } => {
                gauge!("plimsoll_held_slots", "slots" => slots.key().to_string()).set(held as f64);
            }
            What::Resized { space, limit } => {
                gauge!("plimsoll_limit_bytes", "space" => space.key().to_string()).set(limit.0 as f64);
            }
            What::ResizedSlots { slots, limit } => {
                gauge!("plimsoll_limit_slots", "slots" => slots.key().to_string()).set(limit as f64);
            }
            What::StageRetried => counter!("plimsoll_stages_retried").increment(1),
            What::Restarted => counter!("plimsoll_jobs_restarted").increment(1),
            What::Retired { space, bytes } => {
                gauge!("plimsoll_limit_bytes", "space" => space.key().to_string()).set(0.0);
                counter!("plimsoll_retired_bytes", "space" => space.key().to_string()).increment(bytes.0);
            }
            What::Overdrawn { class, .. } => {
                let labels = [("class", class.name().to_owned()), ("space", class.space().key().to_string())];
                counter!("plimsoll_overdrawn", &labels).increment(1);
            }
            What::Outlived => counter!("plimsoll_outlived").increment(1),
            What::Reaping { space, bytes } => {
                gauge!("plimsoll_reaping_bytes", "space" => space.key().to_string()).increment(bytes.0 as f64);
            }
            What::Reaped { space, bytes, nanos, panicked } => {
                let labels = [("space", space.key().to_string())];
                gauge!("plimsoll_reaping_bytes", &labels).decrement(bytes.0 as f64);
                counter!("plimsoll_reaped", &labels).increment(1);
                counter!("plimsoll_reap_panics", &labels).increment(u64::from(panicked));
                histogram!("plimsoll_reap_seconds", &labels).record(nanos as f64 / 1e9);
            }
            What::Forced => counter!("plimsoll_forced").increment(1),
            What::Asked => gauge!("plimsoll_waiting").increment(1),
            What::Granted => answered("plimsoll_granted"),
            What::Refused => answered("plimsoll_refused"),
            What::Withdrawn => answered("plimsoll_withdrawn"),
            _ => {}
        }
    }
}

fn answered(how: &'static str) {
    gauge!("plimsoll_waiting").decrement(1);
    counter!(how).increment(1);
}
