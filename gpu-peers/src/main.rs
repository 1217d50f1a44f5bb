//! Times bellperson's proofs of the circuits that `gpu-check full` proves, with the same key: `peer-… KEY LOG KIND [ROUNDS]`.
//!
//! A proof's time is what bellperson logs as `prover time`: from the vectors that synthesis has left in host memory to the
//! proof. `peer-cuda --verify DIR` has bellperson verify what `gpu-check proofs LOW HIGH DIR` has left there. There are two programs because the two ways to use a GPU are features of bellperson that exclude each other.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use bellperson::groth16::*;
use blstrs::{Bls12, Scalar};
use ff::{Field, PrimeField};

#[path = "../../crates/plimsoll-cuda/src/bin/gpu_check/circuits.rs"]
mod circuits;
use circuits::{Chain, Kind};

type Failed = Box<dyn std::error::Error>;

/// What bellperson has logged of a proof's time.
static LOGGED: Mutex<Option<String>> = Mutex::new(None);

struct Listener;

impl log::Log for Listener {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Info
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = record.args().to_string();
        if record.level() <= log::Level::Warn {
            eprintln!("{line}");
        }
        if let Some(time) = line.strip_prefix("prover time: ") {
            *LOGGED.lock().expect("nobody panics with it") = Some(time.to_owned());
        }
    }

    fn flush(&self) {}
}

/// A `Duration` as `{:?}` writes it.
fn seconds(text: &str) -> Result<f64, Failed> {
    let units = [("ms", 1e-3), ("µs", 1e-6), ("s", 1.0)];
    let (unit, scale) = units.into_iter().find(|(unit, _)| text.ends_with(unit)).ok_or("a time has a unit")?;
    Ok(text.trim_end_matches(unit).parse::<f64>()? * scale)
}

#[cfg(feature = "cuda")]
fn parameters(path: PathBuf) -> Result<Parameters<Bls12>, Failed> {
    Ok(Parameters::read(std::io::BufReader::with_capacity(1 << 22, File::open(path)?), false)?)
}

#[cfg(feature = "supraseal")]
fn parameters(path: PathBuf) -> Result<SuprasealParameters<Bls12>, Failed> {
    // It takes a name; this says first whether there is such a file.
    File::open(&path)?;
    Ok(SuprasealParameters::new(path)?)
}

/// Every proof in a folder.
fn verify(folder: &Path) -> Result<(), Failed> {
    let mut count = 0;
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "proof") {
            continue;
        }
        let key = VerifyingKey::<Bls12>::read(File::open(path.with_extension("vk"))?)?;
        let proof = Proof::<Bls12>::read(File::open(&path)?)?;
        let inputs = std::fs::read(path.with_extension("inputs"))?;
        let inputs: Vec<Scalar> = inputs
            .chunks_exact(32)
            .map(|bytes| Ok(Option::from(Scalar::from_repr(bytes.try_into()?)).ok_or("an input is no scalar")?))
            .collect::<Result<_, Failed>>()?;
        let key = prepare_verifying_key(&key);
        if !verify_proof(&key, &proof, &inputs)? {
            return Err(format!("{}: bellperson does not accept it", path.display()).into());
        }
        let mut others = inputs;
        others[0] += Scalar::ONE;
        if verify_proof(&key, &proof, &others)? {
            return Err(format!("{}: bellperson accepts it for other inputs", path.display()).into());
        }
        count += 1;
    }
    println!("bellperson accepts {count} proofs, and none of them for other inputs");
    if count == 0 { Err("there are no proofs".into()) } else { Ok(()) }
}

fn main() -> Result<(), Failed> {
    log::set_logger(&Listener).map_err(|error| error.to_string())?;
    log::set_max_level(log::LevelFilter::Info);
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [option, folder] = &args[..]
        && option == "--verify"
    {
        return verify(folder.as_ref());
    }
    let [key, log, name, rest @ ..] = &args[..] else { return Err("usage: KEY LOG dense|boolean|sha256 [ROUNDS]".into()) };
    let kind = match name.as_str() {
        "dense" => Kind::Dense,
        "boolean" => Kind::Boolean,
        "sha256" => Kind::Sha256,
        other => return Err(format!("no kind of circuit: {other}").into()),
    };
    let log = log.parse()?;
    let rounds = rest.first().map_or(Ok(5), |rounds| rounds.parse::<usize>())?;
    let parameters = parameters(key.into())?;
    let mut times = Vec::new();
    let mut proof = Vec::new();
    let mut wall = 0.0;
    for _ in 0..=rounds {
        let (circuit, r, s) = (Chain::new(log, kind), Scalar::from(1234), Scalar::from(5678));
        let started = Instant::now();
        let proofs = create_proof_batch_in_priority(vec![circuit], &parameters, vec![r], vec![s])?;
        wall = started.elapsed().as_secs_f64();
        proof.clear();
        proofs[0].write(&mut proof)?;
        let time = LOGGED.lock().expect("nobody panics with it").take().ok_or("bellperson logs no time any more")?;
        times.push(seconds(&time)?);
    }
    let first = times.remove(0);
    times.sort_by(f64::total_cmp);
    let (least, most) = (times[0], times[times.len() - 1]);
    println!(
        "{} 2^{log} {name}: vectors to proof {:.1} ms median of {rounds} (min {:.1}, max {:.1}, the first {:.1}), with synthesis \
         {:.0} ms; proof {}",
        env!("CARGO_PKG_NAME"),
        times[times.len() / 2] * 1e3,
        least * 1e3,
        most * 1e3,
        first * 1e3,
        wall * 1e3,
        proof.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
    );
    Ok(())
}
