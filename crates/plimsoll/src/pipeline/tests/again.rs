//! Stages that fail and are run again, from their input or from the job's start.

use super::kinds::{Hand, KINDS, Kind, once_around};
use super::*;
use crate::sync::{Mutex, lock};

type Calls = Arc<Mutex<Vec<usize>>>;

/// What a try is told: to fail, and how. The first entry is for the first try; the last for all later ones.
type Script = &'static [Option<Failure>];

#[derive(Debug, PartialEq, Eq)]
struct Told(Failure);

fn told(script: Script, nth: usize) -> Result<(), Told> {
    script[nth.min(script.len() - 1)].map_or(Ok(()), |failure| Err(Told(failure)))
}

/// Makes a buffer, and does something with it that fails as the script says, with scratch.
fn build_again(
    kind: Kind,
    retry: Retry,
    script: Script,
    (ledger, pool, hand): (&Ledger, &Pool, &Hand),
    calls: &Calls,
) -> Pipeline<(), usize, Told> {
    let keep = Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let builder = Pipeline::builder(ledger, pool, move |()| {
        let peak = keep.clone().bytes(SCRATCH, SCRATCH_BYTES);
        Profile::new().stage("make", keep.clone(), keep.clone()).stage("try", peak, Demand::new())
    })
    .stage("make", {
        let calls = calls.clone();
        move |cx, ()| {
            lock(&calls).push(0);
            Ok(cx.grant().vec::<u8>(BUFFER, BUFFER_BYTES.0 as usize).expect("granted"))
        }
    });
    let (calls, ledger) = (calls.clone(), ledger.clone());
    let work = move |grant: &mut Grant, buffer: &Buffer| {
        let nth = lock(&calls).iter().filter(|call| **call == 1).count();
        lock(&calls).push(1);
        let _scratch = grant.take(SCRATCH, SCRATCH_BYTES).expect("granted each time");
        // The input is charged once, whatever number of tries this is.
        assert_eq!(ledger.snapshot().class(BUFFER).expect("used").totals.held, BUFFER_BYTES.0);
        told(script, nth).map(|()| buffer.bytes().0 as usize)
    };
    let builder = match kind {
        Kind::Worker => builder.stage_again("try", retry, move |cx, buffer| work(cx.grant(), buffer)),
        Kind::Carried => {
            builder.stage_on_again("try", &hand.carrier(), retry, move |cx, buffer| work(cx.grant(), buffer))
        }
        Kind::Task => {
            let work = Arc::new(work);
            builder.async_stage_again("try", &hand.runtime(), retry, move |cx, buffer| {
                let work = work.clone();
                async move {
                    once_around().await;
                    let done = cx.with_grant(|grant| work(grant, &buffer)).expect("not ended");
                    once_around().await;
                    done
                }
            })
        }
    };
    builder.failures(|Told(failure)| *failure).build().expect("a pipeline")
}

#[test]
fn a_stage_of_any_kind_is_tried_again_from_its_input_as_often_as_it_says() {
    const NOT_YET: Option<Failure> = Some(Failure::Transient);
    let cases: [(Script, usize, bool); 6] = [
        (&[None], 1, true),
        (&[NOT_YET, None], 2, true),
        (&[NOT_YET, NOT_YET, None], 3, true),
        (&[NOT_YET], 3, false),
        (&[Some(Failure::Fatal), None], 1, false),
        // Out of memory is not counted, only timed.
        (&[Some(Failure::OutOfMemory), Some(Failure::OutOfMemory), Some(Failure::OutOfMemory), None], 4, true),
    ];
    for kind in KINDS {
        for (script, tries, succeeds) in cases {
            let (ledger, pool, hand, calls) = (ledger(CLAIM), pool(1), Hand::new(), Calls::default());
            let retry = Retry::times(2);
            let pipeline = build_again(kind, retry, script, (&ledger, &pool, &hand), &calls);
            match pipeline.submit("job", ()).expect("taken on").wait() {
                Ok(bytes) => assert_eq!((bytes, succeeds), (64, true)),
                Err(JobError::Stage { stage: "try", source, .. }) => {
                    assert_eq!((Some(source.0), succeeds), (script[tries.min(script.len()) - 1], false));
                }
                Err(other) => panic!("{kind:?} {script:?}: {other:?}"),
            }
            assert_eq!(lock(&calls).iter().filter(|call| **call == 1).count(), tries, "{kind:?} {script:?}");
            ledger.quiesce(Duration::from_secs(10)).expect("quiet");
            assert!(ledger.snapshot().is_empty());
            let stats = pipeline.stats()[1];
            assert_eq!((stats.count, stats.retried), (tries as u64, tries as u64 - 1));
        }
    }
}

/// The steps: (times it is run, its name); the last fails so many times.
fn from_start(
    ledger: &Ledger,
    pool: &Pool,
    times: u32,
    failures: usize,
    calls: &Calls,
) -> Pipeline<usize, usize, Failed> {
    let keep = Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let (made, used) = (calls.clone(), calls.clone());
    Pipeline::builder(ledger, pool, move |_: &usize| {
        Profile::new().stage("make", keep.clone(), keep.clone()).stage("use", keep.clone(), Demand::new())
    })
    .stage("make", move |cx, input: usize| {
        lock(&made).push(input);
        Ok((input, cx.grant().take_all(BUFFER)))
    })
    .stage("use", move |_, (input, _buffer)| {
        let runs = lock(&used).len();
        if runs > failures { Ok(input) } else { Err(Failed(runs)) }
    })
    .from_start(Retry::times(times))
    .build()
    .expect("a pipeline")
}

#[test]
fn a_job_begins_again_from_its_start_as_often_as_it_says() {
    for (times, failures) in [(0, 0), (1, 1), (3, 2), (2, 3), (0, 1)] {
        let (ledger, pool, calls) = (ledger(BUFFER_BYTES), pool(1), Calls::default());
        let pipeline = from_start(&ledger, &pool, times, failures, &calls);
        let others: Vec<_> = pipeline.run_all([("only", 7)]).collect();
        match &others[..] {
            [(0, Ok(7))] => assert!(failures <= times as usize),
            [(0, Err(JobError::Stage { stage: "use", source, .. }))] => assert_eq!(source.0, times as usize + 1),
            other => panic!("{other:?}"),
        }
        assert_eq!(*lock(&calls), vec![7; failures.min(times as usize) + 1]);
        ledger.quiesce(Duration::from_secs(10)).expect("quiet");
        assert!(ledger.snapshot().is_empty());
    }
}

#[test]
fn panics_are_not_tried_again() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = Pipeline::builder(&ledger, &pool, |()| Profile::new().stage("s", Demand::new(), Demand::new()))
        .stage_again("s", Retry::times(9), |_, ()| -> Result<(), Failed> { panic!("told to") })
        .build()
        .expect("a pipeline");
    assert!(matches!(pipeline.submit("job", ()).expect("taken on").wait(), Err(JobError::Panicked { .. })));
    assert_eq!(pipeline.stats()[0].count, 1);
}

#[test]
fn a_job_that_rests_before_its_next_try_is_cancelled_at_once_and_occupies_no_worker() {
    let (ledger, pool, hand, calls) = (ledger(CLAIM), pool(1), Hand::new(), Calls::default());
    let retry = Retry::times(1).pause(Duration::from_secs(1 << 20)).within(Duration::from_secs(1 << 30));
    let pipeline = build_again(Kind::Worker, retry, &[Some(Failure::Transient)], (&ledger, &pool, &hand), &calls);
    let ticket = pipeline.submit("job", ()).expect("taken on");
    while pipeline.stats()[1].retried == 0 {
        std::thread::yield_now();
    }
    until_idle(&pool);
    assert_eq!(pool.install(|| 7), 7);
    // It keeps its input, and has given back the rest.
    assert_eq!(ledger.snapshot().space(Space::HOST).expect("named").held, BUFFER_BYTES);
    ticket.cancel();
    assert!(ticket.has_ended());
    assert!(matches!(ticket.wait(), Err(JobError::Cancelled { stage: "try", .. })));
    assert!(ledger.snapshot().is_empty());
}

#[test]
fn a_stage_that_stays_out_of_memory_is_asked_for_less() {
    // The plans' scratch: of the third the first stage would have kept less, so it is none for a job that holds a buffer.
    let plan = |scratch, buffer| {
        let keep = Demand::new().bytes(BUFFER, Bytes(buffer));
        let peak = keep.clone().bytes(SCRATCH, Bytes(scratch));
        Profile::new().stage("make", keep.clone(), keep).stage("try", peak, Demand::new())
    };
    for (enough, sizes) in [(8, vec![16, 8]), (16, vec![16]), (4, vec![16, 8, 2]), (0, vec![16, 8, 2])] {
        let (ledger, pool, tried) = (ledger(CLAIM), pool(1), Calls::default());
        let sizes_tried = tried.clone();
        let pipeline = Pipeline::builder(&ledger, &pool, move |()| plan(16, 64))
            .alternatives(move |()| vec![plan(32, 64), plan(8, 64), plan(2, 32), plan(2, 64)])
            .stage("make", |cx, ()| Ok(cx.grant().take_all(BUFFER)))
            .stage_again("try", Retry::times(0).within(Duration::ZERO), move |cx, _buffer| {
                let size = cx.grant().take_all(SCRATCH).bytes().0;
                lock(&sizes_tried).push(size as usize);
                let choice = cx.grant().choice();
                assert_eq!([16, 32, 8, 2, 2][choice], size);
                if size <= enough { Ok(size) } else { Err(Told(Failure::OutOfMemory)) }
            })
            .failures(|Told(failure)| *failure)
            .build()
            .expect("a pipeline");
        let result = pipeline.submit("job", ()).expect("taken on").wait();
        assert_eq!(*lock(&tried), sizes);
        match result {
            Ok(size) => assert_eq!(size as usize, sizes[sizes.len() - 1]),
            Err(JobError::Stage { source: Told(Failure::OutOfMemory), .. }) => assert_eq!(enough, 0),
            Err(other) => panic!("{other:?}"),
        }
        ledger.quiesce(Duration::from_secs(10)).expect("quiet");
        assert!(ledger.snapshot().is_empty());
    }
}

#[test]
fn an_input_that_is_kept_for_another_start_is_charged_until_nothing_may_want_it() {
    const INPUT: Class = Class::new("input", Space::HOST);
    // One job, its input included: a second one that did not count that would not wait.
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(64 + 8)));
    let (pool, starts) = (pool(2), Arc::new(AtomicUsize::new(0)));
    let held = |ledger: &Ledger| ledger.snapshot().class(INPUT).map_or(0, |input| input.totals.held);
    let (watch, rest, counted) = (ledger.clone(), ledger.clone(), starts.clone());
    let buffer = Demand::new().bytes(BUFFER, BUFFER_BYTES);
    let pipeline = Pipeline::builder(&ledger, &pool, move |_: &Vec<u8>| {
        Profile::new().stage("make", buffer.clone(), buffer.clone()).stage("try", buffer.clone(), buffer.clone()).stage(
            "rest",
            buffer.clone(),
            Demand::new(),
        )
    })
    .stage("make", |cx, input: Vec<u8>| Ok((input.len(), cx.grant().take_all(BUFFER))))
    .stage("try", move |_, made| {
        assert_eq!(held(&watch), 8);
        if counted.fetch_add(1, Ordering::Relaxed) % 3 < 2 { Err(Told(Failure::Transient)) } else { Ok(made) }
    })
    .from_start(Retry::times(2))
    .stage("rest", move |_, (len, _buffer)| {
        assert_eq!(held(&rest), 0, "nothing begins again any more");
        Ok(len)
    })
    .charge_input(INPUT, |input| Bytes(input.len() as u64))
    .failures(|Told(failure)| *failure)
    .build()
    .expect("a pipeline");
    let tickets: Vec<_> = (0..4).map(|_| pipeline.submit("job", vec![1; 8]).expect("taken on")).collect();
    for ticket in tickets {
        assert_eq!(ticket.wait().expect("a result"), 8);
    }
    assert_eq!(starts.load(Ordering::Relaxed), 12);
    // The inputs of jobs that fail or are too large are given back, too.
    starts.store(0, Ordering::Relaxed);
    let failing = [pipeline.submit("fails", vec![1; 8]), pipeline.submit("cancelled", vec![1; 8])];
    for ticket in failing {
        let ticket = ticket.expect("taken on");
        ticket.cancel();
        let _ = ticket.wait();
    }
    assert!(pipeline.submit("too large", vec![1; 9]).is_err());
    drop(pipeline);
    let snapshot = ledger.snapshot();
    assert!(snapshot.is_empty() && snapshot.outlived == 0, "{snapshot:?}");
    assert_eq!(snapshot.space(Space::HOST).expect("named").peak, Bytes(72));
}

#[test]
fn a_job_begins_again_after_the_allocator_has_refused_it_memory() {
    const TOO_MUCH: usize = isize::MAX as usize / 2;
    let (ledger, pool) = (ledger(Bytes(TOO_MUCH as u64)), pool(1));
    let peak = Demand::new().bytes(BUFFER, Bytes(TOO_MUCH as u64));
    let pipeline =
        Pipeline::builder(&ledger, &pool, move |_: &u8| Profile::new().stage("s", peak.clone(), Demand::new()))
            .stage("s", {
                let tries = AtomicUsize::new(0);
                move |cx, input: u8| {
                    if tries.fetch_add(1, Ordering::Relaxed) == 0 {
                        let refused = cx.grant().vec::<u8>(BUFFER, TOO_MUCH).map(drop);
                        assert_eq!(cx.grant().left(BUFFER), Bytes(TOO_MUCH as u64), "back in the grant");
                        refused?;
                    }
                    Ok::<_, crate::ledger::VecError>(input)
                }
            })
            .from_start(Retry::times(1))
            .pacing(Pacing::Unpaced)
            .build()
            .expect("a pipeline");
    assert_eq!(pipeline.submit("job", 7).expect("taken on").wait().expect("a result"), 7);
    assert!(ledger.snapshot().is_empty());
}
