//! Checks a proof file: its key, its chain, and all proofs in one batched pairing check, holding a few hundred at a time.

use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::Path;

use blstrs::Scalar;
use plimsoll::pool;
use plimsoll_groth16::keys::{KeyReadError, VerifyingKey};
use plimsoll_groth16::{BatchVerifier, PreparedVerifyingKey, Proof, ProofDecodeError, VerifyError, first_invalid};
use rand_core::OsRng;
use sha2::{Digest, Sha256};

use crate::chain::{INITIAL_STATE, Padding, State, blocks_in_partition};
use crate::circuit::{PUBLIC_INPUTS, public_inputs};
use crate::exit::Exit;
use crate::proof_file::{Header, ProofReader, ReadError, Record};

/// Proofs decoded and held at a time.
const PORTION: usize = 256;

/// What a valid proof file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The header, checked.
    pub header: Header,
    /// Partitions proved.
    pub partitions: u64,
}

/// Why a proof file is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It cannot be read as a proof file.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The key's identity is not the digest of the key.
    #[error("the verifying key in it is not the one it names: digest {found}, named {named}")]
    KeyIdentity {
        /// Digest of the key in the file.
        found: String,
        /// The identity in the file.
        named: String,
    },
    /// The caller insists on another key.
    #[error("made with key {found}, not with {wanted}; it proves nothing to anyone who trusts only that key")]
    OtherKey {
        /// The key in the file.
        found: String,
        /// The key asked for.
        wanted: String,
    },
    /// The key is no key.
    #[error("the verifying key in it is damaged: {0}")]
    KeyDamaged(#[from] KeyReadError),
    /// A key for a circuit with other public inputs.
    #[error(
        "the verifying key in it is for another circuit: it takes {found} public inputs, this statement has {PUBLIC_INPUTS}"
    )]
    KeyOfOtherCircuit {
        /// Inputs of the key.
        found: usize,
    },
    /// Partition does not start where the chain is.
    #[error("partition {partition} starts at state {found}, but {expected} comes before it: the chain is broken")]
    Chain {
        /// From 0.
        partition: u64,
        /// The end of the partition before, or the initial value.
        expected: State,
        /// What the file says.
        found: State,
    },
    /// A partition has another number of blocks than the length says.
    #[error("partition {partition} claims {found} blocks, the file's length makes it {expected}")]
    Blocks {
        /// From 0.
        partition: u64,
        /// What follows from the length.
        expected: u8,
        /// What the file says.
        found: u8,
    },
    /// The chain ends elsewhere.
    #[error("the chain ends at {found}, the digest in it is {named}")]
    Digest {
        /// End of the last partition.
        found: State,
        /// The digest in the header.
        named: String,
    },
    /// Bytes that are no proof.
    #[error("the proof of partition {partition} is damaged: {source}")]
    ProofDamaged {
        /// From 0.
        partition: u64,
        /// What is wrong.
        source: ProofDecodeError,
    },
    /// The pairing check fails.
    #[error("{}", invalid(*partition))]
    Invalid {
        /// The first invalid partition, if it could be told.
        partition: Option<u64>,
    },
    /// The proof is about another file.
    #[error("it is a proof about another file: {proved}; but {path} has {found}")]
    OtherFile {
        /// The file given.
        path: String,
        /// Length and digest that were proved.
        proved: String,
        /// Length and digest of the file given.
        found: String,
    },
}

fn invalid(partition: Option<u64>) -> String {
    match partition {
        Some(partition) => format!("the proof of partition {partition} is not valid for its public inputs"),
        None => "some proof is not valid for its public inputs".to_owned(),
    }
}

impl CheckError {
    /// How the command ends.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Read(_) => Exit::BadInput,
            _ => Exit::ProofInvalid,
        }
    }
}

/// Identity of a verifying key in bellperson's encoding.
pub fn key_identity(verifying_key: &[u8]) -> [u8; 32] {
    Sha256::digest(verifying_key).into()
}

/// Checks the proof file at `path`, on the threads of the current pool. With `wanted`, only that key will do.
pub fn check(path: &Path, wanted: Option<[u8; 32]>) -> Result<Verdict, CheckError> {
    let mut reader = ProofReader::open(path)?;
    let key = check_key(reader.header(), wanted)?;
    let verdict = match check_records(&mut reader, &key) {
        // The batch tells that, not which.
        Err(CheckError::Invalid { .. }) => return Err(CheckError::Invalid { partition: look_again(path, &key) }),
        result => result?,
    };
    Ok(verdict)
}

fn check_key(header: &Header, wanted: Option<[u8; 32]>) -> Result<PreparedVerifyingKey, CheckError> {
    let identity = key_identity(&header.verifying_key);
    if identity != header.key {
        return Err(CheckError::KeyIdentity { found: hex::encode(identity), named: hex::encode(header.key) });
    }
    if let Some(wanted) = wanted
        && wanted != identity
    {
        return Err(CheckError::OtherKey { found: hex::encode(identity), wanted: hex::encode(wanted) });
    }
    let key = VerifyingKey::read(Cursor::new(&header.verifying_key))?;
    if key.ic.len() != PUBLIC_INPUTS + 1 {
        return Err(CheckError::KeyOfOtherCircuit { found: key.ic.len() - 1 });
    }
    Ok(PreparedVerifyingKey::new(&key))
}

fn check_records<R: std::io::BufRead>(
    reader: &mut ProofReader<R>,
    key: &PreparedVerifyingKey,
) -> Result<Verdict, CheckError> {
    let header = reader.header().clone();
    let mut batch = BatchVerifier::new(key);
    let mut chain = Chain { state: INITIAL_STATE, partition: 0, file_bytes: header.file_bytes };
    loop {
        let portion = chain.portion(reader)?;
        if portion.is_empty() {
            break;
        }
        let (proofs, inputs) = decode(&portion, chain.partition - portion.len() as u64)?;
        batch.add(&proofs, &inputs, &mut OsRng).map_err(unexpected)?;
    }
    if chain.state.to_bytes() != header.digest {
        return Err(CheckError::Digest { found: chain.state, named: hex::encode(header.digest) });
    }
    batch.finish().map_err(unexpected)?;
    Ok(Verdict { header, partitions: chain.partition })
}

/// The numbers of proofs and inputs are made equal here, so whatever a batch reports is that it is invalid.
fn unexpected(_: VerifyError) -> CheckError {
    CheckError::Invalid { partition: None }
}

/// A record with the inputs that the verifier computes for it.
type Claim = (Record, [Scalar; PUBLIC_INPUTS]);

/// Walks the chain of states.
struct Chain {
    state: State,
    partition: u64,
    file_bytes: u64,
}

impl Chain {
    fn portion<R: std::io::BufRead>(&mut self, reader: &mut ProofReader<R>) -> Result<Vec<Claim>, CheckError> {
        let mut portion = Vec::new();
        while portion.len() < PORTION
            && let Some(record) = reader.next_record()?
        {
            portion.push(self.step(record)?);
        }
        Ok(portion)
    }

    fn step(&mut self, record: Record) -> Result<Claim, CheckError> {
        let partition = self.partition;
        if record.start != self.state {
            return Err(CheckError::Chain { partition, expected: self.state, found: record.start });
        }
        let expected = blocks_in_partition(self.file_bytes, partition);
        if record.blocks != expected {
            return Err(CheckError::Blocks { partition, expected, found: record.blocks });
        }
        let padding = Padding::of_partition(self.file_bytes, partition);
        let inputs = public_inputs(record.start, record.end, record.blocks, &padding);
        self.state = record.end;
        self.partition += 1;
        Ok((record, inputs))
    }
}

type Decoded = (Vec<Proof>, Vec<Vec<Scalar>>);

fn decode(portion: &[Claim], first: u64) -> Result<Decoded, CheckError> {
    let proofs = pool::map_indices(portion.len(), |i| Proof::from_bytes(&portion[i].0.proof))
        .into_iter()
        .zip(first..)
        .map(|(proof, partition)| proof.map_err(|source| CheckError::ProofDamaged { partition, source }))
        .collect::<Result<Vec<Proof>, _>>()?;
    let inputs = portion.iter().map(|(_, inputs)| inputs.to_vec()).collect();
    Ok((proofs, inputs))
}

/// Finds the first invalid proof of a file that holds one, portion by portion. A pipe can be read once only, and a file may have
/// changed meanwhile: then the verdict stands, and the partition stays unknown.
fn look_again(path: &Path, key: &PreparedVerifyingKey) -> Option<u64> {
    if !path.is_file() {
        return None;
    }
    find_invalid(ProofReader::open(path).ok()?, key).ok()?
}

fn find_invalid<R: std::io::BufRead>(
    mut reader: ProofReader<R>,
    key: &PreparedVerifyingKey,
) -> Result<Option<u64>, CheckError> {
    let mut chain = Chain { state: INITIAL_STATE, partition: 0, file_bytes: reader.header().file_bytes };
    loop {
        let first = chain.partition;
        let portion = chain.portion(&mut reader)?;
        if portion.is_empty() {
            return Ok(None);
        }
        let (proofs, inputs) = decode(&portion, first)?;
        let mut batch = BatchVerifier::new(key);
        batch.add(&proofs, &inputs, &mut OsRng).map_err(unexpected)?;
        if batch.finish().is_err() {
            return Ok(first_invalid(key, &proofs, &inputs).map(|(index, _)| first + index as u64));
        }
    }
}

/// Compares a valid proof with the file that it should be about. Reads one byte more than were proved at most.
pub fn check_file(verdict: &Verdict, path: &Path) -> Result<Result<(), CheckError>, std::io::Error> {
    let header = &verdict.header;
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path)?.take(header.file_bytes + 1));
    let mut hash = Sha256::new();
    let length = std::io::copy(&mut reader, &mut hash)?;
    let digest: [u8; 32] = hash.finalize().into();
    if digest == header.digest && length == header.file_bytes {
        return Ok(Ok(()));
    }
    let found = if length > header.file_bytes {
        format!("more than {} bytes", header.file_bytes)
    } else {
        format!("{length} bytes with digest {}", hex::encode(digest))
    };
    Ok(Err(CheckError::OtherFile {
        path: path.display().to_string(),
        proved: format!("{} bytes with digest {}", header.file_bytes, hex::encode(header.digest)),
        found,
    }))
}
