//! CUDA's objects as values: streams, events, memory, and calls that check what they are given.
//!
//! Why this is sound: device addresses are numbers here, and no host reference is ever made from one. What a kernel does with
//! a wrong address breaks the context (an error that sticks) and no memory of this process. Host memory is given to CUDA in
//! two ways only: for the time of a call that ends when CUDA is done with it, or as a [`Slot`] of a [`Registered`] range,
//! which is written and freed only after the copy from it is done. Streams and events are CUDA's handles, which any thread
//! may use.

use std::cell::Cell;
use std::ffi::CStr;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;

use plimsoll::{Charged, Reservation};

use crate::error::CudaError;
use crate::ffi;

/// Turns a code into a result.
pub(crate) fn check(operation: &'static str, code: i32) -> Result<(), CudaError> {
    if code == 0 {
        return Ok(());
    }
    let text = |pointer: *const std::ffi::c_char| {
        if pointer.is_null() {
            return String::new();
        }
        // SAFETY: CUDA answers with a pointer to a constant, or null.
        unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
    };
    // SAFETY: these take any number.
    let (name, explanation) = unsafe { (ffi::pc_error_name(code), ffi::pc_error_text(code)) };
    Err(CudaError { code, name: text(name), text: text(explanation), operation })
}

/// What CUDA says of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Its name: `NVIDIA H200`.
    pub name: String,
    /// Its compute capability.
    pub major: i32,
    /// The minor part.
    pub minor: i32,
    /// How many multiprocessors it has.
    pub multiprocessors: u32,
    /// The newest CUDA that the driver serves.
    pub driver_version: i32,
    /// The CUDA that this was built with.
    pub runtime_version: i32,
    /// Its memory.
    pub total_bytes: u64,
    /// What was free of it.
    pub free_bytes: u64,
}

pub(crate) fn device_count() -> Result<u16, CudaError> {
    let mut count = 0;
    // SAFETY: the pointer is to a local.
    check("counting the devices", unsafe { ffi::pc_device_count(&mut count) })?;
    Ok(u16::try_from(count).unwrap_or(0))
}

/// The newest CUDA that the driver serves, 0 where there is none, and the one that this was built with.
pub(crate) fn versions() -> Result<(i32, i32), CudaError> {
    let (mut driver, mut runtime) = (0, 0);
    // SAFETY: the pointers are to locals.
    check("asking for versions", unsafe { ffi::pc_versions(&mut driver, &mut runtime) })?;
    Ok((driver, runtime))
}

/// Makes a device the calling thread's, and says what it is.
pub(crate) fn properties(device: u16) -> Result<Properties, CudaError> {
    let mut raw = ffi::Properties {
        name: [0; 256],
        major: 0,
        minor: 0,
        multiprocessors: 0,
        driver_version: 0,
        runtime_version: 0,
        total_bytes: 0,
        free_bytes: 0,
    };
    // SAFETY: the pointer is to a local of the type that the C side declares.
    check("asking what the device is", unsafe { ffi::pc_properties_of(device.into(), &mut raw) })?;
    SELECTED.set(Some(device));
    // SAFETY: the C side ends the name with a zero within the array.
    let name = unsafe { CStr::from_ptr(raw.name.as_ptr()) }.to_string_lossy().into_owned();
    Ok(Properties {
        name,
        major: raw.major,
        minor: raw.minor,
        multiprocessors: u32::try_from(raw.multiprocessors).unwrap_or(1).max(1),
        driver_version: raw.driver_version,
        runtime_version: raw.runtime_version,
        total_bytes: raw.total_bytes as u64,
        free_bytes: raw.free_bytes as u64,
    })
}

thread_local! {
    /// The device that this thread has selected, if any.
    static SELECTED: Cell<Option<u16>> = const { Cell::new(None) };
}

pub(crate) fn select(device: u16) -> Result<(), CudaError> {
    // SAFETY: takes any number.
    check("selecting the device", unsafe { ffi::pc_select(device.into()) })?;
    SELECTED.set(Some(device));
    Ok(())
}

/// Calls `f` with a device selected, and leaves the thread with what it had selected: for what may be dropped on another
/// device's lane.
pub(crate) fn with_selected<R>(device: u16, f: impl FnOnce() -> Result<R, CudaError>) -> Result<R, CudaError> {
    let before = SELECTED.get();
    let result = select(device).and_then(|()| f());
    match before {
        Some(other) if other != device => select(other).and(result),
        _ => result,
    }
}

pub(crate) fn has_kernels() -> Result<(), CudaError> {
    // SAFETY: takes nothing.
    check("looking for kernels for this device", unsafe { ffi::pc_has_kernels() })
}

/// The selected device's free and total bytes, as the driver says.
pub(crate) fn memory() -> Result<(u64, u64), CudaError> {
    let (mut free, mut total) = (0, 0);
    // SAFETY: the pointers are to locals.
    check("asking for free memory", unsafe { ffi::pc_memory(&mut free, &mut total) })?;
    Ok((free as u64, total as u64))
}

/// Memory from CUDA's own allocator.
#[derive(Debug)]
pub(crate) struct Allocation {
    device: u16,
    address: u64,
}

impl Allocation {
    /// On the selected device, whose number this is.
    pub(crate) fn new(device: u16, bytes: u64) -> Result<Self, CudaError> {
        let mut memory = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check("allocating device memory", unsafe { ffi::pc_alloc(&mut memory, bytes as usize) })?;
        Ok(Self { device, address: memory as u64 })
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // A lost device says no, and then there is nothing to free.
        let _ = with_selected(self.device, || {
            // SAFETY: it came from `pc_alloc`, and is freed once. CUDA waits for what uses it.
            check("freeing device memory", unsafe { ffi::pc_free(self.address as ffi::Pointer) })
        });
    }
}

/// A stream: work in it is done in order.
#[derive(Debug)]
pub(crate) struct Stream(ffi::Pointer);

// SAFETY: CUDA's calls take a stream from any thread, also from several at once.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new() -> Result<Self, CudaError> {
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check("making a stream", unsafe { ffi::pc_stream_create(&mut stream) })?;
        Ok(Self(stream))
    }

    pub(crate) fn raw(&self) -> ffi::Pointer {
        self.0
    }

    pub(crate) fn synchronise(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is alive.
        check("waiting for the device", unsafe { ffi::pc_stream_synchronise(self.0) })
    }

    /// What comes after this in the stream begins after the event.
    pub(crate) fn wait(&self, event: &Event) -> Result<(), CudaError> {
        // SAFETY: both are alive.
        check("waiting for an event", unsafe { ffi::pc_event_wait(event.0, self.0) })
    }

    pub(crate) fn fill(&self, address: u64, byte: u8, bytes: u64) -> Result<(), CudaError> {
        // SAFETY: device memory, by address.
        let code = unsafe { ffi::pc_fill(address as ffi::Pointer, byte.into(), bytes as usize, self.0) };
        check("filling device memory", code)
    }

    /// Copies to the device, and waits for it.
    pub(crate) fn copy_in(&self, address: u64, from: &[u8]) -> Result<(), CudaError> {
        // SAFETY: `from` is readable, and is not let go before the copy is done.
        let code = unsafe { ffi::pc_copy_in(address as ffi::Pointer, from.as_ptr().cast(), from.len(), self.0) };
        let begun = check("copying to the device", code);
        let done = self.synchronise();
        begun.and(done)
    }

    /// Copies from the device, and waits for it.
    pub(crate) fn copy_out(&self, to: &mut [u8], address: u64) -> Result<(), CudaError> {
        // SAFETY: `to` is writable, and is not let go before the copy is done.
        let code = unsafe { ffi::pc_copy_out(to.as_mut_ptr().cast(), address as ffi::Pointer, to.len(), self.0) };
        let begun = check("copying from the device", code);
        let done = self.synchronise();
        begun.and(done)
    }

    pub(crate) fn copy_within(&self, to: u64, from: u64, bytes: u64) -> Result<(), CudaError> {
        // SAFETY: device memory, by address.
        let code =
            unsafe { ffi::pc_copy_within(to as ffi::Pointer, from as ffi::ConstPointer, bytes as usize, self.0) };
        check("copying on the device", code)
    }

    /// One past the last byte that differs from `byte`. `result` is 8 bytes of device memory elsewhere.
    pub(crate) fn touched(&self, address: u64, bytes: u64, byte: u8, result: u64) -> Result<u64, CudaError> {
        let mut out = 0;
        // SAFETY: the pointer is to a local, and the call waits for the copy to it.
        let code = unsafe {
            ffi::pc_touched(
                address as ffi::ConstPointer,
                bytes as usize,
                byte.into(),
                result as ffi::Pointer,
                &mut out,
                self.0,
            )
        };
        check("looking for touched memory", code)?;
        Ok(out)
    }

    /// Breaks the context.
    pub(crate) fn break_context(&self) -> Result<(), CudaError> {
        // SAFETY: the stream is alive.
        check("breaking the context", unsafe { ffi::pc_break(self.0) })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by `pc_stream_create`, destroyed once.
        let _ = check("destroying a stream", unsafe { ffi::pc_stream_destroy(self.0) });
    }
}

/// A moment in a stream.
#[derive(Debug)]
pub(crate) struct Event(ffi::Pointer);

// SAFETY: CUDA's calls take an event from any thread, also from several at once.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

/// What an event is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EventKind {
    /// The order of things in streams.
    Order = 0,
    /// Also the time between two.
    Timed = 1,
    /// Something that a thread sleeps for.
    Awaited = 2,
}

impl Event {
    pub(crate) fn new(kind: EventKind) -> Result<Self, CudaError> {
        let mut event = ptr::null_mut();
        // SAFETY: the pointer is to a local.
        check("making an event", unsafe { ffi::pc_event_create(&mut event, kind as i32) })?;
        Ok(Self(event))
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: both are alive.
        check("recording an event", unsafe { ffi::pc_event_record(self.0, stream.0) })
    }

    pub(crate) fn synchronise(&self) -> Result<(), CudaError> {
        // SAFETY: the event is alive.
        check("waiting for an event", unsafe { ffi::pc_event_synchronise(self.0) })
    }

    /// From this to a later one, both done.
    pub(crate) fn milliseconds_to(&self, later: &Event) -> Result<f64, CudaError> {
        let mut out = 0.0;
        // SAFETY: the pointer is to a local.
        check("reading an event", unsafe { ffi::pc_event_milliseconds(self.0, later.0, &mut out) })?;
        Ok(out.into())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: made by `pc_event_create`, destroyed once.
        let _ = check("destroying an event", unsafe { ffi::pc_event_destroy(self.0) });
    }
}

/// Huge pages are registered in a fraction of the time of small ones.
const HUGE_PAGE: usize = 2 << 20;

/// Pages of this process, registered with CUDA for fast copies, and what pays for them.
pub(crate) struct Registered {
    device: u16,
    first: *mut u8,
    bytes: usize,
    /// Given up where CUDA does not let go of the pages.
    pages: ManuallyDrop<Pages>,
}

/// Freed first, returned after.
struct Pages {
    /// Empty as far as Rust is concerned: what is in its capacity is reached through pointers only. Witnesses pass through there.
    memory: Vec<u8>,
    _paid: Reservation,
}

impl fmt::Debug for Registered {
    /// Nothing of what is in it: that is secret, and being written by others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, bytes, .. } = self;
        f.debug_struct("Registered").field("device", device).field("bytes", bytes).finish_non_exhaustive()
    }
}

// SAFETY: the memory is reached through slots only, each of which is the only one to its part.
unsafe impl Send for Registered {}
// SAFETY: as above.
unsafe impl Sync for Registered {}

impl Registered {
    /// What so many bytes take with the alignment.
    pub(crate) const fn allocation_bytes(bytes: usize) -> usize {
        bytes.next_multiple_of(HUGE_PAGE) + HUGE_PAGE
    }

    /// Registers memory that was allocated with [`Registered::allocation_bytes`] of capacity, with the selected device, whose
    /// number this is.
    pub(crate) fn new(device: u16, memory: Charged<Vec<u8>>, bytes: usize) -> Result<Self, CudaError> {
        // At once in the order in which they are to go, should this end early.
        let mut pages = Pages::of(memory);
        let bytes = bytes.next_multiple_of(HUGE_PAGE);
        assert!(pages.memory.capacity() >= bytes + HUGE_PAGE, "room for the alignment");
        pages.memory.clear();
        let start = pages.memory.as_mut_ptr();
        let first = start.wrapping_add(start.align_offset(HUGE_PAGE));
        advise_huge(first, bytes);
        // Touches the pages that are used, and no others.
        // SAFETY: the range lies in the vector's capacity, by the assertion above.
        unsafe { first.write_bytes(0, bytes) };
        // SAFETY: the range lies in the vector, which neither grows nor goes before it is unregistered.
        check("registering host memory", unsafe { ffi::pc_host_register(first.cast(), bytes) })?;
        Ok(Self { device, first, bytes, pages: ManuallyDrop::new(pages) })
    }

    /// Cuts it into slots of `each` bytes.
    pub(crate) fn slots(self, each: usize) -> Result<Vec<Slot>, CudaError> {
        let bytes = self.bytes;
        let range = std::sync::Arc::new(self);
        let slot = |index: usize| {
            let copied = Event::new(EventKind::Awaited)?;
            let first = range.first.wrapping_add(index * each);
            Ok(Slot { first, bytes: each, secret: 0, copied, _range: range.clone() })
        };
        (0..bytes / each).map(slot).collect()
    }
}

impl Pages {
    fn of(memory: Charged<Vec<u8>>) -> Self {
        let (memory, paid) = memory.into_parts();
        Self { memory, _paid: paid }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: the range is this value's, and zeroed since `new`. The slots are gone, and have waited for their copies.
        let all = unsafe { std::slice::from_raw_parts_mut(self.first, self.bytes) };
        all.fill(0);
        zeroize::optimization_barrier(&*all);
        let unregistered = with_selected(self.device, || {
            // SAFETY: registered in `new`, once.
            check("unregistering host memory", unsafe { ffi::pc_host_unregister(self.first.cast()) })
        });
        // Pages that CUDA still has are not given to anybody else, and stay booked.
        if unregistered.is_ok() {
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.pages) };
        }
    }
}

/// A part of registered memory. Copies go through it one after the other.
#[derive(Debug)]
pub(crate) struct Slot {
    first: *mut u8,
    bytes: usize,
    /// So many bytes from the first on may be secret ones.
    secret: usize,
    /// The last copy from here is done.
    copied: Event,
    _range: std::sync::Arc<Registered>,
}

// SAFETY: a slot is the only one to its memory, as a vector is.
unsafe impl Send for Slot {}

impl Slot {
    /// Takes bytes, at most as many as it has, and begins to copy them to the device. Secret ones are here until they are
    /// [wiped](Slot::wipe).
    pub(crate) fn send(&mut self, from: &[u8], secret: bool, address: u64, stream: &Stream) -> Result<(), CudaError> {
        assert!(from.len() <= self.bytes, "a slot takes what fits");
        self.copied.synchronise()?;
        // SAFETY: no other slot has this memory, the range is alive, and the device has read what was here before.
        let here = unsafe { std::slice::from_raw_parts_mut(self.first, from.len()) };
        if secret {
            self.secret = self.secret.max(from.len());
        }
        here.copy_from_slice(from);
        // SAFETY: the memory is registered, and neither written nor freed before the event below.
        let code = unsafe { ffi::pc_copy_in(address as ffi::Pointer, here.as_ptr().cast(), here.len(), stream.raw()) };
        let begun = check("copying to the device", code).and_then(|()| self.copied.record(stream));
        if begun.is_err() {
            // The event does not say when the copy is done, if there is one.
            let _ = stream.synchronise();
        }
        begun
    }

    /// How many bytes of it may be secret.
    pub(crate) fn secret_bytes(&self) -> usize {
        self.secret
    }

    /// How many bytes of it are not zero.
    pub(crate) fn written_bytes(&self) -> usize {
        let _ = self.copied.synchronise();
        // SAFETY: as in `send`, and zeroed since the range was registered; nobody writes while this is borrowed.
        let here = unsafe { std::slice::from_raw_parts(self.first, self.bytes) };
        here.iter().filter(|&&byte| byte != 0).count()
    }

    /// Erases what is secret, once it has been copied.
    pub(crate) fn wipe(&mut self) {
        if self.secret == 0 {
            return;
        }
        // A broken context says no, and then nothing is under way.
        let _ = self.copied.synchronise();
        // SAFETY: as in `send`.
        let here = unsafe { std::slice::from_raw_parts_mut(self.first, self.secret) };
        here.fill(0);
        zeroize::optimization_barrier(&*here);
        self.secret = 0;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // A broken context says no, and then nothing is under way.
        let _ = self.copied.synchronise();
    }
}

/// Asks for huge pages. That they are not to be had is no error.
fn advise_huge(address: *mut u8, bytes: usize) {
    unsafe extern "C" {
        fn madvise(address: ffi::Pointer, length: usize, advice: i32) -> i32;
    }
    const MADV_HUGEPAGE: i32 = 14;
    if cfg!(target_os = "linux") {
        // SAFETY: the range belongs to an allocation of the caller's, and the advice does not change what is in it.
        let _ = unsafe { madvise(address.cast(), bytes, MADV_HUGEPAGE) };
    }
}

/// A plain value's bytes, to be copied to a device.
pub(crate) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` types have no padding and no pointers.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The same, to be copied into.
pub(crate) fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: `Plain` types have no padding and no pointers, and every bit pattern is one of them.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Types that are nothing but words, of which every pattern is a value as far as Rust is concerned.
///
/// # Safety
///
/// The type has no padding, no pointers and no forbidden patterns.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: words.
unsafe impl Plain for u8 {}
// SAFETY: words.
unsafe impl Plain for u32 {}
// SAFETY: `repr(transparent)` over `blst_fr`, four words.
unsafe impl Plain for blstrs::Scalar {}
// SAFETY: `repr(transparent)` over `blst_p1_affine`, 12 words.
unsafe impl Plain for blstrs::G1Affine {}
// SAFETY: `repr(transparent)` over `blst_p2_affine`, 24 words.
unsafe impl Plain for blstrs::G2Affine {}
// SAFETY: `repr(transparent)` over `blst_p1`, 18 words.
unsafe impl Plain for blstrs::G1Projective {}
// SAFETY: `repr(transparent)` over `blst_p2`, 36 words.
unsafe impl Plain for blstrs::G2Projective {}

#[cfg(test)]
mod tests;
