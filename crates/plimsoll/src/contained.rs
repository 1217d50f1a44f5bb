//! Code of users that may panic where nobody can be told: wakers, observers, destructors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `f`, whose panic is its own affair: `None`, and whoever called it goes on. The panic hook has reported it.
///
/// What `f` borrows must not be looked at afterwards where a panic could have left it half done.
pub(crate) fn contained<R>(f: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(f)).map_err(forget_panic).ok()
}

/// A panic's payload has a destructor as well. If that panics too, there is nothing left to try.
pub(crate) fn forget_panic(payload: Box<dyn Any + Send>) {
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(again);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thorn;

    impl Drop for Thorn {
        fn drop(&mut self) {
            panic!("again");
        }
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_goes_no_further() {
        assert_eq!(contained(|| 1), Some(1));
        assert_eq!(contained(|| std::panic::panic_any(Thorn)), None::<()>);
    }
}
