//! What tests set and ask.
//!
//! | set | what |
//! |---|---|
//! | `devices`, `memory` | how many devices of the kind `MOCK`, and the bytes of each |
//! | `silent` | devices do not tell how much memory they have |
//! | `layout` | 31 as since v3.1; 30 as before, where vector operations know no batches |
//! | `few_cores` | 1: as releases before v3.4 on two cores, where the processor's vector operations throw unless they are told of more threads |
//! | `licence` | 1: no device can be set for want of a licence |
//! | `wrong_msm`, `wrong_ntt`, `wrong_scale`, `wrong_from` | results are wrong; `wrong_from`: from this multiplication on |
//! | `garbage` | the sum of this multiplication is no point |
//! | `crash` | 1: setting a device ends the process |
//! | `scratch` | how much scratch multiplications take, in thousandths of the measured formula |
//! | `leak` | what a multiplication that is out of memory leaves behind |
//! | `neighbour` | bytes that somebody else holds on each device |
//! | `neighbour_at_msm`, `neighbour_then` | in the multiplication of this number, counted from the start, somebody else comes to hold so much |
//! | `half_domain` | a domain for which there is too little memory leaves half of it behind, and goes when it is released for the time of this number |
//! | `ntt_scratch` | what a transform takes besides, in thousandths of its vector |
//! | `domain_scale` | what a domain takes, in thousandths of its roots |
//! | `fail_at:NAME`, `fail_code` | the call number so many of this function, from now on, fails with that code, once; −1 throws, −2 throws something odd |
//! | `watch_bytes` | pieces of memory of exactly this size count in `secrets` |
//! | `breaks_at`, `breaks` | from this synchronisation on, this device's fail as if it were broken |
//! | `breaks_at_msm` | in this multiplication its device breaks |
//! | `broken`, `broken:N` | every synchronisation of every device, or of this one, fails, after what was begun is done; 2: those of streams alone |
//!
//! | get | what |
//! |---|---|
//! | `violations` | how often it was used in a way that ICICLE does not survive, or computes wrongly with |
//! | `used`, `peak` | bytes of device 0, `used:N` and `peak:N` of another |
//! | `host_peak` | the same of the processor |
//! | `replanned` | how often a multiplication found too little free to do as it was told |
//! | `calls:NAME` | how often a function was called |
//! | `switched` | how often memory was freed on a thread that was on another device, which it then no longer is |
//! | `allocations` | how many pieces of memory there are; `calls:extensions` how many extensions |
//! | `threads` | how many threads have made calls for devices of the kind `MOCK` |
//! | `secrets` | how many of the watched pieces of memory were freed with something in them |

use std::collections::HashMap;
use std::ffi::{CStr, c_char};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::devices::State;

static STATE: LazyLock<Mutex<State>> = LazyLock::new(|| Mutex::new(State::new()));

pub(crate) fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Settings and counters.
#[derive(Default)]
pub struct Knobs {
    set: HashMap<String, i64>,
    pub(crate) calls: HashMap<String, i64>,
    pub(crate) violations: i64,
    pub(crate) replanned: i64,
    pub(crate) secrets: i64,
    pub(crate) switched: i64,
}

impl Knobs {
    pub(crate) fn set(&mut self, key: &str, value: i64) {
        self.set.insert(key.to_owned(), value);
    }

    pub(crate) fn get(&self, key: &str, otherwise: i64) -> i64 {
        self.set.get(key).copied().unwrap_or(otherwise)
    }

    /// Counts a call; the code with which it is to fail, if it is its turn.
    pub(crate) fn call(&mut self, name: &str) -> Option<i64> {
        let calls = self.calls.entry(name.to_owned()).or_default();
        *calls += 1;
        if name == "msm" && Some(&*calls) == self.set.get("neighbour_at_msm") {
            let then = self.get("neighbour_then", 0);
            self.set("neighbour", then);
        }
        let left = self.set.get_mut(&format!("fail_at:{name}"))?;
        *left -= 1;
        (*left == 0).then(|| self.get("fail_code", 14))
    }
}

unsafe fn text<'a>(key: *const c_char) -> &'a str {
    // SAFETY: a test's string, which ends with a zero.
    unsafe { CStr::from_ptr(key) }.to_str().unwrap_or_default()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn icicle_mock_set(key: *const c_char, value: i64) {
    // SAFETY: as the caller says.
    let key = unsafe { text(key) };
    state().set(key, value);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn icicle_mock_get(key: *const c_char) -> i64 {
    // SAFETY: as the caller says.
    let key = unsafe { text(key) };
    let state = state();
    match key.split_once(':') {
        Some(("calls", name)) => state.knobs.calls.get(name).copied().unwrap_or(0),
        Some(("used", device)) => device.parse().map_or(-1, |device: usize| state.used(device) as i64),
        Some(("peak", device)) => device.parse().map_or(-1, |device: usize| state.peak(device) as i64),
        _ => match key {
            "violations" => state.knobs.violations,
            "replanned" => state.knobs.replanned,
            "switched" => state.knobs.switched,
            "secrets" => state.knobs.secrets,
            "used" => state.used(0) as i64,
            "peak" => state.peak(0) as i64,
            "host_peak" => state.host_peak() as i64,
            "threads" => state.threads() as i64,
            "allocations" => state.allocations() as i64,
            _ => -1,
        },
    }
}
