//! Pacing in virtual time: the shipped pacer and the shipped ledger's state machine, driven by a small discrete-event
//! simulation with seeded times.

#[path = "pacing/line.rs"]
mod line;
#[path = "pacing/rules.rs"]
mod rules;
