//! The ledger under random load: traces of its state machine against the naive oracle of its tests ([`trace`]), and
//! actors that use a ledger as careless programs do ([`actor`]). The binary runs them for as long as you like, the fuzz
//! target feeds [`trace::run_bytes`], and the shuttle tests schedule the actors.

pub mod actor;
pub mod trace;
pub mod walks;

#[path = "../../crates/plimsoll/tests/support/dice.rs"]
mod dice;
#[path = "../../crates/plimsoll/tests/ledger_state/oracle.rs"]
mod oracle;
#[path = "../../crates/plimsoll/tests/ledger_state/world.rs"]
#[allow(dead_code, reason = "the exhaustive search, which is a test of the ledger's own crate, uses more of it")]
mod world;
