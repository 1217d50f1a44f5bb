//! Every reachable state of small worlds in which things go wrong: stages and jobs that are run again, limits of spaces and
//! slots that change, a device that is lost, jobs larger than a limit that run alone, and cancellation at each point.

#[path = "ledger_faults/explore.rs"]
mod explore;
#[path = "ledger_faults/world.rs"]
mod world;
