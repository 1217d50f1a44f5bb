//! The ledger's state machine, without a shell around it: every reachable state of small worlds (`explore`), random
//! traces against a naive oracle (`traces`), and the safety check against brute force (`world::order_exists`).

#[path = "support/dice.rs"]
mod dice;
#[path = "ledger_state/explore.rs"]
mod explore;
#[path = "ledger_state/oracle.rs"]
mod oracle;
#[path = "ledger_state/quick.rs"]
mod quick;
#[path = "ledger_state/traces.rs"]
mod traces;
#[path = "ledger_state/world.rs"]
mod world;
