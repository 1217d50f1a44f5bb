//! A buffer does not leave by the return value.

use plimsoll::device::Device;
use plimsoll::device::simulate::Simulated;
use plimsoll::{Bytes, Class, Grant, Space};

const SCRATCH: Class = Class::new("device.scratch", Space::device(0));

fn smuggle(device: &Device<Simulated>, grant: Grant) {
    let _ = device.compute(grant, |cx| cx.allocate(SCRATCH, Bytes(1)));
}

fn main() {}
