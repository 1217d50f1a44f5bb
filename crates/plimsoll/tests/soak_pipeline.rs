//! Many tiny jobs through stages of every kind, with everything that can go wrong going wrong at random: errors, panics,
//! cancellations, time-outs, deadlines, dropped tickets, limits that move, runtimes that drop what they were given; cards that
//! are out of memory, refuse a call, break for good, or are lost in the middle, each with a key of its own that its jobs need, which
//! makes room when nobody does; pipelines that are dropped and pools that are aborted in the middle; jobs that come one by one, from
//! an iterator or from a stream. In the end every ticket was answered, and the ledger holds nothing.
//!
//! A lost card does not come back, so the run is one of many rounds, each with a ledger, cards and a pipeline of its own, on one
//! pool, but for those that abort theirs. What happens to a job follows from its round's seed and its number alone, so that a round can be repeated (the
//! interleaving of threads cannot): the seed of a round that fails is printed. A short run is part of the tests; `cargo xtask
//! soak pipeline` makes a long one:
//!
//! ```sh
//! PLIMSOLL_SOAK_JOBS=1000000 PLIMSOLL_SOAK_SEED=7 cargo test --release -p plimsoll --test soak_pipeline -- --nocapture
//! ```

#[path = "soak_pipeline/hands.rs"]
mod hands;
#[path = "soak_pipeline/orders.rs"]
mod orders;
#[path = "soak_pipeline/sources.rs"]
mod sources;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;
use std::time::{Duration, Instant};

use plimsoll::device::simulate::{CardSpec, Faults, Neighbour, Simulated};
use plimsoll::device::{Device, DeviceConfig, DeviceError, DeviceSet, DriverLane, LeaseCx, Staged};
use plimsoll::ledger::{EnterError, Residency};
use plimsoll::pipeline::{Carrier, Failure, FanIn, JobError, JobOptions, Learning, Pipeline, Retry, Runtime, StageCx};
use plimsoll::pool::{Pool, PoolConfig, Shutdown};
use plimsoll::{Budget, Bytes, Charged, Class, Demand, Grant, Ledger, Profile, Reservation, Slots, Space};

use hands::{Hands, Polled, once_around};
use orders::{Job, Order, Random, Told};
use sources::{End, Source};

const BUFFER: Class = Class::new("buffer", Space::HOST);
const SCRATCH: Class = Class::new("scratch", Space::HOST);
const OUTPUT: Class = Class::new("output", Space::HOST);
/// Of a device that is nothing but a number, beside the cards.
const TOKEN: Class = Class::new("token", Space::device(9));
const CARRIER: Slots = Slots::new("carrier");

const BUFFER_BYTES: Bytes = Bytes(48);
const SCRATCH_BYTES: Bytes = Bytes(16);
const FRUGAL_BYTES: Bytes = Bytes(8);
const OUTPUT_BYTES: Bytes = Bytes(4);
const PARTS: usize = 2;
/// The most that one job holds, and the range in which the limit moves.
const CLAIM: u64 = BUFFER_BYTES.0 + SCRATCH_BYTES.0 + PARTS as u64 * OUTPUT_BYTES.0;
const LIMIT: std::ops::Range<u64> = CLAIM..8 * CLAIM;
/// Of a card: what a job brings there and needs there, what all of them need there, and the memory.
const INPUT_BYTES: Bytes = Bytes(8);
const WORK_BYTES: Bytes = Bytes(4);
const KEY_BYTES: Bytes = Bytes(8);
const CARD_MIN: u64 = INPUT_BYTES.0 + WORK_BYTES.0 + KEY_BYTES.0;
const CARD_BYTES: Bytes = Bytes(48);
const CARDS: u16 = 2;
/// Jobs that are not waited for at once; jobs of one round.
const AHEAD: usize = 48;
const ROUND: u64 = 250;

/// How often a job got through that stage with less.
static FRUGAL: AtomicU64 = AtomicU64::new(0);

type Buffer = Charged<Vec<u8>>;
type Built = Pipeline<Arc<Job>, usize, Told>;
type Key = Residency<Arc<Staged<Simulated>>>;

fn input(card: u16) -> Class {
    Class::new("card.input", Space::device(card))
}

fn workspace(card: u16) -> Class {
    Class::new("card.work", Space::device(card))
}

fn key(card: u16) -> Class {
    Class::new("card.key", Space::device(card))
}

fn part_profile() -> Profile {
    let output = Demand::new().bytes(OUTPUT, OUTPUT_BYTES);
    Profile::new().stage("part", output.clone().bytes(SCRATCH, SCRATCH_BYTES), output)
}

/// `frugal`: with less scratch where a job is told that there is none.
fn profile_on(card: u16, frugal: bool) -> Profile {
    let keep = Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let peak = || keep.clone().bytes(SCRATCH, SCRATCH_BYTES);
    let scratch = Demand::new().bytes(SCRATCH, if frugal { FRUGAL_BYTES } else { SCRATCH_BYTES });
    let outputs = Demand::new().bytes(OUTPUT, OUTPUT_BYTES.times(PARTS as u64));
    let inputs = |demand: Demand| demand.bytes(input(card), INPUT_BYTES);
    Profile::new()
        .stage("make", peak(), keep.clone())
        .stage("call", peak(), keep.clone())
        .stage("carried", peak().bytes(TOKEN, Bytes(1)).slots(CARRIER, 1), keep.clone())
        .stage("stage in", inputs(peak()).on_lane(card), inputs(keep.clone()))
        .stage("compute", inputs(peak()).on_lease(card).bytes(workspace(card), WORK_BYTES), Demand::new())
        .stage("again", scratch, Demand::new())
        .stage("parts", outputs.clone(), outputs.clone())
        .parts(PARTS as u64, &part_profile())
        .stage("end", outputs, Demand::new())
}

/// A stage's own work: scratch that comes and goes, and what it was told.
fn work(grant: &mut Grant, job: &Job, stage: usize) -> Result<(), Told> {
    let _scratch = grant.take(SCRATCH, SCRATCH_BYTES)?;
    job.obey(stage)
}

/// What a job carries to the card.
struct OnCard {
    job: Arc<Job>,
    _buffer: Buffer,
    staged: Staged<Simulated>,
}

/// `from_input`: what a card refuses is tried again from the stage's input, not from the job's start.
fn build(
    ledger: &Ledger,
    pool: &Pool,
    hands: &Hands,
    cards: &DeviceSet<Simulated>,
    keys: &[Key],
    from_input: bool,
) -> Built {
    let carrier: Arc<dyn Carrier> = Arc::new(hands.clone());
    let (spawned, hands) = (Arc::new(AtomicU64::new(1)), hands.clone());
    let runtime = Runtime::new(move |task| {
        // A runtime that loses a task now and then.
        if spawned.fetch_add(1, Ordering::Relaxed) % 256 != 0 {
            Polled::new(hands.clone(), task).wake();
        }
    });
    // Short enough for a million jobs: while a neighbour has a card's memory, each job that wants it waits so long.
    let short = Retry::times(2).within(Duration::from_millis(1)).pause(Duration::from_micros(20));
    let staged = Pipeline::builder(ledger, pool, |_: &Arc<Job>| profile_on(0, false))
        .alternatives(|_| {
            let on = |frugal| (0..CARDS).map(move |card| profile_on(card, frugal));
            on(false).chain(on(true)).skip(1).collect()
        })
        .stage("make", |cx, job: Arc<Job>| {
            let buffer: Buffer = cx.grant().vec(BUFFER, BUFFER_BYTES.0 as usize)?;
            work(cx.grant(), &job, 0)?;
            Ok((job, buffer))
        })
        .from_start(short)
        .async_stage("call", &runtime, |cx, (job, buffer): (Arc<Job>, Buffer)| async move {
            let scratch = cx.take(SCRATCH, SCRATCH_BYTES)?;
            once_around().await;
            job.obey(1)?;
            drop(scratch);
            Ok((job, buffer))
        })
        .stage_on("carried", &carrier, |cx, (job, buffer)| {
            let _token = cx.grant().take_all(TOKEN);
            work(cx.grant(), &job, 2).map(|()| (job, buffer))
        })
        .at_most(1)
        .device_stage("stage in", cards, |cx, (job, buffer): (Arc<Job>, Buffer)| {
            let class = input(cx.device());
            let memory = cx.upload(class, &[1; INPUT_BYTES.0 as usize])?;
            work(cx.grant(), &job, 3)?;
            Ok(OnCard { job, _buffer: buffer, staged: cx.keep(memory) })
        })
        .from_start(short);
    let known = keys.to_vec();
    let compute = move |cx: &mut LeaseCx<'_, Simulated>, on_card: &OnCard| {
        let inputs = cx.lend(&on_card.staged)?;
        let card = cx.device();
        assert!(cx.grant().pinned(&known[usize::from(CARDS - 1 - card)]).is_none(), "the other card's key");
        let key = cx.grant().pinned(&known[usize::from(card)]).expect("its card's key is pinned").clone();
        let key = cx.lend(&key)?;
        let class = workspace(cx.device());
        let memory = cx.allocate(class, WORK_BYTES)?;
        work(cx.grant(), &on_card.job, 4)?;
        cx.call(|lane| lane.kernel(Duration::from_micros(1), &[inputs, key, memory.memory()], || ()))?;
        cx.copy_out(&memory, 0, &mut [0; WORK_BYTES.0 as usize])?;
        Ok(on_card.job.clone())
    };
    let computed = if from_input {
        staged.compute_stage_again("compute", cards, short, compute)
    } else {
        staged.compute_stage("compute", cards, move |cx, on_card| compute(cx, &on_card)).from_start(short)
    };
    let with_keys = cards.devices().iter().zip(keys).fold(computed, |builder, (device, key)| {
        builder
            .needs_on(device, key, |lane, memory| lane.copy_in(&[7; KEY_BYTES.0 as usize], memory, 0))
            // Not for long: whoever waits for a job may be the one who has the memory.
            .load_again(if from_input { short } else { Retry::times(0).within(Duration::ZERO) })
    });
    with_keys
        .stage_again("again", short, |cx, job: &Arc<Job>| {
            let scratch = cx.grant().take_all(SCRATCH);
            job.obey(5)?;
            if scratch.bytes() == FRUGAL_BYTES {
                FRUGAL.fetch_add(1, Ordering::Relaxed);
            }
            Ok(job.clone())
        })
        .fan_out(
            "parts",
            |_, job: Arc<Job>| Ok((job.clone(), std::iter::repeat_n(job, PARTS))),
            |_| part_profile(),
            |parts| {
                parts.stage("part", |cx: &mut StageCx<'_>, job: Arc<Job>| {
                    let output = cx.grant().take_all(OUTPUT);
                    work(cx.grant(), &job, 6).map(|()| output)
                })
            },
            FanIn::InOrder,
            |_, job, outputs: Vec<(usize, Reservation)>| Ok((job, outputs)),
        )
        .stage("end", |_, (job, outputs)| {
            job.obey(7)?;
            Ok(outputs.len())
        })
        .failures(|told| match told {
            Told::Transient => Failure::Transient,
            Told::OutOfMemory => Failure::OutOfMemory,
            Told::Device(error) => error.failure(),
            _ => Failure::Fatal,
        })
        .learning(Learning::MoreAndLess)
        .build()
        .expect("a pipeline")
}

/// Half of the cards are well; the others fail at some call of this round.
fn faults(random: &mut Random) -> Faults {
    let at = Some(3 + random.below(6 * ROUND));
    match random.below(8) {
        0 => Faults { lost_at: at, ..Faults::default() },
        1 => Faults { broken_at: at, ..Faults::default() },
        2 => Faults { out_of_memory_at: at, ..Faults::default() },
        3 => Faults { refused_at: at, ..Faults::default() },
        _ => Faults::default(),
    }
}

#[derive(Debug, Default)]
struct Count {
    succeeded: u64,
    failed: u64,
    panicked: u64,
    cancelled: u64,
    timed_out: u64,
    forsaken: u64,
    /// With its pipeline, or its pool.
    shut_down: u64,
    /// By what a card said, or because there was none left.
    by_card: u64,
    /// Not taken on, for both cards were lost, or pipeline or pool had ended.
    refused: u64,
    /// Never submitted, or nobody looked at how it ended, for the round was over.
    given_up: u64,
    dropped: u64,
    lost_cards: u64,
    deadlines_missed: u64,
}

impl Count {
    fn answered(&self) -> u64 {
        self.succeeded
            + self.failed
            + self.panicked
            + self.cancelled
            + self.timed_out
            + self.forsaken
            + self.shut_down
            + self.by_card
    }

    fn seen(&self) -> u64 {
        self.answered() + self.dropped + self.refused + self.given_up
    }

    /// Checks that a job ended as it was told to or as it may.
    fn settle(
        &mut self,
        number: u64,
        order: Order,
        result: Result<usize, JobError<Told>>,
        cards: &DeviceSet<Simulated>,
    ) {
        let count = match result {
            Ok(outputs) => {
                assert_eq!(outputs, PARTS);
                assert!(!matches!(order, Order::Fail(_) | Order::Panic(_)), "job {number} was told to {order:?}");
                &mut self.succeeded
            }
            Err(error) => self.of_error(number, order, &error, cards),
        };
        *count += 1;
    }

    fn of_error(
        &mut self,
        number: u64,
        order: Order,
        error: &JobError<Told>,
        cards: &DeviceSet<Simulated>,
    ) -> &mut u64 {
        match error {
            JobError::Part { source, .. } => self.of_error(number, order, &source.0, cards),
            JobError::Stage { source: Told::Vec(_) | Told::Take(_), .. } => panic!("job {number}: {error:?}"),
            JobError::Stage { source: Told::Device(DeviceError::Driver { .. }), .. } => &mut self.by_card,
            // What a card said to the load of its key, all hear that wait for it.
            JobError::NotEntered { source, .. } if matches!(**source, EnterError::LoadFailed { .. }) => {
                &mut self.by_card
            }
            JobError::Stage { source: Told::Device(DeviceError::Lost(_)), .. } | JobError::NotEntered { .. } => {
                assert!(!cards.losses().is_empty(), "job {number}: {error:?}");
                &mut self.by_card
            }
            JobError::Stage { source: Told::Device(_), .. } => panic!("job {number}: {error:?}"),
            JobError::Stage { .. } => {
                assert_ne!(order, Order::Nothing, "job {number}: {error:?}");
                &mut self.failed
            }
            JobError::Panicked { .. } => {
                assert!(matches!(order, Order::Panic(_)), "job {number}: {error:?}");
                &mut self.panicked
            }
            JobError::Rejected { .. } => &mut self.refused,
            JobError::Cancelled { .. } => &mut self.cancelled,
            JobError::TimedOut { .. } => &mut self.timed_out,
            JobError::Forsaken { .. } => &mut self.forsaken,
            JobError::ShutDown { .. } => &mut self.shut_down,
            _ => panic!("job {number}, {order:?}: {error:?}"),
        }
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Cards of a round, and the devices that they are.
fn start_cards(random: &mut Random, ledger: &Ledger) -> (Vec<Simulated>, DeviceSet<Simulated>) {
    let cards: Vec<_> = (0..CARDS)
        .map(|_| Simulated::new(CardSpec { memory: CARD_BYTES, faults: faults(random), ..CardSpec::default() }))
        .collect();
    let start = |(number, card): (u16, &Simulated)| {
        Device::start(number, card.clone(), ledger, DeviceConfig::default()).expect("its first calls are well")
    };
    let set = DeviceSet::new((0..CARDS).zip(&cards).map(start));
    (cards, set)
}

fn threads() -> Pool {
    Pool::new(PoolConfig { threads: 3, ..PoolConfig::default() }).expect("threads")
}

/// What is at hand in a round.
struct Round<'a> {
    random: Random,
    ledger: &'a Ledger,
    pool: &'a Pool,
    cards: &'a [Simulated],
    set: &'a DeviceSet<Simulated>,
    neighbour: Option<Neighbour>,
    jobs: u64,
    end: End,
    /// How many jobs it has where it ends early.
    until: u64,
}

impl Round<'_> {
    fn next_job(&mut self, number: u64) -> (JobOptions, Job) {
        let random = &mut self.random;
        let job = Job::with_number(random);
        let mut options = JobOptions::new(format!("job {number}")).priority(random.below(3) as i32 - 1);
        if random.one_in(16) {
            options = options.deadline(Instant::now() + Duration::from_micros(random.below(2000)));
        }
        if random.one_in(32) {
            options = options.timeout(Duration::from_micros(random.below(2000)));
        }
        if random.one_in(4) {
            options = options.id(format!("{number}"));
        }
        (options, job)
    }

    /// Limits move, and somebody else's memory comes and goes.
    fn disturb(&mut self) {
        let Self { random, ledger, cards, neighbour, .. } = self;
        if random.one_in(128) {
            // Never below one job and the urgent reserve, so that nothing becomes impossible.
            let limit = CLAIM + LIMIT.start + random.below(LIMIT.end - LIMIT.start - CLAIM);
            ledger.resize(Space::HOST, Bytes(limit)).expect("the budget names it");
        }
        if random.one_in(256) {
            ledger.resize_slots(CARRIER, 1 + random.below(3)).expect("the budget names them");
        }
        if random.one_in(256) {
            let limit = CARD_MIN + random.below(CARD_BYTES.0 - CARD_MIN + 1);
            // One that was lost has no limit any more.
            let _ = ledger.resize(Space::device(1), Bytes(limit));
        }
        if random.one_in(64) {
            // Somebody else's memory, of which the ledger does not know.
            let card = &cards[random.below(u64::from(CARDS)) as usize];
            *neighbour = if neighbour.is_none() { card.neighbour(Bytes(random.below(CARD_BYTES.0))) } else { None };
        }
    }

    /// Jobs that are submitted one by one. Gives the pipeline back if it was not to be dropped.
    fn one_by_one(&mut self, pipeline: Built, count: &mut Count) -> Option<Built> {
        let mut ahead = VecDeque::new();
        for number in 0..self.until {
            let (options, job) = self.next_job(number);
            let order = job.order;
            let keeps_ticket = !self.random.one_in(64);
            match pipeline.submit(options, Arc::new(job)) {
                Ok(ticket) if keeps_ticket => ahead.push_back((number, order, ticket)),
                Ok(ticket) => {
                    drop(ticket);
                    count.dropped += 1;
                }
                Err(refused) => {
                    let lost = self.set.losses().len();
                    assert_eq!(lost, usize::from(CARDS), "it fits, and its identity is new: {refused}");
                    count.refused += 1;
                }
            }
            if self.random.one_in(16) && !ahead.is_empty() {
                let at = self.random.below(ahead.len() as u64) as usize;
                ahead[at].2.cancel();
            }
            self.disturb();
            while ahead.len() > AHEAD {
                let (number, order, ticket) = ahead.pop_front().expect("more than none");
                count.settle(number, order, ticket.wait(), self.set);
            }
        }
        count.given_up += self.jobs - self.until;
        let kept = match self.end {
            End::Drained => Some(pipeline),
            End::Dropped => {
                drop(pipeline);
                None
            }
            End::Aborted => {
                self.pool.shutdown(Shutdown::Abort);
                Some(pipeline)
            }
        };
        for (number, order, ticket) in ahead {
            assert!(self.end == End::Drained || ticket.has_ended(), "whoever ends it waits for its jobs");
            count.settle(number, order, ticket.wait(), self.set);
        }
        kept
    }

    /// Jobs that are pulled from an iterator or a stream.
    fn fed(&mut self, pipeline: &Built, stream: bool, in_order: bool, count: &mut Count) {
        let orders = RefCell::new(Vec::new());
        let (jobs, end, until, pool, set) = (self.jobs, self.end, self.until, self.pool, self.set);
        let at_most = 1 + self.random.below(AHEAD as u64) as usize;
        let inputs = (0..jobs).map(|number| {
            let (options, job) = self.next_job(number);
            orders.borrow_mut().push(job.order);
            self.disturb();
            (options, Arc::new(job))
        });
        let mut yielded = 0;
        // Whoever stops here gives up the jobs that are under way.
        let mut next = |index: usize, result| {
            assert!(!in_order || index as u64 == yielded, "in order");
            count.settle(index as u64, orders.borrow()[index], result, set);
            yielded += 1;
            if yielded == until && end == End::Aborted {
                pool.shutdown(Shutdown::Abort);
            }
            yielded == until && end == End::Dropped
        };
        let is_stream = stream && cfg!(feature = "stream");
        if !is_stream {
            let results = pipeline.run_all(inputs).at_most(at_most);
            let mut results = if in_order { results.in_order() } else { results };
            while let Some((index, result)) = results.next()
                && !next(index, result)
            {}
        } else {
            #[cfg(feature = "stream")]
            {
                let mut results = sources::blocking(inputs, |inputs| {
                    let results = pipeline.run_stream(inputs).at_most(at_most);
                    if in_order { results.in_order() } else { results }
                });
                while let Some((index, result)) = results.next()
                    && !next(index, result)
                {}
            }
        }
        count.given_up += jobs - yielded;
    }
}

fn round(seed: u64, jobs: u64, pool: &Pool, hands: &Hands, count: &mut Count) {
    let mut random = Random(seed);
    let (source, end) = (Source::drawn(&mut random), End::drawn(&mut random));
    let own = (end == End::Aborted).then(threads);
    let pool = own.as_ref().unwrap_or(pool);
    let budget = Budget::new()
        .space(Space::HOST, Bytes(LIMIT.end))
        .urgent_reserve(Space::HOST, Bytes(CLAIM))
        .space(TOKEN.space(), Bytes(2))
        .slots(CARRIER, 2);
    let ledger = Ledger::new((0..CARDS).fold(budget, |budget, card| budget.device(card, CARD_BYTES, 2)));
    let (cards, set) = start_cards(&mut random, &ledger);
    let keys =
        |card| ledger.residency("key", key(card), KEY_BYTES, Duration::from_millis(1)).expect("the budget names it");
    let keys: Vec<Key> = (0..CARDS).map(keys).collect();
    let pipeline = build(&ledger, pool, hands, &set, &keys, random.one_in(2));
    let until = if end == End::Drained { jobs } else { 1 + random.below(jobs) };
    let before = count.seen();
    let mut this = Round { random, ledger: &ledger, pool, cards: &cards, set: &set, neighbour: None, jobs, end, until };
    let left = match source {
        Source::OneByOne => this.one_by_one(pipeline, count),
        Source::Fed { stream, in_order } => {
            this.fed(&pipeline, stream, in_order, count);
            Some(pipeline)
        }
    };
    let neighbour = this.neighbour;
    if let Some(pipeline) = left {
        pipeline.drain();
        count.deadlines_missed += pipeline.deadlines_missed();
    }
    drop(keys);
    ledger.quiesce(Duration::from_secs(60)).expect("nothing is left under way");
    let snapshot = ledger.snapshot();
    assert!(snapshot.is_empty(), "{snapshot:?}");
    assert_eq!((snapshot.outlived, count.seen() - before), (0, jobs));
    assert!(snapshot.space(Space::HOST).expect("named").peak <= Bytes(LIMIT.end));
    count.lost_cards += set.losses().len() as u64;
    drop((set, neighbour));
    for card in cards {
        let stats = card.stats();
        assert_eq!((stats.allocated_bytes, stats.freed_in_use, stats.open_lanes), (Bytes::ZERO, 0, 0), "{stats:?}");
    }
}

#[test]
fn every_ticket_is_answered_and_the_ledger_ends_at_zero() {
    static ROUND_SEED: AtomicU64 = AtomicU64::new(0);
    let jobs = from_environment("PLIMSOLL_SOAK_JOBS", 1250);
    let seed = from_environment("PLIMSOLL_SOAK_SEED", 1);
    println!("PLIMSOLL_SOAK_JOBS={jobs} PLIMSOLL_SOAK_SEED={seed}");
    // Panics are what is tested; a million reports of them are of no use.
    std::panic::set_hook(Box::new(|panic| {
        let payload = panic.payload();
        let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(|s| &**s));
        if text != Some("told to") {
            let seed = ROUND_SEED.load(Ordering::Relaxed);
            eprintln!("{panic}\nthe round alone: PLIMSOLL_SOAK_JOBS={ROUND} PLIMSOLL_SOAK_SEED={seed}");
        }
    }));
    let pool = threads();
    let hands = Hands::new();
    let mut count = Count::default();
    for number in 0..jobs.div_ceil(ROUND) {
        ROUND_SEED.store(seed + number, Ordering::Relaxed);
        round(seed + number, ROUND.min(jobs - number * ROUND), &pool, &hands, &mut count);
        if number % 100 == 99 {
            println!("{} rounds: {count:?}", number + 1);
        }
    }
    println!("{count:?}");
    assert_eq!(count.seen(), jobs);
    if jobs >= 5 * ROUND {
        for n in [count.succeeded, count.failed, count.panicked, count.cancelled] {
            assert!(n > 0, "each way to end is met: {count:?}");
        }
    }
    // What the cards do depends on the threads as well: in a few rounds it may be nothing.
    if jobs >= 100 * ROUND {
        assert!(count.by_card > 0 && count.lost_cards > 0 && count.forsaken > 0, "{count:?}");
        assert!(count.shut_down > 0 && FRUGAL.load(Ordering::Relaxed) > 0, "{count:?}");
    }
}
