//! `plimsoll top`: watches a running process over its socket.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use plimsoll_profile::top;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::args::Top;
use crate::exit::{Exit, Failure};

/// Runs it, until the user ends it or the process is gone.
pub fn run(args: &Top) -> Result<(), Failure> {
    // Nobody's terminal is left in raw mode.
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP, SIGINT] {
        flag::register(signal, stop.clone()).map_err(|e| Failure::new(Exit::Internal, format!("signals: {e}")))?;
    }
    top::run(&args.socket, &stop).map_err(|error| {
        let help = "give the path that the process was started with (`prove --socket`)";
        Failure::new(Exit::BadInput, format!("{}: {error}; {help}", args.socket.display()))
    })
}
