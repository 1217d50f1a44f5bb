//! The only switch between the standard library's synchronisation and loom's models of it.
//!
//! Everything in this crate that locks, waits, spawns or shares an atomic takes it from here, so that the models in
//! `loom-tests` run the code that ships. A lock is never poisoned for good: no code of a user runs inside a critical
//! section of this crate.

#![expect(clippy::disallowed_types, reason = "this is the switch that the rest of the crate goes through")]

use std::sync::PoisonError;
use std::time::Duration;

#[cfg(not(any(plimsoll_loom, plimsoll_shuttle)))]
mod imp {
    pub(super) use std::sync::{Condvar, Mutex};

    pub(crate) use std::sync::{Arc, MutexGuard, atomic};
    pub(crate) use std::{thread, thread_local};
}

#[cfg(plimsoll_shuttle)]
mod imp {
    pub(super) use shuttle::sync::{Condvar, Mutex};

    pub(crate) use shuttle::sync::{MutexGuard, atomic};
    pub(crate) use shuttle::thread;
    pub(crate) use std::sync::Arc;

    /// shuttle's, which takes no `const` block.
    macro_rules! shuttle_thread_local {
        (static $name:ident: $type:ty = const { $init:expr };) => {
            shuttle::thread_local! { static $name: $type = $init; }
        };
    }
    pub(crate) use shuttle_thread_local as thread_local;
}

#[cfg(plimsoll_loom)]
mod imp {
    pub(super) use loom::sync::{Condvar, Mutex};

    pub(crate) use loom::sync::{Arc, MutexGuard, atomic};
    pub(crate) use loom::thread;

    /// loom's, which takes no `const` block.
    macro_rules! loom_thread_local {
        (static $name:ident: $type:ty = const { $init:expr };) => {
            loom::thread_local! { static $name: $type = $init; }
        };
    }
    pub(crate) use loom_thread_local as thread_local;
}

pub(crate) use imp::{Arc, MutexGuard, atomic, thread, thread_local};

/// A mutex, locked with [`lock`].
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A condition variable, waited for with [`wait`].
#[derive(Debug, Default)]
pub(crate) struct Condvar(imp::Condvar);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self(imp::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Locks, also after a panic elsewhere.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits on `condvar`, at most for `timeout`. Under loom a time-out never comes.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, timeout: Option<Duration>) -> MutexGuard<'a, T> {
    match timeout {
        None => condvar.0.wait(guard).unwrap_or_else(PoisonError::into_inner),
        Some(timeout) => condvar.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner).0,
    }
}
