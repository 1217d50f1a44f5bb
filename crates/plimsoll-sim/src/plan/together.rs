//! All circuits of a workload on one machine: the bottleneck law.
//!
//! No run ends before its busiest station has done all that there is for it, nor before the last proof has arrived and gone its
//! way. The largest of these times, over all proofs, is what the formulas say.

use super::{Forecast, asked};
use crate::workload::{Site, Workload};

/// What holds up everything, and how many seconds a proof it costs.
#[derive(Clone, Debug, PartialEq)]
pub struct Together {
    /// Seconds from the beginning to the last result, over all proofs.
    pub seconds_per_proof: f64,
    /// What takes that long, in words.
    pub by: String,
}

/// What the formulas say of all circuits together.
pub(super) fn forecast(workload: &Workload, forecasts: &[Forecast]) -> Option<Together> {
    let machine = &workload.machine;
    let devices = f64::from(machine.devices.max(1));
    let proofs = |circuit: usize| {
        let streams = workload.streams.iter().filter(|stream| stream.circuit == circuit);
        streams.map(|stream| stream.proofs as f64).sum::<f64>()
    };
    let all: f64 = (0..workload.circuits.len()).map(proofs).sum();
    let work = |is_there: &dyn Fn(Site) -> bool, servers: f64| {
        let of = |(at, circuit): (usize, &crate::workload::Circuit)| {
            let stages = circuit.stages.iter().filter(|stage| is_there(stage.on));
            let each = stages.map(|stage| {
                let slowed = if stage.bandwidth_ppm > 0 { forecasts[at].stretch } else { 1.0 };
                (stage.time.mean() + machine.transfer(stage.pcie).0) as f64 * 1e-9 * slowed
            });
            proofs(at) * f64::from(circuit.parts) * each.sum::<f64>()
        };
        workload.circuits.iter().enumerate().map(of).sum::<f64>() / servers
    };
    let mut ends = vec![
        (work(&|on| on == Site::Device, devices), "the devices, which compute for one job at a time".to_owned()),
        (work(&|on| on == Site::Worker, machine.workers as f64), "the CPU".to_owned()),
        (work(&|on| on.is_on_device(), devices * machine.lanes as f64), "the lanes of the devices".to_owned()),
    ];
    for (at, forecast) in forecasts.iter().enumerate() {
        let last = asked::last(workload, at).seconds();
        let (alone, name) = (forecast.alone?, &forecast.circuit);
        ends.push((last + forecast.latency, format!("arrivals: the last proof of {name} comes after {last:.0} s")));
        ends.push((proofs(at) * alone, format!("{name}, even alone")));
    }
    let (seconds, by) = ends.into_iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
    (all > 0.0).then(|| Together { seconds_per_proof: seconds / all, by })
}
