//! A timeline of what is really held, of runs that have no ledger to tell of it.

use plimsoll::observe::What;
use plimsoll::{Resource, Slots};

use super::clock::Due;
use super::core::Core;
use super::record;
use crate::workload::Site;

/// Into how many pieces a timeline cuts what grows.
const PIECES: u64 = 8;

impl Core<'_> {
    /// Tells what is really held, if it is time for that.
    pub(super) fn see(&mut self, held: u64) {
        let machine = &self.workload.machine;
        let time = self.now;
        let resident = held.min(machine.memory - machine.others);
        let available = machine.memory - machine.others - resident;
        if let Some(recorder) = self.recorder.as_mut().filter(|recorder| recorder.is_due()) {
            recorder.see(&record::Seen { time, resident, available, machine: machine.memory });
        }
    }

    pub(super) fn note_begin(&mut self, number: u32) {
        let job = self.jobs[number as usize];
        let plan = self.stage(number);
        let (name, stage, clock, grows) = (self.name(number), plan.name, plan.clock, plan.grows_bytes > 0);
        let is_there = |stage: usize| self.circuits[usize::from(job.circuit)].stages[stage].on.is_on_device();
        let comes_on = plan.on.is_on_device() && !usize::from(job.stage).checked_sub(1).is_some_and(is_there);
        let (on, place) = (plan.on, if plan.on == Site::Worker { "worker" } else { "carrier" });
        let takes: Vec<(u16, u64)> = plan.takes.iter().map(|&(class, bytes)| (class.on(job.device), bytes)).collect();
        let subject = Some(record::subject(number, &name, Some(stage)));
        let recorder = self.recorder.as_mut().expect("it is asked for");
        recorder.note(self.now, subject.clone(), What::Granted);
        if comes_on {
            recorder.note_lane(self.now, subject.clone(), job.device, 1);
        }
        if on == Site::Device {
            let (resource, delta) = (Resource::Slots(Slots::lease(job.device)), 1);
            recorder.note(self.now, subject.clone(), What::Changed { resource, delta, held: 1 });
        }
        recorder.note(self.now, subject, What::Began { place });
        for (class, bytes) in takes {
            self.note_bytes(number, class, bytes as i128);
        }
        if grows {
            self.jobs[number as usize].pieces = 0;
            self.clocks.set(clock, self.now, job.duration / PIECES, Due::Grown(number));
        }
    }

    pub(super) fn note_bytes(&mut self, number: u32, class: u16, delta: i128) {
        if delta == 0 {
            return;
        }
        let (name, stage) = (self.name(number), self.stage(number).name);
        let resource = Resource::Class(self.memory.class(class));
        let recorder = self.recorder.as_mut().expect("it is asked for");
        let at = usize::from(class);
        if recorder.held.len() <= at {
            recorder.held.resize(at + 1, 0);
        }
        recorder.held[at] = (i128::from(recorder.held[at]) + delta) as u64;
        let held = recorder.held[at];
        recorder.note(
            self.now,
            Some(record::subject(number, &name, Some(stage))),
            What::Changed { resource, delta, held },
        );
    }

    /// A piece of what the stage of a job grows by.
    pub(super) fn note_growth(&mut self, number: u32) {
        let Some(job) = self.jobs.get(number as usize).filter(|job| job.growing.is_some()).copied() else { return };
        if u64::from(job.pieces) + 1 >= PIECES {
            return;
        }
        let plan = self.stage(number);
        let clock = plan.clock;
        let grows: Vec<(u16, u64)> =
            plan.grows.iter().map(|&(class, bytes)| (class.on(job.device), bytes / PIECES)).collect();
        self.jobs[number as usize].pieces += 1;
        for (class, bytes) in grows {
            self.note_bytes(number, class, bytes as i128);
        }
        self.clocks.set(clock, self.now, job.duration / PIECES, Due::Grown(number));
    }

    pub(super) fn note_end(&mut self, number: u32, failed: bool) {
        let job = self.jobs[number as usize];
        let plan = self.stage(number);
        let (stage, on) = (plan.name, plan.on);
        let pieces = u64::from(job.pieces);
        let rest = plan.grows.iter().map(|&(class, bytes)| (class.on(job.device), bytes - bytes / PIECES * pieces));
        let rest: Vec<(u16, u64)> = rest.collect();
        let gone = plan.gone.iter().chain(if failed { &*plan.keep } else { &[] });
        let gone: Vec<(u16, u64)> = gone.map(|&(class, bytes)| (class.on(job.device), bytes)).collect();
        self.jobs[number as usize].pieces = 0;
        rest.into_iter().for_each(|(class, bytes)| self.note_bytes(number, class, bytes as i128));
        gone.into_iter().for_each(|(class, bytes)| self.note_bytes(number, class, -(bytes as i128)));
        let last = failed || self.is_last(number);
        let next = (!last).then(|| self.circuits[usize::from(job.circuit)].stages[usize::from(job.stage) + 1].name);
        let next_on = (!last).then(|| self.circuits[usize::from(job.circuit)].stages[usize::from(job.stage) + 1].on);
        let goes_off = on.is_on_device() && !next_on.is_some_and(Site::is_on_device);
        let subject = record::subject(number, &self.name(number), Some(stage));
        let recorder = self.recorder.as_mut().expect("it is asked for");
        if on == Site::Device {
            let resource = Resource::Slots(Slots::lease(job.device));
            recorder.note(self.now, Some(subject.clone()), What::Changed { resource, delta: -1, held: 0 });
        }
        if goes_off {
            recorder.note_lane(self.now, Some(subject.clone()), job.device, -1);
        }
        recorder.note(self.now, Some(subject.clone()), What::StageEnded);
        if let Some(next) = next {
            // What it has made waits from now on.
            recorder.note(self.now, Some(record::subject(number, &subject.name, Some(next))), What::Asked);
        }
        if last {
            let how = if failed { "failed" } else { "result" };
            let subject = record::subject(number, &subject.name, None);
            recorder.note(self.now, Some(subject.clone()), What::Finished { how, late: false });
            recorder.note(self.now, Some(subject), What::Ended);
        }
    }
}
