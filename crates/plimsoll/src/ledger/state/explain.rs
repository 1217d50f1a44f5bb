//! What the ledger says about itself: places, shortages, the snapshot.

use std::sync::Arc;
use std::time::Duration;

use super::accounts::{AccountId, Component, Kind};
use super::amounts::{Amounts, ComponentId};
use super::owner::OwnerId;
use super::residency::{Entry, Loader, Readiness, Residence, ResidencyId};
use super::{Counted, LedgerState, Resource};
use crate::Bytes;
use crate::ledger::error::{Holder, Place, Reason, Shortage};
use crate::ledger::snapshot::{ClassUsage, Holding, ResidencyUsage, SlotsUsage, Snapshot, SpaceUsage, Waiter};

/// How many holders an explanation names.
const HOLDERS: usize = 3;

impl LedgerState {
    pub(super) fn place(&self, component: ComponentId) -> Place {
        let Component { kind, account, .. } = *self.accounts.component(component);
        let child = self.accounts.name(account).filter(|name| !name.is_empty()).cloned();
        Place { kind, account, child, urgent: self.accounts.is_urgent(account) }
    }

    pub(super) fn root_place(&self, kind: Kind) -> Place {
        Place { kind, account: AccountId::ROOT, child: None, urgent: false }
    }

    /// The place of an account's own limit, whether or not there is one.
    pub(super) fn own_place(&self, account: AccountId, kind: Kind) -> Place {
        let child = self.accounts.name(account).filter(|name| !name.is_empty()).cloned();
        Place { kind, account, child, urgent: false }
    }

    /// The name of a job or free-standing reservation.
    pub fn name_of(&self, id: OwnerId) -> Arc<str> {
        self.owners[id.0].name.clone()
    }

    /// The same, if it still waits.
    pub fn shortage_while_it_waits(&mut self, id: OwnerId) -> Option<Shortage> {
        self.owners[id.0].waiting.is_some().then(|| self.shortage(id))
    }

    /// Why the waiting request of `id` is not served.
    pub fn shortage(&mut self, id: OwnerId) -> Shortage {
        if self.paused && !self.owners[id.0].goes_with_growth() {
            return Shortage { who: self.owners[id.0].name.clone(), reason: Reason::Paused };
        }
        if let Some(reason) = self.waits_for_residency(id) {
            return Shortage { who: self.owners[id.0].name.clone(), reason };
        }
        let more = match self.readiness(id) {
            Readiness::MustLoad => self.amounts_to_load(id),
            Readiness::Ready | Readiness::NotYet => self.more_of(id),
        };
        let mut shortage = self.shortage_of(id, &more);
        if shortage.reason == Reason::Unsafe && !self.owners[id.0].goes_with_growth() && self.may_pass(id).is_none() {
            shortage.reason = Reason::Order;
        }
        shortage
    }

    /// What a job waits for that is not bytes: a residency that is being loaded, or that has not gone yet.
    fn waits_for_residency(&self, id: OwnerId) -> Option<Reason> {
        let entries = self.owners[id.0].needs.iter().map(|need| self.residencies.entry(*need));
        let is_on_its_way = |entry: &&Entry| matches!(entry.residence, Residence::Loading(_) | Residence::Evicting);
        let entry = entries.into_iter().find(is_on_its_way)?;
        let loader = match entry.residence {
            Residence::Loading(Loader::Called(job) | Loader::Busy(Some(job))) => Some(self.owners[job.0].name.clone()),
            _ => None,
        };
        Some(Reason::Loading { residency: entry.declared.name.clone(), loader })
    }

    fn residencies_usage(&self) -> Vec<ResidencyUsage> {
        let usage = |(index, entry): (usize, &Entry)| {
            let view = self.residency(ResidencyId(index)).expect("it exists");
            ResidencyUsage {
                name: entry.declared.name.clone(),
                class: entry.declared.class,
                bytes: entry.declared.bytes,
                held: view.held,
                stand: view.stand,
                pins: view.pins,
                used_at: entry.used,
                rebuild: Duration::from_nanos(entry.declared.rebuild),
                loads: entry.loads,
                evictions: entry.evictions,
            }
        };
        self.residencies.entries.iter().map(usage).collect()
    }

    pub(super) fn shortage_of(&self, id: OwnerId, more: &Amounts) -> Shortage {
        Shortage { who: self.owners[id.0].name.clone(), reason: self.reason_of(more) }
    }

    /// What is in the way of so much more being held.
    pub(super) fn reason_of(&self, more: &Amounts) -> Reason {
        let short = more.iter().find(|&(component, amount)| amount > self.accounts.component(component).free());
        match short {
            Some((component, needed)) => Reason::Short {
                place: self.place(component),
                needed,
                free: self.accounts.component(component).free(),
                limit: self.accounts.component(component).limit,
                holders: self.holders(component),
            },
            None if self.fits(more) => Reason::Unsafe,
            None => Reason::Queued,
        }
    }

    fn holders(&self, component: ComponentId) -> Vec<Holder> {
        let mut holders: Vec<(u64, &Arc<str>)> = self
            .owners
            .iter()
            .map(|(_, owner)| (owner.held.of(component), &owner.name))
            .filter(|holder| holder.0 != 0)
            .collect();
        holders.sort_by(|a, b| b.cmp(a));
        holders.truncate(HOLDERS);
        holders.into_iter().map(|(held, name)| Holder { name: name.clone(), held }).collect()
    }

    /// What is held by whom, and what is waited for.
    pub fn snapshot(&mut self) -> Snapshot {
        self.let_go_of_closed();
        let mut snapshot = Snapshot {
            outlived: self.outlived,
            overdrawn: self.overdrawn,
            forced: self.forced,
            retried: self.retried,
            restarted: self.restarted,
            paused: self.paused,
            ..Snapshot::default()
        };
        for (index, component) in self.accounts.components.iter().enumerate() {
            let Component { kind, limit, target, held, peak, retired, .. } = *component;
            if limit == u64::MAX && held == 0 && self.accounts.is_childs(index as ComponentId) {
                // Left by a child that was closed.
                continue;
            }
            match kind {
                Kind::Space(_) => snapshot.spaces.push(SpaceUsage {
                    place: self.place(index as ComponentId),
                    limit: Bytes(limit),
                    target: Bytes(target),
                    held: Bytes(held),
                    peak: Bytes(peak),
                    retired: retired.map(Bytes),
                }),
                Kind::Slots(_) => {
                    snapshot.slots.push(SlotsUsage {
                        place: self.place(index as ComponentId),
                        limit,
                        target,
                        held,
                        peak,
                        retired,
                    });
                }
            }
        }
        for &Counted { resource, totals } in &self.classes {
            if let Resource::Class(class) = resource {
                snapshot.classes.push(ClassUsage { class, totals });
            }
        }
        snapshot.classes.sort_by_key(|usage| usage.class);
        let waiting: Vec<OwnerId> =
            self.owners.iter().filter(|(_, owner)| owner.waiting.is_some()).map(|(index, _)| OwnerId(index)).collect();
        for id in waiting {
            let shortage = self.shortage(id);
            let stage = self.stage_of(id);
            let owner = &self.owners[id.0];
            let waiting = owner.waiting.as_ref().expect("filtered");
            snapshot.waiters.push(Waiter {
                shortage,
                owner: id,
                stage,
                needs: owner.missing(waiting.want).to_vec(),
                since: waiting.since,
                passed: self.times_passed(id),
                in_flight: owner.in_flight(),
            });
        }
        for (index, owner) in self.owners.iter().filter(|(_, owner)| !owner.holdings.is_empty()) {
            let mut held = owner.holdings.to_vec();
            held.sort();
            snapshot.holders.push(Holding {
                who: owner.name.clone(),
                owner: OwnerId(index),
                reserved_at: None,
                since: 0,
                stage: self.stage_of(OwnerId(index)),
                external: None,
                held,
            });
        }
        snapshot.residencies = self.residencies_usage();
        snapshot
    }
}
