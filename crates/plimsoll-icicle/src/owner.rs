//! The one thread that calls ICICLE for a device.
//!
//! ICICLE's active device belongs to the thread, new threads start on the processor, and freeing another device's buffer
//! switches the thread to that device. So each device has one thread, its *owner*, which makes every call for it: workers hand
//! their calls over and wait. A buffer remembers its owner, and whoever drops it hands the freeing over as well.
//!
//! # A call
//!
//! ```text
//!  worker    call(f) ──▶ queue ·············· waits ·································▶ returns
//!  owner                   ▼ f begins work on a stream │ next call begins on another │ synchronises the first ─▶ tells
//! ```
//!
//! 1. The owner takes a call while it has a stream to spare; the closure begins copies and computations on that stream, and
//!    returns while they go on.
//! 2. When there is no further call, or no further stream, the owner synchronises the stream of the oldest one, and tells its
//!    worker. Calls that must be alone wait for all others first.
//!
//! **What a call uses outlives its synchronisation, by type.** A [`Scope`] takes host slices and device memory for `'env`, a
//! lifetime that began before [`Owner::call`] and ends after it has returned; and that returns after the owner has synchronised,
//! also where the closure fails or panics. (A device that will not be synchronised, neither the stream twice nor all of it, has fallen
//! silent: it is never called again in this process, not even to free or to be opened, since nobody could wait for what it does.)
//! Device memory of another owner is refused. A buffer of the closure's own does not live long enough:
//!
//! ```compile_fail
//! # use plimsoll_icicle::device::{DeviceMemory, Owner};
//! # fn example(owner: &Owner, memory: &DeviceMemory) {
//! owner.call("copy", |scope| {
//!     let local = vec![7_u8; 32];
//!     scope.copy_in(&local, memory.all())
//! });
//! # }
//! ```
//!
//! ```no_run
//! # use plimsoll_icicle::device::{DeviceMemory, Owner};
//! # fn example(owner: &Owner, memory: &DeviceMemory) {
//! let outside = vec![7_u8; 32];
//! owner.call("copy", |scope| scope.copy_in(&outside, memory.all()));
//! # }
//! ```
//!
//! **A device that was given up computes nothing more, and is tidied up.** One that has leaked too much, or gave a wrong answer, is
//! still erased, freed, and relieved of its domain; only one that has fallen silent is not.
//!
//! **What callers wrote may panic, also when it is dropped.** Both happen on this thread, which hands the panic to its caller and goes
//! on: others' work is under way on it.

mod claim;
mod extension;
mod here;
mod memory;
mod scope;
mod sum;

use std::cell::Cell;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle, ThreadId};

use self::claim::Claim;
use self::here::Here;
pub use self::memory::{DeviceMemory, Part};

pub(crate) use self::here::registered;
pub(crate) use self::scope::{Holdings, Remains};
pub use self::scope::{MsmCall, Plain, Scope};
pub use self::sum::Sum;
use crate::error::{CallError, Fault, OpenError};
use crate::library::Library;
use crate::name::DeviceName;
use crate::trust::Scaling;

thread_local! {
    /// Whether this is some device's thread.
    static IS_OWNER: Cell<bool> = const { Cell::new(false) };
}

/// A device of ICICLE's and the thread that calls it: the only one in this process. Dropping the last handle lets the thread finish
/// and end, and the device be opened again.
pub struct Owner {
    library: &'static Library,
    name: DeviceName,
    /// `None` once it is being dropped.
    queue: Option<Sender<Message>>,
    handle: Option<JoinHandle<()>>,
    thread: ThreadId,
    /// How many devices of its kind there are.
    siblings: u16,
    shared: Arc<Shared>,
}

/// What owner and workers both look at.
#[derive(Debug, Default)]
struct Shared {
    /// Why the device was given up.
    lost: OnceLock<String>,
    /// It does not say any more when it is done, so that it is not called again, whatever for.
    silent: AtomicBool,
    /// Bytes of device memory that are allocated.
    allocated: AtomicU64,
    /// Bytes of buffers that ICICLE would not free, since somebody last asked.
    unfreed: AtomicU64,
    /// The most that failed calls can have left behind of what ICICLE allocated for them, since somebody last asked.
    suspected: AtomicU64,
    /// The logarithm of the domain's size, plus one; 0 without a domain.
    domain: AtomicU32,
    /// How often something was left half done, so that the device must be looked at before it is trusted again.
    doubts: AtomicU64,
    /// How many of these it has been looked at since.
    settled: AtomicU64,
    /// How vectors were found to be scaled rightly when the device was first asked.
    scaling: OnceLock<Scaling>,
    /// Calls that were handed over.
    handed_over: AtomicU64,
    /// The most calls that were under way at once.
    under_way_peak: AtomicU32,
}

/// A call on its way to the owner.
struct Message {
    // Dropped in this order, should the owner end with messages in its queue: what the job borrows is let go before the worker
    // hears of it.
    job: Job<'static>,
    tell: SyncSender<Result<(), CallError>>,
    manner: Manner,
}

/// How a call is made.
#[derive(Clone, Copy)]
struct Manner {
    operation: &'static str,
    /// With nothing else under way.
    alone: bool,
    /// It computes nothing and takes nothing, and is made on a device that was given up as well.
    tidies: bool,
}

/// Something to do on a stream; without one, only to let go of what it has.
type Job<'env> = Box<dyn FnOnce(Option<(&mut Here, usize)>) + Send + 'env>;

impl Owner {
    /// Starts the thread, which makes the device its own and opens so many streams.
    ///
    /// # Errors
    ///
    /// If there is no such device, its licence does not hold, or it is somebody's already.
    pub(crate) fn start(library: &'static Library, name: &DeviceName, streams: usize) -> Result<Arc<Owner>, OpenError> {
        let claim = Claim::new(library, name)?;
        Self::start_with(library, name, streams, Some(claim))
    }

    /// One of several owners of a device: to show what becomes of calls that nobody admits. It makes no domain, so that there is none
    /// that two of them could believe in, and transforms nothing.
    ///
    /// # Errors
    ///
    /// If there is no such device, or its licence does not hold.
    #[cfg(feature = "icicle-check")]
    #[doc(hidden)]
    pub fn start_beside_others(
        library: &'static Library,
        name: &DeviceName,
        streams: usize,
    ) -> Result<Arc<Owner>, OpenError> {
        Self::start_with(library, name, streams, None)
    }

    fn start_with(
        library: &'static Library,
        name: &DeviceName,
        streams: usize,
        claim: Option<Claim>,
    ) -> Result<Arc<Owner>, OpenError> {
        let (queue, messages) = channel::<Message>();
        let (opened, is_open) = sync_channel(1);
        let shared = Arc::new(Shared::default());
        let body = {
            let (shared, name) = (shared.clone(), name.clone());
            move || match Here::open(library, &name, streams.max(1), shared, claim) {
                Ok(mut here) => {
                    IS_OWNER.set(true);
                    let _ = opened.send(Ok(here.siblings()));
                    live(&mut here, &messages);
                    here.close();
                }
                Err(error) => drop(opened.send(Err(error))),
            }
        };
        let handle = thread::Builder::new().name(format!("icicle-{name}")).spawn(body);
        let handle = handle.map_err(|error| OpenError::Thread { message: error.to_string() })?;
        let ended = || OpenError::Thread { message: "it ended at once".to_owned() };
        let opened = is_open.recv().unwrap_or_else(|_| Err(ended()));
        let thread = handle.thread().id();
        let siblings = match opened {
            Ok(siblings) => siblings,
            Err(error) => {
                let _ = handle.join();
                return Err(error);
            }
        };
        let (queue, handle) = (Some(queue), Some(handle));
        Ok(Arc::new(Owner { library, name: name.clone(), queue, handle, thread, siblings, shared }))
    }

    /// The device.
    pub fn name(&self) -> &DeviceName {
        &self.name
    }

    /// The libraries.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// Runs `f` on the owner's thread, perhaps beside others, and returns when all that it began is done.
    ///
    /// # Errors
    ///
    /// Those of `f`, or what synchronising says.
    ///
    /// # Panics
    ///
    /// If `f` does.
    pub fn call<'env, R: Send + 'env>(
        &self,
        operation: &'static str,
        f: impl FnOnce(&mut Scope<'_, 'env>) -> Result<R, CallError> + Send + 'env,
    ) -> Result<R, CallError> {
        self.hand_over(Manner { operation, alone: false, tidies: false }, f)
    }

    /// The same, with nothing else under way.
    ///
    /// # Errors
    ///
    /// As [`Owner::call`].
    pub fn call_alone<'env, R: Send + 'env>(
        &self,
        operation: &'static str,
        f: impl FnOnce(&mut Scope<'_, 'env>) -> Result<R, CallError> + Send + 'env,
    ) -> Result<R, CallError> {
        self.hand_over(Manner { operation, alone: true, tidies: false }, f)
    }

    /// A call that erases or frees: it is made as long as the device answers, also where it was given up.
    pub(crate) fn tidy<'env, R: Send + 'env>(
        &self,
        operation: &'static str,
        f: impl FnOnce(&mut Scope<'_, 'env>) -> Result<R, CallError> + Send + 'env,
    ) -> Result<R, CallError> {
        self.hand_over(Manner { operation, alone: false, tidies: true }, f)
    }

    fn hand_over<'env, R: Send + 'env>(
        &self,
        manner: Manner,
        f: impl FnOnce(&mut Scope<'_, 'env>) -> Result<R, CallError> + Send + 'env,
    ) -> Result<R, CallError> {
        assert!(!self.is_here(), "a call from within a call would wait for itself");
        let mut outcome: Option<thread::Result<Result<R, CallError>>> = None;
        let place = &mut outcome;
        let job: Job<'_> = Box::new(move |at: Option<(&mut Here, usize)>| match at {
            Some((here, stream)) => {
                let mut scope = Scope { here, stream, checks: false, env: PhantomData::<Cell<&'env ()>> };
                *place = Some(catch_unwind(AssertUnwindSafe(|| f(&mut scope))));
            }
            None if mutant!("icicle-lets-go-unguarded") => drop(f),
            None => *place = catch_unwind(AssertUnwindSafe(|| drop(f))).err().map(Err),
        });
        let synchronised = self.run(manner, job);
        match (outcome, synchronised) {
            (Some(Err(panic)), _) => resume_unwind(panic),
            (Some(Ok(Err(error))), _) => Err(error),
            (_, Err(error)) => Err(error),
            (Some(Ok(Ok(value))), Ok(())) => Ok(value),
            (None, Ok(())) => unreachable!("what was synchronised was run"),
        }
    }

    /// Hands a job over and waits until it was run and synchronised, or dropped.
    fn run(&self, manner: Manner, job: Job<'_>) -> Result<(), CallError> {
        if let Some(error) = self.shared.refusal(manner) {
            return Err(error);
        }
        // SAFETY: a lifetime is all that is changed. The job borrows from the caller for longer than this function runs, and this
        // function returns only after the job is gone: the owner runs it (which consumes it) before it tells, and where it never
        // does, the message is dropped, the job before `tell`, whose end is what `recv` then reports. A send that fails gives
        // the message back, and it is dropped here.
        let job: Job<'static> = unsafe { std::mem::transmute::<Job<'_>, Job<'static>>(job) };
        let (tell, told) = sync_channel(1);
        let sent = self.queue.as_ref().map(|queue| queue.send(Message { job, tell, manner }));
        let gone = || {
            let message = "its thread has ended".to_owned();
            CallError { operation: manner.operation, fault: Fault::Lost { message } }
        };
        self.shared.handed_over.fetch_add(1, Ordering::Relaxed);
        match sent {
            Some(Ok(())) => told.recv().unwrap_or_else(|_| Err(gone())),
            Some(Err(_)) | None => Err(gone()),
        }
    }

    /// How many devices of its kind there are, this one included.
    pub fn siblings(&self) -> u16 {
        self.siblings
    }

    /// Whether this is the owner's thread.
    fn is_here(&self) -> bool {
        thread::current().id() == self.thread
    }

    /// Allocates device memory.
    ///
    /// # Errors
    ///
    /// As ICICLE says: [`Fault::OutOfMemory`] leaves the device as it was.
    pub fn allocate(self: &Arc<Self>, bytes: u64) -> Result<DeviceMemory, CallError> {
        let mut address = None;
        let place = &mut address;
        let called = self.call("allocate", move |scope| {
            *place = Some(scope.allocate(bytes)?);
            Ok(())
        });
        // Freed again where it is there and the call has failed all the same.
        let memory = address.map(|address| DeviceMemory::new(self.clone(), address, bytes));
        called?;
        Ok(memory.expect("a call that has succeeded has set it"))
    }

    /// What the device says of its memory, total and free; `None` where it says nothing.
    pub fn memory(&self) -> Option<(u64, u64)> {
        self.call("ask for free memory", |scope| Ok(scope.memory())).ok().flatten()
    }

    /// Bytes that are allocated here, without what ICICLE takes by itself.
    pub fn allocated_bytes(&self) -> u64 {
        // Relaxed, here and below: counts and marks that carry nothing with them.
        self.shared.allocated.load(Ordering::Relaxed)
    }

    /// Makes the device's domain, for transforms up to 2^`log_size`, with nothing else under way. A device that has one must let go of
    /// it first: ICICLE keeps the first, says that all is well, and throws later.
    ///
    /// # Errors
    ///
    /// As ICICLE says. What there is of it then was let go.
    pub(crate) fn make_domain(&self, log_size: u32) -> Result<(), CallError> {
        self.call_alone("make the domain", |scope| scope.init_domain(log_size))
    }

    /// Lets go of the domain, with nothing else under way; also on a device that was given up.
    ///
    /// # Errors
    ///
    /// As ICICLE says. Then it is there as before.
    pub(crate) fn release_domain(&self) -> Result<(), CallError> {
        let manner = Manner { operation: "release the domain", alone: true, tidies: true };
        self.hand_over(manner, |scope| scope.release_domain())
    }

    /// The largest transform that the device's domain serves, as a logarithm.
    pub fn domain(&self) -> Option<u32> {
        self.shared.domain.load(Ordering::Relaxed).checked_sub(1)
    }

    /// How many calls were handed over so far.
    pub fn handed_over(&self) -> u64 {
        self.shared.handed_over.load(Ordering::Relaxed)
    }

    /// The most calls that were under way at once.
    pub fn under_way_peak(&self) -> u32 {
        self.shared.under_way_peak.load(Ordering::Relaxed)
    }

    /// Frees memory without waiting for it: for the threads of other devices, which the owner may be waiting for. What is allocated
    /// after it comes after it in the queue.
    fn free_later(&self, address: usize, bytes: u64) {
        let (tell, _) = sync_channel(1);
        // One that fails is noted where it does.
        let job: Job<'static> =
            Box::new(move |at: Option<(&mut Here, usize)>| drop(at.map(|(here, _)| here.free(address, bytes))));
        let manner = Manner { operation: "free", alone: false, tidies: true };
        if let Some(queue) = &self.queue {
            let _ = queue.send(Message { job, tell, manner });
            self.shared.handed_over.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether something was left half done since it was last [looked at](crate::Icicle::look): until then the device computes nothing
    /// more ([`Fault::Doubted`]).
    pub fn is_doubted(&self) -> bool {
        self.shared.is_doubted()
    }

    /// How often something was left half done so far.
    pub(crate) fn doubts(&self) -> u64 {
        self.shared.doubts.load(Ordering::Relaxed)
    }

    /// The device was looked at after so many doubts, and is well. A later one is not settled by that.
    pub(crate) fn settle(&self, doubts: u64) {
        self.shared.settled.fetch_max(doubts, Ordering::Relaxed);
    }

    /// How vectors are scaled rightly, by who asked first: what was right must stay so.
    pub(crate) fn scaling(&self, found: Scaling) -> Scaling {
        *self.shared.scaling.get_or_init(|| found)
    }

    /// The device said something that cannot be right.
    pub(crate) fn doubt(&self) {
        self.shared.doubt();
    }

    /// Gives the device up, once and for all.
    pub(crate) fn give_up(&self, message: String) {
        self.shared.give_up(message);
    }

    /// Why the device was given up, if it was.
    pub fn lost(&self) -> Option<&str> {
        self.shared.lost.get().map(String::as_str)
    }
}

impl Shared {
    /// Why a call is not made, if the device was given up.
    fn refusal(&self, manner: Manner) -> Option<CallError> {
        let message = self.lost.get()?.clone();
        // Relaxed: where it is exact, on the owner's thread, it was set there.
        let tidied = !self.silent.load(Ordering::Relaxed) && !mutant!("icicle-keeps-what-is-lost");
        let operation = manner.operation;
        (!manner.tidies || !tidied).then_some(CallError { operation, fault: Fault::Lost { message } })
    }

    fn give_up(&self, message: String) {
        // Whoever is first says why.
        let _ = self.lost.set(message);
    }

    /// Gives it up for good: nobody can tell what is still under way, and nothing can be waited for.
    fn fall_silent(&self, message: String) {
        self.silent.store(true, Ordering::Relaxed);
        self.give_up(message);
    }

    fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// Notes what an error leaves behind: doubt, and at the most so many bytes.
    fn note<R>(&self, result: Result<R, CallError>, bytes: u64) -> Result<R, CallError> {
        if let Err(error) = &result
            && error.leaves_doubt()
        {
            self.suspected.fetch_add(bytes, Ordering::Relaxed);
            self.doubt();
        }
        result
    }

    fn doubt(&self) {
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    /// On the owner's thread, which raises all doubts but those about what came out of a call, it is exact.
    fn is_doubted(&self) -> bool {
        self.doubts.load(Ordering::Relaxed) > self.settled.load(Ordering::Relaxed)
    }
}

/// A call whose work goes on.
struct UnderWay {
    stream: usize,
    tell: SyncSender<Result<(), CallError>>,
    operation: &'static str,
}

/// The owner's life.
fn live(here: &mut Here, messages: &Receiver<Message>) {
    let mut under_way: VecDeque<UnderWay> = VecDeque::new();
    loop {
        let next = if under_way.is_empty() {
            match messages.recv() {
                Ok(message) => Some(message),
                Err(_) => return,
            }
        } else if here.has_stream() {
            messages.try_recv().ok()
        } else {
            None
        };
        let Some(Message { job, tell, manner }) = next else {
            if let Some(first) = under_way.pop_front() {
                finish(here, first);
            }
            continue;
        };
        if manner.alone {
            under_way.drain(..).for_each(|call| finish(here, call));
        }
        if let Some(error) = here.refusal(manner)
            && !mutant!("icicle-calls-the-lost")
        {
            // Given up while this one was in the queue. What it borrows is let go before its worker hears of it.
            job(None);
            let _ = tell.send(Err(error));
            continue;
        }
        let stream = here.take_stream();
        here.note_beside(under_way.len());
        job(Some((&mut *here, stream)));
        under_way.push_back(UnderWay { stream, tell, operation: manner.operation });
        here.note_under_way(under_way.len());
        if manner.alone {
            under_way.drain(..).for_each(|call| finish(here, call));
        }
    }
}

/// Waits until what a call began is done, and tells who waits for it.
fn finish(here: &mut Here, call: UnderWay) {
    let synchronised = here.synchronise(call.stream, call.operation);
    // Nobody is there any more only if its thread is gone, with all that it had lent.
    let _ = call.tell.send(synchronised);
}

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.queue.take());
        if let Some(handle) = self.handle.take()
            && !self.is_here()
        {
            // The thread contains the panics of its calls.
            let _ = handle.join();
        }
    }
}

impl std::fmt::Debug for Owner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Owner").field("device", &self.name).field("lost", &self.lost()).finish_non_exhaustive()
    }
}
