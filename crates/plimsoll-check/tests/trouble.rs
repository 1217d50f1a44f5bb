//! Every reachable state of worlds in which things go wrong, or go: residencies that are loaded, given up, evicted and taken
//! over; devices that are lost; stages and jobs that begin again; jobs that run alone; buffers that are freed later.
//! A floor under the number of states, and under the kinds of events that happen, keeps the search from shrinking.

use std::time::Duration;

use plimsoll::{Budget, Bytes, Class, Demand, Profile, Slots, Space};
use plimsoll_check::{JobKind, ReservationKind, ResidencyKind, World};

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::device(0));
const C: Class = Class::new("c", Space::device(1));
const KEY: Class = Class::new("key", Space::HOST);
const TABLE: Class = Class::new("table", Space::device(0));
const LANE: Slots = Slots::new("lane");
const GPU: Slots = Slots::lane(0);

fn host(a: u64) -> Demand {
    Demand::new().bytes(A, Bytes(a))
}

fn both(a: u64, b: u64) -> Demand {
    host(a).bytes(B, Bytes(b))
}

fn budget(a: u64, b: u64) -> Budget {
    Budget::new().space(Space::HOST, Bytes(a)).space(Space::device(0), Bytes(b)).slots(LANE, 1).bypass(1)
}

fn profile<const N: usize>(stages: [(Demand, Demand); N]) -> Profile {
    const NAMES: [&str; 3] = ["first", "second", "third"];
    stages.into_iter().zip(NAMES).fold(Profile::new(), |profile, ((peak, keep), name)| profile.stage(name, peak, keep))
}

/// One stage on the host.
fn one(a: u64) -> Profile {
    profile([(host(a), host(0))])
}

/// Made on the host, computed on the device.
fn partition() -> Profile {
    profile([(host(1), host(1)), (both(2, 1).slots(LANE, 1), host(0))])
}

fn key(name: &str, bytes: u64) -> ResidencyKind {
    ResidencyKind::new(name, KEY, Bytes(bytes))
}

#[track_caller]
fn holds(name: &str, floor: usize, happens: &[&str], world: World) {
    match world.explore() {
        Ok(report) => {
            println!("{name}: {report}");
            assert!(report.states >= floor, "{name}: {} states, of {floor} at least", report.states);
            for event in happens {
                assert!(report.events.contains_key(event), "{name}: {event} never happens: {:?}", report.events);
            }
        }
        Err(error) => panic!("{name}: {error}"),
    }
}

#[test]
fn residencies_that_do_not_all_fit() {
    const LOADS: [&str; 3] = ["take load", "loaded", "gone"];
    for bypass in [0, 1] {
        let world = World::new(budget(5, 1).bypass(bypass))
            .residency(key("small", 2))
            .residency(key("large", 3))
            .jobs(2, JobKind::new("small", partition()).needs("small"))
            .jobs(1, JobKind::new("large", one(2)).needs("large"))
            .jobs(1, JobKind::new("plain", one(4)));
        holds(&format!("share and evict, K={bypass}"), 365, &LOADS, world);
    }
    let world = World::new(budget(5, 2))
        .residency(key("key", 2))
        .residency(ResidencyKind::new("table", TABLE, Bytes(1)))
        .jobs(2, JobKind::new("job", partition()).needs("key").needs("table").cancels())
        .jobs(1, JobKind::new("device", profile([(both(0, 2), host(0))])).priority(1));
    holds("on the host and on the device", 557, &LOADS, world);
    let dear = key("dear", 2).rebuild(Duration::from_secs(1));
    let world = World::new(budget(6, 1))
        .residency(dear)
        .residency(key("cheap", 2))
        .jobs(1, JobKind::new("one", one(1)).needs("dear"))
        .jobs(1, JobKind::new("other", one(1)).needs("cheap"))
        .jobs(1, JobKind::new("third", one(4)).withdraws(1));
    holds("dear and cheap", 400, &LOADS, world);
}

/// Two jobs, each of which has room for its key or for its work, but not both beside the other: whoever is admitted to the
/// load must be able to finish.
#[test]
fn a_load_is_an_admission_and_must_be_safe() {
    let world = World::new(budget(5, 1))
        .residency(key("one", 2))
        .residency(key("other", 2))
        .jobs(1, JobKind::new("one", one(3)).needs("one"))
        .jobs(1, JobKind::new("other", one(3)).needs("other"));
    holds("two keys, and room for one of them", 25, &["take load", "gone"], world);
}

#[test]
fn loads_that_go_wrong() {
    let world = World::new(budget(5, 1))
        .residency(key("key", 3).gives_up(2))
        .jobs(3, JobKind::new("job", one(2)).needs("key").cancels());
    holds("given up, and the loader cancelled", 268, &["give up load", "cancel", "gone"], world);
    let world = World::new(budget(5, 1))
        .residency(key("key", 3).fails(1).gives_up(1))
        .jobs(2, JobKind::new("job", one(2)).needs("key"))
        .jobs(1, JobKind::new("plain", one(4)).withdraws(1));
    holds("failed for all who wait", 374, &["fail load", "withdraw"], world);
    let world = World::new(budget(5, 1))
        .residency(key("key", 3).returns(Bytes(1)).gives_up(1))
        .jobs(2, JobKind::new("job", one(1)).needs("key").cancels())
        .jobs(2, JobKind::new("plain", one(3)));
    holds("loads that need less than was declared", 1394, &["return from load", "give up load"], world);
}

#[test]
fn residencies_while_limits_change_and_the_ledger_closes() {
    let world = World::new(budget(6, 1))
        .residency(key("key", 2))
        .jobs(2, JobKind::new("job", partition()).needs("key").fails())
        .jobs(1, JobKind::new("plain", one(3)))
        .resize(Space::HOST, Bytes(4))
        .resize(Space::HOST, Bytes(5))
        .closes();
    holds("residencies, resized and closed", 596, &["resize", "close", "gone"], world);
    let world = World::new(budget(6, 1).urgent_reserve(Space::HOST, Bytes(2)))
        .child("tenant", Budget::new().space(Space::HOST, Bytes(3)))
        .residency(key("key", 2))
        .jobs(1, JobKind::new("tenant's", one(2)).child("tenant").needs("key"))
        .jobs(1, JobKind::new("tenant's large", one(3)).child("tenant").cancels())
        .jobs(1, JobKind::new("urgent", one(2)).urgent().needs("key"))
        .jobs(1, JobKind::new("plain", one(4)));
    holds("residencies, a child and a reserve", 528, &["gone"], world);
    let world = World::new(budget(5, 1))
        .residency(key("key", 2))
        .jobs(2, JobKind::new("job", one(2)).needs("key"))
        .reservations(1, ReservationKind::new("cache", A, Bytes(1)).grows_to(Bytes(3)).cancels())
        .reservations(1, ReservationKind::new("stays", A, Bytes(1)).retained());
    holds("residencies beside reservations", 361, &["gone", "grow"], world);
}

#[test]
fn parts_that_share_what_their_parent_needs() {
    let part = one(2);
    let parent = Profile::new().stage("split", host(1), host(1)).parts(2, &part).stage("join", host(2), host(0));
    let world = World::new(budget(6, 1))
        .residency(key("key", 2).gives_up(1))
        .jobs(2, JobKind::new("parent", parent.clone()).needs("key").cancels())
        .jobs(1, JobKind::new("part", part.clone()).part_of("parent").needs("key").withdraws(1));
    let withdraws = World::new(budget(6, 1))
        .residency(key("key", 2))
        .jobs(1, JobKind::new("parent", parent).needs("key").withdraws(1))
        .jobs(1, JobKind::new("part", part).part_of("parent").needs("key"))
        .jobs(1, JobKind::new("plain", one(3)).needs("key"));
    holds("a parent that takes its request back", 236, &["take load", "withdraw"], withdraws);
    holds("parts with residencies", 3533, &["take load", "gone", "withdraw"], world);
}

#[test]
fn a_device_is_lost() {
    let world = World::new(budget(5, 1).slots(GPU, 1))
        .jobs(2, JobKind::new("partition", partition()).retries_stages(1))
        .jobs(1, JobKind::new("lane", profile([(both(1, 1).slots(GPU, 1), both(1, 1)), (both(2, 1), host(0))])))
        .jobs(1, JobKind::new("plain", one(3)))
        .reservations(1, ReservationKind::new("scratch", B, Bytes(1)).cancels())
        .loses(Space::device(0));
    holds("lost, with jobs and reservations", 7540, &["lose", "retry stage"], world);
    let leaves = profile([(both(1, 1), both(1, 1)), (both(2, 2), both(1, 1))]);
    let world = World::new(budget(5, 3))
        .jobs(2, JobKind::new("leaves", leaves).restarts(1))
        .jobs(1, JobKind::new("partition", partition()).restarts_with_its_input(1))
        .loses(Space::device(0))
        .resize(Space::HOST, Bytes(4));
    holds("lost, with results on it", 3158, &["lose", "restart", "drop results", "resize"], world);
}

#[test]
fn a_device_is_lost_with_residencies() {
    let world = World::new(budget(5, 3))
        .residency(key("key", 2))
        .residency(ResidencyKind::new("table", TABLE, Bytes(2)).gives_up(1).returns(Bytes(1)))
        .jobs(2, JobKind::new("job", partition()).needs("key").needs("table"))
        .jobs(1, JobKind::new("device", profile([(both(1, 2), host(0))])))
        .loses(Space::device(0));
    holds("lost, with residencies", 1417, &["lose", "take load", "loaded", "give up load", "gone"], world);
    let slow = profile([(host(1), host(1)), (host(3), host(0))]);
    let world = World::new(budget(4, 2))
        .residency(ResidencyKind::new("table", TABLE, Bytes(1)))
        .jobs(2, JobKind::new("job", partition()).or(slow).needs("table").cancels().retries_stages(1))
        .jobs(1, JobKind::new("plain", one(2)))
        .loses(Space::device(0));
    holds("lost, with the residency of jobs that are given up", 1409, &["lose", "retry stage", "cancel"], world);
}

#[test]
fn a_device_is_lost_with_parts() {
    let part = profile([(both(1, 1), host(1))]);
    let parent = || Profile::new().stage("split", host(1), host(1)).parts(2, &part).stage("join", host(3), host(0));
    let world = World::new(budget(6, 2))
        .jobs(2, JobKind::new("parent", parent()).cancels())
        .jobs(2, JobKind::new("part", part.clone()).part_of("parent").fails())
        .loses(Space::device(0));
    holds("lost, with parts", 1146, &["lose", "fail", "cancel"], world);
}

/// Where the device that a part was to be computed on is lost, it goes by another plan for which its parent has room.
#[test]
fn a_part_whose_device_is_lost_goes_by_another_plan() {
    let here = profile([(both(1, 1), host(1))]);
    let there = profile([(host(1).bytes(C, Bytes(1)), host(1))]);
    let slow = one(2);
    let parent =
        |part: &Profile| Profile::new().stage("split", host(1), host(1)).parts(2, part).stage("join", host(3), host(0));
    let two = || budget(6, 1).space(Space::device(1), Bytes(1));
    let room_for_both = parent(&profile([(both(2, 1).bytes(C, Bytes(1)), host(1))]));
    let world = World::new(two())
        .jobs(1, JobKind::new("parent", room_for_both.clone()).cancels())
        .jobs(2, JobKind::new("part", here.clone()).or(there.clone()).part_of("parent").withdraws(1))
        .jobs(1, JobKind::new("plain", profile([(both(2, 1), host(0))])))
        .loses(Space::device(0));
    holds("another device", 627, &["lose", "withdraw"], world);
    let world = World::new(two())
        .jobs(2, JobKind::new("parent", parent(&here)).cancels())
        .jobs(1, JobKind::new("part", here.clone()).or(slow.clone()).part_of("parent").withdraws(1))
        .loses(Space::device(0));
    holds("another way that needs more than there is room for", 885, &["lose", "withdraw"], world);
    let world = World::new(two())
        .jobs(1, JobKind::new("parent", room_for_both).cancels())
        .jobs(2, JobKind::new("part", here.clone()).or(there.clone()).or(slow).part_of("parent").retries_stages(1))
        .loses(Space::device(0))
        .loses(Space::device(1));
    holds("both devices", 503, &["lose", "retry stage"], world);
    let goes_on = Profile::new().stage("begin", host(1), host(1)).stage("split", host(1), host(1)).parts(1, &here);
    let goes_on = goes_on.stage("join", host(2), host(0));
    let world = World::new(two())
        .jobs(1, JobKind::new("parent", goes_on).cancels())
        .jobs(1, JobKind::new("part", here).or(there).part_of("parent").withdraws(1))
        .jobs(1, JobKind::new("plain", profile([(both(1, 1), host(0))])))
        .loses(Space::device(0));
    holds("another device, and its parent goes on meanwhile", 258, &["lose", "withdraw"], world);
}

/// A job in flight that comes to a stage which needs a lost device goes by another plan, if that is safe.
#[test]
fn a_job_whose_device_is_lost_goes_by_another_plan() {
    let here = profile([(host(1), host(1)), (both(2, 1), host(0))]);
    let slow = profile([(host(1), host(1)), (host(3), host(0))]);
    for bypass in [0, 1] {
        let world = World::new(budget(4, 1).bypass(bypass))
            .jobs(2, JobKind::new("job", here.clone()).or(slow.clone()).cancels().withdraws(1))
            .jobs(1, JobKind::new("plain", one(2)))
            .loses(Space::device(0));
        holds(&format!("another plan, K={bypass}"), 972, &["lose", "withdraw"], world);
    }
}

/// It changes its plan without a grant, and goes on with the lanes that the old one had let it keep.
#[test]
fn a_job_whose_device_is_lost_keeps_the_lanes_that_it_has() {
    let lane = |demand: Demand| demand.slots(LANE, 1);
    let here = profile([(host(1), host(1)), (lane(both(1, 1)), host(0))]);
    let slow = profile([(lane(host(1)), lane(host(1))), (lane(host(3)), host(0))]);
    let world = World::new(budget(4, 1))
        .jobs(2, JobKind::new("job", here).or(slow).withdraws(1).retries_stages(1))
        .jobs(1, JobKind::new("plain", one(2)).cancels())
        .loses(Space::device(0));
    holds("lanes of another plan", 1000, &["lose", "withdraw", "retry stage"], world);
}

#[test]
fn stages_are_run_again_and_jobs_begin_again() {
    for bypass in [0, 1] {
        let world = World::new(budget(5, 1).bypass(bypass))
            .jobs(2, JobKind::new("again", partition()).retries_stages(1))
            .jobs(1, JobKind::new("from the start", partition()).restarts(1).pauses())
            .jobs(1, JobKind::new("plain", one(3)).cancels());
        holds(&format!("again, K={bypass}"), 5617, &["retry stage", "restart"], world);
        let long = profile([(host(2), host(1)), (host(2), host(2)), (host(4), host(1))]);
        let world = World::new(budget(6, 1).bypass(bypass))
            .jobs(1, JobKind::new("keeps", long).restarts_with_its_input(1).retries_stages(1))
            .jobs(1, JobKind::new("from the start", partition()).restarts(2).retries_stages(1))
            .jobs(1, JobKind::new("plain", one(3)));
        holds(&format!("again with the input, K={bypass}"), 2616, &["retry stage", "restart"], world);
    }
    let part = one(2);
    let parent = Profile::new().stage("split", host(1), host(1)).parts(2, &part).stage("join", host(3), host(0));
    let world = World::new(budget(6, 1))
        .residency(key("key", 1))
        .jobs(2, JobKind::new("parent", parent).needs("key").restarts(1).retries_stages(1))
        .jobs(1, JobKind::new("part", part).part_of("parent").retries_stages(1).cancels());
    holds("again, with parts and a residency", 3788, &["retry stage", "restart", "take load"], world);
}

#[test]
fn jobs_larger_than_a_limit_run_alone() {
    let large = profile([(host(2), host(2)), (host(6).slots(LANE, 1), host(1))]);
    for bypass in [0, 1] {
        let world = World::new(budget(5, 1).bypass(bypass))
            .jobs(2, JobKind::new("large", large.clone()).alone_if_oversize().cancels().retries_stages(1))
            .jobs(2, JobKind::new("partition", partition()));
        holds(&format!("alone, K={bypass}"), 493, &["retry stage", "cancel"], world);
    }
    let world = World::new(budget(6, 1))
        .child("tenant", Budget::new().space(Space::HOST, Bytes(3)))
        .jobs(1, JobKind::new("tenant's", one(4)).child("tenant").alone_if_oversize())
        .jobs(1, JobKind::new("tenant's small", one(2)).child("tenant"))
        .jobs(2, JobKind::new("ours", one(2)))
        .jobs(1, JobKind::new("large", one(7)).alone_if_oversize().withdraws(1))
        .reservations(1, ReservationKind::new("stays", A, Bytes(1)).retained());
    holds("alone in a child", 3775, &["withdraw"], world);
    let world = World::new(budget(6, 2))
        .child("tenant", Budget::new().space(Space::HOST, Bytes(3)))
        .jobs(1, JobKind::new("tenant's", profile([(both(4, 2), host(0))])).child("tenant").alone_if_oversize())
        .jobs(2, JobKind::new("ours", profile([(both(1, 1), host(0))])));
    holds("alone in a child, and not on the device", 23, &["end stage"], world);
    let world = World::new(budget(2, 1))
        .jobs(1, JobKind::new("leaves", profile([(host(1), host(1))])))
        .jobs(1, JobKind::new("large", one(4)).alone_if_oversize())
        .jobs(1, JobKind::new("waits for what is left", one(2)).priority(1).withdraws(1));
    holds("alone beside what others have left", 90, &["drop results", "withdraw"], world);
    let world = World::new(budget(5, 2))
        .jobs(2, JobKind::new("large", large).alone_if_oversize().restarts(1))
        .jobs(1, JobKind::new("partition", partition()))
        .resize(Space::HOST, Bytes(7))
        .resize(Space::HOST, Bytes(4))
        .loses(Space::device(0));
    holds("alone, or not", 1811, &["resize", "lose", "restart"], world);
}

/// By its first profile a part leaves something for which there is no room any more; by the other one it leaves nothing.
#[test]
fn a_part_loads_what_it_needs_by_the_plan_that_was_safe() {
    let (part, other) = (profile([(host(1), host(1))]), profile([(host(0), host(0))]));
    let parent = Profile::new().stage("split", host(1), host(3)).parts(2, &part).stage("join", host(3), host(0));
    let world = World::new(budget(8, 1))
        .residency(key("key", 2))
        .residency(key("other key", 2))
        .jobs(1, JobKind::new("parent", parent).needs("other key").pauses())
        .jobs(1, JobKind::new("rival", profile([(host(0), host(0))])).needs("key"))
        .jobs(2, JobKind::new("part", part).or(other).part_of("parent").needs("other key"))
        .resize(Space::HOST, Bytes(4));
    holds("parts that load by either plan", 300, &["resize", "take load"], world);
}

/// What counted as held when its limit was raised, and can go, is no reason for the limit to stay up.
#[test]
fn the_limit_of_a_job_that_runs_alone_comes_down_past_what_can_be_evicted() {
    let large = profile([(host(1).slots(LANE, 2), host(1)), (host(5), host(0))]);
    let world = World::new(budget(5, 1))
        .residency(key("key", 3))
        .jobs(1, JobKind::new("ours", one(1)).needs("key"))
        .jobs(2, JobKind::new("large", large).alone_if_oversize().withdraws(1));
    holds("alone beside a residency", 40, &["gone", "withdraw"], world);
}

/// Alone in its child, it shares the device with what others have loaded there.
#[test]
fn room_is_made_for_a_job_that_runs_alone_in_a_child() {
    let large = profile([(both(4, 2), host(0))]);
    let world = World::new(budget(6, 3))
        .child("tenant", Budget::new().space(Space::HOST, Bytes(3)))
        .residency(ResidencyKind::new("table", TABLE, Bytes(2)))
        .jobs(2, JobKind::new("ours", one(1)).needs("table").fails())
        .jobs(1, JobKind::new("tenant's", large).child("tenant").alone_if_oversize().withdraws(1));
    holds("room for who is alone", 107, &["fail", "gone", "withdraw"], world);
}

#[test]
fn buffers_are_freed_later() {
    let leaves = profile([(host(2), host(2))]);
    let world = World::new(budget(5, 1))
        .residency(key("key", 1))
        .jobs(3, JobKind::new("leaves", leaves).needs("key").frees_later())
        .reservations(1, ReservationKind::new("scratch", A, Bytes(2)).grows_to(Bytes(3)).frees_later());
    holds("the reaper", 488, &["freed", "gone", "grow"], world);
}

#[test]
fn fewer_lanes_while_devices_and_residencies_come_and_go() {
    let lanes = profile([(host(1).slots(LANE, 1), host(1).slots(LANE, 1)), (both(2, 1).slots(LANE, 2), host(0))]);
    let world = World::new(budget(5, 1).slots(LANE, 3))
        .residency(key("key", 1))
        .jobs(3, JobKind::new("two lanes", lanes).needs("key").cancels())
        .resize_slots(LANE, 2)
        .resize_slots(LANE, 1)
        .loses(Space::device(0));
    holds("fewer lanes", 932, &["resize", "lose", "take load"], world);
}

/// A stage on one device or on another one, each with a key of its own there.
fn on_either(cancels: bool) -> JobKind {
    let on = |class: Class| profile([(host(1), host(1)), (host(1).bytes(class, Bytes(1)), host(0))]);
    let job = JobKind::new("job", on(B)).needing("key here").or(on(C)).needing("key there");
    if cancels { job.cancels() } else { job }
}

fn keys_on_both(world: World) -> World {
    const THERE: Class = Class::new("table", Space::device(1));
    world.residency(ResidencyKind::new("key here", TABLE, Bytes(1)).gives_up(1)).residency(ResidencyKind::new(
        "key there",
        THERE,
        Bytes(1),
    ))
}

#[test]
fn alternatives_that_need_keys_of_their_own() {
    const LOADS: [&str; 2] = ["take load", "loaded"];
    let both = |bytes: u64, bypass: u32| budget(3, bytes).space(Space::device(1), Bytes(bytes)).bypass(bypass);
    for bypass in [0, 1] {
        let world = keys_on_both(World::new(both(2, bypass))).jobs(2, on_either(bypass == 0));
        holds(&format!("a key on each device, K={bypass}"), 45, &LOADS, world);
    }
    let world = keys_on_both(World::new(both(2, 1)))
        .jobs(1, on_either(false))
        .jobs(2, JobKind::new("large", profile([(Demand::new().bytes(B, Bytes(2)), host(0))])).cancels());
    holds("the key makes room, and the other way is open", 150, &["take load", "gone"], world);
    let world = keys_on_both(World::new(both(2, 1))).jobs(2, on_either(true).restarts(1)).loses(Space::device(0));
    holds("a key is lost with its device", 1_220, &["lose", "restart", "take load"], world);
}

/// So many that one joins the load of another: with two jobs or three there are never more that go there than that have
/// gone elsewhere. Then the device is lost with both of them on their way to it, and each goes by its other plan.
#[test]
fn a_load_that_others_have_joined_is_lost_with_its_device() {
    let on = |class: Class| profile([(host(1).bytes(class, Bytes(1)), host(0))]);
    let job = JobKind::new("job", on(B)).needing("key here").or(on(C)).needing("key there");
    let budget = budget(3, 2).space(Space::device(1), Bytes(2)).bypass(1);
    let world = keys_on_both(World::new(budget)).jobs(4, job).loses(Space::device(0));
    holds("two go to one load, which is lost", 680, &["lose", "take load", "loaded"], world);
}

#[test]
fn an_alternative_may_do_without_what_another_one_needs() {
    let slow = profile([(host(2), host(1)), (host(3), host(0))]);
    let fast = profile([(host(2), host(1)), (host(1), host(0))]);
    for fits in [true, false] {
        let world = World::new(budget(if fits { 6 } else { 4 }, 1))
            .residency(key("table", 2).gives_up(1))
            .jobs(2, JobKind::new("job", fast.clone()).needing("table").or(slow.clone()).cancels().retries_stages(1))
            .jobs(1, JobKind::new("large", one(4)));
        holds(&format!("with a table or without, fits={fits}"), 860, &["take load", "gone"], world);
    }
}

#[test]
fn parts_go_by_what_their_job_has_pinned() {
    let part = profile([(host(1), host(0))]);
    let whole = || Profile::new().stage("first", host(0), host(0)).parts(1, &part);
    let world = World::new(budget(5, 1))
        .residency(key("one", 2))
        .residency(key("other", 2))
        .jobs(2, JobKind::new("whole", whole()).needing("one").or(whole()).needing("other").cancels())
        .jobs(1, JobKind::new("part", part.clone()).part_of("whole").needing("other").or(part.clone()).needing("one"));
    holds("parts and needs by alternative", 350, &["take load"], world);
}
