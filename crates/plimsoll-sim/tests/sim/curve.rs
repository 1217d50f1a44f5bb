//! Our own policy on the machine of the incident, and against the others.

use plimsoll_sim::policies::Return;
use plimsoll_sim::workload::PolicyKind;
use plimsoll_sim::{End, Options, simulate};

use super::support::{GIB, budget, porep, unlimited, with};

/// No more than 185 GiB, and no more than one hundredth above the seconds a proof of memory without end.
#[test]
fn a_quarter_of_the_memory_does() {
    let workload = porep(200);
    let free = simulate(&unlimited(&workload), Options::default());
    let ours = simulate(&budget(&workload, 185), Options::default());
    assert_eq!((&ours.end, &free.end), (&End::Done, &End::Done));
    let charged = ours.charged_peak.expect("there is a ledger") as f64 / GIB;
    assert!(charged <= 185.0 && ours.host_peak as f64 / GIB <= charged, "{charged} {}", ours.host_peak);
    let slower = ours.seconds_per_proof_steady / free.seconds_per_proof_steady;
    assert!(slower <= 1.01, "{slower}: {} against {}", ours.seconds_per_proof_steady, free.seconds_per_proof_steady);
    // Memory without end holds everything that was ever asked for, and a device that takes it slowly.
    assert!(free.host_peak as f64 / GIB > 3000.0, "{}", free.host_peak);
}

/// The same with no more proofs than the example asks for: what warming up costs is over with the first quarter, and no more than to
/// fill the line takes.
#[test]
fn warming_up_costs_next_to_nothing() {
    for proofs in [20, 40] {
        let workload = porep(proofs);
        let free = simulate(&unlimited(&workload), Options::default());
        let ours = simulate(&budget(&workload, 185), Options::default());
        let slower = ours.seconds_per_proof_steady / free.seconds_per_proof_steady;
        assert!(slower <= 1.01, "{proofs} proofs: {slower}");
        let filling = (ours.seconds_per_proof - free.seconds_per_proof_steady) * proofs as f64;
        assert!(filling <= 60.0, "{proofs} proofs: {filling} s until the line is full");
        assert!(ours.charged_peak.expect("there is a ledger") as f64 / GIB <= 185.0);
    }
}

/// More memory never costs more than noise, from the smallest budget to the whole machine.
#[test]
fn more_memory_is_no_slower() {
    let workload = porep(20);
    let mut before = f64::INFINITY;
    for gib in [92, 100, 120, 140, 160, 170, 180, 185, 200, 300, 668] {
        let outcome = simulate(&budget(&workload, gib), Options::default());
        assert_eq!((outcome.end, outcome.proofs), (End::Done, 20), "{gib} GiB");
        assert!(outcome.charged_peak.expect("a ledger") as f64 / GIB <= gib as f64, "{gib} GiB");
        let seconds = outcome.seconds_per_proof;
        assert!(seconds <= 1.03 * before, "{seconds} s a proof with {gib} GiB, {before} with less");
        before = before.min(seconds);
    }
}

/// What the incident was: a permit that comes back when production ends lets products pile up until the machine is full.
#[test]
fn early_release_passes_twenty_eight_and_dies() {
    let permits = |permits, back, channel| with(porep(40), PolicyKind::Permits { permits, back, channel });
    let early = simulate(&permits(12, Return::Produced, 1), Options::default());
    assert_eq!(early.end, End::OutOfMemory);
    assert!(early.backlog_peak > 28, "{}", early.backlog_peak);
    let held = simulate(&permits(12, Return::Delivered, 1), Options::default());
    assert_eq!((&held.end, held.backlog_peak <= 12), (&End::Done, true));
    let channel = simulate(&permits(12, Return::HandedOver, 12), Options::default());
    assert_eq!((&channel.end, channel.backlog_peak <= 25), (&End::Done, true));
    assert!(channel.host_peak > held.host_peak + (60 << 30));
}
