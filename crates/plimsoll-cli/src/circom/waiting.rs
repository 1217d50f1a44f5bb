//! How many results of a batch may wait, to be delivered in order and verified together, by what their public inputs take.

use blstrs::Scalar;
use plimsoll::Bytes;
use plimsoll_groth16::PreparedVerifyingKey;

use crate::proving::{RESULTS_WAITING_MAX, VERIFY_TOGETHER};

/// Of the ledger, what public inputs may take that wait; where they are too long for that, two results wait.
const SHARE: u64 = 16;
/// As many results are under way or wait at least: one is made while one is delivered.
const RESULTS_MIN: usize = 2;

/// The numbers for one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Proofs that are verified in one check.
    pub together: usize,
    /// Results that are under way or wait for an earlier one.
    pub at_most: usize,
    /// What all of them take, with the key that they are verified with and the check itself.
    pub bytes: Bytes,
}

impl Waiting {
    /// For a ledger of so many bytes, a circuit with so many public inputs and a pool of so many threads.
    pub fn new(ledger: Bytes, inputs: usize, threads: usize) -> Self {
        let each = (inputs.max(1) * size_of::<Scalar>()) as u64;
        let room = usize::try_from(ledger.0 / SHARE / 2 / each).unwrap_or(usize::MAX);
        let together = room.clamp(1, VERIFY_TOGETHER);
        let at_most = room.clamp(RESULTS_MIN, RESULTS_WAITING_MAX + 2 * threads);
        let verifying =
            PreparedVerifyingKey::bytes_for(inputs) + PreparedVerifyingKey::verification_bytes(inputs, threads);
        Self { together, at_most, bytes: Bytes((together + at_most) as u64 * each + verifying) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_public_inputs_wait_in_smaller_numbers() {
        let few = Waiting::new(Bytes::MIB.times(64), 2, 4);
        assert_eq!((few.together, few.at_most), (VERIFY_TOGETHER, RESULTS_WAITING_MAX + 8));
        // 32 MiB each.
        let many = Waiting::new(Bytes::GIB.times(4), 1 << 20, 4);
        assert_eq!((many.together, many.at_most), (4, 4));
        let each = Bytes::MIB.times(32);
        assert!(
            many.bytes >= each.times(8) + Bytes::MIB.times(96 + 32),
            "results, the key's points, the sums of inputs"
        );
        assert!(many.bytes <= each.times(8 + 8), "{}", many.bytes);
        // As few as there can be, however small the ledger.
        let tight = Waiting::new(Bytes::MIB, 1 << 20, 4);
        assert_eq!((tight.together, tight.at_most), (1, RESULTS_MIN));
    }
}
