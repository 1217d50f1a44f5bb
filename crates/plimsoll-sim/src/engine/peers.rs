//! Engines of the usual kind: a task for each job, a channel, a device's worker, and a policy that says who may go.

use std::collections::VecDeque;

use plimsoll::observe::{Subject, What};

use super::clock::Due;
use super::core::{Admission, Core};
use super::record;
use crate::policies::{
    Count, Grant, Greedy, JobId, Need, OptimisticBudget, Point, Policy, ReserveOrFail, StrictFifo, Unlimited,
};
use crate::workload::{Circuit, PolicyKind, Site, Workload, on_host};

/// How long whoever was refused waits before it tries again; twice as long each time, up to about a minute.
const AGAIN: u64 = 1_000_000_000;
const AGAIN_MAX: u64 = 64 * AGAIN;

struct Card {
    lanes_free: u64,
    leased: bool,
    /// Jobs on a lane that wait for the lease.
    for_lease: VecDeque<u32>,
}

/// The smallest budget with which a peer gets the largest job through: all residencies are loaded for good.
pub(crate) fn smallest_budget(workload: &Workload) -> u64 {
    let peak = |circuit: &Circuit| {
        let circuit = if workload.policy.early_free { circuit.clone() } else { circuit.without_early_free() };
        circuit.holdings().iter().map(|held| on_host(&held.peak)).max().unwrap_or(0)
    };
    let largest = workload.circuits.iter().map(peak).max().unwrap_or(0);
    workload.resident_bytes().saturating_add(workload.machine.runtime).saturating_add(largest)
}

pub(super) struct Peers {
    policy: Box<dyn Policy>,
    grants: Vec<Grant>,
    needs: Vec<Need>,
    /// In the channel, or on their way to a later stage on a device.
    products: VecDeque<u32>,
    cards: Vec<Card>,
    asking: u64,
    woken_at: Option<u64>,
}

impl Peers {
    pub(super) fn new(core: &mut Core<'_>) -> Result<Peers, String> {
        let workload = core.workload;
        let fixed = workload.resident_bytes() + workload.machine.runtime;
        let needs: Vec<Need> = core
            .circuits
            .iter()
            .map(|plan| {
                let peak = plan.holdings.iter().map(|held| on_host(&held.peak)).max().unwrap_or(0);
                // From the last stage on a device on.
                let last = plan.stages.iter().rposition(|stage| stage.on.is_on_device());
                let after = last.map_or(0, |last| {
                    let rest = &plan.holdings[last + 1..];
                    let most = rest.iter().map(|held| on_host(&held.peak)).max();
                    most.unwrap_or(0).max(on_host(&plan.holdings[last].keep))
                });
                Need { peak, freed_early: peak - after.min(peak) }
            })
            .collect();
        workload.fits()?;
        // All residencies are loaded for good before anything else.
        for residency in &workload.residencies {
            let class = core.memory.number(residency.class);
            core.memory.add(class, residency.bytes);
            core.note_resident(class, residency);
        }
        let room = |budget: u64| budget.saturating_sub(fixed);
        let asking = workload.policy.asking;
        let policy: Box<dyn Policy> = match workload.policy.kind {
            PolicyKind::Permits { permits, back, channel } => Box::new(Count::new(permits, back, channel as usize)),
            PolicyKind::OptimisticBudget { budget, gap } => Box::new(OptimisticBudget::new(room(budget), gap)),
            PolicyKind::StrictFifo { budget } => Box::new(StrictFifo::new(room(budget))),
            PolicyKind::ReserveOrFail { budget } => Box::new(ReserveOrFail::new(room(budget))),
            PolicyKind::Greedy { budget } => Box::new(Greedy::new(room(budget))),
            PolicyKind::Unlimited | PolicyKind::Plimsoll { .. } => Box::new(Unlimited),
        };
        let card = || Card { lanes_free: workload.machine.lanes, leased: false, for_lease: VecDeque::new() };
        let cards = (0..workload.machine.devices).map(|_| card()).collect();
        Ok(Peers { policy, grants: Vec::new(), needs, products: VecDeque::new(), cards, asking, woken_at: None })
    }

    fn tell(&mut self, core: &mut Core<'_>, job: u32, point: Point) {
        self.policy.at(JobId::from(job), point, core.now, &mut self.grants);
        self.hear(core);
    }

    /// Does what the policy has said.
    fn hear(&mut self, core: &mut Core<'_>) {
        while !self.grants.is_empty() {
            core.events += self.grants.len() as u64;
            for grant in std::mem::take(&mut self.grants) {
                let (Grant::Start(job) | Grant::HandOver(job) | Grant::Grown(job) | Grant::Refused(job)) = grant;
                let job = job as u32;
                match grant {
                    Grant::Start(_) => {
                        core.started(job);
                        self.next_stage(core, job);
                    }
                    Grant::HandOver(_) => {
                        self.products.push_back(job);
                        self.dispatch(core);
                    }
                    Grant::Grown(_) => {
                        core.jobs[job as usize].refused = 0;
                        self.go_on(core, job);
                    }
                    Grant::Refused(_) => {
                        core.throw_away(job);
                        let stream = usize::from(core.jobs[job as usize].stream);
                        core.streams[stream].asking += 1;
                        let refused = &mut core.jobs[job as usize].refused;
                        let wait = (AGAIN << (*refused).min(6)).min(AGAIN_MAX);
                        *refused += 1;
                        core.clocks.set(0, core.now, wait, Due::Again(job));
                    }
                }
            }
        }
        if let Some(due) = self.policy.due()
            && self.woken_at != Some(due)
        {
            self.woken_at = Some(due);
            core.clocks.set(0, core.now, due.saturating_sub(core.now), Due::Wake);
        }
    }

    /// The job goes on with its stage, as soon as it may: what the stage takes is asked for first, on a device what all stages
    /// there take.
    fn next_stage(&mut self, core: &mut Core<'_>, job: u32) {
        let now = core.jobs[job as usize];
        let stages = &core.circuits[usize::from(now.circuit)].stages[usize::from(now.stage)..];
        let there = stages.iter().take_while(|stage| stage.on.is_on_device()).count().max(1);
        let more: u64 = stages[..there].iter().map(|stage| stage.more).sum();
        if more > 0 {
            self.policy.grow(JobId::from(job), more, core.now, &mut self.grants);
            self.hear(core);
        } else {
            self.go_on(core, job);
        }
    }

    /// The job has what its stage takes.
    fn go_on(&mut self, core: &mut Core<'_>, job: u32) {
        let now = core.jobs[job as usize];
        match core.stage(job).on {
            Site::Outside => core.begin(job),
            Site::Worker => core.queue(job, true),
            // What was produced, if only the job itself, goes through the channel.
            Site::Lane | Site::Device
                if core.circuits[usize::from(now.circuit)].device_stage == Some(usize::from(now.stage)) =>
            {
                self.tell(core, job, Point::Produced);
            }
            Site::Lane | Site::Device => {
                self.products.push_back(job);
                self.dispatch(core);
            }
        }
    }

    /// Devices' workers take products.
    fn dispatch(&mut self, core: &mut Core<'_>) {
        while !self.products.is_empty() {
            // The one with the most lanes free, the first of equals.
            let free = (0..self.cards.len()).rev().max_by_key(|card| self.cards[*card].lanes_free);
            let Some(device) = free.filter(|card| self.cards[*card].lanes_free > 0) else { return };
            let job = self.products.pop_front().expect("there is one");
            self.cards[device].lanes_free -= 1;
            let taken = &mut core.jobs[job as usize];
            taken.device = device as u16;
            let first = core.circuits[usize::from(taken.circuit)].device_stage == Some(usize::from(taken.stage));
            if first {
                self.tell(core, job, Point::Taken);
            }
            self.on_card(core, job);
        }
    }

    /// A job on a lane goes on with a stage there.
    fn on_card(&mut self, core: &mut Core<'_>, job: u32) {
        let device = usize::from(core.jobs[job as usize].device);
        if core.stage(job).on == Site::Lane {
            core.begin(job);
        } else if self.cards[device].leased {
            self.cards[device].for_lease.push_back(job);
        } else {
            self.cards[device].leased = true;
            core.begin(job);
        }
    }

    fn end_lease(&mut self, core: &mut Core<'_>, device: usize) {
        match self.cards[device].for_lease.pop_front() {
            Some(next) => core.begin(next),
            None => self.cards[device].leased = false,
        }
    }
}

impl Admission for Peers {
    fn supply(&mut self, core: &mut Core<'_>) {
        for stream in 0..core.streams.len() {
            while core.streams[stream].asking < self.asking {
                let Some(job) = core.next_job(stream) else { break };
                core.note_submitted(job);
                let need = self.needs[usize::from(core.jobs[job as usize].circuit)];
                self.policy.request(JobId::from(job), need, core.now, &mut self.grants);
                self.hear(core);
            }
        }
        core.serve(&mut |_, _| ());
    }

    fn stage_ended(&mut self, core: &mut Core<'_>, job: u32, failed: bool) {
        let (ended, less, now) = (core.stage(job).on, core.stage(job).less, core.jobs[job as usize]);
        self.policy.shrink(JobId::from(job), less);
        let device = usize::from(now.device);
        let last = core.is_last(job);
        let goes_on_there = !failed && !last && {
            let stages = &core.circuits[usize::from(now.circuit)].stages;
            stages[usize::from(now.stage) + 1].on.is_on_device()
        };
        if ended == Site::Device {
            self.end_lease(core, device);
        }
        if ended.is_on_device() && !goes_on_there {
            self.cards[device].lanes_free += 1;
            // What is freed early is what nothing on a device needs any more.
            let stages = &core.circuits[usize::from(now.circuit)].stages;
            if failed || !stages[usize::from(now.stage) + 1..].iter().any(|stage| stage.on.is_on_device()) {
                self.tell(core, job, Point::Freed);
            }
            self.dispatch(core);
        }
        if failed || last {
            // Where there is no device, what was made is delivered at once, and is in no channel.
            self.tell(core, job, Point::Delivered);
            core.finish(job, failed);
            return;
        }
        core.jobs[job as usize].stage += 1;
        if ended.is_on_device() && goes_on_there {
            self.on_card(core, job);
        } else {
            self.next_stage(core, job);
        }
    }

    fn due(&mut self, core: &mut Core<'_>, due: Due) {
        match due {
            Due::Wake => {
                self.policy.wake(core.now, &mut self.grants);
                self.woken_at = None;
                self.hear(core);
            }
            Due::Again(job) => {
                let need = self.needs[usize::from(core.jobs[job as usize].circuit)];
                self.policy.request(JobId::from(job), need, core.now, &mut self.grants);
                self.hear(core);
            }
            _ => {}
        }
    }

    fn charged_peak(&mut self) -> Option<u64> {
        None
    }

    fn tokens(&self) -> Vec<Vec<u64>> {
        Vec::new()
    }
}

impl Core<'_> {
    fn note_submitted(&mut self, job: u32) {
        if self.recorder.is_none() {
            return;
        }
        let (subject, first) = (record::subject(job, &self.name(job), None), self.stage(job).name);
        let recorder = self.recorder.as_mut().expect("there is one");
        recorder.note(self.now, Some(subject.clone()), What::Submitted);
        recorder.note(self.now, Some(Subject { stage: Some(first), ..subject }), What::Asked);
    }

    fn note_resident(&mut self, class: u16, residency: &crate::workload::Residency) {
        let resource = plimsoll::Resource::Class(self.memory.class(class));
        let Some(recorder) = &mut self.recorder else { return };
        recorder.held.resize(usize::from(class) + 1, 0);
        recorder.held[usize::from(class)] = residency.bytes;
        let number = usize::MAX - usize::from(class);
        let subject = plimsoll::observe::Subject { number, name: residency.name.clone(), is_job: false, stage: None };
        let (delta, held) = (i128::from(residency.bytes), residency.bytes);
        recorder.note(self.now, Some(subject), What::Changed { resource, delta, held });
    }
}
