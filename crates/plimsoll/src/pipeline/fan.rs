//! Fan-out and fan-in: a stage that splits its job into parts, which travel a chain of stages of their own, and joins what
//! they made.
//!
//! To the ledger the parts are jobs of their own that belong to a parent ([`JobSpec::part_of`](crate::JobSpec::part_of)). The parent's profile makes room for
//! them in the stage that fans out ([`Profile::parts`]), so that one part at a time can always run, and what
//! the parts leave behind, their outputs, is the parent's until it joins them. So a job that has begun to split can always
//! be finished, and everything that it collects is in its claim.
//!
//! To its pool the parent is a parked job while the parts run: it occupies no worker. Word from a part (it has begun, it
//! has ended) sends the parent on, like any wake-up; whoever drives it then sends the next part off, or joins. The next part
//! is made when the first stage of the one before has begun.
//!
//! One part that fails ends them all: the others are cancelled, and when the last has given back what it held the job ends
//! with [`JobError::Part`], which names the part. A job that is cancelled waits for its parts in the same way.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cx::StageCx;
use super::error::JobError;
use super::landing::Handle;
use super::line::{CloneFn, Line};
use super::needs::Needs;
use super::stage::Stage;
use super::trip::{Delivery, Trip, Value};
use crate::Profile;
use crate::contain::discard;
use crate::sync::{Mutex, lock};

/// In which order the outputs of parts are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanIn {
    /// In the order in which the parts were made.
    InOrder,
    /// In the order in which they have ended.
    AsTheyEnd,
}

/// Makes a job's parts from what the stage before made, and what the join needs besides their outputs.
pub(super) type SplitFn<E> =
    Box<dyn Fn(&mut StageCx<'_>, &mut Option<Value>) -> Result<(Value, PartIter), E> + Send + Sync>;
pub(super) type PartIter = Box<dyn Iterator<Item = Value> + Send>;
/// Joins the outputs, each with the index of its part.
pub(super) type JoinFn<E> = Box<dyn Fn(&mut StageCx<'_>, Value, Vec<(usize, Value)>) -> Result<Value, E> + Send + Sync>;

/// What a stage that fans out does.
pub(super) struct Fan<E> {
    pub(super) split: SplitFn<E>,
    pub(super) profile: Box<dyn Fn(&Value) -> Profile + Send + Sync>,
    pub(super) join: JoinFn<E>,
    pub(super) order: FanIn,
    pub(super) clone_input: Option<CloneFn>,
    /// What the builder of the parts was told that they need: their job needs it.
    pub(super) needs: Needs,
    /// Until the pipeline is built, when they become a line.
    pub(super) stages: Vec<Stage<E>>,
    pub(super) line: Option<Arc<Line<E>>>,
}

impl<E> Fan<E> {
    pub(super) fn line(&self) -> &Arc<Line<E>> {
        self.line.as_ref().expect("the pipeline is built")
    }
}

/// The parts of a job under way, as the parent carries them.
pub(super) struct Spread<E> {
    pub(super) shared: Value,
    /// `None` once they have run out.
    pub(super) parts: Option<PartIter>,
    pub(super) made: usize,
    pub(super) gather: Arc<Gather<E>>,
}

/// Where parts leave word for their parent.
pub(super) struct Gather<E> {
    pub(super) word: Mutex<Word<E>>,
    /// It does not end before its parts have.
    parent: Handle<E>,
}

pub(super) struct Word<E> {
    /// A part was sent off and has not begun.
    pub(super) waiting: bool,
    pub(super) under_way: BTreeMap<usize, Arc<Trip<E>>>,
    /// Parts that were sent off and have not ended.
    pub(super) out: usize,
    /// What they made, in the order in which they ended.
    pub(super) made: Vec<(usize, Value)>,
    /// The first failure.
    pub(super) failed: Option<(usize, JobError<E>)>,
}

impl<E: Send + 'static> Gather<E> {
    pub(super) fn new(parent: Handle<E>) -> Arc<Self> {
        let word = Word { waiting: false, under_way: BTreeMap::new(), out: 0, made: Vec::new(), failed: None };
        Arc::new(Self { word: Mutex::new(word), parent })
    }

    /// The parts under way.
    pub(super) fn under_way(&self) -> Vec<Arc<Trip<E>>> {
        lock(&self.word).under_way.values().cloned().collect()
    }

    /// Cancels all parts that are under way. True if none is left.
    pub(super) fn cancel(&self) -> bool {
        self.under_way().iter().for_each(|part| part.cancel());
        lock(&self.word).out == 0
    }

    /// A part was sent off: remembers it, so that it can be cancelled, unless it has ended already.
    pub(super) fn sent(&self, index: usize, trip: &Arc<Trip<E>>) {
        lock(&self.word).under_way.insert(index, trip.clone());
        if trip.has_ended() {
            lock(&self.word).under_way.remove(&index);
        }
    }

    /// The way back of one part.
    pub(super) fn report(self: &Arc<Self>, index: usize) -> Box<dyn Delivery<E>> {
        let mut word = lock(&self.word);
        word.waiting = true;
        word.out += 1;
        Box::new(PartReport { index, began: false, gather: self.clone() })
    }
}

/// One part's way back to its parent.
struct PartReport<E> {
    index: usize,
    began: bool,
    gather: Arc<Gather<E>>,
}

impl<E: Send + 'static> Delivery<E> for PartReport<E> {
    fn began(&mut self) {
        // A part that starts again begins more than once.
        if !std::mem::replace(&mut self.began, true) {
            lock(&self.gather.word).waiting = false;
            self.gather.parent.with(|parent| parent.send_on());
        }
    }

    fn deliver(self: Box<Self>, result: Result<Value, JobError<E>>) {
        let mut word = lock(&self.gather.word);
        match result {
            Ok(value) => word.made.push((self.index, value)),
            Err(error) if word.failed.is_none() => word.failed = Some((self.index, error)),
            Err(late) => {
                // Outside of the lock, and before the part counts as ended: it may hold something.
                drop(word);
                discard(late);
                word = lock(&self.gather.word);
            }
        }
        if !self.began {
            word.waiting = false;
        }
        word.out -= 1;
        let ended = word.under_way.remove(&self.index);
        let last = word.out == 0;
        drop(word);
        drop(ended);
        if mutant!("last-part-tells-nobody") && last {
            return;
        }
        self.gather.parent.with(|parent| parent.send_on());
    }
}
