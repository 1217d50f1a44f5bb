//! `icicle-check`: checks and measures the ICICLE that is installed. `cargo xtask icicle` builds and runs it.

mod figures;
mod points;
mod stream;

use std::process::ExitCode;

use plimsoll::Bytes;
use plimsoll_groth16::backend::{CurveGroup, conformance};
use plimsoll_icicle::{Device, DeviceName, Icicle, Options};

const USAGE: &str = "\
icicle-check [--lib DIR] [--device NAME] [--memory SIZE] [--low N] [--high N] [--proofs LOG] [WHAT...]

  WHAT  conform   the conformance harness, on sizes up to 2^14
        figures   multiplications and transforms of 2^low to 2^high, beside the processor's (16 and 20)
        stream    32 proofs of 2^LOG constraints (14) under a budget of the device's memory, 1, 2 and 4 at once; and 4 threads'
                  multiplications without admission
        all of them if none is named";

struct Args {
    options: Options,
    device: Option<DeviceName>,
    memory: Option<Bytes>,
    low: u32,
    high: u32,
    proofs: u32,
    what: Vec<String>,
}

fn args() -> Result<Args, String> {
    let mut args = Args {
        options: Options::default(),
        device: None,
        memory: None,
        low: 16,
        high: 20,
        proofs: 14,
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
            "--proofs" => args.proofs = number(value()?)?,
            "conform" | "figures" | "stream" => args.what.push(word),
            _ => return Err(USAGE.to_owned()),
        }
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
    let open = |memory: Option<Bytes>| -> Result<Icicle, String> {
        let device = Device::open(args.device.as_ref(), &args.options).map_err(|error| error.to_string())?;
        println!("{}", device.describe());
        let on_the_processor = (device.name().kind() == "CPU").then_some(Bytes::GIB);
        device.alone(memory.or(on_the_processor)).map_err(|error| error.to_string())
    };
    let icicle = open(args.memory)?;
    println!("known answers: right\n");
    for what in &args.what {
        match what.as_str() {
            "conform" => {
                conformance::check(&icicle, 0..=8);
                for log_size in [10, 12, 14] {
                    conformance::check_transforms(&icicle, log_size);
                }
                conformance::check_msm(&icicle, CurveGroup::G1, 1 << 14);
                conformance::check_msm(&icicle, CurveGroup::G2, 1 << 12);
                println!("conformance: transforms to 2^14, multiplications to 2^14 (G1) and 2^12 (G2), all right\n");
            }
            "figures" => figures::print(&icicle, args.low..=args.high)?,
            _ => stream::print(&icicle, args.proofs)?,
        }
    }
    println!("learned: {:?}", icicle.learned());
    println!("books: {:?}", icicle.reconcile());
    Ok(())
}
