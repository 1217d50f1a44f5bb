//! The state as simulators, checkers and tests see it: plain values, without ages and statistics, so that a search finds
//! two states equal when they behave alike.

use super::LedgerState;
use super::accounts::{AccountId, Kind};
use super::owner::{Declared, OwnerId, Phase, Want};
use crate::Resource;

/// One component of the vector.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ComponentView {
    /// What it counts.
    pub kind: Kind,
    /// The account whose limit it is.
    pub account: AccountId,
    /// The limit that holds now.
    pub limit: u64,
    /// The limit that was asked for.
    pub target: u64,
    /// What is held.
    pub held: u64,
    /// What retained reservations take away.
    pub retained: u64,
    /// It was lost with its device.
    pub retired: bool,
}

/// Where an owner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stand {
    /// Not admitted.
    Fresh,
    /// In flight, in this stage; or a free-standing reservation (`None`).
    Running(Option<usize>),
    /// In flight, before this stage.
    Between(usize),
    /// Ended; what it holds is retained.
    Ended,
    /// A part that ended: what it held is its parent's.
    HandedOver,
}

/// A waiting request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitView {
    /// The stage that is waited for; `None` for more bytes of a free-standing reservation.
    pub stage: Option<usize>,
    /// How many waiting requests are older.
    pub rank: usize,
    /// How many later admissions have passed it.
    pub passed: u32,
}

/// A job or a free-standing reservation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnerView {
    /// The account that it is charged to: for an urgent job the one that it was, or will be tried to be, admitted by.
    pub account: AccountId,
    /// Where it stands.
    pub stand: Stand,
    /// What it waits for.
    pub waiting: Option<WaitView>,
    /// What it holds, by resource.
    pub holdings: Vec<(Resource, u64)>,
    /// The most that it may still need, what it holds included, by index of the component.
    pub claim: Vec<(usize, u64)>,
    /// What it leaves behind, by index of the component.
    pub leaves: Vec<(usize, u64)>,
    /// Which of its profiles it goes by: 0 is the one that is preferred.
    pub choice: usize,
    /// The job that it is a part of.
    pub parent: Option<OwnerId>,
}

impl LedgerState {
    /// The components of the vector.
    pub fn components(&self) -> Vec<ComponentView> {
        let view = |component: &super::Component| {
            let super::Component { kind, account, limit, target, held, retained, retired, .. } = *component;
            ComponentView { kind, account, limit, target, held, retained, retired: retired.is_some() }
        };
        self.accounts.components.iter().map(view).collect()
    }

    /// The indices of the components that a resource is charged to in an account; empty where there is no room for it.
    pub fn charged(&mut self, account: AccountId, resource: impl Into<Resource>) -> Vec<usize> {
        let charged = self.accounts.charged(account, resource.into()).unwrap_or_default();
        charged.into_iter().map(|component| component as usize).collect()
    }

    /// The account that urgent jobs of this one are charged to, where there is a reserve for them.
    pub fn urgent(&self, account: AccountId) -> Option<AccountId> {
        self.accounts.urgent(account)
    }

    /// How many later admissions may pass a waiting request.
    pub fn bypass(&self) -> u32 {
        self.bypass
    }

    /// The owners that exist.
    pub fn owners(&self) -> impl Iterator<Item = OwnerId> + '_ {
        self.owners.iter().map(|(index, _)| OwnerId(index))
    }

    /// What an owner holds of a resource.
    pub fn held_by(&self, id: OwnerId, resource: Resource) -> u64 {
        let owner = &self.owners[id.0];
        owner.holdings.iter().find(|entry| entry.0 == resource).map_or(0, |entry| entry.1)
    }

    /// What an owner holds, by resource.
    pub fn holdings_of(&self, id: OwnerId) -> &[(Resource, u64)] {
        &self.owners[id.0].holdings
    }

    /// What a waiting request needs beyond what is held, by resource; nothing where none waits.
    pub fn wants(&self, id: OwnerId) -> Vec<(Resource, u64)> {
        let owner = &self.owners[id.0];
        owner.waiting.as_ref().map_or_else(Vec::new, |waiting| owner.missing(waiting.want).into_vec())
    }

    /// One owner; `None` once it has ended and returned everything.
    pub fn owner(&self, id: OwnerId) -> Option<OwnerView> {
        let owner = self.owners.get(id.0)?;
        let stand = match (owner.phase, &owner.declared) {
            (Phase::Fresh, _) => Stand::Fresh,
            (Phase::Ended, _) => Stand::Ended,
            (Phase::HandedOver, _) => Stand::HandedOver,
            (Phase::InFlight, Declared::Job { running: None, next, .. }) => Stand::Between(*next),
            (Phase::InFlight, Declared::Job { running, .. }) => Stand::Running(*running),
            (Phase::InFlight, Declared::Standing { .. }) => Stand::Running(None),
        };
        let waiting = owner.waiting.as_ref().map(|waiting| WaitView {
            stage: match waiting.want {
                Want::Stage(stage) => Some(stage),
                Want::More(..) => None,
            },
            rank: self.waiting_ages().filter(|age| *age < waiting.age).count(),
            passed: self.times_passed(id),
        });
        let mut holdings = owner.holdings.to_vec();
        holdings.sort();
        let plain = |amounts: &super::Amounts| amounts.iter().map(|(id, amount)| (id as usize, amount)).collect();
        Some(OwnerView {
            account: owner.account,
            stand,
            waiting,
            holdings,
            claim: plain(&owner.claim),
            leaves: plain(&owner.leaves),
            choice: self.choice(id),
            parent: owner.family.parent,
        })
    }

    fn waiting_ages(&self) -> impl Iterator<Item = u64> + '_ {
        self.owners.iter().filter_map(|(_, owner)| owner.waiting.as_ref()).map(|waiting| waiting.age)
    }
}
