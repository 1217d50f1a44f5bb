//! Transforms, and the vector operations of the quotient.
//!
//! Vectors lie on the device in Montgomery form, x·R, as they are in host memory. Transforms are linear, so that they are right in
//! that form, and a product with a vector in standard form is in Montgomery form again. A product of two vectors in Montgomery form
//! is off by R; [`Inner::mul_sub_scale_on_device`] makes up for that.
//!
//! A coset whose generator is a power of the domain's root, as for snarkjs's keys, is ICICLE's own affair. For another one ICICLE
//! computes a table on the host in each call (434 ms at 2^22); here the powers lie on the device, computed once.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use blstrs::Scalar;
use ff::{Field, PrimeField};
use plimsoll::ledger::{AnyLoad, Residency};
use plimsoll::{Bytes, Demand, Reservation};
use plimsoll_groth16::backend::{BackendError, Transform};
use plimsoll_groth16::domain::Domain;

use super::books::taken_since;
use super::{Admitted, Buffer, Failure, Inner, abc, class, lock, workspace};
use crate::abi::SCALAR_BYTES;
use crate::account::{Kind, Predicted};
use crate::error::{CallError, Fault};
use crate::memory::{POOL_STEP, Scratch, domain_bytes, transform_scratch_bytes, vector_bytes};
use crate::owner::{Part, Scope};
use crate::trust::Scaling;

/// How many times the larger a vector of one factor is than a factor, where there is no function to scale.
const FACTORS: u64 = 1 << 12;
/// Powers are computed and copied so many at a time.
const POWERS_AT_ONCE: usize = 1 << 10;
/// About how long a power takes: for the choice of what is evicted.
const POWER_NANOSECONDS: u64 = 100;
/// A vector operation is cut into pieces of at least so many.
const PIECE_MIN: usize = 1 << 10;

/// What pays for the domain. The lock is held while the domain is made, and the ledger waited for.
#[derive(Debug, Default)]
pub(super) struct DomainBook {
    paid: Option<Reservation>,
    /// For what it was seen to take beyond its prediction.
    over: Option<Reservation>,
}

/// The powers of a coset's generator on the device.
#[derive(Debug)]
pub(super) struct Table {
    generator: Scalar,
    log_size: u32,
    residency: Residency<Arc<Buffer>>,
}

/// How a vector gets to a coset and back.
#[derive(Clone, Debug)]
enum Coset {
    /// The domain itself.
    None,
    /// By ICICLE, which knows the generator as a power of its root.
    Power(Scalar),
    /// By tables: of the generator's powers, or of its inverse's.
    Table(Residency<Arc<Buffer>>, Scalar),
}

impl Inner {
    /// Sees to it that the device has a domain of 2^`log_size` at least.
    pub(super) fn require_domain(&self, log_size: u32) -> Result<(), CallError> {
        const WHAT: &str = "make the domain";
        let mut book = lock(&self.domain);
        if self.owner.domain().is_some_and(|there| there >= log_size) {
            return Ok(());
        }
        let roots = domain_bytes(log_size, self.scratch);
        let predicted = self.account.predict(Kind::Domain, roots, self.step(), roots);
        let bytes = predicted.total();
        if bytes > self.limit {
            let fault = Fault::OutOfMemory { code: 0, wanted: Bytes(bytes) };
            return Err(CallError { operation: WHAT, fault });
        }
        // The old one goes first: the two are never there at once.
        self.forget_domain(&mut book)?;
        let paid = self.keep("device.domain", bytes)?;
        let made = self.owner.call_alone(WHAT, |scope| {
            let before = self.free_before(scope);
            scope.init_domain(log_size)?;
            Ok(taken_since(scope, before))
        });
        match made {
            Ok(used) => {
                let over = self.account.saw_other(&predicted, used);
                // Relaxed: the domain is made under this lock, and its size is looked at by who wants to know what is gone.
                self.domain_seen.store(used, Ordering::Relaxed);
                book.paid = Some(paid);
                book.over = self.book_over("device.domain", over);
                Ok(())
            }
            Err(error) => {
                // What of it was there has been let go.
                drop(paid);
                if error.is_out_of_memory() {
                    self.account.failed_other(&predicted);
                }
                Err(error)
            }
        }
    }

    fn forget_domain(&self, book: &mut DomainBook) -> Result<(), CallError> {
        if self.owner.domain().is_some() {
            self.owner.release_domain()?;
        }
        self.domain_seen.store(0, Ordering::Relaxed);
        *book = DomainBook::default();
        Ok(())
    }

    /// The step in which the device's allocator grows.
    fn step(&self) -> u64 {
        if self.scratch == Scratch::Pooled { POOL_STEP } else { 0 }
    }

    /// What an operation on vectors of so many bytes takes by itself.
    fn besides(&self, bytes: u64, plain: u64) -> Predicted {
        self.account.predict(Kind::Vectors, bytes, self.step(), plain)
    }

    /// The same of a transform.
    fn besides_transform(&self, domain: &Domain) -> Predicted {
        let plain = transform_scratch_bytes(domain.log_size(), self.scratch);
        self.besides(vector_bytes(1 << domain.log_size()), plain)
    }

    /// A call whose own allocations were predicted. What it is seen to take beyond that is booked while it runs, counted, and learned.
    fn compute<'env>(
        &'env self,
        operation: &'static str,
        predicted: &Predicted,
        f: impl FnOnce(&mut Scope<'_, 'env>) -> Result<(), CallError> + Send + 'env,
    ) -> Result<(), CallError> {
        let total = predicted.total();
        let made = self.owner.call(operation, move |scope| {
            let before = self.free_before(scope);
            f(scope)?;
            let used = taken_since(scope, before);
            Ok((used, self.book_over("device.overrun", used.saturating_sub(total))))
        });
        match made {
            Ok((used, booked)) => {
                // It is over, and with it what was allocated.
                drop(booked);
                self.account.saw_other(predicted, used);
                Ok(())
            }
            Err(error) => {
                if error.is_out_of_memory() {
                    self.account.failed_other(predicted);
                }
                Err(error)
            }
        }
    }

    pub(super) fn let_go_of_domain(&self) {
        let mut book = lock(&self.domain);
        // One that has fallen silent keeps it, and one that would not let go of it is asked again when its thread ends.
        let _ = self.forget_domain(&mut book);
    }

    /// How to get to the domain's coset, or back.
    fn coset(&self, domain: &Domain, transform: Transform) -> Result<Coset, CallError> {
        let inverse = match transform {
            Transform::Forward | Transform::Inverse => return Ok(Coset::None),
            Transform::CosetForward => false,
            Transform::CosetInverse => true,
        };
        let shift = domain.coset_shift();
        if shift.square() == domain.omega() {
            return Ok(Coset::Power(shift));
        }
        let generator = if inverse {
            Option::from(shift.invert()).ok_or(CallError::refused("transform", "there is no coset of zero"))?
        } else {
            shift
        };
        let residency = self.table(generator, domain.log_size())?;
        Ok(Coset::Table(residency, generator))
    }

    fn table(&self, generator: Scalar, log_size: u32) -> Result<Residency<Arc<Buffer>>, CallError> {
        let mut tables = lock(&self.tables);
        let is_it = |table: &&Table| table.generator == generator && table.log_size == log_size;
        if let Some(table) = tables.iter().find(is_it) {
            return Ok(table.residency.clone());
        }
        let bytes = Bytes(SCALAR_BYTES << log_size);
        let cost = Duration::from_nanos(POWER_NANOSECONDS << log_size);
        let declared = self.ledger.residency("coset powers", class("device.tables", self.number), bytes, cost);
        let residency = declared.map_err(|_| CallError::refused("transform", "the ledger does not know the device"))?;
        tables.push(Table { generator, log_size, residency: residency.clone() });
        Ok(residency)
    }

    /// Computes a table, for all who wait for it. In standard form: then a product with it is in the form of the other factor.
    fn load_table(
        &self,
        load: AnyLoad,
        residency: &Residency<Arc<Buffer>>,
        generator: &Scalar,
    ) -> Result<(), CallError> {
        let bug = || CallError::refused("compute powers", "another residency was to be loaded; this is a bug");
        let mut load = load.of(residency).map_err(|_| bug())?;
        let paid = load.take(residency.bytes()).map_err(|_| bug())?;
        let buffer = self.buffer_for(paid)?;
        let mut power = Scalar::ONE;
        let mut at = 0;
        while at < buffer.memory.bytes() {
            let left = ((buffer.memory.bytes() - at) / SCALAR_BYTES) as usize;
            let mut bytes = Vec::with_capacity(POWERS_AT_ONCE * 32);
            for _ in 0..left.min(POWERS_AT_ONCE) {
                bytes.extend_from_slice(&power.to_bytes_le());
                power *= generator;
            }
            let part = buffer.memory.part(at, bytes.len() as u64);
            self.owner.call("copy to the device", |scope| scope.copy_in(&bytes, part))?;
            at += bytes.len() as u64;
        }
        // Refused where nobody waits any more.
        let _ = load.fill(Arc::new(buffer));
        Ok(())
    }

    /// The domain that a transform needs.
    fn domain_for(domain: &Domain, coset: &Coset) -> u32 {
        domain.log_size() + u32::from(matches!(coset, Coset::Power(_)))
    }

    fn admit_with(
        &self,
        operation: &'static str,
        demands: impl Iterator<Item = Demand>,
        coset: &Coset,
    ) -> Result<Admitted, Failure> {
        self.book_leaks();
        self.admit(
            operation,
            demands,
            |spec| match coset {
                Coset::Table(residency, _) => spec.needs(residency),
                _ => spec,
            },
            |load| match coset {
                Coset::Table(residency, generator) => self.load_table(load, residency, generator),
                _ => Err(CallError::refused(operation, "nothing was to be loaded; this is a bug")),
            },
        )
    }

    /// Transforms a vector. After an error `touched` says whether something may have been written into it.
    pub(super) fn transform(
        &self,
        domain: &Domain,
        data: &mut [Scalar],
        transform: Transform,
        touched: &mut bool,
    ) -> Result<(), BackendError> {
        self.again(|| self.transform_once(domain, data, transform, touched))
    }

    fn transform_once(
        &self,
        domain: &Domain,
        data: &mut [Scalar],
        transform: Transform,
        touched: &mut bool,
    ) -> Result<(), Failure> {
        const WHAT: &str = "ntt";
        if data.len() <= 1 {
            // One value is its own transform.
            return Ok(());
        }
        let told = |error| self.told(WHAT, error, self.limit);
        let coset = self.coset(domain, transform).map_err(told)?;
        self.require_domain(Self::domain_for(domain, &coset)).map_err(told)?;
        let bytes = vector_bytes(data.len() as u64);
        let besides = self.besides_transform(domain);
        let demand =
            Demand::new().bytes(abc(self.number), Bytes(bytes)).bytes(workspace(self.number), Bytes(besides.total()));
        let mut admitted = self.admit_with(WHAT, std::iter::once(demand), &coset)?;
        let mut run = || {
            let table = match &coset {
                Coset::Table(residency, _) => admitted.grant.pinned(residency).cloned(),
                _ => None,
            };
            let room = self.buffer(&mut admitted.grant, abc(self.number), bytes)?;
            let vector = room.memory.all();
            let copied = self.owner.call("copy to the device", |scope| scope.copy_in(&*data, vector));
            let made = copied.and_then(|()| {
                self.compute(WHAT, &besides, |scope| {
                    let table = table.as_ref().map(|table| table.memory.all());
                    transform_on_device(scope, vector, transform, &coset, table)?;
                    *touched = true;
                    scope.copy_out(vector, data)
                })
            });
            self.erased(&room, made)
        };
        let outcome = run();
        drop(admitted);
        outcome.map_err(told)
    }

    /// The quotient's values on the coset, in the first of the vectors. All three on the device at once if there is room for
    /// them; otherwise one after the other. `touched` as in [`Inner::transform`].
    pub(super) fn quotient(
        &self,
        domain: &Domain,
        [a, b, c]: [&mut [Scalar]; 3],
        factor: &Scalar,
        touched: &mut bool,
    ) -> Result<(), BackendError> {
        let together = self.again(|| self.quotient_together(domain, [&mut *a, &mut *b, &mut *c], factor, touched))?;
        if together { Ok(()) } else { self.quotient_piecewise(domain, [a, b, c], factor, touched) }
    }

    /// `false` where there is no room for three, and nothing was done.
    fn quotient_together(
        &self,
        domain: &Domain,
        [a, b, c]: [&mut [Scalar]; 3],
        factor: &Scalar,
        touched: &mut bool,
    ) -> Result<bool, Failure> {
        const WHAT: &str = "quotient";
        let told = |error| self.told(WHAT, error, self.limit);
        let len = a.len() as u64;
        let coset = self.coset(domain, Transform::CosetForward).map_err(told)?;
        let bytes = vector_bytes(len);
        let besides = self.besides_transform(domain);
        let fits = |vectors: u64| {
            let table = if matches!(coset, Coset::Table(..)) { bytes } else { 0 };
            vectors * bytes + self.factor_bytes() + besides.total() + table <= self.limit
        };
        if len == 1 || !fits(3) {
            return Ok(false);
        }
        self.require_domain(Self::domain_for(domain, &coset)).map_err(told)?;
        let demand = Demand::new()
            .bytes(abc(self.number), Bytes(3 * bytes))
            .bytes(workspace(self.number), Bytes(self.factor_bytes() + besides.total()));
        let admitted = self.admit_with(WHAT, std::iter::once(demand), &coset);
        let mut admitted = match admitted {
            // What is kept for good leaves too little room for three.
            Err(Failure::Final(BackendError::DeviceOutOfMemory { .. })) => return Ok(false),
            other => other?,
        };
        let factors = self.factors(factor);
        let mut run = || {
            let table = match &coset {
                Coset::Table(residency, _) => admitted.grant.pinned(residency).cloned(),
                _ => None,
            };
            let room = self.buffer(&mut admitted.grant, abc(self.number), 3 * bytes)?;
            let factor_room = self.buffer(&mut admitted.grant, workspace(self.number), self.factor_bytes())?;
            let parts = [0, 1, 2].map(|index| room.memory.part(index * bytes, bytes));
            let copied = self.owner.call("copy to the device", |scope| {
                for (vector, part) in [&*a, &*b, &*c].into_iter().zip(parts) {
                    scope.copy_in(vector, part)?;
                }
                scope.copy_in(&factors, factor_room.memory.all())
            });
            let made = copied.and_then(|()| {
                self.compute(WHAT, &besides, |scope| {
                    let table = table.as_ref().map(|table| table.memory.all());
                    for part in parts {
                        transform_on_device(scope, part, Transform::Inverse, &Coset::None, None)?;
                        transform_on_device(scope, part, Transform::CosetForward, &coset, table)?;
                    }
                    self.mul_sub_scale_on_device(scope, parts, &factor_room)?;
                    *touched = true;
                    scope.copy_out(parts[0], a)
                })
            });
            self.erased(&room, made)
        };
        let outcome = run();
        drop(admitted);
        outcome.map(|()| true).map_err(told)
    }

    fn quotient_piecewise(
        &self,
        domain: &Domain,
        [a, b, c]: [&mut [Scalar]; 3],
        factor: &Scalar,
        touched: &mut bool,
    ) -> Result<(), BackendError> {
        for vector in [&mut *a, &mut *b, &mut *c] {
            self.transform(domain, vector, Transform::Inverse, touched)?;
            self.transform(domain, vector, Transform::CosetForward, touched)?;
        }
        self.mul_sub_scale(a, b, c, factor, touched)
    }

    /// `a[i] = (a[i]·b[i] − c[i])·factor`, in as many pieces as the device's room demands. After an error it may be that the first
    /// pieces are made.
    pub(super) fn mul_sub_scale(
        &self,
        a: &mut [Scalar],
        b: &[Scalar],
        c: &[Scalar],
        factor: &Scalar,
        touched: &mut bool,
    ) -> Result<(), BackendError> {
        // What is made is not made again.
        let mut made = 0;
        self.again(|| {
            let rest = [&b[made..], &c[made..]];
            self.mul_sub_scale_rest(&mut a[made..], rest, factor, &mut made, touched)
        })
    }

    fn mul_sub_scale_rest(
        &self,
        a: &mut [Scalar],
        [b, c]: [&[Scalar]; 2],
        factor: &Scalar,
        made: &mut usize,
        touched: &mut bool,
    ) -> Result<(), Failure> {
        const WHAT: &str = "mul_sub_scale";
        if a.is_empty() {
            return Ok(());
        }
        let halve = |piece: &usize| (*piece > PIECE_MIN).then(|| piece.div_ceil(2));
        let pieces: Vec<usize> = std::iter::successors(Some(a.len()), halve).collect();
        let besides: Vec<Predicted> = pieces.iter().map(|piece| self.besides(vector_bytes(*piece as u64), 0)).collect();
        let demands = besides.iter().map(|besides| {
            Demand::new()
                .bytes(abc(self.number), Bytes(3 * besides.bytes))
                .bytes(workspace(self.number), Bytes(self.factor_bytes() + besides.total()))
        });
        let mut admitted = self.admit_with(WHAT, demands, &Coset::None)?;
        let choice = admitted.grant.choice();
        let (piece, besides) = (pieces[choice], besides[choice]);
        let factors = self.factors(factor);
        let mut run = || {
            let room = self.buffer(&mut admitted.grant, abc(self.number), 3 * vector_bytes(piece as u64))?;
            let factor_room = self.buffer(&mut admitted.grant, workspace(self.number), self.factor_bytes())?;
            self.owner.call("copy to the device", |scope| scope.copy_in(&factors, factor_room.memory.all()))?;
            let mut pieces = a.chunks_mut(piece).zip(b.chunks(piece)).zip(c.chunks(piece));
            let outcome = pieces.try_for_each(|((a, b), c)| {
                let bytes = vector_bytes(a.len() as u64);
                let parts = [0, 1, 2].map(|index| room.memory.part(index * bytes, bytes));
                self.owner.call("copy to the device", |scope| {
                    for (vector, part) in [&*a, b, c].into_iter().zip(parts) {
                        scope.copy_in(vector, part)?;
                    }
                    Ok(())
                })?;
                let len = a.len();
                self.compute(WHAT, &besides, |scope| {
                    self.mul_sub_scale_on_device(scope, parts, &factor_room)?;
                    *touched = true;
                    scope.copy_out(parts[0], a)
                })?;
                *made += len;
                Ok(())
            });
            self.erased(&room, outcome)
        };
        let outcome = run();
        drop(admitted);
        outcome.map_err(|error| self.told(WHAT, error, self.limit))
    }

    /// The bytes of the two factors on the device, once or as vectors.
    fn factor_bytes(&self) -> u64 {
        2 * SCALAR_BYTES * if self.scaling == Scaling::Function { 1 } else { FACTORS }
    }

    /// R and factor/R in standard form, once or as vectors.
    ///
    /// a·b of Montgomery forms is ab·R², c·R of one is c·R²; (ab − c)·R² times factor/R is the Montgomery form of the result.
    fn factors(&self, factor: &Scalar) -> Vec<u8> {
        let r = Scalar::from(2).pow_vartime([256]);
        let over_r = *factor * Option::<Scalar>::from(r.invert()).unwrap_or(Scalar::ZERO);
        let times = if self.scaling == Scaling::Function { 1 } else { FACTORS as usize };
        let one = |value: Scalar| value.to_bytes_le().repeat(times);
        [one(r), one(over_r)].concat()
    }

    fn mul_sub_scale_on_device<'env>(
        &self,
        scope: &mut Scope<'_, 'env>,
        [a, b, c]: [Part<'env>; 3],
        factors: &'env Buffer,
    ) -> Result<(), CallError> {
        let half = factors.memory.bytes() / 2;
        let [r, over_r] = [0, half].map(|at| factors.memory.part(at, half));
        scope.multiply(a, b, a)?;
        self.scale(scope, r, c)?;
        scope.subtract(a, c, a)?;
        self.scale(scope, over_r, a)
    }

    /// Multiplies a vector by one factor.
    fn scale<'env>(
        &self,
        scope: &mut Scope<'_, 'env>,
        factor: Part<'env>,
        vector: Part<'env>,
    ) -> Result<(), CallError> {
        if self.scaling == Scaling::Function {
            return scope.scale(factor, vector);
        }
        let mut at = 0;
        while at < vector.bytes() {
            let bytes = factor.bytes().min(vector.bytes() - at);
            let part = vector.part(at, bytes);
            scope.multiply(part, factor.part(0, bytes), part)?;
            at += bytes;
        }
        Ok(())
    }
}

/// A transform of a vector on the device, in place.
fn transform_on_device<'env>(
    scope: &mut Scope<'_, 'env>,
    vector: Part<'env>,
    transform: Transform,
    coset: &Coset,
    table: Option<Part<'env>>,
) -> Result<(), CallError> {
    let inverse = matches!(transform, Transform::Inverse | Transform::CosetInverse);
    let generator = match coset {
        Coset::Power(generator) => Some(generator),
        Coset::None | Coset::Table(..) => None,
    };
    if let (Some(table), false) = (table, inverse) {
        scope.multiply(vector, table, vector)?;
    }
    scope.ntt(vector, inverse, generator)?;
    match (table, inverse) {
        (Some(table), true) => scope.multiply(vector, table, vector),
        _ => Ok(()),
    }
}

/// ω's order is 2^32.
const _: () = assert!(Scalar::S == 32);
