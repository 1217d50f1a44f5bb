//! A run in virtual time: jobs of two stages on a few workers and a drum, an allocator, a kernel, and one planted fault.
//!
//! It makes the events that a ledger would have told and the samples that a kernel would have given, and knows nothing of how
//! they are judged.

mod plant;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::diagnose::Books;
use crate::sample::Sample;
use crate::sample::allocator::AllocatorMemory;
use crate::sample::device::DeviceMemory;
use crate::sample::groups::GroupMemory;
use crate::sample::machine::MachineMemory;
use crate::sample::others::Others;
use crate::sample::process::ProcessMemory;
use crate::trace::{Event, Subject, What};

pub(super) use self::plant::Plant;

/// Numbers that are the same for the same seed.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        (0..8).for_each(|_| {
            random.unit();
        });
        random
    }

    /// Between 0 and 1.
    pub(super) fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Between two numbers, every size as likely as every other.
    pub(super) fn scaled(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    pub(super) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    pub(super) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[((self.unit() * from.len() as f64) as usize).min(from.len() - 1)]
    }
}

/// Which allocator the process has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Heap {
    Jemalloc,
    Glibc,
    Silent,
}

/// A run.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) plant: Plant,
    pub(super) heap: Heap,
    pub(super) jobs: usize,
    pub(super) workers: usize,
    /// Bytes of a job in its first and in its second stage.
    pub(super) bytes: [f64; 2],
    /// Mean seconds of a stage.
    pub(super) seconds: [f64; 2],
    /// How much sizes, times and what is read vary.
    pub(super) noise: f64,
    pub(super) samples: usize,
    /// Buffers are allocated as they are filled, not all at once.
    pub(super) gradual: bool,
    /// Jobs come in eight bursts with rests between them.
    pub(super) rests: bool,
    pub(super) seed: u64,
}

#[derive(Clone, Debug)]
struct Job {
    id: u64,
    stage: usize,
    /// Begin and length of its stage.
    began: f64,
    length: f64,
    running: bool,
    held: f64,
}

const GIB: f64 = (1_u64 << 30) as f64;

impl World {
    /// Any run with this plant: sizes from a megabyte to gigabytes, one worker to eight.
    pub(super) fn any(plant: Plant, seed: u64) -> World {
        let mut random = Random::new(seed);
        let large = random.scaled(12e6, 4.0 * GIB);
        let first = random.between(0.3, 1.0);
        World {
            plant,
            heap: random.pick(&[Heap::Jemalloc, Heap::Glibc, Heap::Silent]),
            jobs: random.scaled(60.0, 400.0) as usize,
            workers: random.pick(&[1, 2, 2, 3, 4, 6, 8]),
            bytes: [large * first, large],
            seconds: [random.scaled(0.2, 30.0), random.between(0.2, 0.9)],
            noise: random.between(0.01, 0.25),
            samples: random.scaled(150.0, 900.0) as usize,
            gradual: random.chance(0.3),
            rests: false,
            seed,
        }
    }

    /// Plays it, and gives the books.
    pub(super) fn play(&self) -> Books {
        Play::new(self).play()
    }
}

struct Play<'w> {
    world: &'w World,
    random: Random,
    books: Books,
    sequence: u64,
    now: f64,
    ends: BinaryHeap<(Reverse<u64>, usize)>,
    jobs: Vec<Job>,
    /// Jobs that have made their first stage and wait for the drum.
    queue: VecDeque<usize>,
    started: usize,
    done: usize,
    busy: usize,
    drum: usize,
    held: f64,
    /// Live bytes besides the jobs': in the allocator, and outside.
    extra: f64,
    mapped: f64,
    /// Addresses that were asked for and are not touched, and memory that was freed and not taken.
    sparse: f64,
    freed: f64,
    card: f64,
    /// What the ledger counts on the card.
    card_held: f64,
    reservations: VecDeque<(u64, f64)>,
    taken: f64,
    grown: f64,
    peak: f64,
    kept: f64,
    drift: f64,
    hung: usize,
}

impl<'w> Play<'w> {
    fn new(world: &'w World) -> Self {
        Self {
            world,
            random: Random::new(world.seed ^ 0xabcdef),
            books: Books::new(),
            sequence: 0,
            now: 0.0,
            ends: BinaryHeap::new(),
            jobs: Vec::new(),
            queue: VecDeque::new(),
            started: 0,
            done: 0,
            busy: 0,
            drum: 0,
            held: 0.0,
            extra: 0.0,
            mapped: 0.0,
            sparse: 0.0,
            freed: 0.0,
            card: 0.0,
            card_held: 0.0,
            reservations: VecDeque::new(),
            taken: 0.0,
            grown: 0.0,
            peak: 0.0,
            kept: 0.0,
            drift: 0.0,
            hung: 0,
        }
    }

    /// About how long the run takes.
    fn length(&self) -> f64 {
        let world = self.world;
        let source = world.jobs as f64 * world.seconds[0] / world.workers as f64;
        match world.plant {
            _ if self.bursts().is_some() => source * 2.0,
            Plant::Backlog { factor } => source * (1.0 + factor) / 2.0,
            Plant::FullBacklog { factor, .. } => source * factor,
            _ => source,
        }
    }

    fn drum_seconds(&self) -> f64 {
        let per_job = self.world.seconds[0] / self.world.workers as f64;
        match self.world.plant {
            Plant::Backlog { factor } | Plant::FullBacklog { factor, .. } => per_job * factor,
            _ => per_job * self.world.seconds[1],
        }
    }

    fn play(mut self) -> Books {
        let length = self.length();
        let period = length / self.world.samples as f64;
        let mut next_sample = 0.0;
        self.sample();
        loop {
            self.admit();
            let next = self.ends.peek().map(|(Reverse(at), _)| *at as f64 / 1e9);
            let next = next.unwrap_or(f64::INFINITY).min(self.next_burst());
            // Where nothing goes on, the run is over.
            let over = self.started >= self.world.jobs && self.busy + self.drum <= self.hung && self.queue.is_empty();
            // A backlog is looked at while the source runs; a real run would be killed by then.
            let killed = matches!(self.world.plant, Plant::Backlog { .. }) && self.started >= self.world.jobs;
            if !over && !killed && !next.is_finite() && self.limit().is_some() {
                // Everything stands still, and somebody looks on for a while.
                let until = self.now + length * 0.5;
                while next_sample < until {
                    self.now = next_sample;
                    self.sample();
                    next_sample += period;
                }
                break;
            }
            if over || killed || !next.is_finite() {
                break;
            }
            while next_sample <= next {
                self.now = next_sample;
                self.sample();
                next_sample += period;
            }
            self.now = next;
            if self.ends.peek().is_some_and(|(Reverse(at), _)| *at as f64 / 1e9 <= next)
                && let Some((_, job)) = self.ends.pop()
            {
                self.stage_over(job);
            }
        }
        if !matches!(self.world.plant, Plant::Backlog { .. }) {
            self.now += period;
            self.sample();
        }
        self.books
    }

    /// In how many bursts jobs come, if they do.
    fn bursts(&self) -> Option<f64> {
        match self.world.plant {
            Plant::Bursts { count } => Some(count),
            _ if self.world.rests => Some(8.0),
            _ => None,
        }
    }

    fn next_burst(&self) -> f64 {
        let Some(count) = self.bursts() else { return f64::INFINITY };
        if self.started >= self.world.jobs {
            return f64::INFINITY;
        }
        let burst = self.length() / count;
        ((self.now / burst).floor() + 1.0) * burst + 1e-6
    }

    fn open(&self) -> bool {
        let Some(count) = self.bursts() else { return true };
        let burst = self.length() / count;
        (self.now / burst).fract() < 0.5
    }

    fn event(&mut self, id: Option<(u64, bool)>, stage: Option<usize>, what: What) {
        self.sequence += 1;
        let names: [Arc<str>; 2] = ["synthesise".into(), "prove".into()];
        let subject = id.map(|(id, is_job)| Subject {
            id,
            name: format!("{} {id}", if is_job { "job" } else { "entry" }).into(),
            is_job,
            stage: stage.map(|stage| names[stage].clone()),
        });
        self.books.event(&Event { sequence: Some(self.sequence), time: (self.now * 1e9) as u64, subject, what });
    }

    fn charge(&mut self, id: u64, is_job: bool, stage: Option<usize>, delta: f64) {
        if delta.abs() < 1.0 {
            return;
        }
        self.held += delta;
        let class = if is_job { "provers" } else { "results" };
        let what =
            What::Changed { class: class.into(), space: "host".into(), delta: delta as i64, held: self.held as u64 };
        self.event(Some((id, is_job)), stage, what);
    }

    /// The ledger's limit, where it has one.
    fn limit(&self) -> Option<f64> {
        let (large, noise) = (self.world.bytes[1], self.world.noise);
        match self.world.plant {
            Plant::Ceiling { jobs } => Some(jobs * large * (1.0 + noise)),
            Plant::FullBacklog { jobs, .. } => Some(jobs * large * (1.0 + noise)),
            // Half of it for the jobs: so that it is full by the middle of the run.
            Plant::FullOfStuck { part } => {
                let workers = self.world.workers as f64;
                Some((workers + 4.0) * large * (1.0 + noise) + self.world.jobs as f64 * 0.4 * part * large)
            }
            _ => None,
        }
    }

    /// What a job holds on the card while the drum has it.
    fn on_card(&mut self, id: u64, delta: f64) {
        if !matches!(self.world.plant, Plant::CardUncounted { .. }) {
            return;
        }
        self.card_held += delta;
        let held = self.card_held as u64;
        let what = What::Changed { class: "buckets".into(), space: "device0".into(), delta: delta as i64, held };
        self.event(Some((id, true)), Some(1), what);
    }

    fn vary(&mut self, mean: f64) -> f64 {
        let noise = self.world.noise;
        mean * self.random.between(1.0 - noise, 1.0 + noise)
    }

    fn admit(&mut self) {
        // Without a bound the source never stops; with one, a few jobs wait for the drum.
        let bounded = !matches!(self.world.plant, Plant::Backlog { .. } | Plant::FullBacklog { .. });
        // What is kept shows when less is needed than before.
        let fewer = self.world.plant == Plant::Retention && self.started * 5 > self.world.jobs * 2;
        let workers = if fewer { self.world.workers / 3 } else { self.world.workers }.max(1);
        while self.busy < workers && self.started < self.world.jobs && self.open() && (!bounded || self.queue.len() < 2)
        {
            let bytes = self.vary(self.world.bytes[0]).round();
            let next = self.held + self.world.bytes[1] * (1.0 + self.world.noise);
            if self.limit().is_some_and(|limit| next > limit) {
                break;
            }
            let id = self.started as u64 + 1;
            self.started += 1;
            self.busy += 1;
            self.event(Some((id, true)), None, What::Submitted);
            self.event(Some((id, true)), Some(0), What::Asked);
            self.event(Some((id, true)), Some(0), What::Granted);
            self.charge(id, true, Some(0), bytes);
            let mut length = self.vary(self.world.seconds[0]);
            if let Plant::LongJob { times } = self.world.plant
                && self.started == self.world.jobs / 2
            {
                length *= times;
            }
            self.jobs.push(Job { id, stage: 0, began: self.now, length, running: true, held: bytes });
            let index = self.jobs.len() - 1;
            let hangs = matches!(self.world.plant, Plant::Hung { jobs } if self.hung < jobs && id as usize > self.world.jobs / 4);
            if hangs {
                // Its worker goes on with others, as a thread that was given up on would not.
                self.hung += 1;
                self.busy -= 1;
            } else {
                self.ends.push((Reverse(((self.now + length) * 1e9) as u64), index));
            }
        }
        while self.drum < 1 && !self.queue.is_empty() {
            let index = self.queue.pop_front().expect("not empty");
            self.drum += 1;
            let length = {
                let mean = self.drum_seconds();
                self.vary(mean)
            };
            let bytes = self.vary(self.world.bytes[1]).round();
            let (id, more) = (self.jobs[index].id, bytes - self.jobs[index].held);
            self.event(Some((id, true)), Some(1), What::Asked);
            self.event(Some((id, true)), Some(1), What::Granted);
            self.charge(id, true, Some(1), more);
            let card = (self.world.bytes[1] * 0.5 * (0.5 + (id % 7) as f64 / 7.0)).round();
            self.on_card(id, card);
            let job = &mut self.jobs[index];
            (job.stage, job.began, job.length, job.running, job.held) = (1, self.now, length, true, bytes);
            self.ends.push((Reverse(((self.now + length) * 1e9) as u64), index));
        }
    }

    fn stage_over(&mut self, index: usize) {
        let (id, stage) = (self.jobs[index].id, self.jobs[index].stage);
        self.event(Some((id, true)), Some(stage), What::StageEnded);
        self.jobs[index].running = false;
        if stage == 0 {
            self.busy -= 1;
            self.queue.push_back(index);
            return;
        }
        self.drum -= 1;
        self.done += 1;
        self.on_card(id, -(self.world.bytes[1] * 0.5 * (0.5 + (id % 7) as f64 / 7.0)).round());
        let held = self.jobs[index].held;
        let stays = matches!(self.world.plant, Plant::StuckJob { odds, .. } if self.random.chance(odds));
        if stays {
            if matches!(self.world.plant, Plant::StuckJob { memory: true, .. }) {
                self.extra += held;
            }
        } else {
            self.charge(id, true, Some(1), -held);
        }
        self.jobs[index].held = 0.0;
        self.event(Some((id, true)), None, What::Ended);
        self.job_done();
    }

    fn job_done(&mut self) {
        let large = self.world.bytes[1];
        let progress = self.done as f64 / self.world.jobs as f64;
        match self.world.plant {
            Plant::WarmUp { part, until } => self.extra = part * large * (progress / until).min(1.0).sqrt(),
            Plant::Cache { part, until } => self.extra = part * large * (progress / until).min(1.0),
            Plant::Leak { part, odds, mapped } if self.random.chance(odds) => {
                let bytes = self.vary(part * large / odds);
                if mapped { self.mapped += bytes } else { self.extra += bytes }
            }
            Plant::CountedCache { entries } => {
                let bytes = self.vary(large * 0.1).round();
                self.reserve(bytes);
                self.extra += bytes;
                if self.reservations.len() > entries {
                    self.extra -= self.release();
                }
            }
            Plant::StuckReservation { part, odds, memory } if self.random.chance(odds) => {
                let bytes = self.vary(part * large).round();
                self.reserve(bytes);
                self.extra += if memory { bytes } else { 0.0 };
            }
            Plant::GrowingReservation { part, memory } => {
                let bytes = self.vary(part * large).round();
                self.grown += bytes;
                self.charge(1_000_000, false, None, bytes);
                self.extra += if memory { bytes } else { 0.0 };
            }
            Plant::SlowTaker { part, rate } => {
                let bytes = self.vary(part * large).round();
                self.reserve(bytes);
                self.extra += bytes;
                self.taken += rate;
                while self.taken >= 1.0 && !self.reservations.is_empty() {
                    self.taken -= 1.0;
                    self.extra -= self.release();
                }
            }
            Plant::LateLeak { part, from } if progress > from => {
                let bytes = self.vary(part * large);
                self.extra += bytes;
            }
            Plant::Accelerating { part } => self.extra = part * large * progress.powi(3),
            Plant::Stepped { part, at } => {
                let steps = [0.0, 0.25, 0.5].map(|more| at + more);
                self.extra = part * large * steps.iter().filter(|at| progress >= **at).count() as f64;
            }
            Plant::Wave { part, swing } => {
                let wave = (progress * 6.0 * std::f64::consts::TAU).sin() + 1.0;
                self.extra = large * (part * progress + swing * wave);
            }
            Plant::Slowing { part, root } => {
                self.extra = part * large * if root { progress.sqrt() } else { (1.0 + 60.0 * progress).ln() / 4.0 };
            }
            Plant::Tables { count } => {
                let at = |table: usize| (table + 1) as f64 / (count + 1) as f64 + 0.02;
                let due = (0..count).filter(|table| progress >= at(*table)).count();
                while self.reservations.len() < due {
                    let bytes = (large * 0.4).round();
                    self.reserve(bytes);
                    self.extra += bytes;
                }
            }
            Plant::Sparse { part } => self.sparse += part * large,
            Plant::LazilyFreed { part } => self.freed += part * large,
            Plant::FullOfStuck { part } => {
                let bytes = self.vary(part * large).round();
                self.reserve(bytes);
                self.extra += bytes;
            }
            Plant::CardLeak { part, .. } => self.card += self.random.between(0.5, 1.5) * part * large,
            _ => {}
        }
    }

    fn reserve(&mut self, bytes: f64) {
        let id = 2_000_000 + self.sequence;
        self.charge(id, false, None, bytes);
        self.reservations.push_back((id, bytes));
    }

    fn release(&mut self) -> f64 {
        let Some((id, bytes)) = self.reservations.pop_front() else { return 0.0 };
        self.charge(id, false, None, -bytes);
        self.event(Some((id, false)), None, What::Ended);
        bytes
    }

    /// What jobs have really touched: a stage touches its buffers over its first half. `all`: as if it had touched all of them.
    fn touched(&self, all: bool) -> f64 {
        let of = |job: &Job| {
            let part =
                if job.running && !all { ((self.now - job.began) / job.length * 2.0).clamp(0.0, 1.0) } else { 1.0 };
            let before = if job.stage == 0 { 0.0 } else { self.world.bytes[0].min(job.held) };
            let more = match self.world.plant {
                Plant::Uncounted { stage, part } if job.running && stage == job.stage => 1.0 + part,
                _ => 1.0,
            };
            (before + (job.held - before) * part) * more
        };
        self.jobs.iter().filter(|job| job.held > 0.0).map(of).sum()
    }

    /// What the process's children hold, of so much: nearly all, from the middle of the run on.
    fn children(&self, of: f64) -> f64 {
        of.max(0.0) * 0.9 * ((self.now / self.length() - 0.3) * 4.0).clamp(0.0, 1.0)
    }

    fn sample(&mut self) {
        let large = self.world.bytes[1];
        let along = self.now / self.length();
        if let Plant::IdleLeak { part } = self.world.plant {
            self.extra = part * large * along;
        }
        let base = 6e6 + large * 0.02;
        let live = base + self.touched(false) + self.extra;
        let taken = if self.world.gradual { live } else { base + self.touched(true) + self.extra } + self.sparse;
        self.peak = self.peak.max(live);
        // What is read wanders a little.
        self.drift = 0.9 * self.drift + self.random.between(-1.0, 1.0) * 0.004 * large;
        let small = self.random.between(0.0, 0.03) * large;
        let kept = match self.world.plant {
            Plant::Retention => self.peak - live,
            _ => small,
        };
        self.kept = kept;
        let lost = match self.world.plant {
            Plant::Fragmentation { part } => live * part,
            _ => live * 0.02,
        };
        let jemalloc = self.world.heap == Heap::Jemalloc;
        let heap = live + kept + if jemalloc { lost } else { 0.0 } + 2e6;
        let anonymous = heap + self.mapped + self.freed + 3e6 + self.drift.abs();
        let allocator = match self.world.heap {
            Heap::Jemalloc => Some(AllocatorMemory {
                name: "jemalloc".to_owned(),
                allocated_bytes: taken as u64,
                active_bytes: Some((taken + lost) as u64),
                resident_bytes: Some((heap + taken - live) as u64),
                metadata_bytes: Some(2_000_000),
                muzzy_bytes: Some(self.freed as u64),
                ..AllocatorMemory::default()
            }),
            Heap::Glibc => Some(AllocatorMemory {
                name: "glibc".to_owned(),
                allocated_bytes: taken as u64,
                mapped_bytes: Some((taken + kept + 1e6) as u64),
                free_bytes: Some((kept + 1e6) as u64),
                ..AllocatorMemory::default()
            }),
            Heap::Silent => None,
        };
        let total = large * 64.0 + 4.0 * GIB;
        let file = 9e6 * (along * 20.0).min(1.0)
            + match self.world.plant {
                Plant::Dataset { part } => part * large * along.min(1.0),
                _ => 0.0,
            };
        let others = {
            let quiet = total * 0.2 + total * 0.01 * self.random.unit();
            match self.world.plant {
                Plant::Neighbour { left, from, over } => {
                    let progress = ((self.now / self.length() - from) / over).clamp(0.0, 1.0);
                    quiet + (total * (1.0 - left) - quiet - anonymous).max(0.0) * progress
                }
                Plant::Children => quiet + self.children(total - quiet - anonymous),
                _ => quiet,
            }
        };
        let (own, is_own) = match self.world.plant {
            Plant::CardLeak { own, .. } => (self.card, own),
            _ => (0.0, true),
        };
        let uncounted = match self.world.plant {
            Plant::CardUncounted { part } => self.card_held * (1.0 + part),
            _ => self.card_held,
        };
        let on_card = 5e8 + large * 0.01 * self.random.unit() + own + uncounted;
        let device = DeviceMemory {
            device: 0,
            total_bytes: (large * 1000.0) as u64 + (1 << 40),
            free_bytes: ((large * 1000.0) as u64 + (1 << 40)) - on_card as u64,
            own_bytes: is_own.then_some(on_card as u64),
            ..DeviceMemory::default()
        };
        let limit = self.limit();
        let idle = self.busy < self.world.workers && self.started < self.world.jobs && self.now > 0.0;
        let sample = Sample {
            time: (self.now * 1e9) as u64,
            process: Some(ProcessMemory {
                resident_bytes: (anonymous + file) as u64,
                anonymous_bytes: anonymous as u64,
                file_bytes: file as u64,
                ..ProcessMemory::default()
            }),
            allocator,
            machine: Some(MachineMemory {
                total_bytes: total as u64,
                available_bytes: Some((total - others - anonymous).max(0.0) as u64),
                ..MachineMemory::default()
            }),
            devices: vec![device],
            others: matches!(self.world.plant, Plant::Children).then(|| Others {
                resident_bytes: others as u64,
                children_bytes: self.children(total * 0.79 - anonymous) as u64,
                ..Others::default()
            }),
            group: matches!(self.world.plant, Plant::PageCache).then(|| {
                // The group has little beyond what is anonymous; the rest fills with pages of files that were used lately.
                let limit = large * 24.0 + GIB;
                let files = (limit * 0.93 - anonymous).max(0.0) * (along * 2.0).min(1.0);
                GroupMemory {
                    limit_bytes: limit as u64,
                    used_bytes: (anonymous + files) as u64,
                    anonymous_bytes: Some(anonymous as u64),
                    ..GroupMemory::default()
                }
            }),
            ledger_limit: limit.map(|limit| limit as u64),
            waiting_for_memory: Some(u64::from(limit.is_some() && idle)),
            ..Sample::default()
        };
        self.books.sample(sample);
    }
}
