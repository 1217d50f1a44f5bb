use super::*;

const GROUPS: [CurveGroup; 2] = [CurveGroup::G1, CurveGroup::G2];
const SIZES: [u64; 9] = [1, 2, 3, 31, 1000, 1 << 12, (1 << 20) - 1, 1 << 20, 1 << 24];

fn each_plan(mut check: impl FnMut(&MsmPlan)) {
    for group in GROUPS {
        for terms in SIZES {
            for points in [Points::Resident, Points::Streamed] {
                MsmPlan::all(group, terms, points, Shape::HOPPER).for_each(|plan| check(&plan));
            }
        }
    }
}

/// Each region and its bytes, of the passes and of the reduction.
fn regions(plan: &MsmPlan) -> [Vec<(u64, u64)>; 2] {
    let Regions { canonical, ends, sums, entries, carries, carry_keys, reduce_sums, reduce_weighted, result } =
        plan.regions;
    let bucket = bucket_bytes(plan.group);
    let each = 1 << (plan.choice.window_bits - 1);
    let pass = u64::from(plan.choice.windows_per_pass);
    let slots = 2 * u64::from(plan.slices);
    let passes = vec![
        (canonical, plan.choice.chunk * SCALAR_BYTES),
        (ends, pass * each * 4),
        (sums, (pass * each).div_ceil(4096) * 4),
        (entries, pass * plan.choice.chunk * 4),
        (carries[0], slots * bucket),
        (carries[1], 2 * (slots / 8 + 1) * bucket),
        (carry_keys[0], slots * 4),
        (carry_keys[1], 2 * (slots / 8 + 1) * 4),
        (result, u64::from(plan.windows) * jacobian_bytes(plan.group)),
    ];
    let level = |each: u64| u64::from(plan.windows) * each.max(1) * bucket;
    let reduction = vec![
        (reduce_sums[0], level(each / 4)),
        (reduce_sums[1], level(each / 16)),
        (reduce_weighted[0], level(each / 4)),
        (reduce_weighted[1], level(each / 16)),
        (result, u64::from(plan.windows) * jacobian_bytes(plan.group)),
    ];
    [passes, reduction]
}

#[test]
fn regions_do_not_overlap_and_end_where_the_plan_says() {
    each_plan(|plan| {
        for mut regions in regions(plan) {
            regions.sort_unstable();
            for pair in regions.windows(2) {
                assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{plan:?}: {pair:?}");
            }
            for (at, _) in &regions {
                assert_eq!(at % crate::plan::ALIGNMENT, 0, "{plan:?}");
            }
            let (last, bytes) = regions[regions.len() - 1];
            assert_eq!(last, plan.regions.result, "{plan:?}");
            assert_eq!(last + bytes, plan.workspace_bytes, "{plan:?}");
        }
    });
}

/// Every level of the reduction and of the carries fits where an earlier one was.
#[test]
fn later_levels_are_no_larger() {
    each_plan(|plan| {
        let mut each = 1_u64 << (plan.choice.window_bits - 1);
        let mut room = [each.div_ceil(4).max(1), each.div_ceil(16).max(1)];
        let mut to = 0;
        while each > 1 {
            each /= each.min(4);
            assert!(each <= room[to], "{plan:?}");
            room[to] = each.max(1);
            to ^= 1;
        }
        let mut slots = 2 * u64::from(plan.slices);
        let room = [slots, next_slots(slots)];
        let mut from = 0;
        while slots / CARRY_STEP + 1 > 1 {
            slots = next_slots(slots);
            from ^= 1;
            assert!(slots <= room[from], "{plan:?}");
        }
    });
}

#[test]
fn plans_are_within_what_the_kernels_can_index() {
    each_plan(|plan| {
        let pass = u64::from(plan.choice.windows_per_pass);
        assert!(pass * plan.choice.chunk <= 1 << 31);
        assert!(pass << (plan.choice.window_bits - 1) <= 1 << 24);
        assert!(u64::from(plan.windows) * u64::from(plan.choice.window_bits) >= 255);
        assert!((1..=132 * 384).contains(&plan.slices));
    });
}

#[test]
fn more_memory_is_never_slower() {
    for group in GROUPS {
        for terms in [1 << 10, 1 << 20, 1 << 24] {
            let smallest = MsmPlan::smallest(group, terms, Points::Streamed, Shape::HOPPER).expect("there is one");
            let mut free = smallest.bytes();
            let mut before = f64::INFINITY;
            assert!(MsmPlan::fastest(group, terms, Points::Streamed, Shape::HOPPER, free - 1).is_none());
            while free < 8 << 30 {
                let plan = MsmPlan::fastest(group, terms, Points::Streamed, Shape::HOPPER, free).expect("it fits");
                assert!(plan.bytes() <= free);
                assert!(plan.seconds(Shape::HOPPER) <= before);
                before = plan.seconds(Shape::HOPPER);
                free += free / 3;
            }
        }
    }
}

#[test]
fn few_bytes_are_enough_for_many_points() {
    let plan = MsmPlan::smallest(CurveGroup::G1, 1 << 26, Points::Streamed, Shape::HOPPER).expect("there is one");
    assert!(plan.bytes() < 128 << 20, "{} bytes", plan.bytes());
    let plan = MsmPlan::smallest(CurveGroup::G2, 1 << 24, Points::Streamed, Shape::HOPPER).expect("there is one");
    assert!(plan.bytes() < 128 << 20, "{} bytes", plan.bytes());
}

#[test]
fn a_choice_that_makes_no_sense_is_refused() {
    let choice = Choice { window_bits: 16, windows_per_pass: 16, chunk: 1 << 20, points: Points::Resident };
    let plan = |terms, choice| MsmPlan::new(CurveGroup::G1, terms, choice, Shape::HOPPER);
    assert!(plan(1 << 20, choice).is_some());
    assert!(plan(0, choice).is_none());
    assert!(plan(1 << 19, choice).is_none());
    assert!(plan(1 << 20, Choice { windows_per_pass: 17, ..choice }).is_none());
    assert!(plan(1 << 20, Choice { windows_per_pass: 0, ..choice }).is_none());
    assert!(plan(1 << 20, Choice { chunk: 0, ..choice }).is_none());
    assert!(plan(1 << 20, Choice { window_bits: 21, ..choice }).is_none());
    assert!(plan(1 << 28, Choice { chunk: 1 << 28, ..choice }).is_none(), "2^32 entries");
    assert!(plan(1 << 28, Choice { chunk: 1 << 28, windows_per_pass: 8, ..choice }).is_some());
}
