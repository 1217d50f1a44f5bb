//! What goes wrong is found, by a shortest way, and can be read.

use plimsoll::{Budget, Bytes, Class, Demand, Profile, Slots, Space};
use plimsoll_check::{At, CheckError, Event, JobKind, ReservationKind, Rule, Violation, World};

#[path = "../examples/early_release.rs"]
#[expect(dead_code, reason = "the example's own main is not called here")]
mod early_release;

const A: Class = Class::new("a", Space::HOST);
const LANE: Slots = Slots::new("lane");

fn bytes(a: u64) -> Demand {
    Demand::new().bytes(A, Bytes(a))
}

fn world(limit: u64) -> World {
    World::new(Budget::new().space(Space::HOST, Bytes(limit)).slots(LANE, 1))
}

#[track_caller]
fn violation(world: World) -> Violation {
    match world.explore() {
        Err(CheckError::Violation(violation)) => *violation,
        other => panic!("a violation was expected: {other:?}"),
    }
}

#[test]
fn a_permit_released_too_early_lets_bytes_pile_up() {
    let error = early_release::permit_released_at_the_end_of_synthesis().unwrap_err();
    let violation = error.violation().unwrap();
    assert_eq!(violation.rule, Rule::Line);
    assert_eq!(violation.why, "48.00 GiB of host memory are really held, the limit is 32.00 GiB");
    // Two are made, one of them is on the GPU, and a third is begun: there is no shorter way.
    assert_eq!(violation.trace.steps().len(), 5);
    let text = error.to_string();
    assert!(text.contains("partition 3 is granted synthesise"), "{text}");
    assert!(text.contains("really 48.00 GiB"), "{text}");
    let report = early_release::bytes_kept_until_they_are_gone().unwrap();
    assert!(report.states >= 20, "{report}");
}

#[test]
fn the_diagram_names_everybody_once() {
    let error = early_release::permit_released_at_the_end_of_synthesis().unwrap_err();
    let diagram = error.violation().unwrap().trace.mermaid();
    assert!(diagram.starts_with("sequenceDiagram\n    participant ledger\n    participant a0 as partition 1\n"));
    assert_eq!(diagram.matches("participant").count(), 4, "{diagram}");
    assert!(diagram.contains("a0->>ledger: arrives, asks for synthesise\n"), "{diagram}");
    assert!(diagram.contains("ledger-->>a2: granted synthesise\n"), "{diagram}");
}

#[test]
fn an_invariant_of_ones_own_is_checked_in_every_state() {
    let profile = Profile::new().stage("make", bytes(1), bytes(1)).stage("use", bytes(1).slots(LANE, 1), bytes(0));
    let found = violation(world(4).jobs(3, JobKind::new("job", profile)).invariant("one at a time", |view| {
        let made = view.count("job", |at| matches!(at, At::Waiting(1)));
        if made < 2 { Ok(()) } else { Err(format!("{made} are made, and {} B are held", view.held(A))) }
    }));
    assert_eq!(found.rule, Rule::Invariant("one at a time".into()));
    assert_eq!(found.why, "2 are made, and 3 B are held");
    let events: Vec<Event> = found.trace.steps().iter().map(|step| step.event).collect();
    // Three must have arrived; who of them is on the lane does not matter.
    assert_eq!(events.iter().filter(|event| matches!(event, Event::Arrive(_))).count(), 3);
    assert_eq!(events.len(), 6);
}

#[test]
fn parts_that_hold_their_results_for_a_parent_need_a_parent_that_claims_for_them() {
    // Each part leaves 1 of 3 behind until the last one has ended, and needs 2: the third never gets them. The ledger
    // cannot know, since each part is a job of its own. The parent must be the job.
    let part = Profile::new().stage("make", bytes(2), bytes(1));
    let found = violation(world(3).jobs(3, JobKind::new("part", part).holds_results_together()));
    assert_eq!(found.rule, Rule::Progress);
    assert!(found.why.starts_with("part 3 waits"), "{}", found.why);

    let parent = Profile::new().stage("first part", bytes(2), bytes(1)).stage("second part", bytes(3), bytes(2)).stage(
        "third part",
        bytes(4),
        bytes(3),
    );
    let refused = world(3).jobs(1, JobKind::new("parent", parent.clone())).explore().unwrap();
    assert_eq!(refused.states, 2, "a parent that needs 4 of 3 is refused at once");
    let room = world(4).jobs(2, JobKind::new("parent", parent).holds_results_together()).explore();
    assert_eq!(room.unwrap_err().violation().unwrap().rule, Rule::Progress, "two parents in one room");
}

#[test]
fn a_world_that_makes_no_sense_is_refused_with_advice() {
    let profile = || Profile::new().stage("only", bytes(1), bytes(0));
    #[track_caller]
    fn check(world: World, text: &str) {
        let error = world.explore().unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }
    check(world(1).jobs(1, JobKind::new("job", profile()).child("nobody")), "add it with World::child");
    check(world(1).jobs(1, JobKind::new("job", Profile::new())), "no stages");
    let elsewhere =
        Profile::new().stage("only", Demand::new().bytes(Class::new("b", Space::device(0)), Bytes(1)), bytes(0));
    check(world(1).jobs(1, JobKind::new("job", elsewhere)), "the budget names no limit for b");
    let falls = ReservationKind::new("reservation", A, Bytes(2)).grows_to(Bytes(1));
    check(world(2).reservations(1, falls), "grows from level to level");
    let other = Profile::new().stage("only", bytes(1), bytes(0)).stage("more", bytes(1), bytes(0));
    check(world(1).jobs(1, JobKind::new("job", profile()).really(other)), "for each stage");
    check(world(9).jobs(4, JobKind::new("job", profile())).states_max(3), "more than 3 states");
}
