//! A workload from a trace: what a real run did, to be done again in virtual time.
//!
//! Each way through the same stages becomes a circuit. What its jobs held at most and kept is what the profile says; each
//! stage's times are the recorded ones, job by job. How many ran side by side says how many workers there are, slots say how many
//! lanes and leases; what was held by others than jobs (keys, matrices) is held all the time. Limits are the trace's, where it
//! tells them, and otherwise what was held at most: a replay can be held against what happened.
//!
//! Devices are alike: what a job held on the one it was given is what it needs on whichever it is given next. A simulated trace
//! says also what policy it was made with, and so is replayed with it.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;

use plimsoll::{Class, Space};
use plimsoll_profile::trace::{Event, Reader, TraceError, What};
use thiserror::Error;

use crate::Nanos;
use crate::Outcome;
use crate::names::lasting;
use crate::random::{Law, Times};
use crate::workload::{
    Arrivals, Circuit, Machine, Policy, PolicyKind, SIZE_MAX, Setting, Site, Stage, Stream, Take, Workload,
};

/// What a trace was turned into, and what to hold the replay against.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The workload.
    pub workload: Workload,
    /// Nanoseconds from the first job's submission to the last one's end.
    pub time: u64,
    /// The most host memory that was held.
    pub host_peak: u64,
    /// Jobs that came to their end.
    pub jobs: u64,
    /// Jobs that did not, and are left out.
    pub left_out: u64,
    /// Host memory that the trace does not tell of, and the workload's machine has in its runtime.
    hidden: u64,
}

impl Replay {
    /// The time and the peak of a replay, as parts of the recorded ones.
    pub fn compare(&self, outcome: &Outcome) -> (f64, f64) {
        (outcome.time.0 as f64 / self.time.max(1) as f64, self.peak(outcome) as f64 / self.host_peak.max(1) as f64)
    }

    /// The most that was held in a replay, of what the trace tells of: by the ledger's word, where there is one.
    pub fn peak(&self, outcome: &Outcome) -> u64 {
        outcome.charged_peak.unwrap_or(outcome.host_peak).saturating_sub(self.hidden)
    }
}

/// A trace cannot be turned into a workload.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// It cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// No job in it came to its end.
    #[error("no job in it came to its end through stages that ran; record a run of a pipeline to its end")]
    Nothing,
    /// An event of the ledger lies before the one above it.
    #[error(
        "line {line}: time goes back by {nanos} ns; one ledger's events are in order, so the trace is damaged here"
    )]
    Backwards {
        /// The line, counted from one.
        line: u64,
        /// By how much.
        nanos: u64,
    },
    /// More than any machine has.
    #[error("line {line}: {what}; no machine has so much, so the trace is damaged here")]
    Absurd {
        /// The line, counted from one.
        line: u64,
        /// What.
        what: String,
    },
}

/// More devices than this are a slip.
const DEVICES_MAX: u16 = 64;

/// A name of each kind of job is told from others by its name up to this many kinds.
const KINDS_MAX: usize = 64;

/// What came at so many moments while a stage ran, one after another, has grown.
const GROWS: u64 = 4;

/// A job as it is read.
#[derive(Default)]
struct Way {
    submitted: u64,
    order: u64,
    /// Its name, without the number that it ends in.
    name: String,
    granted_first: Option<u64>,
    held: Held,
    slots: BTreeMap<Arc<str>, u64>,
    stages: Vec<Lap>,
    failed: bool,
}

#[derive(Clone, Default)]
struct Lap {
    name: Arc<str>,
    place: Option<Arc<str>>,
    granted: u64,
    began: Option<u64>,
    took: Option<u64>,
    peak: Held,
    keep: Held,
    slots: Vec<Arc<str>>,
    /// By class: at how many moments after the stage had begun there came more.
    grew: BTreeMap<(Arc<str>, Place), (u64, u64)>,
}

impl Way {
    fn lap(&mut self) -> Option<&mut Lap> {
        self.stages.last_mut().filter(|lap| lap.took.is_none())
    }

    fn note_held(&mut self) {
        let held = &self.held;
        if let Some(lap) = self.stages.last_mut().filter(|lap| lap.took.is_none()) {
            for (class, &bytes) in held {
                let most = lap.peak.entry(class.clone()).or_default();
                *most = bytes.max(*most);
            }
        }
    }
}

/// Where bytes are; which device it was does not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Host,
    Pinned,
    Device,
}

impl Place {
    fn of(space: &str) -> Place {
        match space {
            "pinned" => Place::Pinned,
            "host" => Place::Host,
            _ => Place::Device,
        }
    }

    fn space(self) -> Space {
        match self {
            Place::Host => Space::HOST,
            Place::Pinned => Space::PINNED,
            // Which one is the ledger's to choose again.
            Place::Device => Space::device(0),
        }
    }
}

/// Bytes by class and place.
type Held = BTreeMap<(Arc<str>, Place), u64>;

/// What tells kinds of jobs apart: their stages, their names but for numbers, and the size of what they hold, by doublings.
type Key = (Vec<Arc<str>>, String, u32);

/// One job of a kind: when it was submitted and let in, and how long its stages took.
#[derive(Clone, Debug)]
struct Trip {
    /// Numbers the jobs as they were submitted.
    order: u64,
    submitted: u64,
    granted: u64,
    times: Vec<Nanos>,
}

/// Jobs of one kind, summed up.
#[derive(Default)]
struct Kind {
    first: Vec<Lap>,
    peaks: Vec<Held>,
    keeps: Vec<Held>,
    trips: Vec<Trip>,
}

/// Reads a trace and makes a workload of it.
///
/// # Errors
///
/// If it is no trace, or no job in it came to its end.
pub fn from_trace(input: impl BufRead) -> Result<Replay, ReplayError> {
    let mut book = Book::default();
    let mut reader = Reader::new(input)?;
    while let Some(event) = reader.next() {
        let (event, line) = (event?, reader.line());
        // What is not of the ledger may be late.
        if !matches!(event.what, What::Sampled(_) | What::Held { .. } | What::Noted(_) | What::Unknown(_)) {
            if let Some(nanos) = book.now.checked_sub(event.time).filter(|nanos| *nanos > 0) {
                return Err(ReplayError::Backwards { line, nanos });
            }
            book.now = event.time;
        }
        book.event(&event).map_err(|what| ReplayError::Absurd { line, what })?;
    }
    book.workload()
}

#[derive(Default)]
struct Book {
    ways: BTreeMap<u64, Way>,
    kinds: BTreeMap<Key, Kind>,
    setting: Option<Setting>,
    now: u64,
    submitted: u64,
    /// Held by each owner that is no job, on the host.
    others: BTreeMap<u64, u64>,
    fixed: u64,
    host: u64,
    host_peak: u64,
    limits: BTreeMap<Arc<str>, u64>,
    slots: BTreeMap<Arc<str>, (u64, u64)>,
    workers: (u64, u64),
    devices: BTreeMap<Arc<str>, (u64, u64)>,
    paced: bool,
    first: Option<u64>,
    last: u64,
    jobs: u64,
    left_out: u64,
}

impl Book {
    /// Takes an event down; says what is more than any machine has.
    fn event(&mut self, event: &Event) -> Result<(), String> {
        absurd(event)?;
        self.take(event);
        Ok(())
    }

    fn take(&mut self, event: &Event) {
        match &event.what {
            What::Simulated(setting) => self.setting = serde_json::from_value(setting.clone()).ok(),
            What::Resized { space, limit } => _ = self.limits.insert(space.clone(), *limit),
            What::ResizedSlots { slots, .. } => self.paced |= slots.starts_with("rope of"),
            _ => {}
        }
        let Some(subject) = &event.subject else { return };
        if !subject.is_job {
            if let What::Changed { space, delta, .. } = &event.what
                && !space.starts_with("device")
            {
                self.change_host(*delta);
                let held = self.others.entry(subject.id).or_default();
                *held = held.saturating_add_signed(*delta);
                // What is held by others while jobs run; what was needed only before them is not.
                if self.first.is_some() {
                    self.fixed = self.fixed.max(sum(self.others.values()));
                }
            }
            return;
        }
        if let What::Submitted = event.what {
            self.first.get_or_insert_with(|| {
                self.fixed = sum(self.others.values());
                event.time
            });
            let name = subject.name.trim_end_matches(|c: char| c.is_ascii_digit() || ".-_# ".contains(c)).to_owned();
            let order = self.submitted;
            self.submitted += 1;
            self.ways.insert(subject.id, Way { submitted: event.time, order, name, ..Way::default() });
            return;
        }
        if let What::Changed { space, delta, .. } = &event.what
            && !space.starts_with("device")
        {
            self.change_host(*delta);
        }
        let Some(way) = self.ways.get_mut(&subject.id) else { return };
        match &event.what {
            What::Granted => {
                way.granted_first.get_or_insert(event.time);
                if let Some(name) = &subject.stage {
                    way.stages.push(Lap { name: name.clone(), granted: event.time, ..Lap::default() });
                    way.note_held();
                }
            }
            What::Began { place } => {
                if let Some(lap) = way.lap() {
                    (lap.place, lap.began) = (Some(place.clone()), Some(event.time));
                    if **place == *"worker" {
                        self.workers.0 += 1;
                        self.workers.1 = self.workers.1.max(self.workers.0);
                    }
                }
            }
            What::Changed { class, space, delta, .. } => {
                let key = (class.clone(), Place::of(space));
                let held = way.held.entry(key.clone()).or_default();
                *held = held.saturating_add_signed(*delta);
                way.note_held();
                if let Some(lap) =
                    way.lap().filter(|lap| lap.began.is_some_and(|began| began < event.time) && *delta > 0)
                {
                    let (moments, last) = lap.grew.entry(key).or_default();
                    *moments += u64::from(*moments == 0 || *last < event.time);
                    *last = event.time;
                }
                if space.starts_with("device") {
                    let (now, peak) = self.devices.entry(space.clone()).or_default();
                    *now = now.saturating_add_signed(*delta);
                    *peak = (*peak).max(*now);
                }
            }
            What::ChangedSlots { slots, delta, held } => {
                self.paced |= slots.starts_with("rope of");
                let (now, peak) = self.slots.entry(slots.clone()).or_default();
                *now = *held;
                *peak = (*peak).max(*held);
                let mine = way.slots.entry(slots.clone()).or_default();
                *mine = mine.saturating_add_signed(*delta);
                if *delta > 0
                    && let Some(lap) = way.lap()
                {
                    lap.slots.push(slots.clone());
                }
            }
            What::StageEnded => {
                let held = way.held.clone();
                let mine = way.slots.clone();
                if let Some(lap) = way.lap() {
                    lap.took = Some(event.time - lap.began.unwrap_or(lap.granted));
                    lap.keep = held;
                    for (slots, count) in mine {
                        if count > 0 && !lap.slots.contains(&slots) {
                            lap.slots.push(slots);
                        }
                    }
                    if lap.place.as_deref() == Some("worker") {
                        self.workers.0 = self.workers.0.saturating_sub(1);
                    }
                }
            }
            // What is done again is done once in a replay, unless it fails there too.
            What::StageRetried => {
                let on_worker = way.stages.pop().is_some_and(|lap| lap.place.as_deref() == Some("worker"));
                self.workers.0 = self.workers.0.saturating_sub(u64::from(on_worker));
            }
            What::Restarted => way.stages.clear(),
            What::Withdrawn | What::Refused => way.failed = true,
            What::Finished { how, .. } => way.failed |= **how != *"result",
            What::Ended => {
                let way = self.ways.remove(&subject.id).expect("found above");
                self.last = event.time;
                self.ended(way);
            }
            _ => {}
        }
    }

    fn change_host(&mut self, delta: i64) {
        self.host = self.host.saturating_add_signed(delta);
        self.host_peak = self.host_peak.max(self.host);
    }

    fn ended(&mut self, way: Way) {
        let whole = !way.stages.is_empty() && way.stages.iter().all(|lap| lap.took.is_some());
        if way.failed || !whole {
            self.left_out += 1;
            return;
        }
        self.jobs += 1;
        let stages: Vec<Arc<str>> = way.stages.iter().map(|lap| lap.name.clone()).collect();
        let most = way.stages.iter().map(|lap| sum(lap.peak.values())).max().unwrap_or(0);
        let size = most.max(1).ilog2();
        let named = (stages.clone(), way.name, size);
        // Where every job has a name of its own, names tell no kinds.
        let is_known = self.kinds.len() < KINDS_MAX || self.kinds.contains_key(&named);
        let kind = self.kinds.entry(if is_known { named } else { (stages, String::new(), size) }).or_default();
        if kind.first.is_empty() {
            kind.first = way.stages.clone();
            kind.peaks = vec![BTreeMap::new(); way.stages.len()];
            kind.keeps = vec![BTreeMap::new(); way.stages.len()];
        }
        let times = way.stages.iter().map(|lap| Nanos(lap.took.unwrap_or(0))).collect();
        let granted = way.granted_first.unwrap_or(way.submitted);
        kind.trips.push(Trip { order: way.order, submitted: way.submitted, granted, times });
        for (at, lap) in way.stages.into_iter().enumerate() {
            for (most, of) in [(&mut kind.peaks[at], lap.peak), (&mut kind.keeps[at], lap.keep)] {
                for (class, bytes) in of {
                    let most = most.entry(class).or_default();
                    *most = bytes.max(*most);
                }
            }
        }
    }

    fn workload(self) -> Result<Replay, ReplayError> {
        let first = self.first.filter(|_| self.jobs > 0).ok_or(ReplayError::Nothing)?;
        let devices = self.devices.keys().chain(self.slots.keys()).filter_map(|name| device_of(name)).max();
        let lanes = self.slots.iter().filter(|entry| entry.0.starts_with("lane")).map(|entry| entry.1.1).max();
        let limit = self.limits.get("host").copied().unwrap_or(self.host_peak).max(self.host_peak);
        let setting = self.setting.as_ref();
        // Of a simulated run all is known that decides; of a real one its ledger's limits.
        let policy = setting.and_then(Setting::policy);
        let hidden = setting.filter(|_| policy.is_some()).map_or(0, |setting| setting.runtime_bytes.min(SIZE_MAX));
        let pacing = if self.paced { Default::default() } else { plimsoll::pipeline::Pacing::Unpaced };
        let bypass = plimsoll::Budget::DEFAULT_BYPASS;
        let of_ledger = PolicyKind::Plimsoll { budget: limit, pacing, bypass, urgent_reserve: 0 };
        let policy = policy.unwrap_or_else(|| Policy::new(of_ledger));
        let memory =
            setting.map_or(limit, |setting| setting.host_bytes.min(SIZE_MAX)).max(limit.saturating_add(hidden)).max(1);
        let machine = Machine {
            memory,
            others: 0,
            runtime: self.fixed.saturating_add(hidden),
            pinned: memory,
            workers: setting.map_or(self.workers.1, |setting| setting.workers).clamp(1, WORKERS_MAX),
            slowdown_ppb: 0,
            pcie: u64::MAX,
            devices: devices.map_or(0, |most| most + 1),
            device_memory: self.devices.values().map(|entry| entry.1).max().unwrap_or(0),
            lanes: setting.map_or(lanes.unwrap_or(1), |setting| setting.lanes).clamp(1, LANES_MAX),
        };
        let (mut circuits, mut streams) = (Vec::new(), Vec::new());
        let (slots, mut kinds) = (self.slots, self.kinds);
        for (number, ((_, name, _), kind)) in kinds.iter_mut().enumerate() {
            // In the order in which they came, whichever ended first.
            kind.trips.sort_by_key(|trip| trip.order);
            let mut circuit = circuit(number, name, kind, &slots);
            let ranked = setting.and_then(|setting| setting.circuits.iter().find(|circuit| circuit.name == *name));
            if let Some(ranked) = ranked {
                (circuit.priority, circuit.urgent) = (ranked.priority, ranked.urgent);
            }
            circuits.push(circuit);
            let arrivals = arrivals(&kind.trips, first);
            streams.push(Stream { circuit: number, arrivals, proofs: kind.trips.len() as u64 });
        }
        let workload = Workload {
            name: setting.map_or_else(|| "a recorded run".into(), |setting| setting.workload.clone()),
            machine,
            residencies: Vec::new(),
            circuits,
            streams,
            policy,
            seed: 0,
        };
        let time = self.last.saturating_sub(first);
        Ok(Replay { workload, time, host_peak: self.host_peak, jobs: self.jobs, left_out: self.left_out, hidden })
    }
}

const WORKERS_MAX: u64 = 4096;
const LANES_MAX: u64 = 64;

fn sum<'a>(of: impl Iterator<Item = &'a u64>) -> u64 {
    of.fold(0, |sum, bytes| sum.saturating_add(*bytes))
}

/// What an event says that cannot be, in words.
fn absurd(event: &Event) -> Result<(), String> {
    let many = |what: &str, name: &str| match device_of(name) {
        Some(device) if device >= DEVICES_MAX => Err(format!("{what} {name:?}")),
        _ => Ok(()),
    };
    let large = |bytes: u64| match bytes {
        SIZE_MAX.. => Err(format!("{bytes} bytes")),
        _ => Ok(()),
    };
    match &event.what {
        What::Changed { space, delta, held, .. } => {
            many("the space", space)?;
            large(delta.unsigned_abs().max(*held))
        }
        What::Resized { space, limit } => {
            many("the space", space)?;
            // A limit may be as good as none.
            large((*limit).min(SIZE_MAX - 1))
        }
        What::ChangedSlots { slots, held, .. } => {
            many("slots", slots)?;
            large(*held)
        }
        _ => Ok(()),
    }
}

/// The number at the end of `device1`, `lane0`, `lease0`.
fn device_of(name: &str) -> Option<u16> {
    ["device", "lane", "lease"].iter().find_map(|kind| name.strip_prefix(kind)?.parse().ok())
}

/// When jobs came, from the first on. A job that was submitted as soon as the one before it was let in, and that one had waited, was
/// pulled: sources of many jobs do so. When it came nobody knows, but for that it was not before the one before it.
fn arrivals(trips: &[Trip], first: u64) -> Arrivals {
    let span = trips[trips.len() - 1].submitted - trips[0].submitted;
    // A thread needs a moment to submit the next one.
    let moment = span / (8 * trips.len() as u64);
    let mut times = Vec::with_capacity(trips.len());
    let mut came = trips[0].submitted - first;
    for (at, trip) in trips.iter().enumerate() {
        let pulled = at.checked_sub(1).map(|before| &trips[before]).is_some_and(|before| {
            let waited = before.granted - before.submitted > moment || before.submitted - first <= moment && at == 1;
            waited && trip.submitted.saturating_sub(before.granted) <= moment
        });
        if !pulled {
            came = trip.submitted - first;
        }
        times.push(Nanos(came));
    }
    if times.iter().all(|time| *time == times[0]) && times[0] == Nanos(0) {
        Arrivals::Batch
    } else {
        Arrivals::At(times)
    }
}

fn circuit(number: usize, name: &str, kind: &Kind, slots: &BTreeMap<Arc<str>, (u64, u64)>) -> Circuit {
    let mut before: Held = BTreeMap::new();
    let mut stages = Vec::new();
    for (at, lap) in kind.first.iter().enumerate() {
        let has = |prefix: &str| lap.slots.iter().any(|slots| slots.starts_with(prefix) && device_of(slots).is_some());
        let on = match lap.place.as_deref() {
            _ if has("lease") => Site::Device,
            _ if has("lane") => Site::Lane,
            Some("worker") | None => Site::Worker,
            Some(_) => Site::Outside,
        };
        let tie = lap.slots.iter().find(|name| name.starts_with("jobs in "));
        let (peak, keep) = (&kind.peaks[at], &kind.keeps[at]);
        let mut takes = Vec::new();
        let mut frees = Vec::new();
        for (key, &most) in peak {
            let brought = before.get(key).copied().unwrap_or(0);
            let kept = keep.get(key).copied().unwrap_or(0);
            let class = Class::new(lasting(&key.0), key.1.space());
            let grows = key.1 != Place::Device && lap.grew.get(key).is_some_and(|grew| grew.0 >= GROWS);
            let mut take = |bytes: u64, scratch: bool| {
                if bytes > 0 {
                    takes.push(Take { class, bytes, grows, scratch });
                }
            };
            if kept >= brought {
                take(kept - brought, false);
                take(most.saturating_sub(kept), true);
            } else {
                take(most.saturating_sub(brought), true);
                frees.push((class, Some(brought - kept)));
            }
            before.insert(key.clone(), kept);
        }
        stages.push(Stage {
            name: lasting(&lap.name),
            on,
            at_most: tie.and_then(|name| slots.get(name)).map(|entry| entry.1.max(1)),
            time: Times::new(&Law::Recorded(kind.trips.iter().map(|trip| trip.times[at]).collect())),
            pcie: 0,
            bandwidth_ppm: 0,
            takes,
            frees,
            failing_ppb: 0,
        });
    }
    let name = match (name, number) {
        ("", 0) => "job".to_owned(),
        ("", _) => format!("job {}", number + 1),
        (name, _) => name.to_owned(),
    };
    Circuit {
        name: Arc::from(lasting(&name)),
        parts: 1,
        priority: 0,
        urgent: false,
        deadline: None,
        needs: Vec::new(),
        stages,
    }
}
