//! Devices, on simulated cards: what overlaps, what excludes, what is freed when, and what a fault leaves behind.

#[path = "device/either.rs"]
mod either;
#[path = "device/elsewhere.rs"]
mod elsewhere;
#[path = "device/faults.rs"]
mod faults;
#[path = "soak_pipeline/hands.rs"]
mod hands;
#[path = "device/lanes.rs"]
mod lanes;
#[path = "device/memory.rs"]
mod memory;
#[path = "device/pipelines.rs"]
mod pipelines;
#[path = "device/resident.rs"]
mod resident;
#[path = "device/several.rs"]
mod several;
#[path = "device/sharing.rs"]
mod sharing;
#[path = "device/support.rs"]
mod support;
#[path = "device/table.rs"]
mod table;
