//! Many tiny jobs through stages of every kind, with everything that can go wrong going wrong at random: errors, panics,
//! cancellations, time-outs, deadlines, devices out of memory, dropped tickets, limits that move, runtimes that drop what
//! they were given. In the end every ticket was answered, and the ledger holds nothing.
//!
//! What happens to a job follows from the seed and the job's number alone, so that a run can be repeated (the interleaving of
//! threads cannot). A short run is part of the tests; `cargo xtask soak pipeline` makes a long one:
//!
//! ```sh
//! PLIMSOLL_SOAK_JOBS=1000000 PLIMSOLL_SOAK_SEED=7 cargo test --release -p plimsoll --test soak_pipeline
//! ```

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use plimsoll::pipeline::{
    Carrier, Errand, Failure, FanIn, JobError, JobOptions, Learning, Pipeline, Retry, Runtime, StageCx, Task, Ticket,
};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Charged, Class, Demand, Ledger, Profile, Reservation, Slots, Space};

const BUFFER: Class = Class::new("buffer", Space::HOST);
const SCRATCH: Class = Class::new("scratch", Space::HOST);
const OUTPUT: Class = Class::new("output", Space::HOST);
const CARD: Class = Class::new("card", Space::device(0));
const LANE: Slots = Slots::new("lane");

/// Where a job can be told to misbehave.
const STAGES: [&str; 6] = ["make", "call", "card", "again", "parts", "end"];
const BUFFER_BYTES: Bytes = Bytes(48);
const SCRATCH_BYTES: Bytes = Bytes(16);
const OUTPUT_BYTES: Bytes = Bytes(4);
const PARTS: usize = 2;
/// The most that one job holds, and the range in which the limit moves.
const CLAIM: u64 = BUFFER_BYTES.0 + SCRATCH_BYTES.0 + PARTS as u64 * OUTPUT_BYTES.0;
const LIMIT: std::ops::Range<u64> = CLAIM..8 * CLAIM;
/// Jobs that are not waited for at once.
const AHEAD: usize = 48;

/// Random numbers, the same for the same seed (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// What a job is told to do, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Nothing,
    Fail(usize),
    /// Only the first so many runs of the stage fail.
    FailFirst(usize, u32),
    OutOfMemory(usize, u32),
    Panic(usize),
}

#[derive(Debug)]
struct Job {
    order: Order,
    /// How often the stage in which it misbehaves has run.
    runs: AtomicU32,
}

#[derive(Debug, thiserror::Error)]
enum Told {
    #[error("told to fail")]
    Fail,
    #[error("told to fail this time")]
    Transient,
    #[error("told to be out of memory")]
    OutOfMemory,
    #[error(transparent)]
    Vec(#[from] plimsoll::ledger::VecError),
    #[error(transparent)]
    Take(#[from] plimsoll::ledger::TakeError),
}

impl Job {
    fn obey(&self, stage: usize) -> Result<(), Told> {
        let (Order::Fail(at) | Order::FailFirst(at, _) | Order::OutOfMemory(at, _) | Order::Panic(at)) = self.order
        else {
            return Ok(());
        };
        if at != stage {
            return Ok(());
        }
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        match self.order {
            Order::Fail(_) => Err(Told::Fail),
            Order::FailFirst(_, runs) if run < runs => Err(Told::Transient),
            Order::OutOfMemory(_, runs) if run < runs => Err(Told::OutOfMemory),
            Order::Panic(_) => panic!("told to"),
            _ => Ok(()),
        }
    }

    /// The order at a job's number: half of the jobs are well behaved.
    fn with_number(random: &mut Random) -> Job {
        let stage = random.below(STAGES.len() as u64) as usize;
        let order = match random.below(10) {
            0 => Order::Fail(stage),
            1 => Order::Panic(stage),
            2 => Order::FailFirst(3, 1 + random.below(4) as u32),
            3 => Order::OutOfMemory(3, 1 + random.below(2) as u32),
            4 => Order::FailFirst(stage, 1),
            _ => Order::Nothing,
        };
        Job { order, runs: AtomicU32::new(0) }
    }
}

/// Threads that run whatever comes: errands and futures. They end with the last handle.
#[derive(Clone)]
struct Hands {
    work: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl Hands {
    #[expect(clippy::disallowed_methods, reason = "a thread outside of the pool is what this stands for")]
    fn new() -> Self {
        let (work, to_do) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        std::thread::spawn(move || to_do.into_iter().for_each(|work| work()));
        Self { work }
    }
}

impl Carrier for Hands {
    fn carry(&self, errand: Errand) {
        let _ = self.work.send(Box::new(move || errand.run()));
    }
}

struct Polled {
    hands: Hands,
    task: parking::Slot<Task>,
}

impl Wake for Polled {
    fn wake(self: Arc<Self>) {
        let work = self.hands.work.clone();
        let _ = work.send(Box::new(move || {
            let waker = Waker::from(self.clone());
            self.task.with(|task| task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        }));
    }
}

/// A value that one thread at a time works with.
mod parking {
    #[expect(clippy::disallowed_types, reason = "the crate's own switch is not public")]
    pub(super) struct Slot<T>(std::sync::Mutex<Option<T>>);

    #[expect(clippy::disallowed_types, reason = "the crate's own switch is not public")]
    impl<T> Slot<T> {
        pub(super) fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(Some(value)))
        }

        /// Drops the value once `f` says that it is done.
        pub(super) fn with(&self, f: impl FnOnce(&mut T) -> bool) {
            let mut slot = self.0.lock().unwrap();
            if slot.as_mut().is_some_and(f) {
                *slot = None;
            }
        }
    }
}

/// Ready at the second poll.
async fn once_around() {
    let mut polled = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

type Buffer = Charged<Vec<u8>>;

fn part_profile() -> Profile {
    let output = Demand::new().bytes(OUTPUT, OUTPUT_BYTES);
    Profile::new().stage("part", output.clone().bytes(SCRATCH, SCRATCH_BYTES), output)
}

fn profile() -> Profile {
    let keep = Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let peak = || keep.clone().bytes(SCRATCH, SCRATCH_BYTES);
    let outputs = Demand::new().bytes(OUTPUT, OUTPUT_BYTES.times(PARTS as u64));
    Profile::new()
        .stage("make", peak(), keep.clone())
        .stage("call", peak(), keep.clone())
        .stage("card", peak().bytes(CARD, Bytes(1)).slots(LANE, 1), keep.clone())
        .stage("again", peak(), keep.clone())
        .stage("parts", keep.clone(), outputs.clone())
        .parts(PARTS as u64, &part_profile())
        .stage("end", outputs, Demand::new())
}

/// A stage's own work: scratch that comes and goes, and what it was told.
fn work(cx: &mut StageCx<'_>, job: &Job, stage: usize) -> Result<(), Told> {
    let _scratch = cx.grant().take(SCRATCH, SCRATCH_BYTES)?;
    job.obey(stage)
}

fn build(ledger: &Ledger, pool: &Pool, hands: &Hands, drops: u64) -> Pipeline<Arc<Job>, usize, Told> {
    let carrier: Arc<dyn Carrier> = Arc::new(hands.clone());
    let (spawned, hands) = (Arc::new(AtomicU64::new(1)), hands.clone());
    let runtime = Runtime::new(move |task| {
        // A runtime that loses a task now and then.
        let number = spawned.fetch_add(1, Ordering::Relaxed);
        if number % drops != 0 {
            Arc::new(Polled { hands: hands.clone(), task: parking::Slot::new(task) }).wake();
        }
    });
    let short = Retry::times(2).within(Duration::from_millis(20));
    Pipeline::builder(ledger, pool, |_: &Arc<Job>| profile())
        .stage("make", |cx, job: Arc<Job>| {
            let buffer: Buffer = cx.grant().vec(BUFFER, BUFFER_BYTES.0 as usize)?;
            work(cx, &job, 0)?;
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
        .stage_on("card", &carrier, |cx, (job, buffer)| {
            let _card = cx.grant().take_all(CARD);
            work(cx, &job, 2).map(|()| (job, buffer))
        })
        .at_most(1)
        .stage_again("again", short, |cx, (job, buffer): &(Arc<Job>, Buffer)| {
            work(cx, job, 3).map(|()| (job.clone(), buffer.len()))
        })
        .fan_out(
            "parts",
            |_, (job, _): (Arc<Job>, usize)| Ok((job.clone(), std::iter::repeat_n(job, PARTS))),
            |_| part_profile(),
            |parts| {
                parts.stage("part", |cx, job: Arc<Job>| {
                    let output = cx.grant().take_all(OUTPUT);
                    work(cx, &job, 4).map(|()| output)
                })
            },
            FanIn::InOrder,
            |_, job, outputs: Vec<(usize, Reservation)>| Ok((job, outputs)),
        )
        .stage("end", |_, (job, outputs)| {
            job.obey(5)?;
            Ok(outputs.len())
        })
        .failures(|told| match told {
            Told::Transient => Failure::Transient,
            Told::OutOfMemory => Failure::OutOfMemory,
            _ => Failure::Fatal,
        })
        .learning(Learning::MoreAndLess)
        .build()
        .expect("a pipeline")
}

#[derive(Debug, Default)]
struct Count {
    succeeded: u64,
    failed: u64,
    panicked: u64,
    cancelled: u64,
    timed_out: u64,
    forsaken: u64,
}

impl Count {
    fn all(&self) -> u64 {
        self.succeeded + self.failed + self.panicked + self.cancelled + self.timed_out + self.forsaken
    }

    /// Waits for a ticket, and checks that it ended as it was told to or as it may.
    fn settle(&mut self, number: u64, order: Order, ticket: Ticket<usize, Told>) {
        let count = match ticket.wait() {
            Ok(outputs) => {
                assert_eq!(outputs, PARTS);
                assert!(!matches!(order, Order::Fail(_) | Order::Panic(_)), "job {number} was told to {order:?}");
                &mut self.succeeded
            }
            Err(error) => self.of_error(number, order, &error),
        };
        *count += 1;
    }

    fn of_error(&mut self, number: u64, order: Order, error: &JobError<Told>) -> &mut u64 {
        match error {
            JobError::Part { source, .. } => self.of_error(number, order, &source.0),
            JobError::Stage { source: Told::Vec(_) | Told::Take(_), .. } => panic!("job {number}: {error:?}"),
            JobError::Stage { .. } => {
                assert_ne!(order, Order::Nothing, "job {number}: {error:?}");
                &mut self.failed
            }
            JobError::Panicked { .. } => {
                assert!(matches!(order, Order::Panic(_)), "job {number}: {error:?}");
                &mut self.panicked
            }
            JobError::Cancelled { .. } => &mut self.cancelled,
            JobError::TimedOut { .. } => &mut self.timed_out,
            JobError::Forsaken { .. } => &mut self.forsaken,
            _ => panic!("job {number}, {order:?}: {error:?}"),
        }
    }
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn every_ticket_is_answered_and_the_ledger_ends_at_zero() {
    let jobs = from_environment("PLIMSOLL_SOAK_JOBS", 4000);
    let seed = from_environment("PLIMSOLL_SOAK_SEED", 1);
    println!("PLIMSOLL_SOAK_JOBS={jobs} PLIMSOLL_SOAK_SEED={seed}");
    // Panics are what is tested; a million reports of them are of no use.
    std::panic::set_hook(Box::new(|panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&"told to") {
            eprintln!("{panic}");
        }
    }));
    let mut random = Random(seed);
    let ledger = Ledger::new(
        Budget::new()
            .space(Space::HOST, Bytes(LIMIT.end))
            .urgent_reserve(Space::HOST, Bytes(CLAIM))
            .space(Space::device(0), Bytes(2))
            .slots(LANE, 2),
    );
    let pool = Pool::new(PoolConfig { threads: 3, ..PoolConfig::default() }).expect("threads");
    let hands = Hands::new();
    let pipeline = build(&ledger, &pool, &hands, 512);
    let mut count = Count::default();
    let mut dropped = 0;
    let mut ahead = VecDeque::new();
    for number in 0..jobs {
        let job = Job::with_number(&mut random);
        let order = job.order;
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
        let ticket = pipeline.submit(options, Arc::new(job)).expect("it fits, and its identity is new");
        if random.one_in(64) {
            drop(ticket);
            dropped += 1;
        } else {
            ahead.push_back((number, order, ticket));
        }
        if random.one_in(16) && !ahead.is_empty() {
            let at = random.below(ahead.len() as u64) as usize;
            ahead[at].2.cancel();
        }
        if random.one_in(128) {
            // Never below one job and the urgent reserve, so that nothing becomes impossible.
            let limit = CLAIM + LIMIT.start + random.below(LIMIT.end - LIMIT.start - CLAIM);
            ledger.resize(Space::HOST, Bytes(limit)).expect("the budget names it");
        }
        if random.one_in(256) {
            ledger.resize_slots(LANE, 1 + random.below(3)).expect("the budget names them");
        }
        while ahead.len() > AHEAD {
            let (number, order, ticket) = ahead.pop_front().expect("more than none");
            count.settle(number, order, ticket);
        }
    }
    for (number, order, ticket) in ahead {
        count.settle(number, order, ticket);
    }
    pipeline.drain();
    ledger.quiesce(Duration::from_secs(60)).expect("nothing is left under way");
    let snapshot = ledger.snapshot();
    assert!(snapshot.is_empty(), "{snapshot:?}");
    assert_eq!((snapshot.outlived, count.all() + dropped), (0, jobs));
    assert!(snapshot.space(Space::HOST).expect("named").peak <= Bytes(LIMIT.end));
    println!("{count:?}, dropped {dropped}, deadlines missed {}", pipeline.deadlines_missed());
    for n in [count.succeeded, count.failed, count.panicked, count.cancelled] {
        assert!(n > jobs / 100, "each way to end is met: {count:?}");
    }
}
