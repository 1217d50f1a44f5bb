//! The memory is not taken out of its buffer: nobody gets it mutably.

use plimsoll::device::simulate::Simulated;
use plimsoll::device::{Device, DeviceError};
use plimsoll::{Bytes, Class, Grant, Space};

const SCRATCH: Class = Class::new("device.scratch", Space::device(0));

fn smuggle(device: &Device<Simulated>, grant: Grant) {
    let _ = device.compute(grant, |cx| {
        let mut one = cx.allocate(SCRATCH, Bytes(1))?;
        let mut other = cx.allocate(SCRATCH, Bytes(2))?;
        std::mem::swap(one.memory(), other.memory());
        let _ = (&mut one, &mut other);
        Ok::<_, DeviceError>(())
    });
}

fn main() {}
