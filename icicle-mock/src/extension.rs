//! What a configuration says beyond its fields.

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::faults::state;
use crate::ffi::throw;

/// What an extension says.
pub struct Extension {
    pub(crate) chunks: c_int,
    pub(crate) threads: c_int,
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn create_config_extension() -> *mut c_void {
    if state().knobs.call("create_extension").is_some() {
        throw(c"injected", false);
    }
    *state().knobs.calls.entry("extensions".to_owned()).or_default() += 1;
    Box::into_raw(Box::new(Extension { chunks: 0, threads: 0 })).cast()
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn destroy_config_extension(extension: *mut c_void) {
    if state().knobs.call("destroy_extension").is_some() {
        throw(c"injected", false);
    }
    *state().knobs.calls.entry("extensions".to_owned()).or_default() -= 1;
    // SAFETY: made above.
    drop(unsafe { Box::from_raw(extension.cast::<Extension>()) });
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn config_extension_set_int(extension: *mut c_void, key: *const c_char, value: c_int) {
    if state().knobs.call("set_int").is_some() {
        throw(c"injected", false);
    }
    // SAFETY: made above; a text that ends with a zero.
    unsafe {
        let extension = &mut *extension.cast::<Extension>();
        match CStr::from_ptr(key).to_bytes() {
            b"nof_chunks" => extension.chunks = value,
            b"n_threads" => extension.threads = value,
            _ => {}
        }
    }
}
