//! The example workloads.

use std::path::PathBuf;

use plimsoll_sim::Workload;
use plimsoll_sim::workload::{Policy, PolicyKind};

pub(crate) const GIB: f64 = (1u64 << 30) as f64;

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples/workloads").join(name)
}

pub(crate) fn example(name: &str) -> Workload {
    Workload::read(&path(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// PoRep with so many proofs.
pub(crate) fn porep(proofs: u64) -> Workload {
    let mut workload = example("porep32.toml");
    workload.streams[0].proofs = proofs;
    workload
}

pub(crate) fn with(mut workload: Workload, kind: PolicyKind) -> Workload {
    workload.policy = Policy::new(kind);
    workload
}

/// The same on a machine with more memory than anybody could fill.
pub(crate) fn unlimited(workload: &Workload) -> Workload {
    let mut workload = with(workload.clone(), PolicyKind::Unlimited);
    (workload.machine.memory, workload.machine.others) = (1 << 50, 0);
    workload
}

pub(crate) fn budget(workload: &Workload, gib: u64) -> Workload {
    let mut workload = workload.clone();
    workload.policy = Policy::plimsoll(gib << 30);
    workload
}
