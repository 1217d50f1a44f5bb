//! An engine of the usual kind: a task for each job, a channel, a device's worker, and a policy that says who may go.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Instant;

use plimsoll_sim::policies::{Grant, JobId, Need, Point, Policy};

use crate::work::{self, ABC, AUX, Buffer, COPY, Clock, PEAK_UNITS, Run, SPLIT};

struct Gate {
    state: Mutex<State>,
    started: Instant,
}

struct State {
    policy: Box<dyn Policy + Send>,
    /// Where each job hears what the policy says of it: nobody else is woken by that.
    ears: HashMap<JobId, mpsc::Sender<Grant>>,
}

impl Gate {
    /// Tells the policy something, and leaves what it says for whom it concerns.
    fn tell(&self, event: impl FnOnce(&mut dyn Policy, u64, &mut Vec<Grant>)) {
        let mut state = self.state.lock().expect("no panics");
        let mut grants = Vec::new();
        event(&mut *state.policy, self.started.elapsed().as_nanos() as u64, &mut grants);
        for grant in grants {
            let (Grant::Start(job) | Grant::HandOver(job) | Grant::Grown(job) | Grant::Refused(job)) = grant;
            state.ears[&job].send(grant).expect("it listens");
        }
    }

    fn listen(&self, job: JobId) -> mpsc::Receiver<Grant> {
        let (sender, receiver) = mpsc::channel();
        self.state.lock().expect("no panics").ears.insert(job, sender);
        receiver
    }

    /// Grows a job; `false` if it failed.
    fn grow(&self, job: JobId, ear: &mpsc::Receiver<Grant>, units: u64) -> bool {
        self.tell(|policy, now, grants| policy.grow(job, units, now, grants));
        ear.recv() == Ok(Grant::Grown(job))
    }

    fn at(&self, job: JobId, point: Point) {
        self.tell(|policy, now, grants| policy.at(job, point, now, grants));
    }

    /// One try at a job up to its product; `None` if there was no room on the way.
    fn produce(&self, job: JobId, ear: &mpsc::Receiver<Grant>) -> Option<(Buffer, Buffer)> {
        let need = Need { peak: PEAK_UNITS, freed_early: ABC + COPY - SPLIT };
        self.tell(|policy, now, grants| policy.request(job, need, now, grants));
        assert_eq!(ear.recv(), Ok(Grant::Start(job)));
        if !self.grow(job, ear, AUX) {
            return None;
        }
        let aux = work::witness();
        if !self.grow(job, ear, ABC + COPY) {
            return None;
        }
        let abc = work::evaluate();
        Some((aux, abc))
    }
}

/// Runs jobs through an engine with this policy, `tasks` of them asking at a time.
pub(crate) fn run(policy: Box<dyn Policy + Send>, jobs: usize, tasks: usize) -> Run {
    let state = Mutex::new(State { policy, ears: HashMap::new() });
    let gate = Gate { state, started: Instant::now() };
    let (next, clock) = (AtomicU64::new(0), Clock::start());
    let (to_device, products) = mpsc::channel::<(JobId, Buffer, Buffer)>();
    std::thread::scope(|scope| {
        for _ in 0..tasks {
            let (gate, next, to_device) = (&gate, &next, to_device.clone());
            let task = move || {
                loop {
                    let job = next.fetch_add(1, Ordering::Relaxed);
                    if job >= jobs as u64 {
                        return;
                    }
                    let ear = gate.listen(job);
                    let (aux, abc) = loop {
                        match gate.produce(job, &ear) {
                            Some(product) => break product,
                            // Whoever called it tries again.
                            None => std::thread::yield_now(),
                        }
                    };
                    gate.at(job, Point::Produced);
                    assert_eq!(ear.recv(), Ok(Grant::HandOver(job)));
                    to_device.send((job, aux, abc)).expect("the device is there");
                }
            };
            std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, task).expect("a thread");
        }
        drop(to_device);
        for (job, aux, abc) in products {
            gate.at(job, Point::Taken);
            work::device(abc);
            gate.at(job, Point::Freed);
            let (gate, clock) = (&gate, &clock);
            let finish = move || {
                work::finish(aux);
                gate.at(job, Point::Delivered);
                clock.done();
            };
            std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, finish).expect("a thread");
        }
    });
    clock.stop()
}
