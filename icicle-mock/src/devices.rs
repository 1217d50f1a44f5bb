//! Simulated devices: memory with a limit, streams, domains.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::thread::ThreadId;

use blstrs::Scalar;

use crate::faults::Knobs;

/// Settings at first, for programs that cannot make them: `memory=8388608,silent=1`.
const SETTINGS_VARIABLE: &str = "ICICLE_MOCK";

fn pair(text: &str) -> Option<(&str, i64)> {
    let (key, value) = text.split_once('=')?;
    Some((key, value.parse().ok()?))
}

/// A device's place: 0 is the processor, and MOCK:n is n + 1.
pub(crate) type Place = usize;

thread_local! {
    /// New threads are on the processor.
    pub(crate) static ACTIVE: Cell<Place> = const { Cell::new(0) };
    /// After a multiplication was out of memory, the next one on its thread fails too.
    pub(crate) static SPOILT: Cell<bool> = const { Cell::new(false) };
}

/// Everything.
pub struct State {
    pub(crate) knobs: Knobs,
    devices: Vec<Simulated>,
    memory: BTreeMap<usize, Piece>,
    threads: HashSet<ThreadId>,
}

#[derive(Default)]
struct Simulated {
    limit: u64,
    used: u64,
    peak: u64,
    domain: Option<(u32, Scalar)>,
    /// What the domain takes, or what is left of one that was not made.
    domain_bytes: u64,
    /// How often what is left of a domain has to be released until it is gone.
    half_domain: i64,
}

/// A piece of device memory, which is host memory of this process.
struct Piece {
    device: Place,
    bytes: Vec<u64>,
    len: usize,
}

/// Too little memory.
pub(crate) struct OutOfMemory;

impl State {
    pub(crate) fn new() -> Self {
        let mut state =
            Self { knobs: Knobs::default(), devices: Vec::new(), memory: BTreeMap::new(), threads: HashSet::new() };
        state.resize(1, 1 << 30);
        for (key, value) in std::env::var(SETTINGS_VARIABLE).iter().flat_map(|text| text.split(',')).filter_map(pair) {
            state.set(key, value);
        }
        state
    }

    pub(crate) fn set(&mut self, key: &str, value: i64) {
        self.knobs.set(key, value);
        if key == "devices" || key == "memory" {
            let (count, memory) = (self.knobs.get("devices", 1), self.knobs.get("memory", 1 << 30));
            self.resize(count as usize, memory as u64);
        }
    }

    fn resize(&mut self, count: usize, memory: u64) {
        self.devices.resize_with(count + 1, Simulated::default);
        for device in &mut self.devices {
            device.limit = memory;
        }
        self.devices[0].limit = u64::MAX >> 1;
    }

    pub(crate) fn device_count(&self) -> usize {
        self.devices.len() - 1
    }

    pub(crate) fn used(&self, mock: usize) -> u64 {
        self.devices.get(mock + 1).map_or(0, |device| device.used)
    }

    pub(crate) fn peak(&self, mock: usize) -> u64 {
        self.devices.get(mock + 1).map_or(0, |device| device.peak)
    }

    /// Of the processor.
    pub(crate) fn host_peak(&self) -> u64 {
        self.devices[0].peak
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    pub(crate) fn allocations(&self) -> usize {
        self.memory.len()
    }

    /// Notes that the calling thread calls for its device.
    pub(crate) fn enter(&mut self) -> Place {
        let place = ACTIVE.get();
        if place > 0 {
            self.threads.insert(std::thread::current().id());
        }
        place
    }

    /// What of a device is free.
    pub(crate) fn free_bytes(&self, place: Place) -> u64 {
        let device = &self.devices[place];
        device.limit.saturating_sub(device.used + self.knobs.get("neighbour", 0) as u64)
    }

    pub(crate) fn total_bytes(&self, place: Place) -> u64 {
        self.devices[place].limit
    }

    /// Takes bytes off what is free.
    pub(crate) fn take(&mut self, place: Place, bytes: u64) -> Result<(), OutOfMemory> {
        if bytes > self.free_bytes(place) {
            return Err(OutOfMemory);
        }
        let device = &mut self.devices[place];
        device.used += bytes;
        device.peak = device.peak.max(device.used);
        Ok(())
    }

    pub(crate) fn give_back(&mut self, place: Place, bytes: u64) {
        self.devices[place].used -= bytes;
    }

    pub(crate) fn allocate(&mut self, place: Place, bytes: usize) -> Result<usize, OutOfMemory> {
        self.take(place, bytes as u64)?;
        // Garbage, as a device's memory has it: all of it above the order, so that nobody can use it as a scalar by mistake.
        let mut words = vec![u64::MAX; bytes.div_ceil(8).max(1)];
        let address = words.as_mut_ptr() as usize;
        self.memory.insert(address, Piece { device: place, bytes: words, len: bytes });
        Ok(address)
    }

    /// The device that a piece of memory begins on.
    pub(crate) fn home(&self, address: usize) -> Option<Place> {
        self.memory.get(&address).map(|piece| piece.device)
    }

    pub(crate) fn release(&mut self, address: usize) {
        if let Some(piece) = self.memory.remove(&address) {
            self.devices[piece.device].used -= piece.len as u64;
            if self.knobs.get("watch_bytes", 0) as usize == piece.len && piece.bytes.iter().any(|word| *word != 0) {
                self.knobs.secrets += 1;
            }
        }
    }

    /// The bytes at an address of a device's memory; `None`, and a violation, where there are not so many.
    pub(crate) fn bytes(&mut self, place: Place, address: usize, len: usize) -> Option<&mut [u8]> {
        let found = self
            .memory
            .range(..=address)
            .next_back()
            .filter(|(start, piece)| piece.device == place && address + len <= **start + piece.len);
        if found.is_none() {
            self.knobs.violations += 1;
            return None;
        }
        // SAFETY: inside of a vector that this state owns, and borrowed from it for as long.
        Some(unsafe { std::slice::from_raw_parts_mut(address as *mut u8, len) })
    }

    pub(crate) fn domain(&self, place: Place) -> Option<(u32, Scalar)> {
        self.devices[place].domain
    }

    pub(crate) fn has_half_a_domain(&self, place: Place) -> bool {
        self.devices[place].half_domain > 0
    }

    /// Makes a domain where there is none; without memory for it half of it may be left behind.
    pub(crate) fn make_domain(&mut self, place: Place, domain: (u32, Scalar), bytes: u64) -> Result<(), OutOfMemory> {
        if let Err(error) = self.take(place, bytes) {
            let rest = (bytes / 2).min(self.free_bytes(place));
            let half = self.knobs.get("half_domain", 0);
            if half > 0 && self.take(place, rest).is_ok() {
                let device = &mut self.devices[place];
                (device.half_domain, device.domain_bytes) = (half, rest);
            }
            return Err(error);
        }
        let device = &mut self.devices[place];
        (device.domain, device.domain_bytes) = (Some(domain), bytes);
        Ok(())
    }

    /// Releases the domain, or half of one; how many times more it has to be released, or `None` where there is nothing.
    pub(crate) fn release_domain(&mut self, place: Place) -> Option<i64> {
        let device = &mut self.devices[place];
        if device.domain.take().is_none() {
            device.half_domain = device.half_domain.checked_sub(1).filter(|left| *left >= 0)?;
            if device.half_domain > 0 {
                return Some(device.half_domain);
            }
        }
        device.half_domain = 0;
        let bytes = std::mem::take(&mut device.domain_bytes);
        self.give_back(place, bytes);
        Some(0)
    }
}
