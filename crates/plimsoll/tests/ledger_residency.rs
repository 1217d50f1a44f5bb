//! The state machine of residencies: every reachable state of small worlds in which jobs share what is loaded once and
//! evicted under pressure; and which of them go (`victims`).

#[path = "ledger_residency/check.rs"]
mod check;
#[path = "support/dice.rs"]
mod dice;
#[path = "ledger_residency/explore.rs"]
mod explore;
#[path = "ledger_residency/rules.rs"]
mod rules;
#[path = "ledger_residency/victims.rs"]
mod victims;
#[path = "ledger_residency/world.rs"]
mod world;
