//! `plimsoll prove --zkey`: a batch of witnesses of a circuit of circom's.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Bytes, Ledger, Space};
use plimsoll_circom::json::{write_proof, write_public_to};
use plimsoll_groth16::prover::Proved;

use crate::args::Prove;
use crate::backend::{self, Chosen};
use crate::budget::Budget;
use crate::cards::PipelineError;
use crate::circom::batch::{Batch, WitnessError};
use crate::circom::known::KnownKeys;
use crate::circom::load::{Key, Loading, Sources, about};
use crate::circom::witnesses::{WitnessFile, collect};
use crate::circom::{batch::BatchRun, explain};
use crate::console;
use crate::exit::{Exit, Failure};
use crate::heap;
use crate::key_cache::open_regular;
use crate::machine::Machine;
use crate::metrics;
use crate::progress::Progress;
use crate::proof_file::Unfinished;
use crate::signals::Interrupt;
use crate::trace::Trace;
use crate::watch::{Record, Watched};

mod report;

use report::{Fault, Outcome, Report};

use super::proved::{Socket, still_held, warn_if_more_than_there_is};

/// Runs it.
pub(super) fn run(args: &Prove, zkey: &Path) -> Result<(), Failure> {
    let started = Instant::now();
    let interrupt = Interrupt::install().map_err(|e| Failure::new(Exit::Internal, format!("signals: {e}")))?;
    let machine = Machine::new();
    let r1cs = constraints(args, zkey)?;
    let sources = Sources::open(zkey, r1cs.as_deref(), &interrupt)?;
    if let Some(sym) = &args.circom.sym {
        if r1cs.is_none() {
            let text = "--sym: names are told of constraints that a witness breaks; name the constraints with --r1cs";
            return Err(Failure::new(Exit::Usage, text));
        }
        open_regular(sym).map_err(|e| about(sym, e))?;
        if let Some(file) = sources.r1cs()?
            && !explain::is_of(sym, &file).map_err(|e| about(sym, e))?
        {
            return Err(about(sym, "it names the signals of another circuit than the r1cs file's"));
        }
    }
    let folder = args.output.clone().unwrap_or_else(|| PathBuf::from("."));
    let witnesses = collect(&args.circom.wtns, &folder, io::stdin().lock())?;
    let sym = args.circom.sym.clone().or_else(|| r1cs.as_deref().and_then(explain::sym_beside));
    let read = [Some(zkey), r1cs.as_deref(), sym.as_deref()];
    refuse_overwriting(&witnesses, &read, [&args.trace, &args.record])?;
    fs::create_dir_all(&folder).map_err(|e| {
        let shown = folder.display();
        let text = match folder.exists() && !folder.is_dir() {
            true => format!("{shown}: proofs of witnesses go to a folder, and this is none"),
            false => format!("{shown}: {e}"),
        };
        Failure::new(Exit::Output, text)
    })?;
    let threads = args.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let budget = Budget::choose(args.memory, &machine, threads).map_err(|e| Failure::new(Exit::OutOfBudget, e))?;
    warn_if_more_than_there_is(args.memory, &budget, &machine);
    let chosen = backend::choose(args.backend.clone(), args.device_memory)?;
    let budget = budget.beside(chosen.host_memory);
    let trace = args.trace.as_deref().map(Trace::create).transpose()?;
    let record = args.record.as_deref().map(Record::create).transpose()?;

    if let Some(folder) = &args.heap_profiles {
        heap::check(folder)?;
    }
    let limits = plimsoll::Budget::new().space(Space::HOST, budget.ledger);
    let ledger = Ledger::new(chosen.cards.budget(limits));
    if let Some(trace) = &trace {
        trace.follow(&ledger);
    }
    if let Some(record) = &record {
        record.follow(&ledger);
    }
    let exporter = args.metrics.map(|address| metrics::serve(&ledger, address)).transpose()?;
    let socket = args.socket.as_deref().map(|path| Socket::open(&ledger, path)).transpose()?;
    let work = Work {
        args,
        sources: &sources,
        sym: sym.as_deref(),
        budget: &budget,
        chosen: &chosen,
        ledger: &ledger,
        socket: socket.as_ref(),
        interrupt: &interrupt,
    };
    let done = work.run(&witnesses, trace.as_ref(), record.as_ref());
    let held = still_held(&ledger);
    drop((socket, exporter));
    trace.iter().for_each(Trace::warn_if_incomplete);
    record.iter().for_each(Record::warn_if_incomplete);
    let done = done.map_err(|failure| Failure { held: Some(held), ..failure })?;
    if held > Bytes::ZERO {
        return Err(Failure::new(Exit::Internal, format!("{held} were never given back; the proofs are written")));
    }
    if let Some(remarks) = chosen.backend.remarks() {
        console::warn(format!("{}: {remarks}", chosen.name));
    }
    let report = Report {
        zkey,
        witnesses: &witnesses,
        budget: &budget,
        chosen: &chosen,
        done: &done,
        seconds: started.elapsed().as_secs_f64(),
        resident_peak: machine.resident_peak(),
    };
    report.print(args.json)?;
    report.verdict(args.json)
}

/// The circuit's constraints: named, or beside the key if there is to be a check.
fn constraints(args: &Prove, zkey: &Path) -> Result<Option<PathBuf>, Failure> {
    match &args.circom.r1cs {
        None if args.circom.check => {
            let beside = zkey.with_extension("r1cs");
            if beside.is_file() {
                return Ok(Some(beside));
            }
            let text = format!("--check: there is no {}; name the circuit's constraints with --r1cs", beside.display());
            Err(Failure::new(Exit::Usage, text))
        }
        named => Ok(named.clone()),
    }
}

/// Nothing that is read may be written over, and nothing written twice.
fn refuse_overwriting(
    witnesses: &[WitnessFile],
    inputs: &[Option<&Path>],
    others: [&Option<PathBuf>; 2],
) -> Result<(), Failure> {
    use super::prove::place_of;
    let mut read: std::collections::HashSet<PathBuf> = witnesses.iter().map(|file| place_of(&file.path)).collect();
    read.extend(inputs.iter().copied().flatten().map(place_of));
    let written = witnesses.iter().flat_map(|file| [&file.proof, &file.public]);
    for path in written.chain(others.into_iter().flatten()) {
        if !read.insert(place_of(path)) {
            return Err(Failure::new(
                Exit::Usage,
                format!("{}: would overwrite another file of this run", path.display()),
            ));
        }
    }
    Ok(())
}

/// What came of it.
struct Done {
    run: BatchRun,
    outcomes: Vec<Outcome>,
    key: KeyReport,
    proving_seconds: f64,
    in_flight: plimsoll::Profile,
}

/// What is told about the key.
struct KeyReport {
    digest: String,
    known: bool,
    seconds: f64,
    resident: Bytes,
    streamed: Option<Streamed>,
    checked_with: Option<PathBuf>,
}

/// What is told about a key that stays in its file.
struct Streamed {
    bytes: Bytes,
    piece: usize,
}

impl Streamed {
    fn of(key: &Key) -> Option<Self> {
        match key {
            Key::Whole(_) => None,
            Key::File { key, piece } => Some(Self { bytes: Bytes(key.streamed_bytes()), piece: *piece }),
        }
    }
}

struct Work<'a> {
    args: &'a Prove,
    sources: &'a Sources,
    sym: Option<&'a Path>,
    budget: &'a Budget,
    chosen: &'a Chosen,
    ledger: &'a Ledger,
    socket: Option<&'a Socket>,
    interrupt: &'a Interrupt,
}

/// Why the run ended before all witnesses were looked at.
enum Ended {
    Rejected(PipelineError),
    Failed(Failure),
}

impl From<PipelineError> for Ended {
    fn from(rejection: PipelineError) -> Self {
        Self::Rejected(rejection)
    }
}

impl Work<'_> {
    fn run(&self, witnesses: &[WitnessFile], trace: Option<&Trace>, record: Option<&Record>) -> Result<Done, Failure> {
        let internal = |e: &dyn std::fmt::Display| Failure::new(Exit::Internal, e);
        let pool = Pool::new(PoolConfig { threads: self.budget.threads, ..PoolConfig::default() })
            .map_err(|e| internal(&e))?;
        let known = KnownKeys::of_user();
        let loading = Loading {
            budget: self.budget,
            ledger: self.ledger,
            pool: &pool,
            backend: &*self.chosen.backend,
            cards: &self.chosen.cards,
            known: known.as_ref(),
            interrupt: self.interrupt,
        };
        let loaded = loading.load(self.sources)?;
        let period = Duration::from_millis(u64::from(self.args.sample_ms));
        let watched = Watched {
            period,
            line: self.budget.line.bytes,
            floor: loaded.smallest,
            trace,
            record,
            with_verdict: self.socket.is_some(),
            with_metrics: self.args.metrics.is_some(),
            heap_profiles: self.args.heap_profiles.as_deref(),
            with_cards: self.chosen.name != "cpu",
        };
        let watch = watched.start(self.ledger);
        if let (Some(socket), Some(watch)) = (self.socket, &watch) {
            socket.show(watch);
        }
        let prover = loaded
            .prover(self.chosen.backend.clone())
            .map_err(|e| internal(&e))?
            .with_synthesis_scratch(Bytes(crate::circom::load::WITNESS_WINDOW as u64))
            .with_stop(self.interrupt.flag());
        let batch = Batch {
            prover: &prover,
            cards: &self.chosen.cards,
            ledger: self.ledger,
            pool: &pool,
            interrupt: self.interrupt,
            waiting: loaded.waiting,
        };
        let progress = Progress::new("proving", "proofs", witnesses.len() as u64);
        let started = Instant::now();
        let mut outcomes = Vec::new();
        let run = batch.run(witnesses, |index, result| {
            let file = &witnesses[index];
            let outcome = match result {
                Ok(proved) => {
                    write_files(file, &proved).map_err(Ended::Failed)?;
                    Outcome::Proved
                }
                Err(WitnessError::Interrupted) => return Err(Ended::Failed(self.interrupt.failure())),
                // No witness is to blame, and none can be proved.
                Err(WitnessError::Key(message)) => {
                    let failure = about(self.sources.zkey_path(), message);
                    return Err(Ended::Failed(with_proofs(failure, &outcomes, witnesses)));
                }
                Err(error) => {
                    remove_older(file).map_err(Ended::Failed)?;
                    self.explain(error)
                }
            };
            if let Outcome::Failed { message, .. } = &outcome {
                progress.suspend(|| console::warn(format!("{}: {message}", file.path.display())));
            }
            outcomes.push(outcome);
            progress.set(outcomes.len() as u64);
            Ok(())
        });
        drop((progress, watch));
        let run = run.map_err(|ended| match ended {
            Ended::Failed(failure) if self.interrupt.is_set() => with_proofs(failure, &outcomes, witnesses),
            Ended::Failed(failure) => failure,
            Ended::Rejected(rejection) => internal(&rejection),
        })?;
        if self.interrupt.is_set() {
            return Err(with_proofs(self.interrupt.failure(), &outcomes, witnesses));
        }
        let key = KeyReport {
            digest: loaded.digest.to_string(),
            known: loaded.known,
            seconds: loaded.seconds,
            resident: loaded.key.resident_bytes(),
            streamed: Streamed::of(&loaded.key),
            checked_with: self.sources.r1cs_path().map(Path::to_owned),
        };
        let proving_seconds = started.elapsed().as_secs_f64();
        let in_flight = self.chosen.cards.profile(&prover.footprint(self.budget.threads));
        Ok(Done { run, outcomes, key, proving_seconds, in_flight })
    }

    /// What a person needs to mend a witness.
    fn explain(&self, error: WitnessError) -> Outcome {
        let message = match &error {
            WitnessError::Unsatisfied { constraint } => {
                let text = match self.sources.r1cs() {
                    Ok(Some(file)) => explain::constraint(&file, *constraint, self.sym),
                    _ => String::new(),
                };
                format!("{error}: constraint {constraint} does not hold: {text}")
            }
            WitnessError::Invalid { .. } => {
                format!("{error}; with --r1cs it is told which, and the constraint that a witness breaks is named")
            }
            error => error.to_string(),
        };
        let constraint = match error {
            WitnessError::Unsatisfied { constraint } => Some(constraint),
            _ => None,
        };
        let fault = match error {
            WitnessError::Work(_) | WitnessError::Unsound { .. } => Fault::Internal,
            WitnessError::Cancelled => Fault::Cancelled,
            _ => Fault::Witness,
        };
        Outcome::Failed { message, constraint, fault }
    }
}

/// A batch that ended early: what was proved before is there.
fn with_proofs(failure: Failure, outcomes: &[Outcome], witnesses: &[WitnessFile]) -> Failure {
    let proved = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Proved)).count();
    let there = format!("the proofs of {proved} of {} witnesses are written", witnesses.len());
    match failure.exit {
        _ if proved == 0 => failure,
        Exit::Interrupted(_) => Failure::new(failure.exit, format!("interrupted; {there}")),
        exit => Failure::new(exit, format!("{}; {there}", failure.message)),
    }
}

/// Writes both files. Neither is ever there half, and never one of this proof beside one of an older: the older proof goes first, the
/// new one comes last.
fn write_files(file: &WitnessFile, proved: &Proved) -> Result<(), Failure> {
    let failure = |path: &Path| {
        let shown = path.display().to_string();
        move |e: io::Error| Failure::new(Exit::Output, format!("{shown}: {e}"))
    };
    let mut public = Unfinished::create(&file.public).map_err(failure(&file.public))?;
    let mut buffered = BufWriter::with_capacity(1 << 14, &mut public);
    let written = write_public_to(&proved.public_inputs, &mut buffered).and_then(|()| buffered.flush());
    written.map_err(failure(&file.public))?;
    drop(buffered);
    let mut proof = Unfinished::create(&file.proof).map_err(failure(&file.proof))?;
    proof.write_all(write_proof(&proved.proof).as_bytes()).map_err(failure(&file.proof))?;
    remove(proof.path()).map_err(failure(&file.proof))?;
    public.publish().map_err(failure(&file.public))?;
    proof.publish().map_err(failure(&file.proof))
}

/// Removes what an earlier run has left of a witness that has no proof: it would be taken for this run's.
fn remove_older(file: &WitnessFile) -> Result<(), Failure> {
    for path in [&file.proof, &file.public] {
        // What is there and is no file was not left by a run.
        if path.is_file() {
            remove(path).map_err(|e| Failure::new(Exit::Output, format!("{}: {e}", path.display())))?;
        }
    }
    Ok(())
}

/// Removes a file, if there is one.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
