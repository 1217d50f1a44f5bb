use proptest::prelude::*;

use super::*;

const MIB: u64 = 1 << 20;
const GROUPS: [CurveGroup; 2] = [CurveGroup::G1, CurveGroup::G2];

/// The sum of what is allocated, in MiB, for the shapes that were measured on a CUDA backend.
fn pooled_mib(group: CurveGroup, log_terms: u32, window: u32) -> u64 {
    let (workspace, buckets) = scratch_bytes(group, 1 << log_terms, window, Scratch::Pooled);
    (workspace + buckets) / MIB
}

#[test]
fn scratch_is_the_measured_bound_in_steps_of_the_pool() {
    // 2^20 terms, 15 bits: 17 windows, A = 24.116·17·2^20 + 12·17·2^15 = 416.3 MiB, so 14 steps of 32 MiB; arr = 76.5 MiB is
    // more than A/6 = 69.4, so the sums' 3·76.5 + 1.2 come on top.
    assert_eq!(pooled_mib(CurveGroup::G1, 20, 15), 448 + 256);
    // With 14 bits arr is 42.8 MiB of A = 460.9: the sums fit into what sorting has left.
    assert_eq!(pooled_mib(CurveGroup::G1, 20, 14), 480);
    // A point of G2 is twice as large.
    assert_eq!(pooled_mib(CurveGroup::G2, 20, 14), 480 + 288);
}

#[test]
fn the_backends_own_estimate_is_the_one_that_was_observed() {
    // 1.21 and 1.91 GB at 2^20 with its own window, log2(n) − 4.
    let gigabytes = |group| own_estimate(group, 1 << 20, 16) as f64 / 1e9;
    assert!((gigabytes(CurveGroup::G1) - 1.21).abs() < 0.01, "{}", gigabytes(CurveGroup::G1));
    assert!((gigabytes(CurveGroup::G2) - 1.91).abs() < 0.01, "{}", gigabytes(CurveGroup::G2));
}

#[test]
fn the_window_grows_with_the_terms_and_is_near_the_best_measured_one() {
    let window = |log_terms| {
        let ways = MsmPlan::ways(CurveGroup::G1, 1_u64 << log_terms, true, Scratch::Exact, 1000, u64::MAX);
        ways[0].window
    };
    // Measured best: 15 at 2^18 and 2^20, 17 at 2^22, 19 at 2^24.
    for (log_terms, best) in [(18, 15), (20, 15), (22, 17), (24, 19)] {
        assert!(window(log_terms).abs_diff(best) <= 1, "2^{log_terms}: {}", window(log_terms));
    }
}

#[test]
fn a_domain_has_one_root_more_than_points() {
    assert_eq!(domain_bytes(0), 64);
    assert_eq!(domain_bytes(20), 32 * (MIB + 1));
}

proptest! {
    #[test]
    fn ways_fit_and_each_takes_less_than_the_one_before(
        group in 0..2_usize,
        terms in 1..(1_u64 << 23),
        resident: bool,
        pooled: bool,
        limit in (1 << 16)..(1_u64 << 34),
        correction in 1000..3000_u64,
    ) {
        let scratch = if pooled { Scratch::Pooled } else { Scratch::Exact };
        let ways = MsmPlan::ways(GROUPS[group], terms, resident, scratch, correction, limit);
        for plan in &ways {
            prop_assert!(plan.bytes() <= limit);
            prop_assert!(plan.piece * plan.calls() >= terms && plan.piece * (plan.calls() - 1) < terms);
            prop_assert!((2..=WINDOW_MAX).contains(&plan.window));
        }
        for pair in ways.windows(2) {
            prop_assert!(pair[1].bytes() < pair[0].bytes());
            prop_assert!(pair[1].cost() >= pair[0].cost());
        }
        if ways.is_empty() {
            prop_assert!(MsmPlan::smallest(GROUPS[group], terms, resident, scratch, correction) > limit);
        }
    }

    #[test]
    fn the_margin_is_what_keeps_a_backend_from_choosing_for_itself(
        group in 0..2_usize,
        terms in 1..(1_u64 << 23),
        window in 2..=WINDOW_MAX,
        correction in 1000..2000_u64,
    ) {
        let group = GROUPS[group];
        let plan = MsmPlan::new(group, terms, terms, window, true, Scratch::Pooled, correction);
        let inputs = plan.terms * (SCALAR_BYTES + affine_bytes(group));
        let found = plan.free_bytes_needed() + inputs;
        prop_assert!(own_estimate(group, terms, window) * 10 <= found * 7);
    }

    #[test]
    fn more_terms_never_take_less(group in 0..2_usize, terms in 1..(1_u64 << 22), window in 2..=WINDOW_MAX) {
        for scratch in [Scratch::Pooled, Scratch::Exact] {
            let bytes = |terms| {
                let (workspace, buckets) = scratch_bytes(GROUPS[group], terms, window, scratch);
                workspace + buckets
            };
            // What is in one bound's favour where buckets stop to count is at most what they count.
            prop_assert!(bytes(terms * 2) + 3 * ((projective_bytes(GROUPS[group]) * 128) << window) + POOL_STEP >= bytes(terms));
        }
    }
}
