//! Many jobs from one iterator, pulled when there is room.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::Pipeline;
use super::error::{JobError, Rejected};
use super::options::JobOptions;
use super::trip::{Delivery, Trip, Value};
use crate::sync::{Condvar, Mutex, lock, wait};

/// The results of [`Pipeline::run_all`]: an iterator of index and result.
///
/// Its `next` blocks the calling thread, so keep it off the pool's workers. Dropping it cancels the jobs that have not
/// ended, which is how a run stops early; [`Pipeline::drain`] waits for them.
#[must_use = "jobs are started by iterating"]
pub struct RunAll<'a, In, Out, E: Send + 'static, I: Iterator> {
    pipeline: &'a Pipeline<In, Out, E>,
    /// `None` once they have run out.
    inputs: Option<I>,
    pulled: usize,
    at_most: usize,
    /// The index to yield next, where results come in the order of inputs.
    in_order: Option<usize>,
    board: Arc<Board<Out, E>>,
    /// Pulled and not yielded, by index; `None` once the result is in `results`.
    pending: BTreeMap<usize, Option<Arc<Trip<E>>>>,
    results: BTreeMap<usize, Result<Out, JobError<E>>>,
}

/// Where the jobs leave word.
struct Board<Out, E> {
    news: Mutex<News<Out, E>>,
    changed: Condvar,
}

struct News<Out, E> {
    /// Jobs that were sent and whose first stage has not begun: one at most.
    waiting: usize,
    ended: Vec<(usize, Result<Out, JobError<E>>)>,
}

/// One job's way to the board.
struct Report<Out, E> {
    index: usize,
    began: bool,
    board: Arc<Board<Out, E>>,
    out: PhantomData<fn() -> Out>,
}

impl<Out: Send + 'static, E: Send> Delivery<E> for Report<Out, E> {
    fn began(&mut self) {
        // A job that starts again begins more than once.
        if std::mem::replace(&mut self.began, true) {
            return;
        }
        lock(&self.board.news).waiting -= 1;
        self.board.changed.notify_one();
    }

    fn deliver(self: Box<Self>, result: Result<Value, JobError<E>>) {
        let result = result.map(|value| *value.downcast::<Out>().expect("the builder checked the type"));
        let mut news = lock(&self.board.news);
        if !self.began {
            news.waiting -= 1;
        }
        news.ended.push((self.index, result));
        self.board.changed.notify_one();
    }
}

impl<'a, In, Out, E, I, N> RunAll<'a, In, Out, E, I>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
    I: Iterator<Item = (N, In)>,
    N: Into<JobOptions>,
{
    pub(super) fn new(pipeline: &'a Pipeline<In, Out, E>, inputs: I) -> Self {
        let news = News { waiting: 0, ended: Vec::new() };
        Self {
            pipeline,
            inputs: Some(inputs),
            pulled: 0,
            at_most: usize::MAX,
            in_order: None,
            board: Arc::new(Board { news: Mutex::new(news), changed: Condvar::new() }),
            pending: BTreeMap::new(),
            results: BTreeMap::new(),
        }
    }

    /// Yields the results in the order of their inputs, not as jobs end. A result that waits for an earlier one keeps
    /// the bytes that travel with it; [`at_most`](RunAll::at_most) bounds how many do.
    pub fn in_order(mut self) -> Self {
        self.in_order = Some(0);
        self
    }

    /// Pulls no input while `jobs` are under way or their results not yet yielded; at least 1.
    pub fn at_most(mut self, jobs: usize) -> Self {
        self.at_most = jobs.max(1);
        self
    }

    /// Pulls an input and sends it off, if there is room and a next one.
    fn pull(&mut self) -> bool {
        if self.pending.len() >= self.at_most || lock(&self.board.news).waiting > 0 {
            return false;
        }
        let Some((name, input)) = self.inputs.as_mut().and_then(Iterator::next) else {
            self.inputs = None;
            return false;
        };
        let index = self.pulled;
        self.pulled += 1;
        lock(&self.board.news).waiting += 1;
        let report = Report { index, began: false, board: self.board.clone(), out: PhantomData };
        match self.pipeline.send(name.into(), input, Box::new(report)) {
            Ok(trip) => drop(self.pending.insert(index, Some(trip))),
            Err(Rejected { job, reason, .. }) => {
                lock(&self.board.news).waiting -= 1;
                self.pending.insert(index, None);
                self.results.insert(index, Err(JobError::Rejected { job, source: reason }));
            }
        }
        true
    }

    /// The next result to yield, if it is there.
    fn ready(&mut self) -> Option<(usize, Result<Out, JobError<E>>)> {
        let ended = std::mem::take(&mut lock(&self.board.news).ended);
        for (index, result) in ended {
            self.pending.insert(index, None);
            self.results.insert(index, result);
        }
        let index = match self.in_order {
            Some(next) => next,
            None => *self.results.first_key_value()?.0,
        };
        let result = self.results.remove(&index)?;
        self.pending.remove(&index);
        if let Some(next) = &mut self.in_order {
            *next += 1;
        }
        Some((index, result))
    }
}

impl<In, Out, E, I, N> Iterator for RunAll<'_, In, Out, E, I>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
    I: Iterator<Item = (N, In)>,
    N: Into<JobOptions>,
{
    type Item = (usize, Result<Out, JobError<E>>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            // Before anything is yielded, so that the workers have something to do meanwhile.
            while self.pull() {}
            if let Some(ready) = self.ready() {
                return Some(ready);
            }
            if self.pending.is_empty() {
                return None;
            }
            let could_pull = self.inputs.is_some() && self.pending.len() < self.at_most;
            let mut news = lock(&self.board.news);
            while news.ended.is_empty() && !(could_pull && news.waiting == 0) {
                news = wait(&self.board.changed, news, None);
            }
        }
    }
}

impl<In, Out, E: Send + 'static, I: Iterator> Drop for RunAll<'_, In, Out, E, I> {
    fn drop(&mut self) {
        for trip in self.pending.values().flatten() {
            trip.cancel();
        }
    }
}

impl<In, Out, E: Send + 'static, I: Iterator> fmt::Debug for RunAll<'_, In, Out, E, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunAll")
            .field("pulled", &self.pulled)
            .field("pending", &self.pending.len())
            .finish_non_exhaustive()
    }
}
