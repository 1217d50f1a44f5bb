//! What a trip does before its first stage where its job needs residencies: see `needs`.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Papers, Trip};
use crate::Profile;
use crate::ledger::{AnyLoad, EnterError, Grant, JobSpec};
use crate::pipeline::cx::Reason;
use crate::pipeline::needs::Loaded;
use crate::pool::{Run, Task, Turn};

impl<E: Send + 'static> Trip<E> {
    /// Polls for the grant of the next stage; before the first one, for what falls to this job to be loaded.
    pub(super) fn poll_grant(
        self: &Arc<Self>,
        papers: &mut Papers,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Grant, EnterError>> {
        while papers.stage == 0 && !self.line.needs.is_empty() {
            match papers.job.poll_load(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(None)) => break,
                Poll::Ready(Ok(Some(load))) => {
                    if !self.have_loaded(load) {
                        // The pool has ended, and the job is to end as well.
                        return Poll::Pending;
                    }
                }
            }
        }
        papers.job.poll_enter(cx, papers.stage)
    }

    /// Loads what has fallen to this job.
    fn load(&self, load: AnyLoad) {
        if let Loaded::Later(at, attempts) = self.line.needs.load(load) {
            let rested = attempts.clone();
            // Not an alarm of this job's: others wait for the key as well. Without a clock it falls to them at once.
            if self.line.clock.set(at, move || rested.rested()).is_err() {
                attempts.rested();
            }
        }
    }

    /// A device has had no room for a residency that the job needs: it asks anew for its admission, by those of its plans that do
    /// without. Whether there is one.
    pub(super) fn does_without(&self, residency: &str, papers: &mut Papers) -> bool {
        if papers.stage != 0 || !self.line.is_outermost() || mutant!("nobody-does-without") {
            return false;
        }
        let mut without = papers.without.clone();
        without.extend(self.line.needs.short_of(residency, &self.declared));
        without.sort_unstable();
        without.dedup();
        if without.len() == papers.without.len() || without.len() == self.declared.len() {
            return false;
        }
        papers.without = without;
        self.asks_anew(papers)
    }

    /// Submits the job to the ledger anew, as it is now: with a raised priority it may be served from the urgent reserve, and waits for
    /// memory alone, since who is in a hurry goes beside the pace of the others. It loses its age. False where that is refused; then
    /// the old request stands.
    pub(super) fn asks_anew(&self, papers: &mut Papers) -> bool {
        let job = &papers.job;
        let is_urgent = self.urgency.is_raised();
        let paced = |profile: &Profile| if is_urgent { self.line.paced.untie(profile) } else { profile.clone() };
        let mut spec = JobSpec::new("", paced(job.profile())).priority(self.urgency.priority());
        spec.urgent = is_urgent;
        spec.name = self.name.clone();
        spec.alternatives = job.profiles()[1..].iter().map(paced).collect();
        spec.restarts = self.line.keeps_its_place(self.urgency.options());
        spec.without.clone_from(&papers.without);
        self.line.needs.add_to(&mut spec, &self.line.needs.by_choice(&self.declared));
        let Ok(anew) = self.line.ledger.submit(spec) else { return false };
        papers.job = anew;
        true
    }

    /// Gives a load to a worker. `false` if there are none any more.
    fn have_loaded(self: &Arc<Self>, load: AnyLoad) -> bool {
        // If the job has gone meanwhile the load is dropped, and falls to another one.
        let trip = self.handle();
        // It runs with the priority of all who wait for it.
        let priority = load.priority();
        let run = Run::Stage(Box::new(move || _ = trip.with(|trip| trip.load(load))));
        let task = Task { tag: self.tag, turn: Turn::UnderWay, stages_left: self.stages_left(), priority, run };
        let taken = self.line.remote.submit(task).is_ok();
        if !taken {
            self.line.landing.close(true);
            self.stop.set(if mutant!("aborted-load-is-forsaken") { Reason::Forsaken } else { Reason::Cancelled });
        }
        taken
    }
}
