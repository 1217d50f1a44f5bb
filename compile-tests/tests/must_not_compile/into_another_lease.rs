//! A buffer of one lease is not one of another.

use plimsoll::device::simulate::Simulated;
use plimsoll::device::{DeviceBuffer, LeaseCx};

fn exchange<'one, 'other>(
    _: &mut LeaseCx<'one, Simulated>,
    _: &mut LeaseCx<'other, Simulated>,
    buffer: DeviceBuffer<'one, Simulated>,
) -> DeviceBuffer<'other, Simulated> {
    buffer
}

fn main() {}
