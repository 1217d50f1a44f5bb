//! What the other programs here are one forbidden line away from.

use plimsoll::device::simulate::Simulated;
use plimsoll::device::{Device, DeviceError, LeaseCx, Staged};
use plimsoll::{Bytes, Class, Grant, Space};

const SCRATCH: Class = Class::new("device.scratch", Space::device(0));

fn kernel(_: &mut LeaseCx<'_, Simulated>) {}

fn stage(device: &Device<Simulated>, grant: Grant) -> Staged<Simulated> {
    let compute = device.compute(grant, |cx| {
        let buffer = cx.allocate(SCRATCH, Bytes(1))?;
        kernel(cx);
        // Within the stage it may go to other threads.
        std::thread::scope(|threads| {
            threads.spawn(|| buffer.memory().read(<[u8]>::len));
        });
        Ok::<_, DeviceError>(cx.keep(buffer))
    });
    compute.wait().unwrap()
}

pub(crate) fn main() {
    let _: fn(&Device<Simulated>, Grant) -> Staged<Simulated> = stage;
}
