//! `plimsoll top`: watches a running process over its socket.

use plimsoll_profile::top;

use crate::args::Top;
use crate::exit::{Exit, Failure};

/// Runs it, until the user ends it or the process is gone.
pub fn run(args: &Top) -> Result<(), Failure> {
    top::run(&args.socket).map_err(|error| {
        let help = "give the path that the process was started with (`prove --socket`)";
        Failure::new(Exit::BadInput, format!("{}: {error}; {help}", args.socket.display()))
    })
}
