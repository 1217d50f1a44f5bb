//! A thread outside of the pool, which runs a carried stage, and polls futures.

use std::sync::{Arc, mpsc};
use std::task::{Context, Wake, Waker};

use plimsoll::pipeline::{Carrier, Errand, Task};

pub(crate) use self::around::once_around;

#[path = "once_around.rs"]
mod around;

/// Threads that run whatever comes: errands and futures. They end with the last handle.
#[derive(Clone)]
pub(crate) struct Hands {
    work: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

impl Hands {
    #[expect(clippy::disallowed_methods, reason = "a thread outside of the pool is what this stands for")]
    pub(crate) fn new() -> Self {
        let (work, to_do) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        std::thread::spawn(move || to_do.into_iter().for_each(|work| work()));
        Self { work }
    }
}

impl Carrier for Hands {
    fn carry(&self, errand: Errand) {
        let _ = self.work.send(Box::new(move || errand.run()));
    }
}

pub(crate) struct Polled {
    hands: Hands,
    task: parking::Slot<Task>,
}

impl Polled {
    pub(crate) fn new(hands: Hands, task: Task) -> Arc<Self> {
        Arc::new(Self { hands, task: parking::Slot::new(task) })
    }
}

impl Wake for Polled {
    fn wake(self: Arc<Self>) {
        let work = self.hands.work.clone();
        let _ = work.send(Box::new(move || {
            let waker = Waker::from(self.clone());
            self.task.with(|task| task.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        }));
    }
}

/// A value that one thread at a time works with.
mod parking {
    #[expect(clippy::disallowed_types, reason = "the crate's own switch is not public")]
    pub(super) struct Slot<T>(std::sync::Mutex<Option<T>>);

    #[expect(clippy::disallowed_types, reason = "the crate's own switch is not public")]
    impl<T> Slot<T> {
        pub(super) fn new(value: T) -> Self {
            Self(std::sync::Mutex::new(Some(value)))
        }

        /// Drops the value once `f` says that it is done.
        pub(super) fn with(&self, f: impl FnOnce(&mut T) -> bool) {
            let mut slot = self.0.lock().unwrap();
            if slot.as_mut().is_some_and(f) {
                *slot = None;
            }
        }
    }
}
