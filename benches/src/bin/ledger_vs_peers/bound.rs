//! How often a large request is passed: 1,000 requests of mixed sizes at a time (as in `waiters`), on one thread and without a
//! runtime, so that the order in which they ask and are served is known and not guessed.
//!
//! Between a task's number and its request, and between its grant and its next step, other threads go on; so what tasks can
//! count of each other (`waiters`) is not what the peer did. Here a request is as old as its first poll, and it is served
//! when it is ready or woken for it. Whoever has held for longest returns what it holds and asks again.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use crate::peers::{Broadcast, Peer, Plimsoll, Tokio};
use crate::table::{Table, median};
use crate::waiters::{LARGE, LIMIT, TASKS, amount};

const RETURNS: usize = 50_000;

pub(crate) fn run() -> Vec<Table> {
    let columns = ["served", "large: served", "large: passed by, most", "median"];
    let mut table = Table::new("bound: 1,000 requests of mixed sizes, one thread", &columns);
    table.row(Tokio::NAME, &round::<Tokio>());
    table.row(Plimsoll::NAME, &round::<Plimsoll>());
    table.row(Broadcast::NAME, &round::<Broadcast>());
    #[cfg(feature = "datafusion")]
    {
        use crate::peers::datafusion::{Fair, Greedy};
        table.row(Greedy::NAME, &round::<Greedy>());
        table.row(Fair::NAME, &round::<Fair>());
    }
    vec![table]
}

/// Tells that a task was woken, once until it is polled.
struct Bell {
    task: usize,
    rung: AtomicBool,
    woken: mpsc::Sender<usize>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        if !self.rung.swap(true, Relaxed) {
            let _ = self.woken.send(self.task);
        }
    }
}

struct Request<H> {
    future: Option<Pin<Box<dyn Future<Output = H> + Send>>>,
    number: u64,
    passed: u64,
}

struct Crowd<P: Peer> {
    peer: P,
    bells: Vec<Arc<Bell>>,
    requests: Vec<Request<P::Held>>,
    woken: mpsc::Receiver<usize>,
    holding: VecDeque<(usize, P::Held)>,
    asked: u64,
    served: u64,
    /// How often each large request that was served had been passed.
    passed: Vec<f64>,
}

fn round<P: Peer>() -> [f64; 4] {
    let (sender, woken) = mpsc::channel();
    let bell = |task| Arc::new(Bell { task, rung: AtomicBool::new(false), woken: sender.clone() });
    let requests = (0..TASKS).map(|_| Request { future: None, number: 0, passed: 0 }).collect();
    let (bells, holding) = ((0..TASKS).map(bell).collect(), VecDeque::new());
    let mut crowd =
        Crowd { peer: P::new(LIMIT), bells, requests, woken, holding, asked: 0, served: 0, passed: Vec::new() };
    for task in 0..TASKS {
        crowd.ask(task);
    }
    for _ in 0..RETURNS {
        let Some((task, held)) = crowd.holding.pop_front() else { break };
        drop(held);
        // Whoever wakes itself, because it can do nothing else, comes again after the next return.
        for task in crowd.woken.try_iter().collect::<Vec<_>>() {
            crowd.poll(task);
        }
        crowd.ask(task);
    }
    let waiting =
        crowd.requests.iter().enumerate().filter(|(task, request)| amount(*task) == LARGE && request.future.is_some());
    let still: Vec<f64> = waiting.map(|(_, request)| request.passed as f64).collect();
    let served = crowd.passed.len() as f64;
    let all: Vec<f64> = crowd.passed.into_iter().chain(still).collect();
    [crowd.served as f64, served, all.iter().copied().fold(0.0, f64::max), median(all)]
}

impl<P: Peer> Crowd<P> {
    fn ask(&mut self, task: usize) {
        self.asked += 1;
        let peer = self.peer.clone();
        let future = Box::pin(async move { peer.take(amount(task)).await });
        self.requests[task] = Request { future: Some(future), number: self.asked, passed: 0 };
        self.poll(task);
    }

    fn poll(&mut self, task: usize) {
        self.bells[task].rung.store(false, Relaxed);
        let waker = Waker::from(self.bells[task].clone());
        let Some(future) = &mut self.requests[task].future else { return };
        let Poll::Ready(held) = future.as_mut().poll(&mut Context::from_waker(&waker)) else { return };
        self.requests[task].future = None;
        self.served += 1;
        let Request { number, passed, .. } = self.requests[task];
        if amount(task) == LARGE {
            self.passed.push(passed as f64);
        }
        for request in self.requests.iter_mut().step_by(100) {
            request.passed += u64::from(request.future.is_some() && request.number < number);
        }
        self.holding.push_back((task, held));
    }
}
