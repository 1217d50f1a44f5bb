//! The proving key: from the cache, or made anew and cached.

use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll::pool::Pool;
use plimsoll::{Bytes, Class, Ledger, Reservation, Space};
use plimsoll_groth16::footprint::SRS;
use plimsoll_groth16::keys::{Checked, KeyHeader, KeyWriteError, ProvingKey};
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_groth16::setup::{self, SetupError, SetupPhase, SetupProgress};
use rand_core::OsRng;

use crate::console::{self, WARNING};
use crate::exit::{Exit, Failure};
use crate::key_cache::{Container, Damage, KeyCache, Lock, store};
use crate::progress::Progress;
use crate::signals::Interrupt;
use crate::verify::key_identity;

/// What making or reading a key needs for a while.
pub const KEY_SCRATCH: Class = Class::new("key scratch", Space::HOST);

/// A key, paid for, and where it came from.
#[derive(Debug)]
pub struct Keys {
    /// The key.
    pub key: Arc<ProvingKey>,
    /// The verifying key in bellperson's encoding.
    pub verifying_key: Vec<u8>,
    /// Its identity.
    pub identity: [u8; 32],
    /// Where it came from.
    pub origin: Origin,
    /// How long that took.
    pub time: Duration,
    /// What pays for it.
    pub charge: Reservation,
}

/// Where a key came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From this file.
    Cache(PathBuf),
    /// Made just now, and cached in this file if it could be.
    Made(Option<PathBuf>),
}

/// What a key takes, from the circuit's sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyFootprint {
    header: KeyHeader,
    /// The key itself.
    pub resident: Bytes,
    /// Beside it, while it is read.
    pub reading: Bytes,
    /// Beside it, while it is made.
    pub making: Bytes,
}

impl KeyFootprint {
    /// The footprint of `r1cs`'s key.
    pub fn of(r1cs: &R1cs, threads: usize) -> Self {
        // Sections count in 32 bits, as the shape's own indices do.
        let count = |points: usize| u32::try_from(points).unwrap_or(u32::MAX);
        let b = count(r1cs.b_density().total());
        let header = KeyHeader {
            ic: count(r1cs.inputs()),
            h: count(r1cs.domain().size() - 1),
            l: count(r1cs.aux()),
            a: count(r1cs.a_density().total()),
            b_g1: b,
            b_g2: b,
        };
        Self {
            header,
            resident: Bytes(header.resident_bytes()),
            reading: Bytes(KeyHeader::READ_SCRATCH_BYTES),
            making: Bytes(setup::scratch_bytes(r1cs, threads)),
        }
    }

    /// Bytes of the verifying key's encoding.
    pub fn verifying_key_bytes(&self) -> usize {
        KeyHeader { h: 0, l: 0, a: 0, b_g1: 0, b_g2: 0, ..self.header }.file_bytes() as usize - 5 * size_of::<u32>()
    }
}

/// Everything that getting a key needs.
#[derive(Clone, Copy, Debug)]
pub struct KeySource<'a> {
    /// The cache; `None` if there is no place for one.
    pub cache: Option<&'a KeyCache>,
    /// The circuit.
    pub r1cs: &'a R1cs,
    /// The sizes.
    pub footprint: KeyFootprint,
    /// Where the bytes are counted.
    pub ledger: &'a Ledger,
    /// Where points are made.
    pub pool: &'a Pool,
    /// When to stop.
    pub interrupt: &'a Interrupt,
}

impl KeySource<'_> {
    /// Loads the key, or makes one and caches it. A damaged cache file is named on the way and replaced.
    pub fn get(&self) -> Result<Keys, Failure> {
        let started = Instant::now();
        let Some(cache) = self.cache else { return self.make(None, started) };
        match self.load(cache) {
            Ok(Some(keys)) => return keys.timed(started),
            Ok(None) => {}
            Err(LoadError::Damage(damage)) => {
                console::warn(format!("{}: {damage}; making a new key", cache.path().display()));
            }
            Err(LoadError::Failure(failure)) => return Err(failure),
        }
        let lock = match self.lock(cache) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Err(self.interrupt.failure()),
            Err(e) => {
                console::warn(format!("{e}; the key is not cached"));
                return self.make(None, started);
            }
        };
        // Whoever held the lock may have made it.
        if let Ok(Some(keys)) = self.load(cache) {
            return keys.timed(started);
        }
        self.make(Some((cache, lock)), started)
    }

    fn lock(&self, cache: &KeyCache) -> Result<Option<Lock>, crate::key_cache::CacheError> {
        let mut told = false;
        cache.lock(|| {
            if !std::mem::replace(&mut told, true) {
                console::note(WARNING, "waiting", "another plimsoll is making the key");
            }
            !self.interrupt.is_set()
        })
    }

    fn load(&self, cache: &KeyCache) -> Result<Option<Keys>, LoadError> {
        let path = cache.path();
        let Some(mut container) = Container::open(&path, &self.r1cs.digest())? else { return Ok(None) };
        let header = KeyHeader::scan(&mut container.payload()).map_err(|e| Damage::Payload(e.to_string()))?;
        if header != self.footprint.header {
            return Err(Damage::Payload("it has other sections than this circuit's key".to_owned()).into());
        }
        let charge = self.charge(SRS, self.footprint.resident)?;
        let _scratch = self.charge(KEY_SCRATCH, self.footprint.reading)?;
        // The digest vouches for the points: they are those that were written.
        let key = container.read(|reader| ProvingKey::read(reader, &header, Checked::No))?;
        Ok(Some(Keys::new(key, charge, Origin::Cache(path))?))
    }

    fn make(&self, cache: Option<(&KeyCache, Lock)>, started: Instant) -> Result<Keys, Failure> {
        let charge = self.charge(SRS, self.footprint.resident)?;
        let scratch = self.charge(KEY_SCRATCH, self.footprint.making)?;
        console::note(
            WARNING,
            "INSECURE",
            "making a development key; with what this process knows now, proofs can be forged",
        );
        let progress = Progress::new("key", "points", 0);
        let on_progress = |at: SetupProgress| {
            progress.message(phase_name(at.phase));
            progress.set_total(at.total as u64);
            progress.set(at.done as u64);
            if self.interrupt.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let key = self.pool.install(|| setup::generate(self.r1cs, &mut OsRng, &on_progress)).map_err(|e| match e {
            SetupError::Cancelled => self.interrupt.failure(),
            e => Failure::new(Exit::Internal, format!("the key was not made: {e}")),
        })?;
        drop((progress, scratch));
        let mut keys = Keys::new(key, charge, Origin::Made(None))?;
        if let Some((cache, _lock)) = cache {
            let path = cache.path();
            match store::<KeyWriteError>(&path, &self.r1cs.digest(), |writer| keys.key.write(writer)) {
                Ok(()) => keys.origin = Origin::Made(Some(path)),
                Err(e) => console::warn(format!("{}: the key is not cached: {}", path.display(), cause(&e))),
            }
        }
        keys.timed(started)
    }

    /// The budget was compared with the footprint before: a refusal here is a fault of this program.
    fn charge(&self, class: Class, bytes: Bytes) -> Result<Reservation, Failure> {
        self.ledger
            .reserve(class, bytes)
            .name("proving key")
            .retained()
            .try_now()
            .map_err(|e| Failure::new(Exit::Internal, format!("the key does not fit its own footprint: {e}")))
    }
}

impl Keys {
    fn new(key: ProvingKey, charge: Reservation, origin: Origin) -> Result<Self, Failure> {
        let mut verifying_key = Vec::new();
        key.vk.write(&mut verifying_key).map_err(|e| Failure::new(Exit::Internal, e))?;
        let identity = key_identity(&verifying_key);
        Ok(Self { key: Arc::new(key), verifying_key, identity, origin, time: Duration::ZERO, charge })
    }

    fn timed(mut self, started: Instant) -> Result<Self, Failure> {
        self.time = started.elapsed();
        Ok(self)
    }
}

enum LoadError {
    Damage(Damage),
    Failure(Failure),
}

impl From<Damage> for LoadError {
    fn from(damage: Damage) -> Self {
        Self::Damage(damage)
    }
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        Self::Damage(Damage::Io(error))
    }
}

impl From<Failure> for LoadError {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

fn phase_name(phase: SetupPhase) -> &'static str {
    match phase {
        SetupPhase::Polynomials => "key: shape",
        SetupPhase::PointsG1 => "key: G1",
        SetupPhase::PointsG2 => "key: G2",
    }
}

/// The innermost reason: that the disk is full says more than that writing failed.
fn cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
