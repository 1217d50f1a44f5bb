//! What is about circom's and snarkjs's files, and about keys in general.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use clap_complete::Shell;

pub(super) const INSPECT_EXAMPLES: &str = "\
Examples:
  plimsoll inspect circuit.zkey
  plimsoll inspect powers.ptau --contents 2      the first powers of tau, and who contributed
  plimsoll inspect circuit.r1cs --contents 3       the first constraints, by the signals' names if circuit.sym is beside it
  plimsoll inspect circuit.r1cs --json | jq .facts.constraints";

pub(super) const SETUP_EXAMPLES: &str = "\
Examples:
  plimsoll setup check circuit.zkey --r1cs circuit.r1cs
  plimsoll setup import circuit.zkey          checks it once; proving with it needs no more checks of its points
  plimsoll setup powers --power 15 --output dev.ptau     INSECURE, for trying out
  plimsoll setup convert circuit.zkey --to verification-key --output verification_key.json";

/// A circuit of circom's, to be proved for many witnesses.
#[derive(Args, Debug)]
pub struct ProveCircom {
    /// Prove witnesses of a circuit: its key, from snarkjs
    #[arg(long, value_name = "FILE", requires = "wtns")]
    pub zkey: Option<PathBuf>,

    /// The witnesses: files, folders, patterns such as 'w/*.wtns', or - for a list on standard input, one a line
    #[arg(long, value_name = "WTNS", num_args = 1.., requires = "zkey")]
    pub wtns: Vec<PathBuf>,

    /// The circuit's constraints, to check each witness with before it is proved
    ///
    /// Without them a wrong witness is found by verifying its proof, and nobody can say which constraint it breaks.
    #[arg(long, value_name = "FILE", requires = "zkey")]
    pub r1cs: Option<PathBuf>,

    /// The names of the circuit's signals, for telling which constraint a witness breaks
    ///
    /// By default the file beside the r1cs file with the ending .sym, if there is one.
    #[arg(long, value_name = "FILE", requires = "zkey")]
    pub sym: Option<PathBuf>,

    /// Check each witness before it is proved, with the r1cs file beside the key unless --r1cs names another
    #[arg(long, requires = "zkey")]
    pub check: bool,
}

/// A proof of snarkjs's.
#[derive(Args, Debug)]
pub struct VerifySnarkjs {
    /// Verify a proof of snarkjs's: its verification_key.json
    #[arg(long, value_name = "FILE", requires = "proof", requires = "public")]
    pub vkey: Option<PathBuf>,

    /// Its proof.json
    #[arg(long, value_name = "FILE", requires = "vkey")]
    pub proof: Option<PathBuf>,

    /// Its public.json
    #[arg(long, value_name = "FILE", requires = "vkey")]
    pub public: Option<PathBuf>,
}

/// `plimsoll inspect`.
#[derive(Args, Debug)]
pub struct Inspect {
    /// The file
    pub file: PathBuf,

    /// Also what is in it: the first N constraints, points, public inputs and contributions; never values of a witness
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "10")]
    pub contents: Option<usize>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `plimsoll setup`.
#[derive(Args, Debug)]
pub struct Setup {
    /// What to do
    #[command(subcommand)]
    pub command: SetupCommand,
}

/// What can be done with keys.
#[derive(Debug, Subcommand)]
pub enum SetupCommand {
    /// Check a key: every point, its equations, and whether it is for a circuit
    Check {
        /// The key: a zkey, or parameters of bellperson's
        key: PathBuf,
        /// The circuit's constraints
        #[arg(long, value_name = "FILE")]
        r1cs: Option<PathBuf>,
        /// Print one JSON object on standard output
        #[arg(long)]
        json: bool,
    },
    /// Check every point of a key and remember that, so that proving does not check them again
    Import {
        /// The key: a zkey
        key: PathBuf,
        /// The circuit's constraints
        #[arg(long, value_name = "FILE")]
        r1cs: Option<PathBuf>,
        /// Print one JSON object on standard output
        #[arg(long)]
        json: bool,
    },
    /// Make powers of tau for development: INSECURE, whoever makes them can forge proofs
    ///
    /// In seconds, prepared for `snarkjs groth16 setup`; a real ceremony takes snarkjs minutes to hours.
    Powers {
        /// They are good for 2^N constraints
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=18))]
        power: u32,
        /// Where to write them
        #[arg(long, short, value_name = "PATH")]
        output: PathBuf,
        /// Print one JSON object on standard output
        #[arg(long)]
        json: bool,
    },
    /// Convert a key to another format
    Convert {
        /// The key: a zkey, parameters or a verifying key of bellperson's, or a verification_key.json
        key: PathBuf,
        /// The format
        #[arg(long, value_enum)]
        to: Convert,
        /// Where to write it
        #[arg(long, short, value_name = "PATH")]
        output: PathBuf,
        /// Print one JSON object on standard output
        #[arg(long)]
        json: bool,
    },
}

impl SetupCommand {
    /// Whether the answer is to be JSON.
    pub fn json(&self) -> bool {
        match self {
            Self::Check { json, .. } | Self::Import { json, .. } => *json,
            Self::Powers { json, .. } | Self::Convert { json, .. } => *json,
        }
    }
}

/// Formats that keys are converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Convert {
    /// snarkjs's verification_key.json
    VerificationKey,
    /// A verifying key in bellperson's encoding
    BellpersonVk,
}

/// `plimsoll completions`.
#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

/// `plimsoll man`.
#[derive(Args, Debug)]
pub struct Man {
    /// Write the pages of all commands to this folder
    #[arg(long, short, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
}
