//! Engines of the usual kind: a task for each job, a channel, a device's worker, and a policy that says who may go.

use std::collections::VecDeque;

use plimsoll::observe::{Subject, What};

use super::clock::Due;
use super::core::{Admission, Core};
use super::record;
use crate::policies::{
    Count, Grant, Greedy, JobId, Need, OptimisticBudget, Point, Policy, ReserveOrFail, StrictFifo, Unlimited,
};
use crate::workload::{PolicyKind, Site, on_host};

/// How long whoever was refused waits before it tries again.
const AGAIN: u64 = 1_000_000_000;

struct Card {
    lanes_free: u64,
    leased: bool,
    /// Jobs on a lane that wait for the lease.
    for_lease: VecDeque<u32>,
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
    pub(super) fn new(core: &mut Core<'_>) -> Peers {
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
        // All residencies are loaded for good before anything else.
        for residency in &workload.residencies {
            let class = core.memory.number(residency.class);
            core.memory.add(class, residency.bytes);
            core.note_resident(class, residency);
        }
        let room = |budget: u64| budget.saturating_sub(fixed);
        let largest = needs.iter().map(|need| need.peak).max().unwrap_or(1).max(1);
        let mut asking = workload.policy.asking;
        let policy: Box<dyn Policy> = match workload.policy.kind {
            PolicyKind::Permits { permits, back, channel } => Box::new(Count::new(permits, back, channel as usize)),
            PolicyKind::OptimisticBudget { budget, gap } => Box::new(OptimisticBudget::new(room(budget), gap)),
            PolicyKind::StrictFifo { budget } => Box::new(StrictFifo::new(room(budget))),
            PolicyKind::ReserveOrFail { budget } => {
                // Who may fail is not asked for more than can succeed.
                asking = asking.min((room(budget) / largest).max(1));
                Box::new(ReserveOrFail::new(room(budget)))
            }
            PolicyKind::Greedy { budget } => Box::new(Greedy::new(room(budget))),
            PolicyKind::Unlimited | PolicyKind::Plimsoll { .. } => Box::new(Unlimited),
        };
        let card = || Card { lanes_free: workload.machine.lanes, leased: false, for_lease: VecDeque::new() };
        let cards = (0..workload.machine.devices).map(|_| card()).collect();
        Peers { policy, grants: Vec::new(), needs, products: VecDeque::new(), cards, asking, woken_at: None }
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
                    Grant::Grown(_) => core.queue(job, true),
                    Grant::Refused(_) => {
                        core.throw_away(job);
                        let stream = usize::from(core.jobs[job as usize].stream);
                        core.streams[stream].asking += 1;
                        core.clocks.set(0, core.now, AGAIN, Due::Again(job));
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

    /// The job goes on with its stage, as soon as it may.
    fn next_stage(&mut self, core: &mut Core<'_>, job: u32) {
        let stage = core.stage(job);
        match stage.on {
            Site::Outside => core.begin(job),
            Site::Worker => {
                let more = stage.more;
                let now = core.jobs[job as usize];
                let device_stage = core.circuits[usize::from(now.circuit)].device_stage;
                let produces = device_stage.is_none_or(|device| usize::from(now.stage) < device);
                if produces && more > 0 {
                    self.policy.grow(JobId::from(job), more, core.now, &mut self.grants);
                    self.hear(core);
                } else {
                    core.queue(job, true);
                }
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
        let (ended, now) = (core.stage(job).on, core.jobs[job as usize]);
        let device = usize::from(now.device);
        let last = core.is_last(job);
        let goes_on_there = !failed && !last && {
            let stages = &core.circuits[usize::from(now.circuit)].stages;
            stages[usize::from(now.stage) + 1].on.is_on_device()
        };
        let device_stage = core.circuits[usize::from(now.circuit)].device_stage;
        if ended == Site::Device {
            self.end_lease(core, device);
        }
        if ended.is_on_device() && !goes_on_there {
            self.cards[device].lanes_free += 1;
            self.tell(core, job, Point::Freed);
            self.dispatch(core);
        }
        if failed || last {
            if device_stage.is_none() && !failed {
                // It has no device: what it made is delivered at once.
                self.tell(core, job, Point::Produced);
                self.products.retain(|product| *product != job);
                self.tell(core, job, Point::Taken);
            }
            self.tell(core, job, Point::Delivered);
            core.finish(job, failed);
            return;
        }
        let next = {
            let job = &mut core.jobs[job as usize];
            job.stage += 1;
            usize::from(job.stage)
        };
        if ended.is_on_device() && goes_on_there {
            self.on_card(core, job);
        } else if device_stage == Some(next) {
            self.tell(core, job, Point::Produced);
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
