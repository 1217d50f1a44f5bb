//! A buffer does not leave through a channel.

use std::sync::mpsc;

use plimsoll::device::simulate::Simulated;
use plimsoll::device::{Device, DeviceError};
use plimsoll::{Bytes, Class, Grant, Space};

const SCRATCH: Class = Class::new("device.scratch", Space::device(0));

fn smuggle(device: &Device<Simulated>, grant: Grant) {
    let (sender, receiver) = mpsc::channel();
    let _ = device.compute(grant, move |cx| {
        let _ = sender.send(cx.allocate(SCRATCH, Bytes(1))?);
        Ok::<_, DeviceError>(())
    });
    drop(receiver);
}

fn main() {}
