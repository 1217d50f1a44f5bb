//! What a trip does before its first stage where its job needs residencies: see `needs`.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::{Papers, Trip};
use crate::ledger::{AnyLoad, EnterError, Grant};
use crate::pipeline::cx::Reason;
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

    /// Gives a load to a worker. `false` if there are none any more.
    fn have_loaded(self: &Arc<Self>, load: AnyLoad) -> bool {
        // If the job has gone meanwhile the load is dropped, and falls to another one.
        let trip = self.handle();
        // It runs with the priority of all who wait for it.
        let priority = load.priority();
        let run = Run::Stage(Box::new(move || _ = trip.with(|trip| trip.line.needs.load(load))));
        let task = Task { tag: self.tag, turn: Turn::UnderWay, stages_left: self.stages_left(), priority, run };
        let taken = self.line.remote.submit(task).is_ok();
        if !taken {
            self.line.landing.close(true);
            self.stop.set(if mutant!("aborted-load-is-forsaken") { Reason::Forsaken } else { Reason::Cancelled });
        }
        taken
    }
}
