//! How many bytes each stage of a proof holds, computed from sizes.
//!
//! | class | what | from | to |
//! |---|---|---|---|
//! | `aux` | the assignment, 32 bytes a variable | synthesise | b in G2 |
//! | `shells` | a copy of the public inputs | synthesise | assemble |
//! | `provers` | a on the domain, 32 bytes a point; for devices b, too, and for backends that want them b and c | evaluate | b, c: quotient; a, which becomes the quotient: commit |
//! | `provers` | otherwise pieces of b and c, 20 bytes a point | | within quotient |
//! | `scratch` | the circuit's own allocations in synthesise, the backend's after it | | within a stage |
//! | `scratch` | a piece of a key that is not in memory | within commit and b in G2 | |
//! | `srs`, `matrices` | the key, the circuit's shape | shared | [`ProvingKey::resident_bytes`], [`R1cs::resident_bytes`] |
//!
//! [`ProvingKey::resident_bytes`]: crate::keys::ProvingKey::resident_bytes

use blstrs::{G1Affine, G2Affine, Scalar};
use plimsoll::{Bytes, Class, Demand, Profile, Space};

use crate::PreparedVerifyingKey;
use crate::backend::{Backend, CurveGroup};
use crate::keys::HBasis;
use crate::prover::pieces;
use crate::r1cs::R1cs;

/// The evaluations of a, b and c, and the quotient.
pub const PROVERS: Class = Class::new("provers", Space::HOST);
/// The assignment of all variables.
pub const AUX: Class = Class::new("aux", Space::HOST);
/// What a proof carries from its beginning to its end: the public inputs.
pub const SHELLS: Class = Class::new("shells", Space::HOST);
/// Proving keys.
pub const SRS: Class = Class::new("srs", Space::HOST);
/// What an operation needs for itself.
pub const SCRATCH: Class = Class::new("scratch", Space::HOST);
/// Circuits' shapes.
pub const MATRICES: Class = Class::new("matrices", Space::HOST);

/// The names of the stages, in order.
pub const STAGES: [&str; 6] = ["synthesise", "evaluate", "quotient", "commit", "b in G2", "assemble"];

/// The names of the stages of a proof whose heavy part is made on a device, in order.
pub const DEVICE_STAGES: [&str; 5] = ["synthesise", "evaluate", "stage in", "prove on device", "assemble"];

/// What a circuit allocates for itself while its witness is synthesised, in bytes a variable. A circuit of gadgets keeps
/// handles to the values that it still needs (32 bytes for a bit, 56 for a number) and temporary combinations; few circuits
/// keep handles to all variables at once. `tests/memory.rs` measures SHA-256 and the worst case.
pub const SYNTHESIS_BYTES_PER_VARIABLE: u64 = 64;
/// The same, apart from the variables.
pub const SYNTHESIS_BYTES: u64 = 256 << 10;

/// The sizes that a proof's stages depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    assignment: u64,
    shells: u64,
    domain: u64,
    /// Vectors of the domain's size until the quotient is made.
    vectors: u64,
    /// The pieces of those that are not held.
    pieces: u64,
    synthesis: u64,
    quotient: u64,
    commit: u64,
    b_g2: u64,
    /// What commit and b in G2 hold beside a multiplication's scratch: a piece of a streamed key.
    piece_g1: u64,
    piece_g2: u64,
    /// What verifying the proof takes, where that is done in the last stage.
    verification: u64,
}

impl Footprint {
    /// The footprint of one proof of a circuit when its stages run on `threads` threads.
    pub fn new(r1cs: &R1cs, backend: &dyn Backend, threads: usize) -> Self {
        let scalars = |len: usize| (len * size_of::<Scalar>()) as u64;
        let n = r1cs.domain().size();
        let g1 = |len: usize| backend.msm_scratch_bytes(CurveGroup::G1, len, threads);
        let b = r1cs.b_density().total();
        // The A query is multiplied in pieces of at most n values, because they are gathered in the quotient's buffer.
        let a_pieces = piece_lengths(r1cs.a_density().total(), n).map(g1).max().unwrap_or(0);
        Self {
            assignment: scalars(r1cs.variables()),
            shells: scalars(r1cs.inputs() - 1),
            domain: scalars(n),
            vectors: backend.quotient_vectors() as u64,
            pieces: if backend.quotient_vectors() == 1 { pieces::buffer_bytes(n) } else { 0 },
            synthesis: SYNTHESIS_BYTES + SYNTHESIS_BYTES_PER_VARIABLE * r1cs.variables() as u64,
            quotient: backend.quotient_scratch_bytes(n, threads).max(backend.ntt_scratch_bytes(n, threads)),
            // h has n − 1 points or, in the other basis, n.
            commit: g1(n).max(g1(n - 1)).max(g1(r1cs.aux())).max(a_pieces).max(g1(b)),
            b_g2: backend.msm_scratch_bytes(CurveGroup::G2, b, threads),
            piece_g1: 0,
            piece_g2: 0,
            verification: 0,
        }
    }

    /// The same with a key whose points pass through memory ([`Prover::streamed`](crate::prover::Prover::streamed)): at most `piece` of
    /// them at a time, in this basis, with `reading` for what reading takes for itself ([`KeyStream::scratch_bytes`]).
    ///
    /// [`KeyStream::scratch_bytes`]: crate::keys::KeyStream::scratch_bytes
    #[must_use]
    pub fn with_stream(
        mut self,
        r1cs: &R1cs,
        basis: HBasis,
        backend: &dyn Backend,
        threads: usize,
        reading: Bytes,
        piece: usize,
    ) -> Self {
        let most = |group, lengths: &[usize]| {
            let lengths = lengths.iter().flat_map(|total| piece_lengths(*total, piece));
            lengths.map(|len| backend.msm_scratch_bytes(group, len, threads)).max().unwrap_or(0)
        };
        let (n, variables) = (r1cs.domain().size(), r1cs.variables());
        let h = match basis {
            HBasis::PowersOfTau => n - 1,
            HBasis::OddCosetLagrange => n,
        };
        self.commit = most(CurveGroup::G1, &[h, r1cs.aux(), variables]);
        self.b_g2 = most(CurveGroup::G2, &[variables]);
        let longest = piece.min(n.max(variables)) as u64;
        self.piece_g1 = reading.0 + longest * (size_of::<G1Affine>() + size_of::<Scalar>()) as u64;
        self.piece_g2 = reading.0 + piece.min(variables) as u64 * size_of::<G2Affine>() as u64;
        self
    }

    /// The same with another estimate of what the circuit allocates for itself, for circuits that were measured.
    #[must_use]
    pub fn with_synthesis(mut self, bytes: Bytes) -> Self {
        self.synthesis = bytes.0;
        self
    }

    /// The same where each proof is verified in the last stage, on so many threads.
    #[must_use]
    pub fn with_verification(mut self, threads: usize) -> Self {
        let inputs = self.shells as usize / size_of::<Scalar>();
        self.verification = PreparedVerifyingKey::verification_bytes(inputs, threads);
        self
    }

    /// What the circuit may allocate for itself.
    pub fn synthesis_scratch(&self) -> Bytes {
        Bytes(self.synthesis)
    }

    /// The quotient's scratch.
    pub fn quotient_scratch(&self) -> Bytes {
        Bytes(self.quotient)
    }

    /// The scratch of the multiplications in G1.
    pub fn commit_scratch(&self) -> Bytes {
        Bytes(self.commit + self.piece_g1)
    }

    /// The scratch of the multiplication in G2.
    pub fn b_g2_scratch(&self) -> Bytes {
        Bytes(self.b_g2 + self.piece_g2)
    }

    /// What of [`Footprint::commit_scratch`] is the backend's.
    pub(crate) fn multiplication_scratch(&self) -> Bytes {
        Bytes(self.commit)
    }

    /// What of [`Footprint::b_g2_scratch`] is the backend's.
    pub(crate) fn multiplication_scratch_g2(&self) -> Bytes {
        Bytes(self.b_g2)
    }

    /// The profile of a proof in the six stages of [`STAGES`].
    pub fn profile(&self) -> Profile {
        let [synthesise, evaluate, quotient, commit, b_g2, assemble] = STAGES;
        let shells = Demand::new().bytes(SHELLS, Bytes(self.shells));
        let witness = shells.clone().bytes(AUX, Bytes(self.assignment));
        let provers = |vectors: u64| witness.clone().bytes(PROVERS, Bytes(vectors * self.domain));
        let in_pieces = witness.clone().bytes(PROVERS, Bytes(self.vectors * self.domain + self.pieces));
        let scratch = |demand: Demand, bytes: u64| demand.bytes(SCRATCH, Bytes(bytes));
        Profile::new()
            .stage(synthesise, scratch(witness.clone(), self.synthesis), witness.clone())
            .stage(evaluate, provers(self.vectors), provers(self.vectors))
            .stage(quotient, scratch(in_pieces, self.quotient), provers(1))
            .stage(commit, scratch(provers(1), self.commit_scratch().0), witness.clone())
            .stage(b_g2, scratch(witness.clone(), self.b_g2_scratch().0), shells.clone())
            .stage(assemble, scratch(shells, self.verification), Demand::new())
    }

    /// The host's part of the profile of a proof that is made on a device, in the five stages of [`DEVICE_STAGES`].
    pub fn device_profile(&self) -> Profile {
        let [synthesise, evaluate, stage_in, compute, assemble] = DEVICE_STAGES;
        let shells = Demand::new().bytes(SHELLS, Bytes(self.shells));
        let witness = shells.clone().bytes(AUX, Bytes(self.assignment));
        let evaluated = witness.clone().bytes(PROVERS, Bytes(2 * self.domain));
        Profile::new()
            .stage(synthesise, witness.clone().bytes(SCRATCH, Bytes(self.synthesis)), witness)
            .stage(evaluate, evaluated.clone(), evaluated.clone())
            .stage(stage_in, evaluated, shells.clone())
            .stage(compute, shells.clone(), shells.clone())
            .stage(assemble, shells.bytes(SCRATCH, Bytes(self.verification)), Demand::new())
    }
}

/// The pieces of `total` points of which `most` are taken at a time: the first's index, and how many.
pub(crate) fn pieces(total: usize, most: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..total).step_by(most).map(move |first| (first, most.min(total - first)))
}

/// The lengths of the pieces of `total` values in a buffer of `most`.
pub(crate) fn piece_lengths(total: usize, most: usize) -> impl Iterator<Item = usize> {
    pieces(total, most).map(|(_, len)| len)
}
