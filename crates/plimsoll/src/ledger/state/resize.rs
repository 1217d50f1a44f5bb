//! Limits that change at run time: of spaces and of slots.
//!
//! A higher limit holds at once. A lower one is a *target*: the limit follows it down in steps, as jobs finish, never
//! below what is held or what the jobs in flight need to finish (`lower_limits` in `admit`). Meanwhile new jobs are
//! admitted only below the target, and those whose claim is above it are refused.

use super::accounts::{AccountId, Kind};
use super::{LedgerState, Outcome};
use crate::ledger::error::ResizeError;
use crate::observe::What;
use crate::{Bytes, Slots, Space};

impl LedgerState {
    /// Sets a new limit for a space. A lower one takes effect stepwise, as jobs finish, never below a safe state;
    /// admissions that wait and no longer fit are refused.
    pub fn resize(
        &mut self,
        account: AccountId,
        space: Space,
        limit: Bytes,
        out: &mut Vec<Outcome>,
    ) -> Result<(), ResizeError> {
        self.set_target(account, Kind::Space(space), limit.0)?;
        self.note_all(What::Resized { space, limit });
        self.settle(out);
        Ok(())
    }

    /// Sets a new number of slots, as [`resize`](LedgerState::resize) does for the bytes of a space.
    pub fn resize_slots(
        &mut self,
        account: AccountId,
        slots: Slots,
        count: u64,
        out: &mut Vec<Outcome>,
    ) -> Result<(), ResizeError> {
        self.set_target(account, Kind::Slots(slots), count)?;
        self.note_all(What::ResizedSlots { slots, limit: count });
        self.settle(out);
        Ok(())
    }

    /// Adds a kind of slots to an account. Nobody has asked for any yet.
    pub fn open_slots(&mut self, account: AccountId, slots: Slots, count: u64) {
        self.accounts.open_slots(account, slots, count);
    }

    /// The most that jobs of an account can ever hold at once, as far as is known now; `None` where there is no limit.
    pub fn room(&self, account: AccountId, kind: Kind) -> Option<u64> {
        self.accounts.attainable(account, kind)
    }

    /// What residencies take of a space or kind of slots: those that jobs need which exist now. Jobs beside them have no more
    /// than the rest of the [`room`](LedgerState::room).
    pub fn needed_residencies(&self, kind: Kind) -> u64 {
        let Some(component) = self.accounts.own(AccountId::ROOT, kind) else { return 0 };
        if mutant!("residencies-take-no-room") {
            return 0;
        }
        let needed = self.residencies.entries.iter().filter(|(_, entry)| entry.is_needed());
        needed.fold(0, |sum, (_, entry)| sum.saturating_add(entry.amounts.of(component)))
    }

    fn set_target(&mut self, account: AccountId, kind: Kind, limit: u64) -> Result<(), ResizeError> {
        let unnamed = || ResizeError::Unbudgeted(self.own_place(account, kind));
        let component = self.accounts.own(account, kind).ok_or_else(unnamed)?;
        if self.accounts.is_lost(kind) {
            return Err(ResizeError::Lost(self.own_place(account, kind)));
        }
        // The urgent reserve is a part of the limit, not something beside it.
        let (own, reserve) = self.accounts.divide(component, limit);
        for (component, limit) in std::iter::once((component, own)).chain(reserve) {
            let component = self.accounts.component_mut(component);
            component.target = limit;
            component.limit = component.limit.max(limit);
        }
        self.reorder();
        self.recheck = true;
        Ok(())
    }
}
