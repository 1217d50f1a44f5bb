//! The same seed gives the same bytes, on any machine.

use plimsoll::observe::Event;
use plimsoll_sim::policies::Return;
use plimsoll_sim::workload::PolicyKind;
use plimsoll_sim::{Options, Workload, simulate};

use super::support::{budget, porep, with};

/// FNV-1a of every line of the timeline.
fn fingerprint(workload: &Workload) -> (u64, u64) {
    let (mut hash, mut lines) = (0xcbf2_9ce4_8422_2325_u64, 0);
    let mut sink = |event: &Event| {
        lines += 1;
        for byte in event.json().to_string().bytes().chain([b'\n']) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    };
    simulate(workload, Options { timeline: Some(&mut sink), ..Options::default() });
    (hash, lines)
}

#[test]
fn a_seed_gives_the_same_bytes_everywhere() {
    let ours = budget(&porep(4), 185);
    let peer = with(porep(4), PolicyKind::Permits { permits: 10, back: Return::HandedOver, channel: 10 });
    let golden = [(3_773_383_048_506_066_740, 1980), (13_391_943_767_302_220_773, 1925)];
    assert_eq!([fingerprint(&ours), fingerprint(&peer)], golden, "the timelines are not the golden ones");
}

#[test]
fn another_seed_gives_another_run_of_about_the_same_length() {
    let run = |seed| {
        let mut workload = budget(&porep(10), 185);
        workload.seed = seed;
        simulate(&workload, Options::default())
    };
    let (one, other) = (run(1), run(2));
    assert_ne!(one.time, other.time);
    assert!((one.seconds_per_proof / other.seconds_per_proof - 1.0).abs() < 0.05);
    assert_eq!(one, run(1));
}

/// A timeline does not change what happens.
#[test]
fn watching_changes_nothing() {
    let workload = budget(&porep(4), 185);
    let mut sink = |_: &Event| {};
    let watched = simulate(&workload, Options { timeline: Some(&mut sink), ..Options::default() });
    assert_eq!(watched, simulate(&workload, Options::default()));
}
