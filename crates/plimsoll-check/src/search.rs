//! The search: breadth first, so that the first violation found has a shortest trace.

use std::collections::{HashSet, VecDeque};
use std::panic::{self, AssertUnwindSafe};

use crate::event::{At, Event};
use crate::family;
use crate::key::key;
use crate::rules::{self, Broken, Rule};
use crate::setup::Setup;
use crate::shared::{self, Memory};
use crate::state::{Happened, State};
use crate::trace::Trace;
use crate::world::{Kind, World};
use crate::{CheckError, Report, Violation};

/// No event leads to the first state.
const ROOT: u32 = u32::MAX;

pub(crate) fn explore(world: &World) -> Result<Report, CheckError> {
    let setup = Setup::new(world)?;
    let mut seen = HashSet::new();
    // How each state was reached first: from which one, by which event.
    let mut reached: Vec<(u32, Event)> = Vec::new();
    let mut report = Report::default();
    let first = State::new(&setup);
    visit(&setup, &first, &mut report).map_err(|broken| violation(&setup, &[], broken))?;
    seen.insert(key(&setup, &first));
    let mut frontier = VecDeque::from([(ROOT, 0, first)]);
    while let Some((node, depth, state)) = frontier.pop_front() {
        report.depth = report.depth.max(depth);
        for event in possible(&setup, &state) {
            report.transitions += 1;
            report.count(event);
            let next = step(&setup, &state, event);
            let path = || path(&reached, node, event);
            let next = next.map_err(|broken| violation(&setup, &path(), broken))?;
            if !seen.insert(key(&setup, &next)) {
                continue;
            }
            visit(&setup, &next, &mut report).map_err(|broken| violation(&setup, &path(), broken))?;
            if seen.len() > world.states_max {
                return Err(CheckError::TooLarge { states: world.states_max });
            }
            reached.push((node, event));
            frontier.push_back((reached.len() as u32 - 1, depth + 1, next));
        }
    }
    report.states = seen.len();
    Ok(report)
}

/// Checks a state that is new.
pub(crate) fn visit(setup: &Setup<'_>, state: &State, report: &mut Report) -> Result<(), Broken> {
    let possible = possible(setup, state);
    caught(|| rules::check(setup, state, &possible))?;
    report.ends += usize::from(possible.is_empty());
    let waiting = state.actors.iter().filter(|known| matches!(known.at, At::Waiting(_)));
    report.waiting_most = report.waiting_most.max(waiting.clone().count());
    report.passed_most = report.passed_most.max(waiting.map(|known| known.passed).max().unwrap_or(0));
    Ok(())
}

pub(crate) fn step(setup: &Setup<'_>, state: &State, event: Event) -> Result<State, Broken> {
    let mut next = state.clone();
    caught(|| next.apply(setup, event))?;
    Ok(next)
}

/// A panic of the state machine is a violation like any other: it must not take the trace with it.
pub(crate) fn caught<T>(f: impl FnOnce() -> Result<T, Broken>) -> Result<T, Broken> {
    panic::catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(Broken::new(Rule::NoPanic, format!("panicked: {text}")))
    })
}

/// The events on the way to a state, and one more.
fn path(reached: &[(u32, Event)], mut node: u32, last: Event) -> Vec<Event> {
    let mut path = vec![last];
    while node != ROOT {
        let (before, event) = reached[node as usize];
        path.push(event);
        node = before;
    }
    path.reverse();
    path
}

/// Goes the way once more, and writes down what happens.
pub(crate) fn violation(setup: &Setup<'_>, path: &[Event], broken: Broken) -> CheckError {
    let mut state = State::new(setup);
    let mut trace = Trace::default();
    for &event in path {
        let before = state.clone();
        let happened: Vec<Happened> = caught(|| state.apply(setup, event)).unwrap_or_default();
        trace.push(setup, &before, event, &happened, &state);
    }
    CheckError::Violation(Box::new(Violation { rule: broken.rule, why: broken.why, trace }))
}

/// Everything that can happen in a state.
pub(crate) fn possible(setup: &Setup<'_>, state: &State) -> Vec<Event> {
    let mut events = Vec::new();
    for (actor, known) in state.actors.iter().enumerate() {
        // Those who have not arrived, of one kind, are alike: the first one goes first.
        let mut before = setup.siblings(actor).take_while(|other| *other < actor);
        let has_parent = setup.parent(actor).is_none_or(|parent| family::has_room_for_parts(state, parent));
        if known.at == At::Absent && has_parent && !before.any(|other| state.actors[other].at == At::Absent) {
            events.push(Event::Arrive(actor));
        }
        match setup.kind(actor) {
            Kind::Job(_) => of_job(setup, state, actor, &mut events),
            Kind::Reservation(kind) => match known.at {
                At::Waiting(_) if kind.cancels => events.push(Event::Cancel(actor)),
                At::Running(level) => {
                    events.push(Event::Return(actor));
                    if level + 1 < kind.levels.len() && !setup.is_lost(state, kind.class) {
                        events.push(Event::Grow(actor));
                    } else if level + 1 == kind.levels.len() && kind.tries.is_some() && !known.tried {
                        events.push(Event::TryGrow(actor));
                    }
                }
                At::Freeing => events.push(Event::Freed(actor)),
                _ => {}
            },
        }
    }
    for (residency, shared) in state.shared.iter().enumerate() {
        match shared.memory {
            Memory::Filling => {
                events.push(Event::Loaded(residency));
                if setup.world.residencies[residency].returns.0 > 0 && !shared.returned {
                    events.push(Event::ReturnFromLoad(residency));
                }
                if shared.gives_up_left > 0 {
                    events.push(Event::GiveUpLoad(residency));
                }
                if shared.fails_left > 0 {
                    events.push(Event::FailLoad(residency));
                }
            }
            Memory::Going => events.push(Event::Gone(residency)),
            Memory::Nothing | Memory::Value => {}
        }
    }
    for (number, space) in setup.world.losses.iter().enumerate() {
        if space.device_number().is_some_and(|device| !state.lost.contains(&device)) {
            events.push(Event::Lose(number));
        }
    }
    if state.resizes_done < setup.resizes.len() {
        events.push(Event::Resize(state.resizes_done));
    }
    if setup.world.closes && !state.closed {
        events.push(Event::Close);
    }
    events
}

fn of_job(setup: &Setup<'_>, state: &State, actor: usize, events: &mut Vec<Event>) {
    let (job, known) = (setup.job(actor), &state.actors[actor]);
    let has_parts = family::has_unfinished_parts(setup, state, actor);
    let is_between = matches!(known.at, At::Waiting(stage) | At::Between(stage) if stage > 0);
    let may_restart = known.restarts_left > 0 && is_between && (job.keeps || !has_parts);
    let mut add = |possible: bool, event: Event| {
        if possible {
            events.push(event);
        }
    };
    match known.at {
        At::Waiting(_) => {
            add(job.cancels, Event::Cancel(actor));
            add(shared::is_called(setup, state, actor), Event::TakeLoad(actor));
            add(may_restart, Event::Restart(actor));
            add(known.withdraws_left > 0, Event::Withdraw(actor));
            add(job.releases_early && !known.pieces.is_empty(), Event::ReleaseEarly(actor));
        }
        At::Between(_) => {
            add(!known.told && !family::is_held_up(setup, state, actor), Event::Ask(actor));
            add(may_restart, Event::Restart(actor));
            // Who cannot go on gives up.
            add(job.cancels || known.told, Event::Cancel(actor));
        }
        At::Running(stage) => {
            add(!family::waits_for_parts(setup, state, actor), Event::EndStage(actor));
            let untouched = !known.released && known.extra.is_none();
            let stage = &setup.profile(state, actor).stages()[stage];
            let has_surplus = stage
                .peak
                .iter()
                .any(|(resource, peak)| rules::class_of(resource).is_some() && peak > stage.keep.of(resource));
            if !known.abandoned {
                add(job.releases_early && has_surplus && !known.released, Event::ReleaseEarly(actor));
                add(job.grows.is_some() && !known.tried, Event::TryGrow(actor));
                add(known.stage_retries_left > 0 && known.extra.is_none(), Event::RetryStage(actor));
                add(job.fails, Event::Fail(actor));
                add(job.cancels, Event::Cancel(actor));
                // Whoever has given parts of it to the ledger has seen that it was granted.
                let unused =
                    untouched && !family::has_unfinished_parts(setup, state, actor) && known.inherited.is_empty();
                add(known.withdraws_left > 0 && unused, Event::Withdraw(actor));
            }
        }
        At::Failed => {
            let has_parent = setup.parent(actor).is_none_or(|parent| family::has_room_for_parts(state, parent));
            add(has_parent, Event::Retry(actor));
        }
        At::Results if !job.holds_together => add(true, Event::DropResults(actor)),
        At::Results => {
            let all_ended = setup.siblings(actor).all(|other| matches!(state.actors[other].at, At::Results | At::Gone));
            let first = setup.siblings(actor).find(|other| state.actors[*other].at == At::Results);
            add(all_ended && first == Some(actor), Event::DropAllResults(actor));
        }
        At::Freeing => add(true, Event::Freed(actor)),
        At::Absent | At::Gone | At::Ending => {}
    }
}
