//! The whole state machine against rules written a second time, in long random traces: children, the urgent reserve,
//! reservations that grow or stay, parts, alternatives, moves between classes, limits that change.
//!
//! `PLIMSOLL_TRACES` says how many traces (12 otherwise), `PLIMSOLL_SEED` which is the first.

#[path = "support/dice.rs"]
mod dice;
#[path = "ledger_wide/oracle.rs"]
mod oracle;
#[path = "ledger_wide/play.rs"]
mod play;

use play::Play;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn long_traces_go_as_the_oracle_says() {
    const EVENTS: usize = 2_500;
    let (traces, seed) = (number("PLIMSOLL_TRACES", 12), number("PLIMSOLL_SEED", 1));
    let mut seen = play::Seen::default();
    for seed in seed..seed + traces {
        let mut play = Play::new(seed);
        for _ in 0..EVENTS {
            play.step();
        }
        seen.add(&play.seen);
    }
    println!("{traces} traces of {EVENTS} events: {seen:?}");
    if traces >= 12 {
        seen.check_floors(traces);
    }
}
