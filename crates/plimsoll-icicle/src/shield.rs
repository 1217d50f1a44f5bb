//! Calls into ICICLE behind a C++ frame that catches exceptions.
//!
//! Without a C++ compiler at build time, or with `panic = "abort"`, calls go through as they are, and an exception ends the
//! process: [`IS_SHIELDED`] says which it is, and so do the backend's report and `plimsoll doctor`.

use std::ffi::c_int;

/// Whether exceptions are caught.
pub const IS_SHIELDED: bool = cfg!(all(plimsoll_icicle_shielded, panic = "unwind"));

/// A C++ exception came out of a call. What it left behind nobody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exception {
    /// What it said of itself.
    pub(crate) text: String,
}

/// Runs `call`, which calls one function of ICICLE and does nothing else: it must not panic, and owns nothing that would have to
/// be dropped.
#[cfg(all(plimsoll_icicle_shielded, panic = "unwind"))]
pub(crate) fn shielded<F: FnMut() -> c_int>(mut call: F) -> Result<c_int, Exception> {
    use std::ffi::{CStr, c_char, c_void};

    const { assert!(!std::mem::needs_drop::<F>(), "an exception would pass over what the call owns") };

    unsafe extern "C" {
        fn plimsoll_icicle_shield(
            call: unsafe extern "C-unwind" fn(*mut c_void) -> c_int,
            data: *mut c_void,
            text: *mut c_char,
            len: usize,
        ) -> c_int;
    }
    unsafe extern "C-unwind" fn run<F: FnMut() -> c_int>(data: *mut c_void) -> c_int {
        // SAFETY: `data` is the `call` of the frame that is waiting below, which nobody else uses meanwhile.
        let call = unsafe { &mut *data.cast::<F>() };
        call()
    }

    let mut text: [c_char; 256] = [0; 256];
    // An exception leaves this at −1, which is none of ICICLE's codes.
    // SAFETY: the function calls `run::<F>` once with the pointer to `call`, and writes at most so many bytes of `text`,
    // of which the last is 0.
    let code = unsafe { plimsoll_icicle_shield(run::<F>, (&raw mut call).cast(), text.as_mut_ptr(), text.len()) };
    if text[0] == 0 && code != -1 {
        return Ok(code);
    }
    // SAFETY: it ends with a 0, from the start or as the function says.
    let text = unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned();
    Err(Exception { text })
}

/// Runs `call` as it is.
#[cfg(not(all(plimsoll_icicle_shielded, panic = "unwind")))]
pub(crate) fn shielded<F: FnMut() -> c_int>(mut call: F) -> Result<c_int, Exception> {
    Ok(call())
}
