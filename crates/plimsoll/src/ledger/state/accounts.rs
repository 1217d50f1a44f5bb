//! The components of the ledger's vector, and which of them an amount of a resource is charged to.
//!
//! An *account* is the root ledger, a child of it, or the urgent reserve beside either. A resource that is charged to a
//! child's account is charged to the child's own limit, where it has one, and to every account above it.

use std::sync::Arc;

use smallvec::SmallVec;

use super::amounts::{Amounts, ComponentId};
use crate::{Budget, Resource, Slots, Space};

/// The root ledger or one of its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountId(pub(super) u32);

impl AccountId {
    /// The root ledger.
    pub const ROOT: AccountId = AccountId(0);
}

/// What a component counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The bytes of a space.
    Space(Space),
    /// Slots.
    Slots(Slots),
}

impl Kind {
    /// The number of the device that this belongs to, if it is any device's.
    pub fn device(self) -> Option<u16> {
        match self {
            Kind::Space(space) => space.device_number(),
            Kind::Slots(slots) => slots.device(),
        }
    }
}

impl From<Resource> for Kind {
    fn from(resource: Resource) -> Kind {
        match resource {
            Resource::Class(class) => Kind::Space(class.space()),
            Resource::Slots(slots) => Kind::Slots(slots),
        }
    }
}

/// More than this nobody gets, also where there is no limit: sums of what is held and asked for stay within 64 bits.
pub(super) const LARGEST: u64 = 1 << 62;

/// One component: how much there is and how much of it is held. What a reservation reads and writes is on one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Component {
    /// The limit that holds now. Above `target` while a lowered limit waits for jobs to finish.
    pub(super) limit: u64,
    /// The limit that was asked for.
    pub(super) target: u64,
    pub(super) held: u64,
    pub(super) peak: u64,
    /// The part that reservations declared as retained take away from everybody else.
    pub(super) retained: u64,
    /// The part that residencies hold which nobody pins, or which are on their way out.
    pub(super) reclaimable: u64,
    /// What was held when it was lost with its device. From then on it has no limit and nothing is held.
    pub(super) retired: Option<u64>,
    pub(super) kind: Kind,
    /// The account whose limit this is.
    pub(super) account: AccountId,
}

impl Component {
    pub(super) fn free(&self) -> u64 {
        self.limit - self.held
    }

    /// The most that a claim can ever be served with, as far as is known now.
    pub(super) fn attainable(&self) -> u64 {
        self.target.saturating_sub(self.retained).min(LARGEST)
    }
}

#[derive(Clone, Debug)]
struct Account {
    parent: Option<AccountId>,
    name: Arc<str>,
    own: SmallVec<[(Kind, ComponentId); 4]>,
    /// Where urgent jobs of this account are charged, when there is a reserve for them.
    urgent: Option<AccountId>,
    is_urgent: bool,
    /// Nothing new is taken on here, and in its children.
    refuses: bool,
}

/// All components and accounts.
#[derive(Clone, Debug)]
pub(super) struct Accounts {
    pub(super) components: Vec<Component>,
    accounts: Vec<Account>,
    /// The components of which a part is set aside: the component, its reserve, and how much.
    reserves: Vec<(ComponentId, ComponentId, u64)>,
    /// The root has room without limit for whatever it is asked for.
    unlimited: bool,
    /// The devices that were lost.
    lost: SmallVec<[u16; 2]>,
    /// Children's accounts that serve again (`children`).
    pub(super) closed: Vec<AccountId>,
    /// Counted up when anything may be charged to other components than before.
    revision: u64,
}

impl Accounts {
    pub(super) fn new(budget: &Budget) -> Accounts {
        let (components, accounts, reserves) = (Vec::new(), Vec::new(), Vec::new());
        let (unlimited, lost) = (budget.unlimited, SmallVec::new());
        let mut accounts =
            Accounts { components, accounts, reserves, unlimited, lost, closed: Vec::new(), revision: 0 };
        accounts.open(None, "".into(), budget);
        accounts
    }

    /// Opens an account with the limits of `budget` below `parent`.
    pub(super) fn open(&mut self, parent: Option<AccountId>, name: Arc<str>, budget: &Budget) -> AccountId {
        let id = self.push(parent, name.clone(), false);
        let reserved = |space| budget.urgent.iter().find(|entry| entry.0 == space).map_or(0, |entry| entry.1);
        for &(space, limit) in &budget.spaces {
            self.add_component(id, Kind::Space(space), limit.saturating_sub(reserved(space)));
        }
        for &(slots, count) in &budget.slots {
            self.add_component(id, Kind::Slots(slots), count);
        }
        let parents_reserve = parent.and_then(|parent| self.urgent(parent));
        if !budget.urgent.is_empty() || parents_reserve.is_some() {
            let urgent = self.push(parents_reserve.or(parent), name, true);
            for &(space, _) in &budget.urgent {
                let limit = budget.limit(space).map_or(0, |limit| limit.0);
                let reserve = self.add_component(urgent, Kind::Space(space), reserved(space).min(limit));
                if let Some(component) = self.own(id, Kind::Space(space)) {
                    self.reserves.push((component, reserve, reserved(space)));
                }
            }
            // Where there is no reserve, an urgent job is charged beside everybody else.
            let own = self.accounts[id.0 as usize].own.clone();
            let shared = own.into_iter().filter(|&(kind, _)| self.own(urgent, kind).is_none());
            let shared: SmallVec<[_; 4]> = shared.collect();
            self.accounts[urgent.0 as usize].own.extend(shared);
            self.revision += 1;
            self.accounts[id.0 as usize].urgent = Some(urgent);
        }
        id
    }

    fn push(&mut self, parent: Option<AccountId>, name: Arc<str>, is_urgent: bool) -> AccountId {
        let id = AccountId(self.accounts.len() as u32);
        self.accounts.push(Account { parent, name, own: SmallVec::new(), urgent: None, is_urgent, refuses: false });
        id
    }

    fn add_component(&mut self, account: AccountId, kind: Kind, limit: u64) -> ComponentId {
        let id = self.components.len() as ComponentId;
        let is_lost = self.is_lost(kind);
        let (limit, retired) = if is_lost { (0, Some(0)) } else { (limit, None) };
        self.components.push(Component {
            kind,
            account,
            limit,
            target: limit,
            held: 0,
            peak: 0,
            retained: 0,
            reclaimable: 0,
            retired,
        });
        self.accounts[account.0 as usize].own.push((kind, id));
        self.revision += 1;
        id
    }

    /// How a limit is divided between a component and its reserve, where it has one.
    pub(super) fn divide(&self, component: ComponentId, limit: u64) -> (u64, Option<(ComponentId, u64)>) {
        match self.reserves.iter().find(|entry| entry.0 == component) {
            None => (limit, None),
            Some(&(_, reserve, reserved)) => (limit - reserved.min(limit), Some((reserve, reserved.min(limit)))),
        }
    }

    pub(super) fn set_refusing(&mut self, account: AccountId, refuses: bool) {
        for account in [Some(account), self.urgent(account)].into_iter().flatten() {
            self.accounts[account.0 as usize].refuses = refuses;
        }
    }

    /// Whether nothing new is taken on in an account, or in one that it is below.
    pub(super) fn refuses(&self, account: AccountId) -> bool {
        let mut at = Some(account);
        std::iter::from_fn(|| {
            let account = &self.accounts[at?.0 as usize];
            at = account.parent;
            Some(account.refuses)
        })
        .any(|refuses| refuses)
    }

    pub(super) fn parent(&self, account: AccountId) -> Option<AccountId> {
        self.accounts[account.0 as usize].parent
    }

    pub(super) fn rename(&mut self, account: AccountId, name: &Arc<str>) {
        for account in [Some(account), self.urgent(account)].into_iter().flatten() {
            self.accounts[account.0 as usize].name = name.clone();
        }
    }

    /// The components of an account, and what they count.
    pub(super) fn own_components(&self, account: AccountId) -> SmallVec<[(Kind, ComponentId); 4]> {
        self.accounts[account.0 as usize].own.clone()
    }

    pub(super) fn urgent(&self, account: AccountId) -> Option<AccountId> {
        self.accounts[account.0 as usize].urgent
    }

    pub(super) fn name(&self, account: AccountId) -> Option<&Arc<str>> {
        (account != AccountId::ROOT).then(|| &self.accounts[account.0 as usize].name)
    }

    pub(super) fn component(&self, id: ComponentId) -> &Component {
        &self.components[id as usize]
    }

    pub(super) fn component_mut(&mut self, id: ComponentId) -> &mut Component {
        &mut self.components[id as usize]
    }

    /// Whether this component is a child's own limit.
    pub(super) fn is_childs(&self, id: ComponentId) -> bool {
        self.accounts[self.component(id).account.0 as usize].parent.is_some()
    }

    /// The account's own component of this kind.
    pub(super) fn own(&self, account: AccountId, kind: Kind) -> Option<ComponentId> {
        self.accounts[account.0 as usize].own.iter().find(|entry| entry.0 == kind).map(|entry| entry.1)
    }

    /// The components that a resource is charged to.
    ///
    /// # Errors
    ///
    /// The kind that the root has no room for at all.
    pub(super) fn charged(
        &mut self,
        account: AccountId,
        resource: Resource,
    ) -> Result<SmallVec<[ComponentId; 4]>, Kind> {
        let kind = Kind::from(resource);
        let within = match resource {
            Resource::Class(class) => class.space().within(),
            Resource::Slots(_) => None,
        };
        let mut charged = SmallVec::new();
        for kind in [Some(kind), within.map(Kind::Space)].into_iter().flatten() {
            let mut at = Some(account);
            while let Some(account) = at {
                let parent = self.accounts[account.0 as usize].parent;
                match self.own(account, kind) {
                    Some(component) => charged.push(component),
                    None if parent.is_some() => {}
                    // Slots are whatever somebody counts: a child may have a kind of its own.
                    None if matches!(resource, Resource::Slots(_)) && !charged.is_empty() => {}
                    None if self.unlimited => charged.push(self.add_component(account, kind, u64::MAX)),
                    None => return Err(kind),
                }
                at = parent;
            }
        }
        Ok(charged)
    }

    /// Adds a kind of slots to an account, if it is not there already.
    pub(super) fn open_slots(&mut self, account: AccountId, slots: Slots, count: u64) {
        let kind = Kind::Slots(slots);
        match self.own(account, kind).map(|component| self.component_mut(component)) {
            // It is there from the account's last owner.
            Some(component) if component.limit == u64::MAX => (component.limit, component.target) = (count, count),
            Some(_) => {}
            None => self.add_shared(account, kind, count),
        }
    }

    /// Adds a component to an account, and to its reserve: as everything of which no part is set aside.
    pub(super) fn add_shared(&mut self, account: AccountId, kind: Kind, limit: u64) {
        let component = self.add_component(account, kind, limit);
        if let Some(urgent) = self.urgent(account) {
            self.accounts[urgent.0 as usize].own.push((kind, component));
            self.revision += 1;
        }
    }

    /// The least that is attainable on the way from an account to the root; `None` where there is no limit.
    pub(super) fn attainable(&self, account: AccountId, kind: Kind) -> Option<u64> {
        let mut at = Some(account);
        let path = std::iter::from_fn(|| {
            let account = at?;
            at = self.accounts[account.0 as usize].parent;
            Some(self.own(account, kind).map(|component| self.component(component).attainable()))
        });
        path.flatten().min().filter(|least| *least < LARGEST)
    }

    /// The least limit in force on the way from an account to the root; `None` where there is no limit.
    pub(super) fn in_force(&self, account: AccountId, kind: Kind) -> Option<u64> {
        let mut at = Some(account);
        let path = std::iter::from_fn(|| {
            let account = at?;
            at = self.accounts[account.0 as usize].parent;
            Some(self.own(account, kind).map(|component| self.component(component).limit))
        });
        path.flatten().min().filter(|least| *least != u64::MAX)
    }

    /// Adds an amount of a resource to a vector, at each component that it is charged to.
    pub(super) fn add(
        &mut self,
        account: AccountId,
        resource: Resource,
        amount: u64,
        to: &mut Amounts,
    ) -> Result<(), Kind> {
        // What is on a lost device is not on the books.
        if amount != 0 && !self.is_lost(resource.into()) {
            for component in self.charged(account, resource)? {
                to.add(component, amount);
            }
        }
        Ok(())
    }

    /// As long as this is the same, a resource is charged to the same components of an account.
    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn any_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Whether this belongs to a device that was lost.
    pub(super) fn is_lost(&self, kind: Kind) -> bool {
        self.any_lost() && kind.device().is_some_and(|device| self.lost.contains(&device))
    }

    /// Whether the root knows of this kind.
    pub(super) fn has(&self, kind: Kind) -> bool {
        self.unlimited || self.components.iter().any(|component| component.kind == kind)
    }

    /// Takes a lost device's components off the books. Returns them.
    pub(super) fn lose(&mut self, device: u16) -> SmallVec<[ComponentId; 4]> {
        self.lost.push(device);
        self.revision += 1;
        let mut lost = SmallVec::new();
        for (id, component) in self.components.iter_mut().enumerate() {
            if component.kind.device() == Some(device) {
                let retired = Some(component.held);
                *component = Component {
                    limit: 0,
                    target: 0,
                    held: 0,
                    retained: 0,
                    reclaimable: 0,
                    retired,
                    ..component.clone()
                };
                lost.push(id as ComponentId);
            }
        }
        lost
    }

    /// Adds an amount of a resource that was charged in this account before.
    pub(super) fn add_known(&self, account: AccountId, resource: Resource, amount: u64, to: &mut Amounts) {
        if self.is_lost(resource.into()) {
            return;
        }
        let within = match resource {
            Resource::Class(class) => class.space().within(),
            Resource::Slots(_) => None,
        };
        for kind in [Some(Kind::from(resource)), within.map(Kind::Space)].into_iter().flatten() {
            let mut at = Some(account);
            while let Some(account) = at {
                if let Some(component) = self.own(account, kind) {
                    to.add(component, amount);
                }
                at = self.accounts[account.0 as usize].parent;
            }
        }
    }

    /// Whether an urgent account.
    pub(super) fn is_urgent(&self, account: AccountId) -> bool {
        self.accounts[account.0 as usize].is_urgent
    }
}
