//! The state machine alone, as a simulator drives it: jobs of the shape of PoRep 32 GiB partitions, so many in flight.
//!
//! Each job goes through six stages: a witness, its evaluation, staging to a device, two stages there, and the rest on the
//! CPU. In its vector are host, pinned and device memory, threads, a lane and the lease of a device, and the tokens of two
//! ropes in an account of the pipeline's own. An event is a submission, a request, a grant, the end of a stage or of a job.
//!
//! | row | what is different |
//! |---|---|
//! | roomy | nobody waits for memory, only for threads and devices |
//! | tight | memory for three quarters of the jobs that are there: the rest wait to be admitted, and growth waits for the end of others |
//! | two devices | each job can go to either: a profile for each |

use std::collections::VecDeque;
use std::time::Instant;

use plimsoll::ledger::state::{AccountId, LedgerState, Outcome, OwnerId};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Profile, Resource, Slots, Space};

use crate::table::{Table, median};

const ROUNDS: usize = 3;
const EVENTS: usize = 20_000;

const AUX: Class = Class::new("aux", Space::HOST);
const PROVERS: Class = Class::new("provers", Space::HOST);
const STAGING: Class = Class::new("staging", Space::PINNED);
const PROOF: Class = Class::new("proof", Space::HOST);
const THREADS: Slots = Slots::new("threads");
const WITNESSES: Slots = Slots::new("rope of witnesses");
const EVALUATED: Slots = Slots::new("rope of evaluated");
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

pub(crate) fn run() -> Vec<Table> {
    let mut table = Table::new("jobs: n of PoRep shape in flight, state machine alone", &["events/s", "ns an event"]);
    for (name, tight, devices) in [("roomy", false, 1), ("tight", true, 1), ("two devices", true, 2)] {
        for n in [10, 30, 100, 300] {
            let rounds: Vec<f64> = (0..ROUNDS).map(|_| round(n, tight, devices)).collect();
            let rate = median(rounds);
            table.row(format!("{name}, n = {n}"), &[rate, 1e9 / rate]);
        }
    }
    vec![table]
}

fn profile(device: u16) -> Profile {
    let class = |name| Class::new(name, Space::device(device));
    let on = |demand: Demand| demand.slots(Slots::lane(device), 1).slots(Slots::lease(device), 1);
    let witness = Demand::new().bytes(AUX, Bytes(3993 * MIB)).slots(WITNESSES, 1);
    let evaluated = witness.clone().bytes(PROVERS, Bytes(12 * GIB)).slots(EVALUATED, 1);
    let staged = evaluated.clone().bytes(STAGING, Bytes(2 * GIB)).slots(Slots::lane(device), 1);
    let results = Demand::new().bytes(AUX, Bytes(3993 * MIB)).bytes(PROOF, Bytes(64 * MIB)).slots(WITNESSES, 1);
    Profile::new()
        .stage("witness", witness.clone().slots(THREADS, 1), witness)
        .stage("evaluate", evaluated.clone().slots(THREADS, 2), evaluated)
        .stage("stage", staged.clone(), staged.clone())
        .stage(
            "quotient",
            on(staged.bytes(class("device.abc"), Bytes(8 * GIB)).bytes(PROOF, Bytes(64 * MIB))),
            results.clone(),
        )
        .stage("commit", on(results.clone().bytes(class("device.buckets"), Bytes(4 * GIB))), results.clone())
        .stage("finish", results.slots(THREADS, 1), Demand::new())
}

struct World {
    state: LedgerState,
    account: AccountId,
    specs: Vec<JobSpec>,
    /// What of each stage goes with its end, by choice.
    gone: Vec<Vec<Vec<(Class, Bytes)>>>,
    /// Jobs whose stage runs, oldest first.
    running: VecDeque<(OwnerId, usize)>,
    /// The stage of each job, by its index.
    stage_of: Vec<usize>,
    out: Vec<Outcome>,
    now: u64,
    submitted: usize,
    events: usize,
}

/// Events a second.
fn round(n: usize, tight: bool, devices: u16) -> f64 {
    let mut world = World::new(n, tight, devices);
    while world.submitted < n {
        world.submit();
    }
    // The start is not what is asked for.
    while world.events < EVENTS / 10 {
        world.step();
    }
    world.events = 0;
    let started = Instant::now();
    while world.events < EVENTS {
        world.step();
    }
    world.events as f64 / started.elapsed().as_secs_f64()
}

impl World {
    fn new(n: usize, tight: bool, devices: u16) -> World {
        let jobs = n as u64;
        let host = if tight { jobs * 5 * GIB + 20 * GIB } else { jobs * 20 * GIB };
        let mut budget = Budget::new()
            .space(Space::HOST, Bytes(host))
            .space(Space::PINNED, Bytes(host))
            .slots(THREADS, (jobs / 4).max(2));
        for device in 0..devices {
            budget = budget
                .space(Space::device(device), Bytes(16 * GIB))
                .slots(Slots::lane(device), (jobs / 8).max(2))
                .slots(Slots::lease(device), 1);
        }
        let mut state = LedgerState::new(&budget);
        let account = state.open_child(AccountId::ROOT, "porep".into(), &Budget::new());
        state.open_slots(account, WITNESSES, jobs);
        state.open_slots(account, EVALUATED, (jobs / 4).max(2));
        let profiles: Vec<Profile> = (0..devices).map(profile).collect();
        let specs = (0..profiles.len())
            .map(|first| {
                let nth = |n: usize| profiles[(first + n) % profiles.len()].clone();
                let spec = JobSpec::new("partition", nth(0));
                (1..profiles.len()).fold(spec, |spec, n| spec.or(nth(n)))
            })
            .collect();
        let gone = profiles.iter().map(|profile| profile.stages().iter().map(goes).collect()).collect();
        let (running, stage_of, out) = (VecDeque::new(), Vec::new(), Vec::new());
        World { state, account, specs, gone, running, stage_of, out, now: 0, submitted: 0, events: 0 }
    }

    fn submit(&mut self) {
        let spec = self.specs[self.submitted % self.specs.len()].clone();
        self.submitted += 1;
        let id = self.state.submit(self.account, spec).expect("it fits");
        self.events += 1;
        self.enter(id, 0);
    }

    fn enter(&mut self, id: OwnerId, stage: usize) {
        self.now += 1;
        if self.stage_of.len() <= id.index() {
            self.stage_of.resize(id.index() + 1, 0);
        }
        self.stage_of[id.index()] = stage;
        self.state.enter(self.now, id, stage, &mut self.out).expect("it is the next one");
        self.events += 1;
        self.hear();
    }

    fn hear(&mut self) {
        for outcome in self.out.drain(..) {
            let Outcome::Granted(id, _) = outcome else { panic!("nothing is refused: {outcome:?}") };
            self.running.push_back((id, self.stage_of[id.index()]));
            self.events += 1;
        }
    }

    /// The stage that has been running for longest ends; its job goes on to the next one, or another comes in its place.
    fn step(&mut self) {
        let (id, stage) = self.running.pop_front().expect("somebody always runs");
        // Which of the two devices is what the order of the specs makes of the choice.
        let first = usize::from(self.state.held_by(id, Resource::Slots(Slots::lane(0))) == 0);
        let device = first.min(self.gone.len() - 1);
        self.state.end_stage(id, &self.gone[device][stage], &mut self.out);
        self.events += 1;
        self.hear();
        if stage + 1 < self.gone[0].len() {
            return self.enter(id, stage + 1);
        }
        self.state.end(id, &mut self.out);
        self.events += 1;
        self.hear();
        self.submit();
    }
}

/// The bytes of a stage that it does not keep.
fn goes(stage: &plimsoll::StageProfile) -> Vec<(Class, Bytes)> {
    let goes = |(resource, peak): (Resource, u64)| match resource {
        Resource::Class(class) => Some((class, Bytes(peak - stage.keep.of(class)))),
        Resource::Slots(_) => None,
    };
    stage.peak.iter().filter_map(goes).filter(|entry| entry.1 != Bytes::ZERO).collect()
}
