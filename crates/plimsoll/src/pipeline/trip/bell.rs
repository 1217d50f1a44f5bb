//! What the ledger wakes a trip with, and how deep that may go.
//!
//! Whoever returns bytes wakes those to whom the ledger has granted something, and these are sent on, or driven, there and then. A
//! trip that has nowhere to go any more (its pool was aborted, its runtime or its carrier is gone) ends at once, and what it held
//! wakes the next one, inside of the first. With thousands of jobs behind each other that would be as many frames on one stack. So
//! on each thread only [`DEEPEST`] are rung inside of each other, and what is rung beyond that waits for the deepest to come back.
//!
//! Not a single one, which would do for the stack: a destructor that is called meanwhile may wait for another job, and that one may
//! be woken by this thread alone.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Wake;

use super::Trip;
use crate::contain::contain;
use crate::pipeline::landing::Handle;
use crate::sync::thread_local;

/// What the ledger wakes a trip with.
pub(super) struct Bell<E: Send + 'static>(pub(super) Handle<E>);

impl<E: Send + 'static> Wake for Bell<E> {
    fn wake(self: Arc<Self>) {
        ring(move || _ = self.0.with(Trip::woken));
    }
}

const DEEPEST: usize = 8;

struct Rung {
    deep: usize,
    late: VecDeque<Box<dyn FnOnce()>>,
}

thread_local! {
    static RUNG: RefCell<Rung> = const { RefCell::new(Rung { deep: 0, late: VecDeque::new() }) };
}

/// Calls `wake` now, or once the deepest of those that are being rung on this thread has come back.
fn ring(wake: impl FnOnce() + 'static) {
    let mut wake = Some(wake);
    let deep = RUNG.try_with(|rung| {
        let mut rung = rung.borrow_mut();
        if rung.deep == DEEPEST && !mutant!("rung-as-deep-as-they-come") {
            rung.late.extend(wake.take().map(|wake| Box::new(wake) as Box<dyn FnOnce()>));
        }
        rung.deep += usize::from(wake.is_some());
        rung.deep
    });
    let Some(wake) = wake else { return };
    // What comes out of it is no affair of whoever has returned bytes.
    drop(contain(wake));
    // A thread that is ending has no such list any more, and leaves nothing for later.
    let Ok(deep) = deep else { return };
    while deep == DEEPEST
        && let Some(late) = RUNG.with(|rung| rung.borrow_mut().late.pop_front())
    {
        drop(contain(late));
    }
    RUNG.with(|rung| rung.borrow_mut().deep -= 1);
}
