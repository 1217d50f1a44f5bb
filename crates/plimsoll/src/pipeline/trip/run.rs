//! How a granted stage is run, for each kind of stage, and what follows from how it ended.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::{Cargo, Driver, Luggage, Trip, Value, discard};
use crate::ledger::{Grant, Job};
use crate::pipeline::cx::StageCx;
use crate::pipeline::error::JobError;
use crate::pipeline::stage::Place;
use crate::pipeline::stats::Event;
use crate::pipeline::task::{GrantOfTask, StageFuture, TaskCx};
use crate::sync::atomic::Ordering;
use crate::sync::lock;

/// How a stage ended: with what it says, or with a panic.
type Outcome<E> = Result<Result<Value, E>, Box<dyn Any + Send>>;

/// The future of an async stage, and what it works with. Dropped in this order.
pub(super) struct Sailing<E> {
    future: StageFuture<E>,
    grant: GrantOfTask,
    started: Instant,
    /// Wakes the voyage that polls it.
    waker: Waker,
}

impl<E> Sailing<E> {
    pub(super) fn waker(&self) -> Waker {
        self.waker.clone()
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
        let Luggage { cargo, job, stage: index, since } = *luggage;
        match cargo {
            Cargo::Waiting(_) => unreachable!("a stage runs with its grant"),
            Cargo::Sailing(sailing) => self.poll_stage(sailing, job, index, driver),
            Cargo::Granted(value, mut grant) => {
                let stage = &self.line.stages[index];
                let started = self.begin(index, since);
                match &stage.place {
                    Place::Worker(run) | Place::Carried(_, run) => {
                        let outcome = catch_unwind(AssertUnwindSafe(|| {
                            let stop = &*self.stop;
                            let mut cx = StageCx { grant: &mut grant, job: &self.name, stage: stage.name, stop };
                            run(&mut cx, value)
                        }));
                        self.conclude(index, started, outcome, grant, job)
                    }
                    Place::Task(_, start) => {
                        let (cx, grant) = TaskCx::new(self.name.clone(), stage.name, self.stop.clone(), grant);
                        // What makes the future is the stage's own code already.
                        match catch_unwind(AssertUnwindSafe(|| start(cx, value))) {
                            Ok(future) => {
                                let sailing = Sailing { future, grant, started, waker: Waker::noop().clone() };
                                self.poll_stage(sailing, job, index, driver)
                            }
                            Err(panic) => self.conclude(index, started, Err(panic), grant, job),
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
        job: Job,
        index: usize,
        driver: &mut Driver<'_, '_>,
    ) -> Option<Box<Luggage<E>>> {
        let Driver::Voyage(_, cx, aboard) = driver else { unreachable!("an async stage runs on its runtime") };
        if !sailing.waker.will_wake(cx.waker()) {
            sailing.waker = cx.waker().clone();
        }
        let polled =
            catch_unwind(AssertUnwindSafe(|| sailing.future.as_mut().poll(&mut Context::from_waker(cx.waker()))));
        let outcome = match polled {
            Ok(Poll::Pending) => {
                let since = sailing.started;
                let luggage = Luggage { cargo: Cargo::Sailing(sailing), job, stage: index, since };
                let again = self.put_back(Box::new(luggage));
                **aboard = again.is_none();
                return again;
            }
            Ok(Poll::Ready(result)) => Ok(result),
            Err(panic) => Err(panic),
        };
        let Sailing { future, grant, started, .. } = sailing;
        // Before the grant: it may hold buffers that were paid from it.
        discard(future);
        self.conclude(index, started, outcome, grant, job)
    }

    fn begin(&self, index: usize, since: Instant) -> Instant {
        let stage = &self.line.stages[index];
        let started = Instant::now();
        stage.meter.waited(started - since);
        if index == 0
            && let Some(delivery) = &mut *lock(&self.delivery)
        {
            delivery.began();
        }
        self.line.tell(|| Event::StageBegan { job: self.name.clone(), stage: stage.name });
        started
    }

    /// Ends a stage and hands over to the next. `None` when the trip has ended.
    fn conclude(
        self: &Arc<Self>,
        index: usize,
        started: Instant,
        outcome: Outcome<E>,
        grant: impl EndsStage,
        job: Job,
    ) -> Option<Box<Luggage<E>>> {
        let stage = &self.line.stages[index];
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
                    Ok(_) if self.stop.is_set() => self.stopped_at(stage),
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
        // Relaxed: a hint, see `send_on`.
        self.stage.store(index + 1, Ordering::Relaxed);
        let job = self.line.hand_over(job);
        Some(Box::new(Luggage { cargo: Cargo::Waiting(value), job, stage: index + 1, since: Instant::now() }))
    }
}

/// What a stage was granted, in whichever form it had it: dropping it ends the stage.
trait EndsStage {}
impl EndsStage for Grant {}
impl EndsStage for GrantOfTask {}

fn message_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(no text)").to_owned()
}
