//! What stages really held, and what is learned from it.

use super::*;

/// One stage that takes `input` bytes of what was declared for it: [`SCRATCH_BYTES`].
fn drifting(ledger: &Ledger, pool: &Pool, learning: Learning) -> Pipeline<u64, Bytes, String> {
    Pipeline::builder(ledger, pool, |_: &u64| {
        let declared = Demand::new().bytes(BUFFER, BUFFER_BYTES).bytes(SCRATCH, SCRATCH_BYTES);
        let keep = Demand::new().bytes(BUFFER, BUFFER_BYTES);
        Profile::new().stage("make", keep.clone(), keep).stage("use", declared, Demand::new())
    })
    .stage("make", |cx, bytes| Ok((bytes, cx.grant().take_all(BUFFER))))
    .stage("use", |cx, (bytes, _buffer): (u64, Reservation)| {
        let granted = cx.grant().given(SCRATCH);
        // In two halves at once, and a third that comes after: only what is out at once counts.
        let halves = [bytes / 2, bytes - bytes / 2].map(|half| cx.grant().take(SCRATCH, Bytes(half)));
        for half in halves {
            drop(half.map_err(|error| error.to_string())?);
        }
        Ok(granted)
    })
    .learning(learning)
    .build()
    .expect("a pipeline")
}

fn run(pipeline: &Pipeline<u64, Bytes, String>, bytes: u64) -> Result<Bytes, String> {
    pipeline.submit("job", bytes).expect("taken on").wait().map_err(|error| error.to_string())
}

fn scratch_drift(pipeline: &Pipeline<u64, Bytes, String>) -> Drift {
    let of_scratch = |drift: &Drift| (drift.stage, drift.class) == ("use", SCRATCH);
    pipeline.drift().into_iter().find(of_scratch).expect("it ran")
}

#[test]
fn a_stage_that_needs_more_than_declared_fails_once_and_is_given_more_from_then_on() {
    for (learning, learns) in [(Learning::Nothing, false), (Learning::More, true), (Learning::MoreAndLess, true)] {
        let (ledger, pool) = (ledger(CLAIM.times(4)), pool(1));
        let pipeline = drifting(&ledger, &pool, learning);
        assert_eq!(run(&pipeline, 16), Ok(SCRATCH_BYTES));
        assert!(!scratch_drift(&pipeline).is_short());
        assert!(run(&pipeline, 24).is_err());
        let drift = scratch_drift(&pipeline);
        assert_eq!((drift.declared, drift.held, drift.runs), (SCRATCH_BYTES, Bytes(24), 2));
        assert!(drift.is_short());
        assert_eq!(run(&pipeline, 24).ok(), learns.then_some(Bytes(24)));
        ledger.quiesce(Duration::from_secs(10)).expect("quiet");
        assert!(ledger.snapshot().is_empty());
    }
}

#[test]
fn what_a_stage_brings_along_is_counted_as_held() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = drifting(&ledger, &pool, Learning::More);
    run(&pipeline, 1).expect("a result");
    let buffer = pipeline.drift().into_iter().find(|drift| (drift.stage, drift.class) == ("use", BUFFER));
    assert_eq!(buffer.expect("it ran").held, BUFFER_BYTES);
}

#[test]
fn less_is_given_only_if_asked_for_and_only_when_it_is_sure() {
    for (learning, granted) in [(Learning::More, SCRATCH_BYTES), (Learning::MoreAndLess, Bytes(8))] {
        let (ledger, pool) = (ledger(CLAIM), pool(1));
        let pipeline = drifting(&ledger, &pool, learning);
        for _ in 0..WINDOW {
            assert_eq!(run(&pipeline, 8), Ok(SCRATCH_BYTES));
        }
        assert_eq!(run(&pipeline, 8), Ok(granted));
        // One that needs what was declared after all brings it back.
        if granted < SCRATCH_BYTES {
            assert!(run(&pipeline, 16).is_err());
            assert_eq!(run(&pipeline, 16), Ok(SCRATCH_BYTES));
        }
    }
}

#[test]
fn runs_that_fail_before_they_take_what_they_need_teach_nothing() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = Pipeline::builder(&ledger, &pool, |_: &bool| profile_of_one())
        .stage("use", |cx, well: bool| {
            if !well {
                return Err(String::from("told to"));
            }
            cx.grant().take(SCRATCH, SCRATCH_BYTES).map(|scratch| scratch.bytes()).map_err(|error| error.to_string())
        })
        .learning(Learning::MoreAndLess)
        .build()
        .expect("a pipeline");
    for _ in 0..2 * WINDOW {
        pipeline.submit("job", false).expect("taken on").wait().expect_err("told to");
    }
    let taken = pipeline.submit("job", true).expect("taken on").wait();
    assert_eq!(taken.map_err(|error| error.to_string()), Ok(SCRATCH_BYTES));
}

fn profile_of_one() -> Profile {
    Profile::new().stage("use", Demand::new().bytes(SCRATCH, SCRATCH_BYTES), Demand::new())
}

#[test]
fn a_correction_never_makes_a_job_impossible_and_is_forgotten_after_so_many_runs() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = drifting(&ledger, &pool, Learning::More);
    assert!(run(&pipeline, 1 << 40).is_err(), "a job gone wild");
    assert_eq!(run(&pipeline, 16), Ok(SCRATCH_BYTES));
    for _ in 0..WINDOW {
        run(&pipeline, 16).expect("a result");
    }
    assert!(!scratch_drift(&pipeline).is_short());
}

#[test]
fn a_stage_that_keeps_more_than_declared_costs_one_job_and_is_given_room_from_then_on() {
    let ledger = ledger(Bytes(256));
    let pool = pool(1);
    // Of up to 100 bytes it was to keep 64, and keeps 80, which the next stage has no room for.
    let bytes = |class, n| Demand::new().bytes(class, Bytes(n));
    let pipeline = Pipeline::builder(&ledger, &pool, move |_: &()| {
        Profile::new().stage("make", bytes(BUFFER, 100), bytes(BUFFER, 64)).stage(
            "use",
            bytes(BUFFER, 64).bytes(SCRATCH, Bytes(32)),
            Demand::new(),
        )
    })
    .stage("make", |cx, ()| cx.grant().take(BUFFER, Bytes(80)).map_err(|error| error.to_string()))
    .stage("use", |cx, _kept: Reservation| {
        cx.grant().take(SCRATCH, Bytes(32)).map(|scratch| scratch.bytes()).map_err(|error| error.to_string())
    })
    .build()
    .expect("a pipeline");
    let run = || pipeline.submit("job", ()).expect("taken on").wait();
    assert!(matches!(run(), Err(JobError::NotEntered { stage: "use", .. })));
    let kept = pipeline.drift().into_iter().find(|drift| (drift.stage, drift.of) == ("make", DriftOf::Keep));
    let kept = kept.expect("it ran");
    assert_eq!((kept.declared, kept.held, kept.is_short()), (Bytes(64), Bytes(80), true));
    for _ in 0..3 {
        assert_eq!(run().map_err(|error| error.to_string()), Ok(Bytes(32)));
    }
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn what_a_job_leaves_behind_is_learned_as_well() {
    let (ledger, pool) = (ledger(Bytes(256)), pool(1));
    let pipeline = Pipeline::builder(&ledger, &pool, |_: &()| {
        // It says that nothing of it is left.
        Profile::new().stage("make", Demand::new().bytes(BUFFER, Bytes(100)), Demand::new())
    })
    .stage("make", |cx, ()| cx.grant().take(BUFFER, Bytes(25)).map_err(|error| error.to_string()))
    .build()
    .expect("a pipeline");
    let results: Vec<_> =
        (0..3).map(|_| pipeline.submit("job", ()).expect("taken on").wait().expect("a result")).collect();
    assert_eq!(ledger.snapshot().outlived, 1, "the first one only");
    drop(results);
    assert!(ledger.snapshot().is_empty());
}
