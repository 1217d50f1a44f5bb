//! The statement of one partition, as a circuit.
//!
//! "I know [`BLOCKS_PER_PARTITION`] blocks that take the SHA-256 state `start` to `end`, and whose bytes under the padding's mask
//! are the padding's bytes." The second block counts only where the public bit `second` says so.
//!
//! Public inputs, in this order ([`public_inputs`] computes them outside the circuit):
//!
//! | inputs | what |
//! |---|---|
//! | 2 | `start`: words 0–3 and 4–7, the first word lowest, 128 bits each |
//! | 2 | `end`, likewise |
//! | 1 | `second`: 1 if both blocks are in use |
//! | 1 | mask of the padding, byte 0 lowest |
//! | 5 | bytes of the padding, 31 an input, the first byte lowest |
//!
//! Why it is sound: every bit of `start`, the blocks, the mask and `second` is constrained to be boolean; the gadgets' outputs are
//! boolean by construction; a packing of at most 248 bits into the 255-bit field has one reading only. `end` is
//! `second · (after the second block − after the first) + after the first`, so with a boolean `second` it is one of the two.

use bellpepper::gadgets::boolean::{AllocatedBit, Boolean};
use bellpepper::gadgets::sha256::sha256_compression_function;
use bellpepper::gadgets::uint32::UInt32;
use bellpepper_core::{Circuit, ConstraintSystem, LinearCombination, SynthesisError, Variable};
use blstrs::Scalar;
use ff::{Field, PrimeField};

use crate::chain::{BLOCK_BYTES, BLOCKS_PER_PARTITION, PARTITION_BYTES, Padding, Partition, State};

/// Name of the statement, in proof files and keys. It changes with the meaning of the public inputs.
pub const STATEMENT: &str = "sha256-2-blocks-v1";

/// Public inputs, without the constant one.
pub const PUBLIC_INPUTS: usize = 2 + 2 + 1 + 1 + PARTITION_BYTES.div_ceil(PADDING_BYTES_PER_INPUT);

const PADDING_BYTES_PER_INPUT: usize = 31;

const _: () = assert!(BLOCKS_PER_PARTITION == 2 && PARTITION_BYTES <= 128, "the mask is 128 bits, the enable bit one");

/// The circuit of one partition; without a partition, its shape alone (for making keys).
#[derive(Clone, Debug, Default)]
pub struct PartitionCircuit {
    partition: Option<Partition>,
}

impl PartitionCircuit {
    /// The circuit with its witness.
    pub fn new(partition: Partition) -> Self {
        Self { partition: Some(partition) }
    }

    /// The shape, without a witness.
    pub fn shape() -> Self {
        Self::default()
    }
}

/// What a verifier gives to the proof check: everything public about a partition.
pub fn public_inputs(start: State, end: State, blocks: u8, padding: &Padding) -> [Scalar; PUBLIC_INPUTS] {
    let mut inputs = [Scalar::ZERO; PUBLIC_INPUTS];
    let [start_low, start_high] = pack_state(start);
    let [end_low, end_high] = pack_state(end);
    inputs[..6].copy_from_slice(&[
        start_low,
        start_high,
        end_low,
        end_high,
        Scalar::from(u64::from(blocks == 2)),
        Scalar::from_u128(padding.mask),
    ]);
    for (input, bytes) in inputs[6..].iter_mut().zip(padding.bytes.chunks(PADDING_BYTES_PER_INPUT)) {
        *input = pack_bytes(bytes);
    }
    inputs
}

fn pack_state(state: State) -> [Scalar; 2] {
    let pack = |words: &[u32]| words.iter().rev().fold(0_u128, |packed, word| packed << 32 | u128::from(*word));
    [Scalar::from_u128(pack(&state.0[..4])), Scalar::from_u128(pack(&state.0[4..]))]
}

fn pack_bytes(bytes: &[u8]) -> Scalar {
    let mut le = [0; 32];
    le[..bytes.len()].copy_from_slice(bytes);
    Option::from(Scalar::from_bytes_le(&le)).expect("31 bytes are below the field's order")
}

impl Circuit<Scalar> for PartitionCircuit {
    fn synthesize<CS: ConstraintSystem<Scalar>>(self, cs: &mut CS) -> Result<(), SynthesisError> {
        let partition = self.partition.as_ref();

        // Public inputs first: their order is the verifier's.
        let inputs = partition.map(|p| public_inputs(p.start, p.end, p.blocks, &p.padding));
        let inputs = (0..PUBLIC_INPUTS)
            .map(|i| {
                cs.alloc_input(
                    || format!("input {i}"),
                    || inputs.map(|x| x[i]).ok_or(SynthesisError::AssignmentMissing),
                )
            })
            .collect::<Result<Vec<Variable>, _>>()?;
        let [start, end] = [&inputs[0..2], &inputs[2..4]];
        let (second_input, mask_input, padding_inputs) = (inputs[4], inputs[5], &inputs[6..]);

        let start_words = (0..8)
            .map(|i| UInt32::alloc(cs.namespace(|| format!("start word {i}")), partition.map(|p| p.start.0[i])))
            .collect::<Result<Vec<_>, _>>()?;
        for (i, (half, input)) in state_halves::<CS>(&start_words).into_iter().zip(start).enumerate() {
            enforce_equal(cs, || format!("start {i}"), half, *input);
        }

        let message = alloc_message(cs, partition)?;
        let second = AllocatedBit::alloc(cs.namespace(|| "second"), partition.map(|p| p.blocks == 2))?;
        enforce_equal(cs, || "second is public", LinearCombination::zero() + second.get_variable(), second_input);

        let (first_block, second_block) = message.split_at(BLOCK_BYTES * 8);
        let after_first = sha256_compression_function(cs.namespace(|| "block 0"), first_block, &start_words)?;
        let after_second = sha256_compression_function(cs.namespace(|| "block 1"), second_block, &after_first)?;
        let halves = state_halves::<CS>(&after_first).into_iter().zip(state_halves::<CS>(&after_second));
        for (i, ((one, two), input)) in halves.zip(end).enumerate() {
            cs.enforce(
                || format!("end {i}"),
                |lc| lc + second.get_variable(),
                |_| two - &one,
                |_| LinearCombination::zero() + *input - &one,
            );
        }

        enforce_padding(cs, partition.map(|p| &p.padding), &message, mask_input, padding_inputs)
    }
}

/// The bits of the blocks, each byte's highest first, as SHA-256 reads them.
fn alloc_message<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    partition: Option<&Partition>,
) -> Result<Vec<Boolean>, SynthesisError> {
    (0..PARTITION_BYTES * 8)
        .map(|i| {
            let bit = partition.map(|p| p.message[i / 8] >> (7 - i % 8) & 1 == 1);
            AllocatedBit::alloc(cs.namespace(|| format!("message bit {i}")), bit).map(Boolean::from)
        })
        .collect()
}

/// Every byte under the mask is the padding's: `mask_j · byte_j` is allocated, and all of these, packed, equal the public inputs.
fn enforce_padding<CS: ConstraintSystem<Scalar>>(
    cs: &mut CS,
    padding: Option<&Padding>,
    message: &[Boolean],
    mask_input: Variable,
    padding_inputs: &[Variable],
) -> Result<(), SynthesisError> {
    let mut packed_mask = LinearCombination::zero();
    let mut mask_weight = Scalar::ONE;
    let mut masked = Vec::with_capacity(PARTITION_BYTES);
    for (j, bits) in message.chunks(8).enumerate() {
        let mask = AllocatedBit::alloc(cs.namespace(|| format!("mask {j}")), padding.map(|p| p.mask >> j & 1 == 1))?;
        packed_mask = packed_mask + (mask_weight, mask.get_variable());
        mask_weight = mask_weight.double();

        let product = cs.alloc(
            || format!("masked byte {j}"),
            || padding.map(|p| Scalar::from(u64::from(p.bytes[j]))).ok_or(SynthesisError::AssignmentMissing),
        )?;
        let byte = pack_bits::<CS>(bits.iter().rev());
        cs.enforce(|| format!("mask of byte {j}"), |lc| lc + mask.get_variable(), |_| byte, |lc| lc + product);
        masked.push(product);
    }
    enforce_equal(cs, || "mask is public", packed_mask, mask_input);

    for (i, (bytes, input)) in masked.chunks(PADDING_BYTES_PER_INPUT).zip(padding_inputs).enumerate() {
        let mut packed = LinearCombination::zero();
        let mut weight = Scalar::ONE;
        for byte in bytes {
            packed = packed + (weight, *byte);
            weight *= Scalar::from(256);
        }
        enforce_equal(cs, || format!("padding {i} is public"), packed, *input);
    }
    Ok(())
}

fn state_halves<CS: ConstraintSystem<Scalar>>(words: &[UInt32]) -> [LinearCombination<Scalar>; 2] {
    let pack = |words: &[UInt32]| {
        let bits: Vec<Boolean> = words.iter().flat_map(|word| word.clone().into_bits()).collect();
        pack_bits::<CS>(bits.iter())
    };
    [pack(&words[..4]), pack(&words[4..])]
}

/// The number whose bits are given, lowest first.
fn pack_bits<'a, CS: ConstraintSystem<Scalar>>(bits: impl Iterator<Item = &'a Boolean>) -> LinearCombination<Scalar> {
    let mut packed = LinearCombination::zero();
    let mut weight = Scalar::ONE;
    for bit in bits {
        packed = packed + &bit.lc(CS::one(), weight);
        weight = weight.double();
    }
    packed
}

fn enforce_equal<CS: ConstraintSystem<Scalar>, Name: Into<String>>(
    cs: &mut CS,
    name: impl FnOnce() -> Name,
    left: LinearCombination<Scalar>,
    right: Variable,
) {
    cs.enforce(name, |_| left, |lc| lc + CS::one(), |lc| lc + right);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::Partitions;
    use bellpepper_core::test_cs::TestConstraintSystem;

    fn partitions(len: usize) -> Vec<Partition> {
        let data: Vec<u8> = (0..len).map(|i| (i * 31 + 5) as u8).collect();
        Partitions::new(&data[..], len as u64).map(Result::unwrap).collect()
    }

    fn synthesize(partition: &Partition) -> TestConstraintSystem<Scalar> {
        let mut cs = TestConstraintSystem::new();
        PartitionCircuit::new(partition.clone()).synthesize(&mut cs).unwrap();
        cs
    }

    #[test]
    fn partitions_of_any_length_satisfy_it_and_fit_the_domain() {
        // 55/56: where the padding needs one more block. 64, 119, 128: ends on and around block and partition bounds.
        for len in [1, 55, 56, 64, 119, 120, 200] {
            for partition in partitions(len) {
                let cs = synthesize(&partition);
                assert!(cs.is_satisfied(), "{len} bytes: {:?}", cs.which_is_unsatisfied());
                assert!(cs.num_constraints() + PUBLIC_INPUTS < 1 << 16, "{} constraints", cs.num_constraints());
                assert_eq!(cs.num_inputs(), PUBLIC_INPUTS + 1);
                let inputs = public_inputs(partition.start, partition.end, partition.blocks, &partition.padding);
                assert!(cs.verify(&inputs));
            }
        }
    }

    #[test]
    fn any_other_public_input_is_unsatisfied() {
        for partition in [&partitions(200)[0], &partitions(200)[1], &partitions(10)[0]] {
            let mut cs = synthesize(partition);
            for i in 0..PUBLIC_INPUTS {
                let name = format!("input {i}");
                let value = cs.get(&name);
                for wrong in [value + Scalar::ONE, value - Scalar::ONE, value + Scalar::from(1 << 20)] {
                    cs.set(&name, wrong);
                    assert!(!cs.is_satisfied(), "input {i}");
                }
                cs.set(&name, value);
            }
            assert!(cs.is_satisfied());
        }
    }

    #[test]
    fn any_other_message_bit_is_unsatisfied() {
        let mut cs = synthesize(&partitions(200)[0]);
        for i in [0, 7, 8, 511, 512, 1000, 1023] {
            let name = format!("message bit {i}/boolean");
            let value = cs.get(&name);
            cs.set(&name, Scalar::ONE - value);
            assert!(!cs.is_satisfied(), "bit {i}");
            cs.set(&name, value);
        }
    }

    /// A cheating prover may claim any partition; the circuit must not be satisfiable with a lie in it.
    fn check_lie(what: &str, mut partition: Partition, lie: impl FnOnce(&mut Partition)) {
        lie(&mut partition);
        assert!(!synthesize(&partition).is_satisfied(), "{what}");
    }

    #[test]
    fn lies_are_unsatisfied() {
        let full = || partitions(200).remove(0);
        let last = || partitions(200).remove(1);
        let short = || partitions(10).remove(0);
        check_lie("another end", full(), |p| p.end.0[7] ^= 1);
        check_lie("another start", full(), |p| p.start.0[0] ^= 1 << 31);
        check_lie("the end after one block of two", full(), |p| {
            p.end = p.start.compress(p.message.first_chunk().unwrap());
        });
        check_lie("one block called two", short(), |p| p.blocks = 2);
        check_lie("two blocks called one", full(), |p| p.blocks = 1);
        check_lie("padding moved", last(), |p| p.padding = Padding::of_partition(201, 1));
        check_lie("padding one shorter", last(), |p| p.padding = Padding::of_partition(199, 1));
        check_lie("a byte of the file called padding", full(), |p| {
            p.padding.mask = 1;
            p.padding.bytes[0] = !p.message[0];
        });
        check_lie("padding left out of the mask", last(), |p| p.padding.mask = 0);
    }

    #[test]
    fn shape_does_not_depend_on_the_witness() {
        let with = synthesize(&partitions(200)[1]);
        let other = synthesize(&partitions(3)[0]);
        assert_eq!(with.hash(), other.hash());
    }
}
