//! blst's field arithmetic behind safe functions: the only unsafe code of this backend.

use blst::blst_fr;
use blstrs::Scalar;

/// The scalar as blst knows it.
fn raw_mut(scalar: &mut Scalar) -> *mut blst_fr {
    // `Scalar` is `repr(transparent)` over `blst_fr`.
    std::ptr::from_mut(scalar).cast()
}

/// The scalar as blst knows it.
fn raw(scalar: &Scalar) -> *const blst_fr {
    // `Scalar` is `repr(transparent)` over `blst_fr`.
    std::ptr::from_ref(scalar).cast()
}

/// (x0, x1) ← (x0 + t·x1, x0 − t·x1).
#[inline]
pub(super) fn butterfly_before(x0: &mut Scalar, x1: &mut Scalar, twiddle: &Scalar) {
    // SAFETY: the three pointers come from references, so they are valid and aligned, and the two that are written are
    // distinct; the function keeps none of them.
    unsafe { blst::blst_fr_ct_bfly(raw_mut(x0), raw_mut(x1), raw(twiddle)) }
}

/// (x0, x1) ← (x0 + x1, t·(x0 − x1)).
#[inline]
pub(super) fn butterfly_after(x0: &mut Scalar, x1: &mut Scalar, twiddle: &Scalar) {
    // SAFETY: as in `butterfly_before`.
    unsafe { blst::blst_fr_gs_bfly(raw_mut(x0), raw_mut(x1), raw(twiddle)) }
}
