//! A line of stations in virtual time.
//!
//! Jobs are always there to be let in. Each asks the ledger for its stage, waits for a server of the stage's station once
//! it is granted, is served for a random time, and goes on; the pacer is told of each stage that ended well.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use plimsoll::ledger::JobSpec;
use plimsoll::ledger::state::{AccountId, LedgerState, Outcome, OwnerId};
use plimsoll::pipeline::pacing::{Layout, Pacer, Pacing, Rope, Site, Station};
use plimsoll::{Budget, Bytes, Class, Demand, Profile, Resource, Slots, Space};

pub(crate) const BUFFER: Class = Class::new("buffer", Space::HOST);

/// How long a stage takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Time {
    /// Always the same.
    Fixed(f64),
    /// Anything from the one to the other.
    Uniform(f64, f64),
    /// Exponential, with this mean.
    Exponential(f64),
    /// The first, and so much more for each other job that is served at the station.
    Contended(f64, f64),
}

/// What may go wrong with a stage.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults {
    /// Of a thousand stages, how many fail.
    pub(crate) failing: u64,
    /// Of a thousand waits, how many are given up.
    pub(crate) cancelled: u64,
}

pub(crate) struct Line {
    pub(crate) state: LedgerState,
    pub(crate) pacer: Pacer,
    times: Vec<Time>,
    profiles: Vec<Profile>,
    pub(crate) faults: Faults,
    account: AccountId,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, OwnerId)>>,
    sequence: u64,
    jobs: BTreeMap<OwnerId, JobNow>,
    queues: Vec<Vec<(Reverse<usize>, u64, OwnerId)>>,
    busy: Vec<u64>,
    busy_time: Vec<u64>,
    random: u64,
    waiting: usize,
    pub(crate) supply: u64,
    pub(crate) finished: u64,
    pub(crate) failed: u64,
    pub(crate) in_flight_peak: usize,
}

#[derive(Clone, Copy, Debug)]
struct JobNow {
    profile: usize,
    stage: usize,
    /// When its stage was granted; `None` while it waits for that.
    granted: Option<u64>,
    began: Option<u64>,
}

const SECOND: f64 = 1e9;

impl Line {
    /// `stages`: time, station, peak and keep in bytes. `stations`: servers.
    pub(crate) fn new(
        pacing: Pacing,
        stations: &[Option<u64>],
        stages: &[(Time, usize, u64, u64)],
        memory: u64,
    ) -> Line {
        const NAMES: [&str; 6] = ["one", "two", "three", "four", "five", "six"];
        let bytes = |n| Demand::new().bytes(BUFFER, Bytes(n));
        let add = |profile: Profile, (at, stage): (usize, &(Time, usize, u64, u64))| {
            profile.stage(NAMES[at], bytes(stage.2), bytes(stage.3))
        };
        let profile = stages.iter().enumerate().fold(Profile::new(), add);
        let sites = stages.iter().enumerate().map(|(at, stage)| Site { stage: NAMES[at], station: stage.1 }).collect();
        let stations: Vec<_> = stations.iter().map(|&servers| Station { name: "station", servers }).collect();
        let count = stations.len();
        let mut pacer = Pacer::new(pacing, Layout { stations, stages: sites }, Rope::of(&profile));
        pacer.set_limit(Space::HOST, Bytes(memory));
        pacer.classify(&profile);
        let mut state = LedgerState::new(&Budget::new().space(Space::HOST, Bytes(memory)));
        let account = state.open_child(AccountId::ROOT, "line".into(), &pacer.budget());
        Line {
            state,
            pacer,
            times: stages.iter().map(|stage| stage.0).collect(),
            profiles: vec![profile],
            faults: Faults::default(),
            account,
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            jobs: BTreeMap::new(),
            queues: vec![Vec::new(); count],
            busy: vec![0; count],
            busy_time: vec![0; count],
            random: 1,
            waiting: 0,
            supply: u64::MAX,
            finished: 0,
            failed: 0,
            in_flight_peak: 0,
        }
    }

    pub(crate) fn seed(mut self, seed: u64) -> Line {
        self.random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        self
    }

    /// Adds jobs of another size: every byte and every second times `factor`.
    pub(crate) fn also(mut self, factor: u64) -> Line {
        let times = |demand: &Demand| {
            demand.iter().fold(Demand::new(), |demand, (resource, bytes)| match resource {
                Resource::Class(class) => demand.bytes(class, Bytes(bytes * factor)),
                Resource::Slots(slots) => demand.slots(slots, bytes),
            })
        };
        let add = |profile: Profile, stage: &plimsoll::StageProfile| {
            profile.stage(stage.name, times(&stage.peak), times(&stage.keep))
        };
        let larger = self.profiles[0].stages().iter().fold(Profile::new(), add);
        self.profiles.push(larger);
        self
    }

    pub(crate) fn set_time(&mut self, stage: usize, time: Time) {
        self.times[stage] = time;
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 11
    }

    fn unit(&mut self) -> f64 {
        (self.draw() as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn chance(&mut self, of_a_thousand: u64) -> bool {
        of_a_thousand > 0 && self.draw() % 1000 < of_a_thousand
    }

    fn duration(&mut self, stage: usize, profile: usize) -> u64 {
        let station = self.pacer.layout().stages[stage].station;
        let seconds = match self.times[stage] {
            Time::Fixed(seconds) => seconds,
            Time::Uniform(low, high) => low + (high - low) * self.unit(),
            Time::Exponential(mean) => -mean * self.unit().ln(),
            Time::Contended(alone, each) => alone + each * self.busy[station].saturating_sub(1) as f64,
        };
        let factor = self.profiles[profile].stages()[0].peak.of(BUFFER).max(1) as f64
            / self.profiles[0].stages()[0].peak.of(BUFFER).max(1) as f64;
        ((seconds * factor * SECOND) as u64).max(1)
    }

    /// Lets jobs ask for admission: one at a time waits, as where inputs are pulled when there is room.
    fn supply(&mut self) {
        let mut out = Vec::new();
        while self.waiting == 0 && self.supply > 0 {
            self.supply -= 1;
            let profile = if self.profiles.len() > 1 { self.draw() as usize % self.profiles.len() } else { 0 };
            let tied = self.pacer.tie(&self.profiles[profile]);
            self.pacer.classify(&self.profiles[profile]);
            let id = self.state.submit(self.account, JobSpec::new("job", tied)).expect("it fits");
            self.jobs.insert(id, JobNow { profile, stage: 0, granted: None, began: None });
            self.waiting += 1;
            self.state.enter(self.now, id, 0, &mut out).expect("it may");
            self.settle(&mut out);
        }
    }

    fn settle(&mut self, out: &mut Vec<Outcome>) {
        for outcome in out.drain(..) {
            let Outcome::Granted(id, _) = outcome else { panic!("nothing is refused here: {outcome:?}") };
            let job = self.jobs.get_mut(&id).expect("it is there");
            job.granted = Some(self.now);
            self.waiting -= usize::from(job.stage == 0);
            let station = self.pacer.layout().stages[job.stage].station;
            self.queues[station].push((Reverse(job.stage), self.sequence, id));
            self.sequence += 1;
        }
        let in_flight = self.jobs.len() - self.waiting;
        self.in_flight_peak = self.in_flight_peak.max(in_flight);
        self.serve();
    }

    fn serve(&mut self) {
        for station in 0..self.queues.len() {
            let servers = self.pacer.layout().stations[station].servers.unwrap_or(u64::MAX);
            while self.busy[station] < servers && !self.queues[station].is_empty() {
                let next = (0..self.queues[station].len()).min_by_key(|at| self.queues[station][*at]).expect("some");
                let (_, _, id) = self.queues[station].remove(next);
                self.busy[station] += 1;
                let JobNow { stage, profile, .. } = self.jobs[&id];
                let duration = self.duration(stage, profile);
                self.busy_time[station] += duration;
                self.jobs.get_mut(&id).expect("it is there").began = Some(self.now);
                self.events.push(Reverse((self.now + duration, self.sequence, id)));
                self.sequence += 1;
            }
        }
    }

    /// Ends one stage. `false` when nothing is going on.
    pub(crate) fn step(&mut self) -> bool {
        self.supply();
        let Some(Reverse((at, _, id))) = self.events.pop() else { return false };
        self.now = at;
        let mut out = Vec::new();
        let JobNow { profile, stage, granted, began } = self.jobs[&id];
        let (granted, began) = (granted.expect("it was served"), began.expect("it was served"));
        let station = self.pacer.layout().stages[stage].station;
        self.busy[station] -= 1;
        let declared = &self.profiles[profile].stages()[stage];
        let rest = declared.keep.of(BUFFER);
        let back = declared.peak.of(BUFFER) - rest;
        let failed = self.chance(self.faults.failing);
        self.state.end_stage(id, &[(BUFFER, Bytes(back))], &mut out);
        let last = stage + 1 == self.times.len();
        if failed || last {
            if rest > 0 {
                self.state.release(id, BUFFER, Bytes(rest), &mut out);
            }
            self.state.end(id, &mut out);
            self.jobs.remove(&id);
            self.finished += u64::from(!failed);
            self.failed += u64::from(failed);
        } else {
            self.jobs.insert(id, JobNow { profile, stage: stage + 1, granted: None, began: None });
            self.state.enter(at, id, stage + 1, &mut out).expect("it may");
        }
        if !failed {
            let class = self.pacer.classify(&self.profiles[profile]);
            if self.pacer.stage_ended(class, stage, at - began, began - granted) {
                for rope in 0..self.pacer.ropes().len() {
                    let (slots, tokens): (Slots, u64) = (self.pacer.slots(rope), self.pacer.tokens()[rope]);
                    self.state.resize_slots(self.account, slots, tokens, &mut out).expect("opened with them");
                }
            }
        }
        self.settle(&mut out);
        if self.chance(self.faults.cancelled) {
            self.give_one_up();
        }
        true
    }

    /// Cancels a job that waits for a stage.
    fn give_one_up(&mut self) {
        let waiting = self.jobs.iter().filter(|(_, job)| job.granted.is_none()).map(|(id, _)| *id);
        let waiting: Vec<_> = waiting.collect();
        if waiting.is_empty() {
            return;
        }
        let id = waiting[self.draw() as usize % waiting.len()];
        let mut out = Vec::new();
        let JobNow { profile, stage, .. } = self.jobs.remove(&id).expect("it is there");
        self.waiting -= usize::from(stage == 0);
        if stage > 0 {
            let kept = self.profiles[profile].stages()[stage - 1].keep.of(BUFFER);
            self.state.release(id, BUFFER, Bytes(kept), &mut out);
        }
        self.state.end(id, &mut out);
        self.failed += 1;
        self.settle(&mut out);
    }

    /// Runs until so many jobs have ended; returns how many a second, and which part of its servers' time each station was
    /// busy.
    pub(crate) fn run(&mut self, jobs: u64) -> (f64, Vec<f64>) {
        let (ended, started) = (self.finished + self.failed, self.now);
        let busy = self.busy_time.clone();
        while self.finished + self.failed < ended + jobs && self.step() {}
        let seconds = (self.now - started) as f64 / SECOND;
        let utilisation = (0..busy.len()).map(|station| {
            let servers = self.pacer.layout().stations[station].servers.unwrap_or(1) as f64;
            (self.busy_time[station] - busy[station]) as f64 / SECOND / seconds / servers
        });
        ((self.finished + self.failed - ended) as f64 / seconds, utilisation.collect())
    }

    /// The most bytes that were ever held.
    pub(crate) fn peak(&mut self) -> u64 {
        self.state.snapshot().space(Space::HOST).expect("named").peak.0
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.jobs.len() - self.waiting
    }
}
