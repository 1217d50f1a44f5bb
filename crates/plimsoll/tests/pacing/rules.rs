//! What pacing promises, in virtual time.

use plimsoll::Space;
use plimsoll::pipeline::pacing::{LOSS, Pacing, spread, utilisation, work_in_progress};
use proptest::prelude::*;

use crate::line::{BUFFER, Faults, Line, Time};

/// More than any of these lines can use; without pacing it is filled.
const PLENTY: u64 = 1 << 12;
/// Time, station, peak, keep.
type Stages = Vec<(Time, usize, u64, u64)>;

/// One stage on as many threads as it likes, then a device.
fn two(way: Time, drum: Time) -> Stages {
    vec![(way, 0, 4, 4), (drum, 1, 4, 0)]
}

/// The shape of a proof for a sector of 32 GiB, in seconds and GiB: witness, evaluation (with a copy of the witness), device,
/// finish. The more run side by side, the slower each.
fn proof() -> Stages {
    vec![
        (Time::Contended(22.0, 0.64), 0, 4, 4),
        (Time::Contended(7.0, 0.21), 0, 20, 16),
        (Time::Uniform(3.5, 3.8), 1, 16, 4),
        (Time::Uniform(1.7, 2.1), 0, 7, 0),
    ]
}

const MACHINE: [Option<u64>; 2] = [Some(64), Some(1)];

/// Jobs a second in steady state.
fn rate(pacing: Pacing, memory: u64) -> (f64, Line) {
    let mut line = Line::new(pacing, &MACHINE, &proof(), memory).seed(7);
    line.run(100);
    (line.run(300).0, line)
}

/// The way to the drum, the drum, and their squared coefficients of variation.
const TIMES: [(Time, Time, f64, f64, f64); 6] = [
    (Time::Exponential(10.0), Time::Exponential(1.0), 10.0, 1.0, 1.0),
    (Time::Exponential(3.0), Time::Uniform(0.5, 1.5), 3.0, 1.0, 1.0 / 12.0),
    (Time::Uniform(5.0, 15.0), Time::Fixed(1.0), 10.0, 1.0 / 12.0, 0.0),
    (Time::Fixed(8.0), Time::Fixed(1.0), 8.0, 0.0, 0.0),
    (Time::Exponential(0.2), Time::Exponential(1.0), 0.2, 1.0, 1.0),
    (Time::Fixed(40.0), Time::Exponential(1.0), 40.0, 0.0, 1.0),
];

#[test]
fn the_rule_loses_less_than_one_percent_and_asks_for_little() {
    for (way, drum, a, way_cv2, drum_cv2) in TIMES {
        let target = work_in_progress(a, 1, spread(way_cv2, drum_cv2), LOSS);
        assert!(target <= a + 1.0 + 3.0 * a.sqrt() + 0.5, "{way:?} {drum:?}: {target}");
        let jobs = target.ceil() as u64;
        let mut line = Line::new(Pacing::Fixed(jobs), &[None, Some(1)], &two(way, drum), PLENTY).seed(2);
        line.run(300);
        let (_, busy) = line.run(5000);
        // With unlimited work the drum is busy all the time.
        assert!(busy[1] >= 0.99, "{way:?} {drum:?}: {:.4} with {jobs}", busy[1]);
        // What it says of other numbers of jobs holds as well.
        let half = jobs.div_ceil(2);
        let mut line = Line::new(Pacing::Fixed(half), &[None, Some(1)], &two(way, drum), PLENTY).seed(2);
        line.run(300);
        let (_, busy) = line.run(3000);
        let predicted = utilisation(half, a, 1, spread(way_cv2, drum_cv2));
        assert!((busy[1] - predicted).abs() < 0.06, "{way:?} {drum:?}: {:.3} predicted {predicted:.3}", busy[1]);
    }
}

#[test]
fn the_drum_is_kept_busy_without_being_told_any_times() {
    for (way, drum, ..) in TIMES {
        for seed in 1..3 {
            let mut line = Line::new(Pacing::Auto, &[None, Some(1)], &two(way, drum), PLENTY).seed(seed);
            line.run(300);
            let (_, busy) = line.run(3000);
            let pace = line.pacer.pace();
            assert!(
                busy[1] >= 0.985,
                "{way:?} {drum:?} {seed}: {:.4} with {:?}, {pace:?}",
                busy[1],
                line.pacer.tokens()
            );
            // Not by having plenty: a + 1 + 3√a, rounded up, is what it may cost.
            let enough = pace.on_the_way + 1.0 + 3.0 * pace.on_the_way.sqrt() + 2.0;
            assert!(line.pacer.tokens()[0] as f64 <= enough, "{way:?} {drum:?}: {:?}, {pace:?}", line.pacer.tokens());
        }
    }
}

#[test]
fn a_proofs_shape_runs_as_fast_as_with_unlimited_memory_in_half_of_what_a_permit_a_job_takes() {
    let (unlimited, _) = rate(Pacing::Unpaced, PLENTY);
    let (paced, mut line) = rate(Pacing::Auto, PLENTY);
    assert!(paced >= 0.99 * unlimited, "{paced} of {unlimited}");
    // The fewest permits that keep the device as busy, held until the job is done.
    let permits = (1..).find(|jobs| rate(Pacing::Fixed(*jobs), PLENTY).0 >= 0.99 * unlimited).expect("some number");
    let (_, mut held) = rate(Pacing::Fixed(permits), PLENTY);
    assert!(2 * line.peak() <= held.peak(), "{} against {} with {permits} permits", line.peak(), held.peak());
}

#[test]
fn where_memory_sets_the_pace_room_is_kept_for_those_that_multiply() {
    for (memory, of_unpaced) in [(100, 1.1), (80, 1.5), (60, 1.5), (40, 1.1), (24, 0.99)] {
        let (unpaced, _) = rate(Pacing::Unpaced, memory);
        let (paced, line) = rate(Pacing::Auto, memory);
        let tokens = line.pacer.tokens();
        assert!(paced >= of_unpaced * unpaced, "{memory}: {paced} against {unpaced}, {tokens:?}");
        assert_eq!(line.pacer.pace().memory, Some(Space::HOST), "{memory}");
    }
}

#[test]
fn a_drum_that_moves_is_followed_there_and_back() {
    let stages = vec![(Time::Fixed(2.0), 0, 4, 4), (Time::Fixed(1.0), 1, 4, 0)];
    let mut line = Line::new(Pacing::Auto, &[Some(4), Some(1)], &stages, PLENTY);
    line.run(50);
    assert_eq!((line.pacer.pace().drum, line.pacer.tokens()), (Some(1), &[3][..]));
    for _ in 0..2 {
        line.set_time(0, Time::Fixed(16.0));
        line.run(32);
        assert_eq!(line.pacer.pace().drum, Some(0), "{:?}", line.pacer.pace());
        let (_, busy) = line.run(100);
        assert!(busy[0] >= 0.99, "{busy:?} {:?}", line.pacer.tokens());
        assert!(line.pacer.tokens()[0] <= 6, "{:?}", line.pacer.tokens());
        line.set_time(0, Time::Fixed(2.0));
        line.run(32);
        assert_eq!(line.pacer.pace().drum, Some(1), "{:?}", line.pacer.pace());
        let (_, busy) = line.run(100);
        assert!(busy[1] >= 0.99, "{busy:?} {:?}", line.pacer.tokens());
        assert!(line.pacer.tokens()[0] <= 5, "{:?}", line.pacer.tokens());
    }
}

#[test]
fn warming_up_lets_no_more_in_than_will_be_needed() {
    let mut line = Line::new(Pacing::Auto, &MACHINE, &proof(), PLENTY).seed(3);
    line.run(3000);
    assert!(line.in_flight_peak <= line.pacer.tokens()[0] as usize + 1, "{}", line.in_flight_peak);
    // One station: what is served at once, from the beginning, and never more.
    let stages = vec![(Time::Uniform(1.0, 2.0), 0, 4, 4), (Time::Uniform(1.0, 5.0), 0, 12, 0)];
    let mut line = Line::new(Pacing::Auto, &[Some(2)], &stages, PLENTY).seed(3);
    let (_, busy) = line.run(1000);
    assert!(busy[0] >= 0.99 && line.in_flight_peak == 2, "{busy:?} {}", line.in_flight_peak);
}

/// What is cheap is made ahead from the beginning: as many as hold together what one of them does at its peak.
#[test]
fn warming_up_makes_ahead_what_is_cheap() {
    let line = Line::new(Pacing::Auto, &MACHINE, &proof(), PLENTY);
    assert_eq!(line.pacer.tokens(), [5, 2, 2], "20 at the peak, 4 before");
    // Not where nothing multiplies, nor beyond those who could make it.
    let line = Line::new(Pacing::Auto, &MACHINE, &two(Time::Fixed(9.0), Time::Fixed(1.0)), PLENTY);
    assert_eq!(line.pacer.tokens(), [2]);
    let line = Line::new(Pacing::Auto, &[Some(3), Some(1)], &proof(), PLENTY);
    assert_eq!(line.pacer.tokens()[0], 3);
    // The drum has work from when the first ones come, and no more than those who made them take.
    let mut line = Line::new(Pacing::Auto, &MACHINE, &proof(), PLENTY).seed(3);
    let (_, busy) = line.run(100);
    assert!(busy[1] >= 0.87, "{busy:?}: with all that will be needed from the beginning it is 0.9");
}

/// While a station that may be the drum has more before it than it takes, no more are let in.
#[test]
fn warming_up_stops_where_jobs_queue() {
    for drum in [30.0, 300.0] {
        let stages = [
            (Time::Fixed(1.0), 0, 4, 4),
            (Time::Fixed(1.0), 0, 20, 16),
            (Time::Fixed(drum), 1, 16, 4),
            (Time::Fixed(1.0), 0, 7, 0),
        ];
        let mut line = Line::new(Pacing::Auto, &MACHINE, &stages, PLENTY);
        line.run(100);
        assert_eq!(line.pacer.tokens()[0], 2, "{drum}");
        // Two rounds of what is made ahead come out of the first stage before the first of them is seen to wait.
        assert!(line.in_flight_peak <= 15, "{drum}: {}", line.in_flight_peak);
    }
}

#[test]
fn jobs_of_several_sizes_are_paced_by_their_mix() {
    let mut line = Line::new(Pacing::Auto, &MACHINE, &proof(), PLENTY).seed(5).also(3);
    line.run(400);
    let (_, busy) = line.run(2000);
    assert!(busy[1] >= 0.98, "{busy:?} {:?} {:?}", line.pacer.tokens(), line.pacer.pace());
    assert!(line.pacer.tokens()[0] <= 50, "{:?}", line.pacer.tokens());
}

#[test]
fn failures_and_cancellations_leave_the_pace_as_it_is() {
    let mut line = Line::new(Pacing::Auto, &MACHINE, &proof(), PLENTY).seed(11);
    line.run(500);
    let before = line.pacer.tokens().to_vec();
    line.faults = Faults { failing: 300, cancelled: 100 };
    line.run(2000);
    assert!(line.failed > 500 && line.finished > 500, "{} {}", line.failed, line.finished);
    line.faults = Faults::default();
    let (_, busy) = line.run(500);
    assert!(busy[1] >= 0.98, "{busy:?} {:?}", line.pacer.tokens());
    assert!(line.pacer.tokens()[0].abs_diff(before[0]) <= 2, "{before:?} {:?}", line.pacer.tokens());
}

#[test]
fn a_line_whose_jobs_all_fail_or_that_is_fed_nothing_goes_on_afterwards() {
    let mut line = Line::new(Pacing::Auto, &MACHINE, &proof(), PLENTY);
    line.faults = Faults { failing: 1000, cancelled: 200 };
    line.run(300);
    assert_eq!(line.finished, 0);
    line.faults = Faults::default();
    line.run(300);
    assert!(line.finished > 0);
    // Fed nothing, it comes to rest with nothing held.
    line.supply = 0;
    while line.step() {}
    assert_eq!(line.in_flight(), 0);
    assert!(line.state.snapshot().is_empty());
    line.supply = u64::MAX;
    let (_, busy) = line.run(200);
    assert!(busy[1] >= 0.9, "{busy:?}");
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        (1u32..50).prop_map(|t| Time::Fixed(f64::from(t))),
        (1u32..50, 1u32..50).prop_map(|(a, b)| Time::Uniform(f64::from(a.min(b)), f64::from(a.max(b)))),
        (1u32..50).prop_map(|t| Time::Exponential(f64::from(t))),
        (1u32..20, 1u32..5).prop_map(|(a, b)| Time::Contended(f64::from(a), f64::from(b))),
    ]
}

/// Any number of stages on any stations, each of which holds more or less than the one before.
fn stages() -> impl Strategy<Value = Stages> {
    prop::collection::vec((time(), 0usize..3, 1u64..20, 0u64..20), 1..6).prop_map(|stages| {
        let (last, mut kept) = (stages.len() - 1, 0);
        let fit = |(at, (time, station, peak, keep)): (usize, (Time, usize, u64, u64))| {
            let peak = peak.max(kept);
            kept = if at == last { 0 } else { keep.min(peak) };
            (time, station, peak, kept)
        };
        stages.into_iter().enumerate().map(fit).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Every job ends, whatever the line, the budget and the faults, and every token is back then.
    #[test]
    fn no_line_is_ever_wedged(
        stages in stages(),
        servers in prop::collection::vec(prop::option::of(1u64..5), 3),
        spare in 0u64..40,
        failing in 0u64..400,
        cancelled in 0u64..200,
        seed in 1u64..1000,
    ) {
        let smallest = stages.iter().map(|stage| stage.2).max().expect("a stage");
        let mut line = Line::new(Pacing::Auto, &servers, &stages, smallest + spare).seed(seed);
        line.faults = Faults { failing, cancelled };
        line.supply = 150;
        while line.step() {
            prop_assert!(line.pacer.tokens().iter().all(|tokens| *tokens >= 1));
        }
        prop_assert_eq!(line.finished + line.failed, 150);
        prop_assert_eq!(line.in_flight(), 0);
        let snapshot = line.state.snapshot();
        prop_assert!(snapshot.is_empty(), "{:?} {:?}", snapshot, snapshot.class(BUFFER));
    }
}
