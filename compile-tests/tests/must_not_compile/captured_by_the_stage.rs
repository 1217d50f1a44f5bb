//! A buffer does not leave through something that the closure has captured.

use plimsoll::device::simulate::Simulated;
use plimsoll::device::{Device, DeviceError};
use plimsoll::{Bytes, Class, Grant, Space};

const SCRATCH: Class = Class::new("device.scratch", Space::device(0));

fn smuggle(device: &Device<Simulated>, grant: Grant) {
    let mut kept = None;
    let _ = device.compute(grant, move |cx| {
        kept = Some(cx.allocate(SCRATCH, Bytes(1))?);
        Ok::<_, DeviceError>(())
    });
}

fn main() {}
