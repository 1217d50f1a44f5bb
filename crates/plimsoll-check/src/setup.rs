//! A world made ready: the ledger before anything happens, and the books in which the checks keep their own account.
//!
//! The checks trust the state machine with two things only: which components a resource is charged to, and the plain
//! views of its state. What follows from them is worked out here once more, in the most naive way there is.

use std::collections::HashMap;
use std::sync::Arc;

use plimsoll::ledger::state::{AccountId, Kind as ComponentKind, LedgerState, ResidencyId};
use plimsoll::{Bytes, Demand, Profile, Resource};

use crate::CheckError;
use crate::event::At;
use crate::rules;
use crate::state::{Actor, State};
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
    /// Which of its profiles it is.
    pub(crate) choice: usize,
    /// That profile, for a job.
    pub(crate) profile: Option<Profile>,
    /// From each stage on, the most that it may still hold.
    pub(crate) claims: Vec<Vector>,
    /// What it leaves behind.
    pub(crate) leaves: Vector,
    /// The residencies that it needs.
    pub(crate) needs: Vec<usize>,
}

impl Plan {
    fn new(
        account: AccountId,
        choice: usize,
        profile: Option<Profile>,
        mut claims: Vec<Vector>,
        leaves: Vector,
    ) -> Plan {
        for stage in (1..claims.len()).rev() {
            let (before, from_here) = claims.split_at_mut(stage);
            for (claim, later) in before[stage - 1].iter_mut().zip(&from_here[0]) {
                *claim = (*claim).max(*later);
            }
        }
        Plan { account, choice, profile, claims, leaves, needs: Vec::new() }
    }
}

pub(crate) struct Setup<'w> {
    pub(crate) world: &'w World,
    /// The ledger, before anything happens.
    pub(crate) ledger: LedgerState,
    /// Each actor's name.
    pub(crate) names: Vec<Arc<str>>,
    pub(crate) components: Vec<Component>,
    /// Of each kind: the plans by which it may be served, in order of preference.
    plans: Vec<Vec<Plan>>,
    /// Of each kind: the account that it belongs to.
    homes: Vec<AccountId>,
    /// The account and space, or slots, of each new limit.
    pub(crate) resizes: Vec<(AccountId, ComponentKind, u64)>,
    charges: HashMap<(AccountId, Resource), Vec<usize>>,
    /// The residencies, as the state machine names them.
    pub(crate) residencies: Vec<ResidencyId>,
    /// Of each kind: the residencies that it may come to need.
    needs: Vec<Vec<usize>>,
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
            homes: Vec::new(),
            resizes: Vec::new(),
            charges: HashMap::new(),
            residencies: Vec::new(),
            needs: Vec::new(),
            ledger,
        };
        setup.declare_residencies()?;
        for kind in &world.kinds {
            let (home, plans) = match kind {
                Kind::Job(job) => {
                    let home = match world.parent_kind(job)? {
                        // Whatever its parent was admitted by.
                        Some(parent) => setup.homes[parent],
                        None => account(&job.child)?,
                    };
                    (home, setup.plans_of_job(job, home)?)
                }
                Kind::Reservation(kind) => {
                    let level = |bytes| Demand::new().bytes(kind.class, bytes);
                    let levels: Vec<Demand> = kind.levels.iter().copied().map(level).collect();
                    if !kind.levels.is_sorted_by(|a, b| a < b) {
                        return Err(CheckError::Levels(kind.name.clone()));
                    }
                    let leaves = kind.levels.last().copied().filter(|_| kind.retained).unwrap_or_default();
                    let home = account(&kind.child)?;
                    let peaks = levels.iter().map(|level| setup.charged(home, level)).collect::<Result<Vec<_>, _>>()?;
                    (home, vec![Plan::new(home, 0, None, peaks, setup.charged(home, &level(leaves))?)])
                }
            };
            setup.homes.push(home);
            setup.plans.push(plans);
            setup.lay_out_needs(kind)?;
        }
        for space in &world.losses {
            let is_budgeted = world.budget.limit(*space).is_some();
            if space.device_number().is_none() || !is_budgeted {
                return Err(CheckError::NotADevice(*space));
            }
        }
        for resize in &world.resizes {
            setup.resizes.push((account(&resize.child)?, resize.of, resize.limit));
        }
        Ok(setup)
    }

    fn declare_residencies(&mut self) -> Result<(), CheckError> {
        for kind in &self.world.residencies {
            self.charged(AccountId::ROOT, &Demand::new().bytes(kind.class, kind.bytes))?;
            let (name, class, bytes, rebuild) = (kind.name.as_str().into(), kind.class, kind.bytes, kind.rebuild);
            let declared = plimsoll::ledger::state::Resident { name, class, bytes, rebuild };
            let id = self.ledger.declare_residency(declared);
            let id = id.map_err(|_| CheckError::Unbudgeted(kind.class.into()))?;
            self.residencies.push(id);
        }
        // In a world with residencies it counts in which order things happen within one event.
        self.ledger.record_changes(!self.residencies.is_empty());
        Ok(())
    }

    /// What each plan of the last kind needs, and what all of them do.
    fn lay_out_needs(&mut self, kind: &Kind) -> Result<(), CheckError> {
        let Kind::Job(job) = kind else {
            self.needs.push(Vec::new());
            return Ok(());
        };
        let mut all = Vec::new();
        for at in 0..self.plans[self.needs.len()].len() {
            let choice = self.plans[self.needs.len()][at].choice;
            let by_choice = job.needs_by.iter().filter(|entry| entry.0 == choice).map(|entry| &entry.1);
            let mut needs = Vec::new();
            for name in job.needs.iter().chain(by_choice) {
                let at = self.world.residencies.iter().position(|residency| residency.name == *name);
                needs.push(at.ok_or_else(|| CheckError::NoSuchResidency(name.clone()))?);
            }
            needs.sort();
            needs.dedup();
            all.extend_from_slice(&needs);
            let kind = self.needs.len();
            self.plans[kind][at].needs = needs;
        }
        all.sort();
        all.dedup();
        if let Some(parent) = self.world.parent_kind(job)?
            && !all.iter().all(|need| self.needs[parent].contains(need))
        {
            return Err(CheckError::NotParentsNeed(job.name.clone()));
        }
        self.needs.push(all);
        Ok(())
    }

    /// Whether an actor may begin again and queue with the age of its first admission.
    pub(crate) fn has_restarts(&self, actor: usize) -> bool {
        matches!(self.kind(actor), Kind::Job(job) if job.restarts > 0 && !job.keeps)
    }

    /// The residencies that an actor may come to need.
    pub(crate) fn needs(&self, actor: usize) -> &[usize] {
        &self.needs[self.world.actors[actor]]
    }

    /// The residencies that an actor needs as it goes now.
    pub(crate) fn needs_now(&self, state: &State, actor: usize) -> &[usize] {
        let id = state.actors[actor].id.filter(|id| state.ledger.owner(*id).is_some());
        let choice = id.map_or(0, |id| state.ledger.choice(id));
        self.plans(actor).iter().find(|plan| plan.choice == choice).map_or(&[], |plan| &plan.needs)
    }

    /// The number of a residency in the world.
    pub(crate) fn residency_of(&self, id: ResidencyId) -> usize {
        self.residencies.iter().position(|other| *other == id).expect("it is one of the world's")
    }

    /// The plans of a kind of job: each profile over the urgent reserve, where it may use that, and over its own account.
    fn plans_of_job(&mut self, job: &JobKind, home: AccountId) -> Result<Vec<Plan>, CheckError> {
        for profile in job.profiles().chain(&job.really) {
            profile.check().map_err(|source| CheckError::Profile { kind: job.name.clone(), source })?;
        }
        let names = |profile: &Profile| profile.stages().iter().map(|stage| stage.name).collect::<Vec<_>>();
        let stages = job.profile.stages().len();
        if job.really.as_ref().is_some_and(|really| really.stages().len() != stages)
            || job.alternatives.iter().any(|other| names(other) != names(&job.profile))
        {
            return Err(CheckError::OtherStages(job.name.clone()));
        }
        // A part is charged to the account of its parent, which may have been admitted into the reserve.
        let reserve = (job.urgent || job.part_of.is_some()).then(|| self.ledger.urgent(home)).flatten();
        let mut plans = Vec::new();
        for (choice, profile) in job.profiles().enumerate() {
            for account in reserve.into_iter().chain([home]) {
                let (peaks, leaves) = self.lay_out(account, profile)?;
                plans.push(Plan::new(account, choice, Some(profile.clone()), peaks, leaves));
                if let Some((class, bytes)) = job.grows {
                    self.charged(account, &Demand::new().bytes(class, bytes))?;
                }
            }
        }
        Ok(plans)
    }

    /// Of each stage the most that is held in it, parts included, and what is left behind.
    fn lay_out(&mut self, account: AccountId, profile: &Profile) -> Result<(Vec<Vector>, Vector), CheckError> {
        let mut peaks = Vec::new();
        for stage in profile.stages() {
            let mut peak = self.charged(account, &stage.peak)?;
            self.charged(account, &stage.keep)?;
            let mut largest = vec![0; peak.len()];
            for parts in &stage.parts {
                let (of_part, leaves) = self.lay_out(account, &parts.profile)?;
                for at in 0..peak.len() {
                    peak[at] += parts.count * leaves[at];
                    let most = of_part.iter().map(|peak| peak[at]).max().unwrap_or(0);
                    largest[at] = largest[at].max(most - leaves[at]);
                }
            }
            peaks.push(peak.iter().zip(largest).map(|(own, part)| own + part).collect());
        }
        let kept = profile.stages().last().into_iter().flat_map(|stage| stage.keep.iter());
        // Slots come back with the end, whatever the last stage keeps.
        let bytes = kept.filter_map(|(resource, amount)| Some((rules::class_of(resource)?, Bytes(amount))));
        let leaves = bytes.fold(Demand::new(), |leaves, (class, bytes)| leaves.bytes(class, bytes));
        Ok((peaks, self.charged(account, &leaves)?))
    }

    /// A demand by component; from here on it is known what its resources are charged to.
    fn charged(&mut self, account: AccountId, demand: &Demand) -> Result<Vector, CheckError> {
        for (resource, _) in demand.iter() {
            let charged = self.ledger.charged(account, resource);
            if charged.is_empty() {
                return Err(CheckError::Unbudgeted(resource));
            }
            self.charges.insert((account, resource), charged);
        }
        Ok(self.vector(account, demand.iter()))
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

    /// The actors of the same kind as this one, and parts of the same job where they are parts.
    pub(crate) fn siblings(&self, actor: usize) -> impl Iterator<Item = usize> + '_ {
        let of = move |actor: usize| (self.world.actors[actor], self.world.parents[actor]);
        (0..self.names.len()).filter(move |&other| of(other) == of(actor))
    }

    /// The profile that a job goes by.
    pub(crate) fn profile(&self, state: &State, actor: usize) -> &Profile {
        self.job(actor).profiles().nth(state.actors[actor].choice).expect("it is one of the job's profiles")
    }

    /// What a job has kept of the last stage that it ended, as its profile said then.
    pub(crate) fn kept(&self, known: &Actor, actor: usize) -> Option<&Demand> {
        let stage = match known.at {
            At::Waiting(stage) | At::Between(stage) => stage.checked_sub(1)?,
            At::Ending => known.ended_in?,
            _ => return None,
        };
        let profile = self.job(actor).profiles().nth(known.kept_by).expect("it is one of the job's profiles");
        Some(&profile.stages()[stage].keep)
    }

    /// What a job is missing to enter a stage.
    pub(crate) fn missing(&self, state: &State, actor: usize, account: AccountId, stage: usize) -> Vector {
        let held = state.holdings(self, actor);
        let held = |resource| held.iter().find(|entry| entry.0 == resource).map_or(0, |entry| entry.1);
        let peak = self.profile(state, actor).stages()[stage].peak.iter();
        self.vector(account, peak.map(|(resource, peak)| (resource, peak.saturating_sub(held(resource)))))
    }

    /// The plans by which an actor may be served, in order of preference.
    pub(crate) fn plans(&self, actor: usize) -> &[Plan] {
        &self.plans[self.world.actors[actor]]
    }

    /// The account that an actor belongs to.
    pub(crate) fn home(&self, actor: usize) -> AccountId {
        self.homes[self.world.actors[actor]]
    }

    /// The job that an actor is a part of.
    pub(crate) fn parent(&self, actor: usize) -> Option<usize> {
        self.world.parents[actor]
    }

    /// A job's priority: of a part at least its parent's.
    pub(crate) fn priority(&self, actor: usize) -> i32 {
        let own = self.job(actor).priority;
        self.parent(actor).map_or(own, |parent| own.max(self.priority(parent)))
    }

    /// The parts of a job.
    pub(crate) fn parts(&self, actor: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.names.len()).filter(move |&part| self.world.parents[part] == Some(actor))
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
