//! The shell's part in residencies: where the values are, who is told to load, and how what is evicted is dropped.
//!
//! Values are put into the table and taken out of it under the ledger's lock, and dropped outside of it: by the reaper, or
//! where that would not be worth a thread by whoever's event ordered the eviction, after all others were told of what that
//! event brought them.

use std::sync::Arc as StdArc;

use super::seats::Signals;
use super::{Inner, Shell};
use crate::Space;
use crate::contain::discard;
use crate::ledger::reaper::{self, EVICTED_MIN};
use crate::ledger::residency::{Kept, Value};
use crate::ledger::state::{Order, OwnerId, ResidencyId, Resident};
use crate::sync::{self, Arc};

/// The values that are loaded, by the residency's index.
#[derive(Debug, Default)]
pub(super) struct Residents(Vec<Option<Loaded>>);

/// A value, and the ledger that it is in: for the thread that will drop it.
#[derive(Clone, Debug)]
struct Loaded {
    value: Value,
    home: Arc<Inner>,
}

/// Values that are to be dropped outside of the lock, and threads to be started that drop others.
#[must_use]
#[derive(Default)]
pub(super) struct Leaving {
    values: Vec<Value>,
    threads: Vec<(Arc<Inner>, Space)>,
}

impl Inner {
    /// The value of a residency, if it is loaded.
    pub(in crate::ledger) fn value(&self, id: ResidencyId) -> Option<Value> {
        sync::lock(&self.shell).residents.0.get(id.index())?.as_ref().map(|loaded| loaded.value.clone())
    }

    /// A load is done. The value comes back if nobody wants it any more.
    pub(in crate::ledger) fn fill<T: Send + Sync + 'static>(
        &self,
        id: ResidencyId,
        kept: Kept<T>,
    ) -> Result<(), Kept<T>> {
        let kept = StdArc::new(kept);
        let mut shell = sync::lock(&self.shell);
        let now = self.now();
        shell.books.state().advance(now);
        let wanted = shell.apply(|state, out| state.loaded(id, out));
        if wanted {
            shell.residents.put(id, Loaded { value: kept.clone(), home: kept.home() });
        }
        self.deliver(shell);
        if wanted {
            return Ok(());
        }
        Err(StdArc::into_inner(kept).expect("nobody else has seen it"))
    }

    /// The residency that falls to a job to be loaded.
    pub(in crate::ledger) fn next_load(&self, job: OwnerId) -> Option<ResidencyId> {
        sync::lock(&self.shell).books.state().next_load(job)
    }
}

impl Shell {
    /// Carries out what the last event ordered: values leave the table, and who is to load is told with the others.
    pub(super) fn carry_out_orders(&mut self, signals: &mut Signals) -> Leaving {
        let mut leaving = Leaving::default();
        if !self.books.state().has_orders() {
            return leaving;
        }
        for order in self.books.state().drain_orders().collect::<Vec<_>>() {
            match order {
                Order::Evict(id) => self.see_off(id, &mut leaving),
                Order::Load(..) if mutant!("takeover-without-wake") => {}
                Order::Load(job, _) => {
                    // Who has no seat asks for it just now, or will.
                    signals.extend(self.seats.signal_of(job));
                }
            }
        }
        leaving
    }

    /// A value leaves the table.
    fn see_off(&mut self, id: ResidencyId, leaving: &mut Leaving) {
        let Some(Loaded { value, home }) = self.residents.0.get_mut(id.index()).and_then(Option::take) else { return };
        match self.books.state().resident(id) {
            Some(&Resident { class, bytes, .. }) if bytes >= EVICTED_MIN && !mutant!("evicted-on-the-spot") => {
                if self.bury(class.space(), bytes, Box::new(value)) {
                    leaving.threads.push((home, class.space()));
                }
            }
            _ => leaving.values.push(value),
        }
    }
}

impl Residents {
    fn put(&mut self, id: ResidencyId, loaded: Loaded) {
        if self.0.len() <= id.index() {
            self.0.resize(id.index() + 1, None);
        }
        self.0[id.index()] = Some(loaded);
    }
}

impl Leaving {
    /// Drops them. A destructor that panics is the value's own affair: its bytes come back all the same, and whoever's
    /// event it was goes on.
    pub(super) fn leave(self) {
        for (home, space) in self.threads {
            reaper::start(&home, space);
        }
        for value in self.values {
            discard(value);
        }
    }
}
