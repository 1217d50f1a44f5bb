//! A buffer does not leave to a thread that may outlive the stage.

use plimsoll::device::simulate::Simulated;
use plimsoll::device::{Device, DeviceError};
use plimsoll::{Bytes, Class, Grant, Space};

const SCRATCH: Class = Class::new("device.scratch", Space::device(0));

fn smuggle(device: &Device<Simulated>, grant: Grant) {
    let _ = device.compute(grant, |cx| {
        let buffer = cx.allocate(SCRATCH, Bytes(1))?;
        let _ = std::thread::Builder::new().spawn(move || drop(buffer));
        Ok::<_, DeviceError>(())
    });
}

fn main() {}
