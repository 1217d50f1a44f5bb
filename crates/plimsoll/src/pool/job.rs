//! Work that borrows from a stack frame: the only unsafe code of this crate.
//!
//! A worker's deque holds [`JobRef`]s: thin pointers to a header that says how to run what lies behind it. Behind it is
//! a closure on the stack of its owner (the second half of a [`join`], a foreign thread's call) or a boxed spawn of a
//! [`Scope`]. Both borrow from a frame that the compiler cannot follow into another thread. What makes that sound:
//!
//! 1. **A `JobRef` is run at most once.** It is neither `Clone` nor `Copy`, and `execute` consumes it.
//! 2. **The frame outlives the run.** `join` and `run_scope` leave their frame, also by unwinding, only after each
//!    `JobRef` that they gave out was run to its end or taken back. Between giving one out and that moment nothing may
//!    unwind past them: closures run under [`contain`], and a guard aborts the process if anything else panics.
//! 3. **The last access is the latch.** Whoever runs a job stores its result, then sets the latch (Release) and touches
//!    neither job nor scope again; what it still needs (the index of the worker to wake) it read before. The waiter
//!    reads the latch (Acquire) before it touches the result or leaves the frame. Pointers, not references, lead to the
//!    latch, because a reference would have to be valid until its function returns.
//! 4. **Threads.** What crosses threads is `Send`: the constructors ask for it, and `JobRef` is `Send` because of that.
//!
//! A `JobRef` that is *given back* (a foreign thread's call that an aborted pool never runs) sets the latch without
//! having touched the closure; all of the above holds for it too.
//!
//! Leaking a `JobRef` breaks none of this: it is never run, and the frame waits for ever.
#![expect(unsafe_code, reason = "closures that borrow from a stack frame run on other threads; see the proof above")]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;
use std::sync::Arc;

use super::worker::Worker;
use crate::contain::{Panic, contain, discard};
use crate::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, lock, wait};

/// The job on whose behalf a task or fork runs. Never zero, never `u64::MAX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct JobTag(u64);

impl JobTag {
    /// No job: what a worker that has run nothing yet carries.
    pub(super) const NONE: JobTag = JobTag(u64::MAX - 1);

    /// A tag that no other job of this process carries.
    pub(crate) fn fresh() -> Self {
        // Not part of any protocol: the standard library's atomic also under loom, where a static must be const.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Self(NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
    }

    pub(super) fn to_word(self) -> u64 {
        self.0
    }
}

/// The first field of everything that a [`JobRef`] points to.
struct Header {
    /// Runs the job on a worker; without one, gives it back to its owner.
    execute: unsafe fn(NonNull<Header>, Option<&Worker>),
    tag: JobTag,
}

/// The right and the duty to run one job.
#[derive(Debug)]
#[must_use = "a job that is not run keeps its frame waiting for ever"]
pub(crate) struct JobRef(NonNull<Header>);

// SAFETY: `StackJob::lend` and `Scope::spawn`, the only constructors, ask `Send` of all that lies behind the pointer (4).
unsafe impl Send for JobRef {}

impl JobRef {
    #[inline]
    pub(super) fn tag(&self) -> JobTag {
        // SAFETY: the job was not run yet, for this `JobRef` is the only right to run it (1), so its memory is alive (2).
        unsafe { self.0.as_ref().tag }
    }

    /// Runs the job on the calling worker. Never unwinds: panics travel to the frame that waits.
    #[inline]
    pub(super) fn execute(self, on: &Worker) {
        let abort = AbortOnUnwind;
        // SAFETY: the header was made together with the function for its type; run once (1), memory alive (2).
        unsafe { (self.0.as_ref().execute)(self.0, Some(on)) };
        mem::forget(abort);
    }

    /// Gives the job back to the foreign thread that waits for it, not run. Only for what [`run_elsewhere`] made: forks
    /// belong to work that runs, and are run by its end.
    pub(super) fn give_back(self) {
        let abort = AbortOnUnwind;
        // SAFETY: as in `execute`; consumed, so it is not run either (1).
        unsafe { (self.0.as_ref().execute)(self.0, None) };
        mem::forget(abort);
    }
}

/// Turns a panic where none may pass into an abort (2).
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// A closure on the stack of its owner, lent to whoever runs it.
#[repr(C)] // the header first: a pointer to the job is a pointer to its header
struct StackJob<F, R, O> {
    header: Header,
    owner: O,
    done: AtomicBool,
    state: UnsafeCell<State<F, R>>,
}

/// Who waits for a job, and how to wake him.
trait Owner: Clone {
    /// Called after the job is done, when the job itself may be gone; without a worker if it was given back.
    fn wake(self, on: Option<&Worker>);
}

/// A worker that waits in `join`, by index in the pool.
#[derive(Clone)]
struct Helper(usize);

impl Owner for Helper {
    fn wake(self, on: Option<&Worker>) {
        let on = on.expect("a fork is run, never given back");
        if !mutant!("thief-wakes-nobody") {
            on.wake(self.0);
        }
    }
}

enum State<F, R> {
    Ready(F),
    Running,
    Done(Result<R, Panic>),
}

impl<F, R, O> StackJob<F, R, O>
where
    F: FnOnce() -> R + Send,
    R: Send,
    O: Owner + Sync,
{
    fn new(func: F, tag: JobTag, owner: O) -> Self {
        Self {
            header: Header { execute: Self::execute, tag },
            owner,
            done: AtomicBool::new(false),
            state: UnsafeCell::new(State::Ready(func)),
        }
    }

    /// # Safety
    ///
    /// The caller keeps `self` where it is until `is_done`, or until it has the `JobRef` back.
    unsafe fn lend(&self) -> JobRef {
        // The pointer is derived from the whole job, not from the header, so that it may be cast back.
        JobRef(NonNull::from(self).cast())
    }

    fn owns(&self, job: &JobRef) -> bool {
        job.0 == NonNull::from(self).cast()
    }

    fn is_done(&self) -> bool {
        // Acquire: partner of the Release in `execute`.
        self.done.load(Ordering::Acquire)
    }

    /// # Safety
    ///
    /// `this` comes from `lend`, is run for the first time, and its frame waits.
    unsafe fn execute(this: NonNull<Header>, on: Option<&Worker>) {
        let this = this.cast::<Self>().as_ptr();
        // What is given back stays `Ready`.
        if on.is_some() {
            // SAFETY: alive until the latch is set (2), and nobody else touches the state before (1).
            let state = unsafe { (*this).state.get() };
            // SAFETY: as above; the exclusive borrow ends with the statement.
            let State::Ready(func) = mem::replace(unsafe { &mut *state }, State::Running) else { unreachable!() };
            let result = contain(func);
            // SAFETY: as above. Overwrites `Running`, which has nothing to drop.
            unsafe { *state = State::Done(result) };
        }
        // SAFETY: alive until the store below takes effect.
        let owner = unsafe { (*this).owner.clone() };
        // SAFETY: the last access (3). Release: partner of the Acquire in `is_done`.
        unsafe { (*this).done.store(true, Ordering::Release) };
        owner.wake(on);
    }
}

/// Runs `a` here while `b` may be stolen; waits for both, helping the own job only.
pub(super) fn join<A, B, RA, RB>(on: &Worker, a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB + Send,
    RB: Send,
{
    let job = StackJob::new(b, on.job(), Helper(on.index()));
    let abort = AbortOnUnwind;
    // SAFETY: `job` stays in this frame until it is done or back, below, and `abort` keeps the frame until then.
    on.fork(unsafe { job.lend() });
    let result_a = contain(a);
    loop {
        match on.pop() {
            Some(popped) if job.owns(&popped) => {
                // Back: nobody else knows of it any more.
                mem::forget(abort);
                let State::Ready(b) = job.state.into_inner() else { unreachable!() };
                return then(result_a, b);
            }
            // A spawn of an enclosing scope, made by `a`: of the same job, and newer than `b`.
            Some(newer) => newer.execute(on),
            None => break,
        }
    }
    on.wait_until(|| job.is_done());
    mem::forget(abort);
    let State::Done(result_b) = job.state.into_inner() else { unreachable!() };
    match (result_a, result_b) {
        (Ok(result_a), Ok(result_b)) => (result_a, result_b),
        (Err(panic), other) => raise(panic, other),
        (Ok(other), Err(panic)) => raise(panic, other),
    }
}

/// Runs both here. Out of line, so that what joins inside of a pool stays small enough to be inlined: with this beside it, `fib` took
/// twice as long.
#[cold]
#[inline(never)]
pub(super) fn one_after_the_other<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA,
    B: FnOnce() -> RB,
{
    then(contain(a), b)
}

/// Runs the second half of a join, if the first one has a result.
#[inline(always)]
fn then<RA, RB>(first: Result<RA, Panic>, second: impl FnOnce() -> RB) -> (RA, RB) {
    match first {
        Ok(first) => {
            let kept = Kept(Some(first));
            let second = second();
            (kept.take(), second)
        }
        Err(panic) => raise(panic, second),
    }
}

/// A result that is there while the other one is made. Should that panic, it is dropped as in [`raise`].
struct Kept<T>(Option<T>);

impl<T> Kept<T> {
    #[inline]
    fn take(mut self) -> T {
        self.0.take().expect("it is taken once")
    }
}

impl<T> Drop for Kept<T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(left) = self.0.take().filter(|_| !mutant!("left-dropped-in-a-panic")) {
            discard(left);
        }
    }
}

/// Goes on with a panic. What is left is dropped before: while a panic is under way, a destructor that panics as well would end the
/// process.
#[cold]
pub(super) fn raise<T>(panic: Panic, left: T) -> ! {
    if mutant!("left-dropped-in-a-panic") {
        let _left = left;
        panic.resume();
    }
    discard(left);
    panic.resume()
}

/// Where the closures spawned in a [`scope`](super::scope()) belong; the scope ends after the last of them.
pub struct Scope<'scope, 'env: 'scope> {
    // Spawned closures that have not ended, and one for the body.
    pending: AtomicUsize,
    panic: Mutex<Option<Panic>>,
    home: Option<Home>,
    // Invariant in both lifetimes, like `std::thread::Scope`.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The worker and the job in which a scope was opened.
#[derive(Clone, Copy)]
struct Home {
    pool: usize,
    worker: usize,
    job: JobTag,
}

impl<'scope> Scope<'scope, '_> {
    /// Runs `body` on some worker of this pool, at the latest before the scope ends. On any other thread, and in
    /// another job, it runs at once, on the spot.
    ///
    /// A panic in `body` leaves the other spawns alone and is raised again at the end of the scope.
    pub fn spawn<F>(&'scope self, body: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        Worker::with_current(|worker| match (worker, self.home) {
            (Some(on), Some(home)) if on.pool_id() == home.pool && on.job() == home.job => self.push(on, home, body),
            _ => {
                if let Err(panic) = contain(body) {
                    keep_first(&self.panic, panic);
                }
            }
        });
    }

    fn push<F>(&'scope self, on: &Worker, home: Home, body: F)
    where
        F: FnOnce() + Send + 'scope,
    {
        // Relaxed: the spawning closure is itself pending, so the count is not zero and cannot become it meanwhile.
        self.pending.fetch_add(1, Ordering::Relaxed);
        let job = Box::new(SpawnedJob {
            header: Header { execute: SpawnedJob::<F>::execute, tag: home.job },
            pending: &raw const self.pending,
            panic: &raw const self.panic,
            owner: home.worker,
            body,
        });
        // The count keeps the scope, and with it all that `body` borrows, until the job has run (2).
        on.fork(JobRef(NonNull::from(Box::leak(job)).cast()));
    }
}

impl std::fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scope").field("pending", &self.pending.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}

/// The first panic of a scope is raised again at its end. What the others were thrown with is dropped outside of the lock.
pub(super) fn keep_first(kept: &Mutex<Option<Panic>>, panic: Panic) {
    let mut kept = lock(kept);
    let superfluous = match &*kept {
        Some(_) => Some(panic),
        None => kept.replace(panic),
    };
    drop(kept);
    drop(superfluous);
}

/// A boxed closure together with the counters of the scope that waits for it.
#[repr(C)] // the header first
struct SpawnedJob<F> {
    header: Header,
    pending: *const AtomicUsize,
    panic: *const Mutex<Option<Panic>>,
    owner: usize,
    body: F,
}

impl<F: FnOnce() + Send> SpawnedJob<F> {
    /// # Safety
    ///
    /// `this` comes from `Scope::push`, is run for the first time, and its scope waits.
    unsafe fn execute(this: NonNull<Header>, on: Option<&Worker>) {
        let on = on.expect("a fork is run, never given back");
        // SAFETY: made by `Box::leak` of this type, and taken back once (1).
        let Self { pending, panic, owner, body, .. } = *unsafe { Box::from_raw(this.cast::<Self>().as_ptr()) };
        if let Err(payload) = contain(body) {
            // SAFETY: the scope waits for our count (2).
            keep_first(unsafe { &*panic }, payload);
        }
        // SAFETY: the last access (3). Release: partner of the Acquire in `run_scope`; a later decrement continues the
        // release sequence of an earlier one.
        let before = unsafe { (*pending).fetch_sub(1, Ordering::Release) };
        if before == 1 {
            on.wake(owner);
        }
    }
}

/// Runs `body` with a scope and returns after all that was spawned in it; helps the own job meanwhile.
pub(super) fn run_scope<'env, F, R>(on: Option<&Worker>, body: F) -> R
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R,
{
    let home = on.map(|on| Home { pool: on.pool_id(), worker: on.index(), job: on.job() });
    let scope =
        Scope { pending: AtomicUsize::new(1), panic: Mutex::new(None), home, scope: PhantomData, env: PhantomData };
    let abort = AbortOnUnwind;
    let result = contain(|| body(&scope));
    scope.pending.fetch_sub(1, Ordering::Relaxed);
    if let Some(on) = on {
        // Acquire: partner of the Release in `SpawnedJob::execute`.
        on.wait_until(|| scope.pending.load(Ordering::Acquire) == 0);
    }
    mem::forget(abort);
    let panic = lock(&scope.panic).take();
    match (result, panic) {
        (Ok(result), None) => result,
        (Ok(left), Some(panic)) => raise(panic, left),
        (Err(panic), _) => panic.resume(),
    }
}

/// Lends `f` to `submit`, as a job of its own, and blocks the calling thread until it has run. If the calling thread is a
/// worker, whoever runs `f` must not need it. `meanwhile` is called once `f` was submitted.
///
/// # Errors
///
/// With `f`, if `submit` or whoever took the job from it gave it back.
pub(super) fn run_elsewhere<F, R>(
    submit: impl FnOnce(JobRef) -> Result<(), JobRef>,
    meanwhile: impl FnOnce(),
    f: F,
) -> Result<R, F>
where
    F: FnOnce() -> R + Send,
    R: Send,
{
    let gate = Arc::new(Gate::default());
    let job = StackJob::new(f, JobTag::fresh(), gate.clone());
    let abort = AbortOnUnwind;
    // SAFETY: `job` stays in this frame until it is done or back, and `abort` keeps the frame until then.
    match submit(unsafe { job.lend() }) {
        Ok(()) => {
            meanwhile();
            gate.wait_until(|| job.is_done());
        }
        // Nobody else knows of it any more.
        Err(_back) => {}
    }
    mem::forget(abort);
    match job.state.into_inner() {
        State::Done(Ok(result)) => Ok(result),
        State::Done(Err(panic)) => panic.resume(),
        State::Ready(f) => Err(f),
        State::Running => unreachable!("it has ended or was never begun"),
    }
}

/// What a foreign thread waits at. Shared, so that it outlives the ring.
#[derive(Default)]
struct Gate {
    lock: Mutex<()>,
    rung: Condvar,
}

impl Gate {
    fn wait_until(&self, done: impl Fn() -> bool) {
        let mut guard = lock(&self.lock);
        while !done() {
            guard = wait(&self.rung, guard, None);
        }
    }
}

impl Owner for Arc<Gate> {
    fn wake(self, _: Option<&Worker>) {
        // Under the lock, so that the ring does not fall between the owner's look and its wait.
        let _guard = lock(&self.lock);
        self.rung.notify_one();
    }
}

#[cfg(all(test, not(plimsoll_loom)))]
mod tests;
