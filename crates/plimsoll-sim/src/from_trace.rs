//! A workload from a trace: what a real run did, to be done again in virtual time.
//!
//! Each way through the same stages becomes a circuit. What its jobs held at most and kept is what the profile says; each
//! stage's times are the recorded ones, job by job. How many ran side by side says how many workers there are, slots say how many
//! lanes and leases; what was held by others than jobs (keys, matrices) is held all the time. Limits are the trace's, where it
//! tells them, and otherwise what was held at most: a replay can be held against what happened.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::Arc;

use plimsoll::{Class, Space};
use plimsoll_profile::trace::{Event, Reader, TraceError, What};
use thiserror::Error;

use crate::Nanos;
use crate::names::lasting;
use crate::random::{Law, Times};
use crate::workload::{Arrivals, Circuit, Machine, Policy, PolicyKind, Site, Stage, Stream, Take, Workload};

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
}

/// A job as it is read.
#[derive(Default)]
struct Way {
    submitted: u64,
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

/// Bytes by class and space.
type Held = BTreeMap<(Arc<str>, Arc<str>), u64>;

/// Jobs of one kind, summed up.
#[derive(Default)]
struct Kind {
    first: Vec<Lap>,
    peaks: Vec<Held>,
    keeps: Vec<Held>,
    times: Vec<Vec<Nanos>>,
    submitted: Vec<u64>,
    granted: Vec<u64>,
}

/// Reads a trace and makes a workload of it.
///
/// # Errors
///
/// If it is no trace, or no job in it came to its end.
pub fn from_trace(input: impl BufRead) -> Result<Replay, ReplayError> {
    let mut book = Book::default();
    for event in Reader::new(input)? {
        book.event(&event?);
    }
    book.workload()
}

#[derive(Default)]
struct Book {
    ways: BTreeMap<u64, Way>,
    kinds: BTreeMap<Vec<Arc<str>>, Kind>,
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
    fn event(&mut self, event: &Event) {
        match &event.what {
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
                    self.fixed = self.fixed.max(self.others.values().sum());
                }
            }
            return;
        }
        if let What::Submitted = event.what {
            self.first.get_or_insert_with(|| {
                self.fixed = self.others.values().sum();
                event.time
            });
            self.ways.insert(subject.id, Way { submitted: event.time, ..Way::default() });
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
                let key = (class.clone(), space.clone());
                let held = way.held.entry(key).or_default();
                *held = held.saturating_add_signed(*delta);
                way.note_held();
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
            What::StageRetried | What::Restarted | What::Withdrawn | What::Refused => way.failed = true,
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
        let key = way.stages.iter().map(|lap| lap.name.clone()).collect();
        let kind = self.kinds.entry(key).or_default();
        if kind.first.is_empty() {
            kind.first = way.stages.clone();
            kind.times = vec![Vec::new(); way.stages.len()];
            kind.peaks = vec![BTreeMap::new(); way.stages.len()];
            kind.keeps = vec![BTreeMap::new(); way.stages.len()];
        }
        kind.submitted.push(way.submitted);
        kind.granted.push(way.granted_first.unwrap_or(way.submitted));
        for (at, lap) in way.stages.into_iter().enumerate() {
            kind.times[at].push(Nanos(lap.took.unwrap_or(0)));
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
        let machine = Machine {
            memory: limit.max(1),
            others: 0,
            runtime: self.fixed,
            pinned: limit,
            workers: self.workers.1.max(1),
            slowdown_ppb: 0,
            pcie: u64::MAX,
            devices: devices.map_or(0, |most| most + 1),
            device_memory: self.devices.values().map(|entry| entry.1).max().unwrap_or(0),
            lanes: lanes.unwrap_or(1).max(1),
        };
        let pacing = if self.paced { Default::default() } else { plimsoll::pipeline::Pacing::Unpaced };
        let (mut circuits, mut streams) = (Vec::new(), Vec::new());
        for (number, kind) in self.kinds.values().enumerate() {
            circuits.push(circuit(number, kind, &self.slots));
            let arrivals = arrivals(kind, first);
            streams.push(Stream { circuit: number, arrivals, proofs: kind.submitted.len() as u64 });
        }
        let policy =
            PolicyKind::Plimsoll { budget: limit, pacing, bypass: plimsoll::Budget::DEFAULT_BYPASS, urgent_reserve: 0 };
        let workload = Workload {
            name: "a recorded run".into(),
            machine,
            residencies: Vec::new(),
            circuits,
            streams,
            policy: Policy::new(policy),
            seed: 0,
        };
        let time = self.last - first;
        Ok(Replay { workload, time, host_peak: self.host_peak, jobs: self.jobs, left_out: self.left_out })
    }
}

/// The number at the end of `device1`, `lane0`, `lease0`.
fn device_of(name: &str) -> Option<u16> {
    ["device", "lane", "lease"].iter().find_map(|kind| name.strip_prefix(kind)?.parse().ok())
}

fn space_of(name: &str) -> Space {
    match name {
        "pinned" => Space::PINNED,
        "host" => Space::HOST,
        // Which one is the ledger's to choose again.
        _ => Space::device(0),
    }
}

/// All at once where each job was submitted as soon as the one before it was let in, as sources of many jobs do.
fn arrivals(kind: &Kind, first: u64) -> Arrivals {
    let mut order: Vec<usize> = (0..kind.submitted.len()).collect();
    order.sort_by_key(|at| (kind.submitted[*at], kind.granted[*at]));
    let span = kind.submitted[order[order.len() - 1]] - kind.submitted[order[0]];
    let mean = span / (order.len() as u64).max(1);
    let pulled = |pair: &&[usize]| {
        let (before, after) = (pair[0], pair[1]);
        kind.submitted[after].saturating_sub(kind.granted[before]) <= mean / 4
    };
    let soon = order.windows(2).filter(pulled).count();
    if 10 * soon >= 7 * (order.len() - 1) {
        return Arrivals::Batch;
    }
    Arrivals::At(order.into_iter().map(|at| Nanos(kind.submitted[at] - first)).collect())
}

fn circuit(number: usize, kind: &Kind, slots: &BTreeMap<Arc<str>, (u64, u64)>) -> Circuit {
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
            let class = Class::new(lasting(&key.0), space_of(&key.1));
            let mut take = |bytes: u64, scratch: bool| {
                if bytes > 0 {
                    takes.push(Take { class, bytes, grows: false, scratch });
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
            time: Times::new(&Law::Recorded(kind.times[at].clone())),
            pcie: 0,
            bandwidth_ppm: 0,
            takes,
            frees,
            failing_ppb: 0,
        });
    }
    let name = if number == 0 { "job".to_owned() } else { format!("job {}", number + 1) };
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
