//! Who has a job of a pool in hand: its workers, and any other thread that is inside of one, such as a device's lane.
//!
//! Such a thread may be led by a user's code (a stage, a destructor, a waker) to end the pool, or to drop its last handle. The
//! workers end when the last job has, so a thread that has one in hand must not wait for them: it would wait for itself.

use std::cell::RefCell;
use std::sync::Arc;

use super::Remote;
use super::worker::{Shared, Worker};
use crate::sync::thread_local;

thread_local! {
    // The pool and the tenant of each job that the thread has in hand.
    static IN_HAND: RefCell<Vec<(Arc<Shared>, usize)>> = const { RefCell::new(Vec::new()) };
}

/// Left with the thread by who has a job in hand, while it has.
pub(crate) struct InHand;

impl InHand {
    /// `tenant` tells the pipeline from other living ones. The caller keeps it for as long as this.
    pub(crate) fn leave(remote: &Remote, tenant: usize) -> InHand {
        // A thread that is ending has no such list any more, and whatever it still drops waits for nobody else's jobs.
        let _ = IN_HAND.try_with(|marks| marks.borrow_mut().push((remote.shared.clone(), tenant)));
        InHand
    }

    /// Whether the calling thread has a job of this tenant's in hand.
    pub(crate) fn is_of(tenant: usize) -> bool {
        has(|mark| mark.1 == tenant)
    }
}

/// The pool of the job that the calling thread has in hand; of the innermost, where it is led from one to the next.
#[cfg(feature = "rayon")]
pub(super) fn pool_of_the_job() -> Option<Arc<Shared>> {
    IN_HAND.try_with(|marks| marks.borrow().last().map(|mark| mark.0.clone())).ok().flatten()
}

impl Drop for InHand {
    fn drop(&mut self) {
        let mark = IN_HAND.try_with(|marks| marks.borrow_mut().pop());
        // Not while the list is borrowed: it may be the pool's last.
        drop(mark);
    }
}

impl Shared {
    /// Whether the pool waits for the calling thread before it can end.
    pub(super) fn waits_for_us(self: &Arc<Self>) -> bool {
        let is_worker = Worker::with_current(|worker| worker.is_some_and(|worker| worker.is_of(self)));
        is_worker || (has(|mark| Arc::ptr_eq(&mark.0, self)) && !mutant!("end-waits-for-itself"))
    }
}

fn has(wanted: impl Fn(&(Arc<Shared>, usize)) -> bool) -> bool {
    IN_HAND.try_with(|marks| marks.borrow().iter().any(wanted)).unwrap_or(false)
}
