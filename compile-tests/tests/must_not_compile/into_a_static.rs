//! A buffer does not leave into a static.

use std::cell::RefCell;

use plimsoll::device::DeviceBuffer;
use plimsoll::device::simulate::Simulated;
use plimsoll::device::{Device, DeviceError};
use plimsoll::{Bytes, Class, Grant, Space};

const SCRATCH: Class = Class::new("device.scratch", Space::device(0));

thread_local! {
    static KEPT: RefCell<Option<DeviceBuffer<'static, Simulated>>> = const { RefCell::new(None) };
}

fn smuggle(device: &Device<Simulated>, grant: Grant) {
    let _ = device.compute(grant, |cx| {
        let buffer = cx.allocate(SCRATCH, Bytes(1))?;
        KEPT.with(|kept| *kept.borrow_mut() = Some(buffer));
        Ok::<_, DeviceError>(())
    });
}

fn main() {}
