//! Jobs: what the ledger is told of one trip through the stages of a profile.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::error::{EnterError, RestartError};
use super::grant::Grant;
use super::residency::Need;
use super::shell::{Answer, Inner, SeatId, Verdict, Waited};
use super::state::{self, Granted, OwnerId, Parent, Refusal};
use crate::observe::What;
use crate::sync::Arc;
use crate::{Profile, Resource};

/// A job as it is submitted.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The name, as reports and errors show it.
    pub name: StdArc<str>,
    /// What it needs, stage by stage.
    pub profile: Profile,
    /// Higher goes first.
    pub priority: i32,
    /// It may be served from the urgent reserve.
    pub urgent: bool,
    /// It may [begin again](Job::restart) while it still holds something.
    pub restarts: bool,
    /// It runs alone where it is larger than a limit.
    pub alone_if_oversize: bool,
    /// The residencies that it needs, from its first stage to its end.
    pub needs: Vec<Need>,
    /// Those that it needs besides where it goes by one of its profiles: 0 is the one that is preferred.
    pub needs_by: Vec<(usize, Need)>,
    /// Other profiles by which it may be served, in order of preference.
    pub alternatives: Vec<Profile>,
    /// Those of its profiles by which it is not to be served after all, by number. Another one is left.
    pub(crate) without: Vec<usize>,
    /// The job that it is a part of.
    pub parent: Option<Parent>,
    /// The ledger of that job.
    pub(crate) ledger: Option<ParentsLedger>,
}

/// The ledger that a part's parent belongs to.
#[derive(Clone)]
pub(crate) struct ParentsLedger(Arc<Inner>);

impl fmt::Debug for ParentsLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ledger")
    }
}

impl JobSpec {
    /// A job of ordinary priority.
    pub fn new(name: &str, profile: Profile) -> JobSpec {
        let (name, priority, urgent, restarts, alone_if_oversize) = (name.into(), 0, false, false, false);
        let (needs, needs_by, alternatives) = (Vec::new(), Vec::new(), Vec::new());
        JobSpec {
            name,
            profile,
            priority,
            urgent,
            restarts,
            alone_if_oversize,
            needs,
            needs_by,
            alternatives,
            without: Vec::new(),
            parent: None,
            ledger: None,
        }
    }

    /// Adds another profile by which the job may be served: on another device, or with fewer bytes and slower. It has the
    /// same stages.
    ///
    /// A waiting request tries the profiles in the order in which they are given and is granted by the first that fits
    /// and is safe; [`Grant::choice`] says which. Once in flight, the job may change to another profile at any later
    /// stage, as long as what it holds is within what that profile keeps until there. A profile that no limit allows is
    /// never chosen; the job is refused only when none is left.
    ///
    /// ```
    /// use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Space};
    /// const FIRST: Class = Class::new("abc", Space::device(0));
    /// const SECOND: Class = Class::new("abc", Space::device(1));
    /// let on = |device| Profile::new().stage("prove", Demand::new().bytes(device, Bytes::GIB), Demand::new());
    /// let budget = Budget::new().space(Space::device(0), Bytes::GIB).space(Space::device(1), Bytes::GIB);
    /// let ledger = Ledger::new(budget);
    /// let submit = |name| ledger.submit(JobSpec::new(name, on(FIRST)).or(on(SECOND)));
    /// let (mut one, mut other) = (submit("one")?, submit("other")?);
    /// let (first, second) = (one.enter(0).wait()?, other.enter(0).wait()?);
    /// assert_eq!((first.choice(), second.choice()), (0, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn or(mut self, profile: Profile) -> JobSpec {
        self.alternatives.push(profile);
        self
    }

    /// Makes the job a part of another one, which is in flight and has made room for it in its profile with
    /// [`Profile::parts`].
    ///
    /// A part is a job of its own, submitted to the ledger of its parent and charged to the same account, with at least
    /// its parent's priority. Its requests are looked at with those of jobs in flight, its first one too. What it
    /// leaves behind is its parent's from the moment in which it ends: the bytes count as held by the parent, whoever has
    /// the reservations. A parent that is dropped ends with the last of its parts that are in flight; those that were not
    /// admitted are refused. Parts may have parts.
    ///
    /// ```
    /// use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Space};
    /// const ABC: Class = Class::new("abc", Space::HOST);
    /// const PROOF: Class = Class::new("proof", Space::HOST);
    /// let proofs = |n| Demand::new().bytes(PROOF, Bytes(n));
    /// let partition = Profile::new().stage("prove", proofs(1).bytes(ABC, Bytes(9)), proofs(1));
    /// let whole = Profile::new()
    ///     .stage("partitions", Demand::new(), proofs(2))
    ///     .parts(2, &partition)
    ///     .stage("assemble", proofs(2), Demand::new());
    /// // One partition and the proof of another: 11. Both at once would need 20.
    /// let ledger = Ledger::new(Budget::new().space(Space::HOST, Bytes(11)));
    /// let mut job = ledger.submit(JobSpec::new("proof", whole))?;
    /// let partitions = job.enter(0).wait()?;
    /// let mut proofs = Vec::new();
    /// for n in 0..2 {
    ///     let mut part = ledger.submit(JobSpec::new(&format!("partition {n}"), partition.clone()).part_of(&job))?;
    ///     let mut grant = part.enter(0).wait()?;
    ///     proofs.push(grant.take(PROOF, Bytes(1))?);
    /// }
    /// drop(partitions);
    /// let mut assemble = job.enter(1).wait()?;
    /// for proof in proofs {
    ///     assemble.put_back(proof).expect("what a part left is its parent's");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn part_of(mut self, parent: &Job) -> JobSpec {
        self.parent = Some(parent.inner.read(|state| state.as_parent(parent.id)));
        self.ledger = Some(ParentsLedger(parent.inner.clone()));
        self
    }

    /// The same for those who drive a [`LedgerState`](state::LedgerState) themselves.
    #[must_use]
    pub fn part_of_owner(mut self, parent: Parent) -> JobSpec {
        self.parent = Some(parent);
        self
    }

    /// Whether it may be submitted here: a part only to the ledger of its parent.
    pub(super) fn belongs_to(&self, ledger: &Arc<Inner>) -> bool {
        self.ledger.as_ref().is_none_or(|parents| Arc::ptr_eq(&parents.0, ledger))
    }

    /// Sets the priority: higher goes first, 0 otherwise.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> JobSpec {
        self.priority = priority;
        self
    }

    /// Declares that the job may [begin again](Job::restart) while it holds something, such as an input that it keeps for
    /// that. Its claim then stays as high as it was at first until it ends, so others may have to wait longer.
    #[must_use]
    pub fn restarts(mut self) -> JobSpec {
        self.restarts = true;
        self
    }

    /// Lets the job run alone where its claim is above a limit, instead of being refused.
    ///
    /// It is then admitted when nothing else is in flight in the ledger, or in the child whose limit it is above, but what is
    /// declared as retained; and nobody is admitted beside it until it has ended. It waits for that as others wait: no
    /// more than K later admissions pass it. While it runs, it exceeds the limit that was asked for, as far as its claim
    /// says: whether the machine can bear that is for the caller to know. Each time is counted in
    /// [`Snapshot::forced`](super::snapshot::Snapshot::forced).
    ///
    /// A job that [needs](JobSpec::needs) residencies, or is a part of another one, is refused all the same.
    #[must_use]
    pub fn alone_if_oversize(mut self) -> JobSpec {
        self.alone_if_oversize = true;
        self
    }

    /// Lets the job be served from the urgent reserve of the budget, where there is one.
    #[must_use]
    pub fn urgent(mut self) -> JobSpec {
        self.urgent = true;
        self
    }

    /// Declares that the job needs a residency: it is pinned for the job from its admission to its end, and loaded before
    /// if it is not there. See [`Job::load`].
    #[must_use]
    pub fn needs(mut self, residency: impl Into<Need>) -> JobSpec {
        self.needs.push(residency.into());
        self
    }

    /// Declares that the job needs a residency if it goes by the profile that was given last: a key that is on this device and
    /// not on the other one, say, or a table without which a slower way goes as well. A job that pins something stays with
    /// profiles that need the same, until it begins again from its start holding nothing, or [goes smaller](Job::go_smaller). Of the profiles that
    /// need something, those are tried first by which the fewest jobs in flight go; of equals, those for which all of it is loaded.
    /// Where others load it, the job waits for that before its admission rather than be bound to it, unless more go elsewhere.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Ledger, Profile, Space};
    /// # let budget = Budget::new().device(0, Bytes::GIB, 1).device(1, Bytes::GIB, 1);
    /// # let ledger = Ledger::new(budget);
    /// let key = |device| {
    ///     let class = Class::new("key", Space::device(device));
    ///     ledger.residency::<Vec<u8>>("key", class, Bytes::MIB, Duration::from_secs(15))
    /// };
    /// let (here, there) = (key(0)?, key(1)?);
    /// let on = |device| Profile::new().stage("prove", Demand::new().on_lease(device), Demand::new());
    /// let mut job = ledger.submit(JobSpec::new("job", on(0)).needing(&here).or(on(1)).needing(&there))?;
    /// let load = job.load().wait()?.expect("nobody has loaded it");
    /// assert!(load.of(&here).is_ok(), "the first device is free");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn needing(mut self, residency: impl Into<Need>) -> JobSpec {
        self.needs_by.push((self.alternatives.len(), residency.into()));
        self
    }
}

/// A job that the ledger has taken on. Dropping it ends the job; where a stage's [`Grant`] is still alive, the job ends
/// with that.
///
/// Reservations that were taken from its grants may outlive it. Until they are dropped nobody counts on their return, so
/// the last stage's `keep` must declare them.
#[must_use = "dropping a job ends it"]
#[derive(Debug)]
pub struct Job {
    pub(super) inner: Arc<Inner>,
    pub(super) id: OwnerId,
    pub(super) name: StdArc<str>,
    /// In order of preference; at least one.
    profiles: Vec<Profile>,
    pub(super) place: &'static Location<'static>,
    /// The stage that is waited for.
    pub(super) waiting: Option<(SeatId, usize)>,
    /// A stage that was granted and has not been taken yet.
    pub(super) arrived: Option<(usize, Granted)>,
    /// The residencies that it needs, and by which of its profiles: by all of them, without one.
    pub(super) needs: Vec<(Option<usize>, Need)>,
}

impl Job {
    #[track_caller]
    pub(super) fn new(inner: Arc<Inner>, id: OwnerId, name: StdArc<str>, profiles: Vec<Profile>) -> Job {
        let (place, needs) = (Location::caller(), Vec::new());
        Job { inner, id, name, profiles, place, waiting: None, arrived: None, needs }
    }

    pub(super) fn with_needs(mut self, needs: Vec<Need>, needs_by: Vec<(usize, Need)>) -> Job {
        let by_one = needs_by.into_iter().map(|(choice, need)| (Some(choice), need));
        self.needs = needs.into_iter().map(|need| (None, need)).chain(by_one).collect();
        self
    }

    /// The same, submitted elsewhere.
    pub(super) fn with_place(mut self, place: &'static Location<'static>) -> Job {
        self.place = place;
        self
    }

    /// The job's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it declared; of several profiles the one that is preferred.
    pub fn profile(&self) -> &Profile {
        &self.profiles[0]
    }

    /// All profiles that it declared, in order of preference: what [`Grant::choice`] counts.
    pub fn profiles(&self) -> &[Profile] {
        &self.profiles
    }

    /// Tells the ledger's observers what has happened to the job outside of the ledger.
    pub(crate) fn note(&self, what: What) {
        self.inner.read(|state| state.note_of_job(self.id, what));
    }

    /// What it holds, by resource.
    pub(crate) fn holdings(&self) -> Vec<(Resource, u64)> {
        self.inner.read(|state| state.holdings_of(self.id).to_vec())
    }

    /// Whether it has been admitted and is in flight.
    pub(crate) fn is_admitted(&self) -> bool {
        self.inner.read(|state| state.is_in_flight(self.id))
    }

    /// Goes by the next of its [alternatives](JobSpec::or) that claims no more of anything, and gives up those before it:
    /// for a stage that was granted by a plan which then turned out to be too large, and is [run again](Grant::retry).
    /// A part only goes by one for which its parent has room. False, and nothing has changed, if there is none, or the job is not
    /// in flight and between stages.
    pub fn go_smaller(&mut self) -> bool {
        self.cancel_enter();
        self.inner.event(|state, out| state.go_smaller(self.id, out))
    }

    /// Changes the priority: a request that waits takes its new place among the others.
    pub fn prioritise(&mut self, priority: i32) {
        self.inner.event(|state, out| state.prioritise(self.id, priority, out));
    }

    /// Asks to enter a stage: for everything that the stage's peak names beyond what the job holds already, granted whole
    /// or not at all. Entering the first stage is the job's admission, later ones are growth.
    ///
    /// The grant of the stage before must have been dropped. Stages may be left out, and are entered again only after
    /// [`Grant::retry`] or [`restart`](Job::restart).
    pub fn enter(&mut self, stage: usize) -> Enter<'_> {
        Enter { job: self, stage }
    }

    /// Sends the job back to before its first stage, to run it again from there. A waiting request is taken back.
    ///
    /// A job that holds nothing is then not in flight any more: it asks for admission again, with the priority and the age
    /// that it had, so nobody who came later goes before it. One that keeps something for this (its input) has declared
    /// that with [`JobSpec::restarts`] and stays in flight, with all that it was promised.
    ///
    /// To run only the last stage again, see [`Grant::retry`].
    ///
    /// # Errors
    ///
    /// If the grant of a stage is still alive, or reservations of the job are and it has not declared that they may be.
    pub fn restart(&mut self) -> Result<(), RestartError> {
        self.cancel_enter();
        self.inner.event(|state, out| state.restart(self.id, out))
    }

    /// Polls for the grant of a stage, for callers that keep the job in a structure of their own. The request stands
    /// until it is granted or refused, another stage is polled for, [`cancel_enter`](Job::cancel_enter) is called, or the
    /// job is dropped.
    ///
    /// # Errors
    ///
    /// See [`EnterError`].
    pub fn poll_enter(&mut self, cx: &mut Context<'_>, stage: usize) -> Poll<Result<Grant, EnterError>> {
        if let Some(granted) = self.take_arrived(stage) {
            return Poll::Ready(Ok(self.grant(stage, &granted)));
        }
        let seat = match self.waiting {
            Some((seat, _)) => seat,
            None => match self.inner.ask(self.place, |now, state, out| self.ask(now, stage, state, out))? {
                Answer::Now(_, verdict) => return Poll::Ready(self.conclude(stage, verdict)),
                Answer::Later(seat) => self.waiting.insert((seat, stage)).0,
            },
        };
        match self.inner.poll(seat, cx.waker()) {
            None => match self.must_load() {
                None => Poll::Pending,
                Some(residency) => Poll::Ready(Err(self.not_loaded(residency))),
            },
            Some(verdict) => {
                self.waiting = None;
                Poll::Ready(self.conclude(stage, verdict))
            }
        }
    }

    /// Whether a stage was asked for ([`poll_enter`](Job::poll_enter)) and there is no answer yet. Without one that was asked
    /// for it does not wait; with an answer that nobody has fetched it may hold what it was granted.
    pub fn is_waiting(&self) -> bool {
        self.waiting.is_some_and(|(seat, _)| !self.inner.is_answered(seat))
    }

    /// What was granted already of a stage. What was asked for or granted of any other one goes back.
    fn take_arrived(&mut self, stage: usize) -> Option<Granted> {
        let asked = self.arrived.as_ref().map(|entry| entry.0).or(self.waiting.map(|entry| entry.1));
        if asked.is_some_and(|asked| asked != stage) {
            self.cancel_enter();
        }
        self.arrived.take().map(|(_, granted)| granted)
    }

    /// A load falls to the job, which does not take it: it is left to another one.
    fn not_loaded(&mut self, residency: StdArc<str>) -> EnterError {
        self.cancel_enter();
        EnterError::NotLoaded { job: self.name.clone(), residency }
    }

    /// Takes the waiting request back, if there is one. A grant that has arrived meanwhile goes back whole.
    pub fn cancel_enter(&mut self) {
        if let Some((stage, granted)) = self.arrived.take() {
            self.inner.event(|state, out| state.undo_enter(self.id, stage, &granted, out));
        }
        if let Some((seat, stage)) = self.waiting.take() {
            self.inner.leave(seat, |state, granted, out| state.undo_enter(seat.owner, stage, &granted, out));
        }
    }

    fn wait_at_most(&mut self, stage: usize, timeout: Option<Duration>) -> Result<Grant, EnterError> {
        if let Some(granted) = self.take_arrived(stage) {
            return Ok(self.grant(stage, &granted));
        }
        let seat = match self.waiting {
            Some((seat, _)) => seat,
            None => match self.inner.ask(self.place, |now, state, out| self.ask(now, stage, state, out))? {
                Answer::Now(_, verdict) => return self.conclude(stage, verdict),
                Answer::Later(seat) => self.waiting.insert((seat, stage)).0,
            },
        };
        let waited = self.inner.wait(seat, timeout);
        self.conclude_wait(stage, waited, timeout.unwrap_or_default())
    }

    /// Ends a wait of [`waiting`](Job::waiting), which stands until then: a load that falls to the job leaves its request where
    /// it was.
    fn conclude_wait(&mut self, stage: usize, waited: Waited, after: Duration) -> Result<Grant, EnterError> {
        match waited {
            Waited::Verdict(verdict) => {
                self.waiting = None;
                self.conclude(stage, verdict)
            }
            Waited::TimedOut(shortage) => {
                self.waiting = None;
                Err(EnterError::TimedOut { after, shortage: Box::new(shortage) })
            }
            Waited::MustLoad => {
                let residency = self.must_load().unwrap_or_else(|| "what it needs".into());
                Err(self.not_loaded(residency))
            }
        }
    }

    fn try_now(&mut self, stage: usize) -> Result<Grant, EnterError> {
        if let Some(granted) = self.take_arrived(stage) {
            return Ok(self.grant(stage, &granted));
        }
        self.cancel_enter();
        match self.inner.ask_now(self.place, |now, state, out| self.ask(now, stage, state, out))? {
            Ok((_, verdict)) => self.conclude(stage, verdict),
            Err(shortage) => Err(EnterError::WouldWait(Box::new(shortage))),
        }
    }

    pub(super) fn ask(
        &self,
        now: u64,
        stage: usize,
        state: &mut state::LedgerState,
        out: &mut Vec<state::Outcome>,
    ) -> Result<OwnerId, EnterError> {
        state.enter(now, self.id, stage, out).map(|()| self.id)
    }

    pub(super) fn conclude(&self, stage: usize, verdict: Verdict) -> Result<Grant, EnterError> {
        match verdict {
            Verdict::Granted(granted) => Ok(self.grant(stage, &granted)),
            Verdict::Refused(Refusal::NeverFits(error)) => Err(EnterError::NeverFits(error)),
            Verdict::Refused(Refusal::Lost(error)) => Err(EnterError::Lost(error)),
            Verdict::Refused(Refusal::Closed) => Err(EnterError::Closed { job: self.name.clone() }),
            Verdict::Refused(Refusal::LoadFailed { residency, why }) => {
                Err(EnterError::LoadFailed { job: self.name.clone(), residency, why })
            }
            Verdict::Refused(Refusal::ParentEnded) => Err(EnterError::ParentEnded { job: self.name.clone() }),
        }
    }

    fn grant(&self, stage: usize, granted: &Granted) -> Grant {
        // The choice stands until another stage is asked for, so it can be looked at now.
        let choice = if self.profiles.len() > 1 { self.inner.read(|state| state.choice(self.id)) } else { 0 };
        let stage = self.profiles[0].stages()[stage].name;
        let grant = Grant::new(self.inner.clone(), self.id, self.name.clone(), stage, granted).with_choice(choice);
        if self.needs.is_empty() {
            return grant;
        }
        // Only what is pinned: a share in anything else would outlive its eviction.
        let is_pinned = |by: Option<usize>| by.is_none_or(|by| by == choice);
        grant.with_pins(self.needs.iter().filter(|entry| is_pinned(entry.0)).map(|entry| &entry.1))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.cancel_enter();
        self.inner.event(|state, out| state.end(self.id, out));
    }
}

/// A request to enter a stage: take it with [`wait`](Enter::wait), [`wait_for`](Enter::wait_for),
/// [`try_now`](Enter::try_now) or `.await`. The future needs no runtime and may be dropped at any point.
#[must_use = "a request does nothing until it is waited for"]
#[derive(Debug)]
pub struct Enter<'a> {
    job: &'a mut Job,
    stage: usize,
}

impl Enter<'_> {
    /// Blocks the thread until the stage is granted. Never call it from a worker inside a stage.
    ///
    /// # Errors
    ///
    /// See [`EnterError`].
    pub fn wait(self) -> Result<Grant, EnterError> {
        self.job.wait_at_most(self.stage, None)
    }

    /// Blocks the thread until the stage is granted, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// As [`wait`](Enter::wait), and [`EnterError::TimedOut`].
    pub fn wait_for(self, timeout: Duration) -> Result<Grant, EnterError> {
        self.job.wait_at_most(self.stage, Some(timeout))
    }

    /// Enters the stage now or not at all.
    ///
    /// # Errors
    ///
    /// [`EnterError::WouldWait`] where [`wait`](Enter::wait) would wait, and its other errors.
    pub fn try_now(self) -> Result<Grant, EnterError> {
        self.job.try_now(self.stage)
    }
}

#[cfg(feature = "tokio")]
impl Enter<'_> {
    /// Stops waiting because a time-out has passed; a grant that has arrived meanwhile counts.
    pub(super) fn give_up(&mut self, after: Duration) -> Result<Grant, EnterError> {
        let (seat, stage) = self.job.waiting.expect("it waits");
        let waited = self.job.inner.wait_no_longer(seat);
        self.job.conclude_wait(stage, waited, after)
    }
}

impl Future for Enter<'_> {
    type Output = Result<Grant, EnterError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let stage = self.stage;
        self.job.poll_enter(cx, stage)
    }
}

impl Drop for Enter<'_> {
    fn drop(&mut self) {
        self.job.cancel_enter();
    }
}
