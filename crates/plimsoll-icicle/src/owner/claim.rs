//! Whose a device is in this process.
//!
//! ICICLE has one domain a device: it says that a second one is made, and makes none. Two owners of one device would each believe
//! in a domain of their own, and one of them would compute beyond it, which ends the process. So a device has one owner, which holds
//! a [`Claim`]; it lies with the owner's thread, and ends when that thread has made its last call. Whoever keeps an owner, or memory
//! of it, keeps the device.

use crate::error::OpenError;
use crate::library::Library;
use crate::name::DeviceName;

#[expect(clippy::disallowed_types, reason = "nothing that a model looks at")]
static CLAIMED: std::sync::Mutex<Vec<Entry>> = std::sync::Mutex::new(Vec::new());

/// A device of a library's. A function's address stands for the library: one that was opened twice is one.
#[derive(Clone, PartialEq, Eq)]
struct Which(usize, DeviceName);

/// A device that is claimed.
struct Entry {
    which: Which,
    /// Why nobody is to have it any more.
    gone: Option<String>,
}

fn with<R>(f: impl FnOnce(&mut Vec<Entry>) -> R) -> R {
    f(&mut CLAIMED.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
}

/// That a device is one owner's, until this is dropped.
pub(super) struct Claim(Which);

impl Claim {
    pub(super) fn new(library: &Library, name: &DeviceName) -> Result<Self, OpenError> {
        let which = Which(library.symbols.msm as usize, name.clone());
        with(|claimed| {
            let is_it = |entry: &&Entry| entry.which == which && !mutant!("icicle-two-owners");
            let Some(entry) = claimed.iter().find(is_it) else {
                claimed.push(Entry { which: which.clone(), gone: None });
                return Ok(Self(which));
            };
            let device = name.to_string();
            Err(match &entry.gone {
                None => OpenError::AlreadyOpen { device },
                Some(message) => OpenError::GivenUp { device, message: message.clone() },
            })
        })
    }

    /// Nobody is to have the device any more, as long as this process lives.
    pub(super) fn for_good(self, why: &str) {
        with(|claimed| {
            let entry = claimed.iter_mut().find(|entry| entry.which == self.0);
            entry.into_iter().for_each(|entry| entry.gone = Some(why.to_owned()));
        });
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        with(|claimed| claimed.retain(|entry| entry.gone.is_some() || entry.which != self.0));
    }
}
