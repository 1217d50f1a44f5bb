//! What a configuration says beyond its fields.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::null_mut;

use super::scope::Scope;
use crate::abi::code;
use crate::error::CallError;
use crate::shield::shielded;

/// The key under which the CUDA backend looks for the number of chunks.
const CHUNKS_KEY: &CStr = c"nof_chunks";
/// The key under which the processor's backend looks for the number of threads.
const THREADS_KEY: &CStr = c"n_threads";

impl Scope<'_, '_> {
    /// An extension that says: in so many chunks, and with so many threads (0: as many as it likes). It is there until the stream
    /// has been synchronised. Null where there are no extensions; then a backend has but one way.
    ///
    /// # Errors
    ///
    /// An exception: without what it says the call would go another way than the one that was paid for.
    pub(super) fn extension(&mut self, chunks: Option<c_int>, threads: u32) -> Result<*mut c_void, CallError> {
        let symbols = &self.here.library().symbols;
        let (Some(create), Some(set), Some(_)) =
            (symbols.create_config_extension, symbols.config_extension_set_int, symbols.destroy_config_extension)
        else {
            return Ok(null_mut());
        };
        let threads = c_int::try_from(threads).unwrap_or(0);
        let mut extension = null_mut();
        let place = &mut extension;
        let made = shielded(|| {
            // SAFETY: functions of ICICLE's; the keys end with a zero.
            unsafe {
                *place = create();
                if !place.is_null() {
                    if let Some(chunks) = chunks {
                        set(*place, CHUNKS_KEY.as_ptr(), chunks);
                    }
                    if threads > 0 {
                        set(*place, THREADS_KEY.as_ptr(), threads);
                    }
                }
            }
            code::SUCCESS
        });
        if !extension.is_null() {
            self.here.keep_extension(self.stream, extension);
        }
        let made = made.map(|_| extension).map_err(|exception| CallError::thrown("configure", exception));
        self.note(made, 0)
    }
}
