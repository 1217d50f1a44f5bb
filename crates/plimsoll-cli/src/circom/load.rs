//! A circuit's shape and key, from snarkjs's files, within the budget: refused before anything is allocated if it cannot fit.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use plimsoll::pool::Pool;
use plimsoll::{Bytes, Class, Ledger, Profile, Reservation};
use plimsoll_circom::ReadError;
use plimsoll_circom::map::MappedFile;
use plimsoll_circom::r1cs::R1csFile;
use plimsoll_circom::zkey::{KeyDigest, KeyPlan, ZkeyFile, check_subgroups};
use plimsoll_groth16::backend::Backend;
use plimsoll_groth16::footprint::{Footprint, MATRICES, SRS};
use plimsoll_groth16::keys::ProvingKey;
use plimsoll_groth16::r1cs::R1cs;

use super::known::KnownKeys;
use crate::budget::{Budget, largest_stage};
use crate::cards::Cards;
use crate::console;
use crate::exit::{Exit, Failure};
use crate::keys::KEY_SCRATCH;
use crate::progress::Progress;
use crate::signals::Interrupt;

/// What reading a witness takes beside its values: a window of its file.
pub const WITNESS_WINDOW: usize = 1 << 20;

/// The files, mapped.
#[derive(Debug)]
pub struct Sources {
    zkey_path: PathBuf,
    zkey: MappedFile,
    r1cs: Option<(PathBuf, MappedFile)>,
}

impl Sources {
    /// Maps them.
    ///
    /// # Errors
    /// One is not there, or no regular file.
    pub fn open(zkey: &Path, r1cs: Option<&Path>) -> Result<Self, Failure> {
        let r1cs = r1cs.map(|path| Ok((path.to_owned(), open(path)?))).transpose()?;
        Ok(Self { zkey_path: zkey.to_owned(), zkey: open(zkey)?, r1cs })
    }

    /// The key.
    ///
    /// # Errors
    /// It is damaged, or for another curve.
    pub fn zkey(&self) -> Result<ZkeyFile<'_>, Failure> {
        ZkeyFile::parse(&self.zkey).map_err(|e| about(&self.zkey_path, e))
    }

    /// The constraints, if they were given.
    ///
    /// # Errors
    /// They are damaged, or for another curve.
    pub fn r1cs(&self) -> Result<Option<R1csFile<'_>>, Failure> {
        let Some((path, bytes)) = &self.r1cs else { return Ok(None) };
        R1csFile::parse(bytes).map(|file| Some(file.releasing(bytes))).map_err(|e| about(path, e))
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
    pub key: Arc<ProvingKey>,
    /// By which it is known again.
    pub digest: KeyDigest,
    /// Whether its points had been checked before.
    pub known: bool,
    /// How long it took.
    pub seconds: f64,
    /// The most that the ledger must be able to give.
    pub smallest: Bytes,
    /// What one proof needs.
    pub profile: Profile,
    #[expect(dead_code, reason = "held for as long as the key is there")]
    charges: [Reservation; 2],
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
    /// Loads shape and key, and checks the key's points unless that was done before.
    ///
    /// # Errors
    /// The budget is too small; a file is damaged; a signal came.
    pub fn load(&self, sources: &Sources) -> Result<Loaded, Failure> {
        let started = Instant::now();
        let zkey = sources.zkey()?;
        let (shape, mut matrices) = self.shape(sources, &zkey)?;
        let footprint =
            Footprint::new(&shape, self.backend, self.budget.threads).with_synthesis(Bytes(WITNESS_WINDOW as u64));
        let profile = self.cards.profile(&footprint);
        self.cards.require(&shape).map_err(|e| Failure::new(Exit::OutOfBudget, e))?;
        let claim = largest_stage(&profile);
        let KeyPlan { resident_bytes, scratch_bytes } = zkey.plan(&shape);
        let smallest = Bytes(shape.resident_bytes() + resident_bytes)
            + (claim + self.cards.host_memory()).max(Bytes(scratch_bytes));
        self.require(smallest, "this circuit's key and one proof at a time")?;
        matrices.shrink_to(Bytes(shape.resident_bytes())).map_err(internal)?;

        let charge = self.charge(SRS, Bytes(resident_bytes), "proving key")?;
        let scratch = self.charge(KEY_SCRATCH, Bytes(scratch_bytes), "reading the proving key")?;
        let read = self.pool.install(|| zkey.read_key(&shape, &sources.zkey));
        let (key, digest) = read.map_err(|e| about(&sources.zkey_path, e))?;
        drop(scratch);
        let known = self.known.is_some_and(|known| known.contains(digest));
        if !known {
            self.check(&key).map_err(|e| match e {
                ReadError::Stopped => self.interrupt.failure(),
                e => about(&sources.zkey_path, e),
            })?;
            if let Some(Err(e)) = self.known.map(|known| known.remember(digest)) {
                console::warn(format!("that the key is sound is not remembered: {e}; it will be checked again"));
            }
        }
        Ok(Loaded {
            shape: Arc::new(shape),
            key: Arc::new(key),
            digest,
            known,
            seconds: started.elapsed().as_secs_f64(),
            smallest,
            profile,
            charges: [matrices, charge],
        })
    }

    fn shape(&self, sources: &Sources, zkey: &ZkeyFile<'_>) -> Result<(R1cs, Reservation), Failure> {
        let r1cs = sources.r1cs()?;
        let building = Bytes(zkey.shape_bytes(r1cs.as_ref()));
        self.require(building, "building the circuit's matrices")?;
        let charge = self.charge(MATRICES, building, "shape of the circuit")?;
        let shape = zkey.shape(r1cs.as_ref(), &sources.zkey);
        Ok((shape.map_err(|e| about(&sources.zkey_path, e))?, charge))
    }

    fn check(&self, key: &ProvingKey) -> Result<(), ReadError> {
        let progress = Progress::new("key: check", "points", 0);
        self.pool.install(|| {
            check_subgroups(key, &mut |done, total| {
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
