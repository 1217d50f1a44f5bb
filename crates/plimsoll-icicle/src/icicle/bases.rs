//! Points that stay on the device: uploaded once, converted once, evicted when others need the room.
//!
//! A backend is handed slices of points, again and again the same. They are recognised by their address: the backend was told of
//! the key that they belong to ([`Backend::adopt_key`](plimsoll_groth16::backend::Backend::adopt_key)). It does not keep that key, but
//! takes a slice for the key's only if the key is still there, and has been all the time, so that the address is nobody else's; from
//! then on it holds on to the key until the operation is over. A key that nobody has any more is forgotten when the backend is told of
//! the next one, and its points go with it; until then they stay unless others need their room.

use std::sync::{Arc, Weak};
use std::time::Duration;

use plimsoll::Bytes;
use plimsoll::ledger::{AnyLoad, Residency};
use plimsoll_groth16::backend::CurveGroup;
use plimsoll_groth16::keys::{HBasis, ProvingKey};

use super::{Buffer, Inner, lock};
use crate::convert::{IcicleCurve, affine_bytes};
use crate::error::CallError;
use crate::memory::MsmPlan;
use crate::owner::Plain;

/// About how long points take to load again, a KiB: for the choice of what is evicted.
const LOAD_NANOSECONDS_PER_KIB: u64 = 100;

/// A key that the backend was told of.
#[derive(Debug)]
pub(super) struct KnownKey {
    key: Weak<ProvingKey>,
    queries: Vec<Query>,
}

/// One of its vectors of points.
#[derive(Debug)]
struct Query {
    group: CurveGroup,
    /// Of the first point in host memory.
    address: usize,
    bytes: usize,
    residency: Residency<Arc<Buffer>>,
}

/// A slice of points that is known.
pub(super) struct Known<C: 'static> {
    pub(super) residency: Residency<Arc<Buffer>>,
    /// Where the slice begins, in bytes.
    pub(super) at: u64,
    /// The whole vector. Its key is held for as long.
    pub(super) whole: Whole<C>,
}

/// A vector of points, and the key that it is of.
pub(super) struct Whole<C: 'static> {
    key: Arc<ProvingKey>,
    of: fn(&ProvingKey) -> Vec<&[C]>,
    index: usize,
}

impl<C> Whole<C> {
    pub(super) fn points(&self) -> &[C] {
        (self.of)(&self.key)[self.index]
    }
}

/// A curve whose points are in keys.
pub(crate) trait KeyCurve: IcicleCurve + Plain {
    /// The key's vectors of them.
    const QUERIES: fn(&ProvingKey) -> Vec<&[Self]>;
}

impl KeyCurve for blstrs::G1Affine {
    const QUERIES: fn(&ProvingKey) -> Vec<&[Self]> = |key| vec![&key.h.points, &key.l, &key.a, &key.b_g1];
}

impl KeyCurve for blstrs::G2Affine {
    const QUERIES: fn(&ProvingKey) -> Vec<&[Self]> = |key| vec![&key.b_g2];
}

impl Inner {
    pub(super) fn adopt_key(&self, key: &Arc<ProvingKey>) {
        let mut keys = lock(&self.keys);
        keys.retain(|known| known.key.strong_count() > 0);
        if keys.iter().any(|known| std::ptr::eq(known.key.as_ptr(), Arc::as_ptr(key))) {
            return;
        }
        let mut queries = self.queries_of::<blstrs::G1Affine>(key);
        queries.extend(self.queries_of::<blstrs::G2Affine>(key));
        keys.push(KnownKey { key: Arc::downgrade(key), queries });
        drop(keys);
        // Once, at the largest size that is known. Where it fails the transform says so.
        let points = key.h.points.len().max(1);
        let coset = u32::from(key.h.basis == HBasis::OddCosetLagrange);
        let _ = self.require_domain(points.next_power_of_two().ilog2() + coset);
    }

    fn queries_of<C: KeyCurve>(&self, key: &Arc<ProvingKey>) -> Vec<Query> {
        let group = C::GROUP;
        let query = |points: &[C]| {
            let bytes = size_of_val(points);
            // Points without room for a multiplication beside them pass through.
            let beside = MsmPlan::smallest(group, points.len() as u64, true, self.scratch, 1000);
            if bytes == 0 || bytes as u64 + beside > self.limit {
                return None;
            }
            let cost = Duration::from_nanos(bytes as u64 / 1024 * LOAD_NANOSECONDS_PER_KIB);
            let class = super::points(self.number);
            let residency = self.ledger.residency("key points", class, Bytes(bytes as u64), cost).ok()?;
            Some(Query { group, address: points.as_ptr() as usize, bytes, residency })
        };
        C::QUERIES(key).into_iter().filter_map(query).collect()
    }

    /// Whether these points belong to a key that the backend was told of.
    pub(super) fn known<C: KeyCurve>(&self, bases: &[C]) -> Option<Known<C>> {
        let (address, bytes) = (bases.as_ptr() as usize, size_of_val(bases));
        let keys = lock(&self.keys);
        if mutant!("icicle-points-unknown") {
            return None;
        }
        for known in keys.iter() {
            let is_it = |query: &&Query| {
                query.group == C::GROUP
                    && address >= query.address
                    && address + bytes <= query.address + query.bytes
                    && (address - query.address).is_multiple_of(size_of::<C>())
            };
            let Some(query) = known.queries.iter().find(is_it) else { continue };
            // From here on the key stays where it is, and with it what was found.
            let Some(key) = known.key.upgrade() else { continue };
            let index = C::QUERIES(&key).iter().position(|points| points.as_ptr() as usize == query.address)?;
            let whole = Whole { key, of: C::QUERIES, index };
            return Some(Known { residency: query.residency.clone(), at: (address - query.address) as u64, whole });
        }
        None
    }

    /// Uploads points and takes them out of Montgomery form, for all who wait for them.
    pub(super) fn load_points<C: KeyCurve>(&self, load: AnyLoad, known: &Known<C>) -> Result<(), CallError> {
        let Ok(mut load) = load.of(&known.residency) else {
            return Err(CallError::refused("load points", "another residency was to be loaded; this is a bug"));
        };
        let whole = known.whole.points();
        let bytes = whole.len() as u64 * affine_bytes(C::GROUP);
        let too_few = |_| CallError::refused("load points", "the residency is too small; this is a bug");
        let loaded = load.take(Bytes(bytes)).map_err(too_few).and_then(|paid| {
            let buffer = self.buffer_for(paid)?;
            self.owner.call("load points", |scope| {
                scope.copy_in(whole, buffer.memory.all())?;
                scope.points_to_standard(C::GROUP, buffer.memory.all())
            })?;
            Ok(buffer)
        });
        match loaded {
            Ok(buffer) => {
                // Refused where nobody waits any more.
                let _ = load.fill(Arc::new(buffer));
                Ok(())
            }
            Err(error) => {
                // For this job alone: who else waits tries again.
                drop(load);
                Err(error)
            }
        }
    }
}
