//! One thread, nobody else: a reservation of 4 and its return.

use std::hint::black_box;
use std::time::Instant;

use crate::peers::{Broadcast, MutexCondvar, Peer, Plimsoll, Tokio};
use crate::table::{Table, median};

const ROUNDS: usize = 1001;
/// Few enough that most rounds are over before anybody else gets the core.
const TIMES: u32 = 1000;

/// A peer, one round of it, and what the rounds have given so far.
type Case = (String, Box<dyn Fn() -> f64>, Vec<f64>);

pub(crate) fn run() -> Vec<Table> {
    let mut table = Table::new("uncontended: reserve and return, one thread", &["ns"]);
    let mut cases: Vec<Case> = Vec::new();
    add::<Tokio>(&mut cases);
    add::<Plimsoll>(&mut cases);
    add::<MutexCondvar>(&mut cases);
    add::<Broadcast>(&mut cases);
    #[cfg(feature = "datafusion")]
    {
        add::<crate::peers::datafusion::Greedy>(&mut cases);
        add::<crate::peers::datafusion::Fair>(&mut cases);
    }
    for _ in 0..ROUNDS {
        for (_, round, times) in &mut cases {
            times.push(round());
        }
    }
    for (name, _, times) in cases {
        table.row(name, &[median(times)]);
    }
    table.ratio_to("tokio semaphore, try");
    vec![table]
}

fn add<P: Peer>(cases: &mut Vec<Case>) {
    let peer = P::new(1000);
    let again = peer.clone();
    let by_try = move || timed(|| drop(black_box(peer.try_take(black_box(4)).expect("there is room"))));
    cases.push((format!("{}, try", P::NAME), Box::new(by_try), Vec::new()));
    // There is room, so the future is ready at its first poll: no runtime has a part in it.
    let by_wait = move || timed(|| drop(black_box(crate::contended::ready(again.take(black_box(4))))));
    cases.push((format!("{}, wait", P::NAME), Box::new(by_wait), Vec::new()));
}

/// Nanoseconds a time.
fn timed(mut one: impl FnMut()) -> f64 {
    let started = Instant::now();
    for _ in 0..TIMES {
        one();
    }
    started.elapsed().as_nanos() as f64 / f64::from(TIMES)
}
