//! The ledger and its peers behind one trait.

#![expect(clippy::disallowed_types, reason = "the peers are what people write with the standard library")]

use std::future::Future;
use std::sync::{Arc, Condvar, Mutex};

use plimsoll::{Budget, Bytes, Class, Ledger, Reservation, Space};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

const BUFFERS: Class = Class::new("buffers", Space::HOST);

/// Something that hands out a limited amount.
pub(crate) trait Peer: Clone + Send + Sync + 'static {
    /// What is held; dropping it gives it back.
    type Held: Send;
    const NAME: &'static str;
    /// Waiting blocks the thread: its users are threads, not tasks.
    const BLOCKS: bool = false;

    fn new(limit: u32) -> Self;
    fn try_take(&self, amount: u32) -> Option<Self::Held>;
    fn take(&self, amount: u32) -> impl Future<Output = Self::Held> + Send;
}

/// The ledger, with a reservation of its own for each request.
#[derive(Clone)]
pub(crate) struct Plimsoll(Ledger);

impl Peer for Plimsoll {
    type Held = Reservation;
    const NAME: &'static str = "plimsoll";

    fn new(limit: u32) -> Self {
        Self(Ledger::new(Budget::new().space(Space::HOST, Bytes(u64::from(limit)))))
    }

    fn try_take(&self, amount: u32) -> Option<Reservation> {
        self.0.reserve(BUFFERS, Bytes(u64::from(amount))).try_now().ok()
    }

    async fn take(&self, amount: u32) -> Reservation {
        self.0.reserve(BUFFERS, Bytes(u64::from(amount))).await.expect("it fits the limit")
    }
}

/// The same, by threads that block.
#[derive(Clone)]
pub(crate) struct PlimsollThreads(Ledger);

impl Peer for PlimsollThreads {
    type Held = Reservation;
    const NAME: &'static str = "plimsoll, blocking threads";
    const BLOCKS: bool = true;

    fn new(limit: u32) -> Self {
        Self(Plimsoll::new(limit).0)
    }

    fn try_take(&self, amount: u32) -> Option<Reservation> {
        Plimsoll(self.0.clone()).try_take(amount)
    }

    async fn take(&self, amount: u32) -> Reservation {
        self.0.reserve(BUFFERS, Bytes(u64::from(amount))).wait().expect("it fits the limit")
    }
}

/// tokio's semaphore: fair, first come first served.
#[derive(Clone)]
pub(crate) struct Tokio(Arc<Semaphore>);

impl Peer for Tokio {
    type Held = OwnedSemaphorePermit;
    const NAME: &'static str = "tokio semaphore";

    fn new(limit: u32) -> Self {
        Self(Arc::new(Semaphore::new(limit as usize)))
    }

    fn try_take(&self, amount: u32) -> Option<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_many_owned(amount).ok()
    }

    async fn take(&self, amount: u32) -> OwnedSemaphorePermit {
        self.0.clone().acquire_many_owned(amount).await.expect("it is never closed")
    }
}

/// A counter, a mutex and a condition variable that wakes everybody.
#[derive(Clone)]
pub(crate) struct MutexCondvar(Arc<(Mutex<u32>, Condvar)>);

pub(crate) struct CondvarHeld(MutexCondvar, u32);

impl Peer for MutexCondvar {
    type Held = CondvarHeld;
    const NAME: &'static str = "mutex + condvar, blocking threads";
    const BLOCKS: bool = true;

    fn new(limit: u32) -> Self {
        Self(Arc::new((Mutex::new(limit), Condvar::new())))
    }

    fn try_take(&self, amount: u32) -> Option<CondvarHeld> {
        let mut free = self.0.0.lock().unwrap();
        *free = free.checked_sub(amount)?;
        drop(free);
        Some(CondvarHeld(self.clone(), amount))
    }

    async fn take(&self, amount: u32) -> CondvarHeld {
        let mut free = self.0.0.lock().unwrap();
        while *free < amount {
            free = self.0.1.wait(free).unwrap();
        }
        *free -= amount;
        drop(free);
        CondvarHeld(self.clone(), amount)
    }
}

impl Drop for CondvarHeld {
    fn drop(&mut self) {
        *self.0.0.0.lock().unwrap() += self.1;
        // Requests differ in size, so one that is woken alone might not be the one that fits.
        self.0.0.1.notify_all();
    }
}

/// The budget that async engines write by hand: a counter, and a broadcast to all who wait whenever something returns.
#[derive(Clone)]
pub(crate) struct Broadcast(Arc<(Mutex<u32>, Notify)>);

pub(crate) struct BroadcastHeld(Broadcast, u32);

impl Peer for Broadcast {
    type Held = BroadcastHeld;
    const NAME: &'static str = "mutex + broadcast";

    fn new(limit: u32) -> Self {
        Self(Arc::new((Mutex::new(limit), Notify::new())))
    }

    fn try_take(&self, amount: u32) -> Option<BroadcastHeld> {
        let mut free = self.0.0.lock().unwrap();
        *free = free.checked_sub(amount)?;
        drop(free);
        Some(BroadcastHeld(self.clone(), amount))
    }

    async fn take(&self, amount: u32) -> BroadcastHeld {
        loop {
            // Listens from before the look, or the wake-up in between would be lost.
            let returned = self.0.1.notified();
            if let Some(held) = self.try_take(amount) {
                return held;
            }
            returned.await;
        }
    }
}

impl Drop for BroadcastHeld {
    fn drop(&mut self) {
        *self.0.0.0.lock().unwrap() += self.1;
        self.0.0.1.notify_waiters();
    }
}

#[cfg(feature = "datafusion")]
pub(crate) mod datafusion {
    //! DataFusion's pools. They refuse and do not wait: `take` tries again after a yield.

    use std::sync::Arc;

    use datafusion_execution::memory_pool::{
        FairSpillPool, GreedyMemoryPool, MemoryConsumer, MemoryPool, MemoryReservation,
    };

    use super::Peer;

    #[derive(Clone)]
    pub(crate) struct Greedy(Arc<dyn MemoryPool>);
    #[derive(Clone)]
    pub(crate) struct Fair(Arc<dyn MemoryPool>);

    fn try_take(pool: &Arc<dyn MemoryPool>, amount: u32) -> Option<MemoryReservation> {
        let reservation = MemoryConsumer::new("buffers").register(pool);
        reservation.try_grow(amount as usize).ok()?;
        Some(reservation)
    }

    async fn take(pool: &Arc<dyn MemoryPool>, amount: u32) -> MemoryReservation {
        let reservation = MemoryConsumer::new("buffers").register(pool);
        while reservation.try_grow(amount as usize).is_err() {
            tokio::task::yield_now().await;
        }
        reservation
    }

    impl Peer for Greedy {
        type Held = MemoryReservation;
        const NAME: &'static str = "DataFusion greedy pool";

        fn new(limit: u32) -> Self {
            Self(Arc::new(GreedyMemoryPool::new(limit as usize)))
        }

        fn try_take(&self, amount: u32) -> Option<MemoryReservation> {
            try_take(&self.0, amount)
        }

        async fn take(&self, amount: u32) -> MemoryReservation {
            take(&self.0, amount).await
        }
    }

    impl Peer for Fair {
        type Held = MemoryReservation;
        const NAME: &'static str = "DataFusion fair pool";

        fn new(limit: u32) -> Self {
            Self(Arc::new(FairSpillPool::new(limit as usize)))
        }

        fn try_take(&self, amount: u32) -> Option<MemoryReservation> {
            try_take(&self.0, amount)
        }

        async fn take(&self, amount: u32) -> MemoryReservation {
            take(&self.0, amount).await
        }
    }
}
