//! Opening a device in a process of its own first.
//!
//! A release that nobody has seen yet may have the functions of v4.0 and other layouts. Asking it for known answers can then end the
//! process, with a signal that nothing here could catch. A program that has to live opens the device in a child process
//! first, which does that and nothing else; what the child survives, its parent does.

use std::process::{Command, Stdio};

use crate::error::OpenError;

/// Runs `child`, a program that opens `device` and ends, and waits for it. How it ends by itself does not matter: whoever opens the
/// device next hears why it could not be opened. Nor is it an error if the child cannot be started.
///
/// # Errors
///
/// [`OpenError::Crashed`] if a signal has ended it.
pub fn survives(device: &str, child: &mut Command) -> Result<(), OpenError> {
    let ended = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match ended.ok().and_then(|status| signal_of(&status)) {
        None => Ok(()),
        Some(signal) => Err(OpenError::Crashed { device: device.to_owned(), signal }),
    }
}

#[cfg(unix)]
fn signal_of(status: &std::process::ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    status.signal()
}

#[cfg(not(unix))]
fn signal_of(_status: &std::process::ExitStatus) -> Option<i32> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<(), OpenError> {
        survives("CUDA:0", Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn a_signal_is_a_crash_and_an_exit_code_is_none() {
        for code in [0, 1, 101] {
            assert_eq!(shell(&format!("exit {code}")), Ok(()));
        }
        for signal in [6, 11] {
            let error = shell(&format!("ulimit -c 0; kill -{signal} $$")).expect_err("a signal");
            assert_eq!(error, OpenError::Crashed { device: "CUDA:0".to_owned(), signal });
            assert!(error.to_string().contains(&format!("signal {signal}")), "{error}");
        }
    }

    #[test]
    fn a_child_that_cannot_be_started_stands_in_nobodys_way() {
        assert_eq!(survives("CPU:0", &mut Command::new("/no/such/program")), Ok(()));
    }
}
