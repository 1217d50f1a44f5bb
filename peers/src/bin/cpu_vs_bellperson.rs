//! Proves the same circuits with the same keys here and with bellperson, and prints a table of times and peaks.
//!
//! `cargo run --release -p plimsoll-peers --bin cpu_vs_bellperson [-- ROUNDS [FILTER]]`
//!
//! Each measurement is a process of its own, so that peaks are its own; the two provers take turns. Both use jemalloc, which gives
//! freed pages back at once as in the command ([`MALLOC_CONF`]): otherwise what was freed and is kept for later counts in the
//! peaks. What is resident of the program itself is left out. Both have as many threads as `THREADS` says (2 if unset). The time is from the circuits to the proofs, synthesis included and the reading
//! of the key not; the first proof of a process pays for its page faults and tables, as it does for users.

use std::env;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Instant;

use bellperson::groth16::{Parameters, create_random_proof_batch};
use blstrs::{Bls12, Scalar};
use plimsoll::Ledger;
use plimsoll::pool::{Pool, PoolConfig};
use plimsoll_groth16::bellperson::{self as ours, Engine, Parameters as OurParameters};
use plimsoll_groth16::keys::{Checked, ProvingKey};
use plimsoll_groth16::r1cs::R1cs;
use plimsoll_groth16::setup;
use plimsoll_groth16::{PreparedVerifyingKey, Proof, verify_batch};
use plimsoll_peers::circuits::{Sha256Preimage, Squarings, TestCircuit};
use rand_core::OsRng;

#[global_allocator]
static ALLOCATOR: jemallocator::Jemalloc = jemallocator::Jemalloc;

/// jemalloc's settings in both children.
const MALLOC_CONF: &str = "dirty_decay_ms:0,muzzy_decay_ms:0,narenas:2";

type Failure = Box<dyn std::error::Error>;

/// What is proved.
struct Case {
    name: &'static str,
    title: &'static str,
    kind: Kind,
    proofs: usize,
}

enum Kind {
    /// A chain of squarings with so many steps.
    Dense(usize),
    /// SHA-256 of so many bytes.
    Sha256(usize),
}

const fn case(name: &'static str, title: &'static str, kind: Kind, proofs: usize) -> Case {
    Case { name, title, kind, proofs }
}

const CASES: [Case; 13] = [
    case("dense14", "dense, 2^14", Kind::Dense(16_000), 1),
    case("dense16", "dense, 2^16", Kind::Dense(65_000), 1),
    case("dense18", "dense, 2^18", Kind::Dense(261_000), 1),
    case("dense20", "dense, 2^20", Kind::Dense(1_045_000), 1),
    case("sha15", "SHA-256 of 1 block, 2^15", Kind::Sha256(64 - 9), 1),
    case("sha16", "SHA-256 of 2 blocks, 2^16", Kind::Sha256(2 * 64 - 9), 1),
    case("sha18", "SHA-256 of 9 blocks, 2^18", Kind::Sha256(9 * 64 - 9), 1),
    case("sha20", "SHA-256 of 38 blocks, 2^20", Kind::Sha256(38 * 64 - 9), 1),
    case("dense14x16", "dense, 16 of 2^14", Kind::Dense(16_000), 16),
    case("dense16x16", "dense, 16 of 2^16", Kind::Dense(65_000), 16),
    case("sha15x16", "SHA-256, 16 of 2^15", Kind::Sha256(64 - 9), 16),
    case("sha16x16", "SHA-256, 16 of 2^16", Kind::Sha256(2 * 64 - 9), 16),
    case("sha18x16", "SHA-256, 16 of 2^18", Kind::Sha256(9 * 64 - 9), 16),
];

/// Done with a case's circuit, whatever its type.
trait Task {
    type Output;
    fn run<C: TestCircuit + Sync + 'static>(self, circuit: impl Fn(u64) -> C) -> Result<Self::Output, Failure>;
}

impl Case {
    fn with<T: Task>(&self, task: T) -> Result<T::Output, Failure> {
        match self.kind {
            Kind::Dense(steps) => task.run(|seed| Squarings { start: Some(Scalar::from(seed + 2)), steps }),
            Kind::Sha256(len) => task.run(|seed| Sha256Preimage { bytes: Some(vec![seed as u8; len]), len }),
        }
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match &arguments[..] {
        [child, who, case, key] if child == "child" => measure_here(who, case, Path::new(key)),
        [] => compare(3, ""),
        [rounds] => rounds.parse().map_err(Failure::from).and_then(|rounds| compare(rounds, "")),
        [rounds, filter, ..] => rounds.parse().map_err(Failure::from).and_then(|rounds| compare(rounds, filter)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn threads() -> usize {
    env::var("THREADS").ok().and_then(|threads| threads.parse().ok()).unwrap_or(2)
}

fn new_pool() -> Result<Pool, Failure> {
    Ok(Pool::new(PoolConfig { threads: threads(), ..PoolConfig::default() })?)
}

/// Makes the keys, runs the children in turn, prints the table.
fn compare(rounds: usize, filter: &str) -> Result<(), Failure> {
    let folder = PathBuf::from(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into())).join("peer-keys");
    fs::create_dir_all(&folder)?;
    println!(
        "| circuit | constraints | seconds: plimsoll | bellperson | ratio | processor seconds: plimsoll | bellperson | ratio \
         | peak less key, MiB: plimsoll | bellperson | ratio | key, MiB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
    for case in CASES.iter().filter(|case| case.name.contains(filter)) {
        let key = folder.join(case.name.trim_end_matches("x16"));
        let constraints = case.with(MakeKey(&key))?;
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            ours.push(measure_in_child("plimsoll", case, &key)?);
            theirs.push(measure_in_child("bellperson", case, &key)?);
        }
        let (ours, theirs) = (Measurement::median(&ours), Measurement::median(&theirs));
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        println!(
            "| {} | {constraints} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} | {:.0} |",
            case.title,
            ours.seconds,
            theirs.seconds,
            theirs.seconds / ours.seconds,
            ours.cpu_seconds,
            theirs.cpu_seconds,
            theirs.cpu_seconds / ours.cpu_seconds,
            mib(ours.beyond_key_bytes),
            mib(theirs.beyond_key_bytes),
            ours.beyond_key_bytes / theirs.beyond_key_bytes,
            mib(ours.key_bytes),
        );
    }
    println!("\n{rounds} rounds in turn, medians; {} threads; both with jemalloc, {MALLOC_CONF}.", threads());
    Ok(())
}

/// Writes a development key for the circuit, unless there is one, and says how many constraints it has.
struct MakeKey<'a>(&'a Path);

impl Task for MakeKey<'_> {
    type Output = usize;

    fn run<C: TestCircuit + Sync + 'static>(self, circuit: impl Fn(u64) -> C) -> Result<usize, Failure> {
        let r1cs = R1cs::from_circuit(circuit(0))?;
        if !self.0.exists() {
            let key = new_pool()?.install(|| setup::generate(&r1cs, &mut OsRng, &|_| ControlFlow::Continue(())))?;
            let unfinished = self.0.with_extension("part");
            let mut file = BufWriter::new(File::create(&unfinished)?);
            key.write(&mut file)?;
            file.flush()?;
            fs::rename(unfinished, self.0)?;
        }
        Ok(r1cs.constraints())
    }
}

#[derive(Clone, Copy)]
struct Measurement {
    seconds: f64,
    /// On all threads together: what a busy machine changes least.
    cpu_seconds: f64,
    beyond_key_bytes: f64,
    key_bytes: f64,
}

impl Measurement {
    fn median(all: &[Self]) -> Self {
        let median = |field: fn(&Self) -> f64| {
            let mut values: Vec<f64> = all.iter().map(field).collect();
            values.sort_by(f64::total_cmp);
            values[values.len() / 2]
        };
        Self {
            seconds: median(|m| m.seconds),
            cpu_seconds: median(|m| m.cpu_seconds),
            beyond_key_bytes: median(|m| m.beyond_key_bytes),
            key_bytes: median(|m| m.key_bytes),
        }
    }
}

fn measure_in_child(who: &str, case: &Case, key: &Path) -> Result<Measurement, Failure> {
    let threads = threads().to_string();
    let output = Command::new(env::current_exe()?)
        .args(["child", who, case.name])
        .arg(key)
        .env("_RJEM_MALLOC_CONF", MALLOC_CONF)
        .envs([("RAYON_NUM_THREADS", &threads), ("EC_GPU_NUM_THREADS", &threads), ("THREADS", &threads)])
        .stderr(std::process::Stdio::inherit())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let numbers: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    match numbers[..] {
        [seconds, cpu_seconds, peak, key_bytes] if output.status.success() => {
            eprintln!(
                "{who}, {}: {seconds:.2} s, {cpu_seconds:.2} s of processor, peak {:.0} MiB",
                case.name,
                peak / f64::from(1 << 20)
            );
            Ok(Measurement { seconds, cpu_seconds, beyond_key_bytes: peak - key_bytes, key_bytes })
        }
        _ => Err(format!("{who}, {}: the child failed", case.name).into()),
    }
}

/// The child: proves, checks, and prints seconds, the process's peak and the key's bytes.
fn measure_here(who: &str, case: &str, key: &Path) -> Result<(), Failure> {
    let case = CASES.iter().find(|known| known.name == case).ok_or("no such case")?;
    let proofs = case.proofs;
    let (seconds, cpu_seconds, peak, key_bytes) = match who {
        "plimsoll" => case.with(Ours { key, proofs })?,
        _ => case.with(Theirs { key, proofs })?,
    };
    println!("{seconds} {cpu_seconds} {peak} {key_bytes}");
    Ok(())
}

struct Ours<'a> {
    key: &'a Path,
    proofs: usize,
}

impl Task for Ours<'_> {
    type Output = (f64, f64, u64, u64);

    fn run<C: TestCircuit + Sync + 'static>(self, circuit: impl Fn(u64) -> C) -> Result<Self::Output, Failure> {
        let pool = new_pool()?;
        let key = pool.install({
            let file = File::open(self.key)?;
            || ProvingKey::scan_and_read(file, Checked::No)
        })?;
        let key_bytes = key.resident_bytes();
        let engine = Engine::new(Ledger::unlimited(), pool);
        let params = OurParameters::new(&engine, Arc::new(key))?.with_circuit(circuit(0))?;
        let circuits: Vec<C> = (0..self.proofs as u64).map(circuit).collect();
        let inputs: Vec<_> = circuits.iter().map(TestCircuit::public_inputs).collect();

        let (start, cpu_start) = (Instant::now(), cpu_seconds()?);
        let proofs = ours::create_random_proof_batch(circuits, &params, &mut OsRng)?;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds()? - cpu_start);
        let peak = peak_bytes()?;

        verify_batch(&PreparedVerifyingKey::new(params.vk()), &proofs, &inputs, &mut OsRng)?;
        Ok((seconds, cpu, peak, key_bytes))
    }
}

struct Theirs<'a> {
    key: &'a Path,
    proofs: usize,
}

impl Task for Theirs<'_> {
    type Output = (f64, f64, u64, u64);

    fn run<C: TestCircuit + Sync + 'static>(self, circuit: impl Fn(u64) -> C) -> Result<Self::Output, Failure> {
        let key = Parameters::<Bls12>::read(BufReader::with_capacity(1 << 20, File::open(self.key)?), false)?;
        let key_bytes = fs::metadata(self.key)?.len();
        let circuits: Vec<C> = (0..self.proofs as u64).map(circuit).collect();
        let inputs: Vec<_> = circuits.iter().map(TestCircuit::public_inputs).collect();

        let (start, cpu_start) = (Instant::now(), cpu_seconds()?);
        let proofs = create_random_proof_batch(circuits, &key, &mut OsRng)?;
        let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds()? - cpu_start);
        let peak = peak_bytes()?;

        let pvk = bellperson::groth16::prepare_verifying_key(&key.vk);
        for (proof, inputs) in proofs.iter().zip(&inputs) {
            let mut bytes = Vec::new();
            proof.write(&mut bytes)?;
            Proof::from_bytes(&bytes)?;
            if !bellperson::groth16::verify_proof(&pvk, proof, inputs)? {
                return Err("bellperson rejects its own proof".into());
            }
        }
        Ok((seconds, cpu, peak, key_bytes))
    }
}

/// The processor time of all threads, user and system, in the hundredths of a second that Linux reports.
fn cpu_seconds() -> Result<f64, Failure> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The process's name, in parentheses, may hold anything; times are the 12th and 13th fields after it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks =
        |field: usize| -> Result<f64, Failure> { Ok(fields.get(field).ok_or("a short /proc/self/stat")?.parse()?) };
    Ok((ticks(11)? + ticks(12)?) / 100.0)
}

/// The most that this process ever had resident, less what is resident of its program's file: that is the same for both, and more than a
/// small proof takes.
fn peak_bytes() -> Result<u64, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let bytes = |name: &str| -> Result<u64, Failure> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("a short /proc/self/status")?;
        let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kib << 10)
    };
    Ok(bytes("VmHWM:")?.saturating_sub(bytes("RssFile:")?))
}
