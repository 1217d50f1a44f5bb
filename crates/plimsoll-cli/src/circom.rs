//! Circuits of circom's: keys of snarkjs's, witnesses, and the proofs that come of them.

pub mod batch;
pub mod explain;
pub mod known;
pub mod load;
pub mod residence;
pub mod waiting;
pub mod witnesses;
