//! A copy of the mock library in a folder of its own, named as ICICLE's libraries are.
//!
//! Each copy is loaded apart, so that each test has devices, settings and counters of its own, also where tests share a process.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use libloading::Library;
use plimsoll::Bytes;
use plimsoll_icicle::error::OpenError;
use plimsoll_icicle::{Device, DeviceName, Icicle, Options};

/// A mocked ICICLE.
pub(crate) struct Mock {
    folder: PathBuf,
    control: Option<Library>,
}

impl Mock {
    /// One that has all functions.
    pub(crate) fn new() -> Mock {
        Self::without(&[])
    }

    /// One that lacks some functions.
    pub(crate) fn without(functions: &[&str]) -> Mock {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("plimsoll-icicle-{}-{count}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for temporary files");
        let mut bytes = fs::read(built()).expect("the mock is a dependency of this test");
        hide(&mut bytes, functions);
        let device = folder.join("libicicle_device.so");
        fs::write(&device, &bytes).expect("room for a copy of the mock");
        // One file under three names is one library to the loader.
        for name in ["libicicle_field_bls12_381.so", "libicicle_curve_bls12_381.so"] {
            symlink(&device, folder.join(name)).expect("a link in a folder of our own");
        }
        // SAFETY: the mock's initialisers are Rust's.
        let control = unsafe { Library::new(&device) }.expect("the mock can be opened");
        Mock { folder, control: Some(control) }
    }

    fn control(&self) -> &Library {
        self.control.as_ref().expect("it is open until it is let go")
    }

    /// The folder of its libraries.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Sets something; see the mock.
    pub(crate) fn set(&self, key: &str, value: i64) -> &Self {
        let key = CString::new(key).expect("no zeros");
        // SAFETY: the mock's function, of this type.
        unsafe {
            let set =
                self.control().get::<unsafe extern "C" fn(*const i8, i64)>(b"icicle_mock_set").expect("it is there");
            set(key.as_ptr().cast(), value);
        }
        self
    }

    /// Asks something; see the mock.
    pub(crate) fn get(&self, key: &str) -> i64 {
        let key = CString::new(key).expect("no zeros");
        // SAFETY: the mock's function, of this type.
        unsafe {
            let get =
                self.control().get::<unsafe extern "C" fn(*const i8) -> i64>(b"icicle_mock_get").expect("it is there");
            get(key.as_ptr().cast())
        }
    }

    /// Has the `nth` call of a function from now on fail.
    pub(crate) fn fail(&self, function: &str, nth: i64, code: i64) {
        self.set("fail_code", code).set(&format!("fail_at:{function}"), nth);
    }

    pub(crate) fn options(&self) -> Options {
        Options { folder: Some(self.folder.clone()), ..Options::default() }
    }

    /// Opens a device.
    pub(crate) fn device(&self, name: &str) -> Result<Device, OpenError> {
        Device::open(Some(&name.parse::<DeviceName>()?), &self.options())
    }

    /// Opens the first simulated device, with so much of its memory in the budget.
    pub(crate) fn icicle(&self, budget: u64) -> Icicle {
        let device = self.device("MOCK").expect("it computes rightly");
        device.alone(Some(Bytes(budget))).expect("room for what checking takes")
    }

    /// Closes what the test itself has opened.
    pub(crate) fn let_go(mut self) {
        drop(self.control.take());
    }

    /// Nothing was done that ICICLE would not have survived, or that it computes wrongly.
    #[track_caller]
    pub(crate) fn assert_used_well(&self) {
        assert_eq!(self.get("violations"), 0, "violations");
    }

    /// All is closed, and nothing is left on any device.
    #[track_caller]
    pub(crate) fn assert_empty(&self) {
        for device in 0..3 {
            assert_eq!(self.get(&format!("used:{device}")), 0, "bytes of MOCK:{device}");
        }
        assert_eq!(self.get("allocations"), 0, "allocations");
        assert_eq!(self.get("calls:extensions"), 0, "extensions that were not destroyed");
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        // What is loaded stays loaded.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The mock, as Cargo builds it for this test: beside it.
fn built() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.with_file_name("libplimsoll_icicle_mock.so")
}

/// Renames functions, so that nobody finds them: the tables by which names are found are left as they are.
fn hide(library: &mut [u8], functions: &[&str]) {
    if functions.is_empty() {
        return;
    }
    let mut found = vec![false; functions.len()];
    // The names end with a zero, and begin after one.
    for text in library.split_mut(|byte| *byte == 0) {
        if let Some(index) = functions.iter().position(|function| function.as_bytes() == text) {
            text[0] = b'!';
            found[index] = true;
        }
    }
    for (function, found) in functions.iter().zip(found) {
        assert!(found, "{function} is in the mock");
    }
}
