//! `--heap-profiles`: profiles of the heap at new high-water marks and on alarms, where the program is built for it.

use std::path::Path;

use plimsoll::Bytes;
use plimsoll_profile::watch::Look;

use crate::exit::{Exit, Failure};

/// A new high-water mark is one in so many parts above the last.
const STEP_DIVISOR: u64 = 10;

/// Refuses what would write nothing.
///
/// # Errors
///
/// If the program is not built or not started for it, or the folder cannot be made.
pub fn check(folder: &Path) -> Result<(), Failure> {
    possible().map_err(|why| Failure::new(Exit::Usage, format!("--heap-profiles: {why}")))?;
    std::fs::create_dir_all(folder).map_err(|e| Failure::new(Exit::Output, format!("{}: {e}", folder.display())))
}

#[cfg(feature = "heap-profiles")]
fn possible() -> Result<(), String> {
    plimsoll_profile::heap::check()
}

#[cfg(not(feature = "heap-profiles"))]
fn possible() -> Result<(), String> {
    Err("this program was built without it; build it with --features heap-profiles".to_owned())
}

/// Writes a profile whenever more is resident than ever before, above `from`, and on alarms.
pub fn at_high_water(folder: &Path, from: Bytes) -> impl FnMut(&Look<'_>) + Send + 'static {
    let (folder, mut marked, mut number) = (folder.to_owned(), from.0, 0);
    move |look| {
        let resident = look.sample.process.map_or(0, |process| process.resident_bytes);
        let is_high = resident > marked + marked / STEP_DIVISOR;
        if is_high {
            marked = resident;
        }
        if is_high || look.alarm.is_some() {
            number += 1;
            let why = if is_high { "high-water" } else { "alarm" };
            write(&folder.join(format!("{number:03}-{why}.pb.gz")));
        }
    }
}

#[cfg(feature = "heap-profiles")]
fn write(path: &Path) {
    let written =
        plimsoll_profile::heap::pprof().and_then(|bytes| std::fs::write(path, bytes).map_err(|e| e.to_string()));
    if let Err(error) = written {
        crate::console::warn(format!("{}: {error}; the proof does not depend on it", path.display()));
    }
}

#[cfg(not(feature = "heap-profiles"))]
fn write(_path: &Path) {}
