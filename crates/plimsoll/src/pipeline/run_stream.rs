//! Many jobs from one stream, pulled when there is room; results as a stream, or sent to a channel.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::Pipeline;
use super::error::JobError;
use super::intake::Intake;
use super::options::JobOptions;

/// The results of [`Pipeline::run_stream`]: a stream of index and result, for any runtime.
///
/// Dropping it cancels the jobs that have not ended. Between polls nothing is pulled, so poll it as long as jobs are to
/// begin.
#[must_use = "jobs are started by polling"]
pub struct RunStream<'a, In, Out, E: Send + 'static, S> {
    intake: Intake<'a, In, Out, E>,
    /// `None` once they have run out.
    inputs: Option<Pin<Box<S>>>,
}

impl<'a, In, Out, E, S, N> RunStream<'a, In, Out, E, S>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
    S: Stream<Item = (N, In)>,
    N: Into<JobOptions>,
{
    pub(super) fn new(pipeline: &'a Pipeline<In, Out, E>, inputs: S) -> Self {
        Self { intake: Intake::new(pipeline), inputs: Some(Box::pin(inputs)) }
    }

    /// Yields the results in the order of their inputs, not as jobs end. A result that waits for an earlier one keeps
    /// the bytes that travel with it; [`at_most`](RunStream::at_most) bounds how many do. A job that may begin again [from its
    /// start](super::Builder::from_start) is promised all that it needs until it ends, since those behind it may hold what it would
    /// need anew.
    pub fn in_order(mut self) -> Self {
        self.intake.in_order();
        self
    }

    /// Pulls no input while `jobs` are under way or their results not yet yielded; at least 1.
    pub fn at_most(mut self, jobs: usize) -> Self {
        self.intake.at_most(jobs);
        self
    }

    /// Sends every result to a channel, in which they wait until somebody takes them; while it is full nothing is pulled.
    ///
    /// Returns when the inputs have run out and all results are sent, or early, at once, when nobody receives any more: then nothing
    /// is pulled and the jobs that have not ended are cancelled.
    #[cfg(feature = "async-channel")]
    pub async fn send_to(mut self, results: async_channel::Sender<(usize, Result<Out, JobError<E>>)>) {
        let mut closed = std::pin::pin!(results.closed());
        loop {
            let next = std::future::poll_fn(|cx| {
                // First, and left with the task's waker: a result may be long in coming.
                if !mutant!("receiver-asked-at-results") && closed.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(None);
                }
                Pin::new(&mut self).poll_next(cx)
            });
            let Some(result) = next.await else { return };
            if results.send(result).await.is_err() {
                return;
            }
        }
    }

    /// Pulls what there is room for. True if the inputs have none ready, and wake the task when they do.
    fn pull(&mut self, cx: &mut Context<'_>) -> bool {
        while let Some(inputs) = &mut self.inputs
            && self.intake.has_room()
        {
            match inputs.as_mut().poll_next(cx) {
                Poll::Ready(Some((options, input))) => self.intake.send(options.into(), input),
                Poll::Ready(None) => self.inputs = None,
                Poll::Pending => return true,
            }
        }
        false
    }
}

impl<In, Out, E, S, N> Stream for RunStream<'_, In, Out, E, S>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
    S: Stream<Item = (N, In)>,
    N: Into<JobOptions>,
{
    type Item = (usize, Result<Out, JobError<E>>);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            // Before anything is yielded, so that the workers have something to do meanwhile.
            let none_ready = self.pull(cx);
            if let Some(ready) = self.intake.ready() {
                return Poll::Ready(Some(ready));
            }
            if self.inputs.is_none() && self.intake.is_empty() {
                return Poll::Ready(None);
            }
            if !self.intake.poll_wait(cx.waker(), self.inputs.is_some() && !none_ready) {
                return Poll::Pending;
            }
        }
    }
}

impl<In, Out, E, S> fmt::Debug for RunStream<'_, In, Out, E, S>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.intake.fmt(&mut f.debug_struct("RunStream"))
    }
}
