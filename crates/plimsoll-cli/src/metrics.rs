//! `--metrics`: the ledger's and the process's figures for Prometheus, where the program is built for it.

use std::net::SocketAddr;

use plimsoll::Ledger;
use plimsoll_profile::watch::Look;

use crate::exit::{Exit, Failure};

/// Serves them.
///
/// # Errors
///
/// If that is not built in, or the address cannot be had.
#[cfg(feature = "prometheus")]
pub fn serve(ledger: &Ledger, address: SocketAddr) -> Result<plimsoll_profile::exporter::Exporter, Failure> {
    plimsoll_profile::exporter::Exporter::serve(ledger, address)
        .map_err(|e| Failure::new(Exit::Usage, format!("--metrics: {e}")))
}

/// Says that this is not built in.
///
/// # Errors
///
/// Always.
#[cfg(not(feature = "prometheus"))]
pub fn serve(_ledger: &Ledger, _address: SocketAddr) -> Result<std::convert::Infallible, Failure> {
    let message = "--metrics: this program was built without it; build it with --features prometheus";
    Err(Failure::new(Exit::Usage, message))
}

/// Takes down what was seen of the process.
pub fn watch(look: &Look<'_>) {
    #[cfg(feature = "prometheus")]
    plimsoll_profile::exporter::Exporter::watch(look);
    #[cfg(not(feature = "prometheus"))]
    let _ = look;
}
