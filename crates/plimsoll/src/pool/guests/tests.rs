//! What `with_rayon` promises, counted.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;

use rayon::prelude::*;

use crate::device::simulate::{CardSpec, Simulated};
use crate::device::{Device, DeviceConfig, DeviceError, DeviceSet};
use crate::pipeline::tests::kinds::Hand;
use crate::pipeline::{Carrier, Errand, Pipeline, Runtime};
use crate::pool::{Pool, PoolConfig, Shutdown, join, map_indices, with_rayon};
use crate::sync::{Mutex, lock};
use crate::{Budget, Bytes, Demand, Ledger, Profile};

fn pool(threads: usize) -> Pool {
    let name = "host".to_owned();
    Pool::new(PoolConfig { threads, name, ..PoolConfig::default() }).expect("threads")
}

/// How many are inside at once, and have been at most.
#[derive(Default)]
struct Gauge {
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Gauge {
    fn run(&self) {
        let now = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        // Long enough that the others come.
        for _ in 0..100 {
            thread::yield_now();
        }
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn never_do_more_threads_run_than_the_pool_has() {
    for threads in [1, 2, 3] {
        let pool = pool(threads);
        let gauge = Gauge::default();
        thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| pool.install(|| with_rayon(|| (0..64).into_par_iter().for_each(|_| gauge.run()))));
                s.spawn(|| pool.install(|| map_indices(16, |_| gauge.run())));
            }
        });
        assert!(gauge.most.load(Ordering::SeqCst) <= threads, "{} of {threads}", gauge.most.load(Ordering::SeqCst));
    }
}

#[test]
fn rayon_runs_on_the_workers_and_in_parallel() {
    let pool = pool(2);
    for _ in 0..20 {
        let meet = Barrier::new(2);
        let names = Mutex::new(HashSet::new());
        let side = || {
            meet.wait();
            lock(&names).insert(thread::current().name().map(str::to_owned));
        };
        pool.install(|| with_rayon(|| rayon::join(side, side)));
        let names: HashSet<_> = lock(&names).drain().flatten().collect();
        assert_eq!(names, ["host-0", "host-1"].map(str::to_owned).into());
    }
}

#[test]
fn forks_of_ours_inside_and_around_belong_to_the_same_job() {
    let pool = pool(2);
    for _ in 0..50 {
        let inside = || with_rayon(|| (0..8).into_par_iter().map(|i| join(|| i, || i * 10)).map(|(a, b)| a + b).sum());
        let (a, b): (usize, usize) = pool.install(|| join(inside, inside));
        assert_eq!((a, b), (308, 308));
        // Nested sections are one.
        assert_eq!(pool.install(|| with_rayon(|| rayon::join(inside, inside))), (308, 308));
    }
}

#[test]
fn what_was_spawned_has_run_and_panics_come_back() {
    let pool = pool(2);
    let ran: &AtomicUsize = Box::leak(Box::default());
    pool.install(|| with_rayon(|| (0..10).for_each(|_| rayon::spawn(|| _ = ran.fetch_add(1, Ordering::SeqCst)))));
    assert_eq!(ran.load(Ordering::SeqCst), 10);
    let panics: [fn(); 3] = [
        || with_rayon(|| panic!("body")),
        || with_rayon(|| (0..4).into_par_iter().for_each(|i| assert_ne!(i, 3, "item"))),
        || with_rayon(|| rayon::spawn(|| panic!("spawned"))),
    ];
    for panic in panics {
        assert!(catch_unwind(AssertUnwindSafe(|| pool.install(panic))).is_err());
        assert_eq!(pool.install(|| with_rayon(|| 7)), 7);
    }
}

/// A carrier, and a runtime, of one thread that is none of the pool's.
fn hand() -> (Arc<dyn Carrier>, Runtime) {
    let hand = Hand::new();
    (hand.carrier(), hand.runtime())
}

/// On which threads rayon works for a stage of each kind: `host-0` and `host-1` are the pool's.
#[test]
fn rayon_in_stages_that_run_elsewhere_runs_on_the_workers_too() {
    let ledger = Ledger::new(Budget::new().device(0, Bytes(10), 1));
    let card = Simulated::new(CardSpec { memory: Bytes(10), ..CardSpec::default() });
    let device =
        Device::start(0, card, &ledger, DeviceConfig { lanes: 1, ..DeviceConfig::default() }).expect("a device");
    let set = DeviceSet::new([device]);
    let (carrier, runtime) = hand();
    for threads in [1, 2] {
        let pool = pool(threads);
        let gauge = Arc::new(Gauge::default());
        let work = move |gauge: &Gauge| -> HashSet<Option<String>> {
            let name = |_| {
                gauge.run();
                thread::current().name().map(str::to_owned)
            };
            // A fork of ours belongs to the section, too.
            with_rayon(|| join(|| (0..32).into_par_iter().map(name).collect(), || gauge.run()).0)
        };
        let nothing = Demand::new;
        let profile = move |()| {
            let profile = Profile::new().stage("carried", nothing(), nothing()).stage("future", nothing(), nothing());
            profile.stage("lane", nothing().on_lane(0), nothing()).stage("lease", nothing().on_lease(0), nothing())
        };
        let [carried, future, lane, lease] = std::array::from_fn(|_| gauge.clone());
        let pipeline = Pipeline::builder(&ledger, &pool, move |&()| profile(()))
            .stage_on("carried", &carrier, move |_, ()| Ok::<_, DeviceError>(work(&carried)))
            .async_stage("future", &runtime, move |_, mut names: HashSet<_>| {
                let gauge = future.clone();
                async move {
                    names.extend(work(&gauge));
                    Ok(names)
                }
            })
            .device_stage("lane", &set, move |_, mut names| {
                names.extend(work(&lane));
                Ok(names)
            })
            .compute_stage("lease", &set, move |_, mut names| {
                names.extend(work(&lease));
                Ok(names)
            })
            .build()
            .expect("a pipeline");
        let own: HashSet<_> = (0..threads).map(|at| Some(format!("host-{at}"))).collect();
        thread::scope(|s| {
            // Beside others of the pool's.
            s.spawn(|| pool.install(|| map_indices(64, |_| gauge.run())));
            for _ in 0..4 {
                let names = pipeline.submit("job", ()).expect("taken on").wait().expect("a result");
                assert!(names.is_subset(&own), "{names:?}");
            }
        });
        assert!(gauge.most.load(Ordering::SeqCst) <= threads, "{} of {threads}", gauge.most.load(Ordering::SeqCst));
    }
}

#[test]
fn rayon_in_a_stage_that_a_pool_of_rayons_carries_runs_on_the_workers_too() {
    struct Foreign(rayon::ThreadPool);
    impl Carrier for Foreign {
        fn carry(&self, errand: Errand) {
            self.0.spawn(move || errand.run());
        }
    }
    let ledger = Ledger::new(Budget::new());
    let foreign = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let carrier: Arc<dyn Carrier> = Arc::new(Foreign(foreign));
    let pool = pool(2);
    let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage_on("s", &carrier, |_, ()| {
            let name = |_| thread::current().name().map(str::to_owned);
            Ok::<HashSet<_>, ()>(with_rayon(|| (0..32).into_par_iter().map(name).collect()))
        })
        .build()
        .expect("a pipeline");
    let names = pipeline.submit("job", ()).expect("taken on").wait().expect("a result");
    assert!(names.iter().all(|name| name.as_ref().is_some_and(|name| name.starts_with("host-"))), "{names:?}");
}

#[test]
fn rayon_in_a_carried_stage_goes_on_while_its_pool_ends() {
    for how in [Shutdown::Drain, Shutdown::Abort] {
        let ledger = Ledger::new(Budget::new());
        let pool = pool(1);
        let (carrier, _) = hand();
        let (began, has_begun) = mpsc::channel();
        let ends = pool.clone();
        let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
            .stage_on("s", &carrier, move |_, ()| {
                began.send(()).expect("the test listens");
                while ends.is_open() {
                    thread::yield_now();
                }
                // A pool that drains has workers for its jobs; one that was aborted has none, and then it goes on without.
                Ok::<_, ()>(with_rayon(|| (0..10).into_par_iter().sum::<u32>()))
            })
            .build()
            .expect("a pipeline");
        let ticket = pipeline.submit("job", ()).expect("taken on");
        has_begun.recv().expect("it begins");
        pool.shutdown(how);
        assert_eq!(ticket.wait().expect("it was its last stage"), 45);
    }
}
