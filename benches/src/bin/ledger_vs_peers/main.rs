//! The ledger against what people use instead, in the same run: `cargo run --release -p plimsoll-benches --features
//! datafusion --bin ledger_vs_peers [--json] [case…]`.
//!
//! | case | question |
//! |---|---|
//! | `uncontended` | what do one reservation and its return cost when nobody else is there? |
//! | `contended` | how many does it serve when 2, 8 and 64 tasks want more than there is? |
//! | `waiters` | with 1,000 tasks of mixed sizes: how many are served, how long do they wait, who starves? |
//! | `bound` | how often is a large request passed by younger ones? |
//! | `release` | how long does one release take with n jobs in flight and n waiting, and how does it grow? |
//! | `jobs` | how many events a second does the state machine take, with n jobs of six stages in flight? |
//!
//! Peers run in turns, so that whatever else the machine does hits all alike; figures are medians of the rounds.
//! Without the feature `datafusion` (some 200 crates) its two pools are left out.

mod bound;
mod contended;
mod jobs;
mod peers;
mod release;
mod table;
mod uncontended;
mod waiters;

use self::table::Table;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let json = args.iter().any(|arg| arg == "--json");
    let only: Vec<&str> = args.iter().map(String::as_str).filter(|arg| !arg.starts_with("--")).collect();
    type Case = (&'static str, fn() -> Vec<Table>);
    let cases: [Case; 6] = [
        ("uncontended", uncontended::run),
        ("contended", contended::run),
        ("waiters", waiters::run),
        ("bound", bound::run),
        ("release", release::run),
        ("jobs", jobs::run),
    ];
    for (name, run) in cases {
        if only.is_empty() || only.contains(&name) {
            for table in run() {
                if json { table.print_json() } else { table.print() }
            }
        }
    }
}
