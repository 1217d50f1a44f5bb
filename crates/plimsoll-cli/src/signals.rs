//! SIGINT and SIGTERM: the first one asks the work to stop, the second one ends the process at once.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::exit::{Exit, Failure};

/// Says whether a signal has come. Cheap to clone and to ask.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    signal: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
}

impl Interrupt {
    /// Catches the signals from now on.
    pub fn install() -> io::Result<Self> {
        let interrupt = Self::default();
        for signal in [SIGINT, SIGTERM] {
            let again = Arc::new(AtomicBool::new(false));
            // In this order: the first signal finds `again` unset, sets it and the flag; the second one finds it set.
            flag::register_conditional_shutdown(
                signal,
                i32::from(Exit::Interrupted(signal).code()),
                Arc::clone(&again),
            )?;
            flag::register(signal, again)?;
            // The signal before the flag: who was stopped by the flag finds out why.
            flag::register_usize(signal, Arc::clone(&interrupt.signal), signal as usize)?;
            flag::register(signal, Arc::clone(&interrupt.stop))?;
        }
        Ok(interrupt)
    }

    /// The signal that came, if one did.
    pub fn signal(&self) -> Option<i32> {
        // Relaxed: the number stands for itself, no other memory is published with it.
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }

    /// Set with the first signal, for who takes no more than a flag.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop)
    }

    /// Whether the work should stop.
    pub fn is_set(&self) -> bool {
        self.signal().is_some()
    }

    /// As if a signal had come.
    #[cfg(test)]
    pub(crate) fn come(&self) {
        self.signal.store(SIGINT as usize, Ordering::Relaxed);
    }

    /// What the command reports when it stopped.
    pub fn failure(&self) -> Failure {
        Failure::new(Exit::Interrupted(self.signal().unwrap_or(SIGINT)), "interrupted; nothing was written")
    }
}
