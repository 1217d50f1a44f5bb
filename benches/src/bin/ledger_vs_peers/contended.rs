//! A few tasks that want twice as much as there is. Each holds its part across a yield, as across an await.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::runtime::{Builder, Runtime};

use crate::peers::{Broadcast, MutexCondvar, Peer, Plimsoll, PlimsollThreads, Tokio};
use crate::table::{Table, median};

const ROUNDS: usize = 9;
/// Requests a round, of all tasks together.
const REQUESTS: usize = 64_000;

/// A peer, one round of it, and what the rounds have given so far.
type Case = (&'static str, fn(&Runtime, usize) -> f64, Vec<f64>);

pub(crate) fn run() -> Vec<Table> {
    [2, 8, 64].into_iter().map(table).collect()
}

fn table(tasks: usize) -> Table {
    let mut table =
        Table::new(format!("contended: {tasks} tasks want twice the limit, each holds across a yield"), &["served/s"]);
    let mut cases: Vec<Case> = vec![
        (Tokio::NAME, round::<Tokio>, Vec::new()),
        (Plimsoll::NAME, round::<Plimsoll>, Vec::new()),
        (Broadcast::NAME, round::<Broadcast>, Vec::new()),
        (PlimsollThreads::NAME, round::<PlimsollThreads>, Vec::new()),
        (MutexCondvar::NAME, round::<MutexCondvar>, Vec::new()),
    ];
    #[cfg(feature = "datafusion")]
    {
        use crate::peers::datafusion::{Fair, Greedy};
        cases.push((Greedy::NAME, round::<Greedy>, Vec::new()));
        cases.push((Fair::NAME, round::<Fair>, Vec::new()));
    }
    let runtime = runtime();
    for _ in 0..ROUNDS {
        for (_, round, served) in &mut cases {
            served.push(round(&runtime, tasks));
        }
    }
    for (name, _, served) in cases {
        table.row(name, &[median(served)]);
    }
    table.ratio_to(Tokio::NAME);
    table
}

pub(crate) fn runtime() -> Runtime {
    let threads = std::thread::available_parallelism().map_or(2, |threads| threads.get());
    Builder::new_multi_thread().worker_threads(threads).build().expect("threads")
}

/// One round: requests served a second.
fn round<P: Peer>(runtime: &Runtime, tasks: usize) -> f64 {
    // Requests of 1 to 4: on average 2.5 a task, of which half can be held at a time, but the largest always fits.
    let peer = P::new((tasks as u32 * 5 / 4).max(4));
    let each = REQUESTS / tasks;
    let started = Instant::now();
    if P::BLOCKS {
        threads(tasks, move |task| {
            for i in 0..each {
                let held = ready(peer.take(size(task, i)));
                std::thread::yield_now();
                drop(held);
            }
        });
    } else {
        runtime.block_on(async {
            let one = |task: usize| {
                let peer = peer.clone();
                tokio::spawn(async move {
                    for i in 0..each {
                        let held = peer.take(size(task, i)).await;
                        tokio::task::yield_now().await;
                        drop(held);
                    }
                })
            };
            let all: Vec<_> = (0..tasks).map(one).collect();
            for task in all {
                task.await.expect("no task panics");
            }
        });
    }
    (each * tasks) as f64 / started.elapsed().as_secs_f64()
}

fn size(task: usize, i: usize) -> u32 {
    1 + (task * 7 + i * 3) as u32 % 4
}

/// Runs `work` on so many threads that start together.
pub(crate) fn threads(count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    let (work, start) = (Arc::new(work), Arc::new(Barrier::new(count)));
    std::thread::scope(|scope| {
        for thread in 0..count {
            let (work, start) = (work.clone(), start.clone());
            let named = std::thread::Builder::new().stack_size(256 << 10);
            let run = move || {
                start.wait();
                work(thread);
            };
            named.spawn_scoped(scope, run).expect("threads");
        }
    });
}

/// The output of a future that is ready, or blocks, at its first poll.
pub(crate) fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("it does not wait"),
    }
}
