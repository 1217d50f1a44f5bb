//! What is really held, space by space: which need not be what a ledger has charged, since buffers grow.

use plimsoll::Class;

/// Everything held, by class, and the peaks.
#[derive(Clone, Debug, Default)]
pub(super) struct Memory {
    classes: Vec<(Class, u64)>,
    /// Host memory without what grows.
    host: u64,
    host_peak: u64,
    /// What the host's peak was made of, noted whenever it has risen by a two-hundredth since.
    at_peak: Vec<(&'static str, u64)>,
    noted: u64,
    devices: Vec<u64>,
    device_peak: u64,
}

impl Memory {
    pub(super) fn new(runtime: u64, devices: u16) -> Memory {
        Memory { host: runtime, devices: vec![0; usize::from(devices)], ..Memory::default() }
    }

    /// A small number for a class.
    pub(super) fn number(&mut self, class: Class) -> u16 {
        let known = self.classes.iter().position(|entry| entry.0 == class);
        known.unwrap_or_else(|| {
            self.classes.push((class, 0));
            self.classes.len() - 1
        }) as u16
    }

    pub(super) fn class(&self, number: u16) -> Class {
        self.classes[usize::from(number)].0
    }

    pub(super) fn add(&mut self, number: u16, bytes: u64) {
        let (class, held) = &mut self.classes[usize::from(number)];
        *held += bytes;
        match class.space().device_number() {
            Some(device) => {
                let held = &mut self.devices[usize::from(device)];
                *held += bytes;
                self.device_peak = self.device_peak.max(*held);
            }
            None => self.host += bytes,
        }
    }

    pub(super) fn sub(&mut self, number: u16, bytes: u64) {
        let (class, held) = &mut self.classes[usize::from(number)];
        *held -= bytes;
        match class.space().device_number() {
            Some(device) => self.devices[usize::from(device)] -= bytes,
            None => self.host -= bytes,
        }
    }

    /// Looks whether this is the most so far, with so much more that grows; says how much it is.
    pub(super) fn look(&mut self, growing: u64) -> u64 {
        let host = self.host + growing;
        if host > self.host_peak {
            self.host_peak = host;
            if host > self.noted + self.noted / 200 {
                self.noted = host;
                self.at_peak.clear();
                let on_host = self.classes.iter().filter(|entry| entry.0.space().device_number().is_none());
                self.at_peak.extend(on_host.map(|(class, held)| (class.name(), *held)));
                if growing > 0 {
                    self.at_peak.push(("growing", growing));
                }
            }
        }
        host
    }

    pub(super) fn host_peak(&self) -> u64 {
        self.host_peak
    }

    pub(super) fn device_peak(&self) -> u64 {
        self.device_peak
    }

    pub(super) fn at_peak(&self) -> Vec<(&'static str, u64)> {
        self.at_peak.iter().copied().filter(|entry| entry.1 > 0).collect()
    }
}
