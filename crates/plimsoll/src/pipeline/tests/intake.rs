//! Many jobs from one source: what is pulled, and that nobody is waited for in vain.

use super::*;
use crate::sync::{Mutex, lock, thread};

/// One stage that takes room for as much as it is told, and says the number of its job.
fn holding(ledger: &Ledger, pool: &Pool) -> Pipeline<u64, u64, Failed> {
    let profile = |bytes: &u64| {
        assert_ne!(*bytes, 13, "told to");
        Profile::new().stage("hold", Demand::new().bytes(BUFFER, Bytes(*bytes)), Demand::new())
    };
    Pipeline::builder(ledger, pool, profile).stage("hold", |_, bytes| Ok(bytes)).build().expect("a pipeline")
}

/// Jobs without end that can never fit, after `first`; counts how many were pulled.
fn refused<'a>(first: Option<u64>, pulled: &'a AtomicUsize) -> impl Iterator<Item = (&'static str, u64)> + 'a {
    first.into_iter().chain(std::iter::repeat(CLAIM.0 + 1)).map(|bytes| {
        // Nobody would see the end of it.
        assert!(pulled.fetch_add(1, Ordering::Relaxed) < 1000, "the source is pulled on without an answer");
        ("job", bytes)
    })
}

#[test]
fn a_source_without_end_is_answered_though_every_job_is_refused() {
    for closed in [false, true] {
        let (ledger, pool, pulled) = (ledger(CLAIM), pool(1), AtomicUsize::new(0));
        let pipeline = holding(&ledger, &pool);
        if closed {
            pipeline.close();
        }
        for in_order in [false, true] {
            pulled.store(0, Ordering::Relaxed);
            let results = pipeline.run_all(refused(None, &pulled));
            let results = if in_order { results.in_order() } else { results };
            for (at, (index, result)) in results.take(5).enumerate() {
                assert!(index == at && matches!(result, Err(JobError::Rejected { .. })), "{result:?}");
            }
            assert!(pulled.load(Ordering::Relaxed) <= 6);
        }
    }
}

#[test]
fn a_job_that_is_waited_for_is_not_hidden_by_refusals_behind_it() {
    let (ledger, pool, pulled) = (ledger(CLAIM), pool(1), AtomicUsize::new(0));
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let profile = |bytes: &u64| Profile::new().stage("s", Demand::new().bytes(BUFFER, Bytes(*bytes)), Demand::new());
    let pipeline = Pipeline::builder(&ledger, &pool, profile)
        .stage("s", move |_, bytes| {
            lock(&may_go_on).recv().expect("the test tells");
            Ok::<_, Failed>(bytes)
        })
        .build()
        .expect("a pipeline");
    // The first is told to go on by who pulls the second, which is refused and may not be yielded before it.
    let source = refused(Some(1), &pulled).inspect(|(_, bytes)| {
        if *bytes > CLAIM.0 {
            let _ = go_on.send(());
        }
    });
    let mut results = pipeline.run_all(source).in_order();
    assert!(matches!(results.next(), Some((0, Ok(1)))));
    assert!(matches!(results.next(), Some((1, Err(JobError::Rejected { .. })))));
    assert!(pulled.load(Ordering::Relaxed) <= 3);
}

#[cfg(feature = "stream")]
#[test]
fn a_stream_without_end_is_answered_though_every_job_is_refused() {
    use futures_core::Stream;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    struct Each<I>(I);
    impl<I: Iterator + Unpin> Stream for Each<I> {
        type Item = I::Item;
        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
            Poll::Ready(self.0.next())
        }
    }
    let (ledger, pool, pulled) = (ledger(CLAIM), pool(1), AtomicUsize::new(0));
    let pipeline = holding(&ledger, &pool);
    let mut results = pipeline.run_stream(Each(refused(None, &pulled)));
    for at in 0..5 {
        let next = Pin::new(&mut results).poll_next(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(next, Poll::Ready(Some((index, Err(JobError::Rejected { .. })))) if index == at), "{next:?}");
    }
    assert!(pulled.load(Ordering::Relaxed) <= 6);
}

#[test]
fn a_profile_that_panics_reaches_who_pulls_and_nothing_waits_for_its_job() {
    let (ledger, pool) = (ledger(CLAIM), pool(1));
    let pipeline = holding(&ledger, &pool);
    let mut results = pipeline.run_all([("one", 1), ("unlucky", 13), ("other", 2)]).in_order();
    let mut made = Vec::new();
    let mut panics = 0;
    loop {
        match crate::contain::contain(|| results.next()) {
            Ok(Some((index, result))) => made.push((index, result.expect("it fits"))),
            Ok(None) => break,
            Err(_) => panics += 1,
        }
    }
    assert_eq!((made, panics), (vec![(0, 1), (1, 2)], 1));
}

#[test]
fn a_job_that_begins_again_does_not_wait_for_those_whose_results_wait_for_it() {
    // Each makes 6 of 10, frees them, and ends with a result of 3. The first begins again when another has ended, whose result
    // then waits for its own.
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(10)));
    let pool = pool(2);
    let bytes = |n| Demand::new().bytes(BUFFER, Bytes(n));
    let profile = move |_: &usize| {
        let line = Profile::new().stage("make", bytes(6), Demand::new()).stage("mid", Demand::new(), Demand::new());
        line.stage("end", bytes(3), bytes(3))
    };
    let (go_on, may_go_on) = mpsc::channel::<()>();
    let (may_go_on, tries) = (Mutex::new(may_go_on), AtomicUsize::new(0));
    let ended = Arc::new(AtomicUsize::new(0));
    let counts = ended.clone();
    let pipeline = Pipeline::builder(&ledger, &pool, profile)
        .stage("make", |_, index: usize| Ok::<_, Failed>(index))
        .stage("mid", move |_, index| {
            if index == 0 && tries.fetch_add(1, Ordering::Relaxed) == 0 {
                lock(&may_go_on).recv().expect("the test tells");
                return Err(Failed(0));
            }
            Ok(index)
        })
        .from_start(Retry::times(1))
        .stage("end", |cx, _| Ok(cx.grant().take_all(BUFFER)))
        .observe(move |event| {
            if matches!(event, Event::JobEnded { .. }) {
                counts.fetch_add(1, Ordering::SeqCst);
            }
        })
        .pacing(Pacing::Unpaced)
        .build()
        .expect("a pipeline");
    thread::Builder::new()
        .spawn({
            let ledger = ledger.clone();
            move || {
                // One has ended, and another cannot come in.
                while ended.load(Ordering::SeqCst) == 0 || ledger.snapshot().waiters.is_empty() {
                    thread::yield_now();
                }
                go_on.send(()).expect("the first waits");
            }
        })
        .expect("a thread");
    let results = pipeline.run_all((0..4).map(|index| (index.to_string(), index))).in_order();
    let indices: Vec<_> = results.map(|(index, result)| (index, result.expect("a result").bytes())).collect();
    assert_eq!(indices, [0, 1, 2, 3].map(|index| (index, Bytes(3))));
    assert_eq!(ledger.snapshot().restarted, 1);
}

#[test]
fn results_may_be_put_in_order_after_some_of_them_were_taken() {
    let (ledger, pool) = (ledger(CLAIM.times(2)), pool(1));
    let pipeline = build(&ledger, &pool, quiet());
    let mut results = pipeline.run_all((0..6).map(|i| (i.to_string(), Order::Nothing)));
    let (first, _) = results.next().expect("six");
    let rest: Vec<_> = results.in_order().map(|(index, result)| result.map(|_| index).expect("a result")).collect();
    assert!(rest.iter().copied().eq((0..6).filter(|index| *index != first)), "{first}, then {rest:?}");
}
