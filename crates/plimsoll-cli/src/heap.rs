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
        if is_high || !look.alarms.is_empty() {
            let why = if is_high { "high-water" } else { "alarm" };
            write(&folder, &mut number, why);
        }
    }
}

/// Writes the next one, for its owner alone: those of a run before are not written over.
#[cfg(feature = "heap-profiles")]
fn write(folder: &Path, number: &mut u32, why: &str) {
    let written = plimsoll_profile::heap::pprof().and_then(|bytes| {
        use std::io::Write as _;
        let (mut file, path) = next(folder, number, why)?;
        file.write_all(&bytes).map_err(|e| format!("{}: {e}", path.display()))
    });
    if let Err(error) = written {
        crate::console::warn(format!("heap profile: {error}; the proof does not depend on it"));
    }
}

#[cfg(not(feature = "heap-profiles"))]
fn write(_folder: &Path, _number: &mut u32, _why: &str) {}

/// A new file under the next number that is free.
#[cfg(any(feature = "heap-profiles", test))]
fn next(folder: &Path, number: &mut u32, why: &str) -> Result<(std::fs::File, std::path::PathBuf), String> {
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(options.write(true).create_new(true), 0o600);
    loop {
        *number += 1;
        let path = folder.join(format!("{number:03}-{why}.pb.gz"));
        match options.open(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && *number < 100_000 => {}
            Err(error) => return Err(format!("{}: {error}", path.display())),
            Ok(file) => return Ok((file, path)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_of_a_run_before_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("001-alarm.pb.gz"), "precious").unwrap();
        let mut number = 0;
        let (file, path) = next(folder.path(), &mut number, "alarm").unwrap();
        assert!(path.ends_with("002-alarm.pb.gz"));
        let mode = std::os::unix::fs::PermissionsExt::mode(&file.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(std::fs::read_to_string(folder.path().join("001-alarm.pb.gz")).unwrap(), "precious");
    }
}
