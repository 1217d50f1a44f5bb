//! One card, its ledger and its device; jobs of two stages on it.

use std::time::Duration;

use plimsoll::device::simulate::{CardSpec, Faults, Simulated, Stats};
use plimsoll::device::{Device, DeviceConfig, DeviceError, StageError, Staged};
use plimsoll::{Budget, Bytes, Class, Demand, Job, JobSpec, Ledger, Profile, Space};

pub(crate) const MS: Duration = Duration::from_millis(1);

pub(crate) fn input(device: u16) -> Class {
    Class::new("device.input", Space::device(device))
}

pub(crate) fn scratch(device: u16) -> Class {
    Class::new("device.scratch", Space::device(device))
}

pub(crate) struct Bench {
    pub(crate) ledger: Ledger,
    pub(crate) card: Simulated,
    pub(crate) device: Device<Simulated>,
}

impl Bench {
    /// Device 0, with two lanes and this much memory, all of which the ledger knows of.
    pub(crate) fn new(memory: u64) -> Bench {
        Bench::with_faults(memory, Faults::default())
    }

    pub(crate) fn with_faults(memory: u64, faults: Faults) -> Bench {
        let ledger = Ledger::new(Budget::new().device(0, Bytes(memory), 2));
        let card = Simulated::new(CardSpec { memory: Bytes(memory), faults, ..CardSpec::default() });
        let device = Device::start(0, card.clone(), &ledger, DeviceConfig::default()).expect("a device");
        Bench { ledger, card, device }
    }

    pub(crate) fn stats(&self) -> Stats {
        self.card.stats()
    }

    /// Puts a job's input on the card.
    pub(crate) fn stage_in(&self, job: &mut Job, bytes: u64) -> Result<Staged<Simulated>, StageError<DeviceError>> {
        let grant = job.enter(0).wait().expect("it fits");
        let stage = self.device.stage(grant, move |cx| {
            let buffer = cx.upload(input(0), &vec![1; bytes as usize])?;
            Ok(cx.keep(buffer))
        });
        stage.wait()
    }
}

/// A job that stages `input` bytes in and computes with `scratch` bytes of workspace.
pub(crate) fn two_stages(device: u16, input_bytes: u64, scratch_bytes: u64) -> Profile {
    let inputs = Demand::new().bytes(input(device), Bytes(input_bytes));
    Profile::new().stage("stage in", inputs.clone().on_lane(device), inputs.clone()).stage(
        "compute",
        inputs.on_lease(device).bytes(scratch(device), Bytes(scratch_bytes)),
        Demand::new(),
    )
}

/// A job that only computes.
pub(crate) fn one_stage(scratch_bytes: u64) -> Profile {
    let peak = Demand::new().on_lease(0).bytes(scratch(0), Bytes(scratch_bytes));
    Profile::new().stage("compute", peak, Demand::new())
}

pub(crate) fn submit(ledger: &Ledger, name: &str, profile: Profile) -> Job {
    ledger.submit(JobSpec::new(name, profile)).expect("it fits")
}
