//! Where a multiplication writes its sum.

use plimsoll_groth16::backend::CurveGroup;

use crate::convert::projective_bytes;

/// Room for a sum of either group, in homogeneous coordinates and standard form, where ICICLE's own types may lie: it writes them
/// there as they are, and bytes of an array of bytes may lie anywhere.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Sum([u8; Sum::ROOM]);

impl Sum {
    const ROOM: usize = 288;

    /// Zeros.
    pub fn new() -> Self {
        Self([0; Self::ROOM])
    }

    /// The sum of a multiplication in this group: 144 or 288 bytes.
    pub fn bytes(&self, group: CurveGroup) -> &[u8] {
        &self.0[..projective_bytes(group) as usize]
    }

    pub(super) fn place(&mut self) -> *mut u8 {
        self.0.as_mut_ptr()
    }
}

const _: () = assert!(projective_bytes(CurveGroup::G2) as usize == Sum::ROOM);

impl Default for Sum {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Sum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sum").finish_non_exhaustive()
    }
}
