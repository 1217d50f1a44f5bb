//! A workload's circuits made ready: classes and clocks by number, and what each stage adds and removes.

use plimsoll::Class;

use super::memory::Memory;
use crate::random::Times;
use crate::workload::{Circuit, Holdings, Machine, Site, Workload};

/// A class of bytes, by number; of a device's memory the number for device 0, and those of the others follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClassNumber {
    base: u16,
    of_device: bool,
}

impl ClassNumber {
    fn new(class: Class, machine: &Machine, memory: &mut Memory) -> ClassNumber {
        let Some(_) = class.space().device_number() else {
            return ClassNumber { base: memory.number(class), of_device: false };
        };
        let mut numbers = (0..machine.devices).map(|device| memory.number(crate::workload::on_device(class, device)));
        let base = numbers.next().expect("a device's memory is used only where there is a device");
        numbers.for_each(drop);
        ClassNumber { base, of_device: true }
    }

    pub(super) fn on(self, device: u16) -> u16 {
        if self.of_device { self.base + device } else { self.base }
    }
}

#[derive(Clone, Debug)]
pub(super) struct StagePlan {
    pub(super) name: &'static str,
    pub(super) on: Site,
    pub(super) time: Times,
    /// Nanoseconds of transfers.
    pub(super) transfer: u64,
    pub(super) clock: usize,
    pub(super) pressure: i64,
    pub(super) failing_ppb: u64,
    /// What it takes when it begins, and what grows until it ends.
    pub(super) takes: Vec<(ClassNumber, u64)>,
    pub(super) grows: Vec<(ClassNumber, u64)>,
    pub(super) grows_bytes: u64,
    /// What is gone when it has ended.
    pub(super) gone: Vec<(ClassNumber, u64)>,
    /// What is left then.
    pub(super) keep: Vec<(ClassNumber, u64)>,
    /// The host bytes that it adds, and those that are gone when it has ended.
    pub(super) more: u64,
    pub(super) less: u64,
}

#[derive(Clone, Debug)]
pub(super) struct CircuitPlan {
    pub(super) circuit: Circuit,
    pub(super) holdings: Vec<Holdings>,
    pub(super) stages: Vec<StagePlan>,
    /// The first stage on a device.
    pub(super) device_stage: Option<usize>,
}

/// The sensitivities to memory bandwidth that a workload has, in billionths, each once.
pub(super) fn slopes(workload: &Workload) -> Vec<u64> {
    let stages = workload.circuits.iter().flat_map(|circuit| &circuit.stages);
    let slope =
        |bandwidth_ppm: u64| (u128::from(workload.machine.slowdown_ppb) * u128::from(bandwidth_ppm) / 1_000_000) as u64;
    let mut slopes: Vec<u64> = stages.map(|stage| slope(stage.bandwidth_ppm)).filter(|slope| *slope > 0).collect();
    slopes.sort_unstable();
    slopes.dedup();
    slopes
}

impl CircuitPlan {
    pub(super) fn new(circuit: Circuit, workload: &Workload, slopes: &[u64], memory: &mut Memory) -> CircuitPlan {
        let machine = &workload.machine;
        let holdings = circuit.holdings();
        let stages = circuit.stages.iter().zip(&holdings).map(|(stage, holdings)| {
            let slope = (u128::from(machine.slowdown_ppb) * u128::from(stage.bandwidth_ppm) / 1_000_000) as u64;
            let mut number = |class| ClassNumber::new(class, machine, memory);
            let mut taken = |grows: bool| {
                let of = stage.takes.iter().filter(|take| take.grows == grows);
                of.map(|take| (number(take.class), take.bytes)).collect::<Vec<_>>()
            };
            let (takes, grows) = (taken(false), taken(true));
            let kept = |class: Class| holdings.keep.iter().find(|entry| entry.0 == class).map_or(0, |entry| entry.1);
            let gone = holdings.peak.iter().map(|&(class, peak)| (class, peak - kept(class)));
            let gone: Vec<_> = gone.filter(|entry| entry.1 > 0).collect();
            let less = crate::workload::on_host(&gone);
            let gone = gone.into_iter().map(|(class, bytes)| (number(class), bytes)).collect();
            let keep = holdings.keep.iter().map(|&(class, bytes)| (number(class), bytes)).collect();
            let on_host = stage.takes.iter().filter(|take| take.class.space().device_number().is_none());
            let more = on_host.map(|take| take.bytes).sum();
            StagePlan {
                name: stage.name,
                on: stage.on,
                time: stage.time.clone(),
                transfer: machine.transfer(stage.pcie).0,
                clock: slopes.iter().position(|known| *known == slope).map_or(0, |at| at + 1),
                pressure: stage.bandwidth_ppm as i64,
                failing_ppb: stage.failing_ppb,
                grows_bytes: grows.iter().map(|entry| entry.1).sum(),
                takes,
                grows,
                gone,
                keep,
                more,
                less,
            }
        });
        let stages = stages.collect();
        CircuitPlan { device_stage: circuit.device_stage(), holdings, stages, circuit }
    }
}
