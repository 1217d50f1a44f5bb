//! How a granted stage is run, for each kind of stage, and what follows from how it ended.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::span::StageSpan;
use super::{Cargo, Driver, Luggage, Papers, Trip, Value};
use crate::contain::{Panic, contain, discard};
use crate::ledger::Grant;
use crate::observe::What;
use crate::pipeline::cx::StageCx;
use crate::pipeline::error::JobError;
use crate::pipeline::retry::Tries;
use crate::pipeline::stage::Place;
use crate::pipeline::stats::Event;
use crate::pipeline::task::{GrantOfTask, StageFuture, TaskCx};
use crate::sync::atomic::Ordering;
use crate::sync::lock;

/// How a stage ended: with what it says, or with a panic.
pub(super) type Outcome<E> = Result<Result<Value, E>, Panic>;

/// The future of an async stage, and what it works with. Dropped in this order.
pub(super) struct Sailing<E> {
    future: StageFuture<E>,
    /// Kept for another run.
    input: Option<Value>,
    grant: GrantOfTask,
    started: Instant,
    /// Wakes the voyage that polls it.
    waker: Waker,
}

impl<E> Sailing<E> {
    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Drops it piece by piece, whatever their destructors do.
    pub(super) fn discard(self) {
        let Self { future, input, grant, waker, .. } = self;
        discard(future);
        discard(input);
        drop(grant);
        discard(waker);
    }
}

impl<E: Send + 'static> Trip<E> {
    /// Runs a stage that may run here, or a piece of it, and hands over to the next. `None` when the driver has nothing
    /// more to do.
    pub(super) fn run_stage(
        self: &Arc<Self>,
        luggage: Box<Luggage<E>>,
        driver: &mut Driver<'_, '_>,
    ) -> Option<Box<Luggage<E>>> {
        let Luggage { cargo, mut papers } = *luggage;
        match cargo {
            Cargo::Waiting(_) | Cargo::Resting(..) => unreachable!("a stage runs with its grant"),
            Cargo::Sailing(sailing) => self.poll_stage(sailing, papers, driver),
            Cargo::Parts(spreading) => match &self.line.stages[papers.stage].place {
                Place::Parts(fan) => self.advance(fan, *spreading, papers),
                _ => unreachable!("only a stage that fans out has parts"),
            },
            Cargo::Granted(value, mut grant) => {
                let stage = &self.line.stages[papers.stage];
                let started = self.begin(&mut papers, &grant);
                if papers.stage == 0 {
                    self.pay_for_spare(&mut grant);
                }
                let mut input = Some(value);
                match &stage.place {
                    Place::Worker(run) | Place::Carried(_, run) | Place::Either(_, run, _) => {
                        let run = match &stage.place {
                            Place::Either(.., on_worker) if grant.lane().is_none() => on_worker,
                            _ => run,
                        };
                        let outcome = contain(|| {
                            let stop = &*self.stop;
                            let mut cx = StageCx { grant: &mut grant, job: &self.name, stage: stage.name, stop };
                            papers.span.within(|| run(&mut cx, &mut input))
                        });
                        self.conclude(Run { started, outcome, input, grant: Some(grant) }, papers)
                    }
                    Place::Parts(fan) => self.fan_out(fan, input, grant, started, papers),
                    Place::Task(_, start) => {
                        let (cx, grant) = TaskCx::new(self.name.clone(), stage.name, self.stop.clone(), grant);
                        // What makes the future is the stage's own code already.
                        match contain(|| papers.span.within(|| start(cx, &mut input))) {
                            Ok(future) => {
                                let waker = Waker::noop().clone();
                                let sailing = Sailing { future, input, grant, started, waker };
                                self.poll_stage(sailing, papers, driver)
                            }
                            Err(panic) => {
                                let grant = grant.take();
                                self.conclude(Run { started, outcome: Err(panic), input, grant }, papers)
                            }
                        }
                    }
                }
            }
        }
    }

    /// Polls the future of an async stage.
    fn poll_stage(
        self: &Arc<Self>,
        mut sailing: Sailing<E>,
        papers: Papers,
        driver: &mut Driver<'_, '_>,
    ) -> Option<Box<Luggage<E>>> {
        let Driver::Voyage(_, cx, aboard) = driver else { unreachable!("an async stage runs on its runtime") };
        if !sailing.waker.will_wake(cx.waker()) {
            sailing.waker = cx.waker().clone();
        }
        let mut cx = Context::from_waker(cx.waker());
        let outcome = match contain(|| papers.span.within(|| sailing.future.as_mut().poll(&mut cx))) {
            Ok(Poll::Pending) => {
                let again = self.put_back(Box::new(Luggage { cargo: Cargo::Sailing(sailing), papers }));
                **aboard = again.is_none();
                return again;
            }
            Ok(Poll::Ready(result)) => Ok(result),
            Err(panic) => Err(panic),
        };
        let Sailing { future, input, grant, started, .. } = sailing;
        // Before the grant: it may hold buffers that were paid from it.
        discard(future);
        self.conclude(Run { started, outcome, input, grant: grant.take() }, papers)
    }

    fn begin(&self, papers: &mut Papers, grant: &Grant) -> Instant {
        let stage = &self.line.stages[papers.stage];
        let started = Instant::now();
        let waited = started - papers.since;
        stage.meter.waited(waited);
        let peak = &papers.job.profiles()[grant.choice()].stages()[papers.stage].peak;
        papers.span = StageSpan::new(&self.name, stage.name, stage.place.name(grant), peak, waited);
        if !self.begun.swap(true, Ordering::Relaxed) {
            self.line.job_began();
        }
        if papers.stage == 0 {
            // Only whoever drives touches it, and what it does may run a user's waker: not under the lock.
            let delivery = lock(&self.delivery).take();
            if let Some(mut delivery) = delivery {
                delivery.began();
                *lock(&self.delivery) = Some(delivery);
            }
        }
        papers.job.note(What::Began { place: stage.place.name(grant) });
        self.line.tell(|| Event::StageBegan { job: self.name.clone(), stage: stage.name });
        started
    }

    /// Ends a stage and hands over to the next, or has it run again. `None` when the trip has ended.
    pub(super) fn conclude(self: &Arc<Self>, run: Run<E>, papers: Papers) -> Option<Box<Luggage<E>>> {
        let Run { started, outcome, input, grant } = run;
        let stage = &self.line.stages[papers.stage];
        if let Some(grant) = &grant {
            let index = papers.stage;
            let granted = &papers.job.profiles()[grant.choice()].stages()[index];
            let (declared, well) = (&self.declared[grant.choice()].stages()[index], matches!(outcome, Ok(Ok(_))));
            self.line.drifts.ran(index, declared, granted, grant, well);
        }
        let (index, ran) = (papers.stage, started.elapsed());
        papers.span.ended(ran);
        let ended = || self.stage_ended(index, ran);
        let error = match outcome {
            Ok(Ok(value)) => {
                // The input has done its work. What the stage did not hand over goes back as well: what it hands over, it
                // has taken from the grant.
                discard(input);
                if self.line.last_start() == Some(index) {
                    self.drop_spare();
                }
                let choice = grant.as_ref().map_or(0, Grant::choice);
                drop(grant);
                ended();
                self.line.drifts.kept(index, &self.declared[choice].stages()[index], &papers.job.holdings());
                self.tell_the_pacer(&papers, started, ran);
                match self
                    .line
                    .certified
                    .as_ref()
                    .map_or(Ok(()), |certified| certified.check(&self.line.ledger, papers.stage))
                {
                    Err(message) if cfg!(debug_assertions) => {
                        discard(value);
                        self.note_end(papers, "panicked");
                        JobError::Panicked { job: self.name.clone(), stage: stage.name, message }
                    }
                    // Counted, and for all to see in `Pipeline::certificate_violations`.
                    Ok(()) | Err(_) => return self.hand_over(value, papers),
                }
            }
            Ok(Err(source)) => match self.again(source, input, grant, papers, ended) {
                Ok(luggage) => return Some(luggage),
                Err(error) => error,
            },
            Err(panic) => {
                discard(input);
                drop(grant);
                ended();
                let message = panic.message();
                // Whatever it was thrown with may hold something.
                drop(panic);
                self.note_end(papers, "panicked");
                JobError::Panicked { job: self.name.clone(), stage: stage.name, message }
            }
        };
        self.end(Err(error));
        None
    }

    /// How long a stage took that has ended well, and how long its grant was held before it began.
    fn tell_the_pacer(&self, papers: &Papers, started: Instant, ran: Duration) {
        let paced = &self.line.paced;
        // Relaxed: written before the trip was handed over to whoever runs it.
        let woken = paced.at(self.woken.load(Ordering::Relaxed)).unwrap_or(papers.since);
        let granted = woken.max(papers.since);
        paced.stage_ended(&self.line.ledger, self.class, papers.stage, ran, started.saturating_duration_since(granted));
    }

    /// A stage is over, and has given back what it did not hand over.
    pub(super) fn stage_ended(&self, index: usize, ran: Duration) {
        let stage = &self.line.stages[index];
        stage.meter.ran(ran);
        let (job, run_seconds) = (self.name.clone(), ran.as_secs_f64());
        self.line.tell(|| Event::StageEnded { job, stage: stage.name, run_seconds });
    }

    /// To the next stage, or to the end.
    fn hand_over(&self, value: Value, papers: Papers) -> Option<Box<Luggage<E>>> {
        let next = papers.stage + 1;
        if next == self.line.stages.len() {
            self.note_end(papers, "result");
            self.end(Ok(value));
            return None;
        }
        // Relaxed: a hint, see `send_on`.
        self.stage.store(next, Ordering::Relaxed);
        let Papers { job, starts, turned_away, without, edition, sent, taken, .. } = papers;
        let job = self.line.hand_over(job);
        let (since, tries, span) = (Instant::now(), Tries::default(), StageSpan::none());
        let papers =
            Papers { job, stage: next, since, tries, starts, turned_away, without, edition, sent, taken, span };
        Some(Box::new(Luggage { cargo: Cargo::Waiting(value), papers }))
    }
}

/// A run of a stage that is over, and what is left of it.
pub(super) struct Run<E> {
    pub(super) started: Instant,
    pub(super) outcome: Outcome<E>,
    /// The input, if the stage left it.
    pub(super) input: Option<Value>,
    pub(super) grant: Option<Grant>,
}
