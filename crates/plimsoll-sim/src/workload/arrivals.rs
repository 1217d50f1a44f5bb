//! When proofs arrive.

use crate::Nanos;

/// Proofs of one circuit, as they come.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// The circuit, by index.
    pub circuit: usize,
    /// When.
    pub arrivals: Arrivals,
    /// How many in all.
    pub proofs: u64,
}

/// When proofs arrive.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// All at once, at the beginning.
    Batch,
    /// So many are asked for at a time: when one is done, the next one is asked for.
    ClosedLoop(u64),
    /// At random, with this mean time between two.
    Poisson(Nanos),
    /// One in each such time.
    Every(Nanos),
    /// At these times.
    At(Vec<Nanos>),
}
