//! Plays random events on the state machine and on the oracle, and compares what comes of them.

use plimsoll::ledger::state::{AccountId, LedgerState, Outcome, OwnerId, Standing};
use plimsoll::{Budget, Bytes, Class, Demand, JobSpec, Profile, Resource, Slots, Space};

use crate::dice::Dice;
use crate::oracle::{Account, Amounts, At, CORES, Kind, Oracle, Stage};

const CLASSES: [Class; 4] = [
    Class::new("a", Space::HOST),
    Class::new("b", Space::HOST),
    Class::new("d", Space::device(0)),
    Class::new("e", Space::device(1)),
];
const CORE: Slots = Slots::new("core");
const NAMES: [&str; 3] = ["s0", "s1", "s2"];
const ACTORS: usize = 8;

impl Dice {
    fn one_in(&mut self, n: u64) -> bool {
        self.roll(1, n) == 1
    }

    /// What is needed in a stage, at least `low`.
    fn amounts(&mut self, low: Amounts, limits: Amounts) -> Amounts {
        std::array::from_fn(|at| {
            let high = if self.one_in(2) { limits[at] } else { low[at] };
            self.roll(low[at], high)
        })
    }

    fn profile(&mut self, limits: Amounts, stages: usize) -> Vec<Stage> {
        let mut held = [0; 5];
        let mut profile = Vec::new();
        for stage in 0..stages {
            let peak = self.amounts(held, limits);
            let last = stage + 1 == stages;
            let result = self.one_in(3);
            let keep = std::array::from_fn(|at| match (last, at) {
                (false, _) => self.roll(0, peak[at]),
                (true, 0) if result => peak[0].min(1),
                (true, _) => 0,
            });
            held = keep;
            profile.push(Stage { peak, keep, parts: None });
        }
        profile
    }

    /// A profile with room for parts in one of its stages.
    fn parent(&mut self, limits: Amounts) -> Vec<Stage> {
        let small = limits.map(|limit| limit.div_ceil(3));
        let mut profile = self.profile(small, 3);
        let stages = self.roll(1, 2) as usize;
        let mut part = self.profile(small, stages);
        let last = part.last_mut().expect("it has stages");
        last.peak[0] = last.peak[0].max(1);
        last.keep = [1, 0, 0, 0, 0];
        let (count, with_parts) = (self.roll(1, 3), self.roll(0, 1) as usize);
        profile[with_parts].parts = Some((count, part));
        // The results are kept until the stage after has ended.
        profile[with_parts].keep[0] += count;
        profile[with_parts + 1].peak[0] += count;
        profile
    }
}

fn demand(amounts: Amounts) -> Demand {
    let bytes = CLASSES.iter().zip(amounts).fold(Demand::new(), |sum, (class, bytes)| sum.bytes(*class, Bytes(bytes)));
    bytes.slots(CORE, amounts[CORES])
}

fn profile(stages: &[Stage]) -> Profile {
    stages.iter().zip(NAMES).fold(Profile::new(), |sum, (stage, name)| {
        let sum = sum.stage(name, demand(stage.peak), demand(stage.keep));
        match &stage.parts {
            Some((count, part)) => sum.parts(*count, &profile(part)),
            None => sum,
        }
    })
}

/// A job or reservation, as the handles would have it: its name, and its reservations under whatever name they have.
#[derive(Clone, Debug)]
struct Live {
    id: OwnerId,
    pieces: Vec<(OwnerId, usize, u64)>,
}

/// What happened, so that a play that has become dull is noticed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Seen {
    granted: u64,
    refused: u64,
    never_fit: u64,
    parts_ended: u64,
    by_alternative: u64,
    changed_in_flight: u64,
    from_reserve: u64,
    of_child: u64,
    grown: u64,
    moved: u64,
    not_moved: u64,
    resized: u64,
}

impl Seen {
    fn all(&mut self) -> [(&'static str, &mut u64, u64); 12] {
        [
            ("granted", &mut self.granted, 400),
            ("refused", &mut self.refused, 1),
            ("never fit", &mut self.never_fit, 20),
            ("parts ended", &mut self.parts_ended, 20),
            ("by an alternative", &mut self.by_alternative, 10),
            ("changed in flight", &mut self.changed_in_flight, 2),
            ("from the reserve", &mut self.from_reserve, 10),
            ("of the child", &mut self.of_child, 50),
            ("grown", &mut self.grown, 10),
            ("moved", &mut self.moved, 10),
            ("not moved", &mut self.not_moved, 2),
            ("resized", &mut self.resized, 10),
        ]
    }

    pub(crate) fn add(&mut self, other: &Seen) {
        let mut other = *other;
        for ((_, sum, _), (_, more, _)) in self.all().into_iter().zip(other.all()) {
            *sum += *more;
        }
    }

    /// A trace has at least so many of each, on average.
    pub(crate) fn check_floors(mut self, traces: u64) {
        for (name, seen, floor) in self.all() {
            assert!(*seen >= floor * traces, "{name}: {seen} in {traces} traces, of {floor} in each at least");
        }
    }
}

pub(crate) struct Play {
    dice: Dice,
    state: LedgerState,
    child: AccountId,
    oracle: Oracle,
    live: Vec<Option<Live>>,
    limits: Amounts,
    host: u64,
    out: Vec<Outcome>,
    pub(crate) seen: Seen,
    log: Vec<String>,
    before: String,
}

impl Play {
    pub(crate) fn new(seed: u64) -> Play {
        let mut dice = Dice(seed);
        let [host, reserve, child] = [dice.roll(6, 14), dice.roll(1, 3), dice.roll(3, 8)];
        let [one, other, cores] = [dice.roll(1, 4), dice.roll(1, 3), dice.roll(1, 3)];
        let bypass = dice.roll(0, 3) as u32;
        let budget = Budget::new()
            .space(Space::HOST, Bytes(host + reserve))
            .urgent_reserve(Space::HOST, Bytes(reserve))
            .space(Space::device(0), Bytes(one))
            .space(Space::device(1), Bytes(other))
            .slots(CORE, cores)
            .bypass(bypass);
        let mut state = LedgerState::new(&budget);
        let limited = Budget::new().space(Space::HOST, Bytes(child));
        let child_account = state.open_child(AccountId::ROOT, "child".into(), &limited);
        let oracle = Oracle::new([host, reserve, child, one, other, cores], bypass, ACTORS);
        Play {
            dice,
            state,
            child: child_account,
            oracle,
            live: vec![None; ACTORS],
            limits: [host / 2, host / 4, one, other, cores],
            host: host + reserve,
            out: Vec::new(),
            seen: Seen::default(),
            log: vec![format!("seed {seed}")],
            before: String::new(),
        }
    }

    /// Lets something happen, and compares.
    pub(crate) fn step(&mut self) {
        let at = self.dice.roll(0, ACTORS as u64 - 1) as usize;
        self.before = self.oracle.describe();
        if self.dice.one_in(60) {
            self.resize();
        } else if self.live[at].is_none() {
            self.arrive(at);
        } else {
            let actor = self.oracle.actor(at).clone();
            match (&actor.kind, actor.at) {
                (Kind::Standing { max, .. }, at_level) => self.standing(at, *max, at_level),
                (Kind::Job { .. }, At::Left) => self.drop_pieces(at),
                (Kind::Job { .. }, _) if self.dice.one_in(12) && self.oracle.parts(at).next().is_none() => {
                    self.fail(at)
                }
                (Kind::Job { .. }, At::Fresh) => self.ask_again(at),
                (Kind::Job { .. }, At::Waiting(0)) if self.dice.one_in(6) => self.withdraw(at),
                (Kind::Job { .. }, At::Between(stage)) => self.enter(at, stage),
                (Kind::Job { .. }, At::Running(_)) if self.dice.one_in(5) => self.move_or_release(at),
                (Kind::Job { .. }, At::Running(_)) if self.oracle.parts(at).next().is_none() => self.end_stage(at),
                _ => {}
            }
        }
        self.compare();
    }

    fn say(&mut self, text: String) {
        self.log.push(text);
    }

    fn id(&self, at: usize) -> OwnerId {
        self.live[at].as_ref().expect("it lives").id
    }

    fn arrive(&mut self, at: usize) {
        let (home, account) =
            if self.dice.one_in(3) { (Account::Child, self.child) } else { (Account::Root, AccountId::ROOT) };
        let priority = self.dice.roll(0, 2) as i32 - 1;
        if self.dice.one_in(6) {
            let bytes = self.dice.roll(1, 3);
            let max = self.dice.one_in(2).then(|| bytes + self.dice.roll(1, 3));
            let retained = self.dice.one_in(6);
            self.say(format!("{at} reserves {bytes}, at most {max:?}, {home:?}, stays: {retained}"));
            let standing = Standing {
                name: format!("{at}").into(),
                class: CLASSES[0],
                bytes: Bytes(bytes),
                max: max.map(Bytes),
                priority,
                retained,
            };
            let fits = self.oracle.arrive(at, Kind::Standing { max, retained }, home, priority, bytes);
            match self.state.open(0, account, standing, &mut self.out) {
                Ok(id) if fits => self.live[at] = Some(Live { id, pieces: Vec::new() }),
                Err(_) if !fits => self.seen.never_fit += 1,
                other => self.panic(&format!("{at}: it fits: {fits}, and {other:?}")),
            }
            return;
        }
        let parent = self.parent_for_a_part();
        let mut profiles = match parent {
            Some((_, ref part)) if !self.dice.one_in(8) => vec![part.clone()],
            None if self.dice.one_in(2) => vec![self.dice.parent(self.limits)],
            _ => {
                let stages = self.dice.roll(1, 3) as usize;
                vec![self.dice.profile(self.limits, stages)]
            }
        };
        while profiles.len() < 3 && self.dice.one_in(3) {
            let mut other = self.dice.profile(self.limits, profiles[0].len());
            if parent.is_some() {
                // Whoever goes by another plan leaves a result as well; sometimes more than was reckoned with.
                let more = u64::from(self.dice.one_in(4));
                let last = other.last_mut().expect("it has stages");
                (last.peak[0], last.keep[0]) = (last.peak[0].max(1 + more), 1 + more);
            } else if self.dice.one_in(2) {
                // The same in little or on the other device, so that it can be changed to in the middle.
                other.clone_from(&profiles[0]);
                for stage in &mut other {
                    for amounts in [&mut stage.peak, &mut stage.keep] {
                        amounts.swap(2, 3);
                    }
                    stage.peak[1] = stage.keep[1].max(stage.peak[1] / 2);
                }
                let mut brought = [0; 5];
                for stage in &mut other {
                    stage.peak = std::array::from_fn(|of| stage.peak[of].max(brought[of]));
                    brought = stage.keep;
                }
            }
            profiles.push(other);
        }
        let urgent = parent.is_none() && self.dice.one_in(4);
        let mut spec = JobSpec::new(&format!("{at}"), profile(&profiles[0])).priority(priority);
        spec = profiles[1..].iter().fold(spec, |spec, other| spec.or(profile(other)));
        spec.urgent = urgent;
        let parent = parent.map(|entry| entry.0);
        if let Some(parent) = parent {
            spec = spec.part_of_owner(self.state.as_parent(self.id(parent)));
        }
        self.say(format!("{at} arrives, {home:?}, urgent: {urgent}, part of {parent:?}: {profiles:?}"));
        match self.state.submit(account, spec) {
            Ok(id) => {
                self.live[at] = Some(Live { id, pieces: Vec::new() });
                if !self.oracle.arrive(at, Kind::Job { profiles, urgent, parent }, home, priority, 0) {
                    self.panic(&format!("{at} is taken on, but does not fit"));
                }
                self.state.enter(0, id, 0, &mut self.out).expect("it was just taken on");
            }
            Err(error) => {
                if self.oracle.arrive(at, Kind::Job { profiles, urgent, parent }, home, priority, 0) {
                    self.panic(&format!("{at} is refused: {error}"));
                }
                self.seen.never_fit += 1;
            }
        }
    }

    /// A job that runs and has parts to be submitted, and their shape.
    fn parent_for_a_part(&mut self) -> Option<(usize, Vec<Stage>)> {
        let first = self.dice.roll(0, ACTORS as u64 - 1) as usize;
        (0..ACTORS).map(|offset| (first + offset) % ACTORS).find_map(|at| {
            let actor = self.oracle.actors[at].as_ref()?;
            let (At::Running(stage), Kind::Job { parent: None, .. }) = (actor.at, &actor.kind) else { return None };
            let (_, part) = actor.profile()[stage].parts.as_ref()?;
            Some((at, part.clone()))
        })
    }

    fn standing(&mut self, at: usize, max: Option<u64>, level: At) {
        let (id, held) = (self.id(at), self.oracle.actor(at).held[0]);
        match level {
            At::Waiting(0) if self.dice.one_in(3) => {
                self.say(format!("{at} is not waited for any more"));
                self.oracle.drop_all(at);
                self.live[at] = None;
                self.state.withdraw(id, &mut self.out);
            }
            At::Running(_) => match max.map_or(0, |max| max.saturating_sub(held)) {
                more if more > 0 && self.dice.one_in(2) => {
                    self.say(format!("{at} asks for one more"));
                    self.seen.grown += 1;
                    self.oracle.grow(at, 1);
                    self.state.grow(0, id, CLASSES[0], Bytes(1), &mut self.out).expect("within its maximum");
                }
                _ if held > 1 && self.dice.one_in(2) => {
                    self.say(format!("{at} returns one"));
                    self.oracle.release(at, [1, 0, 0, 0, 0]);
                    self.state.release(id, CLASSES[0], Bytes(1), &mut self.out);
                }
                _ => {
                    self.say(format!("{at} is dropped"));
                    self.oracle.drop_all(at);
                    self.live[at] = None;
                    self.state.drop_piece(id, CLASSES[0], Bytes(held), &mut self.out);
                }
            },
            _ => {}
        }
    }

    fn ask_again(&mut self, at: usize) {
        self.say(format!("{at} asks again"));
        let (id, fits) = (self.id(at), self.oracle.ask_again(at));
        let asked = self.state.enter(0, id, 0, &mut self.out);
        assert_eq!(asked.is_ok(), fits, "{:#?}", self.log);
        if !fits {
            self.live[at] = None;
            self.state.end(id, &mut self.out);
        }
    }

    fn withdraw(&mut self, at: usize) {
        self.say(format!("{at} takes its request back"));
        self.oracle.withdraw(at);
        self.state.withdraw(self.id(at), &mut self.out);
    }

    fn enter(&mut self, at: usize, stage: usize) {
        self.say(format!("{at} asks for stage {stage}"));
        let choice = self.oracle.actor(at).choice();
        self.oracle.ask(at, stage);
        self.state.enter(0, self.id(at), stage, &mut self.out).expect("it is in flight");
        let now = self.oracle.actors[at].as_ref().map(|actor| actor.choice());
        self.seen.changed_in_flight += u64::from(now != Some(choice));
    }

    fn holding(&self, at: usize) -> Amounts {
        let mut amounts = [0; 5];
        if let Some(view) = self.live[at].as_ref().and_then(|live| self.state.owner(live.id)) {
            for (resource, amount) in view.holdings {
                let class = CLASSES.iter().position(|class| resource == Resource::Class(*class));
                amounts[class.unwrap_or(CORES)] += amount;
            }
        }
        amounts
    }

    /// What is in the grant of the running stage.
    fn left(&self, at: usize) -> Amounts {
        let pieces = &self.live[at].as_ref().expect("it lives").pieces;
        let mut left = self.holding(at);
        pieces.iter().for_each(|(_, class, bytes)| left[*class] -= bytes);
        left[CORES] = 0;
        left
    }

    fn move_or_release(&mut self, at: usize) {
        let (id, left) = (self.id(at), self.left(at));
        if left[0] == 0 {
            return;
        }
        if self.dice.one_in(2) {
            self.say(format!("{at} returns {} early", left[0]));
            self.oracle.release(at, [left[0], 0, 0, 0, 0]);
            self.state.release(id, CLASSES[0], Bytes(left[0]), &mut self.out);
            return;
        }
        let to = self.dice.roll(1, 2) as usize;
        self.say(format!("{at} moves one of a to {}", CLASSES[to]));
        let moved = self.oracle.convert(at, 0, to);
        self.state.attach(id, CLASSES[0]);
        let result = self.state.convert(id, CLASSES[0], CLASSES[to], Bytes(1), &mut self.out);
        self.state.detach(id, CLASSES[if result.is_ok() { to } else { 0 }]);
        if result.is_ok() != moved {
            self.panic(&format!("{at} can move: {moved}, and {result:?}"));
        }
        self.seen.moved += u64::from(moved);
        self.seen.not_moved += u64::from(!moved);
    }

    /// The reservations go back into the grant, what is kept is taken out again, and the rest goes with the grant.
    fn end_stage(&mut self, at: usize) {
        let (id, actor) = (self.id(at), self.oracle.actor(at).clone());
        let At::Running(stage) = actor.at else { panic!("it runs") };
        self.say(format!("{at} ends stage {stage}"));
        for (name, class, _) in std::mem::take(&mut self.live[at].as_mut().expect("it lives").pieces) {
            if name != id {
                self.state.attach(id, CLASSES[class]);
                self.state.drop_piece(name, CLASSES[class], Bytes::ZERO, &mut self.out);
            }
            self.state.detach(id, CLASSES[class]);
        }
        let (held, keep) = (self.holding(at), actor.profile()[stage].keep);
        let (mut rest, mut kept) = (Vec::new(), Vec::new());
        for class in 0..CLASSES.len() {
            let keeps = keep[class].min(held[class]);
            rest.push((CLASSES[class], Bytes(held[class] - keeps)));
            if keeps > 0 {
                self.state.attach(id, CLASSES[class]);
                kept.push((id, class, keeps));
            }
        }
        self.state.end_stage(id, &rest, &mut self.out);
        self.oracle.end_stage(at);
        if stage + 1 < actor.profile().len() {
            self.live[at].as_mut().expect("it lives").pieces = kept;
            return;
        }
        self.oracle.end(at);
        self.state.end(id, &mut self.out);
        match actor.parent() {
            Some(parent) => {
                self.seen.parts_ended += 1;
                self.live[parent].as_mut().expect("parents outlive their parts").pieces.extend(kept);
                self.live[at] = None;
            }
            None => self.live[at] = (!kept.is_empty()).then_some(Live { id, pieces: kept }),
        }
    }

    /// The results of a job are dropped, one by one.
    fn drop_pieces(&mut self, at: usize) {
        self.say(format!("{at}'s results are dropped"));
        let live = self.live[at].take().expect("it lives");
        for (name, class, bytes) in live.pieces {
            let mut back = [0; 5];
            back[class] = bytes;
            self.oracle.release(at, back);
            self.state.drop_piece(name, CLASSES[class], Bytes(bytes), &mut self.out);
        }
        self.oracle.drop_all(at);
    }

    /// A job gives up wherever it stands: its request, what it carries, the stage, itself.
    fn fail(&mut self, at: usize) {
        self.say(format!("{at} fails"));
        let (id, actor) = (self.id(at), self.oracle.actor(at).clone());
        if let At::Waiting(stage) = actor.at {
            self.state.withdraw(id, &mut self.out);
            self.oracle.give_up_request(at, stage);
        }
        for (name, class, bytes) in std::mem::take(&mut self.live[at].as_mut().expect("it lives").pieces) {
            let mut back = [0; 5];
            back[class] = bytes;
            self.oracle.release(at, back);
            self.state.drop_piece(name, CLASSES[class], Bytes(bytes), &mut self.out);
        }
        if let At::Running(_) = actor.at {
            let left = self.left(at);
            let rest: Vec<(Class, Bytes)> =
                CLASSES.iter().zip(left).map(|(class, left)| (*class, Bytes(left))).collect();
            self.state.end_stage(id, &rest, &mut self.out);
            self.oracle.end_stage_keeping_nothing(at);
        }
        self.state.end(id, &mut self.out);
        self.oracle.end(at);
        self.live[at] = None;
    }

    fn resize(&mut self) {
        self.seen.resized += 1;
        if self.dice.one_in(2) {
            let limit = self.dice.roll(self.host / 2, self.host + 2);
            self.say(format!("host memory is set to {limit}"));
            self.oracle.resize_host(limit);
            self.state.resize(AccountId::ROOT, Space::HOST, Bytes(limit), &mut self.out).expect("it has a limit");
        } else {
            let limit = self.dice.roll(1, 8);
            self.say(format!("the child's host memory is set to {limit}"));
            self.oracle.resize_child(limit);
            self.state.resize(self.child, Space::HOST, Bytes(limit), &mut self.out).expect("it has a limit");
        }
    }

    /// What came of it: who was granted, in which order, and refused; what everybody holds, and by which profile.
    fn compare(&mut self) {
        let (mut granted, mut refused) = (Vec::new(), Vec::new());
        for outcome in std::mem::take(&mut self.out) {
            let (Outcome::Granted(id, _) | Outcome::Refused(id, _)) = outcome;
            let at = self.live.iter().position(|live| live.as_ref().is_some_and(|live| live.id == id));
            let Some(at) = at else { self.panic("an answer for nobody") };
            if matches!(outcome, Outcome::Granted(..)) {
                granted.push(at);
            } else {
                refused.push(at);
                self.live[at] = None;
                if self.state.owner(id).is_some() {
                    self.state.end(id, &mut Vec::new());
                }
            }
        }
        let mut expected = std::mem::take(&mut self.oracle.refused);
        refused.sort();
        expected.sort();
        let in_order = std::mem::take(&mut self.oracle.granted);
        if granted != in_order || refused != expected {
            self.panic(&format!("granted {granted:?}, refused {refused:?}; expected {in_order:?}, {expected:?}"));
        }
        self.seen.granted += granted.len() as u64;
        self.seen.refused += refused.len() as u64;
        for at in granted {
            let actor = self.oracle.actor(at);
            self.seen.by_alternative += u64::from(actor.choice() > 0);
            let account = self.state.owner(self.id(at)).expect("it was granted something").account;
            self.seen.of_child += u64::from(account == self.child);
            self.seen.from_reserve += u64::from(account != self.child && account != AccountId::ROOT);
        }
        for at in 0..ACTORS {
            let Some(actor) = &self.oracle.actors[at] else {
                assert!(self.live[at].is_none(), "{at} is gone; {:#?}", self.log);
                continue;
            };
            let choice = self.live[at].as_ref().map(|live| self.state.choice(live.id));
            if self.holding(at) != actor.held || choice != Some(actor.choice()) {
                let (held, by) = (actor.held, actor.choice());
                self.panic(&format!("{at} holds {:?} by {choice:?}, expected {held:?} by {by}", self.holding(at)));
            }
        }
    }

    fn panic(&self, what: &str) -> ! {
        let from = self.log.len().saturating_sub(40);
        panic!(
            "{what}\n{:#?}\n{}after {} events of {}",
            &self.log[from..],
            self.oracle.describe(),
            self.log.len() - 1,
            self.log[0]
        );
    }
}
