//! Transforms: their tables, and what an operation takes beside its data.

use super::{Layout, SCALAR_BYTES};

/// The largest transform, as a power of two: the kernels index with 32 bits and their tables reach so far.
pub const MAX_LOG_SIZE: u32 = 28;

/// The powers of a coset's shift: two tables of 2^14, for the low and the high bits of the exponent.
pub const POWERS_BYTES: u64 = 2 * (1 << 14) * SCALAR_BYTES;

/// The twiddle factors that stay on a device as long as it is open, and where each table lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tables {
    /// 2^18 roots of order 2^19, in bit-reversed order.
    pub forward_inner: u64,
    /// Two tables of 2^14.
    pub forward_partial: u64,
    /// 512 roots of order 2^10.
    pub inverse_inner: u64,
    /// 512 rows of 512.
    pub inverse_stage: u64,
    /// Two tables of 2^14.
    pub inverse_partial: u64,
    /// Of all of them.
    pub bytes: u64,
}

impl Tables {
    /// Where the tables lie in their memory.
    pub fn plan() -> Self {
        let mut layout = Layout::default();
        let mut scalars = |count: u64| layout.place(count * SCALAR_BYTES);
        let forward_inner = scalars(1 << 18);
        let forward_partial = scalars(2 << 14);
        let inverse_inner = scalars(512);
        let inverse_stage = scalars(512 * 512);
        let inverse_partial = scalars(2 << 14);
        Self { forward_inner, forward_partial, inverse_inner, inverse_stage, inverse_partial, bytes: layout.end }
    }
}

/// The workspace of a transform or of a quotient: the powers of the coset's shift and of its inverse. Transforms that have
/// no coset take nothing.
pub const fn workspace_bytes(coset: bool) -> u64 {
    if coset { 2 * POWERS_BYTES } else { 0 }
}
