//! A thread that takes samples until it is told to stop.

use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use super::{Reader, Sample, quoted};
use plimsoll::ledger::error::{Place, Reason};
use plimsoll::ledger::snapshot::{Snapshot, Waiter};
use plimsoll::ledger::state::Kind;
use plimsoll::{Ledger, Space};

/// How many of those who have held for longest are told of.
const HOLDERS_TOLD: usize = 8;

/// A thread that takes a sample at its beginning, every period, and at its end, and hands each on with a picture of the ledger.
/// Dropping it ends it.
#[derive(Debug)]
pub struct Sampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Reader>>,
}

impl Sampler {
    /// Starts it. `sink` is called on its thread.
    ///
    /// # Errors
    ///
    /// If there can be no thread.
    pub fn start(
        ledger: &Ledger,
        mut reader: Reader,
        period: Duration,
        mut sink: impl FnMut(Sample, &Snapshot) + Send + 'static,
    ) -> io::Result<Sampler> {
        let ledger = ledger.clone();
        let (stop, stopped) = channel::<()>();
        let body = move || {
            let mut look = || {
                let snapshot = ledger.snapshot();
                sink(with_ledger(reader.sample(snapshot.time), &snapshot), &snapshot);
            };
            let mut next = Instant::now();
            loop {
                look();
                next = (next + period).max(Instant::now());
                if !wait_until(&stopped, next) {
                    break;
                }
            }
            look();
            reader
        };
        let thread = Builder::new().name("plimsoll-sampler".to_owned()).spawn(body)?;
        Ok(Sampler { stop: Some(stop), thread: Some(thread) })
    }

    /// Takes a last sample, ends the thread, and gives the reader back. `None` if the sink panicked.
    pub fn stop(mut self) -> Option<Reader> {
        self.end()
    }

    fn end(&mut self) -> Option<Reader> {
        // The thread sees that the other end is gone.
        drop(self.stop.take());
        self.thread.take()?.join().ok()
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// Waits; false if it is to end.
fn wait_until(stopped: &Receiver<()>, next: Instant) -> bool {
    stopped.recv_timeout(next.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout)
}

/// Adds what the ledger knows of itself.
fn with_ledger(mut sample: Sample, snapshot: &Snapshot) -> Sample {
    sample.ledger_limit = snapshot.space(Space::HOST).map(|usage| usage.limit.0);
    let host = |place: &Place| place.kind == Kind::Space(Space::HOST) || place.kind == Kind::Space(Space::PINNED);
    let short = |waiter: &&Waiter| matches!(&waiter.shortage.reason, Reason::Short { place, .. } if host(place));
    sample.waiting_for_memory = Some(snapshot.waiters.iter().filter(short).count() as u64);
    sample
}

/// Those who have held for longest, as lines of a trace: what they hold, since when, and where in the source they asked.
pub fn holder_lines(snapshot: &Snapshot) -> impl Iterator<Item = String> + '_ {
    snapshot.holders.iter().take(HOLDERS_TOLD).map(move |holder| {
        let (number, is_job) = (holder.owner.index(), holder.stage.is_some());
        let kind = if is_job { "job" } else { "reservation" };
        let bytes: u64 = holder
            .held
            .iter()
            .filter(|(resource, _)| matches!(resource, plimsoll::Resource::Class(_)))
            .map(|(_, amount)| *amount)
            .sum();
        let place = fmt::from_fn(|f| match holder.reserved_at {
            Some(place) => write!(f, r#","at":{}"#, quoted(&place.to_string())),
            None => Ok(()),
        });
        let (time, who, since) = (snapshot.time, quoted(&holder.who), holder.since);
        format!(
            r#"{{"time_ns":{time},"event":"held","{kind}":{who},"id":{number},"bytes":{bytes},"since_ns":{since}{place}}}"#
        )
    })
}
