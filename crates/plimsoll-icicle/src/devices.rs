//! Several devices of ICICLE's as one [`Backend`].
//!
//! Each operation goes to one of them: to that with the fewest under way; among those, for a multiplication, to one that has the
//! points already; and otherwise to the first. So one proof at a time is made where its key is, and several at once are made on all
//! of them, each of which then has the key. Each device has an owner's thread, a ledger and memory of its own, and what is on
//! one is freed there.
//!
//! A device that is lost, or has no room for an operation, gives it to the next one, as long as nothing was written of its result:
//! multiplications always, transforms up to the moment in which they are read back. Then it is an error, and what comes after it
//! goes elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use plimsoll::{Bytes, Reservation};
use plimsoll_groth16::backend::{
    Backend, BackendError, CurveGroup, Transform, require_same_length, require_vectors_of,
};
use plimsoll_groth16::domain::Domain;
use plimsoll_groth16::keys::ProvingKey;

use crate::error::OpenError;
use crate::icicle::{Device, Icicle, KeyCurve};

/// Several devices that compute with vectors in host memory. Clones are the same devices.
#[derive(Clone, Debug)]
pub struct Devices {
    all: Arc<[Place]>,
}

/// A device, and how many operations it is busy with.
#[derive(Debug)]
struct Place {
    icicle: Icicle,
    under_way: AtomicUsize,
}

/// An operation of a device's, until it is dropped.
struct Turn<'a>(&'a Place);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Devices {
    /// These devices, in this order.
    ///
    /// # Panics
    ///
    /// Without any.
    pub fn new(devices: impl IntoIterator<Item = Icicle>) -> Self {
        let place = |icicle| Place { icicle, under_way: AtomicUsize::new(0) };
        let all: Arc<[Place]> = devices.into_iter().map(place).collect();
        assert!(!all.is_empty(), "at least one device");
        Self { all }
    }

    /// Puts each under a ledger of its own, with so much of its memory; without a number seven eighths of what is free.
    ///
    /// # Errors
    ///
    /// As [`Device::alone`].
    ///
    /// # Panics
    ///
    /// Without any device.
    pub fn alone(devices: Vec<Device>, memory: Option<Bytes>) -> Result<Self, OpenError> {
        let all = devices.into_iter().map(|device| device.alone(memory)).collect::<Result<Vec<_>, _>>()?;
        Ok(Self::new(all))
    }

    /// Each of them.
    pub fn each(&self) -> impl Iterator<Item = &Icicle> {
        self.all.iter().map(|place| &place.icicle)
    }

    /// Makes an operation on the best device, and on others after it if it is lost or has no room, for as long as the operation has
    /// not said that it may have written something.
    fn on_one<R>(
        &self,
        has: impl Fn(&Icicle) -> bool,
        mut operation: impl FnMut(&Icicle, &mut bool) -> Result<R, BackendError>,
    ) -> Result<R, BackendError> {
        let mut tried = vec![false; self.all.len()];
        let (mut touched, mut last) = (false, None);
        loop {
            let Some((index, turn)) = self.take_turn(&tried, &has) else {
                // Each was tried, or is lost: then the first says so.
                return last.map_or_else(|| operation(&self.all[0].icicle, &mut touched), Err);
            };
            tried[index] = true;
            match operation(&turn.0.icicle, &mut touched) {
                Err(error @ (BackendError::DeviceLost { .. } | BackendError::DeviceOutOfMemory { .. }))
                    if (!touched || mutant!("icicle-made-twice")) && !mutant!("icicle-one-device-only") =>
                {
                    last = Some(error);
                }
                other => return other,
            }
        }
    }

    /// The best device that was not tried and is not lost.
    fn take_turn(&self, tried: &[bool], has: &impl Fn(&Icicle) -> bool) -> Option<(usize, Turn<'_>)> {
        loop {
            let left = self.all.iter().enumerate().filter(|(index, place)| !tried[*index] && place.is_there());
            // Relaxed, here and below: a count that carries nothing with it.
            let load = |place: &Place| place.under_way.load(Ordering::Relaxed);
            let (index, place) = left.min_by_key(|(index, place)| (load(place), !has(&place.icicle), *index))?;
            let seen = load(place);
            // Somebody else may have taken it in the same moment, and then another one is the best.
            if place.under_way.compare_exchange(seen, seen + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Some((index, Turn(place)));
            }
        }
    }

    fn msm<C: KeyCurve>(&self, bases: &[C], scalars: &[Scalar]) -> Result<C::Curve, BackendError> {
        require_same_length("msm", bases.len(), scalars.len())?;
        self.on_one(|icicle| icicle.has_points(bases), |icicle, _| icicle.multiply(bases, scalars))
    }
}

impl Place {
    fn is_there(&self) -> bool {
        self.icicle.owner().lost().is_none()
    }
}

impl Backend for Devices {
    fn name(&self) -> &'static str {
        "icicle"
    }

    fn adopt_key(&self, key: &Arc<ProvingKey>) {
        self.each().for_each(|icicle| icicle.adopt_key(key));
    }

    fn wants_verification(&self) -> bool {
        true
    }

    fn remarks(&self) -> Option<String> {
        let of = |icicle: &Icicle| {
            let lost = icicle.owner().lost().map(|why| format!("was given up: {why}"));
            let all: Vec<String> = lost.into_iter().chain(icicle.remarks()).collect();
            (!all.is_empty()).then(|| format!("{}: {}", icicle.owner().name(), all.join("; ")))
        };
        let all: Vec<String> = self.each().filter_map(of).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }

    fn ntt_scratch_bytes(&self, _n: usize, _threads: usize) -> u64 {
        0
    }

    fn quotient_scratch_bytes(&self, _n: usize, _threads: usize) -> u64 {
        0
    }

    fn msm_scratch_bytes(&self, _group: CurveGroup, _n: usize, _threads: usize) -> u64 {
        0
    }

    fn ntt(
        &self,
        domain: &Domain,
        data: &mut [Scalar],
        transform: Transform,
        _scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_same_length("ntt", domain.size(), data.len())?;
        self.on_one(|_| false, |icicle, touched| icicle.transform(domain, data, transform, touched))
    }

    fn quotient_on_coset(
        &self,
        domain: &Domain,
        a: &mut [Scalar],
        b: &mut [Scalar],
        c: &mut [Scalar],
        factor: &Scalar,
        _scratch: &mut Reservation,
    ) -> Result<(), BackendError> {
        require_vectors_of(domain, [a, b, c])?;
        self.on_one(|_| false, |icicle, touched| icicle.quotient(domain, [&mut *a, &mut *b, &mut *c], factor, touched))
    }

    fn mul_sub_scale(&self, a: &mut [Scalar], b: &[Scalar], c: &[Scalar], factor: &Scalar) -> Result<(), BackendError> {
        require_same_length("mul_sub_scale", a.len(), b.len())?;
        require_same_length("mul_sub_scale", a.len(), c.len())?;
        self.on_one(|_| false, |icicle, touched| icicle.mul_sub_scale_noting(a, b, c, factor, touched))
    }

    fn msm_g1(
        &self,
        bases: &[G1Affine],
        scalars: &[Scalar],
        _scratch: &mut Reservation,
    ) -> Result<G1Projective, BackendError> {
        self.msm(bases, scalars)
    }

    fn msm_g2(
        &self,
        bases: &[G2Affine],
        scalars: &[Scalar],
        _scratch: &mut Reservation,
    ) -> Result<G2Projective, BackendError> {
        self.msm(bases, scalars)
    }
}
