//! Watching a run while it goes on: one thread that takes samples, keeps the share for slack, sounds the alarm on drift, keeps the
//! books for a verdict, and hands everything on to whoever writes it down.
//!
//! ```
//! use plimsoll_profile::watch::Watch;
//! # let ledger = plimsoll::Ledger::unlimited();
//! let watching = Watch::new(&ledger).with_verdict().start()?;
//! println!("{}", watching.seen().diagnosis().expect("books are kept"));
//! # Ok::<(), std::io::Error>(())
//! ```

#![expect(clippy::disallowed_types, reason = "no model runs this: it looks at a running process")]

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll::ledger::Observing;
use plimsoll::ledger::snapshot::Snapshot;
use plimsoll::observe::{Event, Observer};
use plimsoll::{Bytes, Ledger};
use serde::Serialize;

use crate::diagnose::{Books, Diagnosis, diagnose};
use crate::reconcile::{Alarm, Baseline, Change, Drift, SlackKeeper, Table};
use crate::sample::files::Root;
use crate::sample::process::ProcessMemory;
use crate::sample::{PERIOD, Reader, Sample, Sampler, allocator};
use crate::trace;

/// A verdict is made anew at most so often, however often it is asked for.
pub const VERDICT_PERIOD: Duration = Duration::from_secs(5);
/// The least that is worth an alarm.
pub const DRIFT_MIN: Bytes = Bytes(64 << 20);
/// One part in so many of the line is worth an alarm, where that is more.
pub const DRIFT_DIVISOR: u64 = 16;

/// What was seen at one look, for those who write it down.
#[derive(Debug)]
pub struct Look<'a> {
    /// What the kernel, the allocator and the drivers say.
    pub sample: &'a Sample,
    /// What the ledger says.
    pub snapshot: &'a Snapshot,
    /// Both, reconciled.
    pub tables: &'a [Table],
    /// What was done for the share for slack.
    pub change: Option<Change>,
    /// Where ledger and kernel have differed for too long since this look: the space, and how.
    pub alarms: &'a [(String, Alarm)],
}

/// Is told of each look.
type Sink = Box<dyn FnMut(&Look<'_>) + Send>;

/// What is to be watched, before it starts.
pub struct Watch {
    ledger: Ledger,
    reader: Reader,
    period: Duration,
    line: Option<Bytes>,
    keeper: Option<SlackKeeper>,
    books: bool,
    sinks: Vec<Sink>,
}

/// A run that is being watched. Dropping it takes a last look, and ends it.
#[derive(Debug)]
pub struct Watching {
    // It ends before what it looks at.
    _sampler: Sampler,
    /// The books are kept until it ends.
    _observing: Option<Observing>,
    seen: Seen,
}

/// What was seen so far, for other threads.
#[derive(Clone, Debug)]
pub struct Seen(Arc<Memory>);

#[derive(Debug)]
struct Memory {
    /// What events and samples make together; none where no verdict is asked for.
    books: Option<Mutex<Books>>,
    last: Mutex<Process>,
    /// The last verdict, and when it was made: it costs some milliseconds.
    verdict: Mutex<Option<(Instant, Diagnosis)>>,
}

/// The process at the last look.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Process {
    /// Nanoseconds since the ledger was made.
    pub time_ns: u64,
    /// What is resident.
    pub resident_bytes: Option<u64>,
    /// The most that the process is to hold.
    pub line_bytes: Option<u64>,
    /// What could be had now without somebody being killed.
    pub left_bytes: Option<u64>,
    /// Free pages that the allocator keeps.
    pub allocator_kept_bytes: Option<u64>,
    /// Ledger against kernel, space by space.
    pub tables: Vec<Table>,
    /// How often free pages were given back because somebody was short.
    pub purges: u64,
    /// Where ledger and kernel differ, in words, for as long as they do.
    pub alarm: Option<String>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Watch { period, line, keeper, books, .. } = self;
        f.debug_struct("Watch")
            .field("period", period)
            .field("line", line)
            .field("keeper", keeper)
            .field("books", books)
            .finish_non_exhaustive()
    }
}

impl Watch {
    /// Of a ledger and this process, every [`PERIOD`], and nothing more.
    pub fn new(ledger: &Ledger) -> Watch {
        Watch {
            ledger: ledger.clone(),
            reader: Reader::new(),
            period: PERIOD,
            line: None,
            keeper: None,
            books: false,
            sinks: Vec::new(),
        }
    }

    /// Looks through this.
    #[must_use]
    pub fn with_reader(mut self, reader: Reader) -> Watch {
        self.reader = reader;
        self
    }

    /// Looks so often.
    #[must_use]
    pub fn every(mut self, period: Duration) -> Watch {
        self.period = period;
        self
    }

    /// The most that the process is to hold. It is noted in samples, and drift is measured by it.
    #[must_use]
    pub fn under(mut self, line: Bytes) -> Watch {
        self.reader = self.reader.with_line(line.0);
        self.line = Some(line);
        self
    }

    /// Keeps the share for slack.
    #[must_use]
    pub fn keeping(mut self, keeper: SlackKeeper) -> Watch {
        self.keeper = Some(keeper);
        self
    }

    /// Keeps the books, so that there is a verdict at any time. The ledger is observed from now on.
    #[must_use]
    pub fn with_verdict(mut self) -> Watch {
        self.books = true;
        self
    }

    /// Tells `sink` of each look, on the watching thread.
    #[must_use]
    pub fn tell(mut self, sink: impl FnMut(&Look<'_>) + Send + 'static) -> Watch {
        self.sinks.push(Box::new(sink));
        self
    }

    /// Starts it.
    ///
    /// # Errors
    ///
    /// If there can be no thread.
    pub fn start(self) -> io::Result<Watching> {
        let Watch { ledger, reader, period, line, mut keeper, books, mut sinks } = self;
        let seen = Seen(Arc::new(Memory {
            books: books.then(|| Mutex::new(Books::new())),
            last: Mutex::new(Process::default()),
            verdict: Mutex::new(None),
        }));
        let observing = books.then(|| ledger.observe_while(Arc::new(seen.clone())));
        let threshold = Bytes(line.map_or(0, |line| line.0 / DRIFT_DIVISOR)).max(DRIFT_MIN);
        let mut drifts: Vec<(String, Drift)> = Vec::new();
        let mut baseline = None;
        let (root, allocator) = (Root::default(), allocator::detect());
        let memory = seen.clone();
        let sink = move |sample: Sample, snapshot: &Snapshot| {
            let change = keeper
                .as_mut()
                .map(|keeper| keeper.follow(&sample, snapshot, allocator.as_deref(), || ProcessMemory::quick(&root)));
            let baseline = baseline.get_or_insert_with(|| Baseline::of(&sample, snapshot));
            let tables = Table::all(snapshot, &sample, baseline);
            let mut alarms = Vec::new();
            for table in &tables {
                let at = drifts.iter().position(|(space, _)| *space == table.space).unwrap_or_else(|| {
                    drifts.push((table.space.clone(), Drift::new(Drift::WINDOW, threshold)));
                    drifts.len() - 1
                });
                alarms.extend(drifts[at].1.push(table, snapshot).map(|alarm| (table.space.clone(), alarm)));
            }
            let standing = drifts.iter().filter_map(|(space, drift)| Some(format!("{space}: {}", drift.standing()?)));
            let standing = standing.collect::<Vec<_>>();
            memory.note(&sample, &tables, keeper.as_ref().map_or(0, SlackKeeper::purges), &standing);
            let look = Look { sample: &sample, snapshot, tables: &tables, change, alarms: &alarms };
            sinks.iter_mut().for_each(|sink| sink(&look));
            if let Some(books) = &memory.0.books {
                lock(books).sample(sample);
            }
        };
        Ok(Watching { _sampler: Sampler::start(&ledger, reader, period, sink)?, _observing: observing, seen })
    }
}

impl Watching {
    /// What was seen so far.
    pub fn seen(&self) -> Seen {
        self.seen.clone()
    }
}

impl Seen {
    /// The verdict on what was seen so far, at most [`VERDICT_PERIOD`] old; `None` where nobody keeps the books.
    pub fn diagnosis(&self) -> Option<Diagnosis> {
        let books = self.0.books.as_ref()?;
        // Whoever comes meanwhile waits, and has the same one.
        let mut last = lock(&self.0.verdict);
        match &*last {
            Some((when, diagnosis)) if when.elapsed() < VERDICT_PERIOD => Some(diagnosis.clone()),
            _ => {
                // The copy is made with the lock held that the ledger's events wait for; all else is done without.
                let copy = lock(books).clone();
                let diagnosis = diagnose(&copy.series());
                *last = Some((Instant::now(), diagnosis.clone()));
                Some(diagnosis)
            }
        }
    }

    /// The process at the last look.
    pub fn process(&self) -> Process {
        lock(&self.0.last).clone()
    }

    fn note(&self, sample: &Sample, tables: &[Table], purges: u64, standing: &[String]) {
        *lock(&self.0.last) = Process {
            time_ns: sample.time,
            resident_bytes: sample.process.map(|process| process.resident_bytes),
            line_bytes: sample.line,
            left_bytes: sample.left_bytes(),
            allocator_kept_bytes: sample.allocator.as_ref().and_then(|allocator| allocator.kept_bytes()),
            tables: tables.to_vec(),
            purges,
            alarm: (!standing.is_empty()).then(|| standing.join("; ")),
        };
    }
}

impl Observer for Seen {
    fn event(&self, event: &Event) {
        if let Some(books) = &self.0.books {
            lock(books).event(&trace::Event::from(event));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left half done is at worst a look that is missing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use plimsoll::{Class, Space};

    use super::*;
    use crate::diagnose::Verdict;

    #[test]
    fn each_look_is_told_reconciled_and_remembered() {
        const AUX: Class = Class::new("aux", Space::HOST);
        let ledger = Ledger::unlimited();
        let (told, looks) = mpsc::channel();
        let watching = Watch::new(&ledger)
            .with_reader(Reader::new().without_others())
            .under(Bytes(8 << 30))
            .every(Duration::from_millis(1))
            .with_verdict()
            .tell(move |look| {
                let _ = told.send((look.sample.time, look.tables.len(), !look.alarms.is_empty()));
            })
            .start()
            .unwrap();
        let held = ledger.reserve(AUX, Bytes(1 << 20)).try_now().unwrap();
        looks.recv().unwrap();
        // A look that began after the reservation was made.
        let after = ledger.snapshot().time;
        while looks.recv().unwrap().0 <= after {}
        let seen = watching.seen();
        let process = seen.process();
        assert_eq!(process.line_bytes, Some(8 << 30));
        if let Some(resident) = process.resident_bytes {
            let table = &process.tables[0];
            assert_eq!((table.total as u64, table.held()), (resident, 1 << 20), "{table}");
        }
        assert_eq!(seen.diagnosis().unwrap().verdict(), Verdict::Healthy);
        drop(held);
        drop(watching);
        assert_eq!(Arc::strong_count(&seen.0), 1, "the ledger has let go of it");
        assert!(looks.iter().all(|(_, _, alarm)| !alarm));
        assert!(seen.process().time_ns >= process.time_ns);
    }
}
