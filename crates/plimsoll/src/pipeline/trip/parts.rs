//! A trip whose stage fans out: sends parts off, waits for them without a thread, and joins what they made.

use std::sync::Arc;
use std::time::Instant;

use super::run::{Outcome, Run};
use super::{Cargo, Input, Luggage, Papers, Spare, State, Trip, Value};
use crate::Bytes;
use crate::contain::{contain, discard, discard_each};
use crate::ledger::Grant;
use crate::pipeline::builder::same_stages;
use crate::pipeline::cx::StageCx;
use crate::pipeline::error::{JobError, PartError, Rejection};
use crate::pipeline::fan::{Fan, FanIn, Gather, Spread};
use crate::pipeline::options::JobOptions;
use crate::sync::lock;

/// A stage that has fanned out.
pub(super) struct Spreading<E> {
    pub(super) spread: Spread<E>,
    grant: Grant,
    started: Instant,
    /// The priority that the parts under way have been told.
    told: i32,
}

impl<E> Spreading<E> {
    /// Drops it value by value, whatever their destructors do; the grant last.
    ///
    /// What the parts have made so far, and with what one has failed, goes here and now: whoever brought the last word may keep the
    /// place where they lie for a moment longer.
    pub(super) fn discard(self) {
        let Self { spread: Spread { shared, parts, gather, .. }, grant, .. } = self;
        let mut word = lock(&gather.word);
        let (made, failed) = match mutant!("made-left-with-the-word") {
            true => Default::default(),
            false => (std::mem::take(&mut word.made), word.failed.take()),
        };
        drop(word);
        discard(parts);
        discard(shared);
        discard_each(made);
        discard(failed);
        drop(gather);
        drop(grant);
    }
}

impl<E: Send + 'static> Trip<E> {
    /// Splits the job.
    pub(super) fn fan_out(
        self: &Arc<Self>,
        fan: &Fan<E>,
        mut input: Option<Value>,
        mut grant: Grant,
        started: Instant,
        papers: Papers,
    ) -> Option<Box<Luggage<E>>> {
        let split = contain(|| papers.span.within(|| (fan.split)(&mut self.cx(&mut grant, &papers), &mut input)));
        let outcome = match split {
            Ok(Ok((shared, parts))) => {
                let spread = Spread { shared, parts: Some(parts), made: 0, gather: Gather::new(self.handle()) };
                let told = self.urgency.priority();
                return self.advance(fan, Spreading { spread, grant, started, told }, papers);
            }
            Ok(Err(error)) => Ok(Err(error)),
            Err(panic) => Err(panic),
        };
        self.conclude(Run { started, outcome, input, grant: Some(grant) }, papers)
    }

    /// Sends off what can be sent, and joins when all have ended.
    pub(super) fn advance(
        self: &Arc<Self>,
        fan: &Fan<E>,
        mut spreading: Spreading<E>,
        papers: Papers,
    ) -> Option<Box<Luggage<E>>> {
        self.hurry_parts(&mut spreading);
        let Spread { parts, made, gather, .. } = &mut spreading.spread;
        loop {
            let word = lock(&gather.word);
            let (failed, waiting, out) = (word.failed.is_some(), word.waiting, word.out);
            drop(word);
            if failed && !mutant!("siblings-go-on") {
                // Those that are not made yet are not made any more.
                discard(parts.take());
                if !gather.cancel() {
                    break;
                }
                return self.fail_with_part(spreading, papers);
            }
            if waiting {
                break;
            }
            let next = match parts {
                None if out == 0 && failed => return self.fail_with_part(spreading, papers),
                None if out == 0 => return self.fan_in(fan, spreading, papers),
                None => break,
                Some(parts) => contain(|| parts.next()),
            };
            match next {
                Ok(Some(part)) => {
                    let index = *made;
                    *made += 1;
                    self.send_part(fan, gather, index, part, &papers);
                }
                Ok(None) => discard(parts.take()),
                Err(panic) => {
                    // As if the part that could not be made had panicked.
                    let (job, stage) = (self.part_name(*made, &papers), self.line.stages[papers.stage].name);
                    let error = JobError::Panicked { job: job.into(), stage, message: panic.message() };
                    lock(&gather.word).failed.get_or_insert((*made, error));
                }
            }
        }
        self.put_back(Box::new(Luggage { cargo: Cargo::Parts(Box::new(spreading)), papers }))
    }

    /// Parts under way go as fast as their job has to by now.
    fn hurry_parts(&self, spreading: &mut Spreading<E>) {
        let priority = self.urgency.priority();
        if std::mem::replace(&mut spreading.told, priority) != priority && !mutant!("parts-keep-their-priority") {
            spreading.spread.gather.under_way().iter().for_each(|part| part.hurry_to(priority));
        }
    }

    fn part_name(&self, index: usize, papers: &Papers) -> String {
        format!("{}, {} {index}", self.name, self.line.stages[papers.stage].name)
    }

    /// Sends one part off; that it is not taken on is word from it, too.
    fn send_part(&self, fan: &Fan<E>, gather: &Arc<Gather<E>>, index: usize, part: Value, papers: &Papers) {
        let line = fan.line();
        let options = JobOptions::new(self.part_name(index, papers)).priority(self.urgency.priority());
        let name = options.name.clone();
        let delivery = gather.report(index);
        // With the profile, what is needed by it, and a clone for another start, come answers of the user's.
        let taken_on = contain(|| {
            let profile = (fan.profile)(&part);
            same_stages(&profile, &line.stages)?;
            let job = line.take_on(std::slice::from_ref(&profile), &options, Some(&papers.job))?;
            Ok((profile, job, Spare::of(line.clone_input, &part, Bytes::ZERO)))
        });
        let taken_on = match taken_on {
            Ok(taken_on) => taken_on,
            Err(panic) => {
                let (stage, message) = (self.line.stages[papers.stage].name, panic.message());
                discard(part);
                return delivery.deliver(Err(JobError::Panicked { job: name, stage, message }));
            }
        };
        match taken_on {
            Ok((profile, job, spare)) => {
                let input = Input { value: part, spare };
                let trip = Trip::new(line, job, vec![profile], None, options, input, delivery);
                gather.sent(index, &trip);
                trip.set_off();
            }
            Err::<_, Rejection>(source) => {
                discard(part);
                delivery.deliver(Err(JobError::Rejected { job: name, source }));
            }
        }
    }

    /// All parts have ended well.
    fn fan_in(self: &Arc<Self>, fan: &Fan<E>, spreading: Spreading<E>, papers: Papers) -> Option<Box<Luggage<E>>> {
        let Spreading { spread: Spread { shared, gather, .. }, mut grant, started, .. } = spreading;
        let mut made = std::mem::take(&mut lock(&gather.word).made);
        if fan.order == FanIn::InOrder {
            made.sort_unstable_by_key(|(index, _)| *index);
        }
        let join = || papers.span.within(|| (fan.join)(&mut self.cx(&mut grant, &papers), shared, made));
        let outcome: Outcome<E> = contain(join);
        self.conclude(Run { started, outcome, input: None, grant: Some(grant) }, papers)
    }

    /// One part has failed, and all others have ended.
    fn fail_with_part(self: &Arc<Self>, spreading: Spreading<E>, papers: Papers) -> Option<Box<Luggage<E>>> {
        let failed = lock(&spreading.spread.gather.word).failed.take();
        let (part, source) = failed.expect("one has failed");
        let stage = self.line.stages[papers.stage].name;
        self.stage_is_over(spreading, &papers);
        let papers = match self.start_over(self.failure_of_part(&source), papers) {
            Ok(luggage) => {
                discard(source);
                return Some(luggage);
            }
            Err(papers) => papers,
        };
        self.note_end(papers, "failed");
        let source = PartError(Box::new(source));
        self.end(Err(JobError::Part { job: self.name.clone(), stage, part, source }));
        None
    }

    /// Gives back all that a stage that has fanned out holds.
    fn stage_is_over(&self, spreading: Spreading<E>, papers: &Papers) {
        let started = spreading.started;
        spreading.discard();
        papers.span.ended(started.elapsed());
        self.stage_ended(papers.stage, started.elapsed());
    }

    /// Before a job that is to stop can end, its parts must have. True if none is left.
    pub(super) fn parts_have_ended(&self, luggage: &Luggage<E>) -> bool {
        match &luggage.cargo {
            Cargo::Parts(spreading) => spreading.spread.gather.cancel(),
            _ => true,
        }
    }

    /// Puts the luggage of a job that is to stop down until the last of its parts gives word; or gives it back, if one
    /// has meanwhile.
    pub(super) fn await_parts(&self, luggage: Box<Luggage<E>>) -> Option<Box<Luggage<E>>> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Driven { again: true, .. }) {
            *state = State::Driven { again: false, by: luggage.papers.taken };
            return Some(luggage);
        }
        *state = State::Between(luggage);
        None
    }

    fn cx<'a>(&'a self, grant: &'a mut Grant, papers: &Papers) -> StageCx<'a> {
        StageCx { grant, job: &self.name, stage: self.line.stages[papers.stage].name, stop: &self.stop }
    }
}
