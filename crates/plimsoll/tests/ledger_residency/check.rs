//! What must hold in every state, and of every event.

use plimsoll::Space;
use plimsoll::ledger::state::{Order, ResidencyStand, Stand};

use crate::rules::Facts;
use crate::world::{Memory, Place, Run, World};

/// Asserts what must hold after an event.
pub(crate) fn check(world: &World, run: &Run) {
    books(world, run);
    residencies(world, run);
    let facts = Facts::of(world, run);
    assert!(facts.some_order_finishes(), "the state is not safe");
    orders(world, run, &facts);
    going_on(run, &facts);
    if run.jobs.iter().all(|(place, _)| matches!(place, Place::Done | Place::Refused)) {
        nothing_is_lost(run);
    }
}

/// I1, I2, I5, I6: what is held adds up, is below the line, and what is in memory is charged.
fn books(world: &World, run: &Run) {
    let mut sums = [0; 2];
    for id in run.state.owners() {
        let view = run.state.owner(id).expect("it exists");
        for (resource, held) in view.holdings {
            let plimsoll::Resource::Class(class) = resource else { panic!("there are no slots here") };
            sums[usize::from(class.space() != Space::HOST)] += held;
        }
        if let Some(waiting) = view.waiting {
            assert!(waiting.passed <= world.bypass, "I5: {} admissions passed a waiting request", waiting.passed);
        }
    }
    for (component, sum) in run.state.components().iter().zip(sums) {
        assert_eq!(component.held, sum, "I1: what owners hold adds up");
        assert!(component.held <= component.limit, "I2: {component:?} is above the line");
    }
    for (residency, memory) in run.memory.iter().enumerate() {
        let held = run.residency(residency).held.0;
        let there = *memory != Memory::Nothing;
        assert!(
            !there || held == world.shared[residency].bytes,
            "I6: residency {residency} is there, and {held} is held"
        );
    }
}

/// Pins are those of the jobs in flight; what they pin is there or on its way, and what they use is there.
fn residencies(world: &World, run: &Run) {
    for residency in 0..run.memory.len() {
        let view = run.residency(residency);
        let pinned_by =
            (0..run.jobs.len()).filter(|job| world.jobs[*job].needs.contains(&residency) && run.in_flight(*job));
        assert_eq!(view.pins as usize, pinned_by.clone().count(), "pins of residency {residency}");
        for job in pinned_by {
            let (stand, memory) = (view.stand, run.memory[residency]);
            let on_its_way = matches!(
                stand,
                ResidencyStand::Called(_)
                    | ResidencyStand::Loading
                    | ResidencyStand::Unwinding
                    | ResidencyStand::Resident
            );
            assert!(on_its_way, "job {job} pins residency {residency}, which is {stand:?}");
            if matches!(run.view(job).stand, Stand::Running(_)) {
                assert_eq!(memory, Memory::Value, "job {job} uses residency {residency}");
            }
        }
        let called = (0..run.jobs.len()).filter(|job| {
            run.jobs[*job].1.is_some_and(|id| run.state.next_load(id) == Some(run.residencies[residency]))
        });
        assert!(called.count() <= 1, "a load falls to one job at a time");
    }
}

/// Nothing is evicted that need not go, and loads fall to those who wait for them.
fn orders(world: &World, run: &Run, facts: &Facts<'_>) {
    for order in &run.orders {
        match *order {
            Order::Evict(_) => {
                let served_by_it = |job| !facts.is_grantable(job, false) && facts.is_grantable(job, true);
                let needed = facts.waiting().any(served_by_it) || facts.is_lowering() || run.closed;
                assert!(needed, "something is evicted that is in nobody's way");
            }
            Order::Load(owner, id) => {
                let residency = run.residencies.iter().position(|other| *other == id).expect("it is known");
                let loader = run.jobs.iter().position(|entry| entry.1 == Some(owner)).expect("it lives");
                assert!(run.in_flight(loader) && world.jobs[loader].needs.contains(&residency), "it is called in vain");
                let waits = |job: &usize| world.jobs[*job].needs.contains(&residency) && run.in_flight(*job);
                let highest = (0..run.jobs.len()).filter(waits).map(|job| world.jobs[job].priority).max();
                assert_eq!(run.state.load_priority(id), highest, "a load has the priority of all who wait for it");
            }
        }
    }
}

/// I4 as safety: whatever waits cannot be granted; where only eviction is in its way that is under way; and while anything
/// waits, something runs, loads or goes.
fn going_on(run: &Run, facts: &Facts<'_>) {
    let going = run.memory.contains(&Memory::Going);
    let mut served_by_eviction = false;
    for job in facts.waiting() {
        assert!(!facts.is_grantable(job, false), "job {job} waits, and could be granted");
        served_by_eviction |= facts.is_grantable(job, true);
    }
    let filling = run.memory.contains(&Memory::Filling);
    assert!(going || filling || !served_by_eviction, "only an eviction is missing, and nothing is evicted");
    let active = (0..run.jobs.len()).any(|job| {
        let (Place::Live(_), Some(id)) = &run.jobs[job] else { return false };
        run.view(job).waiting.is_none() || run.state.next_load(*id).is_some()
    });
    assert!(active || going || filling || facts.waiting().next().is_none(), "I4: jobs wait, and nothing goes on");
}

/// I7: when all have ended, nothing is held but what is kept for others; of a closed ledger not even that.
fn nothing_is_lost(run: &Run) {
    let kept = |residency: usize| run.memory[residency] != Memory::Nothing;
    let held = (0..run.memory.len()).filter(|at| kept(*at)).count();
    assert_eq!(run.state.owners().count(), held, "I7: somebody is left behind");
    let values = run.memory.contains(&Memory::Value);
    assert!(!(values && run.closed), "I7: a closed ledger keeps what nobody will use");
    let quiet = run.memory.iter().all(|memory| matches!(memory, Memory::Nothing | Memory::Value));
    assert_eq!(run.state.is_quiet(), quiet, "a ledger is quiet when nothing loads or goes");
}
