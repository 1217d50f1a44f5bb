//! Pacing against the admission of other engines, on jobs of the shape of a proof for a 32 GiB sector: `cargo run --release -p
//! plimsoll-benches --bin pacing_vs_peers`.
//!
//! A second of the real proof is 8 ms here, and a GiB is 256 KiB, really allocated and touched. What many cores do for tens of
//! seconds (the witness, the evaluation) is a sleep, which grows with the number of jobs beside it as memory bandwidth makes
//! it grow; the device is one thread that sleeps for each job in turn. So two cores can stand for ninety-six and a GPU: what is
//! measured is who lets which job go when, and what that holds in memory. `-- alone` leaves the peers out.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the peers are not built on plimsoll's locks")]

mod engine;
mod ours;
mod work;

use std::time::Duration;

use plimsoll_sim::policies::{Count, Greedy, OptimisticBudget, Policy, ReserveOrFail, Return, StrictFifo, Unlimited};

use work::{PEAK_UNITS, Run};

/// Jobs of a run with plenty of room, and of one with hardly any.
const JOBS: (usize, usize) = (160, 40);
/// The line of a tight machine: 1.2 of the smallest with which a job gets through.
const TIGHT: u64 = PEAK_UNITS * 12 / 10;

struct Row {
    policy: &'static str,
    setting: String,
    run: Run,
}

fn main() {
    if std::env::args().nth(1).as_deref() == Some("alone") {
        return alone();
    }
    let unlimited = engine::run(Box::new(Unlimited), JOBS.0, JOBS.0);
    println!(
        "Plenty of memory, {} jobs. Steady state; the device's time is what unlimited memory keeps busy all the time.",
        JOBS.0
    );
    let mut rows = vec![Row { policy: "unlimited", setting: String::new(), run: unlimited }];
    for permits in [10, 11, 12, 13] {
        for (policy, back, channel) in [
            ("early release, channel of 1", Return::Produced, 1),
            ("held until delivered", Return::Delivered, 1),
            ("channel of the same size", Return::HandedOver, permits),
        ] {
            // With more permits than the device needs, the one that gives them back early only piles up more.
            if back == Return::Delivered || permits % 2 == 0 && permits <= 12 {
                let run = engine::run(Box::new(Count::new(permits, back, channel as usize)), JOBS.0, JOBS.0);
                rows.push(Row { policy, setting: format!("{permits} permits"), run });
            }
        }
    }
    for jobs in [12, 13] {
        let limit = jobs * PEAK_UNITS;
        for (policy, peer, tasks) in byte_budgets(limit, jobs as usize, JOBS.0) {
            rows.push(Row { policy, setting: work::units(limit), run: engine::run(peer, JOBS.0, tasks) });
        }
    }
    let ours = ours::run(4096, JOBS.0);
    rows.push(Row { policy: "plimsoll, paced", setting: String::new(), run: ours });
    print(&rows);
    let as_fast = |row: &&Row| {
        row.policy != "unlimited" && row.policy != "plimsoll, paced" && row.run.busy >= 0.99 * unlimited.busy
    };
    let best = rows.iter().filter(as_fast).min_by_key(|row| row.run.peak_units);
    match best {
        Some(best) => println!(
            "\nplimsoll: {:.1} % of unlimited memory's throughput at {:.0} % of the peak of the best peer as fast ({}, {})\n",
            100.0 * ours.busy / unlimited.busy,
            100.0 * ours.peak_units as f64 / best.run.peak_units as f64,
            best.policy,
            best.setting,
        ),
        None => println!("\nno peer is as fast as with unlimited memory\n"),
    }

    println!("A line of {} ({} jobs): 1.2 of what one job needs.", work::units(TIGHT), JOBS.1);
    let mut rows = Vec::new();
    for (policy, back) in [
        ("early release, channel of 1", Return::Produced),
        ("held until delivered", Return::Delivered),
        ("channel of the same size", Return::HandedOver),
    ] {
        let run = engine::run(Box::new(Count::new(1, back, 1)), JOBS.1, JOBS.1);
        rows.push(Row { policy, setting: "1 permit".into(), run });
    }
    for (policy, peer, tasks) in byte_budgets(TIGHT, 2, JOBS.1) {
        rows.push(Row { policy, setting: work::units(TIGHT), run: engine::run(peer, JOBS.1, tasks) });
    }
    let ours = ours::run(TIGHT, JOBS.1);
    rows.push(Row { policy: "plimsoll, paced", setting: work::units(TIGHT), run: ours });
    print(&rows);
    let (inside, over): (Vec<&Row>, Vec<&Row>) =
        rows.iter().filter(|row| row.policy != "plimsoll, paced").partition(|row| row.run.peak_units <= TIGHT);
    for row in over {
        println!("out of memory: {} holds {}", row.policy, work::units(row.run.peak_units));
    }
    if let Some(best) = inside.iter().max_by(|one, other| one.run.rate.total_cmp(&other.run.rate)) {
        println!("plimsoll: {:.2} × the best peer inside the line ({})\n", ours.rate / best.run.rate, best.policy);
    }

    let (wall, ticks) = ours::idle(Duration::from_secs(2));
    println!(
        "A pipeline whose jobs all wait for memory: {ticks} clock ticks of 10 ms of CPU in {:.1} s.",
        wall.as_secs_f64()
    );
}

/// Without the peers, but for the reference: for whoever tunes the pacer.
fn alone() {
    let unlimited = engine::run(Box::new(Unlimited), JOBS.0, JOBS.0);
    let ours = ours::run(4096, JOBS.0);
    let row = |policy, run| Row { policy, setting: String::new(), run };
    print(&[row("unlimited", unlimited), row("plimsoll, paced", ours)]);
    println!("plimsoll: {:.1} % of unlimited memory's throughput", 100.0 * ours.busy / unlimited.busy);
}

type Peer = (&'static str, Box<dyn Policy + Send>, usize);

/// The byte budgets, and how many tasks ask each. Where a task may fail, its caller runs no more than `side_by_side`.
fn byte_budgets(limit: u64, side_by_side: usize, jobs: usize) -> [Peer; 4] {
    [
        ("optimistic budget, two phases", Box::new(OptimisticBudget::new(limit, 0)), jobs),
        ("strict FIFO of bytes", Box::new(StrictFifo::new(limit)), jobs),
        ("reserve or fail", Box::new(ReserveOrFail::new(limit)), side_by_side),
        ("greedy, largest first", Box::new(Greedy::new(limit)), jobs),
    ]
}

fn print(rows: &[Row]) {
    println!("{:<30} {:>12} {:>10} {:>10} {:>9} {:>9}", "policy", "setting", "jobs/s", "busy", "peak", "seconds");
    for Row { policy, setting, run } in rows {
        let part = 100.0 * run.busy;
        let (peak, seconds) = (work::units(run.peak_units), run.seconds);
        println!("{policy:<30} {setting:>12} {:>10.2} {part:>8.1} % {peak:>9} {seconds:>9.2}", run.rate);
    }
}
