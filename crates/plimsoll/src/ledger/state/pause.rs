//! What an operator may do to a ledger from outside: hold back what is new, and have a residency go.
//!
//! While admission is paused nothing new is admitted, at once or later, and nobody has room made for it: it waits in its
//! place, which it keeps. What is in flight is served as ever, so that a paused ledger comes to rest by itself. Parts of a job
//! in flight are no admissions.

use super::residency::{Loader, Residence, ResidencyId};
use super::{LedgerState, Outcome};
use crate::Bytes;
use crate::ledger::steer::EvictError;
use crate::observe::What;

impl LedgerState {
    /// Holds back everything that is not in flight, from now on.
    pub fn pause(&mut self) {
        if !std::mem::replace(&mut self.paused, true) {
            // The short way does not know of pauses.
            self.dissolve_line();
            self.note_all(What::Paused);
        }
    }

    /// Admits again, first what has waited, in its order.
    pub fn resume(&mut self, out: &mut Vec<Outcome>) {
        if std::mem::take(&mut self.paused) {
            self.note_all(What::Resumed);
            self.settle(out);
        }
    }

    /// Whether admission is paused.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Evicts the residency of this name now, though nobody needs its room. Of several of one name the first that can go.
    /// Returns what it holds; that is back when its memory is gone.
    ///
    /// # Errors
    ///
    /// If it is not there, or a job in flight pins it.
    pub fn evict_by_name(&mut self, name: &str, out: &mut Vec<Outcome>) -> Result<Bytes, EvictError> {
        let named = self.residencies.entries.iter().filter(|(_, entry)| *entry.declared.name == *name);
        let named: Vec<ResidencyId> = named.map(|(index, _)| ResidencyId(index)).collect();
        let mut refusal = None;
        for id in named {
            let entry = self.residencies.entry(id);
            let (pins, residence, name) = (entry.pins, entry.residence, entry.declared.name.clone());
            let why = match residence {
                Residence::Absent => EvictError::NotResident { name },
                Residence::Evicting | Residence::Loading(Loader::Unwinding(_)) => EvictError::Leaving { name },
                _ if pins > 0 => EvictError::InUse { name, pins },
                _ if entry.can_be_evicted() => {
                    let owner = entry.owner.expect("what is there is held");
                    let bytes = Bytes(self.owners[owner.0].holding(entry.declared.class.into()));
                    self.evict(id);
                    self.settle(out);
                    return Ok(bytes);
                }
                _ => EvictError::NotResident { name },
            };
            refusal.get_or_insert(why);
        }
        let all = || self.residencies.entries.iter().map(|(_, entry)| entry.declared.name.clone()).collect();
        Err(refusal.unwrap_or_else(|| EvictError::Unknown { name: name.into(), known: all() }))
    }
}
