//! What the drivers of devices say about their memory.

use std::fmt;

use serde::Serialize;

/// The memory of one device, as its driver says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceMemory {
    /// Its number, as in `Space::device`.
    pub device: u16,
    /// What it is called.
    pub name: String,
    /// All there is.
    pub total_bytes: u64,
    /// What is free.
    pub free_bytes: u64,
    /// This process's part of what is used; `None` where the driver does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_bytes: Option<u64>,
}

impl DeviceMemory {
    /// What is used by whoever.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes.saturating_sub(self.free_bytes)
    }
}

/// A driver that can be asked about its devices' memory. Backends implement it over the interface that they have open anyway.
pub trait Devices: fmt::Debug + Send {
    /// What it is: `NVML`, `CUDA`.
    fn name(&self) -> &str;

    /// The memory of every device, those that do not answer left out.
    fn read(&mut self) -> Vec<DeviceMemory>;
}
