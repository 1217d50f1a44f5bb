//! A fork against a sleeper, where nothing but the fences of the idle protocol orders them: the deque of the other models is a
//! mutex, which would do for them. Here the fork is published by a plain store, as in the lock-free deque, and looked for by
//! a plain load; the idle protocol around them is the shipped one. A lost wake-up is a deadlock, which loom reports.
#![cfg(plimsoll_loom)]

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use loom_tests::check;
use plimsoll::pool::model::Sleepers;

/// One forks, the other lies down.
#[test]
fn a_fork_is_seen_or_its_sleeper_is() {
    check(|| {
        let (sleepers, forks) = (Arc::new(Sleepers::new(2)), Arc::new(AtomicUsize::new(0)));
        let sleeper = thread::spawn({
            let (sleepers, forks) = (sleepers.clone(), forks.clone());
            move || {
                // Returns at once if it sees the fork, and otherwise when it is woken.
                sleepers.sleep(1, || forks.load(Ordering::Relaxed) != 0);
            }
        });
        forks.store(1, Ordering::Relaxed);
        sleepers.fork_published();
        sleeper.join().unwrap();
    });
}
