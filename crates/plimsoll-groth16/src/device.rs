//! What a proof needs of a device, and what a device has to offer for one.
//!
//! A device that is a [`DeviceBackend`] makes the quotient and all five multiplications of a proof on memory that stays there
//! in between. It sees three pieces of memory that others have filled, and writes to no other than those it is handed:
//!
//! | class | piece | laid out by |
//! |---|---|---|
//! | `device.abc` | a, b, the assignment | [`ScalarLayout`] |
//! | `device.points` | the key's points, when they are resident; otherwise room for parts of them to pass through | [`KeyLayout`] |
//! | `device.buckets`, `device.workspace` | what the backend needs for itself | its own plan |
//!
//! [`DeviceProver`](crate::prover::DeviceProver) makes stages of a pipeline out of it.

use std::borrow::Cow;
use std::fmt;

use blstrs::{G1Affine, G1Projective, G2Affine, G2Projective, Scalar};
use plimsoll::device::{Driver, DriverError};
use plimsoll::{Bytes, Class, Space};

use crate::domain::Domain;
use crate::keys::{HBasis, ProvingKey};
use crate::r1cs::R1cs;

/// The bytes of a scalar, of a point in G1 and of one in G2.
const SCALAR: u64 = 32;
const G1: u64 = 96;
const G2: u64 = 192;
/// An index of a variable.
const INDEX: u64 = 4;
/// Parts begin at multiples of this.
pub const ALIGNMENT: u64 = 256;

/// Scalars on a device: the evaluations a and b, the quotient, the assignment.
pub const fn abc(device: u16) -> Class {
    Class::new("device.abc", Space::device(device))
}

/// Points of a key on a device.
pub const fn points(device: u16) -> Class {
    Class::new("device.points", Space::device(device))
}

/// The buckets of multiplications on a device.
pub const fn buckets(device: u16) -> Class {
    Class::new("device.buckets", Space::device(device))
}

/// Everything else on a device.
pub const fn workspace(device: u16) -> Class {
    Class::new("device.workspace", Space::device(device))
}

/// Where the key's points are while a proof is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Residence {
    /// On the device, loaded once.
    Resident,
    /// In host memory; they pass through the device for each proof.
    Streamed,
}

/// The sizes that a proof's work on a device depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceSizes {
    /// The points of the domain.
    pub domain: u64,
    /// The values of the assignment.
    pub variables: u64,
    /// The public ones among them, the constant one included.
    pub inputs: u64,
    /// The points of the h query.
    pub h: u64,
    /// The points of the l query.
    pub l: u64,
    /// The points of the a query.
    pub a: u64,
    /// The points of the b queries.
    pub b: u64,
}

impl DeviceSizes {
    /// Those of a circuit, with a key whose h points are in this basis.
    pub fn new(r1cs: &R1cs, basis: HBasis) -> Self {
        let domain = r1cs.domain().size() as u64;
        Self {
            domain,
            variables: r1cs.variables() as u64,
            inputs: r1cs.inputs() as u64,
            h: match basis {
                HBasis::PowersOfTau => domain - 1,
                HBasis::OddCosetLagrange => domain,
            },
            l: r1cs.aux() as u64,
            a: r1cs.a_density().total() as u64,
            b: r1cs.b_density().total() as u64,
        }
    }

    /// Whether the a query has a point for each variable, so that nothing is gathered for it.
    pub fn a_is_dense(&self) -> bool {
        self.a == self.variables
    }

    /// The same of the b queries.
    pub fn b_is_dense(&self) -> bool {
        self.b == self.variables
    }
}

/// Lays parts out one behind the other.
#[derive(Default)]
struct Layout(u64);

impl Layout {
    fn place(&mut self, bytes: u64) -> u64 {
        let at = self.0.next_multiple_of(ALIGNMENT);
        self.0 = at + bytes;
        at
    }
}

/// Where a proof's scalars lie in their piece of `device.abc`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ScalarLayout {
    /// a and b, of which the first becomes the quotient. c is their product, which the backend makes where it has room for it.
    pub factors: [u64; 2],
    /// The assignment.
    pub assignment: u64,
    /// Where a's scalars are gathered once b is used up, if they are.
    pub gathered_a: u64,
    /// The same of b's.
    pub gathered_b: u64,
    /// Which variables a's scalars are, where the key is not resident and does not bring that along.
    pub index_a: u64,
    /// The same of b's.
    pub index_b: u64,
    /// Of all together.
    pub bytes: Bytes,
}

impl ScalarLayout {
    /// The layout for these sizes.
    pub fn new(sizes: &DeviceSizes, residence: Residence) -> Self {
        let mut layout = Layout::default();
        let factors = [0; 2].map(|_| layout.place(sizes.domain * SCALAR));
        let assignment = layout.place(sizes.variables * SCALAR);
        // Where b was, as long as there is room.
        let (mut at, end) = (factors[1], factors[1] + sizes.domain * SCALAR);
        let mut gathered = |dense: bool, count: u64| match dense {
            true => assignment,
            false if at + count * SCALAR <= end => {
                let place = at;
                at = (at + count * SCALAR).next_multiple_of(ALIGNMENT);
                place
            }
            false => layout.place(count * SCALAR),
        };
        let gathered_a = gathered(sizes.a_is_dense(), sizes.a);
        let gathered_b = gathered(sizes.b_is_dense(), sizes.b);
        let mut index = |dense: bool, count: u64| match (residence, dense) {
            (Residence::Streamed, false) => layout.place(count * INDEX),
            _ => 0,
        };
        let index_a = index(sizes.a_is_dense(), sizes.a);
        let index_b = index(sizes.b_is_dense(), sizes.b);
        Self { factors, assignment, gathered_a, gathered_b, index_a, index_b, bytes: Bytes(layout.0) }
    }
}

/// Where a resident key's parts lie in their piece of `device.points`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyLayout {
    /// The h query.
    pub h: u64,
    /// The l query.
    pub l: u64,
    /// The a query.
    pub a: u64,
    /// The b query in G1.
    pub b_g1: u64,
    /// The b query in G2.
    pub b_g2: u64,
    /// Which variables the a query's points are for, unless for all: 32 bits each.
    pub index_a: u64,
    /// The same of the b queries.
    pub index_b: u64,
    /// Of all together.
    pub bytes: Bytes,
}

impl KeyLayout {
    /// The layout for these sizes.
    pub fn new(sizes: &DeviceSizes) -> Self {
        let mut layout = Layout::default();
        let h = layout.place(sizes.h * G1);
        let l = layout.place(sizes.l * G1);
        let a = layout.place(sizes.a * G1);
        let b_g1 = layout.place(sizes.b * G1);
        let b_g2 = layout.place(sizes.b * G2);
        let index_a = if sizes.a_is_dense() { 0 } else { layout.place(sizes.a * INDEX) };
        let index_b = if sizes.b_is_dense() { 0 } else { layout.place(sizes.b * INDEX) };
        Self { h, l, a, b_g1, b_g2, index_a, index_b, bytes: Bytes(layout.0) }
    }
}

/// One way to make a proof on a device, and what it takes there beside the scalars and a resident key.
#[derive(Clone, Debug)]
pub struct DevicePlan<P> {
    /// Of `device.points`, for points that pass through.
    pub points: Bytes,
    /// Of `device.buckets`.
    pub buckets: Bytes,
    /// Of `device.workspace`.
    pub workspace: Bytes,
    /// The backend's own part.
    pub plan: P,
}

/// What a proof is made of on a device.
#[derive(Debug)]
pub struct DeviceWork<'a, D: Driver> {
    /// The sizes.
    pub sizes: DeviceSizes,
    /// The domain, with the coset on which the key wants the quotient.
    pub domain: &'a Domain,
    /// What a·b − c is multiplied by on the coset.
    pub factor: &'a Scalar,
    /// Whether the key wants the quotient's coefficients and not its values.
    pub coefficients: bool,
    /// The scalars.
    pub scalars: &'a D::Memory,
    /// Where they are.
    pub layout: ScalarLayout,
    /// The key's points.
    pub key: KeyPoints<'a, D>,
    /// Room for points that pass through.
    pub points: &'a D::Memory,
    /// Room for buckets.
    pub buckets: &'a D::Memory,
    /// Room for everything else.
    pub workspace: &'a D::Memory,
}

/// A key's points, wherever they are.
#[derive(Debug)]
pub enum KeyPoints<'a, D: Driver> {
    /// On the device.
    Resident(&'a D::Memory, KeyLayout),
    /// In host memory.
    Streamed(&'a ProvingKey),
}

impl<D: Driver> Clone for KeyPoints<'_, D> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<D: Driver> Copy for KeyPoints<'_, D> {}

/// The sums of a proof's multiplications.
#[derive(Clone)]
pub struct DeviceSums {
    /// Σ hᵢ·Hᵢ + Σ zᵢ·Lᵢ.
    pub h_and_l: G1Projective,
    /// Σ zᵢ·Aᵢ.
    pub a: G1Projective,
    /// Σ zᵢ·Bᵢ in G1.
    pub b_g1: G1Projective,
    /// The same in G2.
    pub b_g2: G2Projective,
}

impl fmt::Debug for DeviceSums {
    /// Unblinded commitments tell something about the witness.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceSums").finish_non_exhaustive()
    }
}

/// A kind of device that can make the heavy part of a proof.
pub trait DeviceBackend: Driver + Sized {
    /// What the backend decides beforehand about one way to make it.
    type Plan: Clone + fmt::Debug + Send + Sync + 'static;

    /// A short name for reports: `cuda`.
    fn name(&self) -> &'static str;

    /// Ways to make a proof of these sizes, the fastest first and each of the others with fewer bytes, in at most `memory`
    /// beside the scalars and a resident key. Empty if that is too little.
    fn plans(&self, sizes: &DeviceSizes, residence: Residence, memory: Bytes) -> Vec<DevicePlan<Self::Plan>>;

    /// Scalars as the device has them, 32 bytes each.
    fn scalars(values: &[Scalar]) -> Cow<'_, [u8]>;

    /// Points as the device has them, 96 bytes each.
    fn g1(points: &[G1Affine]) -> Cow<'_, [u8]>;

    /// Points as the device has them, 192 bytes each.
    fn g2(points: &[G2Affine]) -> Cow<'_, [u8]>;

    /// Makes c (the product of a and b, value by value: the assignment satisfies the constraints), the quotient and the sums. The
    /// scalars are used up by it, and erased at the end, also where it fails: nobody calls it again with the same ones.
    ///
    /// # Errors
    ///
    /// As the device says. Nothing can be short of memory here, since all of it was handed in.
    fn prove(lane: &mut Self::Lane, plan: &Self::Plan, work: DeviceWork<'_, Self>) -> Result<DeviceSums, DriverError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [DeviceSizes; 3] = [
        DeviceSizes { domain: 8, variables: 9, inputs: 1, h: 7, l: 8, a: 9, b: 9 },
        DeviceSizes { domain: 1024, variables: 1000, inputs: 10, h: 1024, l: 990, a: 700, b: 1 },
        // More variables than points of the domain.
        DeviceSizes { domain: 64, variables: 500, inputs: 3, h: 63, l: 497, a: 300, b: 200 },
    ];

    fn check(mut parts: Vec<(u64, u64)>, end: Bytes) {
        parts.retain(|part| part.1 > 0);
        parts.sort_unstable();
        for pair in parts.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:?}");
        }
        assert!(parts.iter().all(|part| part.0 % ALIGNMENT == 0));
        assert_eq!(parts.last().map(|part| part.0 + part.1), Some(end.0));
    }

    #[test]
    fn parts_do_not_overlap() {
        for sizes in SIZES {
            let key = KeyLayout::new(&sizes);
            let index = |dense: bool, count: u64| if dense { 0 } else { count * INDEX };
            let (index_a, index_b) = (index(sizes.a_is_dense(), sizes.a), index(sizes.b_is_dense(), sizes.b));
            let parts = vec![
                (key.h, sizes.h * G1),
                (key.l, sizes.l * G1),
                (key.a, sizes.a * G1),
                (key.b_g1, sizes.b * G1),
                (key.b_g2, sizes.b * G2),
                (key.index_a, index_a),
                (key.index_b, index_b),
            ];
            check(parts, key.bytes);
            for residence in [Residence::Resident, Residence::Streamed] {
                let layout = ScalarLayout::new(&sizes, residence);
                // While a and b are there, and when b is used up and scalars are gathered.
                let first: Vec<_> = layout.factors.iter().map(|&at| (at, sizes.domain * SCALAR)).collect();
                let gathered = |dense, at, count: u64| (at, if dense { 0 } else { count * SCALAR });
                let later = vec![
                    (layout.factors[0], sizes.domain * SCALAR),
                    gathered(sizes.a_is_dense(), layout.gathered_a, sizes.a),
                    gathered(sizes.b_is_dense(), layout.gathered_b, sizes.b),
                ];
                for mut parts in [first, later] {
                    parts.push((layout.assignment, sizes.variables * SCALAR));
                    if residence == Residence::Streamed {
                        parts.extend([(layout.index_a, index_a), (layout.index_b, index_b)]);
                    }
                    let end = parts.iter().filter(|part| part.1 > 0).map(|part| part.0 + part.1).max().unwrap_or(0);
                    assert!(end <= layout.bytes.0);
                    check(parts, Bytes(end));
                }
            }
        }
    }
}
