//! The observers that speak to other crates: `tracing` and `metrics`.
#![cfg(any(feature = "tracing", feature = "metrics"))]
#![expect(clippy::disallowed_types, reason = "tests use plain locks")]

use std::sync::{Arc, Mutex};

use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Slots, Space};

const A: Class = Class::new("a", Space::HOST);
const THREADS: Slots = Slots::new("threads");

fn ledger() -> Ledger {
    Ledger::new(Budget::new().space(Space::HOST, Bytes(10)).slots(THREADS, 2))
}

/// A job that runs and ends, a request that is withdrawn, a new limit.
fn work(ledger: &Ledger) {
    let peak = Demand::new().bytes(A, Bytes(8)).slots(THREADS, 1);
    let mut job = ledger.submit(JobSpec::new("job", Profile::new().stage("make", peak, Demand::new()))).unwrap();
    let grant = job.enter(0).try_now().unwrap();
    assert!(ledger.reserve(A, Bytes(5)).name("other").try_now().is_err());
    ledger.resize(Space::HOST, Bytes(9)).unwrap();
    drop(grant);
}

/// What was not declared, or does not end with its job; and a buffer that the reaper frees.
#[cfg(feature = "metrics")]
fn overdraw(ledger: &Ledger) {
    let mut more = ledger.reserve(A, Bytes(2)).try_now().unwrap();
    more.try_grow(Bytes(1)).unwrap();
    ledger.reaper().free(more);
    let peak = Demand::new().bytes(A, Bytes(2));
    let mut job = ledger.submit(JobSpec::new("job", Profile::new().stage("make", peak, Demand::new()))).unwrap();
    let mut grant = job.enter(0).try_now().unwrap();
    let kept = grant.take_all(A);
    drop((grant, job));
    drop(kept);
    ledger.quiesce(std::time::Duration::from_secs(60)).unwrap();
}

#[cfg(feature = "tracing")]
mod with_tracing {
    use std::fmt::Write;

    use plimsoll::observe::Tracing;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    struct Line(String);

    impl Visit for Line {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            write!(self.0, " {field}={value:?}").unwrap();
        }
    }

    impl Subscriber for Lines {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            matches!(metadata.target(), "plimsoll::ledger" | "plimsoll::stage")
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            let mut line = Line(format!("new {}", span.metadata().name()));
            span.record(&mut line);
            self.0.lock().unwrap().push(line.0);
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, values: &Record<'_>) {
            let mut line = Line("recorded".into());
            values.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let mut line = Line(event.metadata().level().to_string());
            event.record(&mut line);
            self.0.lock().unwrap().push(line.0);
        }
        fn enter(&self, _: &Id) {
            self.0.lock().unwrap().push("entered".into());
        }
        fn exit(&self, _: &Id) {
            self.0.lock().unwrap().push("left".into());
        }
    }

    #[test]
    fn every_event_becomes_one_of_tracing() {
        let lines = Lines::default();
        tracing::subscriber::with_default(lines.clone(), || {
            let ledger = ledger();
            ledger.observe(Arc::new(Tracing));
            work(&ledger);
        });
        let lines = lines.0.lock().unwrap();
        assert_eq!(lines[0], "DEBUG message=submitted seq=1 job=\"job\" id=0");
        assert_eq!(lines[3], "TRACE message=changed seq=4 job=\"job\" id=0 stage=\"make\" class=\"a\" delta=8 held=8");
        assert!(
            lines.iter().any(|line| line == "DEBUG message=withdrawn seq=7 reservation=\"other\" id=1"),
            "{lines:#?}"
        );
        assert!(lines.iter().any(|line| line.ends_with("space=host memory limit=9")), "{lines:#?}");
        assert!(lines.last().unwrap().starts_with("DEBUG message=ended"));
    }

    #[test]
    fn every_run_of_a_stage_is_a_span_with_what_it_waited_and_took() {
        use plimsoll::pipeline::{Pacing, Pipeline};
        use plimsoll::pool::{Pool, PoolConfig};

        let lines = Lines::default();
        let (ledger, seen) = (ledger(), lines.clone());
        let pool = Pool::new(PoolConfig { threads: 1, ..PoolConfig::default() }).unwrap();
        let need = Demand::new().bytes(A, Bytes(6)).slots(THREADS, 1);
        let pipeline = Pipeline::<(), (), String>::builder(&ledger, &pool, move |()| {
            Profile::new().stage("make", need.clone(), Demand::new())
        })
        .stage("make", |_, ()| {
            tracing::info!(target: "plimsoll::stage", "inside");
            Ok(())
        })
        .pacing(Pacing::Unpaced)
        .build()
        .unwrap();
        // The subscriber is the thread's, so the stage runs where it is set: on the only worker.
        pool.install(|| std::mem::forget(tracing::subscriber::set_default(seen)));
        pipeline.submit("job", ()).unwrap().wait().unwrap();
        drop((pipeline, pool));
        let lines = lines.0.lock().unwrap();
        let stage = lines.iter().filter(|line| !line.contains("seq=")).cloned().collect::<Vec<_>>();
        assert!(
            stage[0].starts_with("new stage job=\"job\" stage=\"make\" place=\"worker\" bytes=6 wait_seconds="),
            "{stage:?}"
        );
        assert_eq!(stage[1..4], ["entered", "INFO message=inside", "left"]);
        assert!(stage[4].starts_with("recorded run_seconds="), "{stage:?}");
        assert_eq!(stage.len(), 5);
    }
}

#[cfg(feature = "metrics")]
mod with_metrics {
    use std::collections::BTreeMap;

    use metrics::{
        Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString,
        Unit,
    };
    use plimsoll::observe::{Metrics, Observer};

    use super::*;

    #[derive(Clone, Default)]
    struct Board(Arc<Mutex<BTreeMap<String, f64>>>);

    struct Cell(Board, String);

    impl Cell {
        fn update(&self, f: impl FnOnce(&mut f64)) {
            f(self.0.0.lock().unwrap().entry(self.1.clone()).or_default());
        }
    }

    impl CounterFn for Cell {
        fn increment(&self, value: u64) {
            self.update(|cell| *cell += value as f64);
        }
        fn absolute(&self, value: u64) {
            self.update(|cell| *cell = value as f64);
        }
    }

    impl GaugeFn for Cell {
        fn increment(&self, value: f64) {
            self.update(|cell| *cell += value);
        }
        fn decrement(&self, value: f64) {
            self.update(|cell| *cell -= value);
        }
        fn set(&self, value: f64) {
            self.update(|cell| *cell = value);
        }
    }

    impl HistogramFn for Cell {
        /// Counts them: how long something takes is nothing to test.
        fn record(&self, _: f64) {
            self.update(|cell| *cell += 1.0);
        }
    }

    impl Board {
        fn cell(&self, key: &Key) -> Arc<Cell> {
            let labels: String = key.labels().map(|label| format!(" {}={}", label.key(), label.value())).collect();
            Arc::new(Cell(self.clone(), format!("{}{labels}", key.name())))
        }
    }

    impl Recorder for Board {
        fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
        fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
            Counter::from_arc(self.cell(key))
        }
        fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
            Gauge::from_arc(self.cell(key))
        }
        fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
            Histogram::from_arc(self.cell(key))
        }
    }

    #[test]
    fn what_is_forced_overdrawn_outlived_and_reaped_is_counted() {
        let board = Board::default();
        metrics::with_local_recorder(&board, || {
            let ledger = ledger();
            ledger.observe(Arc::new(Forward(board.clone())));
            overdraw(&ledger);
        });
        // Quiet is what the ledger is, and its observers a moment later: the reaper tells them on its own thread.
        let told = |name| board.0.lock().unwrap().contains_key(name);
        while !["plimsoll_outlived_total", "plimsoll_reap_seconds space=host"].into_iter().all(told) {
            std::thread::yield_now();
        }
        let board = board.0.lock().unwrap();
        for (name, value) in [
            ("plimsoll_overdrawn_total class=a space=host", 1.0),
            ("plimsoll_outlived_total", 1.0),
            ("plimsoll_reaping_bytes space=host", 0.0),
            ("plimsoll_reaped_total space=host", 1.0),
            ("plimsoll_reap_panics_total space=host", 0.0),
            ("plimsoll_reap_seconds space=host", 1.0),
        ] {
            assert_eq!(board.get(name), Some(&value), "{name}: {board:#?}");
        }
    }

    /// The reaper's events come on its own thread, which has no local recorder.
    struct Forward(Board);

    impl Observer for Forward {
        fn event(&self, event: &plimsoll::observe::Event) {
            metrics::with_local_recorder(&self.0, || Metrics::new().event(event));
        }
    }

    #[test]
    fn gauges_and_counters_follow_the_ledger() {
        let board = Board::default();
        let _held = metrics::with_local_recorder(&board, || {
            let ledger = ledger();
            ledger.observe(Arc::new(Metrics::new()));
            work(&ledger);
            ledger.reserve(A, Bytes(3)).try_now().unwrap()
        });
        let board = board.0.lock().unwrap();
        for (name, value) in [
            ("plimsoll_held_bytes class=a space=host", 3.0),
            ("plimsoll_in_bytes_total class=a space=host", 11.0),
            ("plimsoll_out_bytes_total class=a space=host", 8.0),
            ("plimsoll_held_slots slots=threads", 0.0),
            ("plimsoll_limit_bytes space=host", 9.0),
            ("plimsoll_waiting", 0.0),
            ("plimsoll_granted_total", 2.0),
            ("plimsoll_withdrawn_total", 1.0),
        ] {
            assert_eq!(board.get(name), Some(&value), "{name}: {board:#?}");
        }
    }
}
