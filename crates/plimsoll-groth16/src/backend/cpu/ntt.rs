//! Number-theoretic transforms, in place.
//!
//! Two kernels do all the work. Both walk a binary tree of blocks whose root is the whole vector, and every block has a
//! single twiddle factor, so that the large strided levels read almost no table and the small ones read it in sequence:
//!
//! - `split` goes from the root to the leaves: natural order in, bit-reversed order out. A block stands for a polynomial
//!   modulo x^m − s² and is split into the remainders modulo x^(m/2) ∓ s.
//! - `join` goes from the leaves to the root, bit-reversed order in, natural order out.
//!
//! The twiddle of block b is ω^rev(b) in both, where rev reverses the bits of an index below n/2. One table of n/2 powers
//! thus serves every level; and as ω^−rev(b) = −ω^rev(mirror(b)), it serves both directions.
//!
//! Extension to the coset (inverse, shift, forward) needs no reordering: split, scale in bit-reversed order, join.

use blstrs::Scalar;
use ff::Field;
use plimsoll::{Reservation, pool};

use super::field::{butterfly_after, butterfly_before};
use super::{BackendError, ScratchVec, Transform};
use crate::backend::scratch::bytes_of;
use crate::domain::Domain;

/// Blocks up to this length (32 KiB) stay in the first-level cache and are transformed level by level.
const LEAF: usize = 1 << 10;
/// Work of at least this many elements is worth a fork.
const GRAIN: usize = 1 << 12;

/// The scratch of every operation here: the twiddle table and the two tables of the powers of the shift.
pub(super) fn scratch_bytes(n: usize) -> u64 {
    bytes_of::<Scalar>(n / 2 + low_len(n) + n / low_len(n))
}

/// The length of the table for the low half of an index's bits.
fn low_len(n: usize) -> usize {
    1 << n.max(1).ilog2().div_ceil(2)
}

/// Transforms in place; lengths and scratch are checked by the caller.
pub(super) fn transform(
    domain: &Domain,
    data: &mut [Scalar],
    transform: Transform,
    scratch: &mut Reservation,
) -> Result<(), BackendError> {
    let table = twiddles(domain, scratch)?;
    match transform {
        Transform::Forward => split::<false>(data, 0, &table),
        Transform::CosetForward => {
            let powers = Powers::new(domain, &Scalar::ONE, &domain.coset_shift(), Order::Natural, scratch)?;
            powers.scale(data);
            powers.release(scratch);
            split::<false>(data, 0, &table);
        }
        Transform::Inverse | Transform::CosetInverse => split::<true>(data, 0, &table),
    }
    reverse_order(data);
    match transform {
        Transform::Forward | Transform::CosetForward => {}
        Transform::Inverse => for_each_element(data, |_, value| *value *= domain.size_inverse()),
        Transform::CosetInverse => {
            let shift = domain.coset_shift_inverse();
            let powers = Powers::new(domain, &domain.size_inverse(), &shift, Order::Natural, scratch)?;
            powers.scale(data);
            powers.release(scratch);
        }
    }
    table.release(scratch);
    Ok(())
}

/// From evaluations on the domain to evaluations on the coset, for each vector in turn.
pub(super) fn extend_to_coset(
    domain: &Domain,
    vectors: [&mut [Scalar]; 3],
    scratch: &mut Reservation,
) -> Result<(), BackendError> {
    let table = twiddles(domain, scratch)?;
    let powers = Powers::new(domain, &domain.size_inverse(), &domain.coset_shift(), Order::Reversed, scratch)?;
    for data in vectors {
        split::<true>(data, 0, &table);
        powers.scale(data);
        join::<false>(data, 0, &table);
    }
    powers.release(scratch);
    table.release(scratch);
    Ok(())
}

/// Calls `f` with each element and its index, in parallel.
pub(super) fn for_each_element(data: &mut [Scalar], f: impl Fn(usize, &mut Scalar) + Sync) {
    let chunk_len = share(data.len());
    pool::for_each_chunk(data, chunk_len, |offset, chunk| {
        for (i, value) in chunk.iter_mut().enumerate() {
            f(offset + i, value);
        }
    });
}

/// How many elements one task takes of a pass over `len` elements.
fn share(len: usize) -> usize {
    len.div_ceil(4 * pool::current_threads()).max(GRAIN)
}

/// ω^rev(b) for every b below n/2. Setting bit j of b multiplies by the root of order 2^(j+2).
fn twiddles(domain: &Domain, scratch: &mut Reservation) -> Result<ScratchVec<Scalar>, BackendError> {
    let n = domain.size();
    let mut table = ScratchVec::filled(scratch, "ntt", n / 2, Scalar::ONE)?;
    let mut roots = Vec::with_capacity(domain.log_size() as usize);
    let mut root = domain.omega();
    for _ in 1..domain.log_size() {
        roots.push(root);
        root = root.square();
    }
    let mut filled = 1;
    for root in roots.iter().rev() {
        let (done, rest) = table.split_at_mut(filled);
        let next = &mut rest[..filled];
        for_each_element(next, |i, value| *value = done[i] * root);
        filled *= 2;
    }
    Ok(table)
}

/// The twiddle of a block: its table entry, and whether it counts negatively.
#[inline]
fn twiddle<const INVERSE: bool>(table: &[Scalar], block: usize) -> &Scalar {
    if INVERSE && block > 0 { &table[3 * (1 << block.ilog2()) - 1 - block] } else { &table[block] }
}

/// One block of `split`: (low, high) ← (low + t·high, low − t·high).
fn split_block<const INVERSE: bool>(low: &mut [Scalar], high: &mut [Scalar], block: usize, table: &[Scalar]) {
    let twiddle = twiddle::<INVERSE>(table, block);
    for (low, high) in low.iter_mut().zip(high) {
        if block == 0 {
            (*low, *high) = (*low + *high, *low - *high);
        } else {
            butterfly_before(low, high, twiddle);
            if INVERSE {
                std::mem::swap(low, high);
            }
        }
    }
}

/// One block of `join`: (low, high) ← (low + high, t·(low − high)).
fn join_block<const INVERSE: bool>(low: &mut [Scalar], high: &mut [Scalar], block: usize, table: &[Scalar]) {
    let twiddle = twiddle::<INVERSE>(table, block);
    for (low, high) in low.iter_mut().zip(high) {
        if block == 0 {
            (*low, *high) = (*low + *high, *low - *high);
        } else if INVERSE {
            std::mem::swap(low, high);
            butterfly_after(low, high, twiddle);
        } else {
            butterfly_after(low, high, twiddle);
        }
    }
}

/// Calls `f` on matching pieces of two halves, in parallel when they are long.
fn for_halves(low: &mut [Scalar], high: &mut [Scalar], f: &(impl Fn(&mut [Scalar], &mut [Scalar]) + Sync)) {
    if low.len() < 2 * GRAIN || pool::current_threads() == 1 {
        return f(low, high);
    }
    let middle = low.len() / 2;
    let (low_a, low_b) = low.split_at_mut(middle);
    let (high_a, high_b) = high.split_at_mut(middle);
    pool::join(|| for_halves(low_a, high_a, f), || for_halves(low_b, high_b, f));
}

/// Natural order to bit-reversed order, from `block` down.
fn split<const INVERSE: bool>(data: &mut [Scalar], block: usize, table: &[Scalar]) {
    let half = data.len() / 2;
    if data.len() <= LEAF {
        let (mut size, mut first) = (data.len(), block);
        while size > 1 {
            for (i, chunk) in data.chunks_exact_mut(size).enumerate() {
                let (low, high) = chunk.split_at_mut(size / 2);
                split_block::<INVERSE>(low, high, first + i, table);
            }
            (size, first) = (size / 2, 2 * first);
        }
        return;
    }
    let (low, high) = data.split_at_mut(half);
    for_halves(low, high, &|low, high| split_block::<INVERSE>(low, high, block, table));
    fork(half, || split::<INVERSE>(low, 2 * block, table), || split::<INVERSE>(high, 2 * block + 1, table));
}

/// Bit-reversed order to natural order, up to `block`.
fn join<const INVERSE: bool>(data: &mut [Scalar], block: usize, table: &[Scalar]) {
    let half = data.len() / 2;
    if data.len() <= LEAF {
        let mut size = 2;
        while size <= data.len() {
            let first = block * (data.len() / size);
            for (i, chunk) in data.chunks_exact_mut(size).enumerate() {
                let (low, high) = chunk.split_at_mut(size / 2);
                join_block::<INVERSE>(low, high, first + i, table);
            }
            size *= 2;
        }
        return;
    }
    let (low, high) = data.split_at_mut(half);
    fork(half, || join::<INVERSE>(low, 2 * block, table), || join::<INVERSE>(high, 2 * block + 1, table));
    for_halves(low, high, &|low, high| join_block::<INVERSE>(low, high, block, table));
}

/// Both closures, in parallel when the work is large enough.
fn fork(len: usize, a: impl FnOnce() + Send, b: impl FnOnce() + Send) {
    if len >= GRAIN {
        pool::join(a, b);
    } else {
        a();
        b();
    }
}

/// Swaps every element with the one at the bit-reversed index.
fn reverse_order(data: &mut [Scalar]) {
    let bits = data.len().ilog2();
    if bits == 0 {
        return;
    }
    for i in 0..data.len() {
        let j = i.reverse_bits() >> (usize::BITS - bits);
        if i < j {
            data.swap(i, j);
        }
    }
}

/// In which order the elements to be scaled stand.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Index i is scaled by the power i.
    Natural,
    /// Index i is scaled by the power rev(i).
    Reversed,
}

/// first · ratio^i for every index i, as products of two short tables.
struct Powers {
    low: ScratchVec<Scalar>,
    high: ScratchVec<Scalar>,
}

impl Powers {
    fn new(
        domain: &Domain,
        first: &Scalar,
        ratio: &Scalar,
        order: Order,
        scratch: &mut Reservation,
    ) -> Result<Self, BackendError> {
        let low_len = low_len(domain.size());
        let high_len = domain.size() / low_len;
        let mut low = ScratchVec::filled(scratch, "ntt", low_len, Scalar::ONE)?;
        let mut high = ScratchVec::filled(scratch, "ntt", high_len, Scalar::ONE)?;
        let (low_step, high_step) = match order {
            Order::Natural => (1, low_len),
            Order::Reversed => (high_len, 1),
        };
        fill_powers(&mut low, &Scalar::ONE, &ratio.pow_vartime([low_step as u64]));
        fill_powers(&mut high, first, &ratio.pow_vartime([high_step as u64]));
        if order == Order::Reversed {
            reverse_order(&mut low);
            reverse_order(&mut high);
        }
        Ok(Self { low, high })
    }

    fn scale(&self, data: &mut [Scalar]) {
        let low_bits = self.low.len().trailing_zeros();
        let low_mask = self.low.len() - 1;
        for_each_element(data, |i, value| *value *= self.low[i & low_mask] * self.high[i >> low_bits]);
    }

    fn release(self, scratch: &mut Reservation) {
        self.low.release(scratch);
        self.high.release(scratch);
    }
}

/// first, first · ratio, first · ratio², …
fn fill_powers(table: &mut [Scalar], first: &Scalar, ratio: &Scalar) {
    let mut power = *first;
    for value in table {
        *value = power;
        power *= ratio;
    }
}
