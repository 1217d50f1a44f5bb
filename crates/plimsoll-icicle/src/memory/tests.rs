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
    for scratch in [Scratch::Pooled, Scratch::Exact] {
        assert_eq!(domain_bytes(0, scratch), 64);
        assert_eq!(domain_bytes(20, scratch), 32 * (MIB + 1));
        assert_eq!(transform_scratch_bytes(30, scratch), 0);
    }
    // On the processor each root is the key of a hash table besides, and long vectors are reordered by way of copies.
    assert_eq!(domain_bytes(20, HOST), 32 * (MIB + 1) + 96 * MIB);
    assert_eq!((transform_scratch_bytes(26, HOST), transform_scratch_bytes(27, HOST)), (0, 64 << 27));
}

/// ICICLE's device for processors, with two threads.
const HOST: Scratch = Scratch::Host { threads: 2 };

#[test]
fn on_the_processor_each_thread_has_buckets_of_its_own() {
    // 12 bits: 21 windows of 2^11 buckets, and one of the remaining three bits with 2^3.
    let buckets = 21 * 2048 + 8;
    for (group, point) in [(CurveGroup::G1, 144), (CurveGroup::G2, 288)] {
        // (21 · 2048 + 8) / 2 is 2^14 and something: runs of 2^10.
        let runs = 43;
        for threads in [1, 2, 128] {
            let scratch = Scratch::Host { threads };
            let (sorting, bytes) = scratch_bytes(group, 1 << 20, 12, scratch);
            assert_eq!(sorting, 0);
            let own = u64::from(threads) * (buckets * point + buckets / 8);
            assert!(bytes > own && bytes < own + own / 4 + 2 * MIB, "{threads} threads: {bytes}");
            if threads == 2 {
                assert_eq!(bytes, own + runs * (2 * point + 512) + MIB);
            }
        }
        assert_eq!(scratch_bytes(group, 1, 12, HOST), scratch_bytes(group, 1 << 24, 12, HOST));
    }
    let plan = MsmPlan::new(CurveGroup::G1, 100, 100, 2, false, HOST, 1000);
    assert_eq!((plan.margin_bytes, plan.workspace_bytes, plan.threads), (0, 0, 2));
}

proptest! {
    #[test]
    fn ways_fit_and_each_takes_less_than_the_one_before(
        group in 0..2_usize,
        terms in 1..(1_u64 << 23),
        resident: bool,
        pooled in 0..3_usize,
        limit in (1 << 16)..(1_u64 << 34),
        correction in 1000..3000_u64,
    ) {
        let scratch = [Scratch::Pooled, Scratch::Exact, HOST][pooled];
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
