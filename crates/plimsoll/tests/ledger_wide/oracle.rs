//! The rules, as plainly as possible: dense vectors, every order tried, everything looked at again after each grant.

use std::cmp::Reverse;

/// Amounts by resource: two classes in host memory, one on each of two devices, and cores.
pub(crate) type Amounts = [u64; 5];
pub(crate) const CORES: usize = 4;

/// The components: host memory, the urgent reserve of it, the child's limit of it, two devices, cores.
pub(crate) type Vector = [u64; 6];
const KINDS: usize = 6;
const CHILD: usize = 2;

/// Whom something is charged to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    Root,
    Reserve,
    Child,
    ChildsReserve,
}

impl Account {
    fn reserve(self) -> Account {
        match self {
            Account::Root | Account::Reserve => Account::Reserve,
            Account::Child | Account::ChildsReserve => Account::ChildsReserve,
        }
    }

    fn vector(self, amounts: Amounts) -> Vector {
        let host = amounts[0] + amounts[1];
        let [h, u, k] = match self {
            Account::Root => [host, 0, 0],
            Account::Reserve => [0, host, 0],
            Account::Child => [host, 0, host],
            Account::ChildsReserve => [0, host, host],
        };
        [h, u, k, amounts[2], amounts[3], amounts[4]]
    }
}

/// A stage: what it needs, what it keeps, and how many parts of which shape may run beside it.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    pub(crate) peak: Amounts,
    pub(crate) keep: Amounts,
    pub(crate) parts: Option<(u64, Vec<Stage>)>,
}

/// What an actor is.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Job { profiles: Vec<Vec<Stage>>, urgent: bool, parent: Option<usize> },
    Standing { max: Option<u64>, retained: bool },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum At {
    Fresh,
    Waiting(usize),
    Running(usize),
    Between(usize),
    /// Ended, with results that are still held.
    Left,
}

#[derive(Clone, Debug)]
struct Plan {
    choice: usize,
    account: Account,
    claims: Vec<Vector>,
    leaves: Vector,
}

/// A job or reservation that exists.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    pub(crate) kind: Kind,
    pub(crate) at: At,
    pub(crate) held: Amounts,
    priority: i32,
    plans: Vec<Plan>,
    plan: usize,
    /// Of a part, the plan for which there was room.
    surety: usize,
    in_flight: bool,
    account: Account,
    claim: Vector,
    leaves: Vector,
    age: u64,
    passed: u32,
    /// What a standing reservation asks for.
    asks: u64,
}

impl Actor {
    pub(crate) fn choice(&self) -> usize {
        self.plans.get(self.plan).map_or(0, |plan| plan.choice)
    }

    pub(crate) fn profile(&self) -> &[Stage] {
        let Kind::Job { profiles, .. } = &self.kind else { panic!("only jobs have profiles") };
        &profiles[self.choice()]
    }

    pub(crate) fn parent(&self) -> Option<usize> {
        match self.kind {
            Kind::Job { parent, .. } => parent,
            Kind::Standing { .. } => None,
        }
    }

    fn waits(&self) -> bool {
        matches!(self.at, At::Waiting(_))
    }

    fn is_growth(&self) -> bool {
        self.waits() && (self.in_flight || self.parent().is_some())
    }

    /// What its waiting request needs beyond what it holds.
    fn missing(&self) -> Amounts {
        let At::Waiting(stage) = self.at else { panic!("it waits") };
        match self.kind {
            Kind::Standing { .. } => [self.asks, 0, 0, 0, 0],
            Kind::Job { .. } => {
                let peak = self.profile()[stage].peak;
                std::array::from_fn(|at| peak[at].saturating_sub(self.held[at]))
            }
        }
    }
}

pub(crate) struct Oracle {
    pub(crate) actors: Vec<Option<Actor>>,
    limit: Vector,
    target: Vector,
    reserved: u64,
    bypass: u32,
    next_age: u64,
    pub(crate) granted: Vec<usize>,
    pub(crate) refused: Vec<usize>,
}

fn add(one: Vector, other: Vector) -> Vector {
    std::array::from_fn(|at| one[at] + other[at])
}

fn most(one: Vector, other: Vector) -> Vector {
    std::array::from_fn(|at| one[at].max(other[at]))
}

fn less(one: Vector, other: Vector) -> Vector {
    std::array::from_fn(|at| one[at].saturating_sub(other[at]))
}

fn within(one: Vector, other: Vector) -> bool {
    (0..KINDS).all(|at| one[at] <= other[at])
}

fn leaves_of(profile: &[Stage]) -> Amounts {
    let mut leaves = profile.last().expect("profiles have stages").keep;
    leaves[CORES] = 0;
    leaves
}

fn plan_of(profile: &[Stage], choice: usize, account: Account) -> Plan {
    let mut claims = vec![[0; KINDS]; profile.len()];
    let mut claim = [0; KINDS];
    for (at, stage) in profile.iter().enumerate().rev() {
        let mut needs = account.vector(stage.peak);
        if let Some((count, part)) = &stage.parts {
            let of_part = plan_of(part, 0, account);
            needs = add(needs, of_part.leaves.map(|leaves| leaves * count));
            needs = add(needs, less(of_part.claims[0], of_part.leaves));
        }
        claim = most(claim, needs);
        claims[at] = claim;
    }
    Plan { choice, account, claims, leaves: account.vector(leaves_of(profile)) }
}

impl Oracle {
    pub(crate) fn new(limits: Vector, bypass: u32, actors: usize) -> Oracle {
        let actors = vec![None; actors];
        let (granted, refused) = (Vec::new(), Vec::new());
        let (limit, target, reserved) = (limits, limits, limits[1]);
        Oracle { actors, limit, target, reserved, bypass, next_age: 0, granted, refused }
    }

    pub(crate) fn actor(&self, at: usize) -> &Actor {
        self.actors[at].as_ref().expect("it exists")
    }

    fn actor_mut(&mut self, at: usize) -> &mut Actor {
        self.actors[at].as_mut().expect("it exists")
    }

    /// How everybody stands, to be read.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("limits {:?}, asked for {:?}, bypass {}\n", self.limit, self.target, self.bypass);
        for (at, actor) in self.all() {
            let Actor { at: stands, held, account, claim, leaves, age, passed, priority, .. } = actor;
            text += &format!(
                "{at}: {stands:?} in {account:?} holds {held:?} claims {claim:?} leaves {leaves:?}, age {age}, passed {passed}, priority {priority}\n"
            );
        }
        text
    }

    fn all(&self) -> impl Iterator<Item = (usize, &Actor)> {
        self.actors.iter().enumerate().filter_map(|(at, actor)| Some((at, actor.as_ref()?)))
    }

    pub(crate) fn parts(&self, parent: usize) -> impl Iterator<Item = (usize, &Actor)> {
        self.all().filter(move |(_, actor)| actor.parent() == Some(parent))
    }

    /// Takes a job or reservation on, if it can be served at all. It then asks.
    pub(crate) fn arrive(&mut self, at: usize, kind: Kind, home: Account, priority: i32, asks: u64) -> bool {
        let mut actor = Actor {
            kind: kind.clone(),
            at: At::Fresh,
            held: [0; 5],
            priority,
            plans: Vec::new(),
            plan: 0,
            surety: 0,
            in_flight: false,
            account: home,
            claim: [0; KINDS],
            leaves: [0; KINDS],
            age: 0,
            passed: 0,
            asks,
        };
        match &kind {
            Kind::Standing { max, retained } => {
                actor.claim = home.vector([max.unwrap_or(asks), 0, 0, 0, 0]);
                if *retained {
                    actor.leaves = actor.claim;
                }
                if !self.is_attainable(actor.claim) {
                    return false;
                }
            }
            Kind::Job { profiles, urgent, parent } => {
                let home = parent.map_or(home, |parent| self.actor(parent).account);
                let accounts = if *urgent { vec![home.reserve(), home] } else { vec![home] };
                for (choice, profile) in profiles.iter().enumerate() {
                    actor.plans.extend(accounts.iter().map(|account| plan_of(profile, choice, *account)));
                }
                if let Some(parent) = *parent {
                    actor.priority = priority.max(self.actor(parent).priority);
                    let has_room = |plan: &Plan| within(self.family_need(parent, Some(plan)), self.actor(parent).claim);
                    let Some(surety) = actor.plans.iter().position(has_room) else { return false };
                    actor.surety = surety;
                } else if !actor.plans.iter().any(|plan| self.is_attainable(plan.claims[0])) {
                    return false;
                }
            }
        }
        self.actors[at] = Some(actor);
        self.go_by_nominal(at);
        self.ask(at, 0);
        true
    }

    /// Until a job is admitted it goes by one plan.
    fn go_by_nominal(&mut self, at: usize) {
        let actor = self.actor(at);
        if actor.plans.is_empty() {
            return;
        }
        let nominal = if actor.parent().is_some() {
            actor.surety
        } else {
            let ordinary = |plan: &Plan| matches!(plan.account, Account::Root | Account::Child);
            let fits = |plan: &Plan| ordinary(plan) && self.is_attainable(plan.claims[0]);
            let first = actor.plans.iter().position(fits);
            first.or_else(|| actor.plans.iter().position(ordinary)).expect("there is an ordinary one")
        };
        self.go_by(at, nominal, 0);
    }

    /// Goes by a plan, and claims what it says from a stage on.
    fn go_by(&mut self, at: usize, plan: usize, stage: usize) {
        let actor = self.actor_mut(at);
        actor.plan = plan;
        let of = actor.plans[plan].clone();
        (actor.account, actor.leaves) = (of.account, of.leaves);
        actor.claim = most(of.claims[stage], of.account.vector(actor.held));
    }

    /// Asks for a stage, or for more of a reservation.
    pub(crate) fn ask(&mut self, at: usize, stage: usize) {
        let age = self.next_age;
        self.next_age += 1;
        let actor = self.actor_mut(at);
        (actor.at, actor.age, actor.passed) = (At::Waiting(stage), age, 0);
        self.settle();
    }

    /// A job that is not admitted asks again; `false` if it no longer fits.
    pub(crate) fn ask_again(&mut self, at: usize) -> bool {
        let actor = self.actor(at);
        let fits = actor.parent().is_some() || actor.plans.iter().any(|plan| self.is_attainable(plan.claims[0]));
        if fits {
            self.ask(at, 0);
        } else {
            self.actors[at] = None;
        }
        fits
    }

    pub(crate) fn grow(&mut self, at: usize, bytes: u64) {
        self.actor_mut(at).asks = bytes;
        self.ask(at, 1);
    }

    pub(crate) fn withdraw(&mut self, at: usize) {
        self.actor_mut(at).at = At::Fresh;
        self.settle();
    }

    /// A job takes its request back because it is about to end.
    pub(crate) fn give_up_request(&mut self, at: usize, stage: usize) {
        let in_flight = self.actor(at).in_flight;
        self.actor_mut(at).at = if in_flight { At::Between(stage) } else { At::Fresh };
        self.settle();
    }

    /// A stage ends, and nothing is kept of its bytes.
    pub(crate) fn end_stage_keeping_nothing(&mut self, at: usize) {
        let actor = self.actor_mut(at);
        let cores = actor.held[CORES];
        actor.held = [0, 0, 0, 0, cores];
        self.end_stage(at);
    }

    /// Some of what is held comes back.
    pub(crate) fn release(&mut self, at: usize, back: Amounts) {
        let actor = self.actor_mut(at);
        for (held, back) in actor.held.iter_mut().zip(back) {
            *held -= back;
        }
        if let Kind::Standing { max, retained } = actor.kind {
            let base = actor.account.vector([max.unwrap_or(0), 0, 0, 0, 0]);
            actor.claim = most(base, actor.account.vector(actor.held));
            if retained {
                actor.leaves = actor.claim;
            }
        }
        self.settle();
    }

    /// A reservation is dropped, or the results of a job.
    pub(crate) fn drop_all(&mut self, at: usize) {
        self.actors[at] = None;
        self.settle();
    }

    /// The running stage ends and keeps what it says, of what there is.
    pub(crate) fn end_stage(&mut self, at: usize) {
        let At::Running(stage) = self.actor(at).at else { panic!("it runs") };
        let keep = self.actor(at).profile()[stage].keep;
        let actor = self.actor_mut(at);
        actor.held = std::array::from_fn(|of| keep[of].min(actor.held[of]));
        actor.at = At::Between(stage + 1);
        self.lower_claim(at);
        self.settle();
    }

    /// The job ends where it stands; what it holds is its result, or its parent's.
    pub(crate) fn end(&mut self, at: usize) {
        let mut actor = self.actors[at].take().expect("it exists");
        actor.held[CORES] = 0;
        if let Some(parent) = actor.parent().filter(|_| actor.in_flight) {
            let heir = self.actor_mut(parent);
            for (held, left) in heir.held.iter_mut().zip(actor.held) {
                *held += left;
            }
            self.lower_claim(parent);
        } else if actor.held != [0; 5] {
            (actor.at, actor.in_flight) = (At::Left, false);
            self.actors[at] = Some(actor);
        }
        self.settle();
    }

    /// Moves bytes of a running job to another class; `false` if that is not possible.
    pub(crate) fn convert(&mut self, at: usize, from: usize, to: usize) -> bool {
        let before = self.actor(at).clone();
        let actor = self.actor_mut(at);
        actor.held[from] -= 1;
        actor.held[to] += 1;
        let held = actor.account.vector(actor.held);
        if held != before.account.vector(before.held) {
            actor.claim = most(actor.claim, held);
            self.cover_parts(at);
            if !self.is_safe(self.limit) {
                self.actors[at] = Some(before);
                return false;
            }
        }
        self.settle();
        true
    }

    pub(crate) fn resize_host(&mut self, limit: u64) {
        self.target[1] = self.reserved.min(limit);
        self.target[0] = limit - self.target[1];
        self.limit = most(self.limit, self.target);
        self.settle();
    }

    pub(crate) fn resize_child(&mut self, limit: u64) {
        self.target[CHILD] = limit;
        self.limit = most(self.limit, self.target);
        self.settle();
    }

    fn settle(&mut self) {
        loop {
            let unattainable = |(at, actor): (usize, &Actor)| {
                let fits = match actor.kind {
                    Kind::Standing { .. } => self.is_attainable(actor.claim),
                    Kind::Job { .. } => actor.plans.iter().any(|plan| self.is_attainable(plan.claims[0])),
                };
                (actor.waits() && !actor.is_growth() && !fits).then_some(at)
            };
            let refused: Vec<usize> = self.all().filter_map(unattainable).collect();
            for at in refused {
                self.actors[at] = None;
                self.refused.push(at);
            }
            // It goes by the first of its plans that the limits allow now.
            let not_admitted: Vec<usize> =
                self.all().filter(|(_, actor)| !actor.in_flight && actor.waits()).map(|entry| entry.0).collect();
            for at in not_admitted {
                self.go_by_nominal(at);
            }
            self.lower_limits();
            let Some(at) = self.grant_next() else { return };
            self.granted.push(at);
        }
    }

    fn lower_limits(&mut self) {
        for at in 0..KINDS {
            let before = self.limit[at];
            if before > self.target[at] {
                self.limit[at] = self.target[at].max(self.held()[at]);
                while self.limit[at] < before && !self.is_safe(self.limit) {
                    self.limit[at] += 1;
                }
            }
        }
    }

    fn grant_next(&mut self) -> Option<usize> {
        let mut growths = self.growths();
        growths.sort_by_key(|at| {
            let actor = self.actor(*at);
            (Reverse(actor.priority), self.share(actor.claim), actor.age)
        });
        let served = growths.into_iter().find(|at| self.grant_growth(*at));
        if served.is_some() {
            return served;
        }
        let mut admissions: Vec<usize> =
            self.all().filter(|(_, actor)| actor.waits() && !actor.is_growth()).map(|entry| entry.0).collect();
        admissions.sort_by_key(|at| (Reverse(self.actor(*at).priority), self.actor(*at).age));
        admissions.into_iter().find(|at| self.admit(*at))
    }

    fn growths(&self) -> Vec<usize> {
        self.all().filter(|(_, actor)| actor.is_growth()).map(|entry| entry.0).collect()
    }

    fn share(&self, claim: Vector) -> u128 {
        (0..KINDS).map(|at| (u128::from(claim[at]) << 32) / u128::from(self.target[at].max(1))).max().unwrap_or(0)
    }

    fn grant_growth(&mut self, at: usize) -> bool {
        let At::Waiting(stage) = self.actor(at).at else { panic!("it waits") };
        let plans = self.actor(at).plans.len().max(1);
        for plan in 0..plans {
            let before = self.actors.clone();
            let actor = self.actor(at);
            if plan != actor.plan {
                let of = &actor.plans[plan];
                let Kind::Job { profiles, .. } = &actor.kind else { panic!("only jobs have plans") };
                let brought = if stage == 0 { [0; 5] } else { profiles[of.choice][stage - 1].keep };
                let fits_in = (0..5).all(|of| actor.held[of] <= brought[of]);
                if of.account != actor.account || !fits_in || !self.is_attainable(of.claims[stage]) {
                    continue;
                }
                self.go_by(at, plan, stage);
                self.cover_parts(at);
            }
            self.take(at, stage);
            self.cover_kin(at);
            if self.is_safe(self.limit) {
                return true;
            }
            self.actors = before;
        }
        false
    }

    fn admit(&mut self, at: usize) -> bool {
        let plans = self.actor(at).plans.len().max(1);
        for plan in 0..plans {
            if !self.actor(at).plans.is_empty() {
                self.go_by(at, plan, 0);
            }
            let Some(passed) = self.may_pass(at) else { continue };
            let before = self.actors.clone();
            let claim = self.actor(at).claim;
            let more = self.actor(at).account.vector(self.actor(at).missing());
            let is_attainable = self.is_attainable(claim);
            self.take(at, 0);
            let held = self.held();
            let below_target = (0..KINDS).all(|of| more[of] == 0 || held[of] <= self.target[of]);
            if is_attainable && below_target && self.is_safe(self.limit) {
                for other in passed {
                    self.actor_mut(other).passed += 1;
                }
                return true;
            }
            self.actors = before;
        }
        self.go_by_nominal(at);
        false
    }

    /// Whom an admission passes, if it may pass all of them.
    fn may_pass(&mut self, at: usize) -> Option<Vec<usize>> {
        let actor = self.actor(at);
        let in_reserve = matches!(actor.account, Account::Reserve | Account::ChildsReserve);
        if in_reserve && (0..KINDS).all(|of| of == 1 || actor.claim[of] == 0) {
            return Some(Vec::new());
        }
        let age = actor.age;
        let is_passed = |(other, actor): (usize, &Actor)| {
            (other != at && actor.waits() && (actor.is_growth() || actor.age < age)).then_some(other)
        };
        let passed: Vec<usize> = self.all().filter_map(is_passed).collect();
        let passed: Vec<usize> =
            passed.into_iter().filter(|other| !self.is_short_only_in_its_child(*other, at)).collect();
        passed.iter().all(|other| self.actor(*other).passed < self.bypass).then_some(passed)
    }

    fn is_short_only_in_its_child(&mut self, waiter: usize, passer: usize) -> bool {
        if self.actor(waiter).claim[CHILD] == 0 || self.actor(passer).claim[CHILD] > 0 {
            return false;
        }
        let At::Waiting(stage) = self.actor(waiter).at else { panic!("it waits") };
        let before = self.actors.clone();
        self.take(waiter, stage);
        self.cover_kin(waiter);
        let mut lifted = self.limit;
        lifted[CHILD] = 1 << 40;
        // Short in its child alone: it could be served with that lifted, and not without.
        let short_only_there = self.is_safe(lifted) && !self.is_safe(self.limit);
        self.actors = before;
        short_only_there
    }

    /// Gives a waiting actor what it asks for.
    fn take(&mut self, at: usize, stage: usize) {
        let missing = self.actor(at).missing();
        let actor = self.actor_mut(at);
        for (held, missing) in actor.held.iter_mut().zip(missing) {
            *held += missing;
        }
        actor.at = At::Running(stage);
        actor.in_flight = true;
    }

    /// The claim falls to that of the stages to come, and of the parts that have not ended.
    fn lower_claim(&mut self, at: usize) {
        let actor = self.actor(at);
        let stage = match actor.at {
            At::Running(stage) | At::Waiting(stage) | At::Between(stage) => stage,
            At::Fresh | At::Left => panic!("it is in flight"),
        };
        let held = actor.account.vector(actor.held);
        let mut claim = held;
        if let Some(of) = actor.profile().get(stage) {
            let (count, part) = of.parts.as_ref().map_or((0, [0; 5]), |(count, part)| (*count, leaves_of(part)));
            let own: Amounts = std::array::from_fn(|at| of.peak[at] + count * part[at]);
            let surplus: Amounts = std::array::from_fn(|at| actor.held[at].saturating_sub(own[at]));
            claim = most(claim, add(actor.plans[actor.plan].claims[stage], actor.account.vector(surplus)));
        }
        if self.parts(at).next().is_some() {
            claim = most(claim, self.family_need(at, None));
        }
        let actor = self.actor_mut(at);
        claim = std::array::from_fn(|of| claim[of].min(actor.claim[of]));
        actor.claim = most(claim, held);
    }

    /// What a job holds or is about to, what its unfinished parts leave, and the most that one of them needs beside that.
    fn family_need(&self, parent: usize, more: Option<&Plan>) -> Vector {
        let actor = self.actor(parent);
        let mut need = actor.account.vector(actor.held);
        if actor.waits() {
            need = add(need, actor.account.vector(actor.missing()));
        }
        let mut largest = [0; KINDS];
        for (_, part) in self.parts(parent) {
            let plan = &part.plans[part.surety];
            need = add(need, most(plan.leaves, part.leaves));
            largest = most(largest, less(plan.claims[0], plan.leaves));
        }
        if let Some(plan) = more {
            need = add(need, plan.leaves);
            largest = most(largest, less(plan.claims[0], plan.leaves));
        }
        add(need, largest)
    }

    fn cover_parts(&mut self, at: usize) {
        if self.parts(at).next().is_some() {
            let need = self.family_need(at, None);
            let actor = self.actor_mut(at);
            actor.claim = most(actor.claim, need);
        }
    }

    /// A part that was granted something may leave more than its parent has reckoned with.
    fn cover_kin(&mut self, at: usize) {
        if let Some(parent) = self.actor(at).parent() {
            self.cover_parts(parent);
        }
    }

    fn held(&self) -> Vector {
        self.all().fold([0; KINDS], |sum, (_, actor)| add(sum, actor.account.vector(actor.held)))
    }

    fn is_attainable(&self, claim: Vector) -> bool {
        let mut attainable = self.target;
        for (_, actor) in self.all() {
            if matches!(actor.kind, Kind::Standing { retained: true, .. }) && actor.in_flight {
                attainable = less(attainable, actor.leaves);
            }
        }
        within(claim, attainable)
    }

    /// Whether some order finishes everybody in flight, each after its parts. Whoever has ended does not change what is
    /// free by the order in which it did: so sets are looked at, not orders.
    fn is_safe(&self, limit: Vector) -> bool {
        let in_flight: Vec<(usize, &Actor)> = self.all().filter(|(_, actor)| actor.in_flight).collect();
        let held = self.held();
        if !within(held, limit) {
            return false;
        }
        let mut free = less(limit, held);
        let mut parties = Vec::new();
        for &(at, actor) in &in_flight {
            let left = in_flight.iter().filter(|(_, part)| part.parent() == Some(at));
            let has = left.fold(actor.account.vector(actor.held), |sum, (_, part)| add(sum, part.leaves));
            let aside = less(actor.leaves, has);
            if !within(aside, free) {
                return false;
            }
            free = less(free, aside);
            let parts = in_flight.iter().enumerate().filter(|(_, (_, part))| part.parent() == Some(at));
            let parts = parts.fold(0, |mask: usize, (index, _)| mask | 1 << index);
            parties.push((less(actor.claim, most(has, actor.leaves)), less(has, actor.leaves), parts));
        }
        let everybody = (1 << parties.len()) - 1;
        let mut reached = vec![false; everybody + 1];
        reached[0] = true;
        for ended in 0..everybody {
            if !reached[ended] {
                continue;
            }
            let is_in = |index: &usize| ended & (1 << index) != 0;
            let now = (0..parties.len()).filter(is_in).fold(free, |sum, index| add(sum, parties[index].1));
            for (index, (need, _, parts)) in parties.iter().enumerate() {
                if !is_in(&index) && ended & parts == *parts && within(*need, now) {
                    reached[ended | 1 << index] = true;
                }
            }
        }
        reached[everybody]
    }
}
