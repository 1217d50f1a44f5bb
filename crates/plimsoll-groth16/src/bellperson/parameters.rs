//! A key with the engine that proves with it and, once a circuit has been seen, that circuit's matrices.

use std::io::{Read, Seek};
use std::sync::{Arc, OnceLock};

use bellpepper_core::Circuit;
use blstrs::Scalar;
use plimsoll::{Bytes, Reservation};

use super::first::{self, Values};
use super::{BatchError, Engine};
use crate::footprint::{MATRICES, SRS};
use crate::keys::{Checked, KeyHeader, KeyReadError, ProvingKey, VerifyingKey};
use crate::prover::Prover;
use crate::r1cs::R1cs;

/// A proving key, loaded into an engine.
#[derive(Debug)]
pub struct Parameters {
    engine: Engine,
    key: Arc<ProvingKey>,
    shape: OnceLock<Shape>,
    distinct_variables: bool,
    _paid: Reservation,
}

#[derive(Debug)]
struct Shape {
    r1cs: Arc<R1cs>,
    _paid: Reservation,
}

impl Parameters {
    /// Reads bellperson's format, for the process's engine. `checked` says whether every point is checked for the subgroup.
    ///
    /// # Errors
    /// See [`Parameters::read_in`] and [`Engine::of_process`].
    pub fn read<R: Read + Seek + Send>(reader: R, checked: bool) -> Result<Self, BatchError> {
        Self::read_in(&Engine::of_process()?, reader, checked)
    }

    /// Reads bellperson's format, for an engine. Waits for the key's bytes before it loads it.
    ///
    /// # Errors
    /// [`BatchError::Key`]; [`BatchError::Memory`] if the key does not fit into the budget.
    pub fn read_in<R: Read + Seek + Send>(engine: &Engine, mut reader: R, checked: bool) -> Result<Self, BatchError> {
        let header = KeyHeader::scan(&mut reader)?;
        reader.rewind().map_err(|source| KeyReadError::Io { section: crate::keys::Section::Constants, source })?;
        let resident = Bytes(header.resident_bytes());
        let mut paid = reserve(engine, "key", SRS, Bytes(resident.0 + KeyHeader::READ_SCRATCH_BYTES))?;
        let checked = if checked { Checked::Yes } else { Checked::No };
        let key = engine.pool().install(|| ProvingKey::read(reader, &header, checked))?;
        paid.shrink_to(resident).unwrap_or_else(|_| unreachable!("more was reserved"));
        Ok(Self {
            engine: engine.clone(),
            key: Arc::new(key),
            shape: OnceLock::new(),
            distinct_variables: false,
            _paid: paid,
        })
    }

    /// A key that is already in memory; its bytes are charged from now on.
    ///
    /// # Errors
    /// [`BatchError::Memory`] if the key does not fit into the budget.
    pub fn new(engine: &Engine, key: Arc<ProvingKey>) -> Result<Self, BatchError> {
        let paid = reserve(engine, "key", SRS, Bytes(key.resident_bytes()))?;
        Ok(Self { engine: engine.clone(), key, shape: OnceLock::new(), distinct_variables: false, _paid: paid })
    }

    /// Builds the matrices now, from a circuit without a witness, instead of from the first circuit that is proved.
    ///
    /// # Errors
    /// [`BatchError::Shape`], [`BatchError::Mismatch`], [`BatchError::Memory`].
    pub fn with_circuit<C: Circuit<Scalar>>(self, circuit: C) -> Result<Self, BatchError> {
        let r1cs = R1cs::from_circuit(circuit)?;
        self.keep(r1cs)?;
        Ok(self)
    }

    /// For circuits that look at their variables; see [`Prover::with_distinct_variables`].
    #[must_use]
    pub fn with_distinct_variables(mut self) -> Self {
        self.distinct_variables = true;
        self
    }

    /// The verifying key.
    pub fn vk(&self) -> &VerifyingKey {
        &self.key.vk
    }

    /// The key.
    pub fn key(&self) -> &Arc<ProvingKey> {
        &self.key
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The prover, if a circuit has been seen.
    pub(super) fn prover(&self) -> Result<Option<Prover>, BatchError> {
        self.shape.get().map(|shape| self.prover_of(&shape.r1cs)).transpose()
    }

    /// Synthesises the first circuit, for its matrices and its values at once.
    pub(super) fn first<C: Circuit<Scalar> + Send>(&self, circuit: C) -> Result<(Prover, Values), BatchError> {
        let (inputs, aux) = (self.key.vk.ic.len(), self.key.l.len());
        let (r1cs, values) = self.engine.pool().install(|| first::synthesise(circuit, inputs, aux))?;
        Ok((self.keep(r1cs)?, values))
    }

    /// Keeps the matrices, unless another call was faster.
    fn keep(&self, r1cs: R1cs) -> Result<Prover, BatchError> {
        self.key.check_shape(&r1cs)?;
        let paid = reserve(&self.engine, "circuit's matrices", MATRICES, Bytes(r1cs.resident_bytes()))?;
        let shape = self.shape.get_or_init(|| Shape { r1cs: Arc::new(r1cs), _paid: paid });
        self.prover_of(&shape.r1cs)
    }

    fn prover_of(&self, r1cs: &Arc<R1cs>) -> Result<Prover, BatchError> {
        let prover = Prover::new(r1cs.clone(), self.key.clone(), self.engine.backend().clone())?;
        Ok(if self.distinct_variables { prover.with_distinct_variables() } else { prover })
    }
}

/// Waits for bytes that nothing else is held meanwhile.
fn reserve(
    engine: &Engine,
    what: &'static str,
    class: plimsoll::Class,
    bytes: Bytes,
) -> Result<Reservation, BatchError> {
    engine.ledger().reserve(class, bytes).name(what).wait().map_err(|source| BatchError::Memory { what, source })
}
