//! Pipelines fed by streams and channels, with results as streams and in channels.
#![cfg(all(feature = "async-channel", feature = "tokio"))]

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use plimsoll::pipeline::{JobError, JobOptions, Pipeline};
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Class, Demand, Ledger, Profile, Space};

const BUFFER: Class = Class::new("buffer", Space::HOST);

/// Room for so many jobs at once; a job returns its number, or fails if that is divisible by 5.
fn doubling(jobs: u64) -> (Ledger, Pipeline<u64, u64, String>) {
    let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(jobs)));
    let pool = Pool::new(PoolConfig { threads: 2, ..PoolConfig::default() }).unwrap();
    let all = || Demand::new().bytes(BUFFER, Bytes(1));
    let profile = move |_: &u64| Profile::new().stage("hold", all(), all()).stage("double", all(), Demand::new());
    let pipeline = Pipeline::builder(&ledger, &pool, profile)
        .stage("hold", |cx, n: u64| Ok((n, cx.grant().take_all(BUFFER))))
        .stage("double", |_, (n, _held)| if n % 5 == 0 { Err(format!("{n}")) } else { Ok(2 * n) })
        .build()
        .unwrap();
    (ledger, pipeline)
}

/// Numbers, each of which has to be waited for once; counts how many were taken.
struct Slow {
    numbers: std::ops::Range<u64>,
    hesitated: bool,
    taken: Arc<AtomicUsize>,
}

impl Stream for Slow {
    type Item = (JobOptions, u64);

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.hesitated = !self.hesitated;
        if self.hesitated {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let next = self.numbers.next();
        self.taken.fetch_add(usize::from(next.is_some()), Ordering::Relaxed);
        Poll::Ready(next.map(|n| (JobOptions::new(n.to_string()), n)))
    }
}

async fn next<S: Stream>(stream: &mut Pin<&mut S>) -> Option<S::Item> {
    std::future::poll_fn(|cx| stream.as_mut().poll_next(cx)).await
}

#[tokio::test]
async fn a_stream_of_jobs_becomes_a_stream_of_results() {
    for (room, at_most) in [(1, 1), (3, 2), (3, 100)] {
        let (ledger, pipeline) = doubling(room);
        let taken = Arc::new(AtomicUsize::new(0));
        let inputs = Slow { numbers: 0..40, hesitated: false, taken: taken.clone() };
        let mut results = pin!(pipeline.run_stream(inputs).in_order().at_most(at_most));
        for n in 0..40 {
            let (index, result) = next(&mut results).await.unwrap();
            assert_eq!(index as u64, n);
            // All that were taken are yielded, under way, or the one that waits.
            assert!(taken.load(Ordering::Relaxed) <= index + at_most);
            match result {
                Ok(double) => assert_eq!(double, 2 * n),
                Err(JobError::Stage { source, .. }) => assert_eq!((source, n % 5), (n.to_string(), 0)),
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(next(&mut results).await.is_none());
        assert!(ledger.snapshot().is_empty());
    }
}

#[tokio::test]
async fn jobs_come_from_a_channel_and_their_results_go_to_another() {
    let (ledger, pipeline) = doubling(2);
    let (send, jobs) = async_channel::bounded(1);
    let (results, receive) = async_channel::bounded::<(usize, Result<u64, JobError<String>>)>(1);
    let feed = async {
        for n in 1..=30u64 {
            send.send((format!("job {n}"), n)).await.unwrap();
        }
        drop(send);
    };
    let collect = async {
        let mut sum = 0;
        while let Ok((_, result)) = receive.recv().await {
            sum += result.unwrap_or(0);
        }
        sum
    };
    let ((), (), sum) = tokio::join!(feed, pipeline.run_stream(jobs).send_to(results), collect);
    let all: u64 = (1..=30).filter(|n| n % 5 != 0).map(|n| 2 * n).sum();
    assert_eq!(sum, all);
    assert!(ledger.snapshot().is_empty());
}

#[tokio::test]
async fn a_stream_dropped_early_or_a_receiver_gone_cancels_the_rest() {
    let (ledger, pipeline) = doubling(2);
    let endless = || Slow { numbers: 1..u64::MAX, hesitated: false, taken: Arc::default() };
    {
        let mut results = pin!(pipeline.run_stream(endless()));
        assert!(next(&mut results).await.is_some());
    }
    let (results, receive) = async_channel::bounded::<(usize, Result<u64, JobError<String>>)>(1);
    let stops = async {
        receive.recv().await.unwrap().1.unwrap();
        drop(receive);
    };
    tokio::join!(pipeline.run_stream(endless()).send_to(results), stops);
    pipeline.drain();
    assert!(ledger.snapshot().is_empty());
    assert_eq!(pipeline.submit("after", 3).unwrap().await.unwrap(), 6);
}

/// Counts how often a task is told.
#[derive(Default)]
struct Told(AtomicUsize);

impl std::task::Wake for Told {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_receiver_that_goes_while_a_result_is_long_in_coming_ends_the_run_at_once() {
    let (ledger, pipeline) = doubling(1);
    let taken = Arc::new(AtomicUsize::new(0));
    let inputs = Slow { numbers: 1..u64::MAX, hesitated: true, taken: taken.clone() };
    let (results, receive) = async_channel::bounded::<(usize, Result<u64, JobError<String>>)>(1);
    // The first job waits for what others hold.
    let held = ledger.reserve(BUFFER, Bytes(1)).try_now().unwrap();
    let told = Arc::new(Told::default());
    let waker = told.clone().into();
    let mut run = pin!(pipeline.run_stream(inputs).send_to(results));
    assert!(run.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!((taken.load(Ordering::Relaxed), pipeline.in_flight()), (1, 1));
    let before = told.0.load(Ordering::SeqCst);
    drop(receive);
    assert!(told.0.load(Ordering::SeqCst) > before, "it is told");
    assert!(run.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
    assert_eq!(
        (taken.load(Ordering::Relaxed), pipeline.in_flight()),
        (1, 0),
        "the job is cancelled, and none was pulled"
    );
    drop(held);
    assert!(ledger.snapshot().is_empty());
}
