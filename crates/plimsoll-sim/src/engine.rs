//! The engine: virtual time, in which what a workload says happens, and an admission that says what may.
//!
//! ```text
//!            arrivals ──▶ admission: may it start? ──▶ stage … stage ──▶ may it go to the device? ──▶ stage … ──▶ done
//!                         (ours: the ledger, each stage; peers: a `Policy`)
//! ```
//!
//! `core` is the machine: what runs, how long it takes, what is really held. It knows nothing of policies. `ours` drives the
//! shipped `LedgerState`, the shipped pacer and the shipped queue order, call for call as the pipeline does; `peers` drives the
//! policies of other engines. Everything is integers and happens in one order, so that a seed gives the same run everywhere.

mod bypass;
mod clock;
mod core;
mod memory;
pub(crate) mod ours;
mod peers;
mod plan;
mod record;
mod stats;
mod timeline;
mod trouble;

pub(crate) use self::peers::smallest_budget as smallest_peer_budget;
pub use self::record::{Seen, Sink};
pub use self::stats::{End, Outcome};
pub use self::trouble::Trouble;
use crate::Workload;
use crate::workload::PolicyKind;

/// Runs a workload to its end.
///
/// ```
/// use plimsoll_sim::{Options, Workload, simulate};
/// let workload = Workload::parse("example.toml", r#"
///     [machine]
///     memory = "8 GiB"
///     workers = 4
///     [[circuit]]
///     name = "proof"
///     [[circuit.stage]]
///     name = "prove"
///     time = "2 s"
///     takes = [{ class = "abc", bytes = "3 GiB" }]
///     [[arrivals]]
///     circuit = "proof"
///     batch = true
///     proofs = 10
/// "#)?;
/// let outcome = simulate(&workload, Options::default());
/// // Two fit at a time.
/// assert_eq!((outcome.proofs, outcome.time.seconds()), (10, 10.0));
/// # Ok::<(), plimsoll_sim::WorkloadError>(())
/// ```
pub fn simulate<'a>(workload: &'a Workload, options: Options<'a>) -> Outcome {
    match workload.policy.kind {
        PolicyKind::Plimsoll { .. } => {
            let mut core = core::Core::new(workload, options, false);
            match ours::Ours::new(&mut core) {
                Ok(ours) => core.run(ours),
                Err(why) => core.refused(why),
            }
        }
        _ => {
            let mut core = core::Core::new(workload, options, true);
            match peers::Peers::new(&mut core) {
                Ok(peers) => core.run(peers),
                Err(why) => core.refused(why),
            }
        }
    }
}

/// The same under our own policy with trouble in the way: see [`search`](crate::search).
///
/// # Panics
///
/// With another policy.
pub fn simulate_troubled<'a>(workload: &'a Workload, options: Options<'a>, trouble: &mut Trouble) -> Outcome {
    assert!(matches!(workload.policy.kind, PolicyKind::Plimsoll { .. }), "only our own policy is searched for trouble");
    let mut core = core::Core::new(workload, options, false);
    match ours::Ours::new(&mut core) {
        Ok(ours) => {
            let ours = ours.with_trouble(&mut core, trouble);
            core.run(ours)
        }
        Err(why) => core.refused(why),
    }
}

/// How a run is made.
pub struct Options<'a> {
    /// More events than this end it.
    pub events_max: u64,
    /// Is told of everything that happens, in the schema of traces. Memory grows with nothing else.
    pub timeline: Option<&'a mut dyn Sink>,
    /// Is told now and then how far it is.
    pub progress: Option<&'a mut dyn FnMut(&Progress)>,
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time.
    pub time: crate::Nanos,
    /// How many things have happened.
    pub events: u64,
    /// Proofs that are done or lost.
    pub proofs: u64,
    /// Proofs that are not.
    pub proofs_left: u64,
}

impl Options<'_> {
    /// More than a year of the busiest workload.
    pub const EVENTS_MAX: u64 = 4_000_000_000;
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self { events_max: Self::EVENTS_MAX, timeline: None, progress: None }
    }
}

impl std::fmt::Debug for Options<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("events_max", &self.events_max).finish_non_exhaustive()
    }
}
