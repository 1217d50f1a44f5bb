//! What an operation takes of a device, computed from its sizes: pure functions, the same with and without a device.
//!
//! Each plan lists the *regions* that its operation uses, each with an offset into the memory of its class that the caller
//! hands in. The kernels get these addresses and no others, so the plan's bytes are what is touched: the last byte of the
//! last region is written by every run.
//!
//! | class | what |
//! |---|---|
//! | `device.abc` | scalars: the evaluations a and b, the quotient, the assignment |
//! | `device.points` | points of a key, resident or passing through |
//! | `device.buckets` | the sums of a multiplication's buckets |
//! | `device.workspace` | everything else: c, sorted entries, carries, tables |

pub mod msm;
pub mod ntt;
pub mod proof;

pub use plimsoll_groth16::device::{abc, buckets, points, workspace};

/// The bytes of a scalar.
pub const SCALAR_BYTES: u64 = 32;

/// Regions begin at multiples of this, which suits every access of the kernels and every copy.
pub const ALIGNMENT: u64 = 256;

/// What plans need to know of a kind of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
}

impl Shape {
    /// An H100 or H200.
    pub const HOPPER: Shape = Shape { multiprocessors: 132 };
}

/// The next multiple of [`ALIGNMENT`].
pub const fn aligned(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGNMENT) * ALIGNMENT
}

/// Lays regions out one behind the other.
#[derive(Clone, Debug, Default)]
struct Layout {
    end: u64,
}

impl Layout {
    /// Room for so many bytes; says where.
    fn place(&mut self, bytes: u64) -> u64 {
        let at = aligned(self.end);
        self.end = at + bytes;
        at
    }
}
