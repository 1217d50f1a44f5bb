//! Where batches are proved: memory, threads and a backend, shared by all keys.

use std::env::{self, VarError};
use std::sync::{Arc, OnceLock};

use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Budget, Bytes, Ledger, Profile, Space};

use super::BatchError;
use crate::backend::{Backend, Cpu};
use crate::footprint::{MATRICES, SRS};

/// The environment variable that limits [`Engine::of_process`].
const MEMORY: &str = "PLIMSOLL_MEMORY";

/// A ledger, a pool and a backend. Cheap to clone; clones share all three.
#[derive(Clone, Debug)]
pub struct Engine {
    ledger: Ledger,
    pool: Pool,
    backend: Arc<dyn Backend>,
}

impl Engine {
    /// An engine within this ledger's budget, on this pool.
    pub fn new(ledger: Ledger, pool: Pool) -> Self {
        Self { ledger, pool, backend: Arc::new(Cpu::new()) }
    }

    /// The same with another backend.
    #[must_use]
    pub fn with_backend(mut self, backend: Arc<dyn Backend>) -> Self {
        self.backend = backend;
        self
    }

    /// The engine that calls use which name none: all cores that the process may use, and the bytes of host memory that the
    /// environment variable `PLIMSOLL_MEMORY` says (`8GiB`); without it there is no limit, and as many proofs are under way as keep
    /// the cores busy. It is made at its first use.
    ///
    /// # Errors
    /// [`BatchError::Budget`], [`BatchError::Threads`].
    pub fn of_process() -> Result<Self, BatchError> {
        static ENGINE: OnceLock<Engine> = OnceLock::new();
        if let Some(engine) = ENGINE.get() {
            return Ok(engine.clone());
        }
        let ledger = match env::var(MEMORY) {
            Ok(value) => match value.parse::<Bytes>() {
                Ok(bytes) => Ledger::new(Budget::new().space(Space::HOST, bytes)),
                Err(_) => return Err(BatchError::Budget { value }),
            },
            Err(VarError::NotUnicode(value)) => {
                return Err(BatchError::Budget { value: value.to_string_lossy().into_owned() });
            }
            Err(VarError::NotPresent) => Ledger::unlimited(),
        };
        let engine = Self::new(ledger, Pool::new(PoolConfig::default())?);
        // Of two that were made at once, one is used by all.
        Ok(ENGINE.get_or_init(|| engine).clone())
    }

    /// Fails when a proof could wait for ever: keys and matrices stay as long as their [`super::Parameters`], so what they hold is
    /// never free for it.
    pub(super) fn require_room(&self, profile: &Profile) -> Result<(), BatchError> {
        let snapshot = self.ledger.snapshot();
        let Some(host) = snapshot.space(Space::HOST) else { return Ok(()) };
        let kept: u64 =
            [SRS, MATRICES].into_iter().filter_map(|class| snapshot.class(class)).map(|usage| usage.totals.held).sum();
        let left = host.limit.0.saturating_sub(kept);
        let needed = profile.stages().iter().map(|stage| stage.peak.iter().map(|(_, bytes)| bytes).sum()).max();
        match needed {
            Some(needed) if needed > left => Err(BatchError::TooLarge { needed: Bytes(needed), left: Bytes(left) }),
            _ => Ok(()),
        }
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The pool.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The backend.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }
}
