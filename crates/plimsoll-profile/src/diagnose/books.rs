//! A second set of books, kept from the event stream alone: who holds what, who waits between stages, who never came back.
//!
//! Fed live, as an observer's events, or from a trace. At every sample a [`Moment`] is taken down; the moments are what the
//! diagnosis looks at. Their number is bounded: when there are too many, every second one is dropped.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use crate::sample::Sample;
use crate::trace::{Event, RunEnd, What};
use winding::WindDown;

mod winding;

/// The most moments kept.
pub const MOMENTS_MAX: usize = 4096;
/// How many of the last times are remembered.
const TIMES_KEPT: usize = 512;
/// How many of the last times of each stage.
const STAGE_TIMES_KEPT: usize = 31;

/// What was so at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// Nanoseconds since the ledger was made.
    pub time: u64,
    /// Jobs that have ended so far.
    pub jobs_done: u64,
    /// Free-standing reservations that have ended so far.
    pub reservations_done: u64,
    /// Jobs that hold something and have not ended.
    pub in_flight: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Bytes of host memory that the ledger counts, pinned ones among them.
    pub held: u64,
    /// The most that it counted since the moment before.
    pub held_peak: u64,
    /// Of these, for residencies.
    pub residencies: u64,
    /// Of these, by jobs in a stage: the stage, how many, their bytes.
    pub running: Vec<Group>,
    /// Of these, by jobs between stages: the stage that is over, how many, their bytes.
    pub queued: Vec<Group>,
    /// Of these, by jobs that have ended.
    pub ended: u64,
    /// Of these, by free-standing reservations.
    pub reserved: u64,
    /// Bytes of each device's memory that the ledger counts.
    pub devices: Vec<(u16, u64)>,
    /// The ledger's limit on host memory, where it is known.
    pub limit: Option<u64>,
    /// What was seen from outside.
    pub sample: Sample,
}

/// Jobs in one stage, or behind one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The stage.
    pub stage: Arc<str>,
    /// How many.
    pub jobs: u64,
    /// What they hold, in bytes.
    pub bytes: u64,
    /// How many of them are in the first, and how many in the second third of the stage's usual time: who has just begun has not touched
    /// all that it was promised.
    pub young: [u64; 2],
}

/// Somebody who holds something while nothing is done with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rest {
    /// The name.
    pub who: Arc<str>,
    /// The class of most of it.
    pub class: Arc<str>,
    /// Host memory held, in bytes.
    pub bytes: u64,
    /// Since when, in nanoseconds since the ledger was made.
    pub since: u64,
    /// When it last grew, in nanoseconds since the ledger was made.
    pub grown: u64,
    /// Host memory that it returned while it held more.
    pub returned: u64,
    /// Where in the source it was asked for, where that is known.
    pub place: Option<Arc<str>>,
    /// When it came back, in nanoseconds since the ledger was made: only when nothing new was begun any more, as where a program
    /// that ends drops what it had kept. `None`: it is still there.
    pub until: Option<u64>,
    /// How many jobs had ended when it came to rest.
    pub jobs_before: u64,
    /// How often it was given something since it has held something.
    pub grants: u64,
    /// What kind of rest.
    pub kind: RestKind,
}

/// Why somebody rests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestKind {
    /// A job between this stage and the next.
    Queued(Arc<str>),
    /// A job in a stage.
    Running(Arc<str>),
    /// A job that has ended.
    Ended,
    /// A free-standing reservation.
    Reserved,
}

/// A run as the diagnosis sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Moments, in order.
    pub moments: Vec<Moment>,
    /// Who holds something at the end, or had held it for long when nothing new was begun any more; longest first.
    pub rests: Vec<Rest>,
    /// How long free-standing reservations had lived that came to their end, in nanoseconds: the last few hundred.
    pub reserved_times: Vec<u64>,
    /// How long jobs had still held something after their end that then returned it, in nanoseconds: the last few hundred.
    pub ended_times: Vec<u64>,
    /// How long jobs that ended had been in flight, in nanoseconds: the last few hundred.
    pub job_times: Vec<u64>,
    /// When the last job was begun, in nanoseconds since the ledger was made; `None` where there was none.
    pub last_begun: Option<u64>,
    /// When something was last granted, given back or ended, in nanoseconds since the ledger was made; `None` where nothing ever was.
    pub last_progress: Option<u64>,
    /// The moments are of events alone: there was no sample.
    pub unsampled: bool,
    /// How the run ended, where its trace says so.
    pub ended: Option<RunEnd>,
}

/// Keeps the books.
#[derive(Clone, Debug, Default)]
pub struct Books {
    owners: HashMap<u64, Owner>,
    totals: BTreeMap<Space, u64>,
    /// What was held in a space, and until when, for the last changes: a sample takes a while, in which others go on.
    held_until: VecDeque<(Space, u64, u64)>,
    /// The most that was held in host memory since the last moment.
    held_peak: u64,
    /// Stages that tell when they begin: what is granted waits until then.
    begin_told: HashMap<Arc<str>, ()>,
    /// How long jobs were in each stage.
    stage_times: HashMap<Arc<str>, VecDeque<u64>>,
    jobs_done: u64,
    reservations_done: u64,
    limit: Option<u64>,
    moments: Vec<Moment>,
    /// One moment of so many samples is kept.
    stride: u64,
    samples: u64,
    reserved_times: VecDeque<u64>,
    ended_times: VecDeque<u64>,
    job_times: VecDeque<u64>,
    wind_down: WindDown,
    /// When the last job was begun.
    last_begun: Option<u64>,
    last_progress: Option<u64>,
    /// The time of the last event.
    now: u64,
    /// Events so far, as long as there is no sample.
    events: u64,
    run_end: Option<RunEnd>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Space {
    Host,
    Device(u16),
}

impl Space {
    fn of(name: &str) -> Option<Space> {
        match name {
            // What is pinned is host memory too.
            "host" | "pinned" => Some(Space::Host),
            _ => name.strip_prefix("device")?.parse().ok().map(Space::Device),
        }
    }
}

#[derive(Clone, Debug)]
struct Owner {
    name: Arc<str>,
    is_job: bool,
    stage: Option<Arc<str>>,
    state: State,
    residency: bool,
    ended: bool,
    waits: bool,
    /// Since when it has been in its state.
    since: u64,
    /// How many jobs had ended then.
    jobs_before: u64,
    /// Since when it has held something.
    held_since: u64,
    /// When it last got something.
    grown: u64,
    /// What it returned since it has held something.
    returned: u64,
    /// How often it got something since it has held something.
    grants: u64,
    /// It was there when it began: of one that was not, nobody knows for how long it has been there.
    begun: bool,
    held: BTreeMap<(Space, Arc<str>), u64>,
    place: Option<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Between stages.
    Resting,
    Running,
}

impl Owner {
    fn host(&self) -> u64 {
        self.held.iter().filter(|((space, _), _)| *space == Space::Host).map(|(_, bytes)| *bytes).sum()
    }

    fn largest_class(&self) -> Arc<str> {
        let largest = self.held.iter().max_by_key(|(_, bytes)| **bytes);
        largest.map_or_else(|| "".into(), |((_, class), _)| class.clone())
    }
}

impl Books {
    /// Empty books.
    pub fn new() -> Self {
        Self { stride: 1, ..Self::default() }
    }

    /// Takes an event down. Samples in a trace are events too.
    pub fn event(&mut self, event: &Event) {
        let time = event.time;
        self.now = self.now.max(time);
        self.take_down(event, time);
        // Without samples there are moments all the same: what the ledger knows by itself can be judged.
        if self.samples == 0 {
            self.events += 1;
            if self.events.is_multiple_of(self.stride.max(1)) {
                let moment = self.moment(Sample { time: self.now, ..Sample::default() });
                self.held_peak = self.totals.get(&Space::Host).copied().unwrap_or(0);
                self.add(moment);
            }
        }
    }

    fn take_down(&mut self, event: &Event, time: u64) {
        match &event.what {
            What::Sampled(fields) => {
                let fields = fields.iter().map(|(name, value)| (name, *value));
                self.sample(Sample::from_fields(time, fields));
            }
            What::RunEnded(end) => self.run_end = Some(end.clone()),
            What::Resized { space, limit } if &**space == "host" => self.limit = Some(*limit),
            What::Held { place, .. } => {
                if let (Some(subject), Some(place)) = (&event.subject, place) {
                    self.place(subject.id, place);
                }
            }
            What::Retired { space, .. } => {
                if let Some(space) = Space::of(space) {
                    self.totals.remove(&space);
                }
            }
            what => self.subject(event, what),
        }
    }

    /// Notes where in the source an owner asked for what it holds.
    pub fn place(&mut self, id: u64, place: &str) {
        if let Some(owner) = self.owners.get_mut(&id) {
            owner.place.get_or_insert_with(|| place.into());
        }
    }

    fn subject(&mut self, event: &Event, what: &What) {
        let time = event.time;
        let Some(subject) = &event.subject else {
            if let What::Changed { space, delta, .. } = what
                && let Some(space) = Space::of(space)
            {
                let total = self.totals.entry(space).or_default();
                *total = total.saturating_add_signed(*delta);
            }
            return;
        };
        let owner = self.owners.entry(subject.id).or_insert_with(|| Owner {
            name: subject.name.clone(),
            is_job: subject.is_job,
            stage: None,
            state: State::Resting,
            residency: false,
            ended: false,
            waits: false,
            since: time,
            jobs_before: self.jobs_done,
            held_since: time,
            grown: time,
            returned: 0,
            grants: 0,
            begun: !matches!(what, What::Changed { .. } | What::Ended),
            held: BTreeMap::new(),
            place: None,
        });
        let jobs_done = self.jobs_done;
        if matches!(
            what,
            What::Granted | What::Forced | What::Began { .. } | What::StageEnded | What::Ended | What::Changed { .. }
        ) {
            self.last_progress = Some(time);
        }
        let was = (owner.state, owner.stage.clone(), owner.since);
        let enter = |owner: &mut Owner, state| {
            if owner.state != state {
                (owner.state, owner.since, owner.jobs_before) = (state, time, jobs_done);
            }
        };
        let begins = match what {
            What::Submitted => true,
            What::Granted | What::Forced => owner.is_job && owner.stage.is_none(),
            What::Changed { delta, .. } => *delta > 0 && !owner.is_job && owner.held.is_empty(),
            _ => false,
        };
        let of_job = owner.is_job || matches!(what, What::Submitted);
        if begins && of_job {
            self.last_begun = Some(time);
        }
        if begins && self.wind_down.ends(of_job) {
            let (reserved, ended) = self.wind_down.taken_back();
            reserved.into_iter().for_each(|time| remember(&mut self.reserved_times, time));
            ended.into_iter().for_each(|time| remember(&mut self.ended_times, time));
        }
        let rested = WindDown::is_long(owner, time).then(|| (owner.state, rest(owner)));
        match what {
            What::Submitted => owner.is_job = true,
            What::Asked => owner.waits = true,
            What::Granted | What::Forced => {
                owner.waits = false;
                owner.stage = subject.stage.clone();
                // Where stages tell when they begin, what is granted waits for a place until then.
                if !owner.stage.as_ref().is_some_and(|stage| self.begin_told.contains_key(stage)) {
                    enter(owner, State::Running);
                }
            }
            What::Began { .. } => {
                owner.stage = subject.stage.clone();
                enter(owner, State::Running);
                if let Some(stage) = &owner.stage {
                    self.begin_told.insert(stage.clone(), ());
                }
            }
            What::StageEnded | What::StageRetried | What::Restarted => {
                if subject.stage.is_some() {
                    owner.stage = subject.stage.clone();
                }
                enter(owner, State::Resting);
            }
            What::Withdrawn | What::Refused => owner.waits = false,
            What::LoadStarted | What::Loaded | What::LoadFailed | What::EvictionStarted | What::Evicted => {
                owner.residency = true;
            }
            What::Changed { class, space, delta, .. } => {
                if let Some(space) = Space::of(space) {
                    let before = owner.held.is_empty();
                    let total = self.totals.entry(space).or_default();
                    if *delta < 0 {
                        if self.held_until.len() == TIMES_KEPT {
                            self.held_until.pop_front();
                        }
                        self.held_until.push_back((space, time, *total));
                    }
                    *total = total.saturating_add_signed(*delta);
                    if space == Space::Host {
                        self.held_peak = self.held_peak.max(*total);
                    }
                    let key = (space, class.clone());
                    let held = owner.held.entry(key.clone()).or_default();
                    *held = held.saturating_add_signed(*delta);
                    if *held == 0 {
                        owner.held.remove(&key);
                    }
                    if before {
                        (owner.held_since, owner.returned, owner.grants) = (time, 0, 0);
                    }
                    if *delta > 0 {
                        owner.grown = time;
                        owner.grants += 1;
                    } else if space == Space::Host {
                        owner.returned = owner.returned.saturating_add(delta.unsigned_abs());
                    }
                }
            }
            What::Ended => {
                if owner.residency {
                    // A residency has no end; its owner is another's name now.
                } else if owner.is_job && !owner.begun {
                    // One that was there before the trace begins: nobody knows how long it took.
                    self.jobs_done += 1;
                } else if owner.is_job {
                    self.jobs_done += 1;
                    remember(&mut self.job_times, time.saturating_sub(owner.held_since));
                } else {
                    self.reservations_done += 1;
                }
                owner.ended = true;
                if owner.is_job {
                    owner.since = time;
                }
            }
            _ => {}
        }
        if let (State::Running, Some(stage), since) = was
            && owner.state == State::Resting
        {
            let times = self.stage_times.entry(stage).or_default();
            if times.len() == STAGE_TIMES_KEPT {
                times.pop_front();
            }
            times.push_back(time.saturating_sub(since));
        }
        if let Some((state, Some(rest))) = rested
            && !owner.residency
            && (owner.state != state || owner.host() == 0)
        {
            self.wind_down.came_back(rest, time);
        }
        if owner.ended && owner.held.is_empty() {
            let is_job = owner.is_job;
            let lasted = time.saturating_sub(if is_job { owner.since } else { owner.held_since });
            match (is_job, what) {
                (true, What::Ended) => {}
                _ if WindDown::is_long_for(lasted, time) => self.wind_down.lasted(is_job, lasted),
                (false, _) => remember(&mut self.reserved_times, lasted),
                (true, _) => remember(&mut self.ended_times, lasted),
            }
            self.owners.remove(&subject.id);
        }
    }

    /// Takes a sample down, and with it the moment.
    pub fn sample(&mut self, sample: Sample) {
        if self.samples == 0 {
            // From here on it is known better.
            self.moments.clear();
            self.stride = 1;
        }
        self.samples += 1;
        if !self.samples.is_multiple_of(self.stride.max(1)) {
            return;
        }
        let moment = self.moment(sample);
        self.held_until.clear();
        self.held_peak = self.totals.get(&Space::Host).copied().unwrap_or(0);
        self.add(moment);
    }

    fn moment(&self, sample: Sample) -> Moment {
        // What has just been returned may still have been there when it was looked at, and what has just been granted may not: of
        // what was held meanwhile, the most.
        let meanwhile = |of: Space| {
            let then = self.held_until.iter().filter(|(space, until, _)| *space == of && *until >= sample.time);
            let now = self.totals.get(&of).copied().unwrap_or(0);
            if self.samples == 0 {
                return now;
            }
            then.map(|(.., held)| *held).fold(now, u64::max)
        };
        let mut moment = Moment {
            time: sample.time,
            jobs_done: self.jobs_done,
            reservations_done: self.reservations_done,
            held: meanwhile(Space::Host),
            held_peak: self.held_peak.max(meanwhile(Space::Host)),
            limit: sample.ledger_limit.or(self.limit),
            ..Moment::default()
        };
        for space in self.totals.keys() {
            if let Space::Device(number) = space {
                moment.devices.push((*number, meanwhile(*space)));
            }
        }
        let usual: HashMap<&Arc<str>, u64> =
            self.stage_times.iter().map(|(stage, times)| (stage, middle(times))).collect();
        for owner in self.owners.values() {
            let bytes = owner.host();
            moment.waiting += u64::from(owner.waits);
            moment.in_flight += u64::from(owner.is_job && !owner.ended && !owner.held.is_empty());
            if owner.residency {
                moment.residencies += bytes;
            } else if !owner.is_job {
                moment.reserved += bytes;
            } else if owner.ended {
                moment.ended += bytes;
            } else if let Some(stage) = &owner.stage {
                let is_running = owner.state == State::Running;
                let age = sample.time.saturating_sub(owner.since);
                let third = match usual.get(stage) {
                    _ if !is_running => 2,
                    Some(usual) => (age.saturating_mul(3) / (*usual).max(1)).min(2),
                    None => 0,
                };
                let young = [u64::from(third == 0), u64::from(third == 1)];
                let groups = if is_running { &mut moment.running } else { &mut moment.queued };
                match groups.iter_mut().find(|group| group.stage == *stage) {
                    Some(group) => {
                        (group.jobs, group.bytes) = (group.jobs + 1, group.bytes + bytes);
                        group.young = [group.young[0] + young[0], group.young[1] + young[1]];
                    }
                    None => groups.push(Group { stage: stage.clone(), jobs: 1, bytes, young }),
                }
            }
        }
        moment.running.sort_unstable_by(|a, b| a.stage.cmp(&b.stage));
        moment.queued.sort_unstable_by(|a, b| a.stage.cmp(&b.stage));
        moment.sample = sample;
        moment
    }

    fn add(&mut self, moment: Moment) {
        self.moments.push(moment);
        if self.moments.len() >= MOMENTS_MAX {
            let mut keep = false;
            self.moments.retain(|_| {
                keep = !keep;
                keep
            });
            self.stride *= 2;
        }
    }

    /// The run until now, without the moments in which a program that ends puts its things away.
    pub fn series(&self) -> Series {
        let mut rests: Vec<Rest> = self.owners.values().filter(|owner| !owner.residency).filter_map(rest).collect();
        rests.extend(self.wind_down.rests().cloned());
        rests.sort_unstable_by(|a, b| (a.since, &a.who).cmp(&(b.since, &b.who)));
        let mut moments = self.moments[..self.moments_of_work()].to_vec();
        if self.samples == 0 && self.events > 0 && moments.len() == self.moments.len() {
            // Only every so many events a moment is taken down.
            moments.push(self.moment(Sample { time: self.now, ..Sample::default() }));
        }
        Series {
            moments,
            rests,
            reserved_times: self.reserved_times.iter().copied().collect(),
            ended_times: self.ended_times.iter().copied().collect(),
            job_times: self.job_times.iter().copied().collect(),
            last_begun: self.last_begun,
            last_progress: self.last_progress,
            unsampled: self.samples == 0,
            ended: self.run_end.clone(),
        }
    }

    /// How many of the moments there are up to the last job's beginning, where all have ended. What lasts long after it tells
    /// something too, and stays.
    fn moments_of_work(&self) -> usize {
        let (Some(first), Some(last)) = (self.moments.first(), self.moments.last()) else { return 0 };
        let last_begun = self.last_begun.unwrap_or(last.time);
        let brief = last.time.saturating_sub(last_begun) < last.time.saturating_sub(first.time) / 10;
        if last.in_flight == 0 && brief {
            self.moments.partition_point(|moment| moment.time <= last_begun)
        } else {
            self.moments.len()
        }
    }
}

fn rest(owner: &Owner) -> Option<Rest> {
    let bytes = owner.host();
    let stage = || owner.stage.clone().unwrap_or_else(|| "its first stage".into());
    let kind = match (owner.is_job, owner.ended, owner.state) {
        (false, ..) => RestKind::Reserved,
        (true, true, _) => RestKind::Ended,
        (true, false, State::Running) => RestKind::Running(stage()),
        (true, false, State::Resting) => RestKind::Queued(stage()),
    };
    let since = if owner.is_job { owner.since } else { owner.held_since };
    (bytes > 0).then(|| Rest {
        who: owner.name.clone(),
        class: owner.largest_class(),
        bytes,
        since,
        grown: owner.grown,
        returned: owner.returned,
        place: owner.place.clone(),
        until: None,
        jobs_before: owner.jobs_before,
        grants: owner.grants,
        kind,
    })
}

fn middle(times: &VecDeque<u64>) -> u64 {
    let mut times: Vec<u64> = times.iter().copied().collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or(0)
}

fn remember(times: &mut VecDeque<u64>, time: u64) {
    if times.len() == TIMES_KEPT {
        times.pop_front();
    }
    times.push_back(time);
}
