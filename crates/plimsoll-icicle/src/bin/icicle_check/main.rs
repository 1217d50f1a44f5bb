//! `icicle-check`: checks and measures the ICICLE that is installed. `cargo xtask icicle` builds and runs it.

#[cfg(feature = "beside-cuda")]
mod cuda;
mod figures;
mod free;
mod points;
mod stream;

use std::path::PathBuf;
use std::process::ExitCode;

use plimsoll::Bytes;
use plimsoll_groth16::backend::{CurveGroup, conformance};
use plimsoll_icicle::{Device, DeviceName, Icicle, Options};

use crate::figures::What;

const USAGE: &str = "\
icicle-check [--lib DIR] [--device NAME] [--memory SIZE] [--low N] [--high N] [--g2-part N] [--seconds S] [--proofs LOG]
             [--write FILE] [WHAT...]

  WHAT  conform   the conformance harness, on sizes up to 2^14
        figures   multiplications and transforms of 2^low to 2^high, beside the processor's and compared (16 and 20), in G2 of a part of
                  that (a quarter, --g2-part 4; with 1 the same sizes as in G1); each is made up to five times, and not again after so many seconds (60); `msm` and `ntt` are one half of them each; beside this project's own
                  CUDA backend as well where the program was built with it (`cargo xtask icicle --cuda`)
        stream    32 proofs of 2^LOG constraints (10) under a budget of the device's memory, 1, 2 and 4 at once; --write puts them
                  into a file, for another verifier (`cargo run -p plimsoll-peers --bin verify_proofs FILE`)
        free      4 threads' multiplications of 2^LOG without admission: they may run out of memory, and end the process
        the first three if none is named";

pub(crate) struct Args {
    options: Options,
    device: Option<DeviceName>,
    pub(crate) memory: Option<Bytes>,
    low: u32,
    high: u32,
    g2_part: u32,
    seconds: u32,
    pub(crate) proofs: u32,
    pub(crate) write: Option<PathBuf>,
    what: Vec<String>,
}

/// A device under a ledger, and what it says of its memory.
pub(crate) struct Opened {
    pub(crate) icicle: Icicle,
    memory: Option<(Bytes, Bytes)>,
    described: String,
}

impl Opened {
    /// Whether it says how much memory it has.
    pub(crate) fn told(&self) -> bool {
        self.memory.is_some()
    }
}

impl Args {
    /// Opens the device with so much of its memory; otherwise with most of what it has free, or a gibibyte where it does not tell.
    pub(crate) fn open(&self, memory: Option<Bytes>) -> Result<Opened, String> {
        let device = Device::open(self.device.as_ref(), &self.options).map_err(|error| error.to_string())?;
        let (told, described) = (device.memory(), device.describe());
        let otherwise = told.is_none().then_some(Bytes::GIB);
        let icicle = device.alone(memory.or(otherwise)).map_err(|error| error.to_string())?;
        Ok(Opened { icicle, memory: told, described })
    }
}

fn args() -> Result<Args, String> {
    let mut args = Args {
        options: Options::default(),
        device: None,
        memory: None,
        low: 16,
        high: 20,
        g2_part: 4,
        seconds: 60,
        proofs: 10,
        write: None,
        what: Vec::new(),
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        let number = |text: String| text.parse::<u32>().map_err(|_| format!("{text} is no number"));
        match word.as_str() {
            "--lib" => args.options.folder = Some(value()?.into()),
            "--device" => args.device = Some(value()?.parse().map_err(|error| format!("{error}"))?),
            "--memory" => args.memory = Some(value()?.parse().map_err(|error| format!("{error}"))?),
            "--low" => args.low = number(value()?)?,
            "--high" => args.high = number(value()?)?,
            "--g2-part" => args.g2_part = number(value()?)?,
            "--seconds" => args.seconds = number(value()?)?,
            "--proofs" => args.proofs = number(value()?)?,
            "--write" => args.write = Some(value()?.into()),
            "conform" | "figures" | "msm" | "ntt" | "stream" | "free" => args.what.push(word),
            _ => return Err(USAGE.to_owned()),
        }
    }
    if args.low > args.high || args.high > 26 || !(3..=22).contains(&args.proofs) {
        return Err(format!("sizes go up to 2^26, and proofs from 2^3 to 2^22\n\n{USAGE}"));
    }
    if !args.g2_part.is_power_of_two() || args.g2_part > 1 << args.low {
        return Err(format!("a part is a power of two, and at most as many as there are terms\n\n{USAGE}"));
    }
    if args.what.is_empty() {
        args.what = ["conform", "figures", "stream"].map(str::to_owned).to_vec();
    }
    Ok(args)
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let args = args()?;
    println!("{}\nknown answers: right\n", args.open(args.memory)?.described);
    for what in &args.what {
        match what.as_str() {
            "conform" => conform(&args.open(args.memory)?.icicle),
            "figures" | "msm" | "ntt" => {
                let (msm, ntt, g2_part) = (what != "ntt", what != "msm", args.g2_part as usize);
                let (seconds, what) = (f64::from(args.seconds), What { msm, ntt, g2_part });
                figures::print(&args.open(args.memory)?.icicle, what, args.low..=args.high, seconds)?;
            }
            "free" => free::print(&args)?,
            _ => stream::print(&args)?,
        }
    }
    Ok(())
}

fn conform(icicle: &Icicle) {
    conformance::check(icicle, 0..=8);
    for log_size in [10, 12, 14] {
        conformance::check_transforms(icicle, log_size);
    }
    conformance::check_msm(icicle, CurveGroup::G1, 1 << 14);
    conformance::check_msm(icicle, CurveGroup::G2, 1 << 12);
    println!("conformance: transforms to 2^14, multiplications to 2^14 (G1) and 2^12 (G2), all right");
    println!("learned: {:?}", icicle.learned());
    println!("books: {:?}\n", icicle.reconcile());
}
