//! The rules of the executor, with real threads. Nothing sleeps: tests meet at barriers and gates.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::job::JobTag;
use super::*;
use crate::sync::{Mutex, lock};

fn pool(threads: usize) -> Pool {
    Pool::new(PoolConfig { threads, ..PoolConfig::default() }).expect("threads")
}

fn spin_until(condition: impl Fn() -> bool) {
    while !condition() {
        std::thread::yield_now();
    }
}

fn panics<R>(f: impl FnOnce() -> R) -> String {
    let payload = catch_unwind(AssertUnwindSafe(|| drop(f()))).expect_err("a panic");
    payload.downcast_ref::<&str>().map(|text| (*text).to_owned()).expect("a text")
}

fn fib(n: u64) -> u64 {
    if n < 2 {
        return n;
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn join_computes_the_same_on_any_number_of_threads() {
    assert_eq!(fib(12), 144);
    for threads in 1..=4 {
        assert_eq!(pool(threads).install(|| fib(16)), 987);
    }
}

#[test]
fn both_sides_of_a_join_run_at_the_same_time_on_two_threads() {
    let meet = Barrier::new(2);
    // A serial join would wait at the barrier for ever.
    pool(2).install(|| join(|| meet.wait(), || meet.wait()));
}

#[test]
fn a_fork_wakes_a_sleeping_worker() {
    let pool = pool(2);
    for _ in 0..200 {
        let meet = Barrier::new(2);
        spin_until(|| pool.sleeping() == 2);
        pool.install(|| {
            spin_until(|| pool.sleeping() == 1);
            join(|| meet.wait(), || meet.wait());
        });
    }
}

#[test]
fn scope_waits_for_every_spawn_and_nested_spawns() {
    for threads in [1, 2, 4] {
        let ended = AtomicUsize::new(0);
        pool(threads).install(|| {
            scope(|s| {
                for _ in 0..10 {
                    s.spawn(|| {
                        s.spawn(|| {
                            ended.fetch_add(1, Ordering::Relaxed);
                        });
                        ended.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
            assert_eq!(ended.load(Ordering::Relaxed), 20);
        });
    }
}

#[test]
fn scope_runs_inline_outside_a_pool() {
    let me = std::thread::current().id();
    let mut seen = None;
    scope(|s| s.spawn(|| seen = Some(std::thread::current().id())));
    assert_eq!(seen, Some(me));
    assert_eq!(current_threads(), 1);
}

#[test]
fn a_spawn_from_another_pool_into_a_scope_runs_on_the_spot() {
    let (outer, inner) = (pool(2), pool(2));
    let name = outer.install(|| {
        let mut name = None;
        scope(|s| {
            let inner = &inner;
            let name = &mut name;
            inner.install(move || s.spawn(move || *name = std::thread::current().name().map(str::to_owned)));
        });
        name
    });
    assert!(name.is_some());
}

#[test]
fn for_each_chunk_visits_every_element_once_with_its_offset() {
    let pool = pool(3);
    for len in [0, 1, 7, 64, 1000] {
        for chunk_len in [1, 3, 64, 2000] {
            let mut data = vec![0; len];
            pool.install(|| {
                for_each_chunk(&mut data, chunk_len, |offset, chunk| {
                    assert!(offset % chunk_len == 0 && chunk.len() <= chunk_len);
                    chunk.iter_mut().enumerate().for_each(|(i, x)| *x += offset + i + 1);
                });
            });
            assert!(data.iter().enumerate().all(|(i, &x)| x == i + 1), "{len} by {chunk_len}");
        }
    }
}

#[test]
fn map_indices_keeps_the_order() {
    assert_eq!(pool(3).install(|| map_indices(100, |i| i * i)), (0..100).map(|i| i * i).collect::<Vec<_>>());
    assert!(map_indices(0, |i| i).is_empty());
}

#[test]
fn install_on_the_own_pool_is_part_of_the_current_job() {
    let pool = pool(1);
    // With one worker, anything but an inline call would wait for ever.
    assert_eq!(pool.install(|| pool.install(|| 7)), 7);
}

#[test]
fn install_from_another_pool_and_from_many_threads() {
    let (a, b) = (pool(2), pool(2));
    assert_eq!(a.install(|| b.install(|| current_threads() + 40)), 42);
    std::thread::scope(|s| {
        for i in 0..8 {
            let a = &a;
            s.spawn(move || assert_eq!(a.install(|| fib(10) + i), 55 + i));
        }
    });
}

#[test]
fn threads_carry_the_name_of_the_pool() {
    let pool = Pool::new(PoolConfig { threads: 1, name: "hold".into(), ..PoolConfig::default() }).expect("threads");
    assert_eq!(pool.install(|| std::thread::current().name().map(str::to_owned)).as_deref(), Some("hold-0"));
}

#[test]
fn a_pool_without_threads_is_refused() {
    let refused = Pool::new(PoolConfig { threads: 0, ..PoolConfig::default() });
    assert!(matches!(refused, Err(PoolError::NoThreads)));
}

#[test]
fn a_panic_comes_back_after_both_sides_ended_and_the_pool_stays_usable() {
    let pool = pool(2);
    for threads in 0..3 {
        let meet = Barrier::new(2);
        let other_ended = AtomicBool::new(false);
        let message = panics(|| match threads {
            // `a` panics while `b`, stolen, still runs.
            0 => pool.install(|| {
                let a = || {
                    meet.wait();
                    panic!("left");
                };
                let b = || {
                    meet.wait();
                    fib(15);
                    other_ended.store(true, Ordering::Relaxed);
                };
                join(a, b);
            }),
            // `b` panics, stolen, while `a` still runs.
            1 => pool.install(|| {
                let a = || {
                    meet.wait();
                    fib(15);
                    other_ended.store(true, Ordering::Relaxed);
                };
                let b = || {
                    meet.wait();
                    panic!("left");
                };
                join(a, b);
            }),
            _ => pool.install(|| {
                scope(|s| {
                    s.spawn(|| panic!("left"));
                    s.spawn(|| {
                        fib(15);
                        other_ended.store(true, Ordering::Relaxed);
                    });
                });
            }),
        });
        assert_eq!(message, "left");
        assert!(other_ended.load(Ordering::Relaxed));
        assert_eq!(pool.install(|| fib(10)), 55);
    }
}

#[test]
fn a_panic_of_the_first_side_leaves_an_unstolen_second_side_out() {
    let started = AtomicBool::new(false);
    let message = panics(|| {
        pool(1).install(|| join(|| panic!("first"), || started.store(true, Ordering::Relaxed)));
    });
    assert_eq!((message.as_str(), started.load(Ordering::Relaxed)), ("first", false));
}

#[test]
fn dropping_the_last_handle_drains_what_is_queued() {
    let pool = pool(1);
    let (started, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let ran = Arc::new(AtomicUsize::new(0));
    let submit = |run: Box<dyn FnOnce() + Send>| {
        let queued = pool.shared().submit(Task {
            tag: JobTag::fresh(),
            turn: Turn::UnderWay,
            stages_left: 0,
            priority: 0,
            run: Run::Stage(run),
        });
        assert!(queued.is_ok());
    };
    let (s, r) = (started.clone(), release.clone());
    submit(Box::new(move || {
        s.wait();
        r.wait();
    }));
    for _ in 0..10 {
        let ran = ran.clone();
        submit(Box::new(move || {
            ran.fetch_add(1, Ordering::Relaxed);
        }));
    }
    started.wait();
    let dropper = std::thread::scope(|s| {
        let dropper = s.spawn(move || drop(pool));
        release.wait();
        dropper.join()
    });
    assert!(dropper.is_ok());
    assert_eq!(ran.load(Ordering::Relaxed), 10);
}

#[test]
fn the_last_handle_may_be_dropped_by_a_task_of_the_pool() {
    let pool = pool(2);
    let (send, receive) = std::sync::mpsc::channel();
    let (shared, handle) = (pool.shared().clone(), pool.clone());
    let run = Box::new(move || {
        receive.recv().expect("the sender waits");
        drop(handle);
    });
    assert!(
        shared
            .submit(Task {
                tag: JobTag::fresh(),
                turn: Turn::UnderWay,
                stages_left: 0,
                priority: 0,
                run: Run::Stage(run)
            })
            .is_ok()
    );
    drop(pool);
    send.send(()).expect("the task waits");
    let refused = loop {
        let task = Task {
            tag: JobTag::fresh(),
            turn: Turn::UnderWay,
            stages_left: 0,
            priority: 0,
            run: Run::Stage(Box::new(|| {})),
        };
        if shared.submit(task).is_err() {
            break true;
        }
        std::thread::yield_now();
    };
    assert!(refused, "a pool without handles gives tasks back");
}

#[test]
fn the_most_downstream_task_runs_first() {
    let pool = pool(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (started, release) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (s, r) = (started.clone(), release.clone());
    let submit = |stages_left, run: Box<dyn FnOnce() + Send>| {
        assert!(
            pool.shared()
                .submit(Task {
                    tag: JobTag::fresh(),
                    turn: Turn::UnderWay,
                    stages_left,
                    priority: 0,
                    run: Run::Stage(run)
                })
                .is_ok()
        );
    };
    submit(
        9,
        Box::new(move || {
            s.wait();
            r.wait();
        }),
    );
    started.wait();
    for stages_left in [2, 0, 1, 2, 0] {
        let order = order.clone();
        submit(stages_left, Box::new(move || lock(&order).push(stages_left)));
    }
    release.wait();
    drop(pool);
    assert_eq!(*lock(&order), [0, 0, 1, 2, 2]);
}

/// Occupies each worker of a pool of so many, and tells each of them which one it is.
fn on_each_worker(pool: &Pool, body: impl Fn(usize) + Sync) {
    let (all_there, body) = (Barrier::new(pool.threads()), &body);
    std::thread::scope(|s| {
        for _ in 0..pool.threads() {
            s.spawn(|| {
                pool.install(|| {
                    all_there.wait();
                    let thread = std::thread::current();
                    let index = thread.name().and_then(|name| name.rsplit('-').next()?.parse().ok());
                    body(index.expect("workers are numbered"));
                })
            });
        }
    });
}

#[test]
fn a_thief_takes_forks_of_the_job_that_it_ran_last_before_those_of_others() {
    let pool = pool(3);
    let order = Mutex::new(Vec::new());
    let [first_runs, other_is_there, first_may_end] = [(); 3].map(|()| AtomicBool::new(false));
    let all_stolen = || lock(&order).len() == 2;
    on_each_worker(&pool, |worker| match worker {
        // Its job is the one that the thief has run; the thief comes here last when it looks around.
        0 => scope(|ours| {
            ours.spawn(|| {
                first_runs.store(true, Ordering::SeqCst);
                spin_until(|| first_may_end.load(Ordering::SeqCst));
            });
            spin_until(|| first_runs.load(Ordering::SeqCst) && other_is_there.load(Ordering::SeqCst));
            ours.spawn(|| lock(&order).push("ours"));
            first_may_end.store(true, Ordering::SeqCst);
            spin_until(all_stolen);
        }),
        // The thief: as soon as it is free.
        1 => {}
        _ => scope(|others| {
            spin_until(|| first_runs.load(Ordering::SeqCst));
            others.spawn(|| lock(&order).push("others"));
            other_is_there.store(true, Ordering::SeqCst);
            spin_until(all_stolen);
        }),
    });
    assert_eq!(*lock(&order), ["ours", "others"]);
}

#[test]
fn a_new_job_comes_after_the_forks_of_what_runs_and_a_job_under_way_before_them() {
    let pool = pool(2);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (all_queued, all_run) = (AtomicBool::new(false), || lock(&order).len() == 3);
    on_each_worker(&pool, |worker| match worker {
        0 => scope(|forks| {
            forks.spawn(|| lock(&order).push("fork"));
            for (turn, name) in [(Turn::NewJob, "new"), (Turn::UnderWay, "under way")] {
                let order = order.clone();
                let run = Run::Stage(Box::new(move || lock(&order).push(name)));
                let task = Task { tag: JobTag::fresh(), turn, stages_left: 1, priority: 0, run };
                assert!(pool.shared().submit(task).is_ok());
            }
            all_queued.store(true, Ordering::SeqCst);
            spin_until(all_run);
        }),
        _ => spin_until(|| all_queued.load(Ordering::SeqCst)),
    });
    assert_eq!(*lock(&order), ["under way", "fork", "new"]);
}

/// Job A waits in `join` for its stolen half. Meanwhile job B arrives, as a task and, on a third worker, as a fork.
/// The waiting worker has to fall asleep over both: that it sleeps shows that it looked and declined. Who is about to
/// sleep counts as asleep and may yet look again, hence the rounds: one that helped would have to miss its chance in each.
#[test]
fn a_worker_that_waits_never_starts_another_jobs_stage_or_fork() {
    let pool = pool(3);
    for _ in 0..20 {
        assert_eq!(intruders_on_a_waiting_worker(&pool), 0);
    }
}

fn intruders_on_a_waiting_worker(pool: &Pool) -> usize {
    let busy = Barrier::new(2);
    let (a_waits, release_a, release_b) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let b_runs = AtomicBool::new(false);
    let waiting = Mutex::new(None);
    let intruders = AtomicUsize::new(0);
    let intrude = || {
        if Some(std::thread::current().id()) == *lock(&waiting) && !release_a.load(Ordering::SeqCst) {
            intruders.fetch_add(1, Ordering::SeqCst);
        }
    };
    // On which thread the stage of job C runs.
    let (stage_on, ran_on) = std::sync::mpsc::channel();
    let profile = |_: &()| crate::Profile::new().stage("c", crate::Demand::new(), crate::Demand::new());
    let others = crate::pipeline::Pipeline::builder(&crate::Ledger::unlimited(), pool, profile)
        .stage("c", move |_, ()| {
            let _ = stage_on.send(std::thread::current().id());
            Ok::<_, ()>(())
        })
        .build()
        .expect("a pipeline");
    std::thread::scope(|s| {
        s.spawn(|| {
            pool.install(|| {
                let a = || {
                    busy.wait();
                    *lock(&waiting) = Some(std::thread::current().id());
                    a_waits.store(true, Ordering::SeqCst);
                };
                let b = || {
                    busy.wait();
                    spin_until(|| release_a.load(Ordering::SeqCst));
                };
                join(a, b);
            });
        });
        spin_until(|| a_waits.load(Ordering::SeqCst));
        // The third worker runs job B, with forks that only the waiting worker would be free to steal.
        s.spawn(|| {
            pool.install(|| {
                intrude();
                scope(|forks| {
                    for _ in 0..4 {
                        forks.spawn(intrude);
                    }
                    b_runs.store(true, Ordering::SeqCst);
                    spin_until(|| release_b.load(Ordering::SeqCst));
                });
            });
        });
        // And job C waits for a worker, with its stage: one that came before B would be run, and waited for in vain.
        spin_until(|| intruders.load(Ordering::SeqCst) != 0 || b_runs.load(Ordering::SeqCst));
        let stage = others.submit("c", ()).expect("taken on");
        let waits = || pool.has_queued_task() && pool.sleeping() == 1;
        spin_until(|| intruders.load(Ordering::SeqCst) != 0 || stage.has_ended() || waits());
        if let Ok(thread) = ran_on.try_recv() {
            intruders.fetch_add(usize::from(Some(thread) == *lock(&waiting)), Ordering::SeqCst);
        }
        release_a.store(true, Ordering::SeqCst);
        release_b.store(true, Ordering::SeqCst);
    });
    intruders.into_inner()
}

#[test]
fn a_stolen_fork_of_another_job_goes_back_where_everybody_finds_it() {
    // Many short jobs on few workers: victims change jobs under the eyes of waiting thieves.
    let pool = pool(3);
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| (0..200).for_each(|_| assert_eq!(pool.install(|| fib(8)), 21)));
        }
    });
}

/// What the kernel has counted for the threads whose names begin so: times that they were put on a core, and ticks there.
#[cfg(target_os = "linux")]
fn activity(prefix: &str) -> Vec<(String, u64)> {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let threads = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let ours = threads.filter(|thread| read(thread.path().join("comm")).starts_with(prefix));
    let counted = ours.map(|thread| {
        let switches = read(thread.path().join("status"));
        let switches =
            switches.lines().filter_map(|line| line.split_once("_ctxt_switches:")?.1.trim().parse::<u64>().ok());
        let stat = read(thread.path().join("stat"));
        let ticks = stat.rsplit(") ").next().unwrap_or_default().split(' ').skip(11).take(2);
        (stat.clone(), switches.sum::<u64>() + ticks.filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>())
    });
    counted.map(|(stat, count)| (stat.split(' ').next().unwrap_or_default().to_owned(), count)).collect()
}

/// The kernel has not run an idle worker, nor the lane of a device that has nothing to do, once while much went on elsewhere: no
/// polling, no time-outs.
#[cfg(target_os = "linux")]
#[test]
fn workers_that_wait_use_no_processor() {
    let still =
        Pool::new(PoolConfig { threads: 3, name: "still".to_owned(), ..PoolConfig::default() }).expect("threads");
    let budget = crate::Budget::new().space(crate::Space::HOST, crate::Bytes(1));
    let ledger = crate::Ledger::new(budget.device(0, crate::Bytes(1), 2));
    let class = crate::Class::new("buffer", crate::Space::HOST);
    let card = crate::device::simulate::Simulated::new(crate::device::simulate::CardSpec::default());
    let config = crate::device::DeviceConfig { lanes: 2, name: "still".to_owned() };
    let lanes = crate::device::Device::start(0, card, &ledger, config).expect("a device");
    let byte = move || crate::Demand::new().bytes(class, crate::Bytes(1));
    let profile = move |_: &()| crate::Profile::new().stage("only", byte(), crate::Demand::new());
    let pipeline = crate::pipeline::Pipeline::builder(&ledger, &still, profile).stage("only", |_, ()| Ok::<_, ()>(()));
    let pipeline = pipeline.build().expect("a pipeline");
    let held = ledger.reserve(class, crate::Bytes(1)).try_now().expect("free");
    let waits = pipeline.submit("waits for memory", ()).expect("taken on");
    spin_until(|| still.sleeping() == 3);
    // Announced is not yet asleep: until the kernel counts no more.
    let mut before = activity("still");
    let settled = |before: &mut Vec<_>| {
        (0..1000).for_each(|_| std::thread::yield_now());
        let now = activity("still");
        std::mem::replace(before, now.clone()) == now
    };
    while !settled(&mut before) {}
    assert_eq!(before.len(), 5);
    let busy = pool(2);
    for _ in 0..500 {
        assert_eq!(busy.install(|| fib(12)), 144);
    }
    assert_eq!(activity("still"), before);
    assert!(!waits.has_ended());
    drop(held);
    waits.wait().expect("a result");
    // What is measured moves when they work: the kernel counts a worker when it leaves the core again.
    spin_until(|| activity("still") != before);
    drop(lanes);
}

#[test]
fn what_a_thread_keeps_to_its_end_may_be_a_pool_and_a_pipeline() {
    use std::cell::RefCell;

    use crate::pipeline::Pipeline;
    use crate::{Demand, Ledger, Profile};

    type Kept = (Pipeline<u64, u64, ()>, Pool);
    std::thread_local! {
        static KEPT: RefCell<Option<Kept>> = const { RefCell::new(None) };
    }
    let keep = || {
        // The older of a thread's own things go last: by then it does not know any more whether it is a worker.
        KEPT.with(|kept| {
            let mut kept = kept.borrow_mut();
            let pool = pool(1);
            let profile = |_: &u64| Profile::new().stage("s", Demand::new(), Demand::new());
            let builder = Pipeline::builder(&Ledger::unlimited(), &pool, profile);
            let pipeline = builder.stage("s", |_, n| Ok(n)).build().expect("a pipeline");
            assert_eq!(
                (pool.install(|| 7), pipeline.submit("job", 8).expect("taken on").wait().expect("a result")),
                (7, 8)
            );
            *kept = Some((pipeline, pool));
        });
    };
    crate::sync::thread::Builder::new().spawn(keep).expect("a thread").join().expect("no panic");
}
