//! What a search puts in the way of a run, and what it looks at after every event.

use std::collections::BTreeMap;

use plimsoll::ledger::state::{Kind, LedgerState, ResidencyId, Stand};
use plimsoll::pipeline::Certificate;
use plimsoll::{Bytes, Class, Slots, Space};

use super::bypass::Bypass;
use super::core::Core;
use crate::engine::ours;
use crate::workload::PolicyKind;

/// What is put in the way of a run under our own policy.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// New limits of host memory, and when they are set, in nanoseconds.
    pub resizes: Vec<(u64, u64)>,
    /// Devices that are lost, and when, in nanoseconds.
    pub losses: Vec<(u64, u16)>,
    /// Of a thousand stage ends, after how many a job that waits is given up.
    pub cancelled_of_a_thousand: u64,
    /// Whether the invariants are looked at after every event.
    pub check: bool,
    /// Limits go below what a job needs, so that some may be refused.
    pub may_refuse: bool,
    /// What broke first.
    pub broken: Option<String>,
    /// How often a waiting admission was passed by others, at most.
    pub most_passed: u32,
    /// The largest limit of host memory that there was.
    pub(crate) limit_most: u64,
    /// By circuit: how many jobs may be behind each stage.
    pub(crate) bounds: Vec<Vec<Option<u64>>>,
    /// The count of passings from outside, and what it has to know: the answers that it has heard, whether there is an urgent
    /// reserve, the residencies.
    pub(crate) bypass: Bypass,
    pub(crate) heard: usize,
    pub(crate) has_reserve: bool,
    pub(crate) stores: Vec<(ResidencyId, Class)>,
}

impl Trouble {
    /// The certificate's bounds, with the largest limit that there ever is: a lowered one takes effect as jobs finish.
    pub(super) fn certify(&mut self, core: &Core<'_>) {
        let limits = ours::budget(core.workload);
        self.has_reserve = matches!(core.workload.policy.kind, PolicyKind::Plimsoll { urgent_reserve: 1.., .. });
        let host = limits.limit(Space::HOST).unwrap_or_default().0;
        self.limit_most = self.resizes.iter().map(|resize| resize.1).fold(host, u64::max);
        let mut limits = limits.space(Space::HOST, Bytes(self.limit_most));
        // The certificate is one device's; jobs may be on any.
        let machine = &core.workload.machine;
        if machine.devices > 0 {
            let devices = u64::from(machine.devices);
            limits = limits
                .space(Space::device(0), Bytes(machine.device_memory * devices))
                .slots(Slots::lane(0), machine.lanes * devices)
                .slots(Slots::lease(0), devices);
        }
        let of = |circuit: usize| {
            let certificate = Certificate::new(&ours::profile(core.workload, circuit, 0), &limits);
            // Pinned memory and slots of devices bound it as well; they do not change.
            certificate.backlogs.iter().map(|backlog| backlog.jobs).collect()
        };
        self.bounds = (0..core.circuits.len()).map(of).collect();
    }

    /// I1, I2, I3 and I5. I4 is what ends a run that is stuck.
    pub(super) fn look(&mut self, core: &Core<'_>, state: &mut LedgerState) {
        if self.broken.is_none() {
            self.broken =
                self.conservation(core, state).or_else(|| self.backlog(core)).or_else(|| self.passed(core, state));
        }
    }

    fn conservation(&self, core: &Core<'_>, state: &mut LedgerState) -> Option<String> {
        let components = state.components();
        let mut held = vec![0u128; components.len()];
        let owners: Vec<_> = state.owners().collect();
        for id in owners {
            let Some(owner) = state.owner(id) else { continue };
            if owner.stand == Stand::HandedOver {
                continue;
            }
            for (resource, amount) in owner.holdings {
                for component in state.charged(owner.account, resource) {
                    held[component] += u128::from(amount);
                }
            }
        }
        for (component, held) in components.iter().zip(held) {
            if held != u128::from(component.held) {
                return Some(format!("I1 at {}: {component:?} and owners hold {held}", core.now));
            }
            if component.held > component.limit {
                return Some(format!("I2 at {}: {component:?}", core.now));
            }
            if component.limit < component.target {
                return Some(format!("a limit is below what was asked for at {}: {component:?}", core.now));
            }
            if let Kind::Space(space) = component.kind
                && space == Space::HOST
                && component.limit > self.limit_most
            {
                return Some(format!("I2 at {}: a limit of {} was never set", core.now, component.limit));
            }
        }
        None
    }

    fn backlog(&self, core: &Core<'_>) -> Option<String> {
        let mut behind: BTreeMap<(u16, u16), u64> = BTreeMap::new();
        for (_, job) in core.jobs.iter().filter(|(_, job)| !job.runs && !job.is_granted && job.stage > 0) {
            *behind.entry((job.circuit, job.stage - 1)).or_default() += 1;
        }
        let broken = behind.into_iter().find(|&((circuit, stage), jobs)| {
            let bound = self.bounds[usize::from(circuit)].get(usize::from(stage)).copied().flatten();
            bound.is_some_and(|bound| jobs > bound)
        });
        broken
            .map(|(at, jobs)| format!("I3 at {}: {jobs} jobs behind stage {at:?}, bounds {:?}", core.now, self.bounds))
    }

    fn passed(&mut self, core: &Core<'_>, state: &LedgerState) -> Option<String> {
        for id in state.owners() {
            let Some(owner) = state.owner(id) else { continue };
            let Some(waiting) = owner.waiting.filter(|_| owner.stand == Stand::Fresh) else { continue };
            self.most_passed = self.most_passed.max(waiting.passed);
            if waiting.passed > state.bypass() {
                return Some(format!("I5 at {}: passed {} times, K is {}", core.now, waiting.passed, state.bypass()));
            }
        }
        None
    }
}
