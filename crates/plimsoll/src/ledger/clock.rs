//! The ledger's clock: exact for those who wait or watch, coarse for those who do neither.
//!
//! Reading an exact clock costs as much as all else that an uncontended reservation does. What is taken at once is
//! stamped with the time of the system's last tick instead, a few milliseconds ago at most (on Linux; elsewhere with
//! the exact time). Both count from one moment, and the coarse time is never ahead of the exact one.

#[cfg(all(target_os = "linux", not(miri)))]
mod imp {
    use rustix::time::{ClockId, clock_gettime};

    pub(super) fn exact() -> u64 {
        nanoseconds(ClockId::Monotonic)
    }

    pub(super) fn coarse() -> u64 {
        nanoseconds(ClockId::MonotonicCoarse)
    }

    fn nanoseconds(clock: ClockId) -> u64 {
        let time = clock_gettime(clock);
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    }
}

#[cfg(not(all(target_os = "linux", not(miri))))]
mod imp {
    use std::sync::LazyLock;
    use std::time::Instant;

    static START: LazyLock<Instant> = LazyLock::new(Instant::now);

    pub(super) fn exact() -> u64 {
        u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub(super) fn coarse() -> u64 {
        exact()
    }
}

/// Nanoseconds since the ledger was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    made: u64,
}

impl Clock {
    pub(super) fn new() -> Clock {
        Clock { made: imp::exact() }
    }

    pub(super) fn exact(self) -> u64 {
        imp::exact().saturating_sub(self.made)
    }

    pub(super) fn coarse(self) -> u64 {
        imp::coarse().saturating_sub(self.made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_coarse_clock_is_never_ahead() {
        let clock = Clock::new();
        for _ in 0..1000 {
            let coarse = clock.coarse();
            assert!(coarse <= clock.exact());
        }
    }
}
