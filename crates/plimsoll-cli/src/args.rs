//! The command line.

mod circom;
mod simulate;

use std::fmt;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use plimsoll::Bytes;
use plimsoll_icicle::Which;
use plimsoll_icicle::error::OpenError;

pub use self::circom::{
    Completions, Convert, Inspect, Man, ProveCircom, Setup as SetupKeys, SetupCommand, VerifySnarkjs,
};
use self::circom::{INSPECT_EXAMPLES, SETUP_EXAMPLES};
use self::simulate::{PLAN_EXAMPLES, SIMULATE_EXAMPLES};
pub use self::simulate::{Plan, Simulate};
use crate::exit::Exit;

const ABOUT: &str = "Proves files within a memory budget, and verifies the proofs.";

const LONG_ABOUT: &str = "\
Proves files within a memory budget, and verifies the proofs.

A proof says: whoever made it knows a file of this length with this SHA-256 digest. It does not show the file.";

const EXAMPLES: &str = "\
Examples:
  plimsoll prove letter.txt                     writes letter.txt.proof.json
  plimsoll prove letter.txt --memory 512MiB     the whole process stays under 512 MiB
  plimsoll verify letter.txt.proof.json
  plimsoll verify letter.txt.proof.json --file letter.txt";

const PROVE_EXAMPLES: &str = "\
Examples:
  plimsoll prove letter.txt
  plimsoll prove letter.txt --memory 512MiB --threads 4
  plimsoll prove letter.txt --backend cuda --device-memory 8GiB
  plimsoll prove letter.txt --backend icicle:CUDA:1
  plimsoll prove letter.txt --output /tmp/letter.json
  plimsoll prove letter.txt --trace letter.jsonl
  plimsoll prove letter.txt --json | jq .memory.resident_peak_bytes
  plimsoll prove --zkey c.zkey --wtns a.wtns                      writes proof.json and public.json
  plimsoll prove --zkey c.zkey --wtns witnesses/ --output proofs  writes proofs/NAME.proof.json and proofs/NAME.public.json
  plimsoll prove --zkey c.zkey --r1cs c.r1cs --wtns '*.wtns'      names the constraint that a wrong witness breaks
  find . -name '*.wtns' | plimsoll prove --zkey c.zkey --wtns -";

const DOCTOR_EXAMPLES: &str = "\
Examples:
  plimsoll doctor
  plimsoll doctor --memory 512MiB                would that be enough?
  plimsoll doctor --backend cuda                 could a card be used?
  plimsoll doctor --json | jq .proving.works";

const VERIFY_EXAMPLES: &str = "\
Examples:
  plimsoll verify letter.txt.proof.json
  plimsoll verify letter.txt.proof.json --file letter.txt
  plimsoll verify letter.txt.proof.json --key 1f3a…      only this key will do
  plimsoll verify --vkey verification_key.json --public public.json --proof proof.json";

const REPORT_EXAMPLES: &str = "\
Examples:
  plimsoll prove letter.txt --trace letter.jsonl
  plimsoll report letter.jsonl                       writes letter.html
  plimsoll report letter.jsonl --output page.html --svg pictures
  plimsoll report letter.jsonl --perfetto letter.json     for https://ui.perfetto.dev
  plimsoll report letter.jsonl --json | jq .diagnosis.verdict
  plimsoll report ring                               what a killed run held, from `prove --record ring`";

const TOP_EXAMPLES: &str = "\
Examples:
  plimsoll prove big.bin --socket /tmp/prover.sock
  plimsoll top /tmp/prover.sock          q ends it; the process goes on";

const CTL_EXAMPLES: &str = "\
Examples:
  plimsoll prove big.bin --socket /tmp/prover.sock
  plimsoll ctl /tmp/prover.sock snapshot | jq .snapshot.waiters
  plimsoll ctl /tmp/prover.sock resize host 2GiB
  plimsoll ctl /tmp/prover.sock pause            what is under way goes on; nothing new begins
  plimsoll ctl /tmp/prover.sock cancel \"partition 7\"
  plimsoll ctl /tmp/prover.sock ledger-profile held.pb.gz && go tool pprof -top held.pb.gz";

/// The command line of `plimsoll`.
#[derive(Debug, Parser)]
#[command(name = "plimsoll", version, about = ABOUT, long_about = LONG_ABOUT, after_help = footer(EXAMPLES))]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Prove that you know a file, without showing it
    #[command(after_help = footer(PROVE_EXAMPLES))]
    Prove(Prove),
    /// Check a proof
    #[command(after_help = footer(VERIFY_EXAMPLES))]
    Verify(Verify),
    /// Run a workload in virtual time: seconds a proof, memory, and whether the machine dies on the way
    #[command(after_help = footer(SIMULATE_EXAMPLES))]
    Simulate(Simulate),
    /// How much memory a workload needs, what it reaches, and what would make it faster
    #[command(after_help = footer(PLAN_EXAMPLES))]
    Plan(Plan),
    /// Show what happened in a run, from its trace
    #[command(after_help = footer(REPORT_EXAMPLES))]
    Report(Report),
    /// Watch a running process over its socket
    #[command(after_help = footer(TOP_EXAMPLES))]
    Top(Top),
    /// Steer a running process over its socket
    #[command(after_help = footer(CTL_EXAMPLES))]
    Ctl(Ctl),
    /// Show what a file is and what is in it: keys, witnesses, constraints, powers of tau, proofs
    #[command(after_help = footer(INSPECT_EXAMPLES))]
    Inspect(Inspect),
    /// Check, import and convert keys
    #[command(after_help = footer(SETUP_EXAMPLES))]
    Setup(SetupKeys),
    /// Print the completions of a shell
    Completions(Completions),
    /// Print the manual page, or write the pages of all commands to a folder
    Man(Man),
    /// Look at this machine, and say whether proving would work on it
    #[command(after_help = footer(DOCTOR_EXAMPLES))]
    Doctor(Doctor),
    /// Open devices of ICICLE's, and end: `prove` has this done first, lest it be ended itself
    #[command(hide = true)]
    IcicleProbe {
        /// The device, or all of a kind
        devices: Option<Which>,
    },
}

/// `plimsoll prove`.
#[derive(Args, Debug)]
pub struct Prove {
    /// The file to prove
    #[arg(required_unless_present = "zkey", conflicts_with = "zkey")]
    pub file: Option<PathBuf>,

    /// A circuit's key and witnesses instead of a file.
    #[command(flatten)]
    pub circom: ProveCircom,

    /// The most memory that the whole process may hold, such as 2GiB
    ///
    /// Keys, witnesses and scratch all count. By default seven eighths of the smallest of the control groups' limits and the
    /// available memory. Where memory, and not threads, is what is short,
    /// less of it means fewer partitions at once; it never makes a proof fail that was accepted.
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,

    /// Threads that compute
    ///
    /// By default as many as there are cores for this process. Each takes memory of its own.
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,

    /// What computes
    ///
    /// `auto` takes a CUDA device where the program has kernels and the machine a device, and the processor otherwise; the report
    /// says which and why. One that is named is used or refused, never replaced. `icicle:CUDA:1` takes this device of ICICLE's,
    /// `icicle:CUDA` all of this kind, `icicle` all of the first kind that it has a backend for: each operation goes to the one that
    /// has the least to do, and a device that is lost on the way leaves the rest to the others. `plimsoll doctor` says where its
    /// libraries were looked for. `cuda` makes whole proofs on all devices that the driver shows (CUDA_VISIBLE_DEVICES says which
    /// those are): the key stays there, and a device that is lost on the way gives its proofs to the others.
    #[arg(
        long,
        value_name = "auto|cpu|cuda|icicle[:DEVICE]",
        default_value_t,
        value_parser = clap::value_parser!(BackendChoice)
    )]
    pub backend: BackendChoice,

    /// How much of each device's memory to take, such as 8GiB
    ///
    /// By default seven eighths of what is free on it. The same proofs are made with less, more slowly. ICICLE's device CPU has
    /// the machine's own memory: what it is given, 512MiB by default, is a part of --memory.
    #[arg(long, value_name = "SIZE")]
    pub device_memory: Option<Bytes>,

    /// Where to write the proof
    ///
    /// By default FILE.proof.json beside the file. With --zkey it is a folder, by default the current one.
    #[arg(long, short, value_name = "PATH")]
    pub output: Option<PathBuf>,

    /// Write what happens to this file, as it happens: one JSON object a line
    ///
    /// Who holds and waits for how much memory, and which step of which partition runs. It says nothing of what is in the file
    /// to prove. A trace that cannot be written to its end is a warning, and the proof goes on.
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,

    /// Answer on this Unix socket while it runs: see `plimsoll ctl`
    ///
    /// Only this user can open it.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Write heap profiles to this folder: at each new high-water mark above half of the budget, and on alarms
    ///
    /// (The program must be built with the feature `heap-profiles` and started with _RJEM_MALLOC_CONF=prof:true.)
    #[arg(long, value_name = "FOLDER")]
    pub heap_profiles: Option<PathBuf>,

    /// Serve metrics for Prometheus on this address of this machine, such as 127.0.0.1:9400
    ///
    /// Nobody else's machine can reach it. (The program must be built with the feature `prometheus`.)
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,

    /// Keep a flight recording in this file: the last minutes, readable even if the process is killed
    ///
    /// 16 MiB that are written over and over, with a snapshot when most was held.
    #[arg(long, value_name = "PATH")]
    pub record: Option<PathBuf>,

    /// How often to look at what the process really holds, in milliseconds; 0 for never
    ///
    /// It is written to --trace and --record, and the ledger gets less where the process holds more beside it than was kept for that.
    #[arg(long, value_name = "N", default_value_t = 250)]
    pub sample_ms: u32,

    /// Where the proving key comes from
    #[arg(long, value_enum, default_value_t)]
    pub setup: Setup,

    /// Print one JSON object on standard output instead of the tables
    #[arg(long)]
    pub json: bool,
}

/// `plimsoll report`.
#[derive(Args, Debug)]
pub struct Report {
    /// What `prove --trace` wrote, or `prove --record`, or the simulator
    pub trace: PathBuf,

    /// Where to write the page
    ///
    /// By default beside the trace, with the ending .html; with --json, --svg or --perfetto only if asked for.
    #[arg(long, short, value_name = "PATH")]
    pub output: Option<PathBuf>,

    /// Write the pictures to this folder, each a file
    #[arg(long, value_name = "FOLDER")]
    pub svg: Option<PathBuf>,

    /// Write the trace for Perfetto and Chrome to this file: as JSON, or, if it ends in .pftrace, in Perfetto's own format
    #[arg(long, value_name = "PATH")]
    pub perfetto: Option<PathBuf>,

    /// Print the verdict and the timeline as one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `plimsoll top`.
#[derive(Args, Debug)]
pub struct Top {
    /// The process's socket
    pub socket: PathBuf,
}

/// `plimsoll ctl`.
#[derive(Args, Debug)]
pub struct Ctl {
    /// The process's socket
    pub socket: PathBuf,

    /// What it is to do
    #[command(subcommand)]
    pub command: CtlCommand,
}

/// What a process can be told.
#[derive(Debug, Subcommand)]
pub enum CtlCommand {
    /// Show limits, holders, and who waits and why
    Snapshot,
    /// Set a limit
    Resize {
        /// host, pinned, device0, …
        space: String,
        /// The limit, such as 2GiB
        bytes: Bytes,
    },
    /// Begin nothing new; what is under way goes on to its end
    Pause,
    /// Begin new work again
    Resume,
    /// Drop a residency that no job uses; the next job that needs it loads it again
    Evict {
        /// Its name, as `snapshot` tells it
        residency: String,
    },
    /// Cancel the jobs of this name
    Cancel {
        /// The name, as `snapshot` tells it
        job: String,
    },
    /// Write a pprof profile of who holds what, by class, stage and job
    LedgerProfile {
        /// The file, which must not exist yet
        path: PathBuf,
    },
    /// Write a profile of the heap (the process must be built with heap-profiles, and started with _RJEM_MALLOC_CONF=prof:true)
    HeapProfile {
        /// The file, which must not exist yet; one that ends in .svg becomes a flame graph, any other a pprof profile
        path: PathBuf,
    },
    /// Something that the program itself offers
    Do {
        /// The command
        command: String,
        /// Its fields
        #[arg(value_name = "NAME=VALUE")]
        fields: Vec<String>,
    },
}

/// What computes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// A CUDA device if there is one, the processor otherwise.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// A CUDA device.
    Cuda,
    /// Devices of ICICLE's.
    Icicle(Which),
}

impl FromStr for BackendChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::Auto),
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "cuda" => Ok(Self::Cuda),
            None if text == "icicle" => Ok(Self::Icicle(Which::First)),
            Some(("icicle", device)) => match device.parse() {
                Ok(which) => Ok(Self::Icicle(which)),
                Err(error) => Err(OpenError::to_string(&error)),
            },
            _ => Err("there are auto, cpu, cuda, icicle, and devices of ICICLE's, such as icicle:CUDA:1".to_owned()),
        }
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda => f.write_str("cuda"),
            Self::Icicle(Which::First) => f.write_str("icicle"),
            Self::Icicle(which) => write!(f, "icicle:{which}"),
        }
    }
}

/// Kinds of set-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Setup {
    /// INSECURE: make a development key on this machine, once, and keep it in the cache; whoever makes such a key can forge proofs
    #[default]
    InsecureDev,
}

/// `plimsoll doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// The most memory that proving may take, such as 2GiB
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Bytes>,

    /// What would compute: whether it can be had is part of the answer
    #[arg(
        long,
        value_name = "auto|cpu|cuda|icicle[:DEVICE]",
        default_value_t,
        value_parser = clap::value_parser!(BackendChoice)
    )]
    pub backend: BackendChoice,

    /// Threads that would compute
    #[arg(long, value_name = "N", value_parser = threads)]
    pub threads: Option<NonZeroUsize>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `plimsoll verify`.
#[derive(Args, Debug)]
pub struct Verify {
    /// The proof
    #[arg(value_name = "PROOF", required_unless_present = "vkey", conflicts_with = "vkey")]
    pub file_proof: Option<PathBuf>,

    /// A proof of snarkjs's instead.
    #[command(flatten)]
    pub snarkjs: VerifySnarkjs,

    /// Check also that the proof is about this file
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Accept only the key with this identity
    ///
    /// A proof file carries its verifying key. Whoever made that key can forge proofs: compare its identity with one that you
    /// trust.
    #[arg(long, value_name = "HEX", value_parser = key_identity)]
    pub key: Option<[u8; 32]>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// More than any machine has cores for one process; a typing error costs a message, not an hour of planning.
const THREADS_MAX: usize = 1024;

fn threads(text: &str) -> Result<NonZeroUsize, String> {
    let threads = text.parse().ok().filter(|threads: &NonZeroUsize| threads.get() <= THREADS_MAX);
    threads.ok_or_else(|| format!("write a number from 1 to {THREADS_MAX}"))
}

fn key_identity(text: &str) -> Result<[u8; 32], String> {
    let mut identity = [0; 32];
    hex::decode_to_slice(text, &mut identity).map_err(|_| "a key's identity is 64 hex digits".to_owned())?;
    Ok(identity)
}

fn footer(examples: &str) -> String {
    format!("{examples}\n\nExit codes:\n{}", Exit::TABLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn defaults_need_no_flag() {
        let cli = Cli::try_parse_from(["plimsoll", "prove", "letter.txt"]).unwrap();
        let Command::Prove(prove) = cli.command else { panic!("prove") };
        assert_eq!((prove.setup, prove.backend), (Setup::InsecureDev, BackendChoice::Auto));
        assert_eq!(
            (prove.memory, prove.threads, prove.output, prove.trace, prove.json),
            (None, None, None, None, false)
        );
    }

    #[test]
    fn threads_are_a_sensible_number() {
        let parse = |threads| Cli::try_parse_from(["plimsoll", "prove", "x", "--threads", threads]);
        assert!(parse("1").is_ok() && parse("1024").is_ok());
        for absurd in ["0", "1025", "18446744073709551615", "18446744073709551616", "-1", "two", ""] {
            assert!(parse(absurd).is_err(), "{absurd:?}");
        }
    }

    #[test]
    fn sizes_are_binary() {
        let parse = |size| {
            Cli::try_parse_from(["plimsoll", "prove", "x", "--memory", size]).map(|cli| match cli.command {
                Command::Prove(prove) => prove.memory,
                _ => None,
            })
        };
        assert_eq!(parse("2GiB").unwrap(), Some(Bytes(2 << 30)));
        assert!(parse("2GB").is_err());
        assert!(parse("-1").is_err());
    }

    #[test]
    fn a_backend_is_read_as_it_is_written() {
        for text in ["auto", "cpu", "cuda", "icicle", "icicle:CUDA", "icicle:CUDA:0", "icicle:METAL:3"] {
            assert_eq!(text.parse::<BackendChoice>().expect(text).to_string(), text);
        }
        for wrong in ["", "gpu", "icicle:", "icicle:CUDA:x", "cuda:1", "Icicle"] {
            assert!(wrong.parse::<BackendChoice>().is_err(), "{wrong}");
        }
    }
}
