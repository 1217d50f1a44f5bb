//! One random way through a world that is too large for all of them.

use crate::rules;
use crate::search::{self, possible};
use crate::setup::Setup;
use crate::state::State;
use crate::world::World;
use crate::{CheckError, Report};

/// Goes on until nothing more can happen. Of events of one kind none is preferred; the same seed goes the same way.
pub(crate) fn walk(world: &World, seed: u64) -> Result<Report, CheckError> {
    let setup = Setup::new(world)?;
    let mut random = seed;
    let mut report = Report::default();
    let mut state = State::new(&setup);
    let mut path = Vec::new();
    loop {
        search::visit(&setup, &state, &mut report)
            .and_then(|()| search::caught(|| rules::explained(&state)))
            .map_err(|broken| search::violation(&setup, &path, broken))?;
        let events = possible(&setup, &state);
        if events.is_empty() {
            report.states = path.len() + 1;
            report.depth = path.len();
            return Ok(report);
        }
        let event = events[(next(&mut random) % events.len() as u64) as usize];
        path.push(event);
        report.transitions += 1;
        report.count(event);
        state = search::step(&setup, &state, event).map_err(|broken| search::violation(&setup, &path, broken))?;
    }
}

/// Splitmix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
