//! Plimsoll's own admission: the shipped state machine and the shipped pacer, driven as the pipeline drives them.

use plimsoll::device::preference::{self, Candidate};
use plimsoll::ledger::error::{EnterError, SubmitError};
use plimsoll::ledger::state::{AccountId, Kind, LedgerState, Order, Outcome, OwnerId, Refusal, ResidencyId, Resident};
use plimsoll::ledger::{JobSpec, Need};
use plimsoll::observe::What;
use plimsoll::pipeline::pacing::{Berth, Layout, Pacer, Pacing, Rope, WorkClass};
use plimsoll::{Budget, Bytes, Class, Demand, Profile, Slots, Space};

use super::clock::Due;
use super::core::{Admission, Core, Job};
use super::plan::CircuitPlan;
use super::trouble::Trouble;
use crate::random::Use;
use crate::workload::{Machine, PolicyKind, Site, Workload, on_device};

/// A pipeline: one for each circuit.
struct Line {
    account: AccountId,
    pacer: Pacer,
    paced: bool,
    class: WorkClass,
    told: Vec<u64>,
    /// As it is submitted, to the first device.
    spec: JobSpec,
    /// What it declares for each device.
    tied: Vec<Profile>,
    /// By stage and device: bytes that come back when the stage ends.
    gone: Vec<Vec<Vec<(Class, Bytes)>>>,
    /// The same of what is left then.
    keep: Vec<Vec<Vec<(Class, Bytes)>>>,
    spaces: Vec<Space>,
}

struct Store {
    id: ResidencyId,
    class: Class,
    class_number: u16,
    bytes: u64,
    load: u64,
    payer: Option<OwnerId>,
}

pub(crate) struct Ours<'t> {
    pub(super) state: LedgerState,
    lines: Vec<Line>,
    stores: Vec<Store>,
    /// By the owner's number.
    job_of: Vec<u32>,
    owner_of: Vec<OwnerId>,
    out: Vec<Outcome>,
    /// How many stages each device was given.
    given: Vec<usize>,
    /// How often a device was chosen.
    turn: usize,
    /// By job: the devices in the order in which it was submitted with them.
    preferred: Vec<Vec<u16>>,
    candidates: Vec<Candidate>,
    trouble: Option<&'t mut Trouble>,
}

/// The limits of a machine, as the ledger is given them.
pub(crate) fn budget(workload: &Workload) -> Budget {
    let Machine { runtime, pinned, devices, device_memory, lanes, .. } = workload.machine;
    let PolicyKind::Plimsoll { budget, bypass, urgent_reserve, .. } = workload.policy.kind else {
        unreachable!("only our own policy has a ledger")
    };
    let host = budget.saturating_sub(runtime);
    let mut limits =
        Budget::new().space(Space::HOST, Bytes(host)).space(Space::PINNED, Bytes(pinned.min(host))).bypass(bypass);
    if urgent_reserve > 0 {
        limits = limits.urgent_reserve(Space::HOST, Bytes(urgent_reserve));
    }
    (0..devices).fold(limits, |limits, device| {
        limits
            .space(Space::device(device), Bytes(device_memory))
            .slots(Slots::lane(device), lanes)
            .slots(Slots::lease(device), 1)
    })
}

/// What a job of a circuit declares, if it is to run on this device.
pub(crate) fn profile(workload: &Workload, circuit: usize, device: u16) -> Profile {
    let circuit = &workload.circuits[circuit];
    let demand = |held: &[(Class, u64)]| {
        held.iter().fold(Demand::new(), |demand, &(class, bytes)| demand.bytes(on_device(class, device), Bytes(bytes)))
    };
    let each = circuit.stages.iter().zip(circuit.holdings()).enumerate();
    each.fold(Profile::new(), |profile, (at, (stage, held))| {
        let mut peak = demand(&held.peak);
        let mut keep = demand(&held.keep);
        if stage.on.is_on_device() {
            peak = peak.slots(Slots::lane(device), 1);
            if circuit.stages.get(at + 1).is_some_and(|next| next.on.is_on_device()) {
                keep = keep.slots(Slots::lane(device), 1);
            }
        }
        if stage.at_most.is_some() {
            peak = peak.slots(jobs_in(stage.name), 1);
        }
        if stage.on == Site::Device {
            peak = peak.slots(Slots::lease(device), 1);
        }
        profile.stage(stage.name, peak, keep)
    })
}

/// The slots of a stage that only so many jobs may be in at once.
fn jobs_in(stage: &str) -> Slots {
    Slots::new(crate::names::lasting(&format!("jobs in {stage}")))
}

/// Which station serves each stage, as the pipeline would lay it out.
pub(crate) fn layout(workload: &Workload, circuit: usize, limits: &Budget, profiles: &[Profile]) -> Layout {
    let berth = |stage: &crate::workload::Stage| Berth {
        stage: stage.name,
        on_pool: stage.on == Site::Worker,
        at_most: stage.at_most,
    };
    let berths: Vec<Berth> = workload.circuits[circuit].stages.iter().map(berth).collect();
    Layout::of(&berths, workload.machine.workers, |slots| limits.slots_of(slots), profiles)
}

impl<'t> Ours<'t> {
    pub(super) fn new(core: &mut Core<'_>) -> Result<Ours<'t>, String> {
        let workload = core.workload;
        let PolicyKind::Plimsoll { pacing, .. } = workload.policy.kind else { unreachable!("it is our own policy") };
        let limits = budget(workload);
        let mut state = LedgerState::new(&limits);
        state.record_changes(core.recorder.is_some());
        let mut stores = Vec::new();
        for residency in &workload.residencies {
            let declared = Resident {
                name: residency.name.clone(),
                class: residency.class,
                bytes: Bytes(residency.bytes),
                rebuild: residency.load.0,
            };
            let id = state.declare_residency(declared).map_err(|error| error.to_string())?;
            let (class, class_number) = (residency.class, core.memory.number(residency.class));
            // What is preloaded was loaded in no time, by the first who needs it.
            let load = if residency.preloaded { 0 } else { residency.load.0 };
            stores.push(Store { id, class, class_number, bytes: residency.bytes, load, payer: None });
        }
        let lines: Vec<Line> = (0..core.circuits.len())
            .map(|circuit| Line::new(&mut state, core, circuit, pacing, &limits, &stores))
            .collect::<Result<_, String>>()?;
        let given = vec![0; usize::from(workload.machine.devices).max(1)];
        let (job_of, owner_of, out) = (Vec::new(), Vec::new(), Vec::new());
        let (turn, preferred, candidates) = (0, Vec::new(), Vec::new());
        Ok(Ours { state, lines, stores, job_of, owner_of, out, given, turn, preferred, candidates, trouble: None })
    }

    pub(super) fn with_trouble(mut self, core: &mut Core<'_>, trouble: &'t mut Trouble) -> Ours<'t> {
        trouble.certify(core);
        trouble.stores = self.stores.iter().map(|store| (store.id, store.class)).collect();
        for (at, resize) in trouble.resizes.iter().enumerate() {
            core.clocks.set(0, 0, resize.0, Due::Resize(at as u32));
        }
        for &(time, device) in &trouble.losses {
            core.clocks.set(0, 0, time, Due::Lose(device));
        }
        self.trouble = Some(trouble);
        self
    }

    /// Gives up one of the jobs that wait, by chance.
    fn give_one_up(&mut self, core: &mut Core<'_>) {
        let Some(trouble) = &self.trouble else { return };
        let bits = core.random.bits(1 << 40, core.events, Use::Other(1));
        if bits % 1000 >= trouble.cancelled_of_a_thousand {
            return;
        }
        let waiting = |entry: &(usize, &super::core::Job)| !entry.1.runs && !entry.1.is_granted;
        let count = core.jobs.iter().filter(waiting).count() as u64;
        let Some(nth) = (bits >> 10).checked_rem(count) else { return };
        let (number, job) = core.jobs.iter().filter(waiting).nth(nth as usize).expect("counted");
        let (number, id) = (number as u32, self.owner_of[number]);
        debug_assert!(!job.runs);
        self.state.withdraw(id, &mut self.out);
        self.saw(core);
        self.give_up(core, number);
        self.hear(core);
    }

    /// A job that waits for nothing any more ends between two stages.
    fn give_up(&mut self, core: &mut Core<'_>, number: u32) {
        let (job, id) = (core.jobs[number as usize], self.owner(number));
        if let Some(before) = job.stage.checked_sub(1) {
            self.release_kept(core, id, job, usize::from(before));
        }
        self.state.end(id, &mut self.out);
        self.saw(core);
        core.give_up(number);
    }

    /// Gives back what a job has kept of a stage.
    fn release_kept(&mut self, core: &Core<'_>, id: OwnerId, job: Job, stage: usize) {
        let circuit = usize::from(job.circuit);
        let device = usize::from(job.device).min(self.lines[circuit].keep[stage].len() - 1);
        for at in 0..self.lines[circuit].keep[stage][device].len() {
            let (class, bytes) = self.lines[circuit].keep[stage][device][at];
            self.state.release(id, class, bytes, &mut self.out);
            self.saw(core);
        }
    }

    fn look(&mut self, core: &Core<'_>) {
        if let Some(trouble) = self.trouble.as_mut().filter(|trouble| trouble.check) {
            trouble.look(core, &mut self.state);
        }
    }

    fn owner(&self, job: u32) -> OwnerId {
        self.owner_of[job as usize]
    }

    fn ask(&mut self, core: &mut Core<'_>, job: u32) {
        let stage = usize::from(core.jobs[job as usize].stage);
        let entered = self.state.enter(core.now, self.owner(job), stage, &mut self.out);
        self.saw(core);
        core.events += 1;
        match entered {
            Ok(()) => {}
            Err(EnterError::Lost(_)) => self.give_up(core, job),
            Err(error) => core.end = Some(super::End::Refused { why: error.to_string() }),
        }
    }

    /// The ledger was called: whoever counts passings looks.
    fn saw(&mut self, core: &Core<'_>) {
        let Some(trouble) = self.trouble.as_mut().filter(|trouble| trouble.check) else { return };
        let answers = &self.out[trouble.heard..];
        let (job_of, reserve) = (&self.job_of, trouble.has_reserve);
        let is_urgent = |id: OwnerId| {
            let job = job_of.get(id.index()).and_then(|job| core.jobs.get(*job as usize));
            reserve && job.is_some_and(|job| core.workload.circuits[usize::from(job.circuit)].urgent)
        };
        let broken = trouble.bypass.look(core.now, &mut self.state, answers, &trouble.stores, &is_urgent);
        trouble.broken = trouble.broken.take().or(broken);
        trouble.heard = self.out.len();
    }

    /// Does what the ledger has said.
    fn hear(&mut self, core: &mut Core<'_>) {
        loop {
            while !self.out.is_empty() {
                core.events += self.out.len() as u64;
                if let Some(trouble) = &mut self.trouble {
                    trouble.heard = 0;
                }
                for outcome in std::mem::take(&mut self.out) {
                    match outcome {
                        Outcome::Granted(id, _) => self.granted(core, id),
                        // There is no other device for it.
                        Outcome::Refused(id, Refusal::Lost(_)) => self.give_up(core, self.job_of[id.index()]),
                        Outcome::Refused(_, refusal) => {
                            core.end = Some(super::End::Refused { why: format!("{refusal:?}") });
                        }
                    }
                }
            }
            if !self.state.has_orders() {
                break;
            }
            let orders: Vec<Order> = self.state.drain_orders().collect();
            orders.into_iter().for_each(|order| self.carry_out(core, order));
        }
        self.pass_on(core);
    }

    fn granted(&mut self, core: &mut Core<'_>, id: OwnerId) {
        let job = self.job_of[id.index()];
        if core.jobs[job as usize].stage == 0 {
            core.started(job);
        }
        let now = &mut core.jobs[job as usize];
        (now.granted, now.is_granted) = (core.now, true);
        match core.stage(job).on {
            Site::Worker => core.queue(job, false),
            Site::Outside => {
                core.begin(job);
                self.state.note_of_job(id, What::Began { place: "runtime" });
            }
            Site::Lane | Site::Device => {
                // Where several devices have a profile each, the ledger says which one it is.
                let device = self.preferred[job as usize].get(self.state.choice(id)).copied().unwrap_or(0);
                self.given[usize::from(device)] += usize::from(core.stage(job).on == Site::Device);
                core.jobs[job as usize].device = device;
                core.begin(job);
                self.state.note_of_job(id, What::Began { place: "carrier" });
            }
        }
    }

    fn carry_out(&mut self, core: &mut Core<'_>, order: Order) {
        match order {
            Order::Load(job, _) => {
                let Some((id, payer)) = self.state.take_load(job) else { return };
                let at = self.stores.iter().position(|store| store.id == id).expect("it was declared");
                let store = &mut self.stores[at];
                store.payer = Some(payer);
                core.memory.add(store.class_number, store.bytes);
                core.clocks.set(0, core.now, store.load, Due::Loaded(at as u32));
            }
            Order::Evict(id) => {
                let at = self.stores.iter().position(|store| store.id == id).expect("it was declared");
                let store = &mut self.stores[at];
                core.memory.sub(store.class_number, store.bytes);
                let payer = store.payer.take().expect("what is evicted was loaded");
                self.state.drop_piece(payer, store.class, Bytes(store.bytes), &mut self.out);
                self.saw(core);
            }
        }
    }

    /// What the ledger recorded goes into the timeline.
    fn pass_on(&mut self, core: &mut Core<'_>) {
        if let Some(recorder) = &mut core.recorder {
            for change in self.state.drain_changes() {
                recorder.note(core.now, change.subject, change.what);
            }
        }
    }

    /// Which devices a job that is to be submitted prefers, by production's rule; none where it needs none of several. Whatever a
    /// job needs in host memory is resident for all of them alike.
    fn prefer(&mut self, circuit: usize, job: usize) {
        if self.preferred.len() <= job {
            self.preferred.resize(job + 1, Vec::new());
        }
        let preferred = &mut self.preferred[job];
        preferred.clear();
        let devices = self.lines[circuit].tied.len();
        if devices > 1 {
            self.candidates.clear();
            let well = self.given[..devices].iter().enumerate();
            let candidate =
                |(number, &begun): (usize, &usize)| Candidate { number: number as u16, is_resident: true, begun };
            self.candidates.extend(well.map(candidate));
            preference::order(self.turn, &mut self.candidates);
            self.turn += 1;
            preferred.extend(self.candidates.iter().map(|candidate| candidate.number));
        }
    }

    fn submit(&mut self, core: &mut Core<'_>, job: u32) {
        let circuit = usize::from(core.jobs[job as usize].circuit);
        self.prefer(circuit, job as usize);
        let line = &mut self.lines[circuit];
        let mut spec = line.spec.clone();
        if let [first, others @ ..] = &self.preferred[job as usize][..] {
            spec.profile = line.tied[usize::from(*first)].clone();
            spec.alternatives = others.iter().map(|other| line.tied[usize::from(*other)].clone()).collect();
        }
        if core.recorder.is_some() {
            spec.name = core.name(job);
        }
        if line.paced {
            for &space in &line.spaces {
                let kind = Kind::Space(space);
                if let Some(room) = self.state.room(line.account, kind) {
                    let room = Bytes(room).saturating_sub(Bytes(self.state.needed_residencies(kind)));
                    line.pacer.set_limit(space, room);
                }
            }
        }
        core.jobs[job as usize].device = self.preferred[job as usize].first().copied().unwrap_or(0);
        match self.state.submit(line.account, spec) {
            Ok(id) => {
                if self.job_of.len() <= id.index() {
                    self.job_of.resize(id.index() + 1, u32::MAX);
                }
                if self.owner_of.len() <= job as usize {
                    self.owner_of.resize(job as usize + 1, id);
                }
                self.job_of[id.index()] = job;
                self.owner_of[job as usize] = id;
                core.events += 1;
                self.ask(core, job);
                self.hear(core);
            }
            Err(SubmitError::Lost(_)) => core.give_up(job),
            Err(error) => core.end = Some(super::End::Refused { why: error.to_string() }),
        }
    }

    /// The pacer hears of a stage that ended well, and the ledger of its tokens.
    fn pace(&mut self, core: &Core<'_>, circuit: usize, stage: usize, ran: u64, waited: u64) {
        let line = &mut self.lines[circuit];
        if !line.paced || !line.pacer.stage_ended(line.class, stage, ran, waited) {
            return;
        }
        for rope in 0..line.told.len() {
            let line = &mut self.lines[circuit];
            let tokens = line.pacer.tokens()[rope];
            if tokens != line.told[rope] {
                line.told[rope] = tokens;
                let slots = line.pacer.slots(rope);
                self.state.resize_slots(line.account, slots, tokens, &mut self.out).expect("opened with them");
                self.saw(core);
            }
        }
    }

    fn serve(&mut self, core: &mut Core<'_>) {
        let Ours { state, owner_of, .. } = self;
        let recording = core.recorder.is_some();
        core.serve(&mut |core, job| {
            if recording {
                state.note_of_job(owner_of[job as usize], What::Began { place: "worker" });
                let recorder = core.recorder.as_mut().expect("it is on");
                state.drain_changes().for_each(|change| recorder.note(core.now, change.subject, change.what));
            }
        });
    }
}

impl Line {
    fn new(
        state: &mut LedgerState,
        core: &Core<'_>,
        circuit: usize,
        pacing: Pacing,
        limits: &Budget,
        stores: &[Store],
    ) -> Result<Line, String> {
        let workload = core.workload;
        let plan: &CircuitPlan = &core.circuits[circuit];
        let devices = if plan.device_stage.is_some() { workload.machine.devices } else { 1 };
        let profiles: Vec<Profile> = (0..devices).map(|device| profile(workload, circuit, device)).collect();
        let layout = layout(workload, circuit, limits, &profiles);
        let mut pacer = Pacer::new(pacing, layout, Rope::of(&profiles[0]));
        let class = pacer.classify_any(&profiles);
        let own = plan.circuit.stages.iter().filter_map(|stage| Some((jobs_in(stage.name), stage.at_most?)));
        let own = own.fold(pacer.budget(), |budget, (slots, count)| budget.slots(slots, count));
        let account = state.open_child(AccountId::ROOT, plan.circuit.name.clone(), &own);
        let tied: Vec<Profile> = profiles.iter().map(|profile| pacer.tie(profile)).collect();
        let mut spec = JobSpec::new(&plan.circuit.name, tied[0].clone()).priority(plan.circuit.priority);
        spec.urgent = plan.circuit.urgent;
        spec.needs = plan.circuit.needs.iter().map(|need| Need::from(stores[*need].id)).collect();
        let of = |held: &[(Class, u64)], device: u16| -> Vec<(Class, Bytes)> {
            held.iter().map(|&(class, bytes)| (on_device(class, device), Bytes(bytes))).collect()
        };
        let by_device = |held: &[(Class, u64)]| (0..devices).map(|device| of(held, device)).collect::<Vec<_>>();
        let gone = |held: &crate::workload::Holdings| {
            let kept = |class: Class| held.keep.iter().find(|entry| entry.0 == class).map_or(0, |entry| entry.1);
            let gone: Vec<_> = held.peak.iter().map(|&(class, peak)| (class, peak - kept(class))).collect();
            by_device(&gone.into_iter().filter(|entry| entry.1 > 0).collect::<Vec<_>>())
        };
        let mut spaces: Vec<Space> = Vec::new();
        for device in 0..devices {
            for (class, _) in plan.holdings.iter().flat_map(|held| &held.peak) {
                let space = on_device(*class, device).space();
                if !spaces.contains(&space) {
                    spaces.push(space);
                }
            }
        }
        Ok(Line {
            account,
            paced: pacing != Pacing::Unpaced,
            class,
            told: pacer.tokens().to_vec(),
            spec,
            tied,
            gone: plan.holdings.iter().map(gone).collect(),
            keep: plan.holdings.iter().map(|held| by_device(&held.keep)).collect(),
            pacer,
            spaces,
        })
    }
}

impl Admission for Ours<'_> {
    fn supply(&mut self, core: &mut Core<'_>) {
        // As where inputs are pulled when there is room: one of each kind waits.
        for stream in 0..core.streams.len() {
            while core.end.is_none() && core.streams[stream].asking == 0 {
                let Some(job) = core.next_job(stream) else { break };
                self.submit(core, job);
            }
        }
        self.serve(core);
        self.look(core);
    }

    fn stage_ended(&mut self, core: &mut Core<'_>, job: u32, failed: bool) {
        let now = core.jobs[job as usize];
        let (circuit, stage, id) = (usize::from(now.circuit), usize::from(now.stage), self.owner(job));
        let line = &self.lines[circuit];
        let device = usize::from(now.device).min(line.gone[stage].len() - 1);
        self.state.end_stage(id, &line.gone[stage][device], &mut self.out);
        self.saw(core);
        core.events += 1;
        let last = core.is_last(job);
        if failed {
            self.release_kept(core, id, now, stage);
        } else {
            self.pace(core, circuit, stage, core.now - now.began, now.began - now.granted);
        }
        if failed || last {
            let how = if failed { "failed" } else { "result" };
            self.state.note_of_job(id, What::Finished { how, late: false });
            self.state.end(id, &mut self.out);
            self.saw(core);
            core.events += 1;
            core.finish(job, failed);
        } else {
            core.jobs[job as usize].stage += 1;
            self.ask(core, job);
        }
        self.hear(core);
        self.give_one_up(core);
    }

    fn due(&mut self, core: &mut Core<'_>, due: Due) {
        if let Due::Loaded(store) = due {
            let id = self.stores[store as usize].id;
            self.state.advance(core.now);
            let wanted = self.state.loaded(id, &mut self.out);
            self.saw(core);
            if !wanted {
                self.carry_out(core, Order::Evict(id));
            }
            self.hear(core);
        }
        if let Due::Lose(device) = due {
            core.lost_devices.push(device);
            self.state.retire(Space::device(device), &mut self.out).expect("the budget names it");
            self.saw(core);
            self.hear(core);
        }
        if let (Due::Resize(at), Some(trouble)) = (due, &self.trouble) {
            let limit = Bytes(trouble.resizes[at as usize].1);
            self.state.resize(AccountId::ROOT, Space::HOST, limit, &mut self.out).expect("the budget names it");
            self.saw(core);
            self.hear(core);
        }
    }

    fn charged_peak(&mut self) -> Option<u64> {
        self.state.snapshot().space(Space::HOST).map(|usage| usage.peak.0)
    }

    fn tokens(&self) -> Vec<Vec<u64>> {
        self.lines.iter().map(|line| line.pacer.tokens().to_vec()).collect()
    }
}
