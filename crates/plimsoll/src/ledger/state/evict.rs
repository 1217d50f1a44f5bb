//! What goes when room is needed: which request may have it made, and what is evicted for it.
//!
//! After each pass over the queues, the first request in their order that would be granted if all went that can go has
//! room made for it, at once: as much as it is short of beyond what is on its way back already. Nobody polls: the next
//! event that changes anything, at the latest the last byte of the eviction coming back, is followed by a pass of its own.
//!
//! What goes is what costs least to miss: by bytes × time since the last use / cost of loading it again, largest first; of
//! equals the one that has not been used for longest. What turns out not to be needed beside larger ones stays.

use super::LedgerState;
use super::amounts::Amounts;
use super::owner::OwnerId;
use super::residency::{Entry, Loader, Probed, Readiness, Residence, ResidencyId};
use super::{Component, Granted};

impl LedgerState {
    /// Grants a waiting request of a job that needs residencies, or admits it to the load of those.
    pub(super) fn try_grant_with_needs(&mut self, id: OwnerId) -> Option<Granted> {
        match self.readiness(id) {
            Readiness::NotYet => None,
            Readiness::MustLoad => {
                self.try_admit_to_load(id);
                None
            }
            Readiness::Ready => {
                let tried = self.pin(id);
                let granted = self.try_grant_whole(id);
                if granted.is_none() && tried {
                    self.unpin_tried(id);
                }
                granted
            }
        }
    }

    /// Admits a job to the load of what it needs and nobody has loaded, if that fits and leaves the state safe: with the
    /// job in flight, and all that it needs pinned.
    fn try_admit_to_load(&mut self, id: OwnerId) {
        let more = self.amounts_to_load(id);
        let claim = self.with_needs(&self.owners[id.0].needs, &self.owners[id.0].claim);
        // A part is in its parent's claim and needs what that pins, whatever is asked for now.
        let may = self.owners[id.0].is_part() || self.is_below_target(&more) && self.unattainable(&claim).is_none();
        if !may || !self.fits(&more) {
            return;
        }
        let is_safe = |state: &mut LedgerState| mutant!("load-outside-safety") || state.is_safe_with(Some(id));
        if !self.with_load(id, &more, is_safe) {
            return;
        }
        if self.residencies.probing {
            self.residencies.probed = Some(Probed { more, needs: self.owners[id.0].needs.clone() });
            return;
        }
        self.pin(id);
        self.join_family(id);
        self.commit_to_load(id);
    }

    /// Looks at the state as it would be with a job admitted to the load of what it needs, which takes so much.
    pub(super) fn with_load<R>(&mut self, id: OwnerId, more: &Amounts, look: impl FnOnce(&mut LedgerState) -> R) -> R {
        self.pin(id);
        let family = self.join_family(id);
        for (component, bytes) in more.iter() {
            self.accounts.component_mut(component).held += bytes;
        }
        let seen = look(self);
        for (component, bytes) in more.iter() {
            self.accounts.component_mut(component).held -= bytes;
        }
        self.leave_family(id, family);
        self.unpin_tried(id);
        seen
    }

    /// Whether an admission stays below the limits that were asked for: while a lowered limit waits for jobs to finish, new
    /// ones only come in below the new one.
    pub(super) fn is_below_target(&self, more: &Amounts) -> bool {
        more.iter().all(|(component, amount)| {
            let Component { held, target, reclaimable, .. } = *self.accounts.component(component);
            let held = if self.residencies.probing { held.saturating_sub(reclaimable) } else { held };
            held.saturating_add(amount) <= target
        })
    }

    /// Whether anything could go, or is going.
    pub(super) fn may_make_room(&self) -> bool {
        let can_go = |(index, entry): (usize, &Entry)| {
            let goes = matches!(entry.residence, Residence::Evicting) || entry.can_be_evicted();
            goes && !self.is_pinned(ResidencyId(index))
        };
        self.residencies.entries.iter().any(can_go)
    }

    /// Evicts what the first request needs that only eviction can serve, and what holds up a lowered limit.
    pub(super) fn make_room(&mut self) {
        if !self.may_make_room() {
            return;
        }
        self.make_room_below_targets();
        self.residencies.probing = true;
        let first = self.first_that_eviction_serves();
        self.residencies.probing = false;
        if let Some((id, Probed { more, needs })) = first {
            let admission = !self.owners[id.0].goes_with_growth();
            let mut short = Amounts::default();
            for (at, amount) in more.iter() {
                let Component { limit, target, held, .. } = *self.accounts.component(at);
                let bound = if admission { limit.min(target) } else { limit };
                short.add(at, (held + amount).saturating_sub(bound));
            }
            // What it needs itself stays.
            self.hold_still(&needs, true);
            self.evict_at_least(short);
            self.hold_still(&needs, false);
        }
    }

    fn first_that_eviction_serves(&mut self) -> Option<(OwnerId, Probed)> {
        for id in self.queues.growths() {
            self.try_grant_by_any_plan(id);
            if let Some(probed) = self.residencies.probed.take() {
                return Some((id, probed));
            }
        }
        for id in self.queues.admissions() {
            self.try_admit(id);
            if let Some(probed) = self.residencies.probed.take() {
                return Some((id, probed));
            }
        }
        None
    }

    /// A limit that was set lower comes down as far as it can: what nobody pins is not in its way.
    fn make_room_below_targets(&mut self) {
        let mut short = Amounts::default();
        for (at, component) in self.accounts.components.iter().enumerate() {
            if component.limit > component.target {
                short.add(at as u32, component.held.saturating_sub(component.target));
            }
        }
        self.evict_at_least(short);
    }

    /// Evicts until this much is on its way back, or nothing is left that can go.
    fn evict_at_least(&mut self, mut short: Amounts) {
        let held = |state: &LedgerState, entry: &Entry| {
            entry.owner.map(|owner| state.owners[owner.0].held.clone()).unwrap_or_default()
        };
        let mut candidates = Vec::new();
        for (index, entry) in &self.residencies.entries {
            let id = ResidencyId(index);
            if self.is_pinned(id) {
                continue;
            }
            let bytes = held(self, entry);
            match entry.residence {
                Residence::Evicting | Residence::Loading(Loader::Unwinding(_)) => short.sub_up_to(&bytes),
                _ if entry.can_be_evicted() => {
                    candidates.push((self.worth_evicting(entry), entry.rank, id, bytes));
                }
                _ => {}
            }
        }
        candidates.sort_by(|one, other| other.0.total_cmp(&one.0).then((one.1, one.2).cmp(&(other.1, other.2))));
        let mut left = short.clone();
        let mut chosen: Vec<(ResidencyId, Amounts)> = Vec::new();
        for (_, _, id, bytes) in candidates {
            if bytes.iter().any(|(component, _)| left.of(component) > 0) {
                left.sub_up_to(&bytes);
                chosen.push((id, bytes));
            }
        }
        // What was chosen early may be covered by something larger that was chosen later.
        for at in (0..chosen.len()).rev() {
            let mut without = short.clone();
            let others = chosen.iter().enumerate().filter(|entry| entry.0 != at);
            others.for_each(|(_, (_, bytes))| without.sub_up_to(bytes));
            if without == left && !mutant!("superfluous-eviction") {
                chosen.remove(at);
            }
        }
        for (id, _) in chosen {
            self.evict(id);
        }
    }

    /// Bytes × idle time / cost of loading it again. Rounded, but the same for the same numbers, everywhere.
    fn worth_evicting(&self, entry: &Entry) -> f64 {
        let bytes = entry.owner.map_or(0, |owner| self.owners[owner.0].holding(entry.declared.class.into()));
        // Nanoseconds, and one more: of those that were used just now, the largest goes first.
        let idle = self.residencies.now.saturating_sub(entry.used).saturating_add(1);
        let rebuild = if mutant!("eviction-without-cost") { 1 } else { entry.declared.rebuild.max(1) };
        bytes as f64 * idle as f64 / rebuild as f64
    }
}
