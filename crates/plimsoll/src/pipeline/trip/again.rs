//! A stage that has failed: run again from its input, or the job from its start, or the end.

use std::sync::Arc;
use std::time::Instant;

use super::{Cargo, Driver, Luggage, Papers, Trip, Value};
use crate::contain::{contain, discard};
use crate::ledger::{EnterError, Grant};
use crate::pipeline::error::JobError;
use crate::pipeline::retry::{Answer, Failure, From, Retry, Tries};
use crate::pipeline::stats::Event;
use crate::sync::atomic::Ordering;
use crate::sync::lock;

impl<E: Send + 'static> Trip<E> {
    /// What follows from an error of a stage. `ended` is called once the stage has given back what it was granted.
    pub(super) fn again(
        self: &Arc<Self>,
        source: E,
        input: Option<Value>,
        grant: Option<Grant>,
        mut papers: Papers,
        ended: impl FnOnce(),
    ) -> Result<Box<Luggage<E>>, JobError<E>> {
        let stage = &self.line.stages[papers.stage];
        let answer = match &stage.retry {
            Some(retry) if !self.stop.is_set() => self.next_try(&source, retry, &mut papers),
            _ => Answer::GiveUp,
        };
        let at = match answer {
            Answer::Again { at } => Some(at),
            // With less there is no reason to wait.
            Answer::Smaller => Some(Instant::now()),
            Answer::GiveUp => None,
        };
        let retry = at.and(stage.retry);
        let value = match (retry.map(|retry| retry.from), input, grant) {
            (Some(From::Input), Some(input), Some(grant)) => {
                grant.retry();
                ended();
                if matches!(answer, Answer::Smaller) && !papers.job.go_smaller() {
                    discard(input);
                    None
                } else {
                    Some(input)
                }
            }
            (from, input, grant) => {
                discard(input);
                drop(grant);
                ended();
                from.and_then(|_| self.begin_again(&mut papers))
            }
        };
        let (Some(value), Some(at)) = (value, at) else {
            if let Some(reason) = self.stop.reason() {
                // It may hold something, and nobody is told of it.
                if !mutant!("error-outlives-its-job") {
                    discard(source);
                }
                self.note_end(papers, self.word_for(reason));
                return Err(self.stopped_at(stage.name));
            }
            self.note_end(papers, "failed");
            return Err(JobError::Stage { job: self.name.clone(), stage: stage.name, source });
        };
        stage.meter.retried();
        let from_start = retry.is_some_and(|retry| retry.from == From::Start);
        self.line.tell(|| Event::Retried { job: self.name.clone(), stage: stage.name, from_start });
        papers.since = Instant::now();
        let cargo = self.at_rest(value, at, papers.since);
        Ok(Box::new(Luggage { cargo, papers }))
    }

    /// Whether and when to try again.
    fn next_try(&self, source: &E, retry: &Retry, papers: &mut Papers) -> Answer {
        // A panic of the user's judgement is no reason to go on.
        let failure = contain(|| (self.line.failures)(source)).unwrap_or(Failure::Fatal);
        let tries = match retry.from {
            From::Input => &mut papers.tries,
            From::Start => &mut papers.starts,
        };
        let answer = tries.failed(failure, retry, Instant::now());
        match answer {
            // The smaller plan has tries of its own. From the start there is none: it would begin with the first plan.
            Answer::Smaller if retry.from == From::Input => *tries = Tries::default(),
            Answer::Smaller => return Answer::GiveUp,
            _ => {}
        }
        answer
    }

    /// Puts the job back to before its first stage, with a clone of its input.
    fn begin_again(&self, papers: &mut Papers) -> Option<Value> {
        let clone = self.line.clone_input?;
        let spare = lock(&self.spare).take()?;
        let value = contain(|| clone(&spare.value)).ok();
        *lock(&self.spare) = Some(spare);
        let value = value?;
        // Refused where the stages have left reservations somewhere else: then nobody can say what it would hold. Not where the
        // input is charged: then the job may hold something, and never more than its claim.
        papers.job.restart().ok()?;
        papers.stage = 0;
        // Relaxed: a hint, see `send_on`.
        self.stage.store(0, Ordering::Relaxed);
        Some(value)
    }

    /// A job that was refused its next stage because the device was lost on which its inputs were: it begins again from its
    /// start, where that stage says so. Otherwise what it carried is gone, and only its end is left.
    #[expect(clippy::result_large_err, reason = "moved once, when a device was lost")]
    pub(super) fn lost_its_device(self: &Arc<Self>, value: Value, papers: Papers) -> Result<Box<Luggage<E>>, Papers> {
        discard(value);
        if papers.stage == 0 {
            return Err(papers);
        }
        self.start_over(Failure::Transient, papers)
    }

    /// How the failure of a part is to be judged: as the error of the stage in which it failed.
    pub(super) fn failure_of_part(&self, error: &JobError<E>) -> Failure {
        match error {
            JobError::Stage { source, .. } => contain(|| (self.line.failures)(source)).unwrap_or(Failure::Fatal),
            JobError::Part { source, .. } => self.failure_of_part(&source.0),
            JobError::NotEntered { source, .. } if matches!(**source, EnterError::Lost(_)) => Failure::Transient,
            _ => Failure::Fatal,
        }
    }

    /// The job begins again from its start, where the stage in which it failed says so.
    #[expect(clippy::result_large_err, reason = "moved once, when a job has failed")]
    pub(super) fn start_over(
        self: &Arc<Self>,
        failure: Failure,
        mut papers: Papers,
    ) -> Result<Box<Luggage<E>>, Papers> {
        let stage = &self.line.stages[papers.stage];
        let retry = stage.retry.filter(|retry| retry.from == From::Start && !self.stop.is_set());
        let Some(retry) = retry else { return Err(papers) };
        let Answer::Again { at } = papers.starts.failed(failure, &retry, Instant::now()) else {
            return Err(papers);
        };
        let Some(value) = self.begin_again(&mut papers) else { return Err(papers) };
        stage.meter.retried();
        self.line.tell(|| Event::Retried { job: self.name.clone(), stage: stage.name, from_start: true });
        papers.since = Instant::now();
        let cargo = self.at_rest(value, at, papers.since);
        Ok(Box::new(Luggage { cargo, papers }))
    }

    /// Pays for the input that is kept, when the first stage begins for the first time.
    pub(super) fn pay_for_spare(&self, grant: &mut Grant) {
        let Some(kept) = self.line.kept else { return };
        // Only whoever drives touches it.
        let Some(mut spare) = lock(&self.spare).take() else { return };
        if spare.paid.is_none() {
            spare.paid = grant.take(kept.class, spare.bytes).ok();
        }
        *lock(&self.spare) = Some(spare);
    }

    /// Nothing will begin again from the start any more.
    pub(super) fn drop_spare(&self) {
        let spare = lock(&self.spare).take();
        discard(spare);
    }

    fn at_rest(self: &Arc<Self>, value: Value, at: Instant, now: Instant) -> Cargo<E> {
        if at <= now {
            return Cargo::Waiting(value);
        }
        // Without anybody who would wake it there is no rest.
        match self.at(at, |trip| trip.driven_by(Driver::Passer)) {
            true => Cargo::Resting(value, at),
            false => Cargo::Waiting(value),
        }
    }
}
