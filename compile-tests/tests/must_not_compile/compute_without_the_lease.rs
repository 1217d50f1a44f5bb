//! A kernel takes the lease, which a stage that only copies has not.

use plimsoll::device::simulate::Simulated;
use plimsoll::device::{LaneCx, LeaseCx};

fn kernel(_: &mut LeaseCx<'_, Simulated>) {}

fn copy_only(cx: &mut LaneCx<'_, Simulated>) {
    kernel(cx);
}

fn main() {}
