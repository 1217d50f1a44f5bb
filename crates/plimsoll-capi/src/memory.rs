//! The caller's memory: the only place that reads or writes through its pointers.

use std::ffi::{CStr, c_char};
use std::ptr;

use crate::failure::Failure;

/// A text of the caller's.
///
/// # Safety
///
/// `text` is null or points to a text that ends with a zero byte and does not change during the call.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::argument(format_args!("{what} is null; pass a text")));
    }
    // SAFETY: it is not null, and by the caller's promise a text that ends.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|error| Failure::argument(format_args!("{what} is not UTF-8: {error}")))
}

/// An array of the caller's.
///
/// # Safety
///
/// `first` is null or points to `count` values that do not change during the call.
pub(crate) unsafe fn array<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::argument(format_args!("{what} is null or not aligned; pass {count} values")));
    }
    // SAFETY: not null, aligned, of a size that exists, and by the caller's promise so many values.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// A place for a result, checked before anything happens.
#[derive(Debug)]
pub(crate) struct Out<T>(*mut T);

impl<T> Out<T> {
    /// # Safety
    ///
    /// `place` is null or may be written to until the end of the call.
    pub(crate) unsafe fn new(place: *mut T, what: &str) -> Result<Out<T>, Failure> {
        if place.is_null() || !place.is_aligned() {
            return Err(Failure::argument(format_args!("{what} is null or not aligned; pass where to write it")));
        }
        Ok(Out(place))
    }

    pub(crate) fn write(self, value: T) {
        // SAFETY: checked in `new` and, by the promise made there, writable; `write` drops nothing that was there.
        unsafe { ptr::write(self.0, value) }
    }
}

/// Copies values into the caller's array, as many as there is room for.
///
/// # Safety
///
/// `first` points to room for `room` values, or `room` is zero.
pub(crate) unsafe fn write_array<T: Copy>(values: &[T], first: *mut T, room: usize) -> Result<(), Failure> {
    let count = values.len().min(room);
    if count == 0 {
        return Ok(());
    }
    if first.is_null() || !first.is_aligned() {
        return Err(Failure::argument("the array is null or not aligned; pass where to write it"));
    }
    // SAFETY: both hold at least `count` values, and a fresh vector does not overlap the caller's array.
    unsafe { ptr::copy_nonoverlapping(values.as_ptr(), first, count) };
    Ok(())
}

/// Writes a text with a zero byte at its end, cut off at `size`; returns what the whole takes.
///
/// # Safety
///
/// `place` is null or points to `size` bytes that may be written.
pub(crate) unsafe fn write_text(text: &str, place: *mut c_char, size: usize) -> usize {
    if !place.is_null() && size > 0 {
        let mut length = text.len().min(size - 1);
        while !text.is_char_boundary(length) {
            length -= 1;
        }
        // SAFETY: `length` is less than `size`, so text and zero byte are within what may be written, and the text is
        // this library's own.
        unsafe {
            ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), place, length);
            place.add(length).write(0);
        }
    }
    text.len() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_whole_characters() {
        for (size, written) in [(1, ""), (2, "a"), (3, "a"), (4, "aß"), (9, "aßc")] {
            let mut buffer = [0x55 as c_char; 9];
            // SAFETY: `size` is at most the array's.
            let needed = unsafe { write_text("aßc", buffer.as_mut_ptr(), size) };
            assert_eq!(needed, 5);
            // SAFETY: it ends with the zero byte that was written.
            assert_eq!(unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_str(), Ok(written));
        }
        // SAFETY: null is allowed.
        assert_eq!(unsafe { write_text("aßc", ptr::null_mut(), 0) }, 5);
    }
}
