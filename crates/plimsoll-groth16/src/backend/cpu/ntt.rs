//! Number-theoretic transforms, in place.
//!
//! Two kernels do all the work. Both walk a binary tree of blocks whose root is the whole vector, and every block has a
//! single twiddle factor, so that the large strided levels read almost no table and the small ones read it in sequence:
//!
//! - `split` goes from the root to the leaves: natural order in, bit-reversed order out. A block stands for a polynomial
//!   modulo x^m − s² and is split into the remainders modulo x^(m/2) ∓ s.
//! - `join` goes from the leaves to the root, bit-reversed order in, natural order out.
//!
//! The twiddle of block b is ω^rev(b) in both, where rev reverses the bits of an index below n/2: setting bit j of b multiplies it
//! by the root of order 2^(j+2). So it is the product of what the lowest bits of b make, which a short table has, and a factor for
//! the higher ones, which all small blocks below one of [`LEAF`] elements have in common. A table of all n/2 would save a
//! multiplication in ten, and take a quarter of a vector. The other direction has the table of 1/ω.
//!
//! Extension to the coset (inverse, shift, forward) needs no reordering: split, scale in bit-reversed order, join.

use blstrs::Scalar;
use ff::{Field, PrimeField};
use plimsoll::{Reservation, pool};

use super::field::{butterfly_after, butterfly_before};
use super::{BackendError, ScratchVec, Transform};
use crate::backend::scratch::bytes_of;
use crate::domain::Domain;

/// Blocks up to this length (32 KiB) stay in the first-level cache and are transformed level by level.
const LEAF: usize = 1 << 10;
/// Work of at least this many elements is worth a fork.
const GRAIN: usize = 1 << 12;

/// The scratch of a transform: a table of twiddles and the two tables of the powers of the shift.
pub(super) fn scratch_bytes(n: usize) -> u64 {
    bytes_of::<Scalar>(small_len(n) + low_len(n) + n / low_len(n))
}

/// The scratch of an extension to the coset, which goes both ways.
pub(super) fn extension_scratch_bytes(n: usize) -> u64 {
    scratch_bytes(n) + bytes_of::<Scalar>(small_len(n))
}

/// The length of a table of twiddles: those of the blocks of one of [`LEAF`] elements.
fn small_len(n: usize) -> usize {
    (n / 2).clamp(1, LEAF / 2)
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
    let inverse = matches!(transform, Transform::Inverse | Transform::CosetInverse);
    let root = if inverse { domain.omega_inverse() } else { domain.omega() };
    let twiddles = Twiddles::new(domain, &root, scratch)?;
    if transform == Transform::CosetForward {
        let powers = Powers::new(domain, &Scalar::ONE, &domain.coset_shift(), Order::Natural, scratch)?;
        powers.scale(data);
        powers.release(scratch);
    }
    split(data, 0, &twiddles);
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
    twiddles.small.release(scratch);
    Ok(())
}

/// From evaluations on the domain to evaluations on the coset, for each vector in turn.
pub(super) fn extend_to_coset<const VECTORS: usize>(
    domain: &Domain,
    vectors: [&mut [Scalar]; VECTORS],
    scratch: &mut Reservation,
) -> Result<(), BackendError> {
    let back = Twiddles::new(domain, &domain.omega_inverse(), scratch)?;
    let forth = Twiddles::new(domain, &domain.omega(), scratch)?;
    let powers = Powers::new(domain, &domain.size_inverse(), &domain.coset_shift(), Order::Reversed, scratch)?;
    for data in vectors {
        split(data, 0, &back);
        powers.scale(data);
        join(data, 0, &forth);
    }
    powers.release(scratch);
    forth.small.release(scratch);
    back.small.release(scratch);
    Ok(())
}

/// Calls `f` with each element and its index, in parallel.
pub(crate) fn for_each_element(data: &mut [Scalar], f: impl Fn(usize, &mut Scalar) + Sync) {
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

/// The twiddles of all blocks: ω^rev(b).
struct Twiddles {
    /// Of the first blocks, as many as one of [`LEAF`] elements has.
    small: ScratchVec<Scalar>,
    /// By what setting bit j of b multiplies: the root of order 2^(j+2).
    roots: [Scalar; Scalar::S as usize],
}

impl Twiddles {
    /// For a root of the domain's order.
    fn new(domain: &Domain, root: &Scalar, scratch: &mut Reservation) -> Result<Self, BackendError> {
        let mut roots = [Scalar::ONE; Scalar::S as usize];
        let mut power = *root;
        for bit in (0..domain.log_size().saturating_sub(1) as usize).rev() {
            roots[bit] = power;
            power = power.square();
        }
        let mut small = ScratchVec::filled(scratch, "ntt", small_len(domain.size()), Scalar::ONE)?;
        let mut filled = 1;
        for root in roots.iter().take(small.len().trailing_zeros() as usize) {
            let (done, rest) = small.split_at_mut(filled);
            done.iter().zip(rest).for_each(|(done, next)| *next = *done * root);
            filled *= 2;
        }
        Ok(Self { small, roots })
    }

    /// Of any block.
    fn of(&self, block: usize) -> Scalar {
        self.small[block & (self.small.len() - 1)] * self.shared(block)
    }

    /// What the bits of a block contribute that the short table does not have.
    fn shared(&self, block: usize) -> Scalar {
        let mut rest = block & !(self.small.len() - 1);
        let mut product = Scalar::ONE;
        while rest != 0 {
            product *= self.roots[rest.trailing_zeros() as usize];
            rest &= rest - 1;
        }
        product
    }
}

/// Goes through the levels of blocks that lie in `data`, one of at most [`LEAF`] elements: those of `size` elements, which begin with
/// block number `first`, each with its twiddle.
fn level(
    data: &mut [Scalar],
    size: usize,
    first: usize,
    twiddles: &Twiddles,
    each: impl Fn(&mut [Scalar], &mut [Scalar], Option<&Scalar>),
) {
    // They are fewer than the table has, and `first` is a multiple of how many they are.
    let (shared, low_bits) = (twiddles.shared(first), first & (twiddles.small.len() - 1));
    for (i, chunk) in data.chunks_exact_mut(size).enumerate() {
        let (low, high) = chunk.split_at_mut(size / 2);
        match first + i {
            0 => each(low, high, None),
            // In the first leaf, and above it, nothing is shared.
            block if block < twiddles.small.len() => each(low, high, Some(&twiddles.small[block])),
            _ => each(low, high, Some(&(shared * twiddles.small[low_bits + i]))),
        }
    }
}

/// One block of `split`: (low, high) ← (low + t·high, low − t·high); t is one where there is none.
fn split_block(low: &mut [Scalar], high: &mut [Scalar], twiddle: Option<&Scalar>) {
    match twiddle {
        None => add_and_subtract(low, high),
        Some(twiddle) => low.iter_mut().zip(high).for_each(|(low, high)| butterfly_before(low, high, twiddle)),
    }
}

/// One block of `join`: (low, high) ← (low + high, t·(low − high)); t is one where there is none.
fn join_block(low: &mut [Scalar], high: &mut [Scalar], twiddle: Option<&Scalar>) {
    match twiddle {
        None => add_and_subtract(low, high),
        Some(twiddle) => low.iter_mut().zip(high).for_each(|(low, high)| butterfly_after(low, high, twiddle)),
    }
}

fn add_and_subtract(low: &mut [Scalar], high: &mut [Scalar]) {
    low.iter_mut().zip(high).for_each(|(low, high)| (*low, *high) = (*low + *high, *low - *high));
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
fn split(data: &mut [Scalar], block: usize, twiddles: &Twiddles) {
    let half = data.len() / 2;
    if data.len() <= LEAF {
        let (mut size, mut first) = (data.len(), block);
        while size > 1 {
            level(data, size, first, twiddles, split_block);
            (size, first) = (size / 2, 2 * first);
        }
        return;
    }
    let (low, high) = data.split_at_mut(half);
    let twiddle = (block > 0).then(|| twiddles.of(block));
    for_halves(low, high, &|low, high| split_block(low, high, twiddle.as_ref()));
    fork(half, || split(low, 2 * block, twiddles), || split(high, 2 * block + 1, twiddles));
}

/// Bit-reversed order to natural order, up to `block`.
fn join(data: &mut [Scalar], block: usize, twiddles: &Twiddles) {
    let half = data.len() / 2;
    if data.len() <= LEAF {
        let mut size = 2;
        while size <= data.len() {
            level(data, size, block * (data.len() / size), twiddles, join_block);
            size *= 2;
        }
        return;
    }
    let (low, high) = data.split_at_mut(half);
    fork(half, || join(low, 2 * block, twiddles), || join(high, 2 * block + 1, twiddles));
    let twiddle = (block > 0).then(|| twiddles.of(block));
    for_halves(low, high, &|low, high| join_block(low, high, twiddle.as_ref()));
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
    reverse_items(data, 1);
}

/// The same for items of `item` elements each, which are moved as they are: their indices' first bit changes places with their last,
/// and what is between is reversed in each half, with items of twice the size. Each level goes through its data in order, where
/// swapping at once would jump about, and on all threads.
fn reverse_items(data: &mut [Scalar], item: usize) {
    if data.len() <= 2 * item {
        return;
    }
    let half = data.len() / 2;
    let (low, high) = data.split_at_mut(half);
    swap_items(low, high, item);
    fork(half, || reverse_items(low, 2 * item), || reverse_items(high, 2 * item));
}

/// Swaps the odd items of `low` with the even ones of `high`.
fn swap_items(low: &mut [Scalar], high: &mut [Scalar], item: usize) {
    if low.len() >= 2 * GRAIN.max(2 * item) && pool::current_threads() > 1 {
        let middle = low.len() / 2;
        let (low_a, low_b) = low.split_at_mut(middle);
        let (high_a, high_b) = high.split_at_mut(middle);
        pool::join(|| swap_items(low_a, high_a, item), || swap_items(low_b, high_b, item));
        return;
    }
    for (low, high) in low.chunks_exact_mut(2 * item).zip(high.chunks_exact_mut(2 * item)) {
        low[item..].swap_with_slice(&mut high[..item]);
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
