//! `plimsoll prove`.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::pipeline::JobError;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Bytes, Ledger, Profile, Reservation, Space};
use plimsoll_groth16::footprint::{Footprint, MATRICES};
use plimsoll_groth16::prover::Prover;
use plimsoll_groth16::r1cs::R1cs;

use crate::args::Prove;
use crate::backend::{self, Chosen};
use crate::budget::{Budget, largest_stage};
use crate::chain::{FILE_BYTES_MAX, Partitions, partition_count};
use crate::circuit::PartitionCircuit;
use crate::console;
use crate::exit::{Exit, Failure};
use crate::heap;
use crate::key_cache::KeyCache;
use crate::keys::{KeyFootprint, KeySource, Keys};
use crate::machine::Machine;
use crate::metrics;
use crate::progress::Progress;
use crate::proof_file::{Header, ProofWriter};
use crate::proving::{Proving, ProvingError, Run};
use crate::signals::Interrupt;
use crate::trace::Trace;
use crate::watch::{Record, Watched};

mod report;

use report::Report;

use super::proved::{Socket, still_held, warn_if_more_than_there_is};

/// Runs it.
pub fn run(args: &Prove) -> Result<(), Failure> {
    if let Some(zkey) = &args.circom.zkey {
        return super::prove_circom::run(args, zkey);
    }
    // The command line demands one of the two.
    let file = args.file.as_deref().ok_or_else(|| Failure::new(Exit::Usage, "name a file to prove, or --zkey"))?;
    let started = Instant::now();
    let interrupt = Interrupt::install().map_err(|e| Failure::new(Exit::Internal, format!("signals: {e}")))?;
    let machine = Machine::new();
    let input = Input::open(file)?;
    let output = output_path(args, &input)?;
    let threads = args.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let budget = Budget::choose(args.memory, &machine, threads).map_err(|e| Failure::new(Exit::OutOfBudget, e))?;

    warn_if_more_than_there_is(args.memory, &budget, &machine);

    if let Some(folder) = &args.heap_profiles {
        heap::check(folder)?;
    }
    let chosen = backend::choose(args.backend.clone(), args.device_memory)?;
    let budget = budget.beside(chosen.host_memory);
    let plan = Plan::new(&budget, chosen)?;
    let cache = KeyCache::of_user().inspect_err(|e| console::warn(format!("the key is not cached: {e}"))).ok();
    let writer = ProofWriter::create(&output, input.bytes, plan.key.verifying_key_bytes()).map_err(output_failure)?;
    let trace = args.trace.as_deref().map(|path| create_trace(path, &input, &output)).transpose()?;
    let record = args.record.as_deref().map(|path| create_record(path, &input, &output)).transpose()?;
    let work = Work {
        interrupt: &interrupt,
        budget: &budget,
        plan: &plan,
        cache: cache.as_ref(),
        socket: args.socket.as_deref(),
        metrics: args.metrics,
        heap_profiles: args.heap_profiles.as_deref(),
        trace: trace.as_ref(),
        record: record.as_ref(),
        period: Duration::from_millis(u64::from(args.sample_ms)),
    };
    let (done, held) = work.run(&input, writer);
    if let Some(trace) = &trace {
        trace.warn_if_incomplete();
    }
    if let Some(record) = &record {
        record.warn_if_incomplete();
    }
    // Whatever happened, by now everything is back.
    let done = done.map_err(|failure| Failure { held: Some(held), ..failure })?;
    if held > Bytes::ZERO {
        return Err(Failure::new(Exit::Internal, format!("{held} were never given back; the proof is written")));
    }
    if let Some(remarks) = plan.chosen.backend.remarks() {
        console::warn(format!("{}: {remarks}", plan.chosen.name));
    }
    let report = Report {
        input: &input.path,
        bytes: input.bytes,
        output: &output,
        budget: &budget,
        plan: &plan,
        done: &done,
        seconds: started.elapsed().as_secs_f64(),
        resident_peak: machine.resident_peak(),
    };
    report.print(args.json)
}

/// The file to prove.
struct Input {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl Input {
    /// Opens a regular file with something in it.
    fn open(path: &Path) -> Result<Self, Failure> {
        let failure =
            |what: &dyn std::fmt::Display| Failure::new(Exit::BadInput, format!("{}: {what}", path.display()));
        // Asked before it is opened, because opening a pipe waits for its other end.
        let kind = fs::metadata(path).map_err(|e| failure(&e))?;
        if kind.is_dir() {
            return Err(failure(&"is a directory; name a file to prove"));
        }
        if !kind.is_file() {
            return Err(failure(&"is not a regular file; copy what is in it to a file, and prove that"));
        }
        let file = File::open(path).map_err(|e| failure(&e))?;
        let bytes = file.metadata().map_err(|e| failure(&e))?.len();
        if bytes == 0 {
            return Err(failure(&"is empty: there is nothing to prove"));
        }
        if bytes > FILE_BYTES_MAX {
            return Err(failure(&"is longer than SHA-256 is defined for"));
        }
        Ok(Self { path: path.to_owned(), file, bytes })
    }
}

/// `FILE.proof.json`, unless another place is asked for. Never the file itself.
fn output_path(args: &Prove, input: &Input) -> Result<PathBuf, Failure> {
    let path = args.output.clone().unwrap_or_else(|| {
        let mut name = OsString::from(&input.path);
        name.push(".proof.json");
        PathBuf::from(name)
    });
    if let (Ok(input), Ok(output)) = (fs::canonicalize(&input.path), fs::canonicalize(&path))
        && input == output
    {
        let message = format!("{}: would overwrite the file that is to be proved", path.display());
        return Err(Failure::new(Exit::Usage, message));
    }
    Ok(path)
}

/// The trace's file, which is neither the input nor the proof.
fn create_trace(path: &Path, input: &Input, output: &Path) -> Result<Trace, Failure> {
    refuse_overwriting(path, input, output, "the trace")?;
    Trace::create(path)
}

/// The recording's file, likewise.
fn create_record(path: &Path, input: &Input, output: &Path) -> Result<Record, Failure> {
    refuse_overwriting(path, input, output, "the recording")?;
    Record::create(path)
}

fn refuse_overwriting(path: &Path, input: &Input, output: &Path, with: &str) -> Result<(), Failure> {
    for (other, what) in [(&*input.path, "the file that is to be proved"), (output, "the proof")] {
        if place_of(path) == place_of(other) {
            let message = format!("{}: would overwrite {what} with {with}", path.display());
            return Err(Failure::new(Exit::Usage, message));
        }
    }
    Ok(())
}

/// One name for each place, whether or not something is there yet.
pub(super) fn place_of(path: &Path) -> PathBuf {
    fs::canonicalize(path).unwrap_or_else(|_| {
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
        directory.join(path.file_name().unwrap_or_default())
    })
}

fn output_failure(error: crate::proof_file::WriteError) -> Failure {
    Failure::new(Exit::Output, error)
}

/// What the circuit's sizes say about memory, before any work.
pub(super) struct Plan {
    r1cs: Arc<R1cs>,
    chosen: Chosen,
    matrices: Bytes,
    key: KeyFootprint,
    profile: Profile,
    /// The most that one partition holds.
    claim: Bytes,
}

impl Plan {
    /// Builds the circuit's shape, and refuses a budget in which not even one partition can be proved.
    pub(super) fn new(budget: &Budget, chosen: Chosen) -> Result<Self, Failure> {
        let r1cs = R1cs::from_circuit(PartitionCircuit::shape()).map_err(|e| Failure::new(Exit::Internal, e))?;
        let footprint = Footprint::new(&r1cs, &*chosen.backend, budget.threads);
        let profile = chosen.cards.profile(&footprint);
        let claim = largest_stage(&profile);
        chosen.cards.require(&r1cs).map_err(|e| Failure::new(Exit::OutOfBudget, e))?;
        let plan = Self {
            matrices: Bytes(r1cs.resident_bytes()),
            key: KeyFootprint::of(&r1cs, budget.threads),
            r1cs: Arc::new(r1cs),
            chosen,
            profile,
            claim,
        };
        budget
            .require(plan.smallest(), "proving even one partition at a time")
            .map_err(|e| Failure::new(Exit::OutOfBudget, e))?;
        Ok(plan)
    }

    /// What all partitions share: the shape and the key.
    pub(super) fn shared(&self) -> Bytes {
        self.matrices + self.key.resident
    }

    /// The most that one partition holds.
    pub(super) fn claim(&self) -> Bytes {
        self.claim
    }

    /// What the ledger must be able to give: the shape, the key, and the most of making it, reading it, and proving with it.
    /// Making counts even where a key is cached: a cached key can turn out to be damaged.
    pub(super) fn smallest(&self) -> Bytes {
        self.shared() + (self.claim + self.chosen.cards.host_memory()).max(self.key.making).max(self.key.reading)
    }
}

/// What came of it.
struct Done {
    run: Run,
    keys: KeyReport,
    /// Seconds in the pipeline, verification included.
    proving_seconds: f64,
    partitions: u64,
}

/// What is told about the key.
struct KeyReport {
    identity: [u8; 32],
    origin: crate::keys::Origin,
    seconds: f64,
}

/// The work itself: everything that holds large buffers.
struct Work<'a> {
    interrupt: &'a Interrupt,
    budget: &'a Budget,
    plan: &'a Plan,
    cache: Option<&'a KeyCache>,
    trace: Option<&'a Trace>,
    socket: Option<&'a Path>,
    metrics: Option<SocketAddr>,
    heap_profiles: Option<&'a Path>,
    record: Option<&'a Record>,
    /// How often the process is looked at.
    period: Duration,
}

impl Work<'_> {
    /// Works, and says what the ledger holds when everything has ended.
    fn run(&self, input: &Input, writer: ProofWriter) -> (Result<Done, Failure>, Bytes) {
        let budget = plimsoll::Budget::new().space(Space::HOST, self.budget.ledger);
        let ledger = Ledger::new(self.plan.chosen.cards.budget(budget));
        if let Some(trace) = self.trace {
            trace.follow(&ledger);
        }
        if let Some(record) = self.record {
            record.follow(&ledger);
        }
        let watched = Watched {
            period: self.period,
            line: self.budget.line.bytes,
            floor: self.plan.smallest(),
            trace: self.trace,
            record: self.record,
            with_verdict: self.socket.is_some(),
            with_metrics: self.metrics.is_some(),
            heap_profiles: self.heap_profiles,
            with_cards: self.plan.chosen.name != "cpu",
        };
        let _exporter = match self.metrics.map(|address| metrics::serve(&ledger, address)).transpose() {
            Ok(exporter) => exporter,
            Err(failure) => return (Err(failure), Bytes::ZERO),
        };
        let watch = watched.start(&ledger);
        let socket = match self.socket.map(|path| Socket::open(&ledger, path)).transpose() {
            Ok(socket) => socket,
            Err(failure) => return (Err(failure), Bytes::ZERO),
        };
        if let (Some(socket), Some(watch)) = (&socket, &watch) {
            socket.show(watch);
        }
        let done = self.prove(&ledger, input, writer);
        // A last look, at what the end has left.
        drop(watch);
        (done, still_held(&ledger))
    }

    fn prove(&self, ledger: &Ledger, input: &Input, mut writer: ProofWriter) -> Result<Done, Failure> {
        let plan = self.plan;
        let pool = Pool::new(PoolConfig { threads: self.budget.threads, ..PoolConfig::default() })
            .map_err(|e| Failure::new(Exit::Internal, e))?;
        let _matrices = charge_matrices(ledger, plan.matrices)?;
        let source = KeySource {
            cache: self.cache,
            r1cs: &plan.r1cs,
            footprint: plan.key,
            ledger,
            pool: &pool,
            interrupt: self.interrupt,
        };
        let Keys { key, verifying_key, identity, origin, time, charge: _charge } = source.get()?;

        let prover = Prover::new(plan.r1cs.clone(), key, plan.chosen.backend.clone())
            .map_err(|e| Failure::new(Exit::Internal, e))?
            .with_stop(self.interrupt.flag());
        let partitions = partition_count(input.bytes);
        let progress = Progress::new("proving", "partitions", partitions);
        let started = Instant::now();
        let proving =
            Proving { prover: &prover, cards: &plan.chosen.cards, ledger, pool: &pool, interrupt: self.interrupt };
        let reader = BufReader::with_capacity(1 << 16, &input.file);
        let run = proving
            .run(Partitions::new(reader, input.bytes), &mut writer, |done| progress.set(done))
            .map_err(|e| self.failure(input, e))?;
        let proving_seconds = started.elapsed().as_secs_f64();
        let header = Header { file_bytes: input.bytes, digest: run.digest.to_bytes(), key: identity, verifying_key };
        writer.finish(&header).map_err(output_failure)?;
        let keys = KeyReport { identity, origin, seconds: time.as_secs_f64() };
        Ok(Done { run, keys, proving_seconds, partitions })
    }

    fn failure(&self, input: &Input, error: ProvingError) -> Failure {
        // A stage that was told to stop fails; that it was told is the reason.
        if self.interrupt.is_set() {
            return self.interrupt.failure();
        }
        match error {
            ProvingError::Input(e) => Failure::new(Exit::BadInput, format!("{}: {e}", input.path.display())),
            ProvingError::Output(e) => output_failure(e),
            ProvingError::Job { partition, source } if matches!(*source, JobError::Cancelled { .. }) => {
                let message =
                    format!("{}: partition {partition} was cancelled; nothing is written", input.path.display());
                Failure::new(Exit::Interrupted(signal_hook::consts::SIGINT), message)
            }
            e => Failure::new(Exit::Internal, format!("{}: {e}", input.path.display())),
        }
    }
}

fn charge_matrices(ledger: &Ledger, bytes: Bytes) -> Result<Reservation, Failure> {
    ledger
        .reserve(MATRICES, bytes)
        .name("shape of the circuit")
        .retained()
        .try_now()
        .map_err(|e| Failure::new(Exit::Internal, e))
}
