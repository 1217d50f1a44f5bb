//! 1,000 tasks of mixed sizes for two seconds: 89 of 100 ask for 1 to 10 of 1,000, 10 for 100, and one for 900. Each
//! holds what it got across one to eight yields and asks again at once, so that nearly all of them wait all the time.
//!
//! *Passed by* is what the tasks can count of each other, with those that are between their number and their request, or
//! between their grant and their next step: what the peers really do is in `bound`.
//!
//! Nobody's wait is cut short: a request that is still waiting at the end counts with what it has waited by then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use crate::contended::{ready, runtime, threads};
use crate::peers::{Broadcast, MutexCondvar, Peer, Plimsoll, Tokio};
use crate::table::{Table, median, percentile};

pub(crate) const TASKS: usize = 1000;
pub(crate) const LIMIT: u32 = 1000;
pub(crate) const LARGE: u32 = 900;
const ROUNDS: usize = 3;
const LASTS: Duration = Duration::from_secs(2);

const COLUMNS: [&str; 6] =
    ["served/s", "p99 wait ms", "large: served", "large: worst ms", "large: passed by", "in use %"];

/// A peer, one round of it, and what the rounds have given so far.
type Case = (&'static str, fn(&Runtime) -> [f64; 6], Vec<[f64; 6]>);

pub(crate) fn run() -> Vec<Table> {
    let mut table = Table::new("waiters: 1,000 tasks of mixed sizes", &COLUMNS);
    let mut cases: Vec<Case> = vec![
        (Tokio::NAME, round::<Tokio>, Vec::new()),
        (Plimsoll::NAME, round::<Plimsoll>, Vec::new()),
        (Broadcast::NAME, round::<Broadcast>, Vec::new()),
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
        for (_, round, rows) in &mut cases {
            rows.push(round(&runtime));
        }
    }
    for (name, _, rows) in cases {
        let column = |at: usize| median(rows.iter().map(|row| row[at]).collect());
        table.row(name, &[0, 1, 2, 3, 4, 5].map(column));
    }
    table.ratio_to(Tokio::NAME);
    vec![table]
}

/// What all tasks of a round share.
#[derive(Default)]
struct Round {
    over: AtomicBool,
    /// Requests so far: each has the number of requests that were made before it.
    asked: AtomicU64,
    in_use: AtomicU64,
    /// The sum of what was in use whenever somebody was served.
    in_use_sum: AtomicU64,
    /// Served, of requests younger than the oldest large one that waits now.
    younger_served: [AtomicU64; TASKS / 100],
    /// The number of each large request that waits now, or 0.
    large_waits: [AtomicU64; TASKS / 100],
}

/// Of one request.
struct Wait {
    amount: u32,
    seconds: f64,
    served: bool,
    /// How many younger requests were served while this one, a large one, waited.
    passed_by: u64,
}

fn round<P: Peer>(runtime: &Runtime) -> [f64; 6] {
    let round = std::sync::Arc::new(Round::default());
    let peer = P::new(LIMIT);
    let (sender, waits) = std::sync::mpsc::channel::<Vec<Wait>>();
    if P::BLOCKS {
        let timer = {
            let round = round.clone();
            move || end(&round)
        };
        let shared = round.clone();
        std::thread::scope(|scope| {
            std::thread::Builder::new().spawn_scoped(scope, timer).expect("threads");
            threads(TASKS, move |task| {
                let peer = peer.clone();
                let yields = async |count| (0..count).for_each(|_| std::thread::yield_now());
                let _ = sender.send(ready(one(&shared, &peer, task, yields)));
            });
        });
    } else {
        runtime.block_on(async {
            for task in 0..TASKS {
                let (round, peer, sender) = (round.clone(), peer.clone(), sender.clone());
                tokio::spawn(async move {
                    let yields = async |count| {
                        for _ in 0..count {
                            tokio::task::yield_now().await;
                        }
                    };
                    let _ = sender.send(one(&round, &peer, task, yields).await);
                });
            }
        });
        drop(sender);
        end(&round);
    }
    let waits: Vec<Wait> = waits.into_iter().flatten().collect();
    summary(&round, &waits)
}

/// How much a task asks for.
pub(crate) fn amount(task: usize) -> u32 {
    match task % 100 {
        0 => LARGE,
        1..=10 => 100,
        other => 1 + other as u32 % 10,
    }
}

/// Ends the round when its time is up.
fn end(round: &Round) {
    // A benchmark's clock, not a test: it lets the tasks run for a while.
    std::thread::park_timeout(LASTS);
    round.over.store(true, Relaxed);
}

/// What one task does until the round is over.
async fn one<P: Peer>(round: &Round, peer: &P, task: usize, yields: impl AsyncFn(u32)) -> Vec<Wait> {
    let amount = amount(task);
    let large = (amount == LARGE).then_some(task / 100);
    let mut waits = Vec::new();
    while !round.over.load(Relaxed) {
        let number = 1 + round.asked.fetch_add(1, Relaxed);
        if let Some(large) = large {
            round.younger_served[large].store(0, Relaxed);
            round.large_waits[large].store(number, Relaxed);
        }
        let asked = Instant::now();
        let held = peer.take(amount).await;
        let seconds = asked.elapsed().as_secs_f64();
        // Who is served only because the round is over and others stop asking was not served in it.
        let served = !round.over.load(Relaxed);
        let mut passed_by = 0;
        if let Some(large) = large {
            passed_by = round.younger_served[large].load(Relaxed);
            round.large_waits[large].store(0, Relaxed);
        }
        waits.push(Wait { amount, seconds, served, passed_by });
        if served {
            for (waiting, younger) in round.large_waits.iter().zip(&round.younger_served) {
                if (1..number).contains(&waiting.load(Relaxed)) {
                    younger.fetch_add(1, Relaxed);
                }
            }
            let in_use = round.in_use.fetch_add(u64::from(amount), Relaxed) + u64::from(amount);
            round.in_use_sum.fetch_add(in_use, Relaxed);
            yields(1 + (number % 8) as u32).await;
            round.in_use.fetch_sub(u64::from(amount), Relaxed);
        }
        drop(held);
    }
    waits
}

fn summary(round: &Round, waits: &[Wait]) -> [f64; 6] {
    let served = waits.iter().filter(|wait| wait.served).count() as f64;
    let mut seconds: Vec<f64> = waits.iter().map(|wait| wait.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    let large = || waits.iter().filter(|wait| wait.amount == LARGE);
    let in_use = round.in_use_sum.load(Relaxed) as f64 / served.max(1.0);
    [
        served / LASTS.as_secs_f64(),
        percentile(&seconds, 0.99) * 1e3,
        large().filter(|wait| wait.served).count() as f64,
        large().map(|wait| wait.seconds).fold(0.0, f64::max) * 1e3,
        large().map(|wait| wait.passed_by).max().unwrap_or(0) as f64,
        in_use / f64::from(LIMIT) * 100.0,
    ]
}
