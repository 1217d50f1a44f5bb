//! What is explored: limits, the kinds of jobs and reservations that come, and what may happen to them.

use std::sync::Arc;

use plimsoll::ledger::state::Kind as Limited;
use plimsoll::{Budget, Bytes, Class, Profile, Slots, Space};

use crate::search;
use crate::shared::ResidencyKind;
use crate::view::View;
use crate::{CheckError, Report};

/// What an invariant says of a state: nothing, or why it does not hold there.
type Invariant = Arc<dyn Fn(&View<'_>) -> Result<(), String> + Send + Sync>;

/// A small world, of which [`explore`](World::explore) visits every reachable state.
///
/// Keep it small: two to four jobs, amounts of one digit. What goes wrong with many large jobs goes wrong with few small
/// ones, and then the trace can be read.
#[derive(Clone)]
pub struct World {
    pub(crate) budget: Budget,
    pub(crate) children: Vec<(String, Budget)>,
    pub(crate) kinds: Vec<Kind>,
    /// The kind of each actor; actors of one kind stand together.
    pub(crate) actors: Vec<usize>,
    /// Of each actor, the one that it is a part of.
    pub(crate) parents: Vec<Option<usize>>,
    pub(crate) residencies: Vec<ResidencyKind>,
    pub(crate) losses: Vec<Space>,
    pub(crate) resizes: Vec<Resize>,
    pub(crate) closes: bool,
    pub(crate) invariants: Vec<(String, Invariant)>,
    pub(crate) states_max: usize,
}

/// A new limit that is set at some moment.
#[derive(Clone, Debug)]
pub(crate) struct Resize {
    pub(crate) child: Option<String>,
    pub(crate) of: Limited,
    pub(crate) limit: u64,
}

/// What comes: jobs or free-standing reservations.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Job(JobKind),
    Reservation(ReservationKind),
}

impl World {
    /// The number of states above which [`explore`](World::explore) gives up, unless
    /// [`states_max`](World::states_max) says otherwise.
    pub const DEFAULT_STATES_MAX: usize = 5_000_000;

    /// A world with these limits, to which nothing comes yet.
    pub fn new(budget: Budget) -> World {
        World {
            budget,
            children: Vec::new(),
            kinds: Vec::new(),
            actors: Vec::new(),
            parents: Vec::new(),
            residencies: Vec::new(),
            losses: Vec::new(),
            resizes: Vec::new(),
            closes: false,
            invariants: Vec::new(),
            states_max: World::DEFAULT_STATES_MAX,
        }
    }

    /// Adds a child ledger with limits of its own, which kinds may name.
    #[must_use]
    pub fn child(mut self, name: &str, budget: Budget) -> World {
        self.children.push((name.into(), budget));
        self
    }

    /// Adds `count` jobs of a kind. Each arrives at any moment, or never. Of [parts](JobKind::part_of) it adds as many to
    /// each job that they are parts of.
    #[must_use]
    pub fn jobs(self, count: usize, kind: JobKind) -> World {
        self.with(count, Kind::Job(kind))
    }

    /// Adds `count` free-standing reservations of a kind. Each is asked for at any moment, or never.
    #[must_use]
    pub fn reservations(self, count: usize, kind: ReservationKind) -> World {
        self.with(count, Kind::Reservation(kind))
    }

    /// Adds a residency: loaded when the first job comes that [needs](JobKind::needs) it, shared by all that do, and
    /// evicted when its room is needed and nobody pins it. The root pays for it.
    #[must_use]
    pub fn residency(mut self, residency: ResidencyKind) -> World {
        self.residencies.push(residency);
        self
    }

    /// Loses a device, at any moment: its memory, its lanes, and all that is held there. See
    /// [`Ledger::retire`](plimsoll::Ledger::retire).
    #[must_use]
    pub fn loses(mut self, device: Space) -> World {
        self.losses.push(device);
        self
    }

    fn with(mut self, count: usize, kind: Kind) -> World {
        let parents: Vec<Option<usize>> = match &kind {
            Kind::Job(job) if job.part_of.is_some() => {
                let parent = self.parent_kind(job).ok().flatten();
                (0..self.actors.len()).filter(|&actor| Some(self.actors[actor]) == parent).map(Some).collect()
            }
            _ => vec![None],
        };
        for parent in parents {
            self.actors.extend(std::iter::repeat_n(self.kinds.len(), count));
            self.parents.extend(std::iter::repeat_n(parent, count));
        }
        self.kinds.push(kind);
        self
    }

    /// The kind of the jobs that these are parts of.
    pub(crate) fn parent_kind(&self, part: &JobKind) -> Result<Option<usize>, CheckError> {
        let Some(parent) = &part.part_of else { return Ok(None) };
        let at = self.kinds.iter().position(|kind| matches!(kind, Kind::Job(job) if job.name == *parent));
        at.map(Some).ok_or_else(|| CheckError::NoSuchParent(parent.clone()))
    }

    /// Sets a new limit for a space, at any moment, once. Several are set in the order in which they are given here.
    #[must_use]
    pub fn resize(mut self, space: Space, limit: Bytes) -> World {
        self.resizes.push(Resize { child: None, of: Limited::Space(space), limit: limit.0 });
        self
    }

    /// Sets a new number of slots, as [`resize`](World::resize) does for a space.
    #[must_use]
    pub fn resize_slots(mut self, slots: Slots, count: u64) -> World {
        self.resizes.push(Resize { child: None, of: Limited::Slots(slots), limit: count });
        self
    }

    /// Sets a new limit for a space of a child, as [`resize`](World::resize) does for the root.
    #[must_use]
    pub fn resize_child(mut self, child: &str, space: Space, limit: Bytes) -> World {
        self.resizes.push(Resize { child: Some(child.into()), of: Limited::Space(space), limit: limit.0 });
        self
    }

    /// Closes the ledger, at any moment.
    #[must_use]
    pub fn closes(mut self) -> World {
        self.closes = true;
        self
    }

    /// Adds an invariant of your own, checked in every reachable state beside the [rules](crate::Rule) of the ledger.
    /// An error says why it does not hold.
    #[must_use]
    pub fn invariant(
        mut self,
        name: &str,
        holds: impl Fn(&View<'_>) -> Result<(), String> + Send + Sync + 'static,
    ) -> World {
        self.invariants.push((name.into(), Arc::new(holds)));
        self
    }

    /// Sets the number of states above which the search gives up.
    #[must_use]
    pub fn states_max(mut self, states: usize) -> World {
        self.states_max = states;
        self
    }

    /// Visits every reachable state, nearest first, and checks every rule in each.
    ///
    /// # Errors
    ///
    /// The first [violation](crate::Violation), with a shortest trace to it; or that the world is too large, or does not
    /// make sense.
    pub fn explore(&self) -> Result<Report, CheckError> {
        search::explore(self)
    }

    /// Goes one random way from the beginning to a state in which nothing more can happen, and checks every rule in each
    /// state on it: for worlds that are too large to explore. The same seed goes the same way.
    ///
    /// # Errors
    ///
    /// As [`explore`](World::explore); the trace is the whole way, not a shortest one.
    pub fn walk(&self, seed: u64) -> Result<Report, CheckError> {
        crate::walk::walk(self, seed)
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("budget", &self.budget)
            .field("children", &self.children)
            .field("kinds", &self.kinds)
            .field("actors", &self.actors)
            .field("residencies", &self.residencies)
            .field("losses", &self.losses)
            .field("resizes", &self.resizes)
            .field("closes", &self.closes)
            .field("invariants", &self.invariants.iter().map(|entry| &entry.0).collect::<Vec<_>>())
            .field("states_max", &self.states_max)
            .finish()
    }
}

/// A kind of job: its profile, and what may happen to it on its way.
///
/// As made by [`new`](JobKind::new), it goes through its stages one by one and its results are dropped at some moment
/// after it has ended.
#[derive(Clone, Debug)]
pub struct JobKind {
    pub(crate) name: String,
    pub(crate) profile: Profile,
    pub(crate) alternatives: Vec<Profile>,
    pub(crate) really: Option<Profile>,
    pub(crate) part_of: Option<String>,
    pub(crate) child: Option<String>,
    pub(crate) priority: i32,
    pub(crate) urgent: bool,
    pub(crate) pauses: bool,
    pub(crate) cancels: bool,
    pub(crate) withdraws: u8,
    pub(crate) fails: bool,
    pub(crate) needs: Vec<String>,
    pub(crate) needs_by: Vec<(usize, String)>,
    pub(crate) stage_retries: u8,
    pub(crate) restarts: u8,
    pub(crate) keeps: bool,
    pub(crate) alone: bool,
    pub(crate) frees_later: bool,
    pub(crate) retries: u8,
    pub(crate) releases_early: bool,
    pub(crate) grows: Option<(Class, Bytes)>,
    pub(crate) holds_together: bool,
}

impl JobKind {
    /// Jobs with this profile.
    pub fn new(name: &str, profile: Profile) -> JobKind {
        JobKind {
            name: name.into(),
            profile,
            alternatives: Vec::new(),
            really: None,
            part_of: None,
            child: None,
            priority: 0,
            urgent: false,
            pauses: false,
            cancels: false,
            withdraws: 0,
            fails: false,
            needs: Vec::new(),
            needs_by: Vec::new(),
            stage_retries: 0,
            restarts: 0,
            keeps: false,
            alone: false,
            frees_later: false,
            retries: 0,
            releases_early: false,
            grows: None,
            holds_together: false,
        }
    }

    /// Lets the jobs be served by another profile as well, which has the same stages: see
    /// [`JobSpec::or`](plimsoll::JobSpec::or).
    #[must_use]
    pub fn or(mut self, profile: Profile) -> JobKind {
        self.alternatives.push(profile);
        self
    }

    /// Makes the jobs parts of each job of another kind, which was added before and has made room for them with
    /// [`Profile::parts`]: see [`JobSpec::part_of`](plimsoll::JobSpec::part_of).
    ///
    /// Each arrives at any moment in which its parent is in flight, or never. A stage of the parent that has room for parts
    /// goes on until those that have arrived have ended. What a part leaves is held by its parent from then on.
    #[must_use]
    pub fn part_of(mut self, parent: &str) -> JobKind {
        self.part_of = Some(parent.into());
        self
    }

    /// The profiles in order of preference.
    pub(crate) fn profiles(&self) -> impl Iterator<Item = &Profile> {
        std::iter::once(&self.profile).chain(&self.alternatives)
    }

    /// What the jobs really hold, stage by stage, where that is not what they tell the ledger. For looking at a policy
    /// that lets go of its permits before the bytes are gone: [`Rule::Line`](crate::Rule::Line) is then checked for what
    /// is really held.
    #[must_use]
    pub fn really(mut self, profile: Profile) -> JobKind {
        self.really = Some(profile);
        self
    }

    /// Charges the jobs to a child ledger of the world.
    #[must_use]
    pub fn child(mut self, name: &str) -> JobKind {
        self.child = Some(name.into());
        self
    }

    /// Sets the priority: higher goes first.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> JobKind {
        self.priority = priority;
        self
    }

    /// Lets the jobs be served from the urgent reserve.
    #[must_use]
    pub fn urgent(mut self) -> JobKind {
        self.urgent = true;
        self
    }

    /// After a stage, a job asks for the next one at some later moment, not at once.
    #[must_use]
    pub fn pauses(mut self) -> JobKind {
        self.pauses = true;
        self
    }

    /// A job may be given up at any moment: while it waits, while it is between stages, and inside a stage, which then
    /// runs to its end for nobody.
    #[must_use]
    pub fn cancels(mut self) -> JobKind {
        self.cancels = true;
        self
    }

    /// A job may take its request back `times` times and ask again later, as after a time-out; also when the grant has
    /// arrived already.
    #[must_use]
    pub fn withdraws(mut self, times: u8) -> JobKind {
        self.withdraws = times;
        self
    }

    /// Any stage may fail; everything that the job holds is then returned.
    #[must_use]
    pub fn fails(mut self) -> JobKind {
        self.fails = true;
        self
    }

    /// Any stage may fail, and the job is then submitted again, from its first stage, up to `times` times.
    #[must_use]
    pub fn retries(mut self, times: u8) -> JobKind {
        self.fails = true;
        self.retries = times;
        self
    }

    /// Lets the jobs need a residency of the world, from their admission to their end: see
    /// [`JobSpec::needs`](plimsoll::JobSpec::needs). Where it is not there, its load falls to one of those who wait for it.
    #[must_use]
    pub fn needs(mut self, residency: &str) -> JobKind {
        self.needs.push(residency.into());
        self
    }

    /// Lets the jobs need a residency where they go by the profile that was given last: see
    /// [`JobSpec::needing`](plimsoll::JobSpec::needing).
    #[must_use]
    pub fn needing(mut self, residency: &str) -> JobKind {
        self.needs_by.push((self.alternatives.len(), residency.into()));
        self
    }

    /// A stage may end without its having been done, up to `times` times in the life of a job, which stays in flight and
    /// asks for it again: see [`Grant::retry`](plimsoll::ledger::Grant::retry).
    #[must_use]
    pub fn retries_stages(mut self, times: u8) -> JobKind {
        self.stage_retries = times;
        self
    }

    /// A job that is between two stages, or waits for one, may go back to before its first stage, up to `times` times. It
    /// returns all that it holds, and asks for admission again, with the age of its first one: see
    /// [`Job::restart`](plimsoll::ledger::Job::restart).
    #[must_use]
    pub fn restarts(mut self, times: u8) -> JobKind {
        self.restarts = times;
        self
    }

    /// The same, but it keeps what it holds and stays in flight: see [`JobSpec::restarts`](plimsoll::JobSpec::restarts).
    #[must_use]
    pub fn restarts_with_its_input(mut self, times: u8) -> JobKind {
        (self.restarts, self.keeps) = (times, true);
        self
    }

    /// Jobs whose claim is above a limit run alone instead of being refused: see
    /// [`JobSpec::alone_if_oversize`](plimsoll::JobSpec::alone_if_oversize).
    #[must_use]
    pub fn alone_if_oversize(mut self) -> JobKind {
        self.alone = true;
        self
    }

    /// Results that are dropped go to the reaper: they are gone, and their bytes are back, at some later moment. See
    /// [`Ledger::reaper`](plimsoll::Ledger::reaper).
    #[must_use]
    pub fn frees_later(mut self) -> JobKind {
        self.frees_later = true;
        self
    }

    /// In any stage, a job may return what it will not keep before the stage ends; and what it has kept while it waits
    /// for the next one, which then gives it more.
    #[must_use]
    pub fn releases_early(mut self) -> JobKind {
        self.releases_early = true;
        self
    }

    /// In one of its stages, a job may try to take more than it declared, and returns it when the stage ends.
    #[must_use]
    pub fn tries_to_grow(mut self, class: Class, bytes: Bytes) -> JobKind {
        self.grows = Some((class, bytes));
        self
    }

    /// The results of the jobs are dropped together, after the last job of the kind has ended: the parent that they are
    /// parts of is complete then.
    #[must_use]
    pub fn holds_results_together(mut self) -> JobKind {
        self.holds_together = true;
        self
    }
}

/// A kind of free-standing reservation, and what may happen to it.
#[derive(Clone, Debug)]
pub struct ReservationKind {
    pub(crate) name: String,
    pub(crate) class: Class,
    /// How much is held, level by level: asked for first, and after each growth.
    pub(crate) levels: Vec<Bytes>,
    pub(crate) child: Option<String>,
    pub(crate) priority: i32,
    pub(crate) retained: bool,
    pub(crate) cancels: bool,
    pub(crate) frees_later: bool,
    pub(crate) tries: Option<Bytes>,
}

impl ReservationKind {
    /// Reservations of this many bytes, which are dropped at some moment.
    pub fn new(name: &str, class: Class, bytes: Bytes) -> ReservationKind {
        ReservationKind {
            name: name.into(),
            class,
            levels: vec![bytes],
            child: None,
            priority: 0,
            retained: false,
            cancels: false,
            frees_later: false,
            tries: None,
        }
    }

    /// Lets them be grown to this many bytes, by waiting. Several growths are asked for one after another; the last one
    /// is the declared maximum.
    #[must_use]
    pub fn grows_to(mut self, bytes: Bytes) -> ReservationKind {
        self.levels.push(bytes);
        self
    }

    /// Charges them to a child ledger of the world.
    #[must_use]
    pub fn child(mut self, name: &str) -> ReservationKind {
        self.child = Some(name.into());
        self
    }

    /// Sets the priority: higher goes first.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> ReservationKind {
        self.priority = priority;
        self
    }

    /// Declares them as not coming back while others wait.
    #[must_use]
    pub fn retained(mut self) -> ReservationKind {
        self.retained = true;
        self
    }

    /// They may be given up while they are waited for.
    #[must_use]
    pub fn cancels(mut self) -> ReservationKind {
        self.cancels = true;
        self
    }

    /// When they are dropped they go to the reaper: they are gone, and their bytes are back, at some later moment.
    #[must_use]
    pub fn frees_later(mut self) -> ReservationKind {
        self.frees_later = true;
        self
    }

    /// They may try to take this much more than they declared, once.
    #[must_use]
    pub fn tries_to_grow(mut self, bytes: Bytes) -> ReservationKind {
        self.tries = Some(bytes);
        self
    }
}
