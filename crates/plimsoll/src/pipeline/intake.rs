//! Many jobs from one source: when there is room for the next, and whose result is next.
//!
//! An input is pulled only when the first stage of the job before it has begun. A job that ends without having begun (refused,
//! cancelled, out of time) stands in the way of the next until its result has been *yielded*. So a source is never pulled on
//! without anybody seeing what becomes of it, also one without end whose every job is refused.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::task::Waker;

use super::Pipeline;
use super::error::{JobError, Rejected};
use super::landing::Handle;
use super::options::JobOptions;
use super::trip::{Delivery, Value};
use crate::contain::wake;
use crate::sync::{Condvar, Mutex, lock, wait};

/// The jobs of one source. Dropping it cancels those that have not ended.
pub(super) struct Intake<'a, In, Out, E: Send + 'static> {
    pipeline: &'a Pipeline<In, Out, E>,
    /// Taken on or refused.
    sent: usize,
    /// Yielded without having begun.
    passed: usize,
    at_most: usize,
    /// Results come in the order of inputs.
    in_order: bool,
    board: Arc<Board<Out, E>>,
    /// Pulled and not yielded, by index; `None` once the result is in `results`.
    pending: BTreeMap<usize, Option<Handle<E>>>,
    results: BTreeMap<usize, Ended<Out, E>>,
}

struct Ended<Out, E> {
    began: bool,
    result: Result<Out, JobError<E>>,
}

/// Where the jobs leave word.
struct Board<Out, E> {
    news: Mutex<News<Out, E>>,
    changed: Condvar,
}

struct News<Out, E> {
    /// Jobs whose first stage has begun.
    begun: usize,
    ended: Vec<(usize, Ended<Out, E>)>,
    /// The task that waits for news, where no thread does.
    waker: Option<Waker>,
}

impl<Out, E> Board<Out, E> {
    fn change(&self, change: impl FnOnce(&mut News<Out, E>)) {
        let mut news = lock(&self.news);
        change(&mut news);
        let waker = news.waker.take();
        drop(news);
        self.changed.notify_one();
        waker.into_iter().for_each(wake);
    }
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
        if !std::mem::replace(&mut self.began, true) {
            self.board.change(|news| news.begun += 1);
        }
    }

    fn deliver(self: Box<Self>, result: Result<Value, JobError<E>>) {
        let result = result.map(|value| *value.downcast::<Out>().expect("the builder checked the type"));
        let ended = Ended { began: self.began, result };
        self.board.change(|news| news.ended.push((self.index, ended)));
    }
}

impl<'a, In, Out, E> Intake<'a, In, Out, E>
where
    In: Send + 'static,
    Out: Send + 'static,
    E: Send + 'static,
{
    pub(super) fn new(pipeline: &'a Pipeline<In, Out, E>) -> Self {
        let news = News { begun: 0, ended: Vec::new(), waker: None };
        Self {
            pipeline,
            sent: 0,
            passed: 0,
            at_most: usize::MAX,
            in_order: false,
            board: Arc::new(Board { news: Mutex::new(news), changed: Condvar::new() }),
            pending: BTreeMap::new(),
            results: BTreeMap::new(),
        }
    }

    pub(super) fn in_order(&mut self) {
        self.in_order = true;
    }

    pub(super) fn at_most(&mut self, jobs: usize) {
        self.at_most = jobs.max(1);
    }

    /// Whether the next input may be made.
    pub(super) fn has_room(&self) -> bool {
        self.pending.len() < self.at_most && self.all_have_begun(&lock(&self.board.news))
    }

    /// Whether each job has begun, apart from those that never will and of which that is known.
    fn all_have_begun(&self, news: &News<Out, E>) -> bool {
        let unseen = |ended: &Ended<Out, E>| !ended.began && mutant!("refused-make-room");
        let unseen = self.results.values().filter(|ended| unseen(ended)).count();
        self.sent == news.begun + self.passed + unseen
    }

    /// Whether nothing is under way, and no result is left.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn send(&mut self, options: JobOptions, input: In) {
        let index = self.sent;
        let options = if self.in_order { options.in_order() } else { options };
        let report = Report { index, began: false, board: self.board.clone(), out: PhantomData };
        match self.pipeline.send(options, input, Box::new(report)) {
            Ok(trip) => drop(self.pending.insert(index, Some(trip))),
            Err(Rejected { job, reason, .. }) => {
                self.pending.insert(index, None);
                let result = Err(JobError::Rejected { job, source: reason });
                self.results.insert(index, Ended { began: false, result });
            }
        }
        // Only now: a panic of the user's in there leaves nothing behind that would be waited for.
        self.sent += 1;
    }

    /// The next result to yield, if it is there.
    pub(super) fn ready(&mut self) -> Option<(usize, Result<Out, JobError<E>>)> {
        let ended = std::mem::take(&mut lock(&self.board.news).ended);
        for (index, result) in ended {
            self.pending.insert(index, None);
            self.results.insert(index, result);
        }
        // In order: the first of those that were pulled, also where others have been yielded before that was asked for.
        let index = match self.in_order {
            true => *self.pending.first_key_value()?.0,
            false => *self.results.first_key_value()?.0,
        };
        let Ended { began, result } = self.results.remove(&index)?;
        self.pending.remove(&index);
        self.passed += usize::from(!began);
        Some((index, result))
    }

    /// Blocks until a job has ended, or there is room for another if one is `wanted`.
    pub(super) fn wait(&self, wanted: bool) {
        let wanted = wanted && self.pending.len() < self.at_most;
        let mut news = lock(&self.board.news);
        while news.ended.is_empty() && !(wanted && self.all_have_begun(&news)) {
            news = wait(&self.board.changed, news, None);
        }
    }

    /// The same for a task: true if it is so now, and otherwise the task is woken when it is.
    #[cfg(feature = "stream")]
    pub(super) fn poll_wait(&self, waker: &Waker, wanted: bool) -> bool {
        let wanted = wanted && self.pending.len() < self.at_most;
        // Cloned before the lock is taken and dropped after: both may run a user's code.
        let mut waker = Some(waker.clone());
        let mut news = lock(&self.board.news);
        if !news.ended.is_empty() || (wanted && self.all_have_begun(&news)) {
            return true;
        }
        std::mem::swap(&mut news.waker, &mut waker);
        drop(news);
        false
    }

    pub(super) fn fmt(&self, f: &mut std::fmt::DebugStruct<'_, '_>) -> std::fmt::Result {
        f.field("sent", &self.sent).field("pending", &self.pending.len()).finish_non_exhaustive()
    }
}

impl<In, Out, E: Send + 'static> Drop for Intake<'_, In, Out, E> {
    fn drop(&mut self) {
        for trip in self.pending.values().flatten() {
            trip.with(|trip| trip.cancel());
        }
    }
}
