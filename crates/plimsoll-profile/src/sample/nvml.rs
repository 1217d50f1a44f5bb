//! NVIDIA's management library, loaded at run time: on a machine without it, this says so and nothing else happens.

use std::fmt;

use nvml_wrapper::Nvml as Library;
use nvml_wrapper::enums::device::UsedGpuMemory;

use super::device::{DeviceMemory, Devices};

/// NVML.
pub struct Nvml(Library);

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nvml")
    }
}

impl Nvml {
    /// Loads the library.
    ///
    /// # Errors
    ///
    /// In words: what is missing.
    pub fn load() -> Result<Self, String> {
        Library::init().map(Self).map_err(|error| error.to_string())
    }

    fn device(&self, index: u32) -> Option<DeviceMemory> {
        let device = self.0.device_by_index(index).ok()?;
        let memory = device.memory_info().ok()?;
        let own = device.running_compute_processes().ok().and_then(|processes| {
            let own = processes.iter().filter(|process| process.pid == std::process::id());
            own.map(|process| match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            })
            .sum::<Option<u64>>()
        });
        Some(DeviceMemory {
            device: u16::try_from(index).ok()?,
            name: device.name().unwrap_or_default(),
            total_bytes: memory.total,
            free_bytes: memory.free,
            own_bytes: own,
        })
    }
}

impl Devices for Nvml {
    fn name(&self) -> &str {
        "NVML"
    }

    fn read(&mut self) -> Vec<DeviceMemory> {
        let count = self.0.device_count().unwrap_or(0);
        (0..count).filter_map(|index| self.device(index)).collect()
    }
}
