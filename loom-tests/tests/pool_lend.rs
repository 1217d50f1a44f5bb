//! Lending cores and ending pools, as shipped: call against rest, take-back against the spare's end, end against queue.
#![cfg(plimsoll_loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom_tests::check_at_most;
use plimsoll::pool::{Closed, Pool, PoolConfig, Shutdown, block_on_external, scope};

fn pool(spares: usize) -> Pool {
    Pool::new(PoolConfig { threads: 1, spares, ..PoolConfig::default() }).expect("threads")
}

/// What a worker waits for outside: here, for one of its own forks, which only a spare can run.
fn lend_until_helped() {
    scope(|s| {
        let gate = Arc::new(Gate::default());
        let open = gate.clone();
        s.spawn(move || open.open());
        block_on_external(|| gate.wait());
    });
}

#[derive(Default)]
struct Gate {
    open: loom::sync::Mutex<bool>,
    bell: loom::sync::Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().expect("no panic") = true;
        self.bell.notify_one();
    }

    fn wait(&self) {
        let mut open = self.open.lock().expect("no panic");
        while !*open {
            open = self.bell.wait(open).expect("no panic");
        }
    }
}

/// A core that is lent finds somebody who uses it, or the worker waits for ever.
#[test]
fn a_lent_core_is_used() {
    check_at_most(2, || pool(1).install(lend_until_helped));
}

/// Lent twice, the first time for nothing: the second call meets the spare at work, on its way to rest, or resting.
#[test]
fn a_spare_on_its_way_to_rest_hears_the_call() {
    check_at_most(2, || {
        pool(1).install(|| {
            block_on_external(|| ());
            lend_until_helped();
        });
    });
}

/// A queued call meets the abort: it is run or given back, and never forgotten.
#[test]
fn a_call_is_run_or_given_back() {
    check_at_most(2, || {
        let pool = pool(0);
        let ender = pool.clone();
        let end = loom::thread::spawn(move || ender.shutdown(Shutdown::Abort));
        assert!(matches!(pool.try_install(|| 7), Ok(7) | Err(Closed(_))));
        end.join().expect("no panic");
    });
}

/// The last job of a draining pool lands on a foreign thread while the workers fall asleep.
#[test]
fn a_draining_pool_ends_after_its_last_job() {
    use plimsoll::pipeline::Pipeline;
    use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};
    const BUFFER: Class = Class::new("buffer", Space::HOST);
    check_at_most(2, || {
        let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(1)));
        let pool = pool(0);
        let byte = || Demand::new().bytes(BUFFER, Bytes(1));
        let pipeline = Pipeline::builder(&ledger, &pool, move |_| Profile::new().stage("only", byte(), Demand::new()))
            .stage("only", |_, ()| Ok::<_, ()>(()))
            .build()
            .expect("a pipeline");
        let ran = Arc::new(AtomicBool::new(false));
        let held = ledger.reserve(BUFFER, Bytes(1)).try_now().expect("free");
        let ticket = pipeline.submit("job", ()).expect("taken on");
        let returner = loom::thread::spawn({
            let ran = ran.clone();
            move || {
                ran.store(true, Ordering::Relaxed);
                drop(held);
            }
        });
        pool.shutdown(Shutdown::Drain);
        assert!(ticket.has_ended() && ran.load(Ordering::Relaxed), "drained before the job had its memory");
        ticket.wait().expect("a result");
        returner.join().expect("no panic");
    });
}
