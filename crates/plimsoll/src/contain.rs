//! The panics of code that is not ours: stages, drivers, wakers, observers, destructors. They are caught here and nowhere else.
//!
//! What a panic was thrown with has a destructor of its own, which may panic in its turn. So a caught one is a [`Panic`], which
//! can be dropped anywhere.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::task::Waker;

/// Calls `f`; a panic is what comes back. What the panic left half done is not looked at by us: that is the caller's to see to.
#[inline]
pub(crate) fn contain<R>(f: impl FnOnce() -> R) -> Result<R, Panic> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| Panic(Some(payload)))
}

/// Drops a value of a user's, whatever its destructor does.
pub(crate) fn discard<T>(value: T) {
    drop(contain(|| drop(value)));
}

/// The same of several, one by one: of two destructors that panic in one go the second would end the process.
pub(crate) fn discard_each<T>(values: impl IntoIterator<Item = T>) {
    if mutant!("all-dropped-in-one-go") {
        return discard(values.into_iter().collect::<Vec<T>>());
    }
    values.into_iter().for_each(discard);
}

/// Wakes a task. What a waker panics with is no affair of whoever has the news.
pub(crate) fn wake(waker: Waker) {
    if mutant!("news-that-panics-goes-through") {
        return waker.wake();
    }
    drop(contain(|| waker.wake()));
}

/// A panic that was caught.
pub(crate) struct Panic(Option<Box<dyn Any + Send>>);

impl Panic {
    /// Its text.
    pub(crate) fn message(&self) -> String {
        let payload = self.0.as_deref();
        let text = payload.and_then(|payload| {
            payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        });
        text.unwrap_or("(no text)").to_owned()
    }

    /// Goes on where it was caught.
    pub(crate) fn resume(mut self) -> ! {
        resume_unwind(self.0.take().expect("it is there until it is dropped"))
    }
}

impl From<Box<dyn Any + Send>> for Panic {
    fn from(payload: Box<dyn Any + Send>) -> Panic {
        Panic(Some(payload))
    }
}

impl Drop for Panic {
    fn drop(&mut self) {
        let payload = self.0.take();
        if mutant!("panic-dropped-bare") {
            return drop(payload);
        }
        if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            // If that panics too, there is nothing left to try.
            std::mem::forget(again);
        }
    }
}

impl std::fmt::Debug for Panic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Panic").field(&self.message()).finish()
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
        assert_eq!(contain(|| 1).ok(), Some(1));
        assert_eq!(contain(|| std::panic::panic_any(Thorn)).ok(), None::<()>);
        assert_eq!(
            contain(|| panic!("a text")).map_err(|panic: Panic| panic.message()),
            Err::<(), _>("a text".to_owned())
        );
        discard(Thorn);
        discard_each([Thorn, Thorn]);
    }
}
