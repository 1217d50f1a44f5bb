//! The other processes of the machine, and its processors, through `sysinfo`.
//!
//! To look at every process costs milliseconds, so the [reader](super::Reader) does it seldom.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

use serde::Serialize;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// What the other processes hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Others {
    /// Resident in all of them. Pages that several share count several times.
    pub resident_bytes: u64,
    /// Of these, in this process's children, their children and so on: they are its own.
    pub children_bytes: u64,
    /// The name of the largest one that is no child.
    pub largest: String,
    /// Its process id.
    pub largest_id: u32,
    /// What it holds.
    pub largest_bytes: u64,
    /// How busy the machine's processors were since the last time, in percent of all of them.
    pub cpu_percent: f64,
}

/// Looks at the others.
pub struct OthersReader {
    system: Option<System>,
    last: Option<(Instant, Others)>,
}

impl fmt::Debug for OthersReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OthersReader")
    }
}

impl Default for OthersReader {
    fn default() -> Self {
        Self::new()
    }
}

impl OthersReader {
    /// A reader that has not looked yet.
    pub fn new() -> Self {
        Self { system: System::new().ok(), last: None }
    }

    /// What was seen when it last looked, if that is not longer ago than `age`; it looks now otherwise.
    pub fn read_at_most_old(&mut self, age: Duration) -> Option<Others> {
        if self.last.as_ref().is_none_or(|(when, _)| when.elapsed() >= age) {
            self.last = Some((Instant::now(), self.read()?));
        }
        self.last.as_ref().map(|(_, others)| others.clone())
    }

    /// Looks now; `None` on a system that `sysinfo` does not know.
    pub fn read(&mut self) -> Option<Others> {
        let system = self.system.as_mut()?;
        let kind = ProcessRefreshKind::nothing().with_memory().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
        system.refresh_cpu_usage();
        let own = Pid::from_u32(std::process::id());
        let others = || system.processes().iter().filter(|(id, _)| **id != own);
        let parents: HashMap<Pid, Pid> = others().filter_map(|(id, process)| Some((*id, process.parent()?))).collect();
        let is_child = |id: &Pid| descends(*id, own, &parents);
        let largest = others().filter(|(id, _)| !is_child(id)).max_by_key(|(_, process)| process.memory());
        Some(Others {
            resident_bytes: others().map(|(_, process)| process.memory()).sum(),
            children_bytes: others().filter(|(id, _)| is_child(id)).map(|(_, process)| process.memory()).sum(),
            largest: largest.map(|(_, process)| process.name().to_string_lossy().into_owned()).unwrap_or_default(),
            largest_id: largest.map_or(0, |(id, _)| id.as_u32()),
            largest_bytes: largest.map_or(0, |(_, process)| process.memory()),
            cpu_percent: f64::from(system.global_cpu_usage()),
        })
    }
}

/// Whether a process descends from another. (Parents that were read at different moments may form a circle.)
fn descends(mut id: Pid, from: Pid, parents: &HashMap<Pid, Pid>) -> bool {
    for _ in 0..GENERATIONS_MAX {
        match parents.get(&id) {
            Some(parent) if *parent == from => return true,
            Some(parent) => id = *parent,
            None => return false,
        }
    }
    false
}

/// Deeper trees of processes are not looked through.
const GENERATIONS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::super::files::Root;
    use super::super::machine::MachineMemory;
    use super::*;

    #[test]
    fn the_largest_is_not_this_process_and_not_more_than_all() {
        let _own = std::hint::black_box(vec![1_u8; 64 << 20]);
        let others = OthersReader::new().read().unwrap();
        assert_ne!(others.largest_id, std::process::id());
        assert!(others.largest_bytes <= others.resident_bytes && others.resident_bytes > 0, "{others:?}");
    }

    #[test]
    fn children_of_children_are_ones_own() {
        let pid = Pid::from_u32;
        let parents = HashMap::from([(pid(5), pid(1)), (pid(6), pid(5)), (pid(8), pid(9)), (pid(9), pid(8))]);
        assert!(descends(pid(6), pid(1), &parents) && descends(pid(5), pid(1), &parents));
        assert!(!descends(pid(6), pid(7), &parents) && !descends(pid(8), pid(1), &parents));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let others = OthersReader::new().read().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(others.children_bytes > 0 && others.children_bytes <= others.resident_bytes, "{others:?}");
    }

    /// The kernel's files, which can be replaced for tests, and the library agree on what does not change.
    #[test]
    fn two_readers_of_one_machine_agree() {
        let mut system = System::new().unwrap();
        system.refresh_memory();
        let memory = MachineMemory::read(&Root::default()).unwrap();
        assert_eq!((memory.total_bytes, memory.swap_bytes), (system.total_memory(), system.total_swap()));
    }
}
