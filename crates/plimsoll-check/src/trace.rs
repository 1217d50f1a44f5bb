//! A way to a state, to be read: as text, and as a diagram.

use std::fmt::{self, Write as _};

use plimsoll::Bytes;
use plimsoll::ledger::state::Kind as ComponentKind;

use crate::event::{At, Event};
use crate::setup::Setup;
use crate::shared::Residence;
use crate::state::{Happened, State};
use crate::view::View;
use crate::world::Kind;

/// The events on the way from the beginning to a state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    steps: Vec<Step>,
}

/// One event of a [`Trace`], and what it brought about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The event.
    pub event: Event,
    /// To whom it happened, if it was somebody: the name of the job or reservation.
    pub who: Option<String>,
    /// What happened: `ends synthesise, asks for prove`.
    pub what: String,
    /// What the ledger then granted or refused: to whom, and what.
    pub answers: Vec<(String, String)>,
    /// What is held afterwards, place by place: `host memory 3 B of 4 B`.
    pub held: Vec<String>,
}

impl Trace {
    /// The events in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The trace as a sequence diagram in mermaid's notation, between the ledger and those who use it.
    pub fn mermaid(&self) -> String {
        let mut text = String::from("sequenceDiagram\n    participant ledger\n");
        let mut names: Vec<&str> = Vec::new();
        for step in &self.steps {
            for name in step.who.iter().chain(step.answers.iter().map(|answer| &answer.0)) {
                if !names.contains(&name.as_str()) {
                    names.push(name);
                }
            }
        }
        let alias = |name: &str| names.iter().position(|other| *other == name).map(|at| format!("a{at}"));
        for (at, name) in names.iter().enumerate() {
            let _ = writeln!(text, "    participant a{at} as {name}");
        }
        for step in &self.steps {
            let _ = match step.who.as_deref().and_then(alias) {
                Some(who) => writeln!(text, "    {who}->>ledger: {}", step.what),
                None => writeln!(text, "    note over ledger: {}", step.what),
            };
            for (who, what) in &step.answers {
                let _ = writeln!(text, "    ledger-->>{}: {what}", alias(who).unwrap_or_default());
            }
            let _ = writeln!(text, "    note over ledger: {}", step.held.join("<br/>"));
        }
        text
    }

    pub(crate) fn push(
        &mut self,
        setup: &Setup<'_>,
        before: &State,
        event: Event,
        happened: &[Happened],
        after: &State,
    ) {
        let answer = |happened: &Happened| match happened {
            Happened::Granted(actor, stage) => {
                (setup.names[*actor].to_string(), format!("granted {}", setup.stage_name(*actor, *stage)))
            }
            Happened::Admitted(actor) => {
                (setup.names[*actor].to_string(), "admitted to the load of what it needs".to_owned())
            }
            Happened::Refused(actor, why) => (setup.names[*actor].to_string(), format!("refused, {why}")),
        };
        self.steps.push(Step {
            event,
            who: match event {
                Event::DropAllResults(_) => None,
                event => {
                    let actor = event.actor().map(|actor| setup.names[actor].to_string());
                    actor.or_else(|| event.residency().map(|at| setup.world.residencies[at].name.clone()))
                }
            },
            what: what(setup, before, event),
            answers: happened.iter().map(answer).collect(),
            held: held(setup, after),
        });
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            write!(f, "{:>4}. ", number + 1)?;
            if let Some(who) = &step.who {
                write!(f, "{who} ")?;
            }
            writeln!(f, "{}", step.what)?;
            for (who, what) in &step.answers {
                writeln!(f, "        -> {who} is {what}")?;
            }
            writeln!(f, "        {}", step.held.join(", "))?;
        }
        Ok(())
    }
}

fn what(setup: &Setup<'_>, before: &State, event: Event) -> String {
    let stage = |actor: usize| match before.actors[actor].at {
        At::Waiting(stage) | At::Running(stage) | At::Between(stage) => stage,
        _ => 0,
    };
    let name = |actor: usize, stage: usize| setup.stage_name(actor, stage);
    match event {
        Event::Arrive(actor) => match setup.parent(actor) {
            Some(parent) => format!("is submitted as a part of {}, asks for {}", setup.names[parent], name(actor, 0)),
            None => format!("arrives, asks for {}", name(actor, 0)),
        },
        Event::Retry(actor) => format!("is submitted again, asks for {}", name(actor, 0)),
        Event::EndStage(actor) => {
            let (ended, next) = (stage(actor), stage(actor) + 1);
            let last = next == setup.stages(actor) || before.actors[actor].abandoned;
            match setup.kind(actor) {
                _ if last => format!("ends {} and with it the job", name(actor, ended)),
                Kind::Job(job) if job.pauses => format!("ends {}", name(actor, ended)),
                _ => format!("ends {}, asks for {}", name(actor, ended), name(actor, next)),
            }
        }
        Event::ReleaseEarly(actor) if matches!(before.actors[actor].at, At::Waiting(_)) => {
            "returns what it kept".into()
        }
        Event::ReleaseEarly(actor) => format!("returns early what {} does not keep", name(actor, stage(actor))),
        Event::TryGrow(_) => "tries to take more than it declared".into(),
        Event::Grow(actor) => format!("asks for {}", name(actor, stage(actor) + 1)),
        Event::Cancel(actor) => match before.actors[actor].at {
            At::Running(at) => format!("is given up while {} runs", name(actor, at)),
            At::Waiting(at) => format!("is given up while it waits for {}", name(actor, at)),
            _ => "is given up".into(),
        },
        Event::Withdraw(actor) => format!("takes its request for {} back", name(actor, stage(actor))),
        Event::Ask(actor) => format!("asks for {}", name(actor, stage(actor))),
        Event::Fail(actor) => format!("fails in {}", name(actor, stage(actor))),
        Event::DropResults(_) => "drops its results".into(),
        Event::DropAllResults(actor) => match setup.kind(actor) {
            Kind::Job(job) => format!("the results of every {} are dropped together", job.name),
            Kind::Reservation(_) => unreachable!("reservations have no results"),
        },
        Event::Return(_) => "is dropped".into(),
        Event::RetryStage(actor) => format!("has to do {} again, asks for it", name(actor, stage(actor))),
        Event::Restart(actor) => match setup.job(actor).keeps {
            true => format!("begins again with what it holds, asks for {}", name(actor, 0)),
            false => format!("returns all and begins again, asks for {}", name(actor, 0)),
        },
        Event::Freed(_) => "is gone, and the reaper returns its bytes".into(),
        Event::TakeLoad(actor) => {
            let id = before.actors[actor].id.and_then(|id| before.ledger.next_load(id));
            let of = id.map_or("?", |id| setup.world.residencies[setup.residency_of(id)].name.as_str());
            format!("begins to load {of}")
        }
        Event::ReturnFromLoad(_) => "needs less than was declared, and the load returns the rest".into(),
        Event::Loaded(_) => "is loaded".into(),
        Event::GiveUpLoad(_) => "is not loaded after all: the load is given up".into(),
        Event::FailLoad(_) => "cannot be loaded, and all who wait are told".into(),
        Event::Gone(_) => "is gone from memory, and its bytes come back".into(),
        Event::Lose(number) => format!("{} is lost", setup.world.losses[number]),
        Event::Resize(number) => match setup.resizes[number] {
            (_, ComponentKind::Space(space), limit) => format!("the limit of {space} is set to {}", Bytes(limit)),
            (_, ComponentKind::Slots(slots), limit) => format!("the number of {slots} is set to {limit}"),
        },
        Event::Close => "the ledger is closed".into(),
    }
}

fn held(setup: &Setup<'_>, state: &State) -> Vec<String> {
    let view = View { setup, state };
    let differs = setup.world.kinds.iter().any(|kind| matches!(kind, Kind::Job(job) if job.really.is_some()));
    let components = setup.components.iter().zip(state.ledger.components());
    let text = |(component, now): (&crate::setup::Component, plimsoll::ledger::state::ComponentView)| {
        let label = &component.label;
        let mut text = match now.kind {
            ComponentKind::Slots(_) => format!("{label} {} of {}", now.held, now.limit),
            ComponentKind::Space(_) => format!("{label} {} of {}", Bytes(now.held), Bytes(now.limit)),
        };
        if now.limit != now.target {
            let _ = match now.kind {
                ComponentKind::Slots(_) => write!(text, " (asked for {})", now.target),
                ComponentKind::Space(_) => write!(text, " (asked for {})", Bytes(now.target)),
            };
        }
        if let ComponentKind::Space(space) = now.kind
            && differs
            && !component.child
            && !component.urgent
        {
            let _ = write!(text, ", really {}", view.really_in(space));
        }
        text
    };
    let residencies = setup.world.residencies.iter().enumerate().filter_map(|(at, kind)| {
        let view = crate::shared::view(setup, state, at);
        let word = match crate::shared::residence(view.stand) {
            Residence::Absent => return None,
            Residence::Called => "to be loaded",
            Residence::Loading => "being loaded",
            Residence::Unwinding => "given up and not gone yet",
            Residence::Resident if view.pins > 0 => "there, in use",
            Residence::Resident => "there, used by nobody",
            Residence::Evicting => "evicted and not gone yet",
        };
        Some(format!("{} {word}", kind.name))
    });
    components.map(text).chain(residencies).collect()
}
