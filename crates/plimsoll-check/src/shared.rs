//! Residencies: what is loaded once and shared, how loads go, and what evictions are for.

use plimsoll::ledger::state::{Order, OwnerId, ResidencyStand, ResidencyView};
use plimsoll::{Bytes, Class};

use crate::event::At;
use crate::facts::{Facts, OwnerFacts};
use crate::rules::{self, Broken, Rule};
use crate::setup::{Plan, Setup};
use crate::state::{State, Step};

/// A residency of a world, and what may happen to its loads.
///
/// ```
/// use std::time::Duration;
///
/// use plimsoll::{Budget, Bytes, Class, Demand, Profile, Space};
/// use plimsoll_check::{JobKind, Residence, ResidencyKind, World};
///
/// const KEYS: Class = Class::new("keys", Space::HOST);
/// const AUX: Class = Class::new("aux", Space::HOST);
///
/// let prove = |bytes| Profile::new().stage("prove", Demand::new().bytes(AUX, Bytes(bytes)), Demand::new());
/// let report = World::new(Budget::new().space(Space::HOST, Bytes(5)))
///     .residency(ResidencyKind::new("small key", KEYS, Bytes(2)).rebuild(Duration::from_secs(1)).gives_up(1))
///     .residency(ResidencyKind::new("large key", KEYS, Bytes(3)).fails(1))
///     .jobs(2, JobKind::new("small", prove(1)).needs("small key").cancels())
///     .jobs(1, JobKind::new("large", prove(2)).needs("large key"))
///     .invariant("who proves has its key", |view| {
///         let proves = view.actors().any(|actor| actor.kind == "large" && matches!(actor.at, plimsoll_check::At::Running(_)));
///         match view.residency("large key") {
///             Some(key) if proves && key.stands != Residence::Resident => Err(format!("it is {:?}", key.stands)),
///             _ => Ok(()),
///         }
///     })
///     .explore()?;
/// # assert!(report.states > 100, "{report}");
/// # Ok::<(), plimsoll_check::CheckError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ResidencyKind {
    pub(crate) name: String,
    pub(crate) class: Class,
    pub(crate) bytes: Bytes,
    pub(crate) rebuild: u64,
    pub(crate) returns: Bytes,
    pub(crate) gives_up: u8,
    pub(crate) fails: u8,
}

impl ResidencyKind {
    /// A residency of so many bytes. Each load of it is filled at some moment.
    pub fn new(name: &str, class: Class, bytes: Bytes) -> ResidencyKind {
        ResidencyKind { name: name.into(), class, bytes, rebuild: 1, returns: Bytes::ZERO, gives_up: 0, fails: 0 }
    }

    /// What it costs to load it again: dear ones stay for longer.
    #[must_use]
    pub fn rebuild(mut self, cost: std::time::Duration) -> ResidencyKind {
        self.rebuild = u64::try_from(cost.as_nanos()).unwrap_or(u64::MAX);
        self
    }

    /// Each load may find that it does not need so many of the bytes, and return them before it is done.
    #[must_use]
    pub fn returns(mut self, bytes: Bytes) -> ResidencyKind {
        self.returns = bytes;
        self
    }

    /// Loads of it may be given up, `times` times in all: another job that waits takes over.
    #[must_use]
    pub fn gives_up(mut self, times: u8) -> ResidencyKind {
        self.gives_up = times;
        self
    }

    /// Loads of it may fail for all who wait, `times` times in all.
    #[must_use]
    pub fn fails(mut self, times: u8) -> ResidencyKind {
        self.fails = times;
        self
    }
}

/// Where a residency stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Residence {
    /// Nothing of it is there.
    Absent,
    /// A load of it falls to somebody who has not begun.
    Called,
    /// It is being loaded.
    Loading,
    /// A load was given up, and what that had made is not gone yet.
    Unwinding,
    /// It is there.
    Resident,
    /// It is to go, and is not gone yet.
    Evicting,
}

/// What is in memory of a residency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    Nothing,
    /// A load fills it.
    Filling,
    Value,
    /// Told to go, or left behind by a load that was given up.
    Going,
}

/// A residency, and what is in memory of it.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    pub(crate) memory: Memory,
    /// Whose reservation its bytes are while they are out, and how many.
    pub(crate) payer: Option<(OwnerId, u64)>,
    /// Who loads it, or gave it up last.
    pub(crate) loader: Option<usize>,
    pub(crate) returned: bool,
    pub(crate) gives_up_left: u8,
    pub(crate) fails_left: u8,
}

impl Shared {
    pub(crate) fn new(kind: &ResidencyKind) -> Shared {
        Shared {
            memory: Memory::Nothing,
            payer: None,
            loader: None,
            returned: false,
            gives_up_left: kind.gives_up,
            fails_left: kind.fails,
        }
    }
}

pub(crate) fn view(setup: &Setup<'_>, state: &State, residency: usize) -> ResidencyView {
    state.ledger.residency(setup.residencies[residency]).expect("it is never retired")
}

pub(crate) fn residence(stand: ResidencyStand) -> Residence {
    match stand {
        ResidencyStand::Absent => Residence::Absent,
        ResidencyStand::Called(_) => Residence::Called,
        ResidencyStand::Loading => Residence::Loading,
        ResidencyStand::Unwinding => Residence::Unwinding,
        ResidencyStand::Resident => Residence::Resident,
        ResidencyStand::Evicting => Residence::Evicting,
    }
}

/// Whether an actor pins a residency: from its admission to its end.
fn pins(setup: &Setup<'_>, state: &State, actor: usize, residency: usize) -> bool {
    let known = &state.actors[actor];
    setup.needs_now(state, actor).contains(&residency) && known.in_flight() && known.at != At::Ending
}

/// Whether a load falls to an actor which it has not begun.
pub(crate) fn is_called(setup: &Setup<'_>, state: &State, actor: usize) -> bool {
    let needs = !setup.needs(actor).is_empty();
    needs && state.actors[actor].id.is_some_and(|id| state.ledger.next_load(id).is_some())
}

impl Step<'_> {
    pub(crate) fn take_load(&mut self, actor: usize) -> Result<(), Broken> {
        let (id, payer) = self.state.ledger.take_load(self.id(actor)).expect("it falls to the job");
        let residency = self.setup.residency_of(id);
        let bytes = self.setup.world.residencies[residency].bytes.0;
        let shared = &mut self.state.shared[residency];
        if shared.memory != Memory::Nothing {
            return Err(Broken::new(Rule::Residency, "a load begins while something of another one is there".into()));
        }
        (shared.memory, shared.payer, shared.loader) = (Memory::Filling, Some((payer, bytes)), Some(actor));
        shared.returned = false;
        self.pass_on()
    }

    pub(crate) fn return_from_load(&mut self, residency: usize) -> Result<(), Broken> {
        let kind = &self.setup.world.residencies[residency];
        let shared = &mut self.state.shared[residency];
        shared.returned = true;
        let (payer, left) = shared.payer.as_mut().expect("it is being loaded");
        *left -= kind.returns.0;
        let payer = *payer;
        self.state.ledger.attach(payer, kind.class);
        self.state.ledger.drop_piece(payer, kind.class, kind.returns, &mut self.out);
        self.pass_on()
    }

    pub(crate) fn loaded(&mut self, residency: usize) -> Result<(), Broken> {
        let id = self.setup.residencies[residency];
        self.state.shared[residency].memory = Memory::Value;
        if !self.state.ledger.loaded(id, &mut self.out) {
            self.state.shared[residency].memory = Memory::Going;
        }
        self.pass_on()
    }

    pub(crate) fn give_up_load(&mut self, residency: usize, fails: bool) -> Result<(), Broken> {
        let id = self.setup.residencies[residency];
        let shared = &mut self.state.shared[residency];
        shared.memory = Memory::Going;
        let why = fails.then(|| "unreadable".into());
        if fails {
            shared.fails_left -= 1
        } else {
            shared.gives_up_left -= 1
        }
        self.state.ledger.give_up_load(id, why, &mut self.out);
        self.pass_on()
    }

    pub(crate) fn memory_gone(&mut self, residency: usize) -> Result<(), Broken> {
        let class = self.setup.world.residencies[residency].class;
        let shared = &mut self.state.shared[residency];
        shared.memory = Memory::Nothing;
        let (payer, bytes) = shared.payer.take().expect("somebody pays for it");
        self.state.ledger.drop_piece(payer, class, Bytes(bytes), &mut self.out);
        self.pass_on()
    }

    /// Drops what is to go, and asks of each eviction what it is for.
    pub(crate) fn follow_orders(&mut self) -> Result<(), Broken> {
        let orders: Vec<Order> = self.state.ledger.drain_orders().collect();
        let mut facts = None;
        for order in orders {
            match order {
                Order::Evict(id) => {
                    let residency = self.setup.residency_of(id);
                    let name = &self.setup.world.residencies[residency].name;
                    let shared = &mut self.state.shared[residency];
                    if std::mem::replace(&mut shared.memory, Memory::Going) != Memory::Value {
                        return Err(Broken::new(Rule::Residency, format!("{name} is to go, and is not there")));
                    }
                    let facts = facts.get_or_insert_with(|| Facts::of(self.setup, self.state));
                    if !is_for_something(self.setup, self.state, facts, residency) {
                        return Err(Broken::new(Rule::Residency, format!("{name} is evicted, and is in nobody's way")));
                    }
                }
                Order::Load(owner, id) => {
                    let residency = self.setup.residency_of(id);
                    let name = &self.setup.world.residencies[residency].name;
                    let loader = self.state.actors.iter().position(|actor| actor.id == Some(owner));
                    // It may have begun, or ended, within the same event.
                    let waits = loader.filter(|loader| self.setup.needs(*loader).contains(&residency));
                    if waits.is_none() && view(self.setup, self.state, residency).stand == ResidencyStand::Called(owner)
                    {
                        return Err(Broken::new(Rule::Residency, format!("{name} is to be loaded by nobody")));
                    }
                    let facts = Facts::of(self.setup, self.state);
                    let pins = |owner: &&OwnerFacts| owner.in_flight && owner.needs.contains(&residency);
                    let pinned_by = facts.owners.iter().filter(pins);
                    let highest = pinned_by.map(|owner| self.setup.priority(owner.actor)).max();
                    if waits.is_some() && self.state.ledger.load_priority(id) != highest {
                        return Err(Broken::new(
                            Rule::Residency,
                            format!("{name} is not loaded with the highest priority"),
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Whether an eviction serves a request, a limit on its way down, or the end of something.
fn is_for_something(setup: &Setup<'_>, state: &State, facts: &Facts, residency: usize) -> bool {
    let is_lost = setup.is_lost(state, setup.world.residencies[residency].class);
    let is_lowering = facts.limit != facts.target;
    state.closed || is_lost || is_lowering || served_by_eviction(setup, state, facts).is_some()
}

/// Somebody who waits, and would be granted something if all went that nobody pins.
pub(crate) fn served_by_eviction(setup: &Setup<'_>, state: &State, facts: &Facts) -> Option<usize> {
    let served = |actor: usize| {
        let owner = facts.owners.iter().find(|owner| owner.actor == actor).expect("it waits");
        let is_served = |plan: &Plan| {
            let gone = facts.without_unpinned(&plan.needs);
            rules::is_grantable_by(setup, state, &gone, owner, plan)
        };
        let would_be = || {
            let alone = || rules::is_grantable(setup, state, &facts.without_unpinned(&[]), owner);
            setup.plans_left(state, actor).any(is_served) || setup.needs(actor).is_empty() && alone()
        };
        !rules::is_grantable(setup, state, facts, owner) && would_be()
    };
    facts.owners.iter().filter(|owner| owner.need.is_some()).map(|owner| owner.actor).find(|actor| served(*actor))
}

/// What must hold of residencies in every state.
pub(crate) fn check(setup: &Setup<'_>, state: &State, facts: &Facts) -> Result<(), Broken> {
    let broken = |why: String| Err(Broken::new(Rule::Residency, why));
    for (residency, kind) in setup.world.residencies.iter().enumerate() {
        let (name, shared) = (&kind.name, &state.shared[residency]);
        let view = view(setup, state, residency);
        let is_lost = setup.is_lost(state, kind.class);
        let held = match view.stand {
            ResidencyStand::Absent => 0,
            _ if is_lost => 0,
            // During the load also what was returned is kept for whoever takes over.
            ResidencyStand::Called(_) | ResidencyStand::Loading | ResidencyStand::Unwinding => kind.bytes.0,
            ResidencyStand::Resident | ResidencyStand::Evicting => shared.payer.map_or(0, |payer| payer.1),
        };
        if view.held.0 != held {
            return broken(format!(
                "{held} should be held for {name}, which is {:?}, and {} is",
                view.stand, view.held.0
            ));
        }
        let pinned_by: Vec<usize> =
            (0..state.actors.len()).filter(|actor| pins(setup, state, *actor, residency)).collect();
        if view.pins as usize != pinned_by.len() {
            return broken(format!(
                "{name} is pinned {} times, and {} jobs in flight need it",
                view.pins,
                pinned_by.len()
            ));
        }
        for &job in &pinned_by {
            let job_name = &setup.names[job];
            if matches!(view.stand, ResidencyStand::Absent | ResidencyStand::Evicting) && !is_lost {
                return broken(format!("{job_name} pins {name}, which is {:?}", view.stand));
            }
            let runs = matches!(state.actors[job].at, At::Running(_));
            if runs && (shared.memory != Memory::Value) {
                return broken(format!("{job_name} uses {name}, of which {:?} is there", shared.memory));
            }
        }
        if shared.memory == Memory::Value && !matches!(view.stand, ResidencyStand::Resident) {
            return broken(format!("{name} is there, and is {:?}", view.stand));
        }
        // Who does not wait does not look whether a load falls to it.
        if let ResidencyStand::Called(owner) = view.stand {
            let waits = |actor: &usize| matches!(state.actors[*actor].at, At::Waiting(_));
            let loader = (0..state.actors.len()).find(|actor| state.actors[*actor].id == Some(owner));
            if !loader.is_some_and(|loader| waits(&loader)) && pinned_by.iter().any(waits) {
                return broken(format!("somebody waits for {name}, and its load falls to nobody who does"));
            }
        }
        let called = (0..state.actors.len()).filter(|actor| {
            let id = state.actors[*actor].id;
            id.is_some_and(|id| state.ledger.next_load(id) == Some(setup.residencies[residency]))
        });
        if called.count() > 1 {
            return broken(format!("the load of {name} falls to two at a time"));
        }
        if view.stand == ResidencyStand::Resident && view.pins == 0 && (state.closed || is_lost) {
            return broken(format!("{name} stays, and nobody will ask for it any more"));
        }
    }
    if setup.world.residencies.is_empty() {
        return Ok(());
    }
    let on_its_way = |shared: &Shared| matches!(shared.memory, Memory::Going | Memory::Filling);
    if !state.shared.iter().any(on_its_way)
        && let Some(actor) = served_by_eviction(setup, state, facts)
    {
        let why = format!("only an eviction is in the way of {}, and nothing is evicted", setup.names[actor]);
        return Err(Broken::new(Rule::Settled, why));
    }
    Ok(())
}
