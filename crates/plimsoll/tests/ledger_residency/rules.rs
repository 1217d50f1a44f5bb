//! The rules about residencies, written a second time and as plainly as possible: everything is worked out from what the
//! world declared and where everybody stands, and every order is tried.

use plimsoll::ledger::state::{ResidencyStand, Stand};

use crate::world::{Place, Run, Vector, World, fits, sum};

/// A job that the ledger knows.
#[derive(Clone, Debug)]
struct Party {
    job: usize,
    in_flight: bool,
    held: Vector,
    claim: Vector,
    /// The stage that it waits for, the requests older than that, and how often it was passed.
    waiting: Option<(usize, usize, u32)>,
}

/// A state as plain numbers.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    world: &'a World,
    limit: Vector,
    target: Vector,
    parties: Vec<Party>,
    stands: Vec<ResidencyStand>,
    /// The residencies whose bytes are charged.
    charged: Vec<bool>,
}

impl<'a> Facts<'a> {
    pub(crate) fn of(world: &'a World, run: &Run) -> Facts<'a> {
        let components = run.state.components();
        let mut parties = Vec::new();
        for (job, (place, id)) in run.jobs.iter().enumerate() {
            let (Place::Live(_), Some(_)) = (place, id) else { continue };
            let view = run.view(job);
            let from = match view.stand {
                Stand::Running(Some(stage)) | Stand::Between(stage) => stage,
                _ => 0,
            };
            let mut held = [0; 2];
            for (resource, amount) in view.holdings {
                let on_device = resource == crate::world::D.into();
                held[usize::from(on_device)] += amount;
            }
            let waiting = view
                .waiting
                .map(|waiting| (waiting.stage.expect("jobs wait for stages"), waiting.rank, waiting.passed));
            parties.push(Party { job, in_flight: run.in_flight(job), held, claim: world.claim(job, from), waiting });
        }
        let residencies = (0..run.memory.len()).map(|at| run.residency(at));
        Facts {
            world,
            limit: [components[0].limit, components[1].limit],
            target: [components[0].target, components[1].target],
            parties,
            stands: residencies.clone().map(|view| view.stand).collect(),
            charged: residencies.map(|view| view.held.0 > 0).collect(),
        }
    }

    fn needs(&self, party: &Party) -> &[usize] {
        &self.world.jobs[party.job].needs
    }

    fn is_pinned(&self, residency: usize) -> bool {
        self.parties.iter().any(|party| party.in_flight && self.needs(party).contains(&residency))
    }

    /// What is held, with or without what nobody pins.
    fn held(&self, unpinned_too: bool) -> Vector {
        let mut held = self.parties.iter().fold([0; 2], |held, party| sum(held, party.held));
        for residency in 0..self.charged.len() {
            if self.charged[residency] && (unpinned_too || self.is_pinned(residency)) {
                held = sum(held, self.world.bytes(residency));
            }
        }
        held
    }

    /// Whether everybody in flight can be finished in some order, each with its claim and what it needs.
    pub(crate) fn some_order_finishes(&self) -> bool {
        let held = self.held(false);
        if !fits(held, self.limit) {
            return false;
        }
        let free = [self.limit[0] - held[0], self.limit[1] - held[1]];
        let in_flight: Vec<&Party> = self.parties.iter().filter(|party| party.in_flight).collect();
        self.finishes(free, &in_flight)
    }

    fn finishes(&self, free: Vector, left: &[&Party]) -> bool {
        left.is_empty()
            || (0..left.len()).any(|first| {
                let party = left[first];
                let mut need = [0, 1].map(|at| party.claim[at].saturating_sub(party.held[at]));
                for &residency in self.needs(party) {
                    if !self.charged[residency] {
                        need = sum(need, self.world.bytes(residency));
                    }
                }
                if !fits(need, free) {
                    return false;
                }
                let rest: Vec<&Party> =
                    left.iter().enumerate().filter(|(at, _)| *at != first).map(|(_, p)| *p).collect();
                let mut after = sum(free, party.held);
                for &residency in self.needs(party) {
                    let still = rest.iter().any(|other| self.needs(other).contains(&residency));
                    if self.charged[residency] && !still {
                        after = sum(after, self.world.bytes(residency));
                    }
                }
                self.finishes(after, &rest)
            })
    }

    /// Whether a waiting job could be granted its stage, or be admitted to the load of what it needs: now, or if all that
    /// nobody pins were gone.
    pub(crate) fn is_grantable(&self, job: usize, all_gone: bool) -> bool {
        let at = self.parties.iter().position(|party| party.job == job).expect("it lives");
        let party = &self.parties[at];
        let Some((stage, older, _)) = party.waiting else { return false };
        let needs = self.needs(party);
        let is = |residency: &usize, stand| self.stands[*residency] == stand;
        let all_there = needs.iter().all(|need| is(need, ResidencyStand::Resident));
        let mut after = self.clone();
        after.parties[at].in_flight = true;
        after.parties[at].waiting = None;
        let mut more = [0; 2];
        if all_there {
            let peak = self.world.jobs[job].stages.get(stage).map_or([0; 2], |stage| stage.0);
            more = [0, 1].map(|at| peak[at].saturating_sub(party.held[at]));
            after.parties[at].held = sum(party.held, more);
        } else {
            if party.in_flight || needs.iter().any(|need| is(need, ResidencyStand::Evicting)) {
                return false;
            }
            for need in needs.iter().filter(|need| is(need, ResidencyStand::Absent)) {
                more = sum(more, self.world.bytes(*need));
                after.charged[*need] = true;
            }
        }
        // What it needs itself is not gone: it is pinned by then.
        let held = after.held(!all_gone);
        let bound = if party.in_flight { self.limit } else { [0, 1].map(|at| self.limit[at].min(self.target[at])) };
        // Only what it asks for must fit: a limit on its way down may be exceeded elsewhere.
        if [0, 1].iter().any(|&at| more[at] > 0 && held[at] > bound[at]) || !after.some_order_finishes() {
            return false;
        }
        let is_passed = |other: &&Party| match other.waiting {
            Some((_, rank, _)) => other.job != job && (other.in_flight || rank < older),
            None => false,
        };
        let spent = |other: &Party| other.waiting.is_some_and(|(_, _, passed)| passed >= self.world.bypass);
        party.in_flight || !self.parties.iter().filter(is_passed).any(spent)
    }

    /// The jobs that wait.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = usize> + '_ {
        self.parties.iter().filter(|party| party.waiting.is_some()).map(|party| party.job)
    }

    pub(crate) fn is_lowering(&self) -> bool {
        self.limit != self.target
    }
}
