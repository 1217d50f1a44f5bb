//! What a search found.

use std::collections::BTreeMap;
use std::fmt;

use plimsoll::{ProfileError, Resource};
use thiserror::Error;

use crate::event::Event;
use crate::rules::Rule;
use crate::trace::Trace;

/// A world in which every rule holds in every reachable state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// How many states are reachable. States that differ only in the names of jobs of one kind count once.
    pub states: usize,
    /// How many steps lead from one of them to another.
    pub transitions: usize,
    /// How many events lead to the farthest state.
    pub depth: usize,
    /// In how many states nothing more can happen.
    pub ends: usize,
    /// The most later admissions that passed a waiting request anywhere.
    pub passed_most: u32,
    /// The most requests that waited at once.
    pub waiting_most: usize,
    /// How often each kind of event happened.
    pub events: BTreeMap<&'static str, usize>,
}

impl Report {
    pub(crate) fn count(&mut self, event: Event) {
        let name = match event {
            Event::Arrive(_) => "arrive",
            Event::EndStage(_) => "end stage",
            Event::ReleaseEarly(_) => "release early",
            Event::TryGrow(_) => "try to grow",
            Event::Grow(_) => "grow",
            Event::Cancel(_) => "cancel",
            Event::Withdraw(_) => "withdraw",
            Event::Ask(_) => "ask",
            Event::Fail(_) => "fail",
            Event::Retry(_) => "retry",
            Event::DropResults(_) => "drop results",
            Event::DropAllResults(_) => "drop all results",
            Event::Return(_) => "return",
            Event::RetryStage(_) => "retry stage",
            Event::Restart(_) => "restart",
            Event::Freed(_) => "freed",
            Event::TakeLoad(_) => "take load",
            Event::ReturnFromLoad(_) => "return from load",
            Event::Loaded(_) => "loaded",
            Event::GiveUpLoad(_) => "give up load",
            Event::FailLoad(_) => "fail load",
            Event::Gone(_) => "gone",
            Event::Lose(_) => "lose",
            Event::Resize(_) => "resize",
            Event::Close => "close",
        };
        *self.events.entry(name).or_default() += 1;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { states, transitions, depth, ends, passed_most, waiting_most, .. } = self;
        write!(
            f,
            "{states} states, {transitions} steps, {depth} deep, {ends} ends; at most {waiting_most} waiting, \
             {passed_most} times passed"
        )
    }
}

/// A reachable state in which a rule does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// Why it does not hold.
    pub why: String,
    /// A shortest way there. Its last step is the one that broke the rule.
    pub trace: Trace,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = self.trace.steps().len();
        write!(f, "{}: {}, after {steps} steps\n{}", self.rule, self.why, self.trace)
    }
}

/// A world was not found to be in order.
#[derive(Clone, Debug, Error)]
#[non_exhaustive]
pub enum CheckError {
    /// A rule does not hold in a reachable state.
    #[error("{0}")]
    Violation(Box<Violation>),
    /// There are more states than the search was to visit.
    #[error(
        "more than {states} states are reachable; take fewer jobs, stages or kinds of events, or raise World::states_max"
    )]
    TooLarge {
        /// The number of states at which the search gave up.
        states: usize,
    },
    /// A kind's profile contradicts itself.
    #[error("kind {kind:?}: {source}")]
    Profile {
        /// The kind.
        kind: String,
        /// The contradiction.
        source: ProfileError,
    },
    /// What a kind really holds, or another profile of it, has other stages than its profile.
    #[error(
        "kind {0:?}: other profiles, and what it really holds, must be given for each stage of its profile, and for no other"
    )]
    OtherStages(String),
    /// The levels of a kind of reservations do not rise.
    #[error("kind {0:?}: a reservation grows from level to level; give each grows_to more bytes than the one before")]
    Levels(String),
    /// A kind is charged to a child that the world does not have.
    #[error("there is no child ledger {0:?}; add it with World::child")]
    NoSuchChild(String),
    /// The jobs of a kind are to be parts of others that the world does not have.
    #[error("there are no jobs {0:?} that others could be parts of; add them with World::jobs first")]
    NoSuchParent(String),
    /// The jobs of a kind need a residency that the world does not have.
    #[error("there is no residency {0:?}; add it with World::residency")]
    NoSuchResidency(String),
    /// Parts need a residency that the jobs that they are parts of do not need.
    #[error("kind {0:?}: what a part needs its parent must need as well")]
    NotParentsNeed(String),
    /// A space that is to be lost is not a device's, or the budget does not name it.
    #[error("{0} cannot be lost: it must be the memory of a device that the budget names")]
    NotADevice(plimsoll::Space),
    /// A kind asks for something that the budget does not name.
    #[error("the budget names no limit for {0}; give it one in the Budget")]
    Unbudgeted(Resource),
}

impl CheckError {
    /// The violation, if that is what was found.
    pub fn violation(&self) -> Option<&Violation> {
        match self {
            CheckError::Violation(violation) => Some(violation),
            _ => None,
        }
    }
}
