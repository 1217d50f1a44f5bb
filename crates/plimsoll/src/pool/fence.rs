//! A fence between two threads of which one side is passed through very often, and the other seldom.
//!
//! Both sides do the same: write, fence, read what the other side writes. If both fence fully, at least one of them sees
//! the other's write. A full fence costs a fork nearly as much as all the rest of it, so on Linux the frequent side only keeps
//! the compiler from moving anything, and the seldom side asks the kernel (`membarrier`) that every running thread of this
//! process pass a full fence before the call returns. Take such a fence within the call on the frequent side's thread: what
//! stands before it in that thread is seen by the seldom side afterwards; what stands behind it sees what the seldom side
//! wrote before. A thread that does not run at the moment passes one when it is switched in or out.
//!
//! Elsewhere, where the kernel has no such call, and in models, both sides fence.

pub(super) use imp::Fence;

#[cfg(all(target_os = "linux", not(any(plimsoll_loom, plimsoll_shuttle, miri))))]
mod imp {
    use rustix::thread::{MembarrierCommand, membarrier};

    use crate::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

    /// The two halves of a fence.
    #[derive(Debug)]
    pub(in super::super) struct Fence {
        /// The kernel lets the seldom side pay for both.
        by_kernel: AtomicBool,
    }

    impl Fence {
        pub(in super::super) fn new() -> Self {
            // For the whole process; asking again does no harm.
            Self { by_kernel: AtomicBool::new(membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()) }
        }

        /// The side that is passed through often.
        #[inline]
        pub(in super::super) fn light(&self) {
            // Relaxed: written when the pool is made, and see `heavy`.
            if self.by_kernel.load(Ordering::Relaxed) {
                compiler_fence(Ordering::SeqCst);
            } else {
                fence(Ordering::SeqCst);
            }
        }

        /// The side that pays for both.
        pub(in super::super) fn heavy(&self) {
            // Asked before the fence: after it the time would be what the fault is hidden by.
            let alone = mutant!("heavy-fence-alone");
            fence(Ordering::SeqCst);
            if !alone && self.by_kernel.load(Ordering::Relaxed) {
                self.pay(membarrier(MembarrierCommand::PrivateExpedited).is_ok());
            }
        }

        /// A process may forbid itself the call later on (seccomp). Then both sides fence from now on; a fork that is made at
        /// this very moment may be overlooked, and is run by whoever made it.
        fn pay(&self, paid: bool) {
            if !paid {
                self.by_kernel.store(false, Ordering::Relaxed);
            }
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn both_sides_fence_after_a_refusal() {
            let fence = Fence { by_kernel: AtomicBool::new(true) };
            fence.pay(true);
            assert!(fence.by_kernel.load(Ordering::Relaxed));
            fence.pay(false);
            assert!(!fence.by_kernel.load(Ordering::Relaxed));
        }
    }
}

#[cfg(not(all(target_os = "linux", not(any(plimsoll_loom, plimsoll_shuttle, miri)))))]
mod imp {
    use crate::sync::atomic::{Ordering, fence};

    /// The two halves of a fence.
    #[derive(Debug)]
    pub(in super::super) struct Fence;

    impl Fence {
        pub(in super::super) fn new() -> Self {
            Self
        }

        /// The side that is passed through often.
        #[inline]
        pub(in super::super) fn light(&self) {
            fence(Ordering::SeqCst);
        }

        /// The side that pays for both.
        pub(in super::super) fn heavy(&self) {
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, not(any(plimsoll_loom, miri))))]
mod tests {
    use super::Fence;
    use crate::sync::atomic::{AtomicUsize, Ordering};
    use crate::sync::thread;

    /// Binds the calling thread to one of the cores that it may use: both sides on one core prove nothing.
    #[cfg(target_os = "linux")]
    fn bind_to(nth: usize) {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let allowed = sched_getaffinity(None).expect("a thread may ask");
        let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
        if let Some(core) = cores.nth(nth) {
            let mut one = CpuSet::new();
            one.set(core);
            sched_setaffinity(None, &one).expect("a core that is allowed");
        }
    }

    #[cfg(not(target_os = "linux"))]
    fn bind_to(_: usize) {}

    /// The two sides at once, as often as it takes for a processor to show its store buffer where it may.
    ///
    /// The frequent side's write stands behind others, to lines that the other side has written last. Without a fence it becomes
    /// visible only after all of those were fetched, long after the read that follows it.
    #[test]
    fn one_of_the_two_sides_sees_the_other() {
        const ROUNDS: usize = 30_000;
        // On lines of their own, or a write would be seen too soon.
        #[derive(Default)]
        #[repr(align(128))]
        struct Word(AtomicUsize);
        let (fence, go, frequent, seldom, saw) =
            (Fence::new(), Word::default(), Word::default(), Word::default(), Word::default());
        // As many as wait in a store buffer at once.
        let fetched: [Word; 40] = std::array::from_fn(|_| Word::default());
        let meet = |at: usize| {
            go.0.fetch_add(1, Ordering::AcqRel);
            let mut looks = 0;
            while go.0.load(Ordering::Acquire) < 2 * at {
                looks += 1;
                if looks % 1000 == 0 {
                    thread::yield_now();
                }
            }
        };
        let missed = thread::scope(|scope| {
            scope.spawn(|| {
                bind_to(0);
                for round in 1..=ROUNDS {
                    meet(2 * round - 1);
                    fetched.iter().for_each(|word| word.0.store(round, Ordering::Relaxed));
                    frequent.0.store(round, Ordering::Relaxed);
                    fence.light();
                    saw.0.store(seldom.0.load(Ordering::Relaxed), Ordering::Relaxed);
                    meet(2 * round);
                }
            });
            bind_to(1);
            let mut missed = 0;
            for round in 1..=ROUNDS {
                fetched.iter().for_each(|word| word.0.store(round, Ordering::Relaxed));
                meet(2 * round - 1);
                // A little later each time, since nobody knows how much sooner the other side is on its way.
                (0..round % 256).for_each(|turn| _ = std::hint::black_box(turn));
                seldom.0.store(round, Ordering::Relaxed);
                fence.heavy();
                let seen = frequent.0.load(Ordering::Relaxed);
                meet(2 * round);
                missed += usize::from(seen < round && saw.0.load(Ordering::Relaxed) < round);
            }
            missed
        });
        assert_eq!(missed, 0, "rounds of {ROUNDS} in which neither side saw the other");
    }
}
