//! What a device's thread has for itself: its streams, and how they are opened, waited for and closed.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::claim::Claim;
use super::{Manner, Shared};
use crate::abi::{Code, code};
use crate::error::{CallError, Fault, OpenError};
use crate::library::Library;
use crate::memory::Scratch;
use crate::name::DeviceName;
use crate::shield::shielded;

/// How often ICICLE is asked to let go of a domain that it did not make to its end.
const RELEASES_MAX: u32 = 16;

/// The owner's own things. They never leave its thread.
pub(super) struct Here {
    pub(super) library: &'static Library,
    pub(super) shared: Arc<Shared>,
    pub(super) streams: Vec<Stream>,
    idle: Vec<usize>,
    /// How many threads a vector operation is told to share, where the device is the processor; otherwise 0.
    pub(super) vector_threads: u32,
    /// How many devices of this kind there are.
    siblings: u16,
    /// How many other calls are under way while one begins.
    pub(super) beside: usize,
    /// That the device is this owner's alone; `None` beside others.
    claim: Option<Claim>,
}

/// A stream, and what is let go when it has been synchronised.
pub(super) struct Stream {
    pub(super) handle: *mut c_void,
    extensions: Vec<*mut c_void>,
    /// The most that ICICLE may have allocated for what is under way.
    allocates: u64,
}

pub(super) fn check(operation: &'static str, wanted: u64, call: impl FnMut() -> Code) -> Result<(), CallError> {
    match shielded(call) {
        Ok(code::SUCCESS) => Ok(()),
        Ok(code) => Err(CallError::from_code(operation, code, wanted)),
        Err(exception) => Err(CallError::thrown(operation, exception)),
    }
}

/// Frees device memory. The calling thread is the owner's.
pub(super) fn free(library: &Library, shared: &Shared, address: usize, bytes: u64) -> Result<(), CallError> {
    if let Some(error) = shared.refusal(Manner { operation: "free", alone: false, tidies: true }) {
        return Err(error);
    }
    let free = library.symbols.free;
    // SAFETY: the address came from `icicle_malloc` on this thread, and whoever had it has let go of it.
    let freed = check("free", 0, || unsafe { free(address as *mut c_void) });
    shared.allocated.fetch_sub(bytes, Ordering::Relaxed);
    if freed.is_err() {
        // Nobody has it any more: it has leaked, which whoever looks at the device books.
        shared.unfreed.fetch_add(bytes, Ordering::Relaxed);
        shared.doubt();
    }
    freed
}

impl Here {
    /// Makes the device this thread's.
    pub(super) fn open(
        library: &'static Library,
        name: &DeviceName,
        streams: usize,
        shared: Arc<Shared>,
        claim: Option<Claim>,
    ) -> Result<Self, OpenError> {
        let symbols = &library.symbols;
        let raw = name.raw();
        let raw = &raw const raw;
        let missing = |message: String| OpenError::NoSuchDevice {
            wanted: name.to_string(),
            registered: registered(library).unwrap_or_else(|| "none that it would name".to_owned()),
            message,
        };
        let refused = |error: CallError| match error.fault {
            Fault::Licence => OpenError::Licence { device: name.to_string() },
            fault => missing(fault.to_string()),
        };
        // Setting a device for which there is no backend throws in some versions, so this is asked first. That it answers 0 says
        // little: it does so without a driver too.
        if let Some(is_available) = symbols.is_device_available {
            // SAFETY: a function of ICICLE's with a device to read.
            check("look for the device", 0, || unsafe { is_available(raw) }).map_err(refused)?;
        }
        let set_device = symbols.set_device;
        // SAFETY: as above.
        check("set the device", 0, || unsafe { set_device(raw) }).map_err(refused)?;
        let mut siblings = 1;
        if let Some(get_device_count) = symbols.get_device_count {
            let mut count: c_int = 0;
            let place = &raw mut count;
            // SAFETY: a function of ICICLE's with a number to write.
            let counted = check("count devices", 0, || unsafe { get_device_count(place) });
            if counted.is_ok() && count <= c_int::from(name.id()) {
                return Err(missing(format!("there are {count} of that kind")));
            }
            if counted.is_ok() {
                siblings = u16::try_from(count).unwrap_or(u16::MAX);
            }
        }
        // Releases before v3.4 start one thread fewer than they are told, and throw where that is none. They tell themselves one
        // fewer than there are, so that with two cores nothing would go.
        let vector_threads = Scratch::of(name, false).threads();
        let vector_threads = if vector_threads == 0 { 0 } else { vector_threads.max(2) };
        let (streams_open, idle, beside) = (Vec::new(), Vec::new(), 0);
        let mut here = Self { library, shared, streams: streams_open, idle, vector_threads, siblings, beside, claim };
        for _ in 0..streams {
            if let Err(error) = here.open_stream() {
                here.close();
                return Err(OpenError::call(error, name));
            }
        }
        Ok(here)
    }

    fn open_stream(&mut self) -> Result<(), CallError> {
        let create = self.library.symbols.create_stream;
        let mut handle: *mut c_void = null_mut();
        let place = &raw mut handle;
        // SAFETY: a function of ICICLE's with a pointer to write.
        let created = check("create a stream", 0, || unsafe { create(place) });
        match created {
            // The processor has none, and does everything at once.
            Ok(()) | Err(CallError { fault: Fault::NotImplemented, .. }) => {}
            Err(error) => return Err(error),
        }
        self.idle.push(self.streams.len());
        self.streams.push(Stream { handle, extensions: Vec::new(), allocates: 0 });
        Ok(())
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn siblings(&self) -> u16 {
        self.siblings
    }

    pub(super) fn refusal(&self, manner: Manner) -> Option<CallError> {
        self.shared.refusal(manner)
    }

    /// Whether nobody else calls the device.
    pub(super) fn is_alone(&self) -> bool {
        self.claim.is_some()
    }

    pub(super) fn free(&self, address: usize, bytes: u64) -> Result<(), CallError> {
        free(self.library, &self.shared, address, bytes)
    }

    pub(super) fn note_beside(&mut self, count: usize) {
        self.beside = count;
    }

    /// Notes that what begins on the stream may allocate so much.
    pub(super) fn note_allocates(&mut self, stream: usize, bytes: u64) {
        self.streams[stream].allocates += bytes;
    }

    /// Has ICICLE let go of what there is of a domain that it has failed to make, and says whether that is gone. ICICLE may have to be
    /// asked more than once: until it is done it says what went wrong before. Over a rest of the old one it would make no other.
    pub(super) fn release_half_a_domain(&self) -> bool {
        let release = self.library.symbols.ntt_release_domain;
        let times = if mutant!("icicle-releases-once") { 1 } else { RELEASES_MAX };
        let is_gone = (0..times).any(|_| {
            // SAFETY: a function of ICICLE's without arguments.
            match check("release the domain", 0, || unsafe { release() }) {
                Ok(()) => true,
                // There is none.
                Err(error) => matches!(error.fault, Fault::InvalidArgument | Fault::NotImplemented),
            }
        });
        is_gone || mutant!("icicle-releases-once")
    }

    /// Until the stream has been synchronised.
    pub(super) fn keep_extension(&mut self, stream: usize, extension: *mut c_void) {
        self.streams[stream].extensions.push(extension);
    }

    pub(super) fn has_stream(&self) -> bool {
        !self.idle.is_empty()
    }

    pub(super) fn take_stream(&mut self) -> usize {
        self.idle.pop().expect("the owner takes a call only where there is a stream to spare")
    }

    pub(super) fn note_under_way(&self, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        self.shared.under_way_peak.fetch_max(count, Ordering::Relaxed);
    }

    /// Waits for a stream, and has it to spare again.
    pub(super) fn synchronise(&mut self, stream: usize, operation: &'static str) -> Result<(), CallError> {
        let synchronize = self.library.symbols.stream_synchronize;
        let handle = self.streams[stream].handle;
        let wait = || {
            // SAFETY: a function of ICICLE's with a stream of this device, or the null stream.
            let waited = check(operation, 0, || unsafe { synchronize(handle) });
            waited.map_err(|error| match error.fault {
                // Whatever it is that was wanting, what was under way has not come to its end, and nobody can tell how far it came.
                Fault::Exception { .. } => error,
                fault => CallError { operation, fault: Fault::Unfinished { code: fault.code() } },
            })
        };
        let first = wait();
        if first.is_err()
            && let Err(error) = wait().or_else(|error| self.wait_for_all().ok_or(error))
        {
            self.shared.fall_silent(format!("it does not say any more when it is done: {error}"));
        }
        let allocates = std::mem::take(&mut self.streams[stream].allocates);
        if self.shared.is_silent() {
            // What is under way may use them for ever.
            self.streams[stream].extensions.clear();
        }
        if let Some(destroy) = self.library.symbols.destroy_config_extension {
            for extension in self.streams[stream].extensions.drain(..) {
                let _ = shielded(|| {
                    // SAFETY: made by `create_config_extension`, and used by a call that is over.
                    unsafe { destroy(extension) };
                    code::SUCCESS
                });
            }
        }
        self.idle.push(stream);
        self.shared.note(first, allocates)
    }

    /// Waits for all that the device has to do; `None` if it does not say that it is done.
    fn wait_for_all(&self) -> Option<()> {
        let synchronize = self.library.symbols.device_synchronize?;
        // SAFETY: a function of ICICLE's without arguments.
        check("wait for the device", 0, || unsafe { synchronize() }).ok()
    }

    /// Lets go of the domain and the streams, and then of the device, at the thread's end. One that has fallen silent, or would not let
    /// go of its domain, is nobody's any more: whoever opened it would not know of that.
    pub(super) fn close(&mut self) {
        if !self.shared.is_silent() {
            let destroy = self.library.symbols.destroy_stream;
            for stream in self.streams.drain(..).filter(|stream| !stream.handle.is_null()) {
                // SAFETY: a stream of this device, which has been synchronised.
                let _ = check("destroy a stream", 0, || unsafe { destroy(stream.handle) });
            }
            if self.shared.domain.load(Ordering::Relaxed) != 0 {
                let release = self.library.symbols.ntt_release_domain;
                // SAFETY: a function of ICICLE's without arguments.
                if let Err(error) = check("release the domain", 0, || unsafe { release() }) {
                    self.shared.fall_silent(format!("it did not let go of its domain: {error}"));
                }
            }
        }
        let Some(claim) = self.claim.take() else { return };
        if self.shared.is_silent() && !mutant!("icicle-claims-no-more") {
            claim.for_good(self.shared.lost.get().map_or("", String::as_str));
        }
    }
}

/// The kinds of devices that ICICLE has backends for.
pub(crate) fn registered(library: &Library) -> Option<String> {
    let get = library.symbols.get_registered_devices?;
    let mut text = [0_u8; 512];
    let (place, len) = (text.as_mut_ptr(), text.len() - 1);
    // SAFETY: a function of ICICLE's with so many bytes to write.
    check("list devices", 0, || unsafe { get(place.cast(), len) }).ok()?;
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    Some(String::from_utf8_lossy(text).into_owned()).filter(|text| !text.is_empty())
}
