//! Each policy's own fault, as its users have met it.

use super::*;

const JOB: Need = Need { peak: 16, freed_early: 12 };

fn need(peak: u64) -> Need {
    Need { peak, freed_early: 0 }
}

/// Calls one event and returns what it brought.
fn on<P: Policy>(policy: &mut P, event: impl FnOnce(&mut P, &mut Vec<Grant>)) -> Vec<Grant> {
    let mut grants = Vec::new();
    event(policy, &mut grants);
    grants
}

/// Lets every job that may start produce at once while the device takes nothing; returns how many products there are.
fn products_behind_a_stopped_device(mut policy: impl Policy, jobs: u64) -> usize {
    let mut grants = Vec::new();
    for job in 0..jobs {
        policy.request(job, JOB, 0, &mut grants);
    }
    let mut products = 0;
    while let Some(at) = grants.iter().position(|grant| matches!(grant, Grant::Start(_))) {
        let Grant::Start(job) = grants.remove(at) else { unreachable!("found above") };
        products += 1;
        policy.at(job, Point::Produced, 0, &mut grants);
    }
    products
}

#[test]
fn a_permit_that_comes_back_early_lets_products_pile_up() {
    assert_eq!(products_behind_a_stopped_device(Count::new(12, Return::Produced, 1), 1000), 1000);
    assert_eq!(products_behind_a_stopped_device(Unlimited, 1000), 1000);
}

#[test]
fn a_permit_held_longer_bounds_them() {
    assert_eq!(products_behind_a_stopped_device(Count::new(12, Return::Delivered, 1), 1000), 12);
    assert_eq!(products_behind_a_stopped_device(Count::new(12, Return::HandedOver, 12), 1000), 24);
    assert_eq!(products_behind_a_stopped_device(StrictFifo::new(200), 1000), 12);
}

#[test]
fn the_channel_lets_in_whoever_waited_first() {
    let mut policy = Count::new(3, Return::HandedOver, 1);
    for job in 0..4 {
        on(&mut policy, |policy, grants| policy.request(job, JOB, 0, grants));
    }
    assert_eq!(on(&mut policy, |p, g| p.at(0, Point::Produced, 0, g)), [Grant::HandOver(0), Grant::Start(3)]);
    assert_eq!(on(&mut policy, |p, g| p.at(1, Point::Produced, 0, g)), []);
    assert_eq!(on(&mut policy, |p, g| p.at(0, Point::Taken, 0, g)), [Grant::HandOver(1)]);
}

#[test]
fn one_large_request_stops_all_small_ones_in_strict_order() {
    let mut policy = StrictFifo::new(16);
    assert_eq!(on(&mut policy, |p, g| p.request(0, need(4), 0, g)), [Grant::Start(0)]);
    assert_eq!(on(&mut policy, |p, g| p.request(1, need(16), 0, g)), []);
    for small in 2..10 {
        assert_eq!(on(&mut policy, |p, g| p.request(small, need(1), 0, g)), [], "12 bytes are free");
    }
    assert_eq!(on(&mut policy, |p, g| p.at(0, Point::Delivered, 0, g)), [Grant::Start(1)]);
}

#[test]
fn the_largest_waits_for_as_long_as_smaller_ones_come() {
    let mut policy = Greedy::new(16);
    on(&mut policy, |p, g| p.request(0, need(8), 0, g));
    on(&mut policy, |p, g| p.request(1, need(8), 0, g));
    assert_eq!(on(&mut policy, |p, g| p.request(100, need(16), 0, g)), []);
    for small in 2..1000 {
        assert_eq!(on(&mut policy, |p, g| p.request(small, need(8), 0, g)), []);
        let done = on(&mut policy, |p, g| p.at(small - 2, Point::Delivered, 0, g));
        assert_eq!(done, [Grant::Start(small)], "the freed half goes to the small one, every time");
    }
}

#[test]
fn a_release_between_undo_and_wait_is_lost() {
    let mut policy = OptimisticBudget::new(16, 1);
    assert_eq!(on(&mut policy, |p, g| p.request(0, need(16), 0, g)), [Grant::Start(0)]);
    // It is seen at 10 that 1 does not fit; it is taken back at 11, and waited from 12 on.
    assert_eq!(on(&mut policy, |p, g| p.request(1, need(16), 10, g)), []);
    assert_eq!(on(&mut policy, |p, g| p.at(0, Point::Delivered, 11, g)), [], "everything is free, and nobody is told");
    assert_eq!(policy.due(), Some(12));
    assert_eq!(on(&mut policy, |p, g| p.wake(12, g)), []);
    assert_eq!(policy.due(), None, "it waits for a release that has been");
    // The next release wakes it, if there is one.
    assert_eq!(on(&mut policy, |p, g| p.request(2, need(1), 20, g)), [Grant::Start(2)]);
    assert_eq!(on(&mut policy, |p, g| p.at(2, Point::Delivered, 21, g)), [Grant::Start(1)]);
}

#[test]
fn bytes_that_were_only_tried_are_in_the_way_of_others() {
    let mut policy = OptimisticBudget::new(16, 1);
    on(&mut policy, |p, g| p.request(0, need(8), 0, g));
    assert_eq!(on(&mut policy, |p, g| p.request(1, need(16), 10, g)), []);
    assert_eq!(on(&mut policy, |p, g| p.request(2, need(8), 10, g)), [], "it would fit");
    on(&mut policy, |p, g| p.wake(12, g));
    assert_eq!(on(&mut policy, |p, g| p.request(3, need(8), 13, g)), [Grant::Start(3)]);
}

#[test]
fn the_big_part_comes_back_first_in_two_phases() {
    let mut policy = OptimisticBudget::new(20, 0);
    on(&mut policy, |p, g| p.request(0, JOB, 0, g));
    assert_eq!(on(&mut policy, |p, g| p.request(1, JOB, 0, g)), []);
    assert_eq!(on(&mut policy, |p, g| p.at(0, Point::Freed, 1, g)), [Grant::Start(1)]);
    assert_eq!(on(&mut policy, |p, g| p.at(0, Point::Delivered, 2, g)), []);
}

#[test]
fn work_is_thrown_away_where_growing_fails() {
    let mut policy = ReserveOrFail::new(20);
    for job in 0..4 {
        assert_eq!(on(&mut policy, |p, g| p.request(job, JOB, 0, g)), [Grant::Start(job)]);
        assert_eq!(on(&mut policy, |p, g| p.grow(job, 4, 0, g)), [Grant::Grown(job)]);
    }
    // Everybody has its small part; nobody gets its big one but by the failure of others.
    assert_eq!(on(&mut policy, |p, g| p.grow(0, 12, 1, g)), [Grant::Refused(0)]);
    assert_eq!(on(&mut policy, |p, g| p.grow(1, 12, 1, g)), [Grant::Refused(1)]);
    assert_eq!(on(&mut policy, |p, g| p.grow(2, 12, 1, g)), [Grant::Grown(2)]);
    // What is gone is room for others, once.
    policy.shrink(2, 12);
    assert_eq!(on(&mut policy, |p, g| p.at(2, Point::Freed, 2, g)), []);
    assert_eq!(on(&mut policy, |p, g| p.grow(3, 13, 2, g)), [Grant::Refused(3)]);
    assert_eq!(on(&mut policy, |p, g| p.grow(2, 16, 2, g)), [Grant::Grown(2)]);
}
