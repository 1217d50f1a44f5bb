//! A world made ready: the ledger before anything happens, and the books in which the checks keep their own account.
//!
//! The checks trust the state machine with two things only: which components a resource is charged to, and the plain
//! views of its state. What follows from them is worked out here once more, in the most naive way there is.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll::ledger::state::{AccountId, Kind as ComponentKind, LedgerState};
use plimsoll::{Bytes, Demand, Resource};

use crate::CheckError;
use crate::rules;
use crate::world::{JobKind, Kind, World};

/// An amount for each component.
pub(crate) type Vector = Vec<u64>;

/// A component of the ledger's vector.
#[derive(Clone, Debug)]
pub(crate) struct Component {
    pub(crate) kind: ComponentKind,
    pub(crate) label: String,
    pub(crate) child: bool,
    pub(crate) urgent: bool,
    pub(crate) account: AccountId,
}

/// What a kind of actor claims in one account.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) account: AccountId,
    /// From each stage on, the most that it may still hold.
    pub(crate) claims: Vec<Vector>,
    /// What it leaves behind.
    pub(crate) leaves: Vector,
}

pub(crate) struct Setup<'w> {
    pub(crate) world: &'w World,
    /// The ledger, before anything happens.
    pub(crate) ledger: LedgerState,
    /// Each actor's name.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) components: Vec<Component>,
    /// Of each kind: its plan, and the one over the urgent reserve where it may use that.
    pub(crate) plans: Vec<(Plan, Option<Plan>)>,
    /// The account and space, or slots, of each new limit.
    pub(crate) resizes: Vec<(AccountId, ComponentKind, u64)>,
    charges: HashMap<(AccountId, Resource), Vec<usize>>,
}

impl<'w> Setup<'w> {
    pub(crate) fn new(world: &'w World) -> Result<Setup<'w>, CheckError> {
        let mut ledger = LedgerState::new(&world.budget);
        let mut accounts = HashMap::new();
        for (name, budget) in &world.children {
            accounts.insert(name.as_str(), ledger.open_child(AccountId::ROOT, name.as_str().into(), budget));
        }
        let account = |child: &Option<String>| match child {
            None => Ok(AccountId::ROOT),
            Some(name) => accounts.get(name.as_str()).copied().ok_or_else(|| CheckError::NoSuchChild(name.clone())),
        };
        let mut setup = Setup {
            world,
            names: names(world),
            components: components(&mut ledger),
            plans: Vec::new(),
            resizes: Vec::new(),
            charges: HashMap::new(),
            ledger,
        };
        for kind in &world.kinds {
            let (account, stages, leaves, urgent) = match kind {
                Kind::Job(job) => {
                    for profile in std::iter::once(&job.profile).chain(&job.really) {
                        profile.check().map_err(|source| CheckError::Profile { kind: job.name.clone(), source })?;
                    }
                    let stages = job.profile.stages().len();
                    if job.really.as_ref().is_some_and(|really| really.stages().len() != stages) {
                        return Err(CheckError::OtherStages(job.name.clone()));
                    }
                    let peaks = job.profile.stages().iter().map(|stage| stage.peak.clone()).collect::<Vec<_>>();
                    let kept = job.profile.stages().last().into_iter().flat_map(|stage| stage.keep.iter());
                    // Slots come back with the end, whatever the last stage keeps.
                    let leaves =
                        kept.filter_map(|(resource, amount)| Some((rules::class_of(resource)?, Bytes(amount))));
                    let leaves = leaves.fold(Demand::new(), |leaves, (class, bytes)| leaves.bytes(class, bytes));
                    (account(&job.child)?, peaks, leaves, job.urgent)
                }
                Kind::Reservation(kind) => {
                    let level = |bytes| Demand::new().bytes(kind.class, bytes);
                    let levels: Vec<Demand> = kind.levels.iter().copied().map(level).collect();
                    if !kind.levels.is_sorted_by(|a, b| a < b) {
                        return Err(CheckError::Levels(kind.name.clone()));
                    }
                    let leaves = kind.levels.last().copied().filter(|_| kind.retained).unwrap_or_default();
                    (account(&kind.child)?, levels, level(leaves), false)
                }
            };
            let plan = setup.plan(account, &stages, &leaves)?;
            let reserve = urgent.then(|| setup.ledger.urgent(account)).flatten();
            if let Kind::Job(JobKind { grows: Some((class, bytes)), .. }) = kind {
                let more = Demand::new().bytes(*class, *bytes);
                for account in std::iter::once(account).chain(reserve) {
                    setup.plan(account, std::slice::from_ref(&more), &Demand::new())?;
                }
            }
            let urgent = reserve.map(|reserve| setup.plan(reserve, &stages, &leaves)).transpose()?;
            setup.plans.push((plan, urgent));
        }
        for resize in &world.resizes {
            setup.resizes.push((account(&resize.child)?, resize.of, resize.limit));
        }
        Ok(setup)
    }

    fn plan(&mut self, account: AccountId, stages: &[Demand], leaves: &Demand) -> Result<Plan, CheckError> {
        let mut claims = vec![vec![0; self.components.len()]; stages.len()];
        let mut claim = vec![0; self.components.len()];
        for (stage, demand) in stages.iter().enumerate().rev() {
            for (resource, _) in demand.iter() {
                let charged = self.ledger.charged(account, resource);
                if charged.is_empty() {
                    return Err(CheckError::Unbudgeted(resource));
                }
                self.charges.insert((account, resource), charged);
            }
            let peak = self.vector(account, demand.iter());
            for (claim, peak) in claim.iter_mut().zip(peak) {
                *claim = peak.max(*claim);
            }
            claims[stage].clone_from(&claim);
        }
        Ok(Plan { account, claims, leaves: self.vector(account, leaves.iter()) })
    }

    /// The amounts of resources, by component.
    pub(crate) fn vector(&self, account: AccountId, amounts: impl Iterator<Item = (Resource, u64)>) -> Vector {
        let mut vector = vec![0; self.components.len()];
        for (resource, amount) in amounts {
            let charged = self.charges.get(&(account, resource));
            for &component in charged.expect("what is held was declared, and so charged before") {
                vector[component] += amount;
            }
        }
        vector
    }

    pub(crate) fn kind(&self, actor: usize) -> &Kind {
        &self.world.kinds[self.world.actors[actor]]
    }

    pub(crate) fn job(&self, actor: usize) -> &JobKind {
        match self.kind(actor) {
            Kind::Job(job) => job,
            Kind::Reservation(_) => unreachable!("only jobs have stages"),
        }
    }

    /// The actors of the same kind as this one.
    pub(crate) fn siblings(&self, actor: usize) -> impl Iterator<Item = usize> + '_ {
        let kind = self.world.actors[actor];
        (0..self.names.len()).filter(move |&other| self.world.actors[other] == kind)
    }

    /// How many stages or levels an actor has.
    pub(crate) fn stages(&self, actor: usize) -> usize {
        match self.kind(actor) {
            Kind::Job(job) => job.profile.stages().len(),
            Kind::Reservation(kind) => kind.levels.len(),
        }
    }

    /// A stage's or level's name.
    pub(crate) fn stage_name(&self, actor: usize, stage: usize) -> String {
        match self.kind(actor) {
            Kind::Job(job) => job.profile.stages()[stage].name.into(),
            Kind::Reservation(kind) => format!("{} of {}", kind.levels[stage], kind.class),
        }
    }
}

fn names(world: &World) -> Vec<Arc<str>> {
    let mut numbers = vec![0; world.kinds.len()];
    let name = |&kind: &usize| {
        let name = match &world.kinds[kind] {
            Kind::Job(job) => &job.name,
            Kind::Reservation(kind) => &kind.name,
        };
        numbers[kind] += 1;
        let alone = world.actors.iter().filter(|other| **other == kind).count() == 1;
        if alone { name.as_str().into() } else { format!("{name} {}", numbers[kind]).into() }
    };
    world.actors.iter().map(name).collect()
}

fn components(ledger: &mut LedgerState) -> Vec<Component> {
    let snapshot = ledger.snapshot();
    // The snapshot lists spaces and slots apart, each in the order of the components.
    let mut spaces = snapshot.spaces.into_iter().map(|usage| usage.place);
    let mut slots = snapshot.slots.into_iter().map(|usage| usage.place);
    let component = |view: plimsoll::ledger::state::ComponentView| {
        let place = match view.kind {
            ComponentKind::Space(_) => spaces.next(),
            ComponentKind::Slots(_) => slots.next(),
        };
        let place = place.expect("the snapshot lists every component");
        Component {
            kind: view.kind,
            label: place.to_string(),
            child: place.child.is_some(),
            urgent: place.urgent,
            account: view.account,
        }
    };
    ledger.components().into_iter().map(component).collect()
}
