//! A circuit's shape and key, from snarkjs's files, within the budget: refused before anything is allocated if it cannot fit.

use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use plimsoll::pool::Pool;
use plimsoll::{Bytes, Class, Ledger, Reservation};
use plimsoll_circom::ReadError;
use plimsoll_circom::map::{MappedFile, Pages};
use plimsoll_circom::r1cs::R1csFile;
use plimsoll_circom::zkey::{KeyDigest, KeyPlan, OnChecked, ShapeReadError, ZkeyFile, ZkeyStream, check_subgroups};
use plimsoll_groth16::backend::Backend;
use plimsoll_groth16::footprint::{Footprint, MATRICES, SRS};
use plimsoll_groth16::keys::{HBasis, KeyMismatch, ProvingKey};
use plimsoll_groth16::prover::Prover;
use plimsoll_groth16::r1cs::R1cs;

use super::known::KnownKeys;
use super::residence::{Residence, choose};
use super::waiting::Waiting;
use crate::budget::{Budget, largest_stage};
use crate::cards::Cards;
use crate::console;
use crate::exit::{Exit, Failure};
use crate::keys::KEY_SCRATCH;
use crate::progress::Progress;
use crate::signals::Interrupt;

/// What reading a witness takes beside its values: a window of its file.
pub const WITNESS_WINDOW: usize = plimsoll_circom::wtns::WINDOW_BYTES;

const MAKING_MATRICES: &str = "building the circuit's matrices";

/// The files, mapped; nothing more is read of them once a signal has come.
#[derive(Debug)]
pub struct Sources {
    zkey_path: PathBuf,
    zkey: Stoppable,
    r1cs: Option<(PathBuf, Stoppable)>,
}

/// A mapped file that is not read on when there is no more use for it.
#[derive(Debug)]
struct Stoppable {
    map: Arc<MappedFile>,
    interrupt: Interrupt,
}

impl Stoppable {
    fn open(path: &Path, interrupt: &Interrupt) -> Result<Self, Failure> {
        Ok(Self { map: Arc::new(open(path)?), interrupt: interrupt.clone() })
    }
}

impl Pages for Stoppable {
    fn release(&self, range: Range<usize>) {
        self.map.release(range);
    }

    fn copy(&self, bytes: &[u8], start: usize, out: &mut [u8]) -> io::Result<()> {
        if self.interrupt.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.map.copy(bytes, start, out)
    }
}

impl Sources {
    /// Maps them.
    ///
    /// # Errors
    /// One is not there, or no regular file.
    pub fn open(zkey: &Path, r1cs: Option<&Path>, interrupt: &Interrupt) -> Result<Self, Failure> {
        let r1cs = r1cs.map(|path| Ok((path.to_owned(), Stoppable::open(path, interrupt)?))).transpose()?;
        Ok(Self { zkey_path: zkey.to_owned(), zkey: Stoppable::open(zkey, interrupt)?, r1cs })
    }

    /// The key.
    ///
    /// # Errors
    /// It is damaged, or for another curve.
    pub fn zkey(&self) -> Result<ZkeyFile<'_>, Failure> {
        ZkeyFile::parse_in(&self.zkey.map, &self.zkey).map_err(|e| about(&self.zkey_path, e))
    }

    /// The constraints, if they were given.
    ///
    /// # Errors
    /// They are damaged, or for another curve.
    pub fn r1cs(&self) -> Result<Option<R1csFile<'_>>, Failure> {
        let Some((path, file)) = &self.r1cs else { return Ok(None) };
        R1csFile::parse_in(&file.map, file).map(Some).map_err(|e| about(path, e))
    }

    /// Where the key is.
    pub fn zkey_path(&self) -> &Path {
        &self.zkey_path
    }

    /// Where the constraints are.
    pub fn r1cs_path(&self) -> Option<&Path> {
        self.r1cs.as_ref().map(|(path, _)| &**path)
    }
}

/// Maps a file.
///
/// # Errors
/// It is not there, or no regular file.
pub fn open(path: &Path) -> Result<MappedFile, Failure> {
    MappedFile::open(path).map_err(|e| about(path, e))
}

/// A fault of an input file.
pub fn about(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::BadInput, format!("{}: {error}", path.display()))
}

/// A key that is ready, with what pays for it.
#[derive(Debug)]
pub struct Loaded {
    /// The shape.
    pub shape: Arc<R1cs>,
    /// The key.
    pub key: Key,
    /// By which it is known again.
    pub digest: KeyDigest,
    /// Whether its points had been checked before.
    pub known: bool,
    /// How long it took.
    pub seconds: f64,
    /// The most that the ledger must be able to give.
    pub smallest: Bytes,
    /// How many results of a batch may wait.
    pub waiting: Waiting,
    #[expect(dead_code, reason = "held for as long as the key is there")]
    charges: [Reservation; 2],
}

/// A key, where it is.
#[derive(Clone, Debug)]
pub enum Key {
    /// In memory.
    Whole(Arc<ProvingKey>),
    /// In its file.
    File {
        /// From where its points are read.
        key: Arc<ZkeyStream>,
        /// How many at a time.
        piece: usize,
    },
}

impl Key {
    /// What is in memory of it between proofs.
    pub fn resident_bytes(&self) -> Bytes {
        match self {
            Self::Whole(key) => Bytes(key.resident_bytes()),
            Self::File { key, .. } => Bytes(key.resident_bytes()),
        }
    }

    fn check(&self, on_checked: OnChecked<'_>) -> Result<(), ReadError> {
        match self {
            Self::Whole(key) => check_subgroups(key, on_checked),
            Self::File { key, .. } => key.check_subgroups(on_checked),
        }
    }
}

impl Loaded {
    /// A prover with this shape and key.
    ///
    /// # Errors
    /// The key is for another circuit.
    pub fn prover(&self, backend: Arc<dyn Backend>) -> Result<Prover, KeyMismatch> {
        match &self.key {
            Key::Whole(key) => Prover::new(self.shape.clone(), key.clone(), backend),
            Key::File { key, piece } => Prover::streamed(self.shape.clone(), key.clone(), *piece, backend),
        }
    }
}

/// What loading needs.
#[derive(Clone, Copy, Debug)]
pub struct Loading<'a> {
    /// The line.
    pub budget: &'a Budget,
    /// Where bytes are counted.
    pub ledger: &'a Ledger,
    /// Where points are parsed and checked.
    pub pool: &'a Pool,
    /// What will compute.
    pub backend: &'a dyn Backend,
    /// Where, if not by the backend.
    pub cards: &'a Cards,
    /// Keys that were checked before.
    pub known: Option<&'a KnownKeys>,
    /// When to stop.
    pub interrupt: &'a Interrupt,
}

impl Loading<'_> {
    /// Loads shape and key, and checks the key's points unless that was done before. A key that does not fit beside a proof stays in
    /// its file.
    ///
    /// # Errors
    /// The budget is too small; a file is damaged; a signal came.
    pub fn load(&self, sources: &Sources) -> Result<Loaded, Failure> {
        self.load_by(sources, |plan, shape| self.residence(plan, shape))
    }

    /// The same, with all of the key in memory, for what has to look at all of it at once.
    ///
    /// # Errors
    /// The same.
    pub fn load_whole(&self, sources: &Sources) -> Result<Loaded, Failure> {
        self.load_by(sources, |plan, shape| {
            let smallest = Bytes(shape.resident_bytes() + plan.resident_bytes + plan.scratch_bytes);
            self.require(smallest, "all of this circuit's key")?;
            Ok((Residence::Whole, smallest))
        })
    }

    fn load_by(
        &self,
        sources: &Sources,
        residence: impl FnOnce(KeyPlan, &R1cs) -> Result<(Residence, Bytes), Failure>,
    ) -> Result<Loaded, Failure> {
        let started = Instant::now();
        let zkey = sources.zkey()?;
        let (shape, mut matrices) = self.shape(sources, &zkey)?;
        let plan = zkey.plan(&shape);
        let (residence, smallest) = residence(plan, &shape)?;
        matrices.shrink_to(Bytes(shape.resident_bytes())).map_err(internal)?;

        let fault = |e: ReadError| match e {
            // What was not read on says so in its own words.
            _ if self.interrupt.is_set() => self.interrupt.failure(),
            e => about(&sources.zkey_path, e),
        };
        let (key, digest, charge, scratch) = match residence {
            Residence::Whole => {
                let charge = self.charge(SRS, Bytes(plan.resident_bytes), "proving key")?;
                let scratch = self.charge(KEY_SCRATCH, Bytes(plan.scratch_bytes), "reading the proving key")?;
                let read = self.pool.install(|| zkey.read_key(&shape, &sources.zkey));
                let (key, digest) = read.map_err(fault)?;
                drop(scratch);
                (Key::Whole(Arc::new(key)), digest, charge, None)
            }
            Residence::File { piece } => {
                let charge = self.charge(SRS, Bytes(zkey.stream_resident_bytes()), "digests of the proving key")?;
                let scratch = self.charge(KEY_SCRATCH, Bytes(ZkeyStream::SCRATCH_BYTES), "reading the proving key")?;
                let scanned = self.pool.install(|| zkey.scan_key(&shape, &sources.zkey.map));
                let (key, digest) = scanned.map_err(fault)?;
                (Key::File { key: Arc::new(key), piece }, digest, charge, Some(scratch))
            }
        };
        let known = self.known.is_some_and(|known| known.contains(digest));
        if !known {
            if !mutant!("key-used-unchecked") {
                self.check(&key).map_err(fault)?;
            }
            if let Some(Err(e)) = self.known.map(|known| known.remember(digest)) {
                console::warn(format!("that the key is sound is not remembered: {e}; it will be checked again"));
            }
        }
        drop(scratch);
        Ok(Loaded {
            waiting: self.waiting(&shape),
            shape: Arc::new(shape),
            key,
            digest,
            known,
            seconds: started.elapsed().as_secs_f64(),
            smallest,
            charges: [matrices, charge],
        })
    }

    /// Where the key goes, and the most that the ledger must be able to give then. Cards want it whole.
    fn residence(&self, plan: KeyPlan, shape: &R1cs) -> Result<(Residence, Bytes), Failure> {
        let footprint =
            Footprint::new(shape, self.backend, self.budget.threads).with_synthesis(Bytes(WITNESS_WINDOW as u64));
        self.cards.require(shape).map_err(|e| Failure::new(Exit::OutOfBudget, e))?;
        let waiting = self.waiting(shape).bytes;
        let claim = largest_stage(&self.cards.profile(&footprint)) + self.cards.host_memory() + waiting;
        let whole = Bytes(shape.resident_bytes() + plan.resident_bytes) + claim.max(Bytes(plan.scratch_bytes));
        if !self.cards.numbers().is_empty() {
            self.require(whole, "this circuit's key and one proof at a time")?;
            return Ok((Residence::Whole, whole));
        }
        let needed = |piece: usize| {
            let (basis, reading) = (HBasis::OddCosetLagrange, Bytes(ZkeyStream::READ_BYTES));
            let streamed =
                footprint.clone().with_stream(shape, basis, self.backend, self.budget.threads, reading, piece);
            let claim = largest_stage(&streamed.profile()) + waiting;
            Bytes(shape.resident_bytes() + plan.stream_bytes) + claim.max(Bytes(ZkeyStream::SCRATCH_BYTES))
        };
        let points = shape.domain().size().max(shape.variables());
        match choose(self.budget.ledger, whole, ZkeyStream::WINDOW_POINTS, points, needed) {
            Ok(Residence::Whole) => Ok((Residence::Whole, whole)),
            Ok(Residence::File { piece }) => Ok((Residence::File { piece }, needed(piece))),
            Err(smallest) => {
                self.require(smallest, "one proof at a time, even with the key read from its file piece by piece")?;
                Err(internal("a budget that suffices was refused"))
            }
        }
    }

    fn waiting(&self, shape: &R1cs) -> Waiting {
        Waiting::new(self.budget.ledger, shape.inputs() - 1, self.budget.threads)
    }

    fn shape(&self, sources: &Sources, zkey: &ZkeyFile<'_>) -> Result<(R1cs, Reservation), Failure> {
        let r1cs = sources.r1cs()?;
        let fault = |e: &dyn std::fmt::Display| match self.interrupt.is_set() {
            true => self.interrupt.failure(),
            false => about(&sources.zkey_path, e),
        };
        let counts = r1cs.as_ref().map(R1csFile::term_counts).transpose();
        let in_c = counts.map_err(|e| fault(&ShapeReadError::R1cs(e)))?.map(|counts| counts[2]);
        let building = Bytes(zkey.shape_bytes(in_c));
        self.require(building, MAKING_MATRICES)?;
        let mut charge = self.charge(MATRICES, building, "shape of the circuit")?;
        let mut pay = |bytes: u64| match charge.try_grow(Bytes(bytes)) {
            _ if self.interrupt.is_set() => Err(ReadError::Stopped),
            _ if bytes == 0 => Ok(()),
            Ok(()) => Ok(()),
            Err(_) => Err(ReadError::NoRoom { bytes }),
        };
        match zkey.shape_paying(r1cs.as_ref(), in_c, &sources.zkey, &mut pay) {
            Ok(shape) => Ok((shape, charge)),
            Err(ShapeReadError::Read(ReadError::NoRoom { bytes })) => {
                self.require(charge.bytes() + Bytes(bytes), MAKING_MATRICES)?;
                Err(internal("a budget that suffices was refused"))
            }
            Err(error) => Err(fault(&error)),
        }
    }

    fn check(&self, key: &Key) -> Result<(), ReadError> {
        let progress = Progress::new("key: check", "points", 0);
        self.pool.install(|| {
            key.check(&mut |done, total| {
                progress.set_total(total as u64);
                progress.set(done as u64);
                if self.interrupt.is_set() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })
        })
    }

    fn require(&self, bytes: Bytes, what: &'static str) -> Result<(), Failure> {
        self.budget.require(bytes, what).map_err(|e| Failure::new(Exit::OutOfBudget, e))
    }

    /// The budget was compared before: a refusal here is a fault of this program.
    fn charge(&self, class: Class, bytes: Bytes, name: &'static str) -> Result<Reservation, Failure> {
        self.ledger.reserve(class, bytes).name(name).retained().try_now().map_err(internal)
    }
}

fn internal(error: impl std::fmt::Display) -> Failure {
    Failure::new(Exit::Internal, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_read_on_once_a_signal_has_come() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plimsoll-circom/tests/fixtures");
        let interrupt = Interrupt::default();
        let sources = Sources::open(&fixtures.join("small.zkey"), Some(&fixtures.join("small.r1cs")), &interrupt);
        let sources = sources.unwrap();
        let (zkey, r1cs) = (sources.zkey().unwrap(), sources.r1cs().unwrap().unwrap());
        let shape = zkey.shape(Some(&r1cs), &sources.zkey).unwrap();
        zkey.scan_key(&shape, &sources.zkey.map).unwrap();
        interrupt.come();
        let stopped = ReadError::Unreadable { kind: io::ErrorKind::Interrupted };
        assert_eq!(r1cs.term_counts(), Err(stopped.clone()));
        assert!(matches!(zkey.shape(None, &sources.zkey), Err(ShapeReadError::Read(e)) if e == stopped));
        assert_eq!(zkey.read_key(&shape, &sources.zkey).err(), Some(stopped.clone()));
        assert_eq!(zkey.scan_key(&shape, &sources.zkey.map).err(), Some(stopped));
    }
}
