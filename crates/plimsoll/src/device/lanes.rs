//! A device's lanes: threads that take granted work from one queue, each with its own opened driver.
//!
//! The queue is short by construction: work on a device holds one of its lanes (a slot of the ledger), and there are as
//! many threads as slots, so that each piece of work finds a thread that is free or about to be. The exception is a key that is
//! filled (`Device::fill`): it holds no lane and occupies a thread all the same, so that for as long as it takes one piece of
//! granted work may have to wait. In which order jobs get lanes and lease, the ledger has decided.
//!
//! A thread's driver sits in a thread-local *seat* while it runs something, so that what comes by way of a pipeline (which
//! knows nothing of drivers) finds it there.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;

use super::driver::{Driver, DriverError};
use super::error::{DeviceError, Loss, StartError};
use crate::Space;
use crate::contain::contain;
use crate::ledger::Ledger;
use crate::pipeline::Errand;
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Arc, Condvar, Mutex, lock, thread, thread_local, wait};

/// Something to do on a lane.
pub(super) enum Work {
    /// Dropped without having been run, it tells whoever waits for it.
    Own(Box<dyn FnOnce() + Send>),
    /// A pipeline's. It is run in any case: where there is no device any more its stage says so, by an error of the pipeline's
    /// own type.
    Errand(Errand),
}

impl Work {
    fn run(self) {
        match self {
            Work::Own(work) => work(),
            Work::Errand(errand) => errand.run(),
        }
    }

    /// What becomes of it when the device is lost.
    fn refuse(self) {
        match self {
            Work::Own(work) => drop(work),
            Work::Errand(errand) => errand.run(),
        }
    }
}

/// What the lanes of a device share, whatever its driver.
#[derive(Debug)]
pub(super) struct Lanes {
    pub(super) number: u16,
    ledger: Ledger,
    queue: Mutex<Queue>,
    bell: Condvar,
    /// A copy of `queue.lost.is_some()`, to be looked at before each call of the driver.
    is_lost: AtomicBool,
    /// How many stages were begun.
    begun: AtomicUsize,
}

struct Queue {
    work: VecDeque<Work>,
    closed: bool,
    lost: Option<Loss>,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("work", &self.work.len()).field("lost", &self.lost).finish_non_exhaustive()
    }
}

impl Lanes {
    pub(super) fn new(number: u16, ledger: Ledger) -> Self {
        let queue = Queue { work: VecDeque::new(), closed: false, lost: None };
        Self {
            number,
            ledger,
            queue: Mutex::new(queue),
            bell: Condvar::new(),
            is_lost: AtomicBool::new(false),
            begun: AtomicUsize::new(0),
        }
    }

    /// Queues work; a device that is closed or lost refuses it.
    pub(super) fn submit(&self, work: Box<dyn FnOnce() + Send>) {
        self.queue(Work::Own(work));
    }

    /// Queues an errand of a pipeline.
    pub(super) fn carry(&self, errand: Errand) {
        self.queue(Work::Errand(errand));
    }

    fn queue(&self, work: Work) {
        let mut queue = lock(&self.queue);
        if queue.closed || queue.lost.is_some() {
            // Outside of the lock: it returns a grant.
            drop(queue);
            work.refuse();
            return;
        }
        queue.work.push_back(work);
        drop(queue);
        self.bell.notify_one();
    }

    /// What there is to do next; `None` when the lane is to end.
    fn next(&self) -> Option<Work> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(work) = queue.work.pop_front() {
                return Some(work);
            }
            if queue.closed || queue.lost.is_some() {
                return None;
            }
            queue = wait(&self.bell, queue, None);
        }
    }

    /// Lets the lanes end when the queue is empty.
    pub(super) fn close(&self) {
        lock(&self.queue).closed = true;
        self.bell.notify_all();
    }

    /// Counts a stage that begins. Relaxed, as below: a count that carries nothing with it.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// How many stages were begun so far.
    pub(super) fn begun(&self) -> usize {
        self.begun.load(Ordering::Relaxed)
    }

    /// Whether the device was given up: to choose among devices.
    pub(super) fn is_lost(&self) -> bool {
        // Acquire: partner of the Release in `give_up`.
        self.is_lost.load(Ordering::Acquire)
    }

    /// Why the device was given up, if it was. Whoever is told may ask to be admitted again at once, and must not be sent here
    /// another time: by then the ledger has retired the device, whoever found the loss.
    pub(super) fn loss(&self) -> Option<Loss> {
        if !self.is_lost() {
            return None;
        }
        if !mutant!("told-before-retired") {
            self.retire();
        }
        lock(&self.queue).lost.clone()
    }

    /// Has the ledger give the device up, unless it has.
    fn retire(&self) {
        // Refused only where the budget does not name the device; then nothing is held there.
        let _ = self.ledger.retire(Space::device(self.number));
    }

    /// Why work is not done any more.
    pub(super) fn refusal(&self) -> DeviceError {
        match self.loss() {
            Some(loss) => DeviceError::Lost(loss),
            None => DeviceError::ShutDown { device: self.number },
        }
    }

    /// Gives the device up, once: its limits and what is held of them go together, queued work is refused, and the lanes
    /// end when what they are at has ended.
    pub(super) fn give_up(&self, cause: DriverError) -> Loss {
        let mut queue = lock(&self.queue);
        let loss = queue.lost.get_or_insert(Loss { device: self.number, cause }).clone();
        self.is_lost.store(true, Ordering::Release);
        // Nobody queues any more: whoever comes second finds nothing here.
        let refused = std::mem::take(&mut queue.work);
        drop(queue);
        self.bell.notify_all();
        // First the ledger, so that nothing is granted here any more, then those who were to be next.
        self.retire();
        for work in refused {
            // What one of them holds may panic when it is dropped: the others are told all the same.
            drop(contain(|| work.refuse()));
        }
        loss
    }
}

/// A lane's driver, on the lane's thread.
pub(super) struct Seat<D: Driver> {
    pub(super) lanes: Arc<Lanes>,
    pub(super) lane: D::Lane,
}

thread_local! {
    static SEAT: RefCell<Option<Box<dyn Any>>> = const { RefCell::new(None) };
}

/// Calls `f` with the seat of the calling lane; `None` if this is no lane of such a driver, or one that is inside of a
/// stage already.
pub(super) fn seated<D: Driver, R>(f: impl FnOnce(&mut Seat<D>) -> R) -> Option<R> {
    /// Puts the seat back, also when `f` panics.
    struct Back<D: Driver>(Option<Box<Seat<D>>>);
    impl<D: Driver> Drop for Back<D> {
        fn drop(&mut self) {
            let seat = self.0.take().map(|seat| seat as Box<dyn Any>);
            SEAT.with(|place| *place.borrow_mut() = seat);
        }
    }
    // A thread that is ending has no seat any more.
    let seat = SEAT.try_with(|place| place.borrow_mut().take()).ok().flatten()?;
    match seat.downcast::<Seat<D>>() {
        Ok(seat) => {
            let mut back = Back(Some(seat));
            Some(f(back.0.as_mut().expect("put there above")))
        }
        Err(other) => {
            SEAT.with(|place| *place.borrow_mut() = Some(other));
            None
        }
    }
}

/// Whether the calling thread is one of these lanes, between two stages.
pub(super) fn is_lane_of<D: Driver>(lanes: &Arc<Lanes>) -> bool {
    let is_seated = SEAT.try_with(|place| {
        let seat = place.borrow();
        let seat = seat.as_ref().and_then(|seat| seat.downcast_ref::<Seat<D>>());
        seat.is_some_and(|seat| Arc::ptr_eq(&seat.lanes, lanes))
    });
    is_seated.unwrap_or(false)
}

/// The life of a lane's thread: open, work, close.
fn live<D: Driver>(lanes: &Arc<Lanes>, lane: D::Lane) {
    let seat: Box<dyn Any> = Box::new(Seat::<D> { lanes: lanes.clone(), lane });
    SEAT.with(|place| *place.borrow_mut() = Some(seat));
    while let Some(work) = lanes.next() {
        // What runs here contains its panics: this is for what a destructor does.
        drop(contain(|| work.run()));
    }
    // On the thread that opened it.
    let seat = SEAT.with(|place| place.borrow_mut().take());
    drop(seat);
}

/// Starts the threads of a device's lanes, and waits until each has opened the device.
pub(super) fn start<D: Driver>(
    lanes: &Arc<Lanes>,
    driver: &Arc<D>,
    count: usize,
    name: &str,
) -> Result<Vec<thread::JoinHandle<()>>, StartError> {
    let device = lanes.number;
    if count == 0 {
        return Err(StartError::NoLanes { device });
    }
    let mut threads = Vec::with_capacity(count);
    let opened: Arc<Opened> = Arc::new(Opened::default());
    let mut outcome = Ok(());
    for lane in 0..count {
        let (lanes, driver, opened) = (lanes.clone(), driver.clone(), opened.clone());
        let open = move || match mutant!("open-panics-untold") {
            true => driver.open(lane),
            false => contain(|| driver.open(lane))
                .unwrap_or_else(|panic| Err(DriverError::Broken { message: panic.message() })),
        };
        let body = move || match open() {
            Ok(open) => {
                opened.tell(Ok(()));
                live::<D>(&lanes, open);
            }
            Err(source) => opened.tell(Err(StartError::Open { device: lanes.number, lane, source })),
        };
        match thread::Builder::new().name(format!("{name}{device}-lane{lane}")).spawn(body) {
            Ok(thread) => threads.push(thread),
            Err(source) => {
                outcome = Err(StartError::Thread { device, lane, source });
                break;
            }
        }
    }
    let outcome = outcome.and(opened.wait_for(threads.len()));
    if let Err(error) = outcome {
        lanes.close();
        for thread in threads {
            let _ = thread.join();
        }
        return Err(error);
    }
    Ok(threads)
}

/// How many lanes have opened the device, and the first error.
#[derive(Debug, Default)]
struct Opened {
    state: Mutex<(usize, Option<StartError>)>,
    bell: Condvar,
}

impl Opened {
    fn tell(&self, outcome: Result<(), StartError>) {
        let mut state = lock(&self.state);
        state.0 += 1;
        if let Err(error) = outcome {
            state.1.get_or_insert(error);
        }
        drop(state);
        self.bell.notify_all();
    }

    fn wait_for(&self, lanes: usize) -> Result<(), StartError> {
        let mut state = lock(&self.state);
        while state.0 < lanes {
            state = wait(&self.bell, state, None);
        }
        state.1.take().map_or(Ok(()), Err)
    }
}
