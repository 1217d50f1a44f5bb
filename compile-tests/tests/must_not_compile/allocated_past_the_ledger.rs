//! Nobody allocates what no reservation pays for.

use plimsoll::device::{Device, DriverLane, Paid};

use plimsoll::device::simulate::Simulated;
use plimsoll::{Bytes, Grant};

fn smuggle(device: &Device<Simulated>, grant: Grant) {
    let _ = device.compute(grant, |cx| cx.call(|lane| lane.allocate(Paid { bytes: Bytes(1) }).map(drop)));
}

fn main() {}
