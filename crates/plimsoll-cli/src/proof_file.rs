//! `FILE.proof.json`: the layout, a writer that never leaves half a file, a reader that accepts nothing else.
//!
//! The file is JSON, laid out line by line, so that it is written and read as a stream and its length follows from the length of
//! the file that it is about:
//!
//! ```json
//! {
//!   "format": "plimsoll-proof",
//!   "version": 1,
//!   "statement": "sha256-2-blocks-v1",
//!   "setup": "insecure-dev",
//!   "warning": "INSECURE: made with a development key; whoever made the key can forge proofs",
//!   "bytes": 1043,
//!   "digest": "…",
//!   "key": "…",
//!   "verifying_key": "…",
//!   "partitions": [
//!     {"blocks":2,"start":"…","end":"…","proof":"…"},
//!     {"blocks":1,"start":"…","end":"…","proof":"…"}
//!   ]
//! }
//! ```
//!
//! Any JSON parser reads it. The reader here takes only these bytes: lower-case hex, no other spaces, no field twice. So no two
//! files say the same, and there is no byte in it that nothing checks.

mod read;
mod unfinished;
mod write;

pub use read::{Fault, ProofReader, ReadError};
pub(crate) use unfinished::Unfinished;
pub use write::{ProofWriter, WriteError};

use crate::chain::{State, partition_count};
use crate::circuit::STATEMENT;

/// Bytes of a proof in bellperson's encoding.
pub const PROOF_BYTES: usize = 192;
/// The only set-up there is so far.
pub const SETUP: &str = "insecure-dev";
/// What stands in every file made with it.
pub const WARNING: &str = "INSECURE: made with a development key; whoever made the key can forge proofs";

const FORMAT: &str = "plimsoll-proof";
const VERSION: u32 = 1;
const TAIL: &str = "  ]\n}\n";

/// What stands before the partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the proved file.
    pub file_bytes: u64,
    /// Its SHA-256 digest.
    pub digest: [u8; 32],
    /// Identity of the verifying key: the SHA-256 digest of its bytes.
    pub key: [u8; 32],
    /// The verifying key in bellperson's encoding.
    pub verifying_key: Vec<u8>,
}

/// One partition: public inputs and proof. Its padding follows from the file's length and is not repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Blocks in use.
    pub blocks: u8,
    /// State before.
    pub start: State,
    /// State after.
    pub end: State,
    /// The proof.
    pub proof: [u8; PROOF_BYTES],
}

impl Header {
    /// The header's lines.
    fn render(&self) -> String {
        format!(
            "{{\n  \"format\": \"{FORMAT}\",\n  \"version\": {VERSION},\n  \"statement\": \"{STATEMENT}\",\n  \
             \"setup\": \"{SETUP}\",\n  \"warning\": \"{WARNING}\",\n  \"bytes\": {},\n  \"digest\": \"{}\",\n  \
             \"key\": \"{}\",\n  \"verifying_key\": \"{}\",\n  \"partitions\": [\n",
            self.file_bytes,
            hex::encode(self.digest),
            hex::encode(self.key),
            hex::encode(&self.verifying_key),
        )
    }

    /// Length of the whole proof file.
    fn file_length(&self) -> u64 {
        let record = Record { blocks: 1, start: State([0; 8]), end: State([0; 8]), proof: [0; PROOF_BYTES] };
        let line = record.render(false).len() as u64;
        // The last line lacks a comma.
        (partition_count(self.file_bytes).saturating_mul(line) - 1)
            .saturating_add((self.render().len() + TAIL.len()) as u64)
    }
}

impl Record {
    fn render(&self, last: bool) -> String {
        format!(
            "    {{\"blocks\":{},\"start\":\"{}\",\"end\":\"{}\",\"proof\":\"{}\"}}{}\n",
            self.blocks,
            self.start,
            self.end,
            hex::encode(self.proof),
            if last { "" } else { "," },
        )
    }
}

#[cfg(test)]
mod tests;
