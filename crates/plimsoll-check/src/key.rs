//! When two states are the same: they are found equal when everything from here on is the same but for the names of jobs
//! of one kind.
//!
//! Ages count by their rank. Statistics (peaks, sums, the slab's numbering) do not count. The whole key is kept, not a
//! hash of it, so that no collision can hide a state.

use plimsoll::ledger::state::ResidencyStand;

use crate::event::At;
use crate::setup::Setup;
use crate::shared;
use crate::state::{Held, State};
use crate::world::Kind;

/// The canonical form of a state.
pub(crate) type Key = Box<[u8]>;

pub(crate) fn key(setup: &Setup<'_>, state: &State) -> Key {
    let mut key = Vec::with_capacity(128);
    put(&mut key, state.resizes_done as u64);
    put(&mut key, u64::from(state.closed));
    put(&mut key, state.lost.iter().fold(0, |lost, device| lost | 1 << device));
    for residency in 0..state.shared.len() {
        put_residency(&mut key, setup, state, residency);
    }
    for component in state.ledger.components() {
        put(&mut key, component.limit);
    }
    put_actors(&mut key, setup, state, (0..state.actors.len()).filter(|actor| setup.parent(*actor).is_none()));
    key.into()
}

fn put_residency(key: &mut Vec<u8>, setup: &Setup<'_>, state: &State, residency: usize) {
    let (known, view) = (&state.shared[residency], shared::view(setup, state, residency));
    put(key, shared::residence(view.stand) as u64);
    put(key, known.memory as u64);
    put(key, known.payer.map_or(0, |payer| payer.1 + 1));
    // When something was used that is gone makes no difference.
    put(key, if view.stand == ResidencyStand::Absent { 0 } else { view.rank as u64 });
    put(key, u64::from(known.returned));
    put(key, u64::from(known.gives_up_left));
    put(key, u64::from(known.fails_left));
}

/// Jobs of one kind are alike: their order does not count. Those with parts are alike if their parts are.
fn put_actors(key: &mut Vec<u8>, setup: &Setup<'_>, state: &State, actors: impl Iterator<Item = usize>) {
    let with_parts = |actor: usize| {
        let mut key = of_actor(setup, state, actor);
        put_actors(&mut key, setup, state, setup.parts(actor));
        (setup.world.actors[actor], key)
    };
    let mut actors: Vec<(usize, Vec<u8>)> = actors.map(with_parts).collect();
    actors.sort();
    for (_, actor) in actors {
        put(key, actor.len() as u64);
        key.extend(actor);
    }
}

fn of_actor(setup: &Setup<'_>, state: &State, actor: usize) -> Vec<u8> {
    let mut key = Vec::with_capacity(32);
    let known = &state.actors[actor];
    let (tag, stage) = match known.at {
        At::Absent => (0, 0),
        At::Waiting(stage) => (1, stage),
        At::Running(stage) => (2, stage),
        At::Between(stage) => (3, stage),
        At::Failed => (4, 0),
        At::Results => (5, 0),
        At::Ending => (7, 0),
        At::Freeing => (8, 0),
        At::Gone => return vec![6],
    };
    put(&mut key, tag);
    put(&mut key, stage as u64);
    let flags =
        [known.tried, known.released, known.abandoned, known.extra.is_some(), known.admitted, known.stays, known.told];
    put(&mut key, flags.iter().fold(0, |sum, flag| sum * 2 + u64::from(*flag)));
    put(&mut key, u64::from(known.withdraws_left));
    put(&mut key, u64::from(known.retries_left));
    put(&mut key, u64::from(known.stage_retries_left));
    put(&mut key, u64::from(known.restarts_left));
    put(&mut key, u64::from(known.forgotten));
    put(&mut key, known.alone.len() as u64);
    put(&mut key, known.surety.map_or(0, |surety| surety as u64 + 1));
    for residency in 0..state.shared.len() {
        let called = ResidencyStand::Called;
        let is_called = known.id.is_some_and(|id| shared::view(setup, state, residency).stand == called(id));
        let loads = state.shared[residency].loader == Some(actor);
        put(&mut key, u64::from(is_called) * 2 + u64::from(loads));
    }
    if setup.has_restarts(actor) {
        // Whoever begins again has the age of its first admission.
        let mine = known.place.or(known.admitted_at);
        let older = |other: &&crate::state::Actor| {
            let waits = matches!(other.at, At::Waiting(_)) && Some(other.arrived) < mine;
            waits || (other.place.or(other.admitted_at).is_some() && other.place.or(other.admitted_at) < mine)
        };
        put(&mut key, mine.map_or(0, |_| state.actors.iter().filter(older).count() as u64 + 1));
    }
    put_held(&mut key, &known.pieces);
    put_held(&mut key, &known.left);
    put(&mut key, known.choice as u64);
    if let Kind::Job(_) = setup.kind(actor) {
        put(&mut key, setup.kept(known, actor).map_or(0, |_| known.kept_by as u64));
    }
    let mut inherited: Held = known.inherited.iter().map(|&(_, class, bytes)| (class, bytes)).collect();
    inherited.sort();
    put_held(&mut key, &inherited);
    if tag == 1 {
        let older = |other: &&crate::state::Actor| matches!(other.at, At::Waiting(_)) && other.arrived < known.arrived;
        put(&mut key, state.actors.iter().filter(older).count() as u64);
        put(&mut key, u64::from(known.passed));
    }
    if let Some(view) = known.id.and_then(|id| state.ledger.owner(id)) {
        put(&mut key, u64::from(view.account != setup.home(actor)));
        for sparse in [view.claim, view.leaves] {
            put(&mut key, sparse.len() as u64);
            for (component, amount) in sparse {
                put(&mut key, component as u64);
                put(&mut key, amount);
            }
        }
    }
    key
}

fn put_held(key: &mut Vec<u8>, held: &Held) {
    put(key, held.len() as u64);
    for (class, bytes) in held {
        // Within one kind, few classes are held; their names tell them apart.
        put(key, class.name().len() as u64);
        key.extend(class.name().as_bytes());
        put(key, *bytes);
    }
}

/// Seven bits a byte: small numbers, which is all there are, take one.
fn put(key: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        key.push(number as u8 | 0x80);
        number >>= 7;
    }
    key.push(number as u8);
}
