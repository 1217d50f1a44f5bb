//! The machine: what runs, how long it takes, what is really held, and what is remembered of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use plimsoll::observe::What;
use plimsoll::pool::order::{Rank, Turn};
use plimsoll::{Bytes, Slots, Space};
use slab::Slab;

use super::clock::{Clocks, Due, Growing};
use super::memory::Memory;
use super::plan::{self, CircuitPlan};
use super::record::{self, Recorder};
use super::stats::{End, Histogram, Outcome};
use super::{Options, Progress};
use crate::Nanos;
use crate::random::{Random, Times, Use};
use crate::workload::{Arrivals, PolicyKind, Site, Workload};

/// Virtual time beyond which nothing is looked at: 146 years, so that sums of times stay numbers.
const HORIZON: u64 = 1 << 62;

/// A job whose work was thrown away so often, and no job came to its end in between, will not come to its own.
const THROWN_MAX: u32 = 100;

/// After how many steps whoever waits for the end is told how far it is.
const STEPS_TOLD: u64 = 1 << 13;

/// What decides who may go on.
pub(super) trait Admission {
    /// There may be jobs to let in.
    fn supply(&mut self, core: &mut Core<'_>);
    /// A stage of a job has ended; what it held no longer is.
    fn stage_ended(&mut self, core: &mut Core<'_>, job: u32, failed: bool);
    /// The rest of what may come.
    fn due(&mut self, core: &mut Core<'_>, due: Due);
    /// The most that the ledger has charged, where there is one.
    fn charged_peak(&mut self) -> Option<u64>;
    /// The pacers' tokens, where there are any.
    fn tokens(&self) -> Vec<Vec<u64>>;
}

/// A job on its way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Job {
    pub(super) circuit: u16,
    pub(super) stream: u16,
    pub(super) proof: u32,
    /// Numbers the jobs of a stream.
    pub(super) serial: u64,
    pub(super) stage: u16,
    pub(super) device: u16,
    /// When it first asked to start; when its stage was granted and began.
    pub(super) asked: u64,
    pub(super) granted: u64,
    pub(super) began: u64,
    pub(super) runs: bool,
    /// Its stage is granted, and it may wait for a worker.
    pub(super) is_granted: bool,
    /// It is made, and no device has taken it.
    pub(super) in_backlog: bool,
    pub(super) growing: Option<Growing>,
    pub(super) pieces: u8,
    pub(super) duration: u64,
    /// How often it was refused since it last did anything.
    pub(super) refused: u32,
    /// How often its work was thrown away while so many jobs were done.
    thrown: (u64, u32),
}

#[derive(Clone, Copy, Debug)]
struct Proof {
    left: u32,
    arrived: u64,
    lost: bool,
}

#[derive(Clone, Debug)]
pub(super) struct StreamNow {
    pub(super) circuit: u16,
    /// Proofs that will still arrive by themselves or in the place of others.
    to_come: u64,
    gap: Option<Times>,
    listed: VecDeque<u64>,
    /// A closed loop: one comes for each that is done.
    is_closed: bool,
    arrivals: u64,
    /// Those that have arrived and were not begun: when, and how many.
    arrived: VecDeque<(u64, u64)>,
    /// The proof that is begun: its number, and its parts that are not.
    open: Option<(u32, u32)>,
    serial: u64,
    /// Jobs that have asked to start and wait for that.
    pub(super) asking: u64,
}

pub(super) struct Core<'a> {
    pub(super) workload: &'a Workload,
    pub(super) circuits: Vec<CircuitPlan>,
    pub(super) now: u64,
    pub(super) clocks: Clocks,
    pub(super) memory: Memory,
    pub(super) jobs: Slab<Job>,
    pub(super) streams: Vec<StreamNow>,
    pub(super) random: Random,
    pub(super) recorder: Option<Recorder<'a>>,
    /// The timeline is of what is really held, not of what a ledger charges.
    is_peer: bool,
    /// Devices that were lost: what runs on them fails.
    pub(super) lost_devices: Vec<u16>,
    proofs: Slab<Proof>,
    workers_free: u64,
    queue: BinaryHeap<Reverse<(Rank, u32)>>,
    limit: u64,
    events_max: u64,
    progress: Option<&'a mut dyn FnMut(&Progress)>,
    pub(super) events: u64,
    pub(super) end: Option<End>,
    proofs_left: u64,
    /// All jobs that there will be, after how many of them the steady state begins, and when it did.
    jobs_in_all: u64,
    quarter: (u64, Option<u64>),
    done: u64,
    lost: u64,
    jobs_done: u64,
    late: u64,
    device_time: u64,
    backlog: u64,
    backlog_peak: u64,
    wait_longest: u64,
    proof_first: u64,
    proof_longest: u64,
    proof_times: Histogram,
    pub(super) thrown_away: u64,
}

impl<'a> Core<'a> {
    pub(super) fn new(workload: &'a Workload, options: Options<'a>, is_peer: bool) -> Core<'a> {
        let machine = &workload.machine;
        let slopes = plan::slopes(workload);
        let mut memory = Memory::new(machine.runtime, machine.devices);
        let circuits = workload.circuits.iter().map(|circuit| {
            let circuit = if workload.policy.early_free { circuit.clone() } else { circuit.without_early_free() };
            CircuitPlan::new(circuit, workload, &slopes, &mut memory)
        });
        let circuits = circuits.collect();
        let all: u64 = workload.streams.iter().map(|stream| stream.proofs).sum();
        let jobs =
            |stream: &crate::workload::Stream| stream.proofs * u64::from(workload.circuits[stream.circuit].parts);
        let jobs_in_all: u64 = workload.streams.iter().map(jobs).sum();
        let mut core = Core {
            workload,
            circuits,
            now: 0,
            clocks: Clocks::new(&slopes),
            memory,
            jobs: Slab::new(),
            streams: Vec::new(),
            random: Random::new(workload.seed),
            recorder: options.timeline.map(Recorder::new),
            is_peer,
            lost_devices: Vec::new(),
            proofs: Slab::new(),
            workers_free: machine.workers,
            queue: BinaryHeap::new(),
            limit: machine.memory - machine.others,
            events_max: options.events_max,
            progress: options.progress,
            events: 0,
            end: None,
            proofs_left: all,
            jobs_in_all,
            quarter: (jobs_in_all.div_ceil(4), None),
            done: 0,
            lost: 0,
            jobs_done: 0,
            late: 0,
            device_time: 0,
            backlog: 0,
            backlog_peak: 0,
            wait_longest: 0,
            proof_first: 0,
            proof_longest: 0,
            proof_times: Histogram::new(),
            thrown_away: 0,
        };
        core.open_streams();
        if let Some(recorder) = &mut core.recorder {
            let limit = match workload.policy.kind {
                PolicyKind::Plimsoll { budget, .. } => budget.saturating_sub(machine.runtime),
                _ => core.limit,
            };
            recorder.note(0, None, What::Resized { space: Space::HOST, limit: Bytes(limit) });
            for device in 0..machine.devices {
                let space = Space::device(device);
                recorder.note(0, None, What::Resized { space, limit: Bytes(machine.device_memory) });
                recorder.note(0, None, What::ResizedSlots { slots: Slots::lease(device), limit: 1 });
            }
        }
        core
    }

    fn open_streams(&mut self) {
        for (number, stream) in self.workload.streams.iter().enumerate() {
            let mut now = StreamNow {
                circuit: stream.circuit as u16,
                to_come: stream.proofs,
                gap: None,
                listed: VecDeque::new(),
                is_closed: matches!(stream.arrivals, Arrivals::ClosedLoop(_)),
                arrivals: 0,
                arrived: VecDeque::new(),
                open: None,
                serial: 0,
                asking: 0,
            };
            let at_once = match &stream.arrivals {
                Arrivals::Batch => stream.proofs,
                Arrivals::ClosedLoop(jobs) => *jobs.min(&stream.proofs),
                Arrivals::Poisson(mean) => {
                    now.gap = Some(Times::new(&crate::random::Law::Exponential(*mean)));
                    0
                }
                Arrivals::Every(gap) => {
                    now.gap = Some(Times::new(&crate::random::Law::Fixed(*gap)));
                    0
                }
                Arrivals::At(times) => {
                    now.listed = times.iter().take(stream.proofs as usize).map(|time| time.0).collect();
                    now.to_come = now.listed.len() as u64;
                    self.proofs_left -= stream.proofs - now.to_come;
                    0
                }
            };
            if at_once > 0 {
                now.to_come -= at_once;
                now.arrived.push_back((0, at_once));
            }
            self.streams.push(now);
            self.await_arrival(number as u32);
        }
    }

    fn await_arrival(&mut self, number: u32) {
        let stream = &mut self.streams[number as usize];
        if stream.to_come == 0 {
            return;
        }
        let at = match (&stream.gap, stream.listed.pop_front()) {
            (_, Some(at)) => at,
            (Some(gap), None) => {
                self.now.saturating_add(gap.pick(self.random.bits(u64::from(number), stream.arrivals, Use::Arrival)))
            }
            (None, None) => return,
        };
        stream.arrivals += 1;
        let wait = at.saturating_sub(self.now);
        self.clocks.set(0, self.now, wait, Due::Arrival(number));
    }

    /// Runs to the end.
    pub(super) fn run(mut self, mut admission: impl Admission) -> Outcome {
        admission.supply(&mut self);
        let mut steps = 0;
        while self.end.is_none() && self.proofs_left > 0 {
            steps += 1;
            if steps % STEPS_TOLD == 0 {
                self.tell();
            }
            let Some((time, clock)) = self.clocks.next() else {
                self.end = Some(End::Stuck { waiting: self.jobs.len() as u64 });
                break;
            };
            if time > HORIZON {
                self.end = Some(End::TooLong);
                break;
            }
            self.now = time;
            let growing = self.clocks.growing_bytes(time);
            let held = self.memory.look(growing);
            if self.recorder.is_some() {
                self.see(held);
            }
            if held > self.limit {
                self.end = Some(End::OutOfMemory);
                break;
            }
            self.events += 1;
            if self.events >= self.events_max {
                self.end = Some(End::TooManyEvents);
                break;
            }
            match self.clocks.pop(clock, time) {
                Due::StageEnd(job) => {
                    let failed = self.end_stage(job);
                    admission.stage_ended(&mut self, job, failed);
                    admission.supply(&mut self);
                }
                Due::Arrival(stream) => {
                    let now = &mut self.streams[stream as usize];
                    now.to_come -= 1;
                    now.arrived.push_back((time, 1));
                    self.await_arrival(stream);
                    admission.supply(&mut self);
                }
                Due::Grown(job) => self.note_growth(job),
                due => {
                    admission.due(&mut self, due);
                    admission.supply(&mut self);
                }
            }
        }
        self.outcome(admission.charged_peak(), admission.tokens())
    }

    fn tell(&mut self) {
        let (time, events, proofs) = (Nanos(self.now), self.events, self.done + self.lost);
        if let Some(progress) = &mut self.progress {
            progress(&Progress { time, events, proofs, proofs_left: self.proofs_left });
        }
    }

    /// The outcome of a workload that could not begin.
    pub(super) fn refused(mut self, why: String) -> Outcome {
        self.end = Some(End::Refused { why });
        self.outcome(None, Vec::new())
    }

    fn outcome(self, charged_peak: Option<u64>, tokens: Vec<Vec<u64>>) -> Outcome {
        let per = |time: u64, proofs: u64| if proofs == 0 { 0.0 } else { time as f64 * 1e-9 / proofs as f64 };
        let steady = match self.quarter {
            (first, Some(began)) if self.jobs_done > first => {
                let proofs: u64 = self.workload.streams.iter().map(|stream| stream.proofs).sum();
                per(self.now - began, self.jobs_done - first) * self.jobs_in_all as f64 / proofs as f64
            }
            _ => per(self.now, self.done),
        };
        let whole = self.now.max(1) as f64 * f64::from(self.workload.machine.devices.max(1));
        Outcome {
            end: self.end.unwrap_or(End::Done),
            time: Nanos(self.now),
            proofs: self.done,
            proofs_lost: self.lost,
            jobs: self.jobs_done,
            late: self.late,
            seconds_per_proof: per(self.now, self.done),
            seconds_per_proof_steady: steady,
            host_peak: self.memory.host_peak().min(self.limit),
            host_peak_by_class: self.memory.at_peak(),
            charged_peak: charged_peak.map(|charged| charged + self.workload.machine.runtime),
            device_peak: self.memory.device_peak(),
            device_busy: self.device_time as f64 / whole,
            backlog_peak: self.backlog_peak,
            backlog: self.backlog,
            wait_longest: Nanos(self.wait_longest),
            proof_first: Nanos(self.proof_first),
            proof_longest: Nanos(self.proof_longest),
            // A class's middle may lie beyond the longest in it.
            proof_median: Nanos(self.proof_times.quantile(500).min(self.proof_longest)),
            proof_p99: Nanos(self.proof_times.quantile(990).min(self.proof_longest)),
            thrown_away: self.thrown_away,
            events: self.events,
            tokens,
        }
    }

    /// The next job of a stream that is to ask, if there is one.
    pub(super) fn next_job(&mut self, number: usize) -> Option<u32> {
        let stream = &mut self.streams[number];
        let circuit = &self.circuits[usize::from(stream.circuit)].circuit;
        let (proof, left) = match stream.open {
            Some(open) => open,
            None => {
                let (arrived, count) = stream.arrived.front_mut()?;
                let proof = Proof { left: circuit.parts, arrived: *arrived, lost: false };
                *count -= 1;
                if *count == 0 {
                    stream.arrived.pop_front();
                }
                (self.proofs.insert(proof) as u32, circuit.parts)
            }
        };
        stream.open = (left > 1).then_some((proof, left - 1));
        let job = Job {
            circuit: stream.circuit,
            stream: number as u16,
            proof,
            serial: stream.serial,
            stage: 0,
            device: 0,
            asked: self.now,
            granted: self.now,
            began: self.now,
            runs: false,
            is_granted: false,
            in_backlog: false,
            growing: None,
            pieces: 0,
            duration: 0,
            refused: 0,
            thrown: (0, 0),
        };
        stream.serial += 1;
        stream.asking += 1;
        Some(self.jobs.insert(job) as u32)
    }

    /// A job that asked may start.
    pub(super) fn started(&mut self, job: u32) {
        let job = &self.jobs[job as usize];
        self.wait_longest = self.wait_longest.max(self.now - job.asked);
        self.streams[usize::from(job.stream)].asking -= 1;
    }

    pub(super) fn stage(&self, job: u32) -> &plan::StagePlan {
        let job = &self.jobs[job as usize];
        &self.circuits[usize::from(job.circuit)].stages[usize::from(job.stage)]
    }

    /// Whether the job's stage is its last.
    pub(super) fn is_last(&self, job: u32) -> bool {
        let job = &self.jobs[job as usize];
        usize::from(job.stage) + 1 == self.circuits[usize::from(job.circuit)].stages.len()
    }

    /// The job's stage waits for a worker.
    pub(super) fn queue(&mut self, job: u32, in_arrival_order: bool) {
        let now = self.jobs[job as usize];
        let plan = &self.circuits[usize::from(now.circuit)];
        let arrival = self.clocks.ticket();
        let rank = if in_arrival_order {
            Rank::new(Turn::UnderWay, 0, 0, arrival)
        } else {
            let turn = if now.stage == 0 { Turn::NewJob } else { Turn::UnderWay };
            let left = plan.stages.len() - 1 - usize::from(now.stage);
            Rank::new(turn, left, plan.circuit.priority, arrival)
        };
        self.queue.push(Reverse((rank, job)));
    }

    /// Workers that are free take what waits.
    pub(super) fn serve(&mut self, began: &mut dyn FnMut(&mut Core<'_>, u32)) {
        while self.workers_free > 0
            && let Some(Reverse((_, job))) = self.queue.pop()
        {
            self.workers_free -= 1;
            self.begin(job);
            began(self, job);
        }
    }

    /// A job's stage begins.
    pub(super) fn begin(&mut self, number: u32) {
        let Core { now, circuits, jobs, memory, clocks, .. } = self;
        let now = *now;
        let job = &mut jobs[number as usize];
        let plan = &circuits[usize::from(job.circuit)].stages[usize::from(job.stage)];
        let bits = self.random.bits(u64::from(job.stream), job.serial, Use::Stage(u32::from(job.stage)));
        let duration = plan.time.pick_nth(bits, job.serial).saturating_add(plan.transfer).max(1);
        job.began = now;
        job.runs = true;
        job.duration = duration;
        for &(class, bytes) in &plan.takes {
            memory.add(class.on(job.device), bytes);
        }
        clocks.press(now, plan.pressure);
        job.growing = (plan.grows_bytes > 0).then(|| clocks.grow(plan.clock, now, plan.grows_bytes, duration));
        clocks.set(plan.clock, now, duration, Due::StageEnd(number));
        if plan.on.is_on_device() && std::mem::take(&mut job.in_backlog) {
            self.backlog -= 1;
        }
        if self.recorder.is_some() && self.is_peer {
            self.note_begin(number);
        }
    }

    /// A job's stage ends: its worker is free, and what it does not keep is gone. Whether it has failed.
    fn end_stage(&mut self, number: u32) -> bool {
        let Core { now, circuits, jobs, memory, clocks, .. } = self;
        let now = *now;
        let job = &mut jobs[number as usize];
        let stages = &circuits[usize::from(job.circuit)].stages;
        let plan = &stages[usize::from(job.stage)];
        if let Some(growing) = job.growing.take() {
            clocks.grown(growing);
            for &(class, bytes) in &plan.grows {
                memory.add(class.on(job.device), bytes);
            }
        }
        clocks.press(now, -plan.pressure);
        job.runs = false;
        job.is_granted = false;
        let by_chance = plan.failing_ppb > 0 && {
            let bits = self.random.bits(u64::from(job.stream), job.serial, Use::Failure(u32::from(job.stage)));
            bits % 1_000_000_000 < plan.failing_ppb
        };
        let failed = by_chance || plan.on.is_on_device() && self.lost_devices.contains(&job.device);
        for &(class, bytes) in &plan.gone {
            memory.sub(class.on(job.device), bytes);
        }
        if failed {
            for &(class, bytes) in &plan.keep {
                memory.sub(class.on(job.device), bytes);
            }
        }
        match plan.on {
            Site::Worker => self.workers_free += 1,
            Site::Lane | Site::Outside => {}
            Site::Device => self.device_time += now - job.began,
        }
        let to_device = stages.get(usize::from(job.stage) + 1).is_some_and(|next| next.on.is_on_device());
        if !failed && !plan.on.is_on_device() && to_device {
            job.in_backlog = true;
            self.backlog += 1;
            self.backlog_peak = self.backlog_peak.max(self.backlog);
        }
        if self.recorder.is_some() && self.is_peer {
            self.note_end(number, failed);
        }
        failed
    }

    /// A job is thrown away between two stages, to begin again.
    pub(super) fn throw_away(&mut self, number: u32) {
        let job = self.jobs[number as usize];
        let stages = &self.circuits[usize::from(job.circuit)].stages;
        let before = job.stage.checked_sub(1).map(|before| &stages[usize::from(before)]);
        let gone = before.into_iter().flat_map(|stage| &stage.keep);
        let gone: Vec<_> = gone.map(|&(class, bytes)| (class.on(job.device), bytes)).collect();
        for (class, bytes) in gone {
            self.memory.sub(class, bytes);
            if self.recorder.is_some() && self.is_peer {
                self.note_bytes(number, class, -i128::from(bytes));
            }
        }
        let job = &mut self.jobs[number as usize];
        self.backlog -= u64::from(std::mem::take(&mut job.in_backlog));
        if job.stage > 0 {
            // What it did is lost. Where others were done meanwhile, there is an end to it.
            let before = if job.thrown.0 == self.jobs_done { job.thrown.1 } else { 0 };
            job.thrown = (self.jobs_done, before + 1);
            if job.thrown.1 >= THROWN_MAX {
                self.end = Some(End::NoProgress { thrown_away: self.thrown_away + 1 });
            }
        }
        job.stage = 0;
        self.thrown_away += 1;
        let name = self.name(number);
        if let Some(recorder) = self.recorder.as_mut().filter(|_| self.is_peer) {
            recorder.note(self.now, Some(record::subject(number, &name, None)), What::Restarted);
        }
    }

    /// A job that waits between stages, or to start, is given up: what it kept is gone, and its proof is lost.
    pub(super) fn give_up(&mut self, number: u32) {
        if self.jobs[number as usize].stage == 0 {
            let stream = usize::from(self.jobs[number as usize].stream);
            self.streams[stream].asking -= 1;
        }
        self.throw_away(number);
        self.thrown_away -= 1;
        self.finish(number, true);
    }

    /// A job is over.
    pub(super) fn finish(&mut self, number: u32, failed: bool) {
        let job = self.jobs.remove(number as usize);
        self.jobs_done += u64::from(!failed);
        if self.jobs_done == self.quarter.0 && self.quarter.1.is_none() {
            self.quarter.1 = Some(self.now);
        }
        let proof = &mut self.proofs[job.proof as usize];
        proof.left -= 1;
        proof.lost |= failed;
        if proof.left > 0 {
            return;
        }
        let Proof { arrived, lost, .. } = self.proofs.remove(job.proof as usize);
        self.proofs_left -= 1;
        let stream = &mut self.streams[usize::from(job.stream)];
        if stream.to_come > 0 && stream.is_closed {
            // The next one is asked for.
            stream.to_come -= 1;
            stream.arrived.push_back((self.now, 1));
        }
        if lost {
            self.lost += 1;
            return;
        }
        self.done += 1;
        let took = self.now - arrived;
        if self.done == 1 {
            self.proof_first = took;
        }
        self.proof_longest = self.proof_longest.max(took);
        self.proof_times.add(took);
        let deadline = self.circuits[usize::from(job.circuit)].circuit.deadline;
        self.late += u64::from(deadline.is_some_and(|deadline| took > deadline.0));
    }

    /// The job's name, as a timeline shows it.
    pub(super) fn name(&self, number: u32) -> Arc<str> {
        let job = &self.jobs[number as usize];
        let circuit = &self.circuits[usize::from(job.circuit)].circuit;
        let parts = u64::from(circuit.parts);
        if parts == 1 {
            format!("{} {}", circuit.name, job.serial + 1).into()
        } else {
            format!("{} {}.{}", circuit.name, job.serial / parts + 1, job.serial % parts + 1).into()
        }
    }
}
