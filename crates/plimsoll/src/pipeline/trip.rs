//! One job's trip through the stages: a small state machine that whoever has something to do drives one step on.
//!
//! ```text
//!              take                      the stage is granted                 the last stage ended, or it failed
//!   Between ───────────▶ Driven ──────────────────────────────▶ (runs) ─────────────────────────────▶ Ended
//!      ▲                   │  │                                    │
//!      │  not granted yet  │  │ granted, but not where the stage   │ a stage ended
//!      ├───────────────────┘  │ runs, or another job is further    │
//!      └──────────────────────┴──── downstream: sent on ◀──────────┘
//! ```
//!
//! 1. Between stages the luggage (the value, the ledger's job, perhaps a grant) lies in the state, and so does the future of
//!    an async stage between its polls. Whoever takes the luggage out drives, alone; so a trip is never run twice, however
//!    often it is woken.
//! 2. Waiting for memory is a `Pending` of the ledger's job. Its waker sends the trip on; no thread waits.
//! 3. A wake-up that finds somebody driving leaves the mark `again`, and the driver looks once more before it puts the
//!    luggage back. So none is lost.
//! 4. Cancelling sets the flag, then takes the luggage if it lies there. Otherwise the driver finds the flag when it
//!    puts the luggage back, or before it starts the next stage. So none is lost either.
//! 5. *Sending on* gives the trip to where its next stage runs: the pool's injector, a carrier, a runtime. Each gives word
//!    when it cannot run it any more, and the job ends.
//! 6. No lock is held while a stage, a destructor, a waker or an observer runs.
//! 7. A panic where nobody expects one (in a carrier, in a subscriber to `tracing`) takes the luggage along that was in hand. By the
//!    number of the driver in the state it is known whether it did; then the job ends with that.

use std::any::Any;
use std::sync::{Arc, Weak};
// Statistics are part of no protocol: the standard library's atomics also under loom.
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::cx::{Reason, Stop};
use super::error::JobError;
use super::landing::{Handle, Landing, Presence};
use super::line::Line;
use super::options::JobOptions;
use super::pacing::WorkClass;
use super::retry::{Spare, Tries};
use super::stage::{Carrier, Errand, Place, Work};
use super::stats::Event;
use super::task::{Runtime, Voyage};
use crate::Profile;
use crate::contain::{contain, discard, wake};
use crate::ledger::{EnterError, Grant, Job};
use crate::observe::What;
use crate::pool::{JobTag, Run, Task, Turn};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

mod again;
mod bell;
mod loads;
mod parts;
mod run;
mod span;
mod urgency;

use bell::Bell;
use parts::Spreading;
use run::Sailing;
use span::StageSpan;
use urgency::Urgency;

/// What is handed from stage to stage, its type known to the builder.
pub(super) type Value = Box<dyn Any + Send>;

/// Where a job's result goes.
pub(super) trait Delivery<E>: Send {
    /// The first stage begins.
    fn began(&mut self) {}

    /// The end. Everything that the job held has been returned, except what travels with the result.
    fn deliver(self: Box<Self>, result: Result<Value, JobError<E>>);
}

pub(super) struct Trip<E> {
    pub(super) name: Arc<str>,
    pub(super) tag: JobTag,
    line: Arc<Line<E>>,
    stop: Arc<Stop>,
    urgency: Urgency,
    /// Its first stage has begun.
    begun: AtomicBool,
    /// What its stages need, before any correction.
    declared: Vec<Profile>,
    class: Option<WorkClass>,
    /// When the ledger last woke it, in nanoseconds after the pipeline was built: with the grant that it waited for.
    woken: AtomicU64,
    /// The input, kept for another start.
    spare: Mutex<Option<Spare>>,
    /// The stage that is next or running: where the trip belongs.
    stage: AtomicUsize,
    state: Mutex<State<E>>,
    delivery: Mutex<Option<Box<dyn Delivery<E>>>>,
    /// Wakes it.
    waker: Waker,
    /// Declared last: when it is counted out, everything else has been let go.
    _presence: Presence<E>,
}

enum State<E> {
    Between(Box<Luggage<E>>),
    /// By whoever took it up for the `by`th time.
    Driven {
        again: bool,
        by: u64,
    },
    Ended,
}

/// What a job starts from, and what is kept of it for another start.
pub(super) struct Input {
    pub(super) value: Value,
    pub(super) spare: Option<Spare>,
}

/// What a job carries between stages. Dropped in this order: buffers are freed before the ledger hears of the end.
struct Luggage<E> {
    cargo: Cargo<E>,
    papers: Papers,
}

/// What is carried besides the cargo.
struct Papers {
    job: Job,
    /// The stage that is next or running.
    stage: usize,
    since: Instant,
    /// Failures in this stage, and those after which the job began again.
    tries: Tries,
    starts: Tries,
    /// How often it was admitted to a device that was lost before the first stage began.
    turned_away: usize,
    /// Its plans that it does not go by after all.
    without: Vec<usize>,
    /// How often the luggage was put down: who was sent for it then, and is dropped, has word of this edition only.
    edition: u64,
    /// The edition for which somebody was sent last.
    sent: u64,
    /// How often the luggage was taken up: the number of who has it in hand.
    taken: u64,
    /// Of the run of the stage that is under way.
    span: StageSpan,
}

#[expect(clippy::large_enum_variant, reason = "it lives in the box of its luggage")]
enum Cargo<E> {
    /// A stage failed and is tried again at that moment; an alarm is set.
    Resting(Value, Instant),
    /// What the stage before made; the next stage is waited for.
    Waiting(Value),
    /// The same, and the next stage is granted.
    Granted(Value, Grant),
    /// The future of an async stage.
    Sailing(Sailing<E>),
    /// The parts into which a stage has split the job.
    Parts(Box<Spreading<E>>),
}

impl<E> Cargo<E> {
    /// What the next stage was granted, before it runs.
    fn grant(&self) -> Option<&Grant> {
        match self {
            Cargo::Granted(_, grant) => Some(grant),
            _ => None,
        }
    }

    /// Drops it, value by value, whatever their destructors do.
    fn discard(self) {
        match self {
            Cargo::Resting(value, _) | Cargo::Waiting(value) => discard(value),
            Cargo::Granted(value, grant) => {
                discard(value);
                drop(grant);
            }
            Cargo::Sailing(sailing) => sailing.discard(),
            Cargo::Parts(spreading) => spreading.discard(),
        }
    }
}

/// Who drives, and so which stages may run here and now.
enum Driver<'a, 'b> {
    /// The submitter's thread, or one that only came by: no stage runs here.
    Passer,
    Worker,
    /// A thread of this carrier.
    Carrier(&'a Arc<dyn Carrier>),
    /// A voyage on this runtime, being polled; set when the future of a stage was left in the luggage for it.
    Voyage(&'a Runtime, &'a mut Context<'b>, &'a mut bool),
}

impl<E: Send + 'static> Trip<E> {
    pub(super) fn new(
        line: &Arc<Line<E>>,
        job: Job,
        declared: Vec<Profile>,
        class: Option<WorkClass>,
        options: JobOptions,
        input: Input,
        delivery: Box<dyn Delivery<E>>,
    ) -> Arc<Self> {
        let Input { value, spare } = input;
        let (tries, starts) = Default::default();
        let papers = Papers {
            job,
            stage: 0,
            since: Instant::now(),
            tries,
            starts,
            turned_away: 0,
            without: Vec::new(),
            edition: 0,
            sent: 0,
            taken: 0,
            span: StageSpan::none(),
        };
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            name: options.name.clone(),
            tag: JobTag::fresh(),
            line: line.clone(),
            stop: Arc::new(Stop::new()),
            urgency: Urgency::new(options),
            begun: AtomicBool::new(false),
            declared,
            class,
            woken: AtomicU64::new(0),
            spare: Mutex::new(spare),
            stage: AtomicUsize::new(0),
            state: Mutex::new(State::Between(Box::new(Luggage { cargo: Cargo::Waiting(value), papers }))),
            delivery: Mutex::new(Some(delivery)),
            waker: Waker::from(Arc::new(Bell(Handle::from(this.clone())))),
            _presence: Presence::new(&line.landing),
        })
    }

    pub(super) fn handle(self: &Arc<Self>) -> Handle<E> {
        Handle::from(Arc::downgrade(self))
    }

    pub(super) fn landing(&self) -> &Arc<Landing<E>> {
        &self.line.landing
    }

    /// Asks for admission, on the submitter's thread.
    pub(super) fn set_off(self: &Arc<Self>) {
        self.set_alarms();
        if let Some(luggage) = self.take() {
            self.drive(luggage, Driver::Passer);
        }
    }

    pub(super) fn cancel(&self) {
        self.stop(Reason::Cancelled);
    }

    fn stop(&self, reason: Reason) {
        self.stop.set(reason);
        if mutant!("cancel-waits-for-the-runtime") && self.wake_voyage() {
            return;
        }
        if let Some(luggage) = self.take() {
            self.holding(luggage, |luggage| self.come_to_an_end(luggage));
        }
    }

    /// For a fault to be caught: leaves a parked future to its runtime.
    fn wake_voyage(&self) -> bool {
        let waker = match &*lock(&self.state) {
            State::Between(luggage) => match &luggage.cargo {
                Cargo::Sailing(sailing) => sailing.waker(),
                _ => return false,
            },
            _ => return false,
        };
        waker.wake();
        true
    }

    fn take(&self) -> Option<Box<Luggage<E>>> {
        let mut state = lock(&self.state);
        if let State::Driven { again, .. } = &mut *state {
            *again = true;
            return None;
        }
        let State::Between(mut luggage) = std::mem::replace(&mut *state, State::Ended) else { return None };
        luggage.papers.taken += 1;
        *state = State::Driven { again: false, by: luggage.papers.taken };
        Some(luggage)
    }

    /// Does what is to be done by whoever has taken the luggage. Should a panic get out of that, nobody has it any more, unless it
    /// was put down before.
    fn holding(&self, luggage: Box<Luggage<E>>, go: impl FnOnce(Box<Luggage<E>>)) {
        let taken = luggage.papers.taken;
        let Err(panic) = contain(|| go(luggage)) else { return };
        let is_gone = matches!(*lock(&self.state), State::Driven { by, .. } if by == taken);
        if is_gone && !mutant!("panicked-with-the-luggage") {
            let (job, stage) = (self.name.clone(), self.line.stages[self.stage.load(Ordering::Relaxed)].name);
            let message = panic.message();
            drop(panic);
            self.end(Err(JobError::Panicked { job, stage, message }));
        }
    }

    /// Puts the luggage down, or gives it back if there is a reason to go on: a wake-up or a cancellation meanwhile.
    fn put_back(&self, mut luggage: Box<Luggage<E>>) -> Option<Box<Luggage<E>>> {
        luggage.papers.edition += 1;
        let mut state = lock(&self.state);
        let again = matches!(*state, State::Driven { again: true, .. });
        if (again || self.stop.is_set()) && !mutant!("parked-without-recheck") {
            *state = State::Driven { again: false, by: luggage.papers.taken };
            return Some(luggage);
        }
        *state = State::Between(luggage);
        None
    }

    pub(super) fn has_ended(&self) -> bool {
        matches!(*lock(&self.state), State::Ended)
    }

    /// Undoes `new`, before the trip has set off.
    pub(super) fn unpack(&self) -> Value {
        match self.take().map(|luggage| luggage.cargo) {
            Some(Cargo::Waiting(value)) => value,
            _ => unreachable!("a trip that has not set off has its luggage"),
        }
    }

    fn drive(self: &Arc<Self>, luggage: Box<Luggage<E>>, mut driver: Driver<'_, '_>) {
        self.holding(luggage, |mut luggage| {
            loop {
                if self.stop.is_set() {
                    return self.come_to_an_end(luggage);
                }
                luggage = match self.step(luggage, &mut driver) {
                    Some(next) => next,
                    None => return,
                };
            }
        });
    }

    /// One step on. `None` when the driver has nothing more to do.
    fn step(self: &Arc<Self>, mut luggage: Box<Luggage<E>>, driver: &mut Driver<'_, '_>) -> Option<Box<Luggage<E>>> {
        if let Cargo::Resting(value, until) = luggage.cargo {
            if until > Instant::now() {
                luggage.cargo = Cargo::Resting(value, until);
                return self.put_back(luggage);
            }
            luggage.cargo = Cargo::Waiting(value);
        }
        let papers = &mut luggage.papers;
        if let Cargo::Waiting(value) = luggage.cargo {
            match self.poll_grant(papers, &mut Context::from_waker(&self.waker)) {
                Poll::Ready(Ok(grant)) => luggage.cargo = Cargo::Granted(value, grant),
                Poll::Pending => {
                    luggage.cargo = Cargo::Waiting(value);
                    if self.hurry_if_due(&mut luggage.papers) {
                        return Some(luggage);
                    }
                    return self.put_back(luggage);
                }
                Poll::Ready(Err(source)) => {
                    let stage = self.line.stages[papers.stage].name;
                    let may_go_elsewhere = papers.stage == 0 && papers.turned_away + 1 < papers.job.profiles().len();
                    let papers = match &source {
                        // It was to load what it needs there, and has begun nothing: it stands for admission again.
                        EnterError::Lost(_) if may_go_elsewhere && !mutant!("turned-away-for-good") => {
                            luggage.papers.turned_away += 1;
                            luggage.cargo = Cargo::Waiting(value);
                            return Some(luggage);
                        }
                        EnterError::LoadFailed { residency, .. } if self.does_without(residency, papers) => {
                            luggage.cargo = Cargo::Waiting(value);
                            return Some(luggage);
                        }
                        EnterError::Lost(_) => match self.lost_its_device(value, luggage.papers) {
                            Ok(luggage) => return Some(luggage),
                            Err(papers) => papers,
                        },
                        _ => {
                            discard(value);
                            luggage.papers
                        }
                    };
                    self.note_end(papers, "not_entered");
                    let source = Box::new(source);
                    self.end(Err(JobError::NotEntered { job: self.name.clone(), stage, source }));
                    return None;
                }
            }
        }
        if let Cargo::Sailing(sailing) = &luggage.cargo
            && !matches!(driver, Driver::Voyage(..))
        {
            // Only its voyage polls it. Whatever brought us here may have been meant for that, so it looks again.
            let waker = sailing.waker();
            let again = self.put_back(luggage);
            if again.is_none() {
                wake(waker);
            }
            return again;
        }
        if !self.may_run_here(&luggage, driver) {
            let again = self.put_back(luggage);
            if again.is_none() {
                self.send_on();
            }
            // Otherwise a wake-up that was for the grant that we have, or a reason to stop.
            return again;
        }
        self.run_stage(luggage, driver)
    }

    fn may_run_here(&self, luggage: &Luggage<E>, driver: &Driver<'_, '_>) -> bool {
        match (&self.line.stages[luggage.papers.stage].place, driver) {
            (Place::Worker(_), Driver::Worker) => !self.line.remote.has_further_downstream(self.stages_left()),
            (Place::Either(..), Driver::Worker) if luggage.cargo.grant().is_none_or(|grant| grant.lane().is_none()) => {
                !self.line.remote.has_further_downstream(self.stages_left())
            }
            // Without a lane it is a worker's, also where a carrier's thread has run the stage before.
            (Place::Either(..), Driver::Carrier(_))
                if luggage.cargo.grant().is_some_and(|grant| grant.lane().is_none())
                    && !mutant!("workers-way-on-a-lane") =>
            {
                false
            }
            (Place::Carried(carrier, _) | Place::Either(carrier, ..), Driver::Carrier(here)) => {
                let suits = |grant: &Grant| carrier.suits(grant);
                Arc::ptr_eq(carrier, here) && luggage.cargo.grant().is_none_or(suits)
            }
            (Place::Task(runtime, _), Driver::Voyage(here, ..)) => runtime.is(here),
            (Place::Parts(_), Driver::Worker) => true,
            _ => false,
        }
    }

    fn stages_left(&self) -> usize {
        // Relaxed: a hint for the order among jobs.
        self.line.left[self.stage.load(Ordering::Relaxed)]
    }

    /// Notes that somebody is sent for the luggage, if it lies between two stages.
    fn sending(&self) -> Sent {
        match &mut *lock(&self.state) {
            State::Between(luggage) => {
                let Papers { stage, edition, sent, .. } = &mut luggage.papers;
                *sent = *edition;
                Sent { stage: *stage, edition: Some(*edition), lane: luggage.cargo.grant().and_then(Grant::lane) }
            }
            // Relaxed: as in `send_on`.
            _ => Sent { stage: self.stage.load(Ordering::Relaxed), edition: None, lane: None },
        }
    }

    /// Gives the trip to where its stage runs, to be driven there.
    pub(super) fn send_on(self: &Arc<Self>) {
        let trip = self.handle();
        // Relaxed: after a wake-up this may be the stage before. A worker sends the trip on once more from there; others may have word
        // for the luggage as it lies, so they are sent for the stage that it is at.
        let stage = self.stage.load(Ordering::Relaxed);
        let Sent { stage, edition, lane } = match &self.line.stages[stage].place {
            Place::Worker(_) | Place::Parts(_) => Sent { stage, edition: None, lane: None },
            Place::Carried(..) | Place::Either(..) | Place::Task(..) => self.sending(),
        };
        let stages_left = self.line.left[stage];
        match &self.line.stages[stage].place {
            Place::Carried(carrier, _) => self.ride(carrier, stages_left, edition, lane),
            Place::Either(carrier, ..) if lane.is_some() => self.ride(carrier, stages_left, edition, lane),
            place @ (Place::Worker(_) | Place::Parts(_) | Place::Either(..)) => {
                let run = Run::Stage(Box::new(move || _ = trip.with(|trip| trip.driven_by(Driver::Worker))));
                let first = stage == 0 && self.line.is_outermost() && !matches!(place, Place::Parts(_));
                let turn = if first { Turn::NewJob } else { Turn::UnderWay };
                if self
                    .line
                    .remote
                    .submit(Task { tag: self.tag, turn, stages_left, priority: self.urgency.priority(), run })
                    .is_err()
                {
                    // The pool has ended: nobody could drive it to an end.
                    self.line.landing.close(true);
                    self.cancel();
                }
            }
            Place::Task(runtime, _) => Voyage::start(trip, edition, runtime),
        }
    }

    /// Gives the trip to a carrier.
    fn ride(self: &Arc<Self>, carrier: &Arc<dyn Carrier>, stages_left: usize, edition: Option<u64>, lane: Option<u16>) {
        let ride = Ride { trip: self.handle(), edition, carrier: Arc::downgrade(carrier) };
        let priority = self.urgency.priority();
        let errand = Errand::new(self.name.clone(), stages_left, priority, lane, Box::new(ride));
        // If it panics the errand is dropped, and the job knows.
        let _ = contain(|| carrier.carry(errand));
    }

    fn driven_by(self: &Arc<Self>, driver: Driver<'_, '_>) {
        if let Some(luggage) = self.take() {
            self.drive(luggage, driver);
        }
    }

    /// A poll of a voyage, which is `aboard` while the future of its stage lies in the luggage.
    pub(super) fn sail(self: &Arc<Self>, cx: &mut Context<'_>, aboard: &mut bool) -> Poll<()> {
        let Some(luggage) = self.take() else {
            // Somebody else drives or has ended it. One who drives wakes the voyage when it puts the future back.
            return if *aboard && !self.has_ended() { Poll::Pending } else { Poll::Ready(()) };
        };
        if matches!(luggage.cargo, Cargo::Sailing(_)) != *aboard {
            // The future belongs to another voyage, which is woken because this look may have cost it a wake-up.
            self.drive(luggage, Driver::Passer);
            return Poll::Ready(());
        }
        // Relaxed: written by whoever put the luggage back, under the lock.
        let Place::Task(runtime, _) = &self.line.stages[self.stage.load(Ordering::Relaxed)].place else {
            self.drive(luggage, Driver::Passer);
            return Poll::Ready(());
        };
        *aboard = false;
        self.drive(luggage, Driver::Voyage(runtime, cx, aboard));
        if *aboard { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Who was sent to drive the trip, when its luggage was put down for that time, has been dropped. If it lies there untouched,
    /// nobody else will come. Otherwise somebody has, and word that comes late is no reason to end the job, but one to look once
    /// more, as whoever was dropped would have, unless another was sent since.
    pub(super) fn forsaken(self: &Arc<Self>, edition: Option<u64>) {
        let another_comes = match &*lock(&self.state) {
            State::Between(luggage) => {
                let Papers { edition: current, sent, .. } = luggage.papers;
                edition != Some(current) && sent == current
            }
            State::Driven { .. } | State::Ended => false,
        };
        if another_comes && !mutant!("late-word-ends-a-job") {
            return;
        }
        let Some(luggage) = self.take() else { return };
        if edition == Some(luggage.papers.edition) || mutant!("late-word-ends-a-job") {
            self.stop.set(Reason::Forsaken);
            return self.holding(luggage, |luggage| self.come_to_an_end(luggage));
        }
        self.drive(luggage, Driver::Passer);
    }

    /// The voyage has been dropped that alone would poll the future in the luggage.
    pub(super) fn stranded(&self) {
        self.stop(Reason::Forsaken);
    }

    /// Ends a job that is to stop, once its parts have ended.
    fn come_to_an_end(&self, mut luggage: Box<Luggage<E>>) {
        while !self.parts_have_ended(&luggage) {
            luggage = match self.await_parts(luggage) {
                Some(again) => again,
                None => return,
            };
        }
        self.end_stopped(luggage);
    }

    fn end_stopped(&self, luggage: Box<Luggage<E>>) {
        let stage = self.line.stages[luggage.papers.stage].name;
        let waker = match &luggage.cargo {
            Cargo::Sailing(sailing) => Some(sailing.waker()),
            _ => None,
        };
        let Luggage { cargo, papers } = *luggage;
        cargo.discard();
        if let Some(reason) = self.stop.reason() {
            self.note_end(papers, self.word_for(reason));
        }
        self.end(Err(self.stopped_at(stage)));
        // So that the voyage ends as well.
        waker.into_iter().for_each(wake);
    }

    /// Tells the ledger's observers how the job has ended, and the ledger that it has.
    fn note_end(&self, papers: Papers, how: &'static str) {
        self.drop_spare();
        papers.job.note(What::Finished { how, late: self.urgency.is_late() });
        drop(papers);
    }

    fn word_for(&self, reason: Reason) -> &'static str {
        match reason {
            Reason::Forsaken => "forsaken",
            Reason::TimedOut => "timed_out",
            Reason::Cancelled if self.line.landing.is_abandoned() => "shut_down",
            Reason::Cancelled => "cancelled",
        }
    }

    fn stopped_at(&self, stage: &'static str) -> JobError<E> {
        let job = self.name.clone();
        match self.stop.reason() {
            Some(Reason::Forsaken) => JobError::Forsaken { job, stage },
            Some(Reason::TimedOut) => JobError::TimedOut { job, stage, after: self.urgency.timeout() },
            _ if self.line.landing.is_abandoned() => JobError::ShutDown { job, stage },
            _ => JobError::Cancelled { job, stage },
        }
    }

    /// The end, after everything was returned.
    fn end(&self, result: Result<Value, JobError<E>>) {
        *lock(&self.state) = State::Ended;
        let succeeded = result.is_ok();
        self.forget(succeeded);
        self.drop_spare();
        // Relaxed, also where it is set: whoever drives sets it, and whoever drives last is here.
        if self.begun.load(Ordering::Relaxed) {
            self.line.job_is_over();
        }
        self.line.needs.let_go();
        // First everything that the answer says is so, then the answer, then the right to the pool's workers.
        let landed = self.line.landing.take_off(self.tag);
        self.line.tell(|| Event::JobEnded { job: self.name.clone(), succeeded });
        let delivery = lock(&self.delivery).take();
        if let Some(delivery) = delivery {
            // Where nobody wants the result any more, it is dropped here.
            drop(contain(|| delivery.deliver(result)));
        }
        drop(landed);
    }

    /// The ledger, or a future that waited, has something for it.
    fn woken(self: &Arc<Self>) {
        self.woken.store(self.line.paced.nanos(), Ordering::Relaxed);
        // Relaxed: as in `send_on`.
        match &self.line.stages[self.stage.load(Ordering::Relaxed)].place {
            // Which of its threads the stage belongs on is known when the grant is taken; that is done here and now.
            Place::Carried(..) | Place::Either(..) => self.driven_by(Driver::Passer),
            Place::Worker(_) | Place::Task(..) | Place::Parts(_) => self.send_on(),
        }
    }
}

/// For what somebody is sent: the stage, the edition of the luggage if it lies there, and the device of which the stage was granted
/// a lane.
struct Sent {
    stage: usize,
    edition: Option<u64>,
    lane: Option<u16>,
}

/// A trip on its way to a carrier's thread. It keeps neither alive: an errand may lie about for long after its job has ended.
struct Ride<E: Send + 'static> {
    trip: Handle<E>,
    edition: Option<u64>,
    carrier: Weak<dyn Carrier>,
}

impl<E: Send + 'static> Work for Ride<E> {
    fn run(self: Box<Self>) {
        self.trip.with(|trip| {
            // The trip's stages own the carrier, so it is there, and is let go before the trip.
            let carrier = self.carrier.upgrade().expect("owned by the stages");
            trip.driven_by(Driver::Carrier(&carrier));
        });
    }

    fn forsake(self: Box<Self>) {
        self.trip.with(|trip| trip.forsaken(self.edition));
    }
}
