//! One job's trip through the stages: a small state machine that whoever has something to do drives one step on.
//!
//! ```text
//!              take                      the stage is granted                 the last stage ended, or it failed
//!   Between ───────────▶ Driven ──────────────────────────────▶ (runs) ─────────────────────────────▶ Ended
//!      ▲                   │  │                                    │
//!      │  not granted yet  │  │ granted, but not on a worker,      │ a stage ended
//!      ├───────────────────┘  │ or another job is further          │
//!      └──────────────────────┴──── downstream: queued ◀───────────┘
//! ```
//!
//! 1. Between stages the luggage (the value, the ledger's job, perhaps a grant) lies in the state. Whoever takes it out
//!    drives, alone; so a trip is never run twice, however often it is woken.
//! 2. Waiting for memory is a `Pending` of the ledger's job. Its waker queues a task that drives; no thread waits.
//! 3. A wake-up that finds somebody driving leaves the mark `again`, and the driver polls once more before it puts the
//!    luggage back. So none is lost.
//! 4. Cancelling sets the flag, then takes the luggage if it lies there. Otherwise the driver finds the flag when it
//!    puts the luggage back, or before it starts the next stage. So none is lost either.
//! 5. No lock is held while a stage, a destructor, a waker or an observer runs.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use super::StageCx;
use super::error::JobError;
use super::line::Line;
use super::stats::Event;
use crate::ledger::{Grant, Job};
use crate::pool::{JobTag, Run, Task};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

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
    cancelled: AtomicBool,
    /// Where in the injector its next task belongs.
    stages_left: AtomicUsize,
    state: Mutex<State>,
    delivery: Mutex<Option<Box<dyn Delivery<E>>>>,
}

enum State {
    Between(Box<Luggage>),
    Driven { again: bool },
    Ended,
}

/// What a job carries between stages. Dropped in this order: buffers are freed before the ledger hears of the end.
struct Luggage {
    value: Value,
    grant: Option<Grant>,
    job: Job,
    stage: usize,
    since: Instant,
}

/// Whether the driver may run stages.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    Worker,
    Submitter,
}

impl<E: Send + 'static> Trip<E> {
    pub(super) fn new(line: &Arc<Line<E>>, job: Job, value: Value, delivery: Box<dyn Delivery<E>>) -> Arc<Self> {
        Arc::new(Self {
            name: job.name().into(),
            tag: JobTag::fresh(),
            line: line.clone(),
            cancelled: AtomicBool::new(false),
            stages_left: AtomicUsize::new(line.stages.len() - 1),
            state: Mutex::new(State::Between(Box::new(Luggage {
                value,
                grant: None,
                job,
                stage: 0,
                since: Instant::now(),
            }))),
            delivery: Mutex::new(Some(delivery)),
        })
    }

    /// Asks for admission, on the submitter's thread.
    pub(super) fn set_off(self: &Arc<Self>) {
        self.drive(Driver::Submitter);
    }

    pub(super) fn cancel(&self) {
        // Relaxed: the lock below orders it before the driver's look in `put_back`.
        self.cancelled.store(true, Ordering::Relaxed);
        if let Some(luggage) = self.take() {
            self.end_cancelled(luggage);
        }
    }

    fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    fn take(&self) -> Option<Box<Luggage>> {
        let mut state = lock(&self.state);
        match std::mem::replace(&mut *state, State::Driven { again: true }) {
            State::Between(luggage) => {
                *state = State::Driven { again: false };
                Some(luggage)
            }
            State::Driven { .. } => None,
            State::Ended => {
                *state = State::Ended;
                None
            }
        }
    }

    /// Puts the luggage down, or gives it back if there is a reason to go on: a wake-up or a cancellation meanwhile.
    fn put_back(&self, luggage: Box<Luggage>) -> Option<Box<Luggage>> {
        let mut state = lock(&self.state);
        let again = matches!(*state, State::Driven { again: true });
        if (again || self.is_cancelled()) && !cfg!(plimsoll_mutant = "parked-without-recheck") {
            *state = State::Driven { again: false };
            return Some(luggage);
        }
        *state = State::Between(luggage);
        None
    }

    /// Undoes `new`, before the trip has set off.
    pub(super) fn unpack(&self) -> Value {
        self.take().expect("a trip that has not set off has its luggage").value
    }

    fn drive(self: &Arc<Self>, driver: Driver) {
        let Some(mut luggage) = self.take() else { return };
        loop {
            if self.is_cancelled() {
                return self.end_cancelled(luggage);
            }
            if luggage.grant.is_none() {
                let waker = Waker::from(self.clone());
                match luggage.job.poll_enter(&mut Context::from_waker(&waker), luggage.stage) {
                    Poll::Ready(Ok(grant)) => luggage.grant = Some(grant),
                    Poll::Ready(Err(source)) => {
                        let stage = self.line.stages[luggage.stage].name;
                        discard(luggage);
                        let source = Box::new(source);
                        return self.end(Err(JobError::NotEntered { job: self.name.clone(), stage, source }));
                    }
                    Poll::Pending => match self.put_back(luggage) {
                        None => return,
                        Some(again) => {
                            luggage = again;
                            continue;
                        }
                    },
                }
            }
            let stages_left = self.stages_left.load(Ordering::Relaxed);
            if driver == Driver::Submitter || self.line.remote.has_further_downstream(stages_left) {
                match self.put_back(luggage) {
                    None => return self.queue(),
                    Some(again) if self.is_cancelled() => return self.end_cancelled(again),
                    // The wake-up was for the grant that we have.
                    Some(again) => luggage = again,
                }
                continue;
            }
            match self.run_stage(luggage) {
                Some(next) => luggage = next,
                None => return,
            }
        }
    }

    /// Queues a task that drives this trip.
    fn queue(self: &Arc<Self>) {
        let trip = self.clone();
        let run = Run::Stage(Box::new(move || trip.drive(Driver::Worker)));
        let stages_left = self.stages_left.load(Ordering::Relaxed);
        if self.line.remote.submit(Task { tag: self.tag, stages_left, run }).is_err() {
            // No workers any more, hence no pipeline: nobody could drive it to an end.
            self.cancel();
        }
    }

    /// Runs one stage and hands over to the next. `None` when the trip has ended.
    fn run_stage(self: &Arc<Self>, luggage: Box<Luggage>) -> Option<Box<Luggage>> {
        let Luggage { value, grant, job, stage: index, since } = *luggage;
        let mut grant = grant.expect("a stage runs with its grant");
        let stage = &self.line.stages[index];
        let started = Instant::now();
        stage.meter.waited(started - since);
        if index == 0
            && let Some(delivery) = &mut *lock(&self.delivery)
        {
            delivery.began();
        }
        self.line.tell(|| Event::StageBegan { job: self.name.clone(), stage: stage.name });
        let run = || {
            let mut cx = StageCx { grant: &mut grant, job: &self.name, stage: stage.name, cancelled: &self.cancelled };
            (stage.run)(&mut cx, value)
        };
        let outcome = catch_unwind(AssertUnwindSafe(run));
        // What the stage did not hand over goes back: what it hands over, it has taken from the grant.
        drop(grant);
        let ran = started.elapsed();
        stage.meter.ran(ran);
        self.line.tell(|| Event::StageEnded {
            job: self.name.clone(),
            stage: stage.name,
            run_seconds: ran.as_secs_f64(),
        });
        let value = match outcome {
            Ok(Ok(value)) => value,
            failed => {
                drop(job);
                let job = self.name.clone();
                let stage = stage.name;
                self.end(Err(match failed {
                    Err(panic) => JobError::Panicked { job, stage, message: message_of(&*panic) },
                    Ok(_) if self.is_cancelled() => self.cancelled_at(stage),
                    Ok(Err(source)) => JobError::Stage { job, stage, source },
                    Ok(Ok(_)) => unreachable!("matched above"),
                }));
                return None;
            }
        };
        if index + 1 == self.line.stages.len() {
            drop(job);
            self.end(Ok(value));
            return None;
        }
        self.stages_left.store(self.line.stages.len() - index - 2, Ordering::Relaxed);
        let job = self.line.hand_over(job);
        Some(Box::new(Luggage { value, grant: None, job, stage: index + 1, since: Instant::now() }))
    }

    fn end_cancelled(&self, luggage: Box<Luggage>) {
        let stage = self.line.stages[luggage.stage].name;
        discard(luggage);
        self.end(Err(self.cancelled_at(stage)));
    }

    fn cancelled_at(&self, stage: &'static str) -> JobError<E> {
        let job = self.name.clone();
        if self.line.is_abandoned() { JobError::ShutDown { job, stage } } else { JobError::Cancelled { job, stage } }
    }

    /// The end, after everything was returned.
    fn end(&self, result: Result<Value, JobError<E>>) {
        *lock(&self.state) = State::Ended;
        let succeeded = result.is_ok();
        let delivery = lock(&self.delivery).take();
        if let Some(delivery) = delivery {
            delivery.deliver(result);
        }
        self.line.tell(|| Event::JobEnded { job: self.name.clone(), succeeded });
        self.line.land(self.tag);
    }
}

impl<E: Send + 'static> Wake for Trip<E> {
    fn wake(self: Arc<Self>) {
        self.queue();
    }
}

/// Drops what a job carries. A destructor that panics must not keep the job from ending.
fn discard(luggage: Box<Luggage>) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(luggage)));
}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no text)").to_owned()
}
