//! Opening a device: find ICICLE, start the owner, ask for known answers, and set the budget.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};

use plimsoll::{Budget, Bytes, Ledger};

use super::transforms::DomainBook;
use super::{Icicle, Inner, Lock, class};
use crate::account::Account;
use crate::error::OpenError;
use crate::library::Library;
use crate::memory::Scratch;
use crate::name::{DeviceName, Which};
use crate::owner::Owner;
use crate::shield::IS_SHIELDED;
use crate::trust::{Scaling, check, check_bytes};

/// How a device is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder of ICICLE's libraries, if it is known.
    pub folder: Option<PathBuf>,
    /// How many calls may be under way at once, each on a stream of its own.
    pub streams: usize,
}

impl Default for Options {
    /// Two streams: a third gains nothing on the devices that were measured.
    fn default() -> Self {
        Self { folder: None, streams: 2 }
    }
}

/// A device that gave the known answers, and is not under a ledger yet.
#[derive(Debug)]
pub struct Device {
    owner: Arc<Owner>,
    scaling: Scaling,
    streams: usize,
    memory: Option<(u64, u64)>,
}

impl Device {
    /// Opens a device and asks for known answers. Without a name it is the first, of a kind other than the processor if there is
    /// one.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open(name: Option<&DeviceName>, options: &Options) -> Result<Self, OpenError> {
        let library = Library::find(options.folder.as_deref())?;
        match name {
            Some(name) => Self::open_of(library, name, options),
            None => Self::open_of(library, &first_of(library)?, options),
        }
    }

    /// Opens all devices that these words mean, in the order of their numbers. One that cannot be had is an error: whoever wants to
    /// do without it names the others.
    ///
    /// # Errors
    ///
    /// See [`OpenError`].
    pub fn open_all(which: &Which, options: &Options) -> Result<Vec<Self>, OpenError> {
        let library = Library::find(options.folder.as_deref())?;
        let first = match which {
            Which::First => first_of(library)?,
            Which::Kind(kind) => DeviceName::new(kind, 0)?,
            Which::One(name) => return Ok(vec![Self::open_of(library, name, options)?]),
        };
        let mut all = vec![Self::open_of(library, &first, options)?];
        // All processors together are one device.
        let count = if first.is_host() { 1 } else { all[0].owner.siblings() };
        for id in 1..count {
            all.push(Self::open_of(library, &DeviceName::new(first.kind(), id)?, options)?);
        }
        Ok(all)
    }

    fn open_of(library: &'static Library, name: &DeviceName, options: &Options) -> Result<Self, OpenError> {
        let streams = options.streams.max(1);
        let owner = Owner::start(library, name, streams)?;
        let scaling = check(&owner).map_err(|doubt| doubt.for_opening(&owner))?;
        owner.settle(owner.doubts());
        let memory = owner.memory();
        Ok(Self { owner, scaling, streams, memory })
    }

    /// What it is called.
    pub fn name(&self) -> &DeviceName {
        self.owner.name()
    }

    /// What it says of its memory, total and free.
    pub fn memory(&self) -> Option<(Bytes, Bytes)> {
        self.memory.map(|(total, free)| (Bytes(total), Bytes(free)))
    }

    /// A line about it, for reports.
    pub fn describe(&self) -> String {
        let library = self.owner.library();
        let from =
            library.folder().map_or_else(|| "the system's loader".to_owned(), |folder| folder.display().to_string());
        let shield = if IS_SHIELDED { "" } else { ", unshielded from C++ exceptions" };
        let memory = match self.memory() {
            Some((total, free)) => format!("{free} free of {total}"),
            None => "which does not say how much memory it has".to_owned(),
        };
        format!("{}, {memory}; ICICLE {} from {from}{shield}", self.name(), library.version())
    }

    /// Puts it under a ledger of its own, with so much of its memory; without a number seven eighths of what is free.
    ///
    /// # Errors
    ///
    /// [`OpenError::NoBudget`] if neither the caller nor the device says how much that is.
    pub fn alone(self, memory: Option<Bytes>) -> Result<Icicle, OpenError> {
        let told = self.memory.map(|(_, free)| Bytes(free / 8 * 7));
        let device = self.name().to_string();
        let memory = memory.or(told).ok_or(OpenError::NoBudget { device })?;
        let number = self.name().id();
        let ledger = Ledger::new(Budget::new().device(number, memory, self.streams as u64));
        self.under(number, &ledger)
    }

    /// Puts it under a ledger whose budget names it ([`Budget::device`], with a lane for each stream). Of the device's memory, leave
    /// out what is not free when it has been opened.
    ///
    /// Several devices may share a ledger, each under a number of its own. Those who call them from inside of jobs have these jobs
    /// on another one: each operation is a job of its own, which its caller waits for. On one ledger it would come behind whoever
    /// waits for what the caller holds, when it has been passed [often enough](Budget::bypass), and both would wait for ever.
    ///
    /// # Errors
    ///
    /// If the ledger has no such device, or no room for what checking takes.
    pub fn under(self, number: u16, ledger: &Ledger) -> Result<Icicle, OpenError> {
        let space = plimsoll::Space::device(number);
        let snapshot = ledger.snapshot();
        let refused = |message: String| OpenError::Ledger { number, message };
        let usage = snapshot.space(space).ok_or_else(|| refused("its budget does not name it".to_owned()))?;
        let limit = usage.limit.0;
        let scratch = Scratch::of(self.name(), self.memory.is_some());
        let kept = ledger.reserve(class("device.check", number), Bytes(check_bytes(scratch))).retained().wait();
        let kept = kept.map_err(|error| refused(error.to_string()))?;
        let Device { owner, scaling, memory, .. } = self;
        let inner = Inner {
            keys: Lock::default(),
            tables: Lock::default(),
            domain: Lock::new(DomainBook::default()),
            books: Lock::default(),
            looking: Lock::default(),
            account: Account::new(),
            owner,
            ledger: ledger.clone(),
            number,
            limit,
            free_at_first: memory.map(|(_, free)| free),
            besides: AtomicI64::new(0),
            domain_seen: AtomicU64::new(0),
            scratch,
            scaling,
            _check: kept,
        };
        Ok(Icicle { inner: Arc::new(inner) })
    }
}

/// The first device of the first kind that is not the processor, or the processor.
fn first_of(library: &'static Library) -> Result<DeviceName, OpenError> {
    let kinds = library.registered().unwrap_or_else(|| "CPU".to_owned());
    let kinds = kinds.split(',').map(str::trim).filter(|kind| !kind.is_empty());
    let kind = kinds.clone().find(|kind| *kind != "CPU").or_else(|| kinds.clone().next());
    DeviceName::new(kind.unwrap_or("CPU"), 0)
}
