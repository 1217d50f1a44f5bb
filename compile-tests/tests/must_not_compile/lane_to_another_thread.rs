//! A lane stays on its thread.

use plimsoll::device::simulate::SimulatedLane;

fn smuggle(lane: SimulatedLane) {
    let _ = std::thread::Builder::new().spawn(move || drop(lane));
}

fn main() {}
