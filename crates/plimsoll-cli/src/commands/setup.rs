//! `plimsoll setup`: keys are checked, imported, converted.

use std::io::{self, BufWriter, Cursor, Write};
use std::path::Path;
use std::thread;
use std::time::Instant;

use blstrs::Scalar;
use ff::Field;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll::{Ledger, Space};
use plimsoll_circom::container::Kind;
use plimsoll_circom::json::VerificationKey;
use plimsoll_circom::map::MappedFile;
use plimsoll_circom::ptau::insecure::write_powers;
use plimsoll_circom::zkey::ZkeyFile;
use plimsoll_groth16::backend::Cpu;
use plimsoll_groth16::keys::{Checked, KeyHeader, ProvingKey, VerifyingKey};
use rand_core::OsRng;
use serde_json::{Value, json};

use crate::args::{Convert, SetupCommand, SetupKeys};
use crate::budget::Budget;
use crate::cards::Cards;
use crate::circom::known::KnownKeys;
use crate::circom::load::{Key, Loading, Sources, about, open};
use crate::console::{self, GOOD, Rows, WARNING};
use crate::exit::{Exit, Failure};
use crate::inspect::JSON_BYTES_MAX;
use crate::key_cache::Trailer;
use crate::machine::Machine;
use crate::proof_file::Unfinished;
use crate::signals::Interrupt;

use super::prove::place_of;

/// Runs it.
pub fn run(args: &SetupKeys) -> Result<(), Failure> {
    match &args.command {
        SetupCommand::Check { key, r1cs, json } => check(key, r1cs.as_deref(), *json),
        SetupCommand::Import { key, r1cs, json } => import(key, r1cs.as_deref(), *json),
        SetupCommand::Powers { power, output, json } => powers(*power, output, *json),
        SetupCommand::Convert { key, to, output, json } => convert(key, *to, output, *json),
    }
}

/// What is told of a key.
struct Told {
    /// What was found, in a word or two.
    verdict: &'static str,
    facts: Vec<(&'static str, &'static str, String)>,
}

impl Told {
    fn print(self, command: &str, key: &Path, seconds: f64, as_json: bool) -> Result<(), Failure> {
        if as_json {
            let mut report = json!({
                "command": "setup", "ok": true, "task": command, "key": key.display().to_string(), "seconds": seconds,
            });
            for (name, _, value) in self.facts {
                report[name] = Value::String(value);
            }
            return console::print(report);
        }
        let mut rows = Rows::default();
        let Self { verdict, facts } = self;
        rows.add("key", format!("{}, {GOOD}{verdict}{GOOD:#}, {seconds:.2} s", key.display()));
        for (_, label, value) in facts {
            rows.add(label, value);
        }
        console::print(rows)
    }
}

/// Every point and the equations, whether or not the key is known; with constraints, whether it is for them.
fn check(key: &Path, r1cs: Option<&Path>, as_json: bool) -> Result<(), Failure> {
    let started = Instant::now();
    let map = open(key)?;
    let mut facts = Vec::new();
    if Kind::of(&map) == Some(Kind::Zkey) {
        let loaded = with_loading(None, |loading| {
            let loaded = loading.load_whole(&Sources::open(key, r1cs, loading.interrupt)?)?;
            let Key::Whole(whole) = &loaded.key else {
                return Err(Failure::new(Exit::Internal, "a key that was to be in memory is not"));
            };
            loading.pool.install(|| whole.check_equations(&mut OsRng)).map_err(|e| about(key, e))?;
            Ok((loaded.digest, loaded.shape.constraints()))
        })?;
        facts.push(("digest", "digest", loaded.0.to_string()));
        facts.push(("constraints", "constraints", loaded.1.to_string()));
    } else {
        if r1cs.is_some() {
            let text = format!("{}: only a zkey can be compared with an r1cs file", key.display());
            return Err(Failure::new(Exit::Usage, text));
        }
        check_parameters(key, &map)?;
        facts.push(("format", "format", "parameters of bellperson's".to_owned()));
    }
    facts.push(("points", "points", "all on the curve and in the subgroup".to_owned()));
    facts.push(("equations", "equations", "beta, delta and B are the same in both groups".to_owned()));
    if let Some(r1cs) = r1cs {
        facts.push(("r1cs", "circuit", format!("{}: the same A and B", r1cs.display())));
    }
    Told { verdict: "sound", facts }.print("check", key, started.elapsed().as_secs_f64(), as_json)
}

fn check_parameters(path: &Path, map: &MappedFile) -> Result<(), Failure> {
    let payload = payload(map);
    let budget = budget()?;
    let header = KeyHeader::scan(&mut Cursor::new(payload)).map_err(|e| about(path, e))?;
    budget
        .require(plimsoll::Bytes(header.resident_bytes() + KeyHeader::READ_SCRATCH_BYTES), "this key")
        .map_err(|e| Failure::new(Exit::OutOfBudget, e))?;
    pool(&budget)?.install(|| {
        let key = ProvingKey::read(Cursor::new(payload), &header, Checked::Yes).map_err(|e| about(path, e))?;
        key.check_equations(&mut OsRng).map_err(|e| about(path, e))
    })
}

/// Checks a zkey's points once, and remembers it by its digest.
fn import(key: &Path, r1cs: Option<&Path>, as_json: bool) -> Result<(), Failure> {
    let started = Instant::now();
    if Kind::of(&open(key)?) != Some(Kind::Zkey) {
        let text = "only a zkey can be imported: other keys belong to circuits that a program defines";
        return Err(about(key, text));
    }
    let Some(known) = KnownKeys::of_user() else {
        let text = "there is no home directory to remember it in; set XDG_CACHE_HOME";
        return Err(Failure::new(Exit::Output, text));
    };
    let (digest, before) = with_loading(Some(&known), |loading| {
        let loaded = loading.load(&Sources::open(key, r1cs, loading.interrupt)?)?;
        Ok((loaded.digest, loaded.known))
    })?;
    if !known.contains(digest) {
        return Err(Failure::new(Exit::Output, "the key's points are sound, but that cannot be remembered"));
    }
    let when = if before { "had been checked before" } else { "checked now; proving need not check them again" };
    let facts = vec![
        ("digest", "digest", digest.to_string()),
        ("points", "points", when.to_owned()),
        ("equations", "equations", "not looked at; `plimsoll setup check` does".to_owned()),
    ];
    Told { verdict: "remembered", facts }.print("import", key, started.elapsed().as_secs_f64(), as_json)
}

/// Powers of tau from secrets of this process.
fn powers(power: u32, output: &Path, as_json: bool) -> Result<(), Failure> {
    let started = Instant::now();
    console::note(
        WARNING,
        "INSECURE",
        "making powers of tau for development; with what this process knows now, proofs can be forged",
    );
    let written = Unfinished::create(output).and_then(|file| {
        let mut file = BufWriter::with_capacity(1 << 16, file);
        pool(&budget().map_err(io_error)?)
            .map_err(io_error)?
            .install(|| write_powers(power, || Scalar::random(OsRng), &mut file))?;
        file.into_inner().map_err(io::IntoInnerError::into_error)?.publish()
    });
    written.map_err(|e| Failure::new(Exit::Output, format!("{}: {e}", output.display())))?;
    let facts = vec![("constraints", "constraints", format!("up to {}", 1_u64 << power))];
    Told { verdict: "written", facts }.print("powers", output, started.elapsed().as_secs_f64(), as_json)
}

fn io_error(failure: Failure) -> io::Error {
    io::Error::other(failure.message)
}

fn convert(key: &Path, to: Convert, output: &Path, as_json: bool) -> Result<(), Failure> {
    let started = Instant::now();
    if place_of(key) == place_of(output) {
        return Err(Failure::new(
            Exit::Usage,
            format!("{}: would be overwritten by its own conversion", key.display()),
        ));
    }
    let map = open(key)?;
    let bytes = match to {
        Convert::VerificationKey => match verifying_key(key, &map)? {
            Read::Whole(vk) => VerificationKey::from(&vk).write().into_bytes(),
            Read::Verifier(vk) => vk.write().into_bytes(),
        },
        Convert::BellpersonVk => match verifying_key(key, &map)? {
            Read::Whole(vk) => {
                let mut bytes = Vec::new();
                vk.write(&mut bytes).map_err(|e| about(key, e))?;
                bytes
            }
            Read::Verifier(_) => {
                let text = "a verification_key.json lacks beta and delta in G1, which bellperson's format has; convert the zkey";
                return Err(about(key, text));
            }
        },
    };
    let written = Unfinished::create(output).and_then(|mut file| {
        file.write_all(&bytes)?;
        file.publish()
    });
    written.map_err(|e| Failure::new(Exit::Output, format!("{}: {e}", output.display())))?;
    let facts = vec![("output", "written", output.display().to_string())];
    Told { verdict: "converted", facts }.print("convert", key, started.elapsed().as_secs_f64(), as_json)
}

/// A verifying key, with what only a prover needs of it or without.
enum Read {
    Whole(VerifyingKey),
    Verifier(VerificationKey),
}

fn verifying_key(path: &Path, map: &MappedFile) -> Result<Read, Failure> {
    if Kind::of(map) == Some(Kind::Zkey) {
        let zkey = ZkeyFile::parse_in(map, map).map_err(|e| about(path, e))?;
        return zkey.read_verifying_key(map).map(Read::Whole).map_err(|e| about(path, e));
    }
    if map.first() == Some(&b'{') {
        if map.len() as u64 > JSON_BYTES_MAX {
            let most = plimsoll::Bytes(JSON_BYTES_MAX);
            return Err(about(
                path,
                format!("it is longer than any verification_key.json that is known here ({most})"),
            ));
        }
        return VerificationKey::read(map).map(Read::Verifier).map_err(|e| about(path, e));
    }
    let payload = payload(map);
    // A proving key begins with its verifying key.
    let length = match KeyHeader::scan(&mut Cursor::new(payload)) {
        Ok(header) => {
            let empty = KeyHeader { h: 0, l: 0, a: 0, b_g1: 0, b_g2: 0, ..header };
            usize::try_from(empty.file_bytes()).unwrap_or(usize::MAX) - 5 * size_of::<u32>()
        }
        Err(_) => payload.len(),
    };
    let key = VerifyingKey::read(Cursor::new(&payload[..length.min(payload.len())]));
    key.map(Read::Whole).map_err(|e| about(path, e))
}

/// The file without the trailer of a cached key.
fn payload(map: &MappedFile) -> &[u8] {
    Trailer::of(map).map_or(&map[..], |trailer| &map[..trailer.payload_bytes])
}

fn budget() -> Result<Budget, Failure> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    Budget::choose(None, &Machine::new(), threads).map_err(|e| Failure::new(Exit::OutOfBudget, e))
}

fn pool(budget: &Budget) -> Result<Pool, Failure> {
    Pool::new(PoolConfig { threads: budget.threads, ..PoolConfig::default() })
        .map_err(|e| Failure::new(Exit::Internal, e))
}

/// Whatever loading needs, within the machine's own limit.
fn with_loading<T>(
    known: Option<&KnownKeys>,
    work: impl FnOnce(&Loading<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let interrupt = Interrupt::install().map_err(|e| Failure::new(Exit::Internal, format!("signals: {e}")))?;
    let budget = budget()?;
    let pool = pool(&budget)?;
    let ledger = Ledger::new(plimsoll::Budget::new().space(Space::HOST, budget.ledger));
    let backend = Cpu::new();
    work(&Loading {
        budget: &budget,
        ledger: &ledger,
        pool: &pool,
        backend: &backend,
        cards: &Cards::default(),
        known,
        interrupt: &interrupt,
    })
}
