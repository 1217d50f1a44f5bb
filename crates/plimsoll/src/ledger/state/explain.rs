//! What the ledger says about itself: places, shortages, the snapshot.

use std::sync::Arc;
use std::time::Duration;

use super::accounts::{AccountId, Component, Kind};
use super::amounts::{Amounts, ComponentId};
use super::owner::{Owner, OwnerId, Waiting};
use super::residency::{Entry, Loader, Readiness, Residence, ResidencyId};
use super::safety::Unsafe;
use super::{Counted, LedgerState, Resource};
use crate::Bytes;
use crate::ledger::error::{Holder, Place, Reason, Shortage, Stuck};
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
        let reason = self.reason_of_waiting(id);
        Shortage { who: self.owners[id.0].name.clone(), reason }
    }

    fn reason_of_waiting(&mut self, id: OwnerId) -> Reason {
        let admission = !self.owners[id.0].goes_with_growth();
        if admission && let Some(job) = self.runs_alone_beside(id) {
            return Reason::Alone { job: self.owners[job.0].name.clone() };
        }
        if admission && let Some(within) = self.to_run_alone_within(id) {
            let mut behind: Vec<&Owner> = self.in_the_way_of_alone(&within).collect();
            behind.sort_by_key(|other| other.born);
            if !behind.is_empty() {
                let behind = behind.into_iter().take(HOLDERS).map(|other| other.name.clone()).collect();
                return Reason::ToRunAlone { behind };
            }
        }
        let must_load = self.readiness(id) == Readiness::MustLoad;
        let more = if must_load { self.amounts_to_load(id) } else { self.more_of(id) };
        if let Some(short) = self.short_of(&more, admission) {
            return short;
        }
        if admission && self.may_pass(id).is_none() {
            return Reason::Order { behind: self.not_to_be_passed(id) };
        }
        let reason = if must_load {
            self.with_load(id, &more, |state| state.why_unsafe(Some(id)))
        } else {
            // What it needs beside its claim would be pinned.
            let tried = !self.owners[id.0].needs.is_empty() && self.pin(id);
            let reason = self.with_granted(id, &more, LedgerState::why_unsafe);
            if tried {
                self.unpin_tried(id);
            }
            reason
        };
        reason.unwrap_or(Reason::Queued)
    }

    /// Of those that wait and must not be passed by this one, the oldest.
    fn not_to_be_passed(&self, id: OwnerId) -> Arc<str> {
        if let Some(first) = self.line.get(0) {
            return self.owners[first.owner].name.clone();
        }
        let age = self.age(id);
        let spent = self.owners.iter().filter(|(index, other)| {
            let waits =
                |waiting: &Waiting| waiting.passed >= self.bypass && (other.goes_with_growth() || waiting.age < age);
            *index != id.0 && other.waiting.as_ref().is_some_and(waits)
        });
        let oldest = spent.min_by_key(|(_, other)| other.waiting.as_ref().map(|waiting| waiting.age));
        debug_assert!(oldest.is_some(), "somebody holds it back");
        oldest.map_or_else(|| Arc::from("others"), |(_, owner)| owner.name.clone())
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

    /// What there is too little of for so much more to be held: of limits that are coming down, for whoever is to be
    /// admitted.
    pub(super) fn short_of(&self, more: &Amounts, admission: bool) -> Option<Reason> {
        let limit =
            |component: &Component| if admission { component.limit.min(component.target) } else { component.limit };
        let left = |component: &Component| limit(component).saturating_sub(component.held);
        let short = more.iter().find(|&(component, amount)| amount > left(self.accounts.component(component)));
        short.map(|(at, needed)| {
            let component = self.accounts.component(at);
            let (free, limit) = (left(component), limit(component));
            Reason::Short { place: self.place(at), needed, free, limit, holders: self.holders(at, None) }
        })
    }

    /// Why an owner in flight cannot have so much more, in the state as it is.
    pub(super) fn shortage_now(&self, id: OwnerId, more: &Amounts) -> Shortage {
        let reason = self.short_of(more, false).or_else(|| self.why_unsafe(None)).unwrap_or(Reason::Queued);
        Shortage { who: self.owners[id.0].name.clone(), reason }
    }

    pub(super) fn unbudgeted(&self, id: OwnerId, kind: Kind) -> Shortage {
        let owner = &self.owners[id.0];
        let place = self.own_place(owner.account, kind);
        Shortage { who: owner.name.clone(), reason: Reason::Unbudgeted { place } }
    }

    /// Whom the state as it is, with what was just charged to `also` (who is not in flight yet), would keep from finishing.
    /// `None` where it is safe.
    pub(super) fn why_unsafe(&self, also: Option<OwnerId>) -> Option<Reason> {
        let stuck = match self.check_at_length(also) {
            Ok(()) => return None,
            Err(Unsafe::Limit) => None,
            Err(Unsafe::Stuck { owner, component, needed, left }) => Some(Stuck {
                name: owner.name.clone(),
                place: self.place(component),
                needed,
                left,
                holders: self.holders(component, Some(owner)),
            }),
        };
        Some(Reason::Unsafe { stuck })
    }

    fn holders(&self, component: ComponentId, but: Option<&Owner>) -> Vec<Holder> {
        let mut holders: Vec<(u64, &Arc<str>)> = self
            .owners
            .iter()
            .filter(|(_, owner)| but.is_none_or(|but| owner.born != but.born))
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
