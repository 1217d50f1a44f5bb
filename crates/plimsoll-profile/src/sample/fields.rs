//! A sample as a line of a trace: flat names with numbers, and back.

use std::fmt;

use super::allocator::AllocatorMemory;
use super::device::DeviceMemory;
use super::groups::GroupMemory;
use super::machine::MachineMemory;
use super::others::Others;
use super::pressure::Pressure;
use super::process::ProcessMemory;
use super::{Sample, quoted};

impl Sample {
    /// Every number in it under the name that traces use. What is not known is left out.
    pub fn fields(&self) -> Vec<(String, u64)> {
        let mut fields = Vec::with_capacity(48);
        let mut some = |name: &str, value: Option<u64>| fields.extend(value.map(|value| (name.to_owned(), value)));
        if let Some(process) = &self.process {
            some("resident_bytes", Some(process.resident_bytes));
            some("anonymous_bytes", Some(process.anonymous_bytes));
            some("file_bytes", Some(process.file_bytes));
            some("shared_bytes", Some(process.shared_bytes));
            some("resident_peak_bytes", Some(process.peak_bytes));
            some("swapped_bytes", Some(process.swapped_bytes));
            some("locked_bytes", Some(process.locked_bytes));
            some("threads", Some(process.threads));
            some("minor_faults", Some(process.minor_faults));
            some("major_faults", Some(process.major_faults));
            some("lazily_freed_bytes", process.lazily_freed_bytes);
            some("huge_bytes", process.huge_bytes);
        }
        if let Some(allocator) = &self.allocator {
            some("allocated_bytes", Some(allocator.allocated_bytes));
            some("active_bytes", allocator.active_bytes);
            some("allocator_resident_bytes", allocator.resident_bytes);
            some("mapped_bytes", allocator.mapped_bytes);
            some("retained_bytes", allocator.retained_bytes);
            some("metadata_bytes", allocator.metadata_bytes);
            some("dirty_bytes", allocator.dirty_bytes);
            some("muzzy_bytes", allocator.muzzy_bytes);
            some("allocator_free_bytes", allocator.free_bytes);
            some("arenas", allocator.arenas);
        }
        if let Some(machine) = &self.machine {
            some("machine_bytes", Some(machine.total_bytes));
            some("machine_available_bytes", machine.available_bytes);
            some("machine_shared_bytes", Some(machine.shared_bytes));
            some("swap_bytes", Some(machine.swap_bytes));
            some("swap_free_bytes", Some(machine.swap_free_bytes));
        }
        if let Some(group) = &self.group {
            some("group_limit_bytes", Some(group.limit_bytes));
            some("group_used_bytes", Some(group.used_bytes));
            some("group_reclaimable_bytes", Some(group.reclaimable_bytes));
            some("group_anonymous_bytes", group.anonymous_bytes);
            some("group_oom_kills", Some(group.oom_kills));
        }
        if let Some(pressure) = &self.pressure {
            some("pressure_some_us", Some(pressure.some_us));
            some("pressure_full_us", Some(pressure.full_us));
        }
        if let Some(others) = &self.others {
            some("others_resident_bytes", Some(others.resident_bytes));
            some("others_children_bytes", Some(others.children_bytes));
            some("others_largest_bytes", Some(others.largest_bytes));
            some("others_largest_process", Some(u64::from(others.largest_id)));
        }
        for device in &self.devices {
            let number = device.device;
            some(&format!("device{number}_total_bytes"), Some(device.total_bytes));
            some(&format!("device{number}_free_bytes"), Some(device.free_bytes));
            some(&format!("device{number}_own_bytes"), device.own_bytes);
        }
        some("line_bytes", self.line);
        some("ledger_limit_bytes", self.ledger_limit);
        some("waiting_for_memory", self.waiting_for_memory);
        fields
    }

    /// The sample that these fields are of. Names that are not known are passed over.
    pub fn from_fields<N: AsRef<str>>(time: u64, fields: impl IntoIterator<Item = (N, u64)>) -> Sample {
        let mut sample = Sample { time, ..Sample::default() };
        for (name, value) in fields {
            sample.set(name.as_ref(), value);
        }
        sample
    }

    fn set(&mut self, name: &str, value: u64) {
        fn within<T: Default>(part: &mut Option<T>) -> &mut T {
            part.get_or_insert_default()
        }
        let process = |sample: &mut Self, field: fn(&mut ProcessMemory) -> &mut u64| {
            *field(within(&mut sample.process)) = value;
        };
        let allocator = |sample: &mut Self, field: fn(&mut AllocatorMemory) -> &mut Option<u64>| {
            *field(within(&mut sample.allocator)) = Some(value);
        };
        let machine = |sample: &mut Self, field: fn(&mut MachineMemory) -> &mut u64| {
            *field(within(&mut sample.machine)) = value;
        };
        let group = |sample: &mut Self, field: fn(&mut GroupMemory) -> &mut u64| {
            *field(within(&mut sample.group)) = value;
        };
        let others = |sample: &mut Self, field: fn(&mut Others) -> &mut u64| {
            *field(within(&mut sample.others)) = value;
        };
        let pressure = |sample: &mut Self, field: fn(&mut Pressure) -> &mut u64| {
            *field(within(&mut sample.pressure)) = value;
        };
        match name {
            "resident_bytes" => process(self, |part| &mut part.resident_bytes),
            "anonymous_bytes" => process(self, |part| &mut part.anonymous_bytes),
            "file_bytes" => process(self, |part| &mut part.file_bytes),
            "shared_bytes" => process(self, |part| &mut part.shared_bytes),
            "resident_peak_bytes" => process(self, |part| &mut part.peak_bytes),
            "swapped_bytes" => process(self, |part| &mut part.swapped_bytes),
            "locked_bytes" => process(self, |part| &mut part.locked_bytes),
            "threads" => process(self, |part| &mut part.threads),
            "minor_faults" => process(self, |part| &mut part.minor_faults),
            "major_faults" => process(self, |part| &mut part.major_faults),
            "lazily_freed_bytes" => within(&mut self.process).lazily_freed_bytes = Some(value),
            "huge_bytes" => within(&mut self.process).huge_bytes = Some(value),
            "allocated_bytes" => within(&mut self.allocator).allocated_bytes = value,
            "active_bytes" => allocator(self, |part| &mut part.active_bytes),
            "allocator_resident_bytes" => allocator(self, |part| &mut part.resident_bytes),
            "mapped_bytes" => allocator(self, |part| &mut part.mapped_bytes),
            "retained_bytes" => allocator(self, |part| &mut part.retained_bytes),
            "metadata_bytes" => allocator(self, |part| &mut part.metadata_bytes),
            "dirty_bytes" => allocator(self, |part| &mut part.dirty_bytes),
            "muzzy_bytes" => allocator(self, |part| &mut part.muzzy_bytes),
            "allocator_free_bytes" => allocator(self, |part| &mut part.free_bytes),
            "arenas" => allocator(self, |part| &mut part.arenas),
            "machine_bytes" => machine(self, |part| &mut part.total_bytes),
            "machine_available_bytes" => within(&mut self.machine).available_bytes = Some(value),
            "machine_shared_bytes" => machine(self, |part| &mut part.shared_bytes),
            "swap_bytes" => machine(self, |part| &mut part.swap_bytes),
            "swap_free_bytes" => machine(self, |part| &mut part.swap_free_bytes),
            "group_limit_bytes" => group(self, |part| &mut part.limit_bytes),
            "group_used_bytes" => group(self, |part| &mut part.used_bytes),
            "group_reclaimable_bytes" => group(self, |part| &mut part.reclaimable_bytes),
            "group_anonymous_bytes" => within(&mut self.group).anonymous_bytes = Some(value),
            "group_oom_kills" => group(self, |part| &mut part.oom_kills),
            "pressure_some_us" => pressure(self, |part| &mut part.some_us),
            "pressure_full_us" => pressure(self, |part| &mut part.full_us),
            "others_resident_bytes" => others(self, |part| &mut part.resident_bytes),
            "others_children_bytes" => others(self, |part| &mut part.children_bytes),
            "others_largest_bytes" => others(self, |part| &mut part.largest_bytes),
            "others_largest_process" => {
                within(&mut self.others).largest_id = u32::try_from(value).unwrap_or(0);
            }
            "line_bytes" => self.line = Some(value),
            "ledger_limit_bytes" => self.ledger_limit = Some(value),
            "waiting_for_memory" => self.waiting_for_memory = Some(value),
            _ => self.set_device(name, value),
        }
    }

    fn set_device(&mut self, name: &str, value: u64) {
        let Some((number, field)) = name.strip_prefix("device").and_then(|rest| rest.split_once('_')) else { return };
        let Ok(number) = number.parse::<u16>() else { return };
        let at = self.devices.iter().position(|device| device.device == number).unwrap_or_else(|| {
            self.devices.push(DeviceMemory { device: number, ..DeviceMemory::default() });
            self.devices.len() - 1
        });
        let device = &mut self.devices[at];
        match field {
            "total_bytes" => device.total_bytes = value,
            "free_bytes" => device.free_bytes = value,
            "own_bytes" => device.own_bytes = Some(value),
            _ => {}
        }
    }

    /// The sample as one line of JSON, without the line's end, in the schema of `docs/trace.md`.
    pub fn json(&self) -> impl fmt::Display + '_ {
        fmt::from_fn(|f| {
            write!(f, r#"{{"time_ns":{},"event":"sampled""#, self.time)?;
            if let Some(allocator) = &self.allocator {
                write!(f, r#","allocator":{}"#, quoted(&allocator.name))?;
            }
            if let Some(group) = &self.group {
                write!(f, r#","group":{}"#, quoted(&group.file.to_string_lossy()))?;
            }
            if let Some(others) = &self.others {
                write!(f, r#","others_largest":{}"#, quoted(&others.largest))?;
            }
            for (name, value) in self.fields() {
                write!(f, r#","{name}":{value}"#)?;
            }
            f.write_str("}")
        })
    }
}
