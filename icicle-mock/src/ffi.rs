//! ICICLE's functions.

use std::ffi::{CStr, c_char, c_int, c_void};

use blstrs::{G1Affine, G2Affine, Scalar};
use ff::{Field, PrimeField};

use crate::compute::{Group2, montgomery, standard, sum, transform};
use crate::devices::{ACTIVE, OutOfMemory, Place, SPOILT};
use crate::extension::Extension;
use crate::faults::state;
use crate::sizes::{domain_bytes, host_msm_bytes, msm_bytes};

pub(crate) type Code = c_int;

#[cfg(throws)]
unsafe extern "C-unwind" {
    fn plimsoll_icicle_mock_throw(what: *const c_char, odd: bool) -> !;
}

pub(crate) fn throw(what: &CStr, odd: bool) -> Code {
    #[cfg(throws)]
    // SAFETY: a text that ends with a zero. No lock is held, and nothing that has to be dropped.
    unsafe {
        plimsoll_icicle_mock_throw(what.as_ptr(), odd)
    }
    #[cfg(not(throws))]
    {
        let _ = (what, odd);
        14
    }
}

/// Counts a call, and has it fail where a test says so.
macro_rules! begin {
    ($name:literal) => {{
        let failure = state().knobs.call($name);
        match failure {
            None => {}
            Some(-1) => return throw(c"injected", false),
            Some(-2) => return throw(c"injected", true),
            Some(code) => return code as Code,
        }
        state().enter()
    }};
}
pub(crate) use begin;

pub(crate) fn violation(code: Code) -> Code {
    state().knobs.violations += 1;
    code
}

#[repr(C)]
pub struct Device {
    kind: [c_char; 64],
    id: c_int,
}

fn place_of(device: &Device) -> Result<Place, bool> {
    // SAFETY: 64 bytes, of which the last is a zero.
    let kind = unsafe { CStr::from_ptr(device.kind.as_ptr()) }.to_bytes();
    match (kind, usize::try_from(device.id)) {
        (b"CPU", Ok(0)) => Ok(0),
        (b"CPU", _) => Err(true),
        (b"MOCK", Ok(id)) if id < state().device_count() => Ok(id + 1),
        (b"MOCK", _) => Err(true),
        _ => Err(false),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_load_backend(_: *const c_char, _: bool) -> Code {
    begin!("load_backend");
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_load_backend_from_env_or_default() -> Code {
    begin!("load");
    // As where there are no backends.
    12
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_is_device_available(device: *const Device) -> Code {
    begin!("is_available");
    // SAFETY: a device of the caller's.
    match place_of(unsafe { &*device }) {
        // It looks at the kind alone.
        Ok(_) | Err(true) => 0,
        Err(false) => 1,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_set_device(device: *const Device) -> Code {
    begin!("set_device");
    if state().knobs.get("licence", 0) != 0 {
        return 13;
    }
    if state().knobs.get("crash", 0) != 0 {
        std::process::abort();
    }
    // SAFETY: a device of the caller's.
    match place_of(unsafe { &*device }) {
        Ok(place) => {
            ACTIVE.set(place);
            0
        }
        Err(true) => 1,
        Err(false) => {
            violation(0);
            throw(c"no backend for the device", false)
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_get_device_count(count: *mut c_int) -> Code {
    begin!("device_count");
    let devices = if ACTIVE.get() == 0 { 1 } else { state().device_count() };
    // SAFETY: a place of the caller's.
    unsafe { *count = devices as c_int };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_get_registered_devices(out: *mut c_char, len: usize) -> Code {
    begin!("registered");
    let text = b"CPU,MOCK\0";
    if len < text.len() {
        return 2;
    }
    // SAFETY: so many bytes of the caller's.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), out, text.len()) };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_get_available_memory(total: *mut usize, free: *mut usize) -> Code {
    let place = begin!("memory");
    let state = state();
    if place == 0 || state.knobs.get("silent", 0) != 0 {
        return 10;
    }
    // SAFETY: places of the caller's.
    unsafe {
        *total = state.total_bytes(place) as usize;
        *free = state.free_bytes(place) as usize;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_malloc(out: *mut *mut c_void, bytes: usize) -> Code {
    let place = begin!("malloc");
    match state().allocate(place, bytes) {
        Ok(address) => {
            // SAFETY: a place of the caller's.
            unsafe { *out = address as *mut c_void };
            0
        }
        Err(OutOfMemory) => 4,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_free(address: *mut c_void) -> Code {
    let place = begin!("free");
    let home = state().home(address as usize);
    let Some(home) = home else { return violation(1) };
    if home != place {
        // The trap: the thread is on that device afterwards.
        ACTIVE.set(home);
        state().knobs.switched += 1;
    }
    state().release(address as usize);
    0
}

pub(crate) type Work = Box<dyn FnOnce() -> Code>;

/// A stream: what was begun on it, and not done.
pub struct Stream {
    place: Place,
    work: Vec<Work>,
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_create_stream(out: *mut *mut c_void) -> Code {
    let place = begin!("create_stream");
    let stream = match place {
        0 => std::ptr::null_mut(),
        _ => Box::into_raw(Box::new(Stream { place, work: Vec::new() })).cast(),
    };
    // SAFETY: a place of the caller's.
    unsafe { *out = stream };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_destroy_stream(stream: *mut c_void) -> Code {
    begin!("destroy_stream");
    if !stream.is_null() {
        // SAFETY: made by `icicle_create_stream`, and not used again.
        let stream = unsafe { Box::from_raw(stream.cast::<Stream>()) };
        if !stream.work.is_empty() {
            return violation(9);
        }
    }
    0
}

/// Does it now, or when the stream is synchronised.
pub(crate) fn begin_on(stream: *mut c_void, place: Place, is_async: bool, work: Work) -> Code {
    if stream.is_null() || !is_async {
        return work();
    }
    // SAFETY: a stream of this library's, which one thread uses.
    let stream = unsafe { &mut *stream.cast::<Stream>() };
    if stream.place != place {
        return violation(1);
    }
    stream.work.push(work);
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_stream_synchronize(stream: *mut c_void) -> Code {
    let place = begin!("synchronize");
    {
        let mut state = state();
        let calls = state.knobs.calls.get("synchronize").copied();
        if calls.is_some_and(|calls| calls >= state.knobs.get("breaks_at", i64::MAX)) {
            let device = state.knobs.get("breaks", 0);
            state.knobs.set(&format!("broken:{device}"), 1);
        }
    }
    let broken = broken(place) != 0;
    if stream.is_null() {
        return if broken { 7 } else { 0 };
    }
    // SAFETY: a stream of this library's, which one thread uses.
    let stream = unsafe { &mut *stream.cast::<Stream>() };
    if stream.place != place {
        return violation(1);
    }
    let codes: Vec<Code> = stream.work.drain(..).map(|work| work()).collect();
    if broken { 7 } else { codes.into_iter().find(|code| *code != 0).unwrap_or(0) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_device_synchronize() -> Code {
    let place = begin!("device_synchronize");
    if broken(place) == 1 { 7 } else { 0 }
}

/// What of a device's synchronisations fails: 1 all, 2 those of its streams.
fn broken(place: Place) -> i64 {
    let state = state();
    let of_all = state.knobs.get("broken", 0);
    place.checked_sub(1).map_or(of_all, |mock| state.knobs.get(&format!("broken:{mock}"), of_all))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_copy_to_device_async(
    to: *mut c_void,
    from: *const c_void,
    len: usize,
    stream: *mut c_void,
) -> Code {
    let place = begin!("copy_to_device");
    let (to, from) = (to as usize, from as usize);
    let work = move || {
        let mut state = state();
        let Some(bytes) = state.bytes(place, to, len) else { return 3 };
        // SAFETY: so many bytes of the caller's, who promised to keep them until the stream is synchronised.
        bytes.copy_from_slice(unsafe { std::slice::from_raw_parts(from as *const u8, len) });
        0
    };
    begin_on(stream, place, true, Box::new(work))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_copy_to_host_async(
    to: *mut c_void,
    from: *const c_void,
    len: usize,
    stream: *mut c_void,
) -> Code {
    let place = begin!("copy_to_host");
    let (to, from) = (to as usize, from as usize);
    let work = move || {
        let mut state = state();
        let Some(bytes) = state.bytes(place, from, len) else { return 3 };
        // SAFETY: so many bytes of the caller's, who promised to keep them until the stream is synchronised.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, len) };
        0
    };
    begin_on(stream, place, true, Box::new(work))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn icicle_memset_async(
    to: *mut c_void,
    value: c_int,
    len: usize,
    stream: *mut c_void,
) -> Code {
    let place = begin!("memset");
    let to = to as usize;
    let work = move || {
        let mut state = state();
        let Some(bytes) = state.bytes(place, to, len) else { return 3 };
        bytes.fill(value as u8);
        0
    };
    begin_on(stream, place, true, Box::new(work))
}

/// The fields of `MSMConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MsmConfig {
    stream: *mut c_void,
    precompute_factor: c_int,
    c: c_int,
    bitsize: c_int,
    batch_size: c_int,
    points_shared: bool,
    scalars_on_device: bool,
    scalars_montgomery: bool,
    points_on_device: bool,
    points_montgomery: bool,
    results_on_device: bool,
    is_async: bool,
    ext: *mut c_void,
}

fn msm<G: Group2>(
    scalars: *const c_void,
    points: *const c_void,
    n: c_int,
    config: *const MsmConfig,
    out: *mut c_void,
) -> Code {
    let place = begin!("msm");
    // SAFETY: a configuration of the caller's.
    let config = unsafe { *config };
    if n <= 0 || config.batch_size != 1 || config.precompute_factor != 1 || config.results_on_device {
        // The first is a division by zero there; the others nobody here asks for.
        return violation(11);
    }
    if !config.points_on_device || config.points_montgomery {
        violation(0);
    }
    if SPOILT.replace(false) {
        return 2;
    }
    let (count, c) = (n as usize, if config.c > 0 { config.c as u32 } else { 10 });
    let (scratch, estimate) = msm_bytes::<G>(count as u64, c);
    let copies = u64::from(config.scalars_montgomery) * 32 * count as u64;
    let scratch = if place > 0 {
        scratch * state().knobs.get("scratch", 1000) as u64 / 1000 + copies
    } else {
        // SAFETY: made by `create_config_extension`, and kept by the caller until it is over.
        let told = unsafe { config.ext.cast::<Extension>().as_ref() }.map_or(0, |extension| extension.threads);
        let threads = u64::try_from(told).ok().filter(|threads| *threads > 0);
        host_msm_bytes::<G>(
            c,
            threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from) as u64),
        )
    };
    {
        let mut state = state();
        let inputs = count as u64 * (32 + G::AFFINE as u64);
        if place > 0 && (state.free_bytes(place) + inputs) * 7 < estimate * 10 {
            state.knobs.replanned += 1;
        }
        if state.take(place, scratch).is_err() {
            let leak = (state.knobs.get("leak", 0) as u64).min(state.free_bytes(place));
            let leaked = state.take(place, leak);
            drop(state);
            let Ok(()) = leaked else { return violation(14) };
            SPOILT.set(true);
            return 2;
        }
    }
    let wrong = {
        let state = state();
        let from = state.knobs.get("wrong_from", i64::MAX);
        state.knobs.get("wrong_msm", 0) != 0 || state.knobs.calls.get("msm").is_some_and(|calls| *calls >= from)
    };
    {
        let mut state = state();
        if place > 0 && state.knobs.calls.get("msm").copied() == Some(state.knobs.get("breaks_at_msm", 0)) {
            state.knobs.set(&format!("broken:{}", place - 1), 1);
        }
    }
    let garbage = {
        let state = state();
        state.knobs.calls.get("msm").copied() == Some(state.knobs.get("garbage", 0))
    };
    let (scalars, points, out) = (scalars as usize, points as usize, out as usize);
    if !out.is_multiple_of(8) || !scalars.is_multiple_of(8) || !points.is_multiple_of(8) {
        // Its own types are read and written there.
        return violation(11);
    }
    let multiply = move || {
        let mut state = state();
        let Some(bytes) = state.bytes(place, scalars, 32 * count) else { return 3 };
        let read = if config.scalars_montgomery { montgomery } else { standard };
        let Some(values) = bytes.chunks_exact(32).map(read).collect::<Option<Vec<Scalar>>>() else {
            state.knobs.violations += 1;
            return 11;
        };
        let Some(points) = state.bytes(place, points, G::AFFINE * count) else { return 3 };
        let points = points.to_vec();
        drop(state);
        let mut total = sum::<G>(&values, &points);
        if wrong {
            total += G::generator();
        }
        // SAFETY: so many bytes of the caller's, who promised to keep them until the stream is synchronised.
        let out = unsafe { std::slice::from_raw_parts_mut(out as *mut u8, G::PROJECTIVE) };
        G::write(&total, out);
        if garbage {
            out.fill(0xff);
        }
        0
    };
    // Others find it taken until the sum is there.
    let work = move || {
        let code = multiply();
        state().give_back(place, scratch);
        code
    };
    begin_on(config.stream, place, config.is_async, Box::new(work))
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bls12_381_msm(
    scalars: *const c_void,
    points: *const c_void,
    n: c_int,
    config: *const MsmConfig,
    out: *mut c_void,
) -> Code {
    msm::<G1Affine>(scalars, points, n, config, out)
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bls12_381_g2_msm(
    scalars: *const c_void,
    points: *const c_void,
    n: c_int,
    config: *const MsmConfig,
    out: *mut c_void,
) -> Code {
    begin!("g2_msm");
    msm::<G2Affine>(scalars, points, n, config, out)
}

/// Functions that tell releases apart. Nobody calls them.
macro_rules! marks {
    ($($name:ident)+) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name() -> Code {
            violation(10)
        }
    )+};
}

marks! {
    bls12_381_vector_sum
    bls12_381_ecadd
    bls12_381_execute_program
    icicle_set_default_device
    bls12_381_create_predefined_returning_value_program
    bls12_381_generate_program
    bls12_381_vector_inv
    bls12_381_is_on_curve
    bls12_381_g2_is_on_curve
    bls12_381_projective_eq
}

/// The fields of `NTTConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NttConfig {
    stream: *mut c_void,
    coset_gen: [u8; 32],
    batch_size: c_int,
    columns_batch: bool,
    ordering: c_int,
    inputs_on_device: bool,
    outputs_on_device: bool,
    is_async: bool,
    ext: *mut c_void,
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bls12_381_ntt_init_domain(root: *const c_void, _config: *const c_void) -> Code {
    let place = begin!("init_domain");
    // SAFETY: a scalar of the caller's.
    let bytes = unsafe { *root.cast::<[u8; 32]>() };
    let Some(root) = standard(&bytes) else { return violation(11) };
    let Some(log_size) = (0..=Scalar::S).find(|log| root.pow_vartime([1_u64 << log]) == Scalar::ONE) else {
        return violation(11);
    };
    let mut state = state();
    if state.domain(place).is_some() || state.has_half_a_domain(place) {
        // The trap: nothing is done, and all is said to be well.
        state.knobs.violations += 1;
        return 0;
    }
    let bytes = domain_bytes(place, log_size) * state.knobs.get("domain_scale", 1000) as u64 / 1000;
    if state.make_domain(place, (log_size, root), bytes).is_err() {
        return 4;
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bls12_381_ntt_release_domain() -> Code {
    let place = begin!("release_domain");
    let mut state = state();
    match state.release_domain(place) {
        Some(0) => 0,
        // It says what went wrong before.
        Some(_) => 4,
        None => 11,
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn bls12_381_ntt(
    input: *const c_void,
    n: c_int,
    direction: c_int,
    config: *const NttConfig,
    out: *mut c_void,
) -> Code {
    let place = begin!("ntt");
    // SAFETY: a configuration of the caller's.
    let config = unsafe { *config };
    let domain = state().domain(place);
    let n = n as usize;
    let Some((log_size, root)) = domain.filter(|(log_size, _)| n.is_power_of_two() && n.ilog2() <= *log_size) else {
        violation(0);
        return throw(c"the domain is too small", false);
    };
    let in_place = std::ptr::eq(input, out) && config.inputs_on_device && config.outputs_on_device;
    let (Some(coset), true) = (standard(&config.coset_gen), in_place) else { return violation(11) };
    if config.ordering != 0 || config.batch_size != 1 || !(0..=1).contains(&direction) {
        return violation(11);
    }
    let root = root.pow_vartime([1_u64 << (log_size - n.ilog2())]);
    let wrong = state().knobs.get("wrong_ntt", 0) != 0;
    let scratch = {
        let mut state = state();
        let scratch = 32 * n as u64 * state.knobs.get("ntt_scratch", 0) as u64 / 1000;
        if state.take(place, scratch).is_err() {
            return 4;
        }
        scratch
    };
    let at = out as usize;
    let transform_all = move || {
        let mut state = state();
        let Some(bytes) = state.bytes(place, at, 32 * n) else { return 3 };
        let Some(mut data) = bytes.chunks_exact(32).map(standard).collect::<Option<Vec<Scalar>>>() else {
            state.knobs.violations += 1;
            return 11;
        };
        let invert = |value: Scalar| Option::<Scalar>::from(value.invert()).unwrap_or(Scalar::ZERO);
        let shift_by = |data: &mut [Scalar], by: Scalar| {
            let mut power = Scalar::ONE;
            for value in data {
                *value *= power;
                power *= by;
            }
        };
        if direction == 0 {
            shift_by(&mut data, coset);
            transform(&mut data, root);
        } else {
            transform(&mut data, invert(root));
            let scale = invert(Scalar::from(n as u64));
            data.iter_mut().for_each(|value| *value *= scale);
            shift_by(&mut data, invert(coset));
        }
        if wrong {
            data[0] += Scalar::ONE;
        }
        let Some(bytes) = state.bytes(place, at, 32 * n) else { return 3 };
        for (to, from) in bytes.chunks_exact_mut(32).zip(&data) {
            to.copy_from_slice(&from.to_bytes_le());
        }
        0
    };
    // Others find it taken until the transform is made.
    let work = move || {
        let code = transform_all();
        state().give_back(place, scratch);
        code
    };
    begin_on(config.stream, place, config.is_async, Box::new(work))
}
