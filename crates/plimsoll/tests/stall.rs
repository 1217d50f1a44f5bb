//! What a snapshot says of holders, and how it explains that nothing moves.

use std::time::Duration;

use plimsoll::ledger::snapshot::SpaceTotals;
use plimsoll::ledger::{EnterError, Stall};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Slots, Space};

const PROVERS: Class = Class::new("provers", Space::HOST);
const STAGING: Class = Class::new("staging", Space::PINNED);
const LANES: Slots = Slots::new("lanes");

fn ledger() -> Ledger {
    let budget = Budget::new().space(Space::HOST, Bytes(100)).space(Space::PINNED, Bytes(50)).slots(LANES, 1);
    Ledger::new(budget)
}

/// Leaves `request` waiting while `f` runs.
fn waiting<F: std::future::Future>(request: F, f: impl FnOnce()) {
    let mut request = std::pin::pin!(request);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(request.as_mut().poll(&mut cx).is_pending());
    f();
}

fn job(ledger: &Ledger, name: &str, peak: Demand) -> plimsoll::Job {
    ledger.submit(JobSpec::new(name, Profile::new().stage("evaluate", peak, Demand::new()))).unwrap()
}

/// Everything but the times, which are those of a real clock.
fn without_times(text: &str) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in text.split(' ') {
        let time = word.trim_end_matches([',', ')', ';']);
        let is_time = time.strip_suffix('s').is_some_and(|number| number.parse::<f64>().is_ok());
        words.push(if is_time { "T" } else { word });
    }
    words.join(" ")
}

#[test]
fn a_stall_names_who_waits_and_who_holds() {
    let ledger = ledger();
    let key = ledger.reserve(STAGING, Bytes(20)).name("key").try_now().unwrap();
    let mut first = job(&ledger, "first", Demand::new().bytes(PROVERS, Bytes(70)).slots(LANES, 1));
    let grant = first.enter(0).try_now().unwrap();
    let mut second = job(&ledger, "second", Demand::new().bytes(PROVERS, Bytes(30)));
    waiting(second.enter(0), || {
        let outside = grant.external_wait("cuda");
        let text = ledger.stall(Duration::ZERO).unwrap().to_string();
        // Pinned bytes are host memory as well, so the key is in the way too.
        let (place, key_place) = (place_of(&ledger, "first"), place_of(&ledger, "key"));
        assert_eq!(
            without_times(&text),
            format!(
                "\"second\" (stage evaluate, for T needs 30 B of provers: short of 20 B of host memory; held by \
                 \"first\" (70 B, stage evaluate, for T waiting outside for \"cuda\" for T from {place}), \
                 \"key\" (20 B, for T from {key_place})"
            )
        );
        drop(outside);
        assert!(!ledger.stall(Duration::ZERO).unwrap().to_string().contains("outside"));
    });
    assert_eq!(ledger.stall(Duration::ZERO), None);
    drop((grant, key));
}

fn place_of(ledger: &Ledger, who: &str) -> String {
    let snapshot = ledger.snapshot();
    let holding = snapshot.holders.iter().find(|holding| &*holding.who == who).unwrap();
    holding.reserved_at.unwrap().to_string()
}

#[test]
fn slots_can_be_what_is_short() {
    let ledger = ledger();
    let mut first = job(&ledger, "first", Demand::new().slots(LANES, 1));
    let grant = first.enter(0).try_now().unwrap();
    let mut second = job(&ledger, "second", Demand::new().slots(LANES, 1));
    waiting(second.enter(0), || {
        let text = ledger.stall(Duration::ZERO).unwrap().to_string();
        assert!(text.contains("needs 1 of lanes: short of 1 lanes; held by \"first\" (1, stage evaluate"), "{text}");
    });
    drop(grant);
}

#[test]
fn only_what_has_waited_for_the_threshold_is_a_stall() {
    let ledger = ledger();
    let held = ledger.reserve(PROVERS, Bytes(100)).try_now().unwrap();
    waiting(ledger.reserve(PROVERS, Bytes(1)).name("one"), || {
        waiting(ledger.reserve(PROVERS, Bytes(2)).name("two"), || {
            let mut snapshot = ledger.snapshot();
            // In virtual time: one has waited for 30 s, two for 5 s, and the last grant is 10 s ago.
            snapshot.time = 100_000_000_000;
            snapshot.granted_at = 90_000_000_000;
            for waiter in &mut snapshot.waiters {
                waiter.since = if &*waiter.shortage.who == "one" { 70_000_000_000 } else { 95_000_000_000 };
            }
            assert_eq!(Stall::seen_in(&snapshot, Duration::from_secs(31)), None);
            let stall = Stall::seen_in(&snapshot, Duration::from_secs(30)).unwrap();
            assert_eq!((stall.waiters.len(), &*stall.waiters[0].shortage.who), (1, "one"));
            assert_eq!(stall.idle, Duration::from_secs(10));
            assert!(stall.to_string().starts_with("\"one\" (for 30.0s) needs 1 B of provers: short of 1 B of"));
            let both = Stall::seen_in(&snapshot, Duration::from_secs(5)).unwrap();
            assert_eq!(&*both.waiters[1].shortage.who, "two");
            assert_eq!(both.to_string().lines().count(), 2);
        });
    });
    drop(held);
}

#[test]
fn holders_are_listed_oldest_first_with_the_place_that_reserved() {
    let ledger = ledger();
    let (one, line) = (ledger.reserve(PROVERS, Bytes(1)).name("one").try_now().unwrap(), line!());
    let two = ledger.reserve(STAGING, Bytes(2)).name("two").try_now().unwrap();
    let holders = ledger.snapshot().holders;
    assert_eq!(holders.iter().map(|holding| &*holding.who).collect::<Vec<_>>(), ["one", "two"]);
    assert_eq!(holders[0].held, [(PROVERS.into(), 1)]);
    assert!(holders[0].since <= holders[1].since);
    let place = holders[0].reserved_at.unwrap();
    assert!(place.file().ends_with("tests/stall.rs"));
    assert_eq!(place.line(), line);
    drop(one);
    // The next reservation may be given the number of the one that has gone, and nothing else of it.
    let three = ledger.reserve(PROVERS, Bytes(3)).name("three").try_now().unwrap();
    let holders = ledger.snapshot().holders;
    assert_eq!(holders.iter().map(|holding| &*holding.who).collect::<Vec<_>>(), ["two", "three"]);
    assert_ne!(holders[1].reserved_at.unwrap().line(), line);
    drop((two, three));
    assert_eq!(ledger.snapshot().holders, []);
}

/// What is pinned counts in host memory too; what has come and gone is remembered.
#[test]
fn a_space_has_the_books_of_all_its_classes() {
    const PINNED: Class = Class::new("pinned", Space::PINNED);
    const OTHER: Class = Class::new("other", Space::HOST);
    let ledger = Ledger::unlimited();
    let (one, two) =
        (ledger.reserve(OTHER, Bytes(5)).wait().unwrap(), ledger.reserve(PINNED, Bytes(3)).wait().unwrap());
    drop(ledger.reserve(OTHER, Bytes(2)).wait().unwrap());
    let snapshot = ledger.snapshot();
    let (host, pinned) = (snapshot.space_totals(Space::HOST), snapshot.space_totals(Space::PINNED));
    assert_eq!((host.held, host.count, host.bytes_in, host.bytes_out), (8, 2, 10, 2));
    assert_eq!((pinned.held, pinned.count, pinned.bytes_in, pinned.bytes_out), (3, 1, 3, 0));
    assert_eq!(snapshot.space_totals(Space::device(0)), SpaceTotals::default());
    drop((one, two));
}

/// A request that waited is held since it was granted, not since it was made.
#[test]
fn a_holding_dates_from_its_grant() {
    let ledger = ledger();
    let held = ledger.reserve(PROVERS, Bytes(100)).try_now().unwrap();
    let mut request = std::pin::pin!(ledger.reserve(PROVERS, Bytes(1)).name("later"));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(request.as_mut().poll(&mut cx).is_pending());
    let before = ledger.snapshot();
    drop(held);
    let std::task::Poll::Ready(Ok(later)) = request.as_mut().poll(&mut cx) else { panic!("it was granted") };
    let after = ledger.snapshot();
    assert!(after.holders[0].since >= before.time && after.granted_at == after.holders[0].since);
    drop(later);
}

#[test]
fn growth_beyond_what_was_declared_is_counted() {
    let ledger = ledger();
    let mut within = ledger.reserve(PROVERS, Bytes(10)).max(Bytes(20)).try_now().unwrap();
    within.try_grow(Bytes(10)).unwrap();
    assert_eq!(ledger.snapshot().overdrawn, 0);
    within.try_grow(Bytes(1)).unwrap();
    assert_eq!(ledger.snapshot().overdrawn, 1);
    let mut job = job(&ledger, "job", Demand::new().bytes(PROVERS, Bytes(10)));
    let mut grant = job.enter(0).try_now().unwrap();
    let mut taken = grant.take_all(PROVERS);
    taken.try_grow(Bytes(5)).unwrap();
    assert_eq!(ledger.snapshot().overdrawn, 2);
    assert!(taken.try_grow(Bytes(500)).is_err());
    assert_eq!(ledger.snapshot().overdrawn, 2);
}

/// What a job that waits at the head is told, by `try_` and in a stall.
fn told(ledger: &Ledger, job: &mut plimsoll::Job) -> (String, String) {
    let refused = match job.enter(0).try_now().unwrap_err() {
        EnterError::WouldWait(shortage) => shortage.to_string(),
        other => panic!("{other}"),
    };
    let mut stall = None;
    waiting(job.enter(0), || stall = ledger.stall(Duration::ZERO));
    (refused, without_times(&stall.unwrap().to_string()))
}

#[test]
fn who_could_then_not_finish_is_named_with_who_holds_what_it_needs() {
    let ledger = ledger();
    let bytes = |bytes| Demand::new().bytes(PROVERS, Bytes(bytes));
    let grows =
        |first, all| Profile::new().stage("load", bytes(first), bytes(first)).stage("prove", bytes(all), bytes(0));
    let key = ledger.reserve(PROVERS, Bytes(10)).name("key").retained().try_now().unwrap();
    let mut first = ledger.submit(JobSpec::new("first", grows(40, 90))).unwrap();
    let grant = first.enter(0).try_now().unwrap();
    let mut second = ledger.submit(JobSpec::new("second", grows(20, 60))).unwrap();
    let (refused, stall) = told(&ledger, &mut second);
    assert_eq!(
        refused,
        "\"second\" fits, but \"first\" may then still need 50 B of host memory, and 30 B would be left for it to finish; \
         held by \"second\" (20 B), \"key\" (10 B)"
    );
    let place = place_of(&ledger, "key");
    assert_eq!(
        stall,
        format!(
            "\"second\" (stage load, for T needs 20 B of provers: there is room, but \"first\" may then still need 50 B of host \
             memory, and 30 B would be left for it to finish; held by \"key\" (10 B, for T from {place})"
        )
    );
    // A reservation that asks for growth, and one that holds nothing yet, are told the same.
    let mut key = key;
    let growth = key.try_grow(Bytes(45)).unwrap_err().to_string();
    assert!(growth.contains("\"first\" may then still need 50 B of host memory, and 5 B would be left"), "{growth}");
    let plain = ledger.reserve(PROVERS, Bytes(5)).name("plain").retained().try_now().unwrap_err().to_string();
    assert!(plain.contains("\"first\" may then still need 50 B of host memory, and 45 B would be left"), "{plain}");
    drop((grant, key));
}

#[test]
fn who_must_not_be_passed_is_named() {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(100)).bypass(0));
    let held = ledger.reserve(PROVERS, Bytes(60)).try_now().unwrap();
    let mut small = job(&ledger, "small", Demand::new().bytes(PROVERS, Bytes(10)));
    waiting(ledger.reserve(PROVERS, Bytes(50)).name("large"), || {
        // The short way, and the long one.
        let plain = ledger.reserve(PROVERS, Bytes(10)).try_now().unwrap_err().to_string();
        assert!(plain.contains("fits, but would pass \"large\", which was passed as often"), "{plain}");
        let named = ledger.reserve(PROVERS, Bytes(10)).name("named").try_now().unwrap_err().to_string();
        assert!(named.contains("\"named\" fits, but would pass \"large\""), "{named}");
        let (refused, stall) = told(&ledger, &mut small);
        assert!(refused.contains("fits, but would pass \"large\""), "{refused}");
        assert!(
            stall.lines().any(|line| line.contains("may not pass \"large\", which has waited for longer")),
            "{stall}"
        );
    });
    drop(held);
}

#[test]
fn who_runs_alone_is_named_and_a_limit_that_comes_down_is_the_one_that_is_short() {
    let ledger = ledger();
    let bytes = |bytes| Demand::new().bytes(PROVERS, Bytes(bytes));
    let large = JobSpec::new("large", Profile::new().stage("s", bytes(150), Demand::new())).alone_if_oversize();
    let mut large = ledger.submit(large).unwrap();
    let mut other = job(&ledger, "other", bytes(10));
    let others = other.enter(0).try_now().unwrap();
    let (refused, stall) = told(&ledger, &mut large);
    assert_eq!(refused, "\"large\" is larger than a limit, and runs alone when these have ended: \"other\"");
    assert!(stall.ends_with("runs alone when these have ended: \"other\""), "{stall}");
    drop((others, other));
    let grant = large.enter(0).try_now().unwrap();
    let mut beside = job(&ledger, "beside", Demand::new().slots(LANES, 1));
    let (refused, stall) = told(&ledger, &mut beside);
    assert_eq!(refused, "\"beside\" is not admitted beside \"large\", which runs alone");
    assert!(stall.ends_with("it waits for \"large\", which runs alone"), "{stall}");
    drop((grant, large));

    let held = job(&ledger, "held", bytes(80));
    let mut held = held;
    let grant = held.enter(0).try_now().unwrap();
    ledger.resize(Space::HOST, Bytes(70)).unwrap();
    let mut after = job(&ledger, "after", bytes(10));
    let (refused, stall) = told(&ledger, &mut after);
    assert_eq!(refused, "\"after\" needs 10 B of host memory, but of 70 B only 0 B are free; held by \"held\" (80 B)");
    assert!(stall.contains("short of 10 B of host memory; held by \"held\" (80 B"), "{stall}");
    drop(grant);
}
