//! The ledger's handles: what is held, what waits, what comes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll::ledger::error::Reason;
use plimsoll::ledger::{EnterError, NotMerged, ReserveError, SubmitError};
use plimsoll::{Budget, Bytes, Charged, Class, Demand, JobSpec, Ledger, Profile, Slots, Space};

const A: Class = Class::new("a", Space::HOST);
const B: Class = Class::new("b", Space::HOST);
const THREADS: Slots = Slots::new("threads");

fn ledger(bytes: u64) -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(bytes)).slots(THREADS, 2))
}

fn bytes(class: Class, bytes: u64) -> Demand {
    Demand::new().bytes(class, Bytes(bytes))
}

fn held(ledger: &Ledger) -> u64 {
    ledger.snapshot().space(Space::HOST).unwrap().held.0
}

#[test]
fn a_job_carries_its_bytes_from_stage_to_stage() {
    let ledger = ledger(10);
    let profile = Profile::new().stage("make", bytes(A, 4).slots(THREADS, 1), bytes(A, 3)).stage(
        "use",
        bytes(A, 3).bytes(B, Bytes(5)),
        Demand::new(),
    );
    let mut job = ledger.submit(JobSpec::new("job", profile)).unwrap();
    assert_eq!(held(&ledger), 0);

    let mut grant = job.enter(0).wait().unwrap();
    assert_eq!(held(&ledger), 4);
    assert!(matches!(job.enter(1).wait(), Err(EnterError::StillInStage { .. })));
    let mut kept: Charged<Vec<u8>> = grant.vec(A, 3).unwrap();
    kept.extend_from_slice(&[1, 2, 3]).unwrap();
    assert!(grant.take(A, Bytes(2)).unwrap_err().to_string().contains("grant has 1 B left"));
    drop(grant);
    assert_eq!(held(&ledger), 3);
    assert_eq!(ledger.snapshot().slots[0].held, 0);

    let mut grant = job.enter(1).try_now().unwrap();
    assert_eq!(held(&ledger), 8);
    assert_eq!((grant.left(A), grant.left(B)), (Bytes(0), Bytes(5)));
    drop(kept);
    assert_eq!(held(&ledger), 5, "early release returns bytes at once");
    let result = grant.take_all(B);
    drop(grant);
    drop(job);
    assert_eq!(held(&ledger), 5, "a result outlives its job");
    assert_eq!(ledger.snapshot().outlived, 1, "and was not declared");
    drop(result);
    assert!(ledger.snapshot().is_empty());
    ledger.quiesce(Duration::ZERO).unwrap();
}

#[test]
fn what_never_fits_fails_at_once() {
    let ledger = ledger(10);
    let error = ledger.reserve(A, Bytes(11)).wait().unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"a\" needs 11 B of host memory but the limit is 10 B; raise it to at least 11 B, or make the job smaller"
    );
    let profile = Profile::new().stage("s", bytes(A, 1), bytes(A, 1)).stage("t", bytes(A, 12), Demand::new());
    let error = ledger.submit(JobSpec::new("big", profile)).unwrap_err();
    assert!(error.to_string().starts_with("job \"big\" needs 12 B of host memory in stage t but"), "{error}");
    let profile = Profile::new().stage("s", Demand::new().slots(Slots::new("gpus"), 1), Demand::new());
    assert!(matches!(ledger.submit(JobSpec::new("gpu", profile)), Err(SubmitError::Unbudgeted { .. })));
    let _key = ledger.reserve(A, Bytes(4)).retained().wait().unwrap();
    assert!(matches!(ledger.reserve(A, Bytes(7)).wait(), Err(ReserveError::NeverFits(_))));
}

#[test]
fn try_never_waits_and_says_who_holds_what() {
    let ledger = ledger(10);
    let held = ledger.reserve(A, Bytes(7)).name("first").wait().unwrap();
    let error = ledger.reserve(B, Bytes(4)).try_now().unwrap_err();
    assert_eq!(
        error.to_string(),
        "\"b\" needs 4 B of host memory, but of 10 B only 3 B are free; held by \"first\" (7 B); \
         wait for it with .wait() or .await, or release something first"
    );
    drop(held);
    assert!(ledger.snapshot().waiters.is_empty());
}

#[test]
fn reservations_split_merge_shrink_move_and_grow() {
    let ledger = ledger(10);
    let mut whole = ledger.reserve(A, Bytes(6)).wait().unwrap();
    let part = whole.split(Bytes(2)).unwrap();
    assert_eq!((whole.bytes(), part.bytes(), held(&ledger)), (Bytes(4), Bytes(2), 6));
    assert!(whole.split(Bytes(5)).is_err());
    let part = part.into_class(B).unwrap();
    assert_eq!(ledger.snapshot().class(B).unwrap().totals.held, 2);
    let error = whole.merge(part).unwrap_err();
    let NotMerged::OtherClass { other, .. } = error else { panic!("{error}") };
    whole.merge(other.into_class(A).unwrap()).unwrap();
    whole.shrink_to(Bytes(1)).unwrap();
    assert_eq!(held(&ledger), 1);
    whole.try_grow(Bytes(9)).unwrap();
    assert!(whole.try_grow(Bytes(1)).is_err());
    assert_eq!(ledger.snapshot().class(A).unwrap().totals.count, 1);
    drop(whole);
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_waiting_thread_is_woken_by_a_release() {
    let ledger = ledger(10);
    let first = ledger.reserve(A, Bytes(10)).wait().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| ledger.reserve(B, Bytes(10)).wait());
        while ledger.snapshot().waiters.is_empty() {
            std::thread::yield_now();
        }
        drop(first);
        assert_eq!(waiter.join().unwrap().unwrap().bytes(), Bytes(10));
    });
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn waiting_ends_with_the_time_out_and_with_close() {
    let ledger = ledger(10);
    let _held = ledger.reserve(A, Bytes(10)).wait().unwrap();
    let error = ledger.reserve(B, Bytes(1)).wait_for(Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, ReserveError::TimedOut { .. }), "{error}");
    assert!(ledger.snapshot().waiters.is_empty());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| ledger.reserve(B, Bytes(10)).wait());
        while ledger.snapshot().waiters.is_empty() {
            std::thread::yield_now();
        }
        ledger.close();
        assert!(matches!(waiter.join().unwrap(), Err(ReserveError::Closed { .. })));
    });
    assert!(matches!(ledger.reserve(B, Bytes(1)).try_now(), Err(ReserveError::Closed { .. })));
}

#[test]
fn a_future_needs_no_runtime_and_may_be_dropped() {
    use std::future::Future;
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll, Wake, Waker};

    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let woken = Arc::new(Count(AtomicUsize::new(0)));
    let waker = Waker::from(woken.clone());
    let mut cx = Context::from_waker(&waker);

    let ledger = ledger(10);
    let first = ledger.reserve(A, Bytes(8)).wait().unwrap();
    let mut second = pin!(ledger.reserve(A, Bytes(9)));
    assert!(second.as_mut().poll(&mut cx).is_pending());
    let mut job = ledger.submit(JobSpec::new("job", Profile::new().stage("s", bytes(A, 10), Demand::new()))).unwrap();
    let mut dropped = Box::pin(job.enter(0));
    assert!(dropped.as_mut().poll(&mut cx).is_pending());

    drop(first);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    let Poll::Ready(Ok(second)) = second.poll(&mut cx) else { panic!("it was granted") };
    drop(second);
    assert_eq!(woken.0.load(Ordering::Relaxed), 2);
    assert_eq!(held(&ledger), 10, "granted before its future looked");
    drop(dropped);
    assert_eq!(held(&ledger), 0, "and returned with the future");
    drop(job.enter(0).wait().unwrap());
    drop(job);
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_buffer_is_freed_before_its_bytes_come_back() {
    struct Probe<'a>(&'a Ledger, &'a AtomicU64);
    impl Drop for Probe<'_> {
        fn drop(&mut self) {
            self.1.store(held(self.0), Ordering::Relaxed);
        }
    }
    let (ledger, seen) = (ledger(100), AtomicU64::new(0));
    let paid = Bytes::of::<Probe<'_>>(1);
    let mut charged = Charged::with_capacity(ledger.reserve(A, paid).wait().unwrap(), 1).unwrap();
    charged.push(Probe(&ledger, &seen)).unwrap();
    let charged = std::sync::Arc::new(charged.into_boxed_slice());
    drop(charged.clone());
    assert_eq!(
        (seen.load(Ordering::Relaxed), held(&ledger)),
        (0, paid.0),
        "a shared buffer is charged once, until its last owner is gone"
    );
    drop(charged);
    assert_eq!(
        (seen.load(Ordering::Relaxed), held(&ledger)),
        (paid.0, 0),
        "the elements were dropped while the bytes were still charged"
    );
}

#[test]
fn a_panicking_stage_returns_everything() {
    let ledger = ledger(10);
    let profile = Profile::new().stage("s", bytes(A, 10).slots(THREADS, 2), Demand::new());
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut job = ledger.submit(JobSpec::new("job", profile.clone())).unwrap();
        let mut grant = job.enter(0).wait().unwrap();
        let _buffer: Charged<Vec<u8>> = grant.vec(A, 7).unwrap();
        panic!("the stage fails");
    }));
    assert!(result.is_err());
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn growing_a_charged_vector_pays_for_both_copies() {
    let ledger = ledger(10);
    let mut charged: Charged<Vec<u8>> = Charged::with_capacity(ledger.reserve(A, Bytes(4)).wait().unwrap(), 4).unwrap();
    charged.extend_from_slice(b"abcd").unwrap();
    let full = charged.push(b'e').unwrap_err();
    assert_eq!((full.rejected, full.capacity), (b'e', 4));
    charged.try_grow(2).unwrap();
    assert_eq!((held(&ledger), &charged[..], charged.capacity()), (6, &b"abcd"[..], 6));
    assert_eq!(ledger.snapshot().class(A).unwrap().totals.peak, 10);
    assert!(charged.try_grow(1).is_err(), "6 and 7 do not fit into 10");
    assert_eq!((held(&ledger), charged.bytes()), (6, Bytes(6)));
}

#[test]
fn pinned_bytes_count_in_host_memory_too() {
    let budget = Budget::new().space(Space::HOST, Bytes(10)).space(Space::PINNED, Bytes(6));
    let ledger = Ledger::new(budget);
    let pinned = Class::new("pinned", Space::PINNED);
    let first = ledger.reserve(pinned, Bytes(6)).wait().unwrap();
    assert!(ledger.reserve(A, Bytes(5)).try_now().is_err());
    let host = ledger.reserve(A, Bytes(4)).wait().unwrap();
    let error = host.into_class(pinned).unwrap_err();
    assert!(error.to_string().starts_with("4 B of a were not moved to pinned"), "{error}");
    drop(first);
    let moved = error.reservation.into_class(pinned).unwrap();
    assert_eq!((held(&ledger), ledger.snapshot().space(Space::PINNED).unwrap().held), (4, Bytes(4)));
    drop(moved);
}

#[test]
fn a_childs_limit_binds_the_child_and_holds_back_nobody_else() {
    let root = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)).bypass(0));
    let child = root.child("tenant", &Budget::new().space(Space::HOST, Bytes(4)));
    assert!(matches!(child.reserve(A, Bytes(5)).wait(), Err(ReserveError::NeverFits(_))));
    let _first = child.reserve(A, Bytes(3)).wait().unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| child.reserve(A, Bytes(2)).wait());
        while root.snapshot().waiters.is_empty() {
            std::thread::yield_now();
        }
        let beside = root.reserve(B, Bytes(6)).try_now().expect("the child's own shortage holds back nobody else");
        assert_eq!(held(&root), 9);
        let sibling = child.reserve(A, Bytes(1)).try_now().expect_err("but the child itself keeps its order");
        let ReserveError::WouldWait(shortage) = sibling else { panic!("{sibling}") };
        let behind = Reason::Order { behind: "a".into() };
        assert_eq!(shortage.reason, behind, "one byte fits, and would be safe");
        drop(beside);
        drop(_first);
        drop(waiter.join().unwrap().unwrap());
    });
    assert!(root.snapshot().is_empty());
}

#[test]
fn no_budget_serves_what_does_not_fit_into_64_bits() {
    for ledger in [Ledger::unlimited(), Ledger::new(Budget::new().space(Space::HOST, Bytes::MAX))] {
        let key = ledger.residency::<u8>("key", B, Bytes(5), std::time::Duration::ZERO).unwrap();
        drop(key.get_or_load(|_| Ok::<_, ()>(7)).unwrap());
        let absurd = Profile::new().stage("s", bytes(A, u64::MAX), Demand::new());
        assert!(matches!(ledger.reserve(A, Bytes::MAX).wait(), Err(ReserveError::NeverFits(_))));
        for spec in [JobSpec::new("job", absurd.clone()), JobSpec::new("alone", absurd).alone_if_oversize()] {
            let error = ledger.submit(spec).unwrap_err();
            assert!(matches!(error, SubmitError::NeverFits(_)), "{error}");
        }
        let held = ledger.reserve(A, Bytes(1 << 40)).wait().unwrap();
        assert!(key.is_resident());
        drop(held);
    }
}

/// What ends leaves nothing behind, however many there were.
#[test]
fn children_come_and_go() {
    let root = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let limited = Budget::new().space(Space::HOST, Bytes(4));
    let tenant = root.child("tenant", &limited);
    let rows = || root.snapshot().spaces.iter().map(|usage| usage.place.to_string()).collect::<Vec<_>>();
    let before = rows();
    assert_eq!(before.len(), 2);
    for _ in 0..3 {
        let proof = tenant.child("proof", &Budget::new().space(Space::HOST, Bytes(3)));
        assert_eq!(rows().len(), 3);
        // Every handle is gone, but for what holds bytes there and a job that is to: its limits stand.
        let held = proof.reserve(A, Bytes(2)).wait().unwrap();
        let mut later =
            proof.submit(JobSpec::new("later", Profile::new().stage("s", bytes(A, 2), bytes(A, 0)))).unwrap();
        drop(proof);
        assert_eq!(rows().len(), 3);
        let error = later.enter(0).try_now().unwrap_err();
        assert!(error.to_string().contains("of 3 B only 1 B are free"), "{error}");
        let other = tenant.child("other", &limited);
        drop(other.reserve(A, Bytes(3)).try_now().expect_err("the tenant's limit of 4, of which the proof has 2"));
        drop((held, later, other));
        assert_eq!(rows(), before);
    }
    drop(tenant);
    assert_eq!(rows().len(), 1);
    assert!(root.reserve(A, Bytes(10)).try_now().is_ok() && root.snapshot().is_empty());
}

#[test]
fn a_child_is_closed_alone_and_its_own_children_with_it() {
    let root = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let limited = Budget::new().space(Space::HOST, Bytes(4));
    let (tenant, other) = (root.child("tenant", &limited), root.child("other", &limited));
    let proof = tenant.child("proof", &limited);
    let mut running =
        proof.submit(JobSpec::new("running", Profile::new().stage("s", bytes(A, 4), bytes(A, 1)))).unwrap();
    let stage = running.enter(0).wait().unwrap();
    let elsewhere = other.reserve(A, Bytes(4)).wait().unwrap();
    std::thread::scope(|scope| {
        let refused = [&tenant, &proof].map(|ledger| scope.spawn(|| ledger.reserve(A, Bytes(1)).wait()));
        let waits = scope.spawn(|| other.reserve(A, Bytes(2)).wait().unwrap());
        while root.snapshot().waiters.len() < 3 {
            std::thread::yield_now();
        }
        tenant.close();
        for refused in refused {
            assert!(matches!(refused.join().unwrap(), Err(ReserveError::Closed { .. })));
        }
        drop(elsewhere);
        assert_eq!(waits.join().unwrap().bytes(), Bytes(2));
    });
    for ledger in [&tenant, &proof, &tenant.child("late", &limited)] {
        assert!(matches!(ledger.reserve(A, Bytes(1)).try_now(), Err(ReserveError::Closed { .. })));
        let spec = JobSpec::new("late", Profile::new().stage("s", bytes(A, 1), Demand::new()));
        assert!(matches!(ledger.submit(spec), Err(SubmitError::Closed { .. })));
    }
    // What is in flight goes on to its end, and everybody else goes on.
    drop((stage, running));
    drop(root.reserve(A, Bytes(10)).try_now().unwrap());
    assert!(root.snapshot().is_empty());
}

/// A request of a child that is short of nothing when its turn has not come, only later in the order than one of a higher priority,
/// is passed like any other: no limit of its child's holds it up.
#[test]
fn a_childs_request_that_could_be_served_is_not_passed_for_nothing() {
    use plimsoll::ledger::state::{AccountId, LedgerState, Outcome};
    let mut state = LedgerState::new(&Budget::new().space(Space::HOST, Bytes(4)).bypass(1));
    let child = state.open_child(AccountId::ROOT, "tenant".into(), &Budget::new().space(Space::HOST, Bytes(4)));
    let profile = Profile::new().stage("s", bytes(A, 4), Demand::new());
    let mut out = Vec::new();
    let ask = |state: &mut LedgerState, account, priority, out: &mut Vec<Outcome>| {
        let id = state.submit(account, JobSpec::new("job", profile.clone()).priority(priority)).unwrap();
        state.enter(0, id, 0, out).unwrap();
        id
    };
    let mut runs = ask(&mut state, AccountId::ROOT, 0, &mut out);
    assert!(matches!(out.drain(..).next(), Some(Outcome::Granted(..))));
    let waiter = ask(&mut state, child, 0, &mut out);
    for passed in 1..=2 {
        ask(&mut state, AccountId::ROOT, 1, &mut out);
        state.end_stage(runs, &[(A, Bytes(4))], &mut out);
        state.end(runs, &mut out);
        let [Outcome::Granted(next, _)] = out[..] else { panic!("one can be served: {out:?}") };
        out.clear();
        assert_eq!(next == waiter, passed == 2, "it is passed once, and then it is its turn");
        runs = next;
    }
}

#[test]
fn an_urgent_job_is_served_from_the_reserve() {
    let budget = Budget::new().space(Space::HOST, Bytes(10)).urgent_reserve(Space::HOST, Bytes(3)).bypass(0);
    let ledger = Ledger::new(budget);
    let _held = ledger.reserve(A, Bytes(7)).wait().unwrap();
    assert!(ledger.reserve(A, Bytes(1)).try_now().is_err(), "the reserve is nobody else's");
    let profile = Profile::new().stage("s", bytes(A, 3), Demand::new());
    let mut job = ledger.submit(JobSpec::new("urgent", profile).urgent()).unwrap();
    drop(job.enter(0).try_now().expect("the reserve has room"));
    drop(job);
    assert_eq!(ledger.snapshot().spaces.iter().map(|usage| usage.peak.0).sum::<u64>(), 10);
}

#[test]
fn fewer_slots_take_effect_as_jobs_finish() {
    let ledger = ledger(10);
    let profile = Profile::new().stage("s", Demand::new().slots(THREADS, 1), Demand::new());
    let submit = || ledger.submit(JobSpec::new("job", profile.clone())).unwrap();
    let (mut one, mut two, mut three) = (submit(), submit(), submit());
    let first = one.enter(0).try_now().unwrap();
    let second = two.enter(0).try_now().unwrap();
    ledger.resize_slots(THREADS, 1).unwrap();
    let limits = || ledger.snapshot().slots.iter().map(|usage| (usage.limit, usage.target)).collect::<Vec<_>>();
    assert_eq!(limits(), [(2, 1)]);
    drop(first);
    assert_eq!(limits(), [(1, 1)]);
    assert!(three.enter(0).try_now().is_err(), "the one that is left is held");
    drop(second);
    drop(three.enter(0).try_now().unwrap());
    ledger.resize_slots(THREADS, 0).unwrap();
    assert!(matches!(submit_error(&ledger, &profile), SubmitError::NeverFits(_)));
    let error = ledger.resize_slots(Slots::new("other"), 1).unwrap_err();
    assert_eq!(error.to_string(), "the budget does not name other; limits can be changed at run time, not added");
}

fn submit_error(ledger: &Ledger, profile: &Profile) -> SubmitError {
    ledger.submit(JobSpec::new("late", profile.clone())).unwrap_err()
}

#[test]
fn a_lowered_limit_takes_effect_as_jobs_finish() {
    let ledger = ledger(10);
    let first = ledger.reserve(A, Bytes(4)).wait().unwrap();
    let second = ledger.reserve(B, Bytes(4)).wait().unwrap();
    ledger.resize(Space::HOST, Bytes(5)).unwrap();
    let limits = |ledger: &Ledger| {
        let snapshot = ledger.snapshot();
        let space = snapshot.space(Space::HOST).unwrap().clone();
        (space.limit.0, space.target.0)
    };
    assert_eq!(limits(&ledger), (8, 5));
    assert!(matches!(ledger.reserve(A, Bytes(6)).wait(), Err(ReserveError::NeverFits(_))));
    drop(first);
    assert_eq!(limits(&ledger), (5, 5));
    assert!(ledger.resize(Space::device(0), Bytes(1)).is_err());
    drop(second);
}
